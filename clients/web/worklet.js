// On the audio thread: the mean of all channels, as signed 16 bits, in pieces of a twentieth of a second.

class Pieces extends AudioWorkletProcessor {
  #piece = new Int16Array(Math.round(sampleRate / 20));
  #filled = 0;
  #peak = 0;
  #ended = false;

  constructor() {
    super();
    this.port.onmessage = () => {
      this.#post(true);
      this.#ended = true;
    };
  }

  process([channels]) {
    for (let index = 0; index < (channels[0]?.length ?? 0); index += 1) {
      let sum = 0;
      for (const channel of channels) sum += channel[index];
      const value = sum / channels.length;
      this.#peak = Math.max(this.#peak, Math.abs(value));
      this.#piece[this.#filled] = Math.max(-32768, Math.min(32767, Math.round(value * 32768)));
      this.#filled += 1;
      if (this.#filled === this.#piece.length) this.#post(false);
    }
    return !this.#ended;
  }

  #post(last) {
    if (this.#ended) return;
    const samples = this.#piece.slice(0, this.#filled);
    this.port.postMessage({ samples, peak: this.#peak, last }, [samples.buffer]);
    this.#filled = 0;
    this.#peak = 0;
  }
}

registerProcessor("pieces", Pieces);
