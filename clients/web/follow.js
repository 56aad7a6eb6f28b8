// The newest words stay in sight, unless someone scrolled up to read: then they stay where they are.

const NEAR_PX = 48;

export class Follower {
  #page = document.scrollingElement;
  #button;
  #following = true;
  #top = 0;
  #asked = false;

  /** @param {HTMLButtonElement} button that leads back to the newest words */
  constructor(button) {
    this.#button = button;
    button.onclick = () => this.jump();
    addEventListener("scroll", () => this.#scrolled(), { passive: true });
    addEventListener("resize", () => this.grown());
  }

  /** There are more words, or fewer. */
  grown() {
    if (this.#asked) return;
    this.#asked = true;
    requestAnimationFrame(() => {
      this.#asked = false;
      if (this.#following) this.#page.scrollTop = this.#page.scrollHeight;
      this.#update();
    });
  }

  jump() {
    this.#following = true;
    this.#page.scrollTop = this.#page.scrollHeight;
    this.#update();
  }

  #scrolled() {
    const top = this.#page.scrollTop;
    if (this.#restPx() < NEAR_PX) this.#following = true;
    else if (top < this.#top) this.#following = false; // growing scrolls down, only people scroll up
    this.#top = top;
    this.#update();
  }

  #update() {
    this.#button.hidden = this.#following || this.#restPx() < NEAR_PX;
  }

  #restPx() {
    return this.#page.scrollHeight - this.#page.clientHeight - this.#page.scrollTop;
  }
}
