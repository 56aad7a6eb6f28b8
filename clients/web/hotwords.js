// Words to listen for, as someone writes them in a line: names and terms with commas between. No DOM but that line.

const SEPARATORS = /[,;，；、\n\t]+/u;
// What a server takes (docs/protocol.md).
const MOST_WORDS = 100;
const MOST_WORD_CHARS = 64;
const MOST_CHARS = 1000;
const NO_TEXT = /[\p{Cc}\p{Cs}\u2028\u2029\u202a-\u202e\u2066-\u2069]/u;
const TOKEN = /<\||\|>|<[^<>]*>/u;

/** The words of a line. */
export function wordsOf(line) {
  return line.split(SEPARATORS).map((word) => word.trim()).filter(Boolean);
}

/** Why a server would not take these words; empty if it would. */
export function faultOf(words) {
  for (const word of words) {
    const chars = [...word].length;
    if (chars > MOST_WORD_CHARS) return `“${short(word)}” has ${chars} characters; a hot word has at most ${MOST_WORD_CHARS}.`;
    if (NO_TEXT.test(word)) return `“${short(word.replace(NO_TEXT, " "))}” holds a control character.`;
    const [mark] = word.match(TOKEN) ?? [];
    if (mark) return `“${short(word)}” holds ${mark}, which marks the special tokens of a model.`;
  }
  if (words.length > MOST_WORDS) return `These are ${words.length} words; at most ${MOST_WORDS} can be listened for.`;
  const all = [...words.join("")].length;
  return all > MOST_CHARS ? `The words have ${all} characters together; at most ${MOST_CHARS} are taken.` : "";
}

function short(word) {
  const chars = [...word];
  return chars.length <= 20 ? word : `${chars.slice(0, 19).join("")}…`;
}

/** The line on the page. There is one only where the model takes hot words. */
export class Hotwords {
  #row;
  #input;
  #fault;

  /**
   * @param {HTMLElement} row holds all of it
   * @param {HTMLInputElement} input
   * @param {HTMLElement} fault a live region, which the input names as its description
   */
  constructor(row, input, fault) {
    [this.#row, this.#input, this.#fault] = [row, input, fault];
    input.oninput = () => this.#fault.textContent && this.#tell(); // what is right again is said at once, what is wrong later
    input.onchange = () => this.#tell();
  }

  set offered(value) {
    this.#row.hidden = !value;
  }

  set disabled(value) {
    this.#input.disabled = value;
  }

  get words() {
    return this.#row.hidden ? [] : wordsOf(this.#input.value);
  }

  /** Whether the words can be sent. If not, the line says why, and has the keyboard. */
  ready() {
    if (this.#row.hidden || this.#tell()) return true;
    this.#input.focus();
    return false;
  }

  #tell() {
    const fault = faultOf(this.words);
    this.#fault.textContent = fault;
    this.#input.ariaInvalid = fault ? "true" : null;
    return !fault;
  }
}
