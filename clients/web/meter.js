// The level of the microphone, on a scale of decibels: it rises at once and falls slowly, so that the eye can follow.

const FLOOR_DB = 54; // below full scale: as good as silent
const FALL = 0.8; // from one piece of sound to the next

export class Meter {
  #root;
  #level = 0;

  /** @param {HTMLElement} root with a child that is as wide as the level is high */
  constructor(root) {
    this.#root = root;
  }

  /** The peak of the next piece of sound, of full scale. */
  show(peak) {
    this.#level = Math.max(peak, this.#level * FALL);
    this.#draw();
  }

  clear() {
    this.#level = 0;
    this.#draw();
    this.tell();
  }

  /** Tell the level to who cannot see it: seldom, each time is some work for a screen reader. */
  tell() {
    this.#root.setAttribute("aria-valuenow", Math.round(this.#share() * 100));
  }

  #draw() {
    this.#root.firstElementChild.style.transform = `scaleX(${this.#share().toFixed(3)})`;
  }

  #share() {
    return this.#level > 0 ? Math.max(0, 1 + (20 * Math.log10(Math.min(1, this.#level))) / FLOOR_DB) : 0;
  }
}
