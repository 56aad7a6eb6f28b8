// The transcript on the page: a paragraph a segment, and for screen readers every final once.

import { clock } from "./export.js";
import { inOrder } from "./transcript.js";

const STILL_SPOKEN = 5; // finals that stay in the live region; it is a voice, not a second copy to read

export class TranscriptView {
  #list;
  #voice;
  #follower;
  #items = new Map(); // by key of the segment: {item, segment}
  #chosen = "";
  #last = ""; // that was spoken: a guess for segments that do not know theirs yet

  /** @param {HTMLElement} list of segments  @param {HTMLElement} voice a live region  @param {Follower} follower */
  constructor(list, voice, follower) {
    [this.#list, this.#voice, this.#follower] = [list, voice, follower];
  }

  /** What is being spoken, if someone said so: "" or "auto" if not. */
  set language(code) {
    this.#chosen = code === "auto" ? "" : code;
  }

  show(segment) {
    const shown = this.#items.get(segment.key) ?? { item: this.#place(segment) };
    const wasFinal = shown.segment?.final;
    shown.segment = segment;
    this.#items.set(segment.key, shown);
    const [time, text] = shown.item.children;
    const [committed, tentative] = text.children;
    time.textContent = clock(segment.startMs);
    time.dateTime = `PT${(segment.startMs / 1000).toFixed(3)}S`;
    const words = segment.tentative.trimStart(); // the space before them is not theirs to be marked
    committed.textContent = segment.committed + segment.tentative.slice(0, segment.tentative.length - words.length);
    tentative.textContent = words;
    text.lang = segment.language ?? (this.#chosen || this.#last);
    shown.item.classList.toggle("open", !segment.final && !segment.interrupted);
    shown.item.classList.toggle("interrupted", segment.interrupted);
    if (segment.final && !wasFinal) {
      this.#last = segment.language ?? "";
      this.#say(segment);
    }
    this.#follower.grown();
  }

  remove(segment) {
    this.#items.get(segment.key)?.item.remove();
    this.#items.delete(segment.key);
    this.#follower.grown();
  }

  #place(segment) {
    const item = document.createElement("li");
    const [time, text] = [document.createElement("time"), document.createElement("p")];
    for (const name of ["committed", "tentative"]) {
      const part = document.createElement("span");
      part.className = name;
      text.append(part);
    }
    item.append(time, text);
    item.dataset.key = segment.key;
    let after = this.#list.lastElementChild; // nearly always the right place
    while (after && inOrder(this.#items.get(after.dataset.key).segment, segment) > 0) after = after.previousElementSibling;
    if (after) after.after(item);
    else this.#list.prepend(item);
    return item;
  }

  #say(segment) {
    const line = document.createElement("p");
    line.textContent = segment.committed;
    line.lang = segment.language ?? "";
    this.#voice.append(line);
    while (this.#voice.children.length > STILL_SPOKEN) this.#voice.firstElementChild.remove();
  }
}
