// A model that can be had: a row with its button, and a bar while it is on its way.

import { nameOf } from "./models.js";

const VERBS = {
  available: "Download", begun: "Resume", installed: "Use", failed: "Try again", fetching: "Cancel", opening: "Cancel",
};
const MINUTE_S = 60;
const HOUR_S = 3600;

export class Row {
  state = "";
  #facts = element("p", "facts");
  #languages = element("p", "languages");
  #button = Object.assign(element("button"), { type: "button" });
  #course = element("div", "course");
  #bar = element("progress");
  #numbers = element("p", "numbers");
  #fault = element("p", "fault");

  /** @param {string} name  @param {(state: string) => void} pressed with the state that the button was for */
  constructor(name, pressed) {
    this.item = element("li");
    const what = element("div");
    what.append(element("h3", "", name), this.#languages);
    this.#bar.ariaLabel = `Download of ${name}`;
    this.#course.append(this.#bar, this.#numbers);
    this.item.append(what, this.#button, this.#facts, this.#course, this.#fault);
    this.#button.onclick = ({ detail }) => {
      if (detail < 2 && this.state !== "opening") pressed(this.state); // a double click is no second wish
    };
    this.name = name;
  }

  show(model) {
    this.state = this.item.dataset.state = model.state;
    if (!this.#languages.hasChildNodes()) this.#languages.append(...spoken(model.languages));
    this.#facts.textContent = factsOf(model);
    const verb = VERBS[model.state];
    this.#button.textContent = verb;
    this.#button.ariaDisabled = String(model.state === "opening"); // "disabled" would take the keyboard's place away
    this.#button.ariaLabel = `${verb} ${this.name}`;
    this.#course.hidden = model.state !== "fetching" && model.state !== "opening";
    this.#fault.textContent = model.error ? failed(model.error) : "";
    this.#show(model.state, model.progress);
  }

  #show(state, progress) {
    const { came_bytes: came = 0, total_bytes: total = null } = progress ?? {};
    if (total === null) this.#bar.removeAttribute("value"); // which says that nobody knows how far it is
    else Object.assign(this.#bar, { max: total, value: came });
    this.#numbers.textContent = state === "opening" ? "Opening it…" : numbersOf(progress);
    this.#bar.ariaValueText = this.#numbers.textContent;
  }
}

/** Why a download failed, in words. */
export function failed(error) {
  return `That failed: ${error}.`;
}

function spoken(languages) {
  return languages.flatMap((code, index) => {
    const language = Object.assign(element("span", "", nameOf(code)), { lang: code });
    return index ? [" · ", language] : [language];
  });
}

function factsOf({ state, size_bytes: size, begun_bytes: begun, licence }) {
  const sizes = [];
  if (state === "installed") sizes.push("On the server already");
  else if (begun && state !== "fetching") sizes.push(size ? `${amount(begun)} of ${amount(size)} are here` : `${amount(begun)} are here`);
  else if (size) sizes.push(amount(size));
  return [...sizes, `Licence: ${licence ?? "as its model card says"}`].join(" · ");
}

/** How far a download is, in words. */
export function numbersOf(progress) {
  if (!progress) return "Waiting for the first bytes…";
  const { number, files, came_bytes: came, total_bytes: total, bytes_per_s: speed, left_s: left } = progress;
  if (total === came && came) return "Checking it…";
  const words = [total === null ? amount(came) : `${amount(came)} of ${amount(total)}`];
  if (files > 1) words.unshift(`File ${number} of ${files}`);
  if (speed !== null) words.push(`${amount(speed)}/s`);
  if (left !== null) words.push(`${duration(left)} left`);
  return words.join(" · ");
}

function amount(bytes) {
  if (bytes >= 1e9) return `${(bytes / 1e9).toFixed(2)} GB`;
  if (bytes >= 1e8) return `${Math.round(bytes / 1e6)} MB`;
  if (bytes >= 1e5 || bytes === 0) return `${(bytes / 1e6).toFixed(1)} MB`;
  return `${Math.max(1, Math.round(bytes / 1e3))} kB`;
}

function duration(seconds) {
  if (seconds < MINUTE_S) return `${seconds} s`;
  if (seconds < HOUR_S) return `${Math.ceil(seconds / MINUTE_S)} min`;
  return `${Math.floor(seconds / HOUR_S)} h ${Math.floor((seconds % HOUR_S) / MINUTE_S)} min`;
}

function element(tag, className = "", text = "") {
  return Object.assign(document.createElement(tag), { className, textContent: text });
}
