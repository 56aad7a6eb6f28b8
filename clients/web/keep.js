// What people do with the text: copy, download, clear.

import { asSrt, asText, fileName } from "./export.js";
import { action } from "./notices.js";

const THANKS_MS = 2_000;
const UNDO_MS = 10_000;

export class Keep {
  #transcript;
  #notices;
  #controls;
  #unsaved = false;

  /** @param {object} controls elements: copy, txt, srt, clear, and feedback, a live region */
  constructor(transcript, notices, controls) {
    [this.#transcript, this.#notices, this.#controls] = [transcript, notices, controls];
    controls.copy.onclick = () => this.#copy();
    controls.txt.onclick = () => this.#save("txt", "text/plain", asText(transcript.settled));
    controls.srt.onclick = () => this.#save("srt", "application/x-subrip", asSrt(transcript.settled));
    controls.clear.onclick = () => this.#clear();
  }

  /** Whether there is text that nobody has copied or downloaded. */
  get unsaved() {
    return this.#unsaved;
  }

  /** The transcript has changed. */
  update() {
    const some = this.#transcript.settled.length > 0;
    this.#unsaved = some;
    for (const name of ["copy", "txt", "srt"]) this.#controls[name].disabled = !some;
    this.#controls.clear.disabled = this.#transcript.empty;
  }

  async #copy() {
    try {
      await copy(asText(this.#transcript.settled), this.#controls.copy, this.#controls.feedback);
    } catch (error) {
      const words = { title: "The text could not be copied", text: "Download it instead.", detail: error.message };
      return this.#notices.show("copy", words);
    }
    this.#unsaved = false;
  }

  #save(ending, type, content) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([content], { type: `${type};charset=utf-8` }));
    link.download = fileName(ending);
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    this.#done(`Saved as ${link.download}`);
  }

  #clear() {
    const segments = this.#transcript.clear();
    const undo = action("Undo", () => {
      this.#notices.hide("cleared");
      this.#transcript.restore(segments);
      this.#controls.clear.focus();
    });
    this.#notices.hide("cleared"); // an earlier one, which would bring back other segments
    this.#notices.show("cleared", { title: "Cleared", text: "" }, { kind: "note", actions: [undo] });
    const letGo = () => {
      if (!undo.isConnected) return;
      if (undo.matches(":hover, :focus")) setTimeout(letGo, UNDO_MS); // about to be pressed
      else this.#notices.hide("cleared");
    };
    setTimeout(letGo, UNDO_MS);
  }

  #done(words) {
    this.#unsaved = false;
    this.#controls.feedback.textContent = words;
  }
}

/**
 * Put a text where it can be pasted from, and say so.
 * @param {HTMLButtonElement} button that was pressed  @param {HTMLElement} feedback a live region
 */
export async function copy(text, button, feedback) {
  await navigator.clipboard.writeText(text);
  feedback.textContent = "Copied";
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = "Copy"), THANKS_MS);
}
