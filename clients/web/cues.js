// Segments to subtitle cues that can be read in time and fit the screen: the rules of liveasr.clients.subtitles, by
// which `liveasr transcribe` makes its own. At most two lines of 42 columns, at most 7 s; breaks at marks and pauses.

export const MAX_COLUMNS = 42;
const MAX_CUE_MS = 7_000;
const SHORTEST_MS = 800;
const LEAD_MS = 200; // shown so long before the first word, recognisers place words late
const HOLD_MS = 400; // and left so long after the last
const MAX_SPOKEN_MS = MAX_CUE_MS - LEAD_MS - HOLD_MS;
const PAUSE_MS = 300;
const SCRAP_COLUMNS = 12; // shorter cues flash by
const COST = { cue: 10, sentence: 0, clause: 3, pause: 4, anywhere: 20, scrap: 6 }; // only their order matters
const SENTENCE = ".!?。！？…";
const CLAUSE = ",;:，；：、";
const CLOSING = /["')\]}”’»」』）】》〉]+$/u;
const HAN_KANA = "\\u3005-\\u3007\\u3041-\\u30ff\\u31f0-\\u31ff\\u3400-\\u4dbf\\u4e00-\\u9fff\\uf900-\\ufaff\\u{20000}-\\u{3ffff}";
const SPACED_END = new RegExp(`(?![${HAN_KANA}])[\\p{L}\\p{N}\\p{M}_]$`, "u");
const SPACED_START = new RegExp(`^(?![${HAN_KANA}])[\\p{L}\\p{N}\\p{M}_]`, "u");
const OPENING = "(\\[{“‘«「『（【《〈";
const UNIT = new RegExp(`[${OPENING}]*(?:[${HAN_KANA}][^\\p{L}\\p{N}_\\s${OPENING}]*|[^\\s${HAN_KANA}${OPENING}]+)`, "gu");
const SPACE_OR_OPENING = new RegExp(`[\\s${OPENING}]|$`, "u");
const WIDE = /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]/gu;

/** Width on the screen: characters of East Asian width count double. */
export function columns(text) {
  return [...text].length + (text.match(WIDE)?.length ?? 0);
}

/** The cues of a segment, {startMs, endMs, lines}: `text` with `words` of {text, startMs, endMs}. */
export function cues({ text, startMs, endMs, words }) {
  const pieces = piecesOf(text, startMs, endMs, words);
  const groups = group(pieces);
  const shortestMs = Math.max(1, Math.min(SHORTEST_MS, Math.floor((endMs - startMs) / Math.max(1, groups.length))));
  let earliestMs = startMs;
  return groups.map(([first, end], index) => {
    const latestMs = endMs - shortestMs * (groups.length - 1 - index); // the others need to be read too
    const fromMs = Math.max(earliestMs, Math.min(pieces[first].startMs - LEAD_MS, latestMs - shortestMs));
    const spokenMs = pieces[end - 1].endMs;
    let heldMs = spokenMs + HOLD_MS;
    if (end < pieces.length) heldMs = Math.max(spokenMs, Math.min(heldMs, pieces[end].startMs - LEAD_MS));
    earliestMs = Math.min(Math.max(heldMs, fromMs + shortestMs), latestMs, fromMs + MAX_CUE_MS);
    return { startMs: fromMs, endMs: earliestMs, lines: linesOf(pieces.slice(first, end)) };
  });
}

/** The words in the spelling of the text, a space in front where it has one; none wider than a line. */
function piecesOf(text, startMs, endMs, words) {
  const timed = words.some((word) => word.text) ? words : spread(text, startMs, endMs);
  const whole = [];
  for (const piece of spelt(text, timed)) {
    const last = whole.at(-1);
    if (last && SPACED_END.test(last.text) && SPACED_START.test(piece.text)) {
      last.text += piece.text; // Korean comes character by character
      last.endMs = piece.endMs;
    } else whole.push({ ...piece });
  }
  return whole.flatMap(narrow);
}

