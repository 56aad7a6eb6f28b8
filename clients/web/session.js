// One session of the wire protocol (docs/protocol.md), over one WebSocket after another. No DOM, nothing else of this
// folder: take it along to other pages.
//
//   const session = new Session("ws://127.0.0.1:8765/v1/stream", { language: "zh", audio: { rate_hz: 48000 } }, {
//     transcript(message) { ... },                    // every message of the server goes to the handler of its name
//     closed({ code, error, done }) { ... },          // a connection is over: see `complete` and `resumable`
//   });
//   session.audio(samples);                           // Int16Array, as often as there is sound; then session.stop()
//
// Sound and stop may come at any time: what cannot be sent is kept, and so is what was sent, until it is settled. Where
// the server has the session no more, `rest` is what a new one begins with.
//
// A server that is about to stop says so, and ends the open segment at once, perhaps within a word. What it says after
// that is held back, as a new session hears the segment whole: where there is none, call `release`.

const CLOSED_WITHOUT_A_WORD = 1006;
const CLOSED_FOR_ANOTHER = 4411; // that goes on with the session
const QUIET_MS = 10_000; // without an answer; a server acknowledges sound all the time
const PING_MS = 5_000; // after the last message, while there is no sound
const BEAT_MS = 1_000;
const HELD = new Set(["transcript", "ack", "done"]);
const KEPT_MS = 30_000;
const SEGMENT_MS = 20_000; // the longest that a model has of its own, unless the start message says otherwise
const BEYOND_SEGMENT_MS = 10_000;

export class Session {
  #url;
  #start;
  #handlers;
  #protocols;
  #rate; // samples in a second
  #room; // how many samples are kept
  #socket = null;
  #flowing = false; // what comes may be sent at once
  #id = null;
  #seq = 0; // of the last message that came
  #frames = []; // {number, at, samples} that are not settled; at: of the first sample
  #number = 0; // of the last frame
  #taken = 0; // samples
  #settled = 0; // samples before which no new session would begin
  #stopped = false;
  #error = null; // of this connection
  #done = null;
  #held = null; // messages, once the server is stopping
  #pingMs = PING_MS;
  #spoke = 0; // when anything was sent
  #waiting = null; // since when something is out that nothing has answered
  #beating;

