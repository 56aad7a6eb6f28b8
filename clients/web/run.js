// One run, from Start to the last word: the microphone, the captions, and a screen that stays on. No DOM.

import { Capture } from "./capture.js";
import { Captioner } from "./captioner.js";

const SILENT_MS = 6_000;
const SILENT_PEAK = 0.001; // of full scale; a microphone that is on is louder, even in a quiet room

export class Run {
  #capture = null;
  #captioner = null;
  #handlers;
  #lock = null;
  #heard = false; // anything at all
  #silent = false;
  #stopped = null; // why, once someone asked for the end

  /** @param {object} handlers of Captioner, and level(peak, clockMs), silent(whether) */
  constructor(handlers) {
    this.#handlers = handlers;
  }

  get clockMs() {
    return this.#captioner?.clockMs ?? null;
  }

  /**
   * Ask for the microphone, then begin.
   * @param {() => object} settings fields of the start message, asked for once there is a microphone
   * @throws {CaptureError}
   */
  async start(url, settings, originMs) {
    const capture = await Capture.open({
      samples: (samples, peak) => this.#take(samples, peak),
      ended: () => this.stop("unplugged"),
    });
    this.#capture = capture;
    if (this.#stopped) {
      await capture.close();
      this.#handlers.ended({ error: null, lostMs: 0, why: this.#stopped });
      return;
    }
    const start = { ...settings(), audio: { encoding: "s16le", rate_hz: capture.rate, channels: 1 } };
    this.#captioner = new Captioner(url, start, { ...this.#handlers, ...this.#own() }, originMs);
    this.stayAwake();
  }

  /** No more sound; the last words still come. */
  async stop(why = "stop") {
    if (this.#stopped) return;
    this.#stopped = why;
    await this.#capture?.close(); // what it heard until now arrives before this returns
    this.#captioner?.stop(why);
  }

  /** End now, whatever is missing. */
  abandon() {
    this.#stopped ??= "stop";
    this.#captioner?.abandon();
  }

  retry() {
    this.#captioner?.retry();
  }

  #own() {
    return {
      state: (name, detail) => {
        if (name === "finishing" && detail.why === "behind") this.#capture.close();
        this.#handlers.state(name, detail);
      },
      ended: (end) => {
        this.#capture.close();
        this.#lock?.release().catch(() => {});
        this.#handlers.ended({ why: this.#stopped, ...end });
      },
    };
  }

  #take(samples, peak) {
    this.#captioner?.take(samples);
    this.#handlers.level(peak, this.#captioner?.clockMs ?? 0);
    this.#heard ||= peak >= SILENT_PEAK;
    const silent = !this.#heard && this.#captioner?.heardMs > SILENT_MS;
    if (silent !== this.#silent) this.#handlers.silent(silent);
    this.#silent = silent;
  }

  /** Keep the screen on; to be asked for again after the page was out of sight. */
  async stayAwake() {
    if (!this.#captioner) return;
    try {
      this.#lock = await navigator.wakeLock.request("screen");
    } catch {} // a battery that is low, or a browser that has no such thing
  }
}
