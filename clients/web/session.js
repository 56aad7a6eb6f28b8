// One session of the wire protocol (docs/protocol.md) over one WebSocket. No DOM, nothing else of this folder: take it
// along to other pages.
//
//   const session = new Session("ws://127.0.0.1:8765/v1/stream", { language: "zh", audio: { rate_hz: 48000 } }, {
//     opened() { session.audio(samples); },           // Int16Array, as often as there is sound; then session.stop()
//     transcript(message) { ... },                    // every message of the server goes to the handler of its name
//     closed({ code, error, done }) { ... },          // the last call: how it ended
//   });

export const CLOSED_NORMALLY = 1000;
const CLOSED_WITHOUT_A_WORD = 1006;
const OPENING_MS = 10_000;

export class Session {
  #socket;
  #handlers;
  #number = 0;
  #error = null;
  #done = null;
  #started = false;
  #over = false;
  #spoke = performance.now();
  #waiting = null; // since when audio is out that nothing has answered
  #patience;
  #pulse;

  /**
   * @param {string | URL} url of the server, ws: or wss:
   * @param {object} start the fields of the start message that differ from their defaults
   * @param {object} handlers opened(), closed(ending), and one for each message type that matters
   * @param {string} [token] where the server wants one and no cookie carries it
   */
  constructor(url, start, handlers, token) {
    this.#handlers = handlers;
    this.#socket = new WebSocket(url, ["liveasr.v1", ...(token ? [`liveasr.token.${token}`] : [])]);
    this.#socket.binaryType = "arraybuffer";
    this.#socket.onopen = () => {
      clearTimeout(this.#patience);
      this.#send({ type: "start", version: 1, ...start });
      this.#started = true;
      this.#handlers.opened?.();
    };
    this.#socket.onmessage = (event) => this.#receive(event.data);
    this.#socket.onclose = (event) => this.#end(event.code);
    this.#patience = setTimeout(() => this.abandon(), OPENING_MS); // a host that does not answer takes minutes to fail
  }

  /** Whether audio can be sent now. */
  get open() {
    return this.#started && !this.#over && this.#socket.readyState === WebSocket.OPEN;
  }

  /** For how many milliseconds audio has been going out with nothing coming back: a server acknowledges it all the time. */
  get waitingMs() {
    return this.#waiting === null ? 0 : performance.now() - this.#waiting;
  }

  /** Send the next samples, an Int16Array; returns the number of the frame. Every computer with a browser is little-endian. */
  audio(samples) {
    const frame = new ArrayBuffer(4 + samples.byteLength);
    this.#number += 1;
    new DataView(frame).setUint32(0, this.#number, true);
    new Int16Array(frame, 4).set(samples);
    this.#socket.send(frame);
    this.#spoke = performance.now();
    this.#waiting ??= this.#spoke;
    return this.#number;
  }

  /** End the open segment here; `flushed` comes after its final. */
  flush() {
    this.#send({ type: "flush" });
  }

  /** No more audio comes. What is missing follows, then `done`, then `closed`. */
  stop() {
    this.#send({ type: "stop" });
  }

  /** Give the connection up without waiting for anything; `closed` is called at once. */
  abandon() {
    this.#socket.close();
    this.#end(CLOSED_WITHOUT_A_WORD);
  }

  #send(message) {
    this.#socket.send(JSON.stringify(message));
    this.#spoke = performance.now();
  }

  #receive(data) {
    if (this.#over) return;
    this.#waiting = null;
    const message = JSON.parse(data);
    if (message.type === "ready") this.#keepAlive(message.limits.idle_s * 1000);
    if (message.type === "error" && message.fatal) this.#error = message;
    if (message.type === "done") this.#done = message;
    this.#handlers[message.type]?.(message); // a type without a handler is ignored, as the protocol asks
  }

  #keepAlive(idleMs) {
    const pauseMs = idleMs / 3;
    this.#pulse = setInterval(() => {
      if (this.open && performance.now() - this.#spoke > pauseMs) this.#send({ type: "ping" });
    }, pauseMs);
  }

  #end(code) {
    if (this.#over) return;
    this.#over = true;
    clearTimeout(this.#patience);
    clearInterval(this.#pulse);
    this.#handlers.closed?.({ code, error: this.#error, done: this.#done });
  }
}
