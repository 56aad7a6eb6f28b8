// What was said, as far as it is known: segments in the order in which they began. No DOM.
//
// A session that is lost leaves segments without a final. They stay as they are until the next session says again what
// was said there, so that no word vanishes, and none stands twice.

export class Transcript {
  #segments = new Map(); // by key
  #session = 0;
  #over = true; // no session is there, and none follows
  #onchange;

  /** @param {(segment: object, change: "set" | "gone") => void} onchange is called for every segment that changed */
  constructor(onchange) {
    this.#onchange = onchange;
  }

  /** Segments that will not change any more and have words: finals, and what had none when its run ended. */
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
    for (const orphan of this.#orphans) if (overlap(orphan, segment)) this.#drop(orphan.key, orphan);
    if (message.final && segment.committed === "") return this.#drop(key, segment);
    this.#segments.set(key, segment);
    this.#onchange(segment, "set");
  }

  /** A new session, which hears again what was said since then; segments that began before will have no final. */
  beginSession(clockMs) {
    this.#session += 1;
    this.#over = false;
    for (const segment of this.#open) if (segment.startMs < clockMs) this.#interrupt(segment);
  }

  /** All that was said until then is known: where nothing is, a lost session was wrong. */
  settle(clockMs) {
    for (const segment of this.#orphans) if (segment.endMs <= clockMs) this.#drop(segment.key, segment);
  }

  /** No session follows: segments that have no final stay as they are. */
  end() {
    this.#over = true;
    for (const segment of this.#open) this.#interrupt(segment);
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
      const known = [...this.#segments.values()];
      if (this.#segments.has(segment.key) || (isOpen(segment) && known.some((other) => overlap(segment, other)))) continue;
      this.#segments.set(segment.key, segment);
      this.#onchange(segment, "set");
    }
    if (this.#over) this.end();
  }

  get #open() {
    return [...this.#segments.values()].filter(isOpen);
  }

  /** Segments without a final whose session is lost. */
  get #orphans() {
    return this.#open.filter((segment) => segment.session !== this.#session);
  }

  #interrupt(segment) {
    segment.interrupted = true;
    if ((segment.committed + segment.tentative).trim() === "") this.#drop(segment.key, segment);
    else this.#onchange(segment, "set");
  }

  #drop(key, segment) {
    this.#segments.delete(key);
    this.#onchange(segment, "gone");
  }
}

function isOpen(segment) {
  return !segment.final && !segment.interrupted;
}

function overlap(a, b) {
  return a.startMs < b.endMs && b.startMs < a.endMs;
}

/** Which of two segments comes first: below zero, a. */
export function inOrder(a, b) {
  return a.startMs - b.startMs || a.session - b.session || a.id - b.id;
}

/** The words of a segment as they stand. */
export function textOf(segment) {
  return (segment.committed + segment.tentative).trim() + (segment.interrupted ? " …" : "");
}
