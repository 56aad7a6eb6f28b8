// Captions that go on when a connection breaks: one session after another, on one clock. No DOM.
//
//   connecting -> listening <-> reconnecting
//        any of them -> finishing -> ended
//
// The clock is the sound itself: how much of it was taken. A session whose connection broke goes on over the next one.
// If the server has it no more, a new one begins with the sound that is not settled, and its times are counted from there.

import { Session } from "./session.js";

const FALL_BEHIND_MS = 60_000; // sent, and not yet taken: beyond that the sound would pile up in the browser
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 8_000;

/** The session is over, and the server there: a new one can begin at once. */
const SUCCEEDED_CODES = new Set([4410, 4411, 4413]); // gone, replaced, session_limit
/** After these a server may take the captions a little later, and after most of those below 4000. */
const PASSING_CODES = new Set([4408, 4429, 4503]); // idle, slow_reader, too_many_sessions
const LASTING_CODES = new Set([1002, 1003, 1007, 1008, 1009, 1010]);

function passing(code) {
  return PASSING_CODES.has(code) || (code < 4000 && !LASTING_CODES.has(code));
}

/** How long to wait before a try: doubling, and never twice the same, so that many pages do not come back at once. */
export function waitMs(failures, random = Math.random) {
  return Math.min(FIRST_WAIT_MS * 2 ** failures, LONGEST_WAIT_MS) * (0.75 + random() / 2);
}

export class Captioner {
  state = "connecting";
  #url;
  #start;
  #handlers;
  #rate;
  #originMs;
  #taken = 0; // samples, in all
  #begin = 0; // of the session
  #heard = 0; // samples that the server has taken, as it says
  #session;
  #stopped = null; // {session, begin} whose server is stopping, until another server takes over
  #failures = 0;
  #timer;

  /**
   * @param {string | URL} url of the server
   * @param {object} start fields of the start message, with audio.rate_hz
   * @param {object} handlers
   *   state(name, detail): one of the above;
   *   connection(trouble): {pauseMs, error} while there is none, null when there is one again;
   *   session(clockMs): a new one begins there, and says again what was not final;
   *   transcript(message, offsetMs): in the server's words; offsetMs is where its session began;
   *   settled(clockMs): there are finals for all that was said until then;
   *   lost(ms): so much sound could not be kept until there was a server for it;
   *   lag(ms, overload);
   *   ended({error, lostMs}): the last call
   * @param {number} [originMs] what the clock shows at the first sample
   */
  constructor(url, start, handlers, originMs = 0) {
    [this.#url, this.#start, this.#handlers, this.#originMs] = [url, start, handlers, originMs];
    this.#rate = start.audio.rate_hz;
    this.#open({ at: 0, settled: 0, pieces: [] });
  }

  /** What the clock shows: how much sound there was, in all. */
  get clockMs() {
    return this.#ms(this.#taken);
  }

  /** How much sound this run has had. */
  get heardMs() {
    return this.clockMs - this.#originMs;
  }

  /** The next samples of the microphone, an Int16Array. */
  take(samples) {
    if (this.#stopping) return;
    this.#taken += samples.length;
    this.#session.audio(samples);
    const behind = this.#ms(this.#taken) - this.#ms(this.#heard);
    if (this.state === "listening" && behind > FALL_BEHIND_MS) this.stop("behind");
  }

  /** No more sound comes: wait for the last words, and for a connection that they can come over. */
  stop(why = "stop") {
    if (this.#stopping) return;
    this.#enter("finishing", { why });
    this.#session.stop();
    this.retry();
  }

  /** End now, whatever is still missing. */
  abandon() {
    this.#end(null);
  }

  /** While there is no connection: do not wait any longer. */
  retry() {
    if (this.state !== "ended" && !this.#session.connected) this.#connect();
  }

  get #stopping() {
    return this.state === "finishing" || this.state === "ended";
  }

  #connect() {
    clearTimeout(this.#timer);
    if (this.#session.resumable) return this.#session.resume();
    const { at, settled } = this.#session.rest;
    if (at > settled) this.#release(); // what was held back could not be heard whole again
    this.#open(this.#session.rest);
  }

  /** No server takes over: what the last one said in haste is better than nothing. */
  #release() {
    if (this.#stopped === null) return;
    const { session, begin } = this.#stopped;
    this.#stopped = null;
    session.release();
    this.#session.skip(begin + session.rest.settled - this.#begin);
  }

  /** A new session, with what the last one left. */
  #open({ at, settled, pieces }) {
    this.#begin += at;
    this.#heard = this.#begin;
    const offsetMs = this.#ms(this.#begin);
    const atMs = (ms) => this.#begin + (ms * this.#rate) / 1000;
    const connected = () => {
      if (!this.#stopping) this.#enter("listening");
      this.#handlers.connection(null);
    };
    this.#handlers.session(offsetMs);
    if (at > settled) this.#handlers.lost(((at - settled) * 1000) / this.#rate);
    this.#session = new Session(this.#url, this.#start, {
      ready: () => {
        this.#stopped = null;
        connected();
      },
      resumed: connected,
      ack: ({ settled_ms, heard_ms }) => {
        this.#failures = 0; // not before: a server that lets us in and fails is still failing
        this.#heard = atMs(heard_ms);
        this.#handlers.settled(offsetMs + settled_ms);
      },
      transcript: (message) => this.#handlers.transcript(message, offsetMs),
      lag: ({ lag_ms }) => this.#handlers.lag(lag_ms, false),
      overload: ({ lag_ms }) => this.#handlers.lag(lag_ms, true),
      error: ({ code, fatal }) => {
        if (code === "shutdown" && !fatal) this.#stopped = { session: this.#session, begin: this.#begin };
      },
      done: ({ heard_ms }) => this.#handlers.settled(offsetMs + heard_ms),
      closed: (ending) => this.#closed(ending),
    });
    for (const samples of pieces) this.#session.audio(samples);
    if (this.#stopping) this.#session.stop();
  }

  #closed({ code, error, done }) {
    if (this.state === "ended") return;
    this.#handlers.lag(0, false);
    if (this.#session.complete) return this.#end(null);
    if (SUCCEEDED_CODES.has(code) || done?.reason === "stop") return this.#connect();
    if (!passing(code)) return this.#end(error ?? { code: "closed", message: `the server closed the connection (${code})` });
    const pauseMs = waitMs(this.#failures);
    this.#failures += 1;
    this.#timer = setTimeout(() => this.#connect(), pauseMs);
    if (!this.#stopping) this.#enter("reconnecting");
    this.#handlers.connection({ pauseMs, error });
  }

  #end(error) {
    if (this.state === "ended") return;
    this.#enter("ended");
    clearTimeout(this.#timer);
    this.#release();
    const { settled } = this.#session.rest;
    const missing = error === null && !this.#session.connected && !this.#session.complete;
    const lostMs = missing ? this.clockMs - this.#ms(this.#begin + settled) : 0;
    this.#session.abandon();
    this.#handlers.ended({ error, lostMs });
  }

  #enter(state, detail = {}) {
    this.state = state;
    this.#handlers.state(state, detail);
  }

  #ms(samples) {
    return this.#originMs + Math.round((samples * 1000) / this.#rate);
  }
}
