// What was said, as files. Pure: segments in, text out.

import { cues } from "./cues.js";
import { textOf } from "./transcript.js";

/** A line a segment. */
export function asText(segments) {
  return segments.map((segment) => `${textOf(segment)}\n`).join("");
}

/** SubRip subtitles. Times rise, and no two cues overlap. */
export function asSrt(segments) {
  const blocks = [];
  let earliestMs = 0;
  for (const segment of segments) {
    const startMs = Math.max(earliestMs, segment.startMs);
    const endMs = Math.max(startMs + 1, segment.endMs);
    for (const cue of cues({ text: textOf(segment), startMs, endMs, words: segment.words })) {
      blocks.push(`${blocks.length + 1}\n${timecode(cue.startMs)} --> ${timecode(cue.endMs)}\n${cue.lines.join("\n")}\n`);
      earliestMs = cue.endMs;
    }
  }
  return blocks.join("\n");
}

/** As SubRip writes times: 00:01:02,345. */
export function timecode(ms) {
  const [hours, minutes, seconds] = [ms / 3_600_000, (ms / 60_000) % 60, (ms / 1000) % 60].map(Math.floor);
  return `${two(hours)}:${two(minutes)}:${two(seconds)},${String(Math.floor(ms % 1000)).padStart(3, "0")}`;
}

/** For people: 01:02, and 1:02:03 from an hour on. */
export function clock(ms) {
  const [hours, minutes, seconds] = [ms / 3_600_000, (ms / 60_000) % 60, (ms / 1000) % 60].map(Math.floor);
  return `${hours ? `${hours}:` : ""}${two(minutes)}:${two(seconds)}`;
}

/** A name for a file, by the time of the computer: captions 2031-05-04 18.30.srt. */
export function fileName(ending, now = new Date()) {
  const day = [now.getFullYear(), two(now.getMonth() + 1), two(now.getDate())].join("-");
  return `captions ${day} ${two(now.getHours())}.${two(now.getMinutes())}.${ending}`;
}

function two(number) {
  return String(number).padStart(2, "0");
}
