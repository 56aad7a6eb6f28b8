// Models that the server can fetch: started, watched, cancelled, as docs/protocol.md has it. No DOM.

const WATCH_MS = 500;
const LOST_MS = 2_000; // until a server that does not answer is asked again
const UNDER_WAY = new Set(["fetching", "opening"]);

export class Pulls {
  #told;
  #lost;
  #models = [];
  #asked = 0; // so that an answer that was overtaken changes nothing
  #timer = 0;

  /**
   * @param {(models: object[]) => void} told what the server says of its models, at each answer
   * @param {(words: string) => void} lost why it gave none; it is asked again by itself
   */
  constructor(told, lost) {
    [this.#told, this.#lost] = [told, lost];
  }

  /** Whether something is on its way. */
  get busy() {
    return this.#models.some(({ state }) => UNDER_WAY.has(state));
  }

  /** Ask how things are, and go on asking while something is on its way. */
  async look() {
    const asked = ++this.#asked;
    clearTimeout(this.#timer);
    try {
      const { models } = await ask("GET", "v1/pull");
      if (asked !== this.#asked) return;
      this.#models = models;
      this.#told(models);
      if (this.busy) this.#timer = setTimeout(() => this.look(), WATCH_MS);
    } catch (error) {
      if (asked !== this.#asked) return;
      this.#lost(error.message);
      this.#timer = setTimeout(() => this.look(), LOST_MS);
    }
  }

  /** Have a model fetched. @returns {Promise<string>} why the server does not, empty if it does */
  start(name) {
    return this.#change("POST", name);
  }

  /** Stop that. @returns {Promise<string>} the same */
  cancel(name) {
    return this.#change("DELETE", name);
  }

  async #change(method, name) {
    this.#asked++; // what is being told meanwhile is older than this
    let refusal = "";
    try {
      await ask(method, `v1/pull/${encodeURIComponent(name)}`);
    } catch (error) {
      if (error instanceof Refusal) refusal = error.message; // else looking finds that out as well
    }
    await this.look();
    return refusal;
  }
}

class Refusal extends Error {}

async function ask(method, path) {
  let answer;
  try {
    answer = await fetch(new URL(path, document.baseURI), { method, cache: "no-store" });
  } catch {
    throw new Error("The server does not answer.");
  }
  const content = await answer.json().catch(() => null);
  if (!answer.ok) throw new Refusal(sentence(content?.error?.message ?? `the server answered ${answer.status}`));
  return content;
}

function sentence(words) {
  return `${words[0].toUpperCase()}${words.slice(1)}.`;
}