  /**
   * @param {string | URL} url of the server, ws: or wss:
   * @param {object} start the fields of the start message that differ from their defaults; samples are s16le
   * @param {object} handlers closed(ending), and one for each message type that matters
   * @param {string} [token] where the server wants one and no cookie carries it
   */
  constructor(url, start, handlers, token) {
    [this.#url, this.#start, this.#handlers] = [url, start, handlers];
    this.#protocols = ["liveasr.v1", ...(token ? [`liveasr.token.${token}`] : [])];
    this.#rate = start.audio?.rate_hz ?? 16_000;
    const segmentMs = start.vad?.max_segment_ms ?? SEGMENT_MS;
    this.#room = this.#samples(Math.max(KEPT_MS, segmentMs + BEYOND_SEGMENT_MS));
    this.#connect();
  }

  /** Whether there is a connection, or one is being made. */
  get connected() {
    return this.#socket !== null;
  }

  /** Whether a server may be waiting to go on: then call `resume`, or else begin a new session with the `rest`. */
  get resumable() {
    return this.#id !== null;
  }

  /** Whether the whole text has come. */
  get complete() {
    return this.#stopped && this.#done?.number === this.#number;
  }

  /** What is not settled: samples, in pieces, and the number of the first one in this session. */
  get rest() {
    const [first, ...others] = this.#frames;
    if (!first) return { at: this.#taken, settled: this.#settled, pieces: [] };
    const cut = Math.max(0, this.#settled - first.at);
    const pieces = [first.samples.subarray(cut), ...others.map(({ samples }) => samples)];
    return { at: first.at + cut, settled: this.#settled, pieces };
  }

  /** The next samples, an Int16Array. */
  audio(samples) {
    this.#number += 1;
    const frame = { number: this.#number, at: this.#taken, samples };
    this.#frames.push(frame);
    this.#taken += samples.length;
    while (this.#taken - this.#frames[0].at > this.#room) this.#frames.shift();
    if (this.#flowing) this.#sendAudio(frame);
  }

  /** No more audio comes. What is missing follows, then `done`, then `closed`. */
  stop() {
    this.#stopped = true;
    if (this.#flowing) this.#send({ type: "stop" });
  }

  /** Go on over a new connection, after `closed`. */
  resume() {
    this.#connect();
  }

  /** Give the connection up without waiting for anything; `closed` is called at once. */
  abandon() {
    this.#end(CLOSED_WITHOUT_A_WORD);
  }

  /** Take what is held back: no new session hears it again. */
  release() {
    const held = this.#held ?? [];
    this.#held = null;
    for (const message of held) this.#take(message);
  }

  /** Do without the samples before that one. */
  skip(samples) {
    this.#settled = Math.max(this.#settled, samples);
    while (this.#frames[0] && this.#frames[0].at + this.#frames[0].samples.length <= this.#settled) this.#frames.shift();
  }

  #connect() {
    const socket = new WebSocket(this.#url, this.#protocols);
    this.#socket = socket;
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      if (this.#id === null) {
        this.#send({ type: "start", version: 1, ...this.#start });
        this.#flow(this.#frames);
      } else this.#send({ type: "resume", session: this.#id, seq: this.#seq });
    };
    socket.onmessage = ({ data }) => this.#receive(JSON.parse(data));
    socket.onclose = ({ code }) => this.#end(code);
    this.#error = null;
    this.#waiting = this.#spoke = performance.now(); // a host that does not answer takes minutes to fail
    this.#beat();
  }

  /** Send what is left to send, and from now on everything at once. */
  #flow(frames) {
    this.#flowing = true;
    for (const frame of frames) this.#sendAudio(frame);
    if (this.#stopped) this.#send({ type: "stop" });
  }

  /** Every computer with a browser is little-endian, as the wire is. */
  #sendAudio({ number, samples }) {
    const frame = new ArrayBuffer(4 + samples.byteLength);
    new DataView(frame).setUint32(0, number, true);
    new Int16Array(frame, 4).set(samples);
    this.#transmit(frame);
  }

  #send(message) {
    this.#transmit(JSON.stringify(message));
  }

  #transmit(frame) {
    this.#socket.send(frame); // one that is closing takes it, too, and drops it
    this.#spoke = performance.now();
    this.#waiting ??= this.#spoke;
  }

  #receive(message) {
    this.#waiting = null;
    if (message.seq) {
      if (message.seq <= this.#seq) return;
      this.#seq = message.seq; // of every message, also of one that nobody here knows
    }
    if (message.type === "done") {
      this.#done = message;
      this.#id = null;
      if (this.complete || message.reason === "stop") this.release();
    }
    if (this.#held && HELD.has(message.type)) this.#held.push(message);
    else this.#take(message);
  }

  #take(message) {
    this.#own[message.type]?.(message);
    this.#handlers[message.type]?.(message); // a type without a handler is ignored, as the protocol asks
  }

  #own = {
    ready: ({ session, limits }) => {
      this.#id = session;
      this.#pingMs = Math.min(PING_MS, (limits.idle_s * 1000) / 3);
      this.#beat();
    },
    resumed: ({ number, stopping }) => {
      if (stopping) return; // nothing is left to send
      const frames = this.#frames.filter((frame) => frame.number > number);
      if (frames.length === 0 || frames[0].number === number + 1) this.#flow(frames);
      else this.#send({ type: "stop" }); // what lies between was not kept: this session ends, and a new one takes the rest
    },
    ack: ({ settled_ms }) => this.#settle(settled_ms),
    transcript: ({ final, end_ms }) => final && this.#settle(end_ms),
    error: (message) => {
      if (message.code === "shutdown" && !message.fatal) this.#held ??= [];
      if (!message.fatal) return;
      this.#error = message;
      if (message.seq || message.code === "gone") this.#id = null; // others refuse the connection only
    },
    done: (message) => {
      this.#settle(message.heard_ms);
      this.#frames = this.#frames.filter(({ number }) => number > message.number);
      const next = this.#frames[0] ?? { number: this.#number + 1, at: this.#taken };
      if (next.number === message.number + 1) this.#settled = next.at; // a millisecond may hold half a sample
    },
  };

  #settle(ms) {
    this.skip(this.#samples(ms));
  }

  /** Over and over, while there is a connection: a network that went away tells nobody. */
  #beat() {
    clearTimeout(this.#beating);
    const now = performance.now();
    if (this.#waiting !== null && now - this.#waiting > QUIET_MS) return this.abandon();
    const idle = this.#socket.readyState === WebSocket.OPEN && now - this.#spoke >= this.#pingMs;
    if (idle) this.#send({ type: "ping" });
    this.#beating = setTimeout(() => this.#beat(), Math.min(BEAT_MS, this.#pingMs));
  }

  #end(code) {
    const socket = this.#socket;
    if (socket === null) return;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
    clearTimeout(this.#beating);
    this.#socket = null;
    this.#flowing = false;
    if (code === CLOSED_FOR_ANOTHER) this.#id = null;
    this.#handlers.closed?.({ code, error: this.#error, done: this.#done });
  }

  #samples(ms) {
    return Math.floor((ms * this.#rate) / 1000);
  }
}
