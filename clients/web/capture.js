// The microphone: samples as signed 16 bits, one channel, at a rate that the wire knows.

const WIRE_RATES = [8000, 16000, 24000, 44100, 48000];

/** Why there is no sound. `reason` is one of: insecure, denied, missing, busy, failed; or unloaded, for want of the server. */
export class CaptureError extends Error {
  constructor(reason, cause) {
    super(cause ? `${cause.name}: ${cause.message}` : reason, { cause });
    this.reason = reason;
  }
}

const REASONS = {
  NotAllowedError: "denied",
  SecurityError: "denied",
  NotFoundError: "missing",
  OverconstrainedError: "missing",
  NotReadableError: "busy",
  AbortError: "busy",
};

/** Whether this page may ask for a microphone at all: browsers allow it only over https and on the computer itself. */
export function allowed() {
  return Boolean(globalThis.isSecureContext && navigator.mediaDevices?.getUserMedia);
}

export class Capture {
  #context;
  #stream;
  #node;
  #over = false;

  /**
   * Ask for the microphone and begin; no samples come before the caller's next step.
   * @param {object} handlers samples(Int16Array, peak between 0 and 1), ended() when the device goes away
   * @returns {Promise<Capture>}
   * @throws {CaptureError}
   */
  static async open(handlers) {
    if (!allowed()) throw new CaptureError("insecure");
    const capture = new Capture();
    try {
      // Recognisers learn from sound as it is: what calls do to it (echo, noise) costs words. Only the level is helped.
      capture.#stream = await navigator.mediaDevices.getUserMedia({
        audio: { channelCount: 1, echoCancellation: false, noiseSuppression: false, autoGainControl: true },
      });
      await capture.#connect(handlers);
    } catch (error) {
      await capture.close();
      if (error instanceof CaptureError) throw error;
      throw new CaptureError(REASONS[error.name] ?? "failed", error);
    }
    return capture;
  }

  /** Hertz, of the samples. */
  get rate() {
    return this.#context.sampleRate;
  }

  /** Give the device back. What was heard until now still comes, before this returns. */
  async close() {
    if (this.#over) return;
    this.#over = true;
    for (const track of this.#stream?.getTracks() ?? []) track.stop();
    if (this.#node && this.#context.state === "running") await this.#rest();
    await this.#context?.close();
  }

  async #connect(handlers) {
    this.#context = new AudioContext();
    if (!WIRE_RATES.includes(this.#context.sampleRate)) {
      await this.#context.close();
      this.#context = new AudioContext({ sampleRate: 48000 });
    }
    try {
      // From the server each time: its Content-Security-Policy would refuse a copy that the page keeps (blob:).
      await this.#context.audioWorklet.addModule(new URL("worklet.js", import.meta.url));
    } catch (error) {
      throw new CaptureError("unloaded", error);
    }
    this.#node = new AudioWorkletNode(this.#context, "pieces");
    this.#node.port.onmessage = ({ data }) => {
      if (data.samples.length) handlers.samples(data.samples, data.peak);
      if (data.last) this.#node.dispatchEvent(new Event("rest"));
    };
    this.#context.createMediaStreamSource(this.#stream).connect(this.#node);
    this.#node.connect(this.#context.destination); // its output is silence; unconnected, some browsers never run it
    for (const track of this.#stream.getAudioTracks())
      track.onended = () => this.#over || handlers.ended(); // not called for our own track.stop()
    // A phone call, or another program, may take the device for a while; afterwards go on.
    this.#context.onstatechange = () => {
      if (this.#context.state !== "closed") this.#context.resume().catch(() => {});
    };
    this.#context.resume().catch(() => {});
  }

  #rest() {
    return new Promise((resolve) => {
      this.#node.addEventListener("rest", resolve, { once: true });
      setTimeout(resolve, 500); // a device that has gone may leave the audio thread asleep
      this.#node.port.postMessage("end");
    });
  }
}