function spelt(text, words) {
  const pieces = [];
  let at = 0;
  for (const word of words) {
    const begin = word.text ? text.indexOf(word.text, at) : -1;
    if (begin < 0) continue;
    // What lies between two words belongs to the first as far as no space or opening mark comes.
    const gap = text.slice(at, begin);
    const cut = pieces.length ? gap.search(SPACE_OR_OPENING) : 0;
    if (pieces.length) pieces.at(-1).text += gap.slice(0, cut);
    pieces.push({ text: gap.slice(cut) + word.text, startMs: word.startMs, endMs: word.endMs });
    at = begin + word.text.length;
  }
  if (pieces.length) pieces.at(-1).text += text.slice(at);
  return pieces;
}

/** Words of a text without word times, which share its time by their widths. */
function spread(text, startMs, endMs) {
  const units = text.match(UNIT) ?? [];
  const width = Math.max(1, units.reduce((sum, unit) => sum + columns(unit), 0));
  let at = 0;
  const edge = () => startMs + Math.floor(((endMs - startMs) * at) / width);
  return units.map((unit) => {
    const from = edge();
    at += columns(unit);
    return { text: unit, startMs: from, endMs: edge() };
  });
}

function narrow({ text, startMs, endMs }) {
  const parts = [""];
  for (const character of text) {
    if (columns((parts.at(-1) + character).trim()) > MAX_COLUMNS) parts.push("");
    parts[parts.length - 1] += character;
  }
  const lengthMs = Math.min(endMs - startMs, MAX_SPOKEN_MS);
  const edge = (index) => startMs + Math.floor((lengthMs * index) / parts.length);
  return parts.map((part, index) => ({ text: part, startMs: edge(index), endMs: edge(index + 1) }));
}

/** The pieces [first, end) of each cue: of all ways to break them that fit, the cheapest. */
function group(pieces) {
  const gaps = pieces.slice(1).map((piece, index) => piece.startMs - pieces[index].endMs).sort((a, b) => a - b);
  const middle = (gaps[Math.floor((gaps.length - 1) / 2)] + gaps[Math.floor(gaps.length / 2)]) / 2;
  const pauseMs = gaps.length ? Math.max(PAUSE_MS, 2 * middle) : PAUSE_MS;
  const best = [[0, 0]]; // for each number of pieces: least cost, where its last cue begins
  for (let end = 1; end <= pieces.length; end += 1) {
    best[end] = [Infinity, 0];
    for (let first = end - 1; first >= 0; first -= 1) {
      const inside = pieces.slice(first, end);
      const tooLong = inside.at(-1).endMs - inside[0].startMs > MAX_SPOKEN_MS || linesOf(inside) === null;
      if (first < end - 1 && tooLong) break;
      const cost = best[first][0] + costOf(inside, pieces[end], pauseMs);
      if (cost <= best[end][0]) best[end] = [cost, first];
    }
  }
  const groups = [];
  for (let end = pieces.length; end > 0; end = best[end][1]) groups.unshift([best[end][1], end]);
  return groups;
}

function costOf(inside, next, pauseMs) {
  const cost = COST.cue + (columns(textOf(inside)) < SCRAP_COLUMNS ? COST.scrap : 0);
  if (!next) return cost;
  const mark = markOf(inside.at(-1).text);
  if (SENTENCE.includes(mark)) return cost + COST.sentence;
  if (CLAUSE.includes(mark)) return cost + COST.clause;
  return cost + (next.startMs - inside.at(-1).endMs >= pauseMs ? COST.pause : COST.anywhere);
}

/** One line, or two that break at a mark or near the middle; null if the pieces need more. */
function linesOf(pieces) {
  if (columns(textOf(pieces)) <= MAX_COLUMNS) return [textOf(pieces)];
  let best = null;
  for (let split = 1; split < pieces.length; split += 1) {
    const lines = [textOf(pieces.slice(0, split)), textOf(pieces.slice(split))];
    const [upper, lower] = lines.map(columns);
    if (upper > MAX_COLUMNS || lower > MAX_COLUMNS) continue;
    const atMark = (SENTENCE + CLAUSE).includes(markOf(pieces[split - 1].text));
    const cost = Math.abs(upper - lower) - (atMark ? MAX_COLUMNS / 2 : 0);
    if (best === null || cost < best.cost) best = { cost, lines };
  }
  return best?.lines ?? null;
}

function textOf(pieces) {
  return pieces.map((piece) => piece.text).join("").trim();
}

function markOf(text) {
  const bare = text.trimEnd();
  return (bare.replace(CLOSING, "") || bare).at(-1) ?? " ";
}
