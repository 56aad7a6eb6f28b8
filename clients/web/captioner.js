// Captions that go on when a connection breaks: one session after another, on one clock. No DOM.
//
//   connecting -> listening <-> reconnecting
//        any of them -> finishing -> ended
//
// The clock is the sound itself: how much of it was taken. Sound that no server has acknowledged is kept, the latest
// half minute of it, and goes first into the next session, whose times are then counted from where that sound began.

import { Session } from "./session.js";

const KEEP_MS = 30_000;
const FALL_BEHIND_MS = 60_000; // sent, and not yet taken: beyond that the sound would pile up in the browser
const QUIET_MS = 10_000; // a server that takes sound says so twice a second
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 8_000;

/** After these a server may be there again a little later. */
const PASSING_ERRORS = new Set(["overloaded", "shutdown", "idle", "slow_reader"]);
const PASSING_CODES = new Set([4408, 4429]); // the last two of them, if their message was lost
/** After these, and after the protocol's own, 4000 and up, another try would end as this one did. */
const LASTING_CODES = new Set([1002, 1003, 1007, 1008, 1009, 1010]);

function passing(code, error) {
  if (error) return PASSING_ERRORS.has(error.code);
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
  #kept = []; // {at, samples} that no server has acknowledged, the latest KEEP_MS
  #acknowledged = 0; // where the sound begins that none has
  #firstNumber = 1; // of kept[0] in the session
  #session = null;
  #failures = 0;
  #timer;

  /**
   * @param {string | URL} url of the server
   * @param {object} start fields of the start message, with audio.rate_hz
   * @param {object} handlers state(name, detail), transcript(message, offsetMs), sessionEnded(), lag(ms, overload),
   *   ended({error, lostMs}); transcripts come in the server's words, offsetMs is where their session began
   * @param {number} [originMs] what the clock shows at the first sample
   */
  constructor(url, start, handlers, originMs = 0) {
    [this.#url, this.#start, this.#handlers, this.#originMs] = [url, start, handlers, originMs];
    this.#rate = start.audio.rate_hz;
    this.#connect();
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
    if (this.state === "finishing" || this.state === "ended") return;
    this.#kept.push({ at: this.#taken, samples });
    this.#taken += samples.length;
    while (this.#taken - this.#kept[0].at > this.#samples(KEEP_MS)) {
      this.#kept.shift();
      this.#firstNumber += 1;
    }
    if (!this.#session?.open) return;
    this.#session.audio(samples);
    if (this.#session.waitingMs > QUIET_MS) this.#session.abandon(); // a network that went away tells nobody
    else if (this.#taken - this.#acknowledged > this.#samples(FALL_BEHIND_MS)) this.stop("behind");
  }

  /** No more sound comes: wait for the last words, or, without a connection, end here. */
  stop(why = "stop") {
    if (this.state === "finishing" || this.state === "ended") return;
    if (this.#session?.open) {
      this.#enter("finishing", { why });
      this.#session.stop();
    } else this.#end(null);
  }

  /** End now, whatever is still missing. */
  abandon() {
    this.#end(null);
  }

  /** While reconnecting: do not wait any longer. */
  retry() {
    if (this.state === "reconnecting" && this.#session === null) this.#connect();
  }

  #connect() {
    clearTimeout(this.#timer);
    let offset = 0;
    this.#session = new Session(this.#url, this.#start, {
      opened: () => {
        offset = this.#acknowledged = this.#kept[0]?.at ?? this.#taken;
        this.#firstNumber = 1;
        for (const { samples } of this.#kept) this.#session.audio(samples);
      },
      ready: () => this.state === "finishing" || this.#enter("listening"),
      ack: ({ number }) => this.#drop(number),
      done: ({ number }) => this.#drop(number), // a server that is told to stop finishes what it took
      transcript: (message) => this.#handlers.transcript(message, this.#ms(offset)),
      lag: ({ lag_ms }) => this.#handlers.lag(lag_ms, false),
      overload: ({ lag_ms }) => this.#handlers.lag(lag_ms, true),
      closed: (ending) => this.#closed(ending),
    });
  }

  #drop(number) {
    this.#failures = 0; // not before: a server that lets us in and fails is still failing
    const gone = Math.max(0, number - this.#firstNumber + 1);
    this.#kept.splice(0, gone);
    this.#firstNumber += gone;
    this.#acknowledged = this.#kept[0]?.at ?? this.#taken;
  }

  #closed({ code, error, done }) {
    if (this.state === "ended") return;
    this.#session = null;
    this.#handlers.lag(0, false);
    this.#handlers.sessionEnded();
    if (this.state === "finishing") return this.#end(done ? null : (error ?? { code: "broken" }));
    if (!passing(code, error))
      return this.#end(error ?? { code: "closed", message: `the server closed the connection (${code})` });
    const pauseMs = waitMs(this.#failures);
    this.#failures += 1;
    this.#timer = setTimeout(() => this.#connect(), pauseMs);
    this.#enter("reconnecting", { pauseMs, error });
  }

  #end(error) {
    if (this.state === "ended") return;
    const lostMs = error === null && this.state !== "finishing" ? this.#ms(this.#taken) - this.#ms(this.#acknowledged) : 0;
    this.#enter("ended");
    clearTimeout(this.#timer);
    this.#session?.abandon();
    this.#kept = [];
    this.#handlers.ended({ error, lostMs });
  }

  #enter(state, detail = {}) {
    this.state = state;
    this.#handlers.state(state, detail);
  }

  #ms(samples) {
    return this.#originMs + Math.round((samples * 1000) / this.#rate);
  }

  #samples(ms) {
    return (ms * this.#rate) / 1000;
  }
}
