// What was said, as far as it is known: segments in the order in which they began. No DOM.

export class Transcript {
  #segments = new Map(); // by key
  #session = 0;
  #onchange;

  /** @param {(segment: object, change: "set" | "gone") => void} onchange is called for every segment that changed */
  constructor(onchange) {
    this.#onchange = onchange;
  }

  /** Segments that will not change any more and have words: finals, and what stood when a connection broke. */
  get settled() {
    return [...this.#segments.values()].filter((segment) => segment.final || segment.interrupted).sort(inOrder);
  }

  get empty() {
    return this.#segments.size === 0;
  }

  /** A message of the server, whose session began at offsetMs of the page's clock. */
  apply(message, offsetMs) {
    const key = `${this.#session}:${message.segment_id}`;
    const known = this.#segments.get(key);
    if (known?.final || (known && message.revision <= known.revision)) return;
    const segment = {
      key,
      session: this.#session,
      id: message.segment_id,
      revision: message.revision,
      final: message.final,
      interrupted: false,
      committed: message.final ? (message.text ?? message.committed).trim() : message.committed,
      tentative: message.final ? "" : message.tentative,
      startMs: offsetMs + message.start_ms,
      endMs: offsetMs + message.end_ms,
      language: message.language,
      words: (message.words ?? []).map(({ text, start_ms, end_ms }) => ({
        text,
        startMs: offsetMs + start_ms,
        endMs: offsetMs + end_ms,
      })),
    };
    if (message.final && segment.committed === "") return this.#drop(key, segment);
    this.#segments.set(key, segment);
    this.#onchange(segment, "set");
  }

  /** A session is over: segments that have no final stay as they are, and the next session counts its own. */
  endSession() {
    for (const segment of this.#segments.values()) {
      if (segment.final || segment.interrupted) continue;
      segment.interrupted = true;
      if ((segment.committed + segment.tentative).trim() === "") this.#drop(segment.key, segment);
      else this.#onchange(segment, "set");
    }
    this.#session += 1;
  }

  /** Forget every segment, and return them; words that a session adds to an open one bring it back. */
  clear() {
    const segments = [...this.#segments.values()];
    for (const segment of segments) this.#drop(segment.key, segment);
    return segments;
  }

  /** Take back what `clear` returned. */
  restore(segments) {
    for (const segment of segments) {
      if (this.#segments.has(segment.key)) continue;
      this.#segments.set(segment.key, segment);
      this.#onchange(segment, "set");
    }
  }

  #drop(key, segment) {
    this.#segments.delete(key);
    this.#onchange(segment, "gone");
  }
}

/** Which of two segments comes first: below zero, a. */
export function inOrder(a, b) {
  return a.session - b.session || a.id - b.id;
}

/** The words of a segment as they stand. */
export function textOf(segment) {
  return (segment.committed + segment.tentative).trim() + (segment.interrupted ? " …" : "");
}
