// Which models the server offers, in which languages: the choices at the top of the page, kept for the next visit.

const NAMES = { auto: "自动 / Auto", zh: "中文", en: "English", yue: "粤语", ja: "日本語", ko: "한국어" };
const KEPT = "liveasr.choice";

/** The server could not be asked; `status` is of its answer, 0 if there was none. */
export class ModelsError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/**
 * The models of the server, and whether it fetches more of them.
 * @returns {Promise<{models: object[], allow_pull: boolean}>}
 * @throws {ModelsError}
 */
export async function fetchModels() {
  let answer;
  try {
    answer = await fetch(new URL("v1/models", document.baseURI), { cache: "no-store" });
  } catch (error) {
    throw new ModelsError(0, String(error.message));
  }
  if (!answer.ok) throw new ModelsError(answer.status, `the server answered ${answer.status}`);
  return await answer.json();
}

export class Choice {
  #models = [];
  #model;
  #language;
  #itn;

  /** @param {() => void} onchange is called when something else was chosen */
  constructor(model, language, itn, onchange) {
    [this.#model, this.#language, this.#itn] = [model, language, itn];
    itn.checked = read().itn ?? itn.checked;
    itn.onchange = () => this.#keep(onchange);
    model.onchange = () => {
      this.#offerLanguages(language.value);
      this.#keep(onchange);
    };
    language.onchange = () => this.#keep(onchange);
  }

  get model() {
    return this.#models.find((model) => model.name === this.#model.value) ?? null;
  }

  get language() {
    return this.#language.value || "auto";
  }

  /** Whether numbers are written as figures, with punctuation. */
  get itn() {
    return this.#itn.checked;
  }

  set disabled(value) {
    for (const control of [this.#model, this.#language, this.#itn]) control.disabled = value || this.#models.length === 0;
  }

  offer(models) {
    const kept = this.model ? { model: this.model.name, language: this.language } : read();
    this.#models = models;
    fill(this.#model, models.map(({ name }) => [name, name]), kept.model);
    this.#offerLanguages(kept.language);
    this.disabled = false;
  }

  /** Choose a model, as if someone had done it by hand. */
  choose(name) {
    this.#model.value = name;
    this.#model.onchange();
  }

  #offerLanguages(wanted) {
    fill(this.#language, (this.model?.languages ?? []).map((code) => [code, nameOf(code)]), wanted);
    for (const option of this.#language.options) if (option.value !== "auto") option.lang = option.value;
  }

  #keep(onchange) {
    try {
      localStorage.setItem(KEPT, JSON.stringify({ model: this.#model.value, language: this.language, itn: this.itn }));
    } catch {} // a browser that keeps nothing is no fault
    onchange();
  }
}

function fill(select, options, wanted) {
  select.replaceChildren(...options.map(([value, name]) => new Option(name, value, false, value === wanted)));
}

/** A language in its own words. */
export function nameOf(code) {
  return NAMES[code] ?? new Intl.DisplayNames([code], { type: "language", fallback: "code" }).of(code);
}

function read() {
  try {
    return JSON.parse(localStorage.getItem(KEPT)) ?? {};
  } catch {
    return {};
  }
}
