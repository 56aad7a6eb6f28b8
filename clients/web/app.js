// The page: what is on it, and who tells whom.

import { allowed, CaptureError } from "./capture.js";
import { clock } from "./export.js";
import { Follower } from "./follow.js";
import { Hotwords } from "./hotwords.js";
import { copy, Keep } from "./keep.js";
import { Meter } from "./meter.js";
import { Choice, fetchModels, ModelsError } from "./models.js";
import { action, isLocal, MICROPHONE, Notices, SERVER, tokenForm } from "./notices.js";
import { Run } from "./run.js";
import { Shelf } from "./shelf.js";
import { Transcript } from "./transcript.js";
import { TranscriptView } from "./view.js";

const STATES = {
  idle: "Idle",
  connecting: "Connecting…",
  listening: "Listening",
  finishing: "Finishing…",
  reconnecting: "Reconnecting…",
  error: "Error",
};
const PATIENCE_MS = 5_000; // until Finishing may be cut short
const FULL = new Set(["overloaded", "too_many_sessions", "shutdown"]); // the server is there, but takes nobody

const $ = (id) => document.getElementById(id);
const notices = new Notices($("notices"));
const meter = new Meter($("level"));
const view = new TranscriptView($("transcript"), $("voice"), new Follower($("newest")));
const transcript = new Transcript(changed);
const keep = new Keep(transcript, notices, {
  copy: $("copy"), txt: $("save-txt"), srt: $("save-srt"), clear: $("clear"), feedback: $("feedback"),
});
const choice = new Choice($("model"), $("language"), $("itn"), chosen);
const hotwords = new Hotwords($("hotwords-row"), $("hotwords"), $("hotwords-fault"));
const shelf = new Shelf({
  section: $("pull"), title: $("pull-title"), list: $("pull-list"), fault: $("pull-fault"), said: $("pull-said"), more: $("more"),
}, joined);
let awaited = null; // a model that came during a run, to be chosen after it
let run = null;
let clockMs = 0; // of the page: all the sound since it was empty

function changed(segment, change) {
  if (change === "gone") view.remove(segment);
  else view.show(segment);
  keep.update();
  $("welcome").hidden = run !== null || !transcript.empty;
}

function enter(state, words = STATES[state]) {
  document.body.dataset.state = state;
  $("state").textContent = words;
  document.title = state === "idle" ? "liveasr" : `${words} · liveasr`;
  choice.disabled = hotwords.disabled = run !== null;
  $("verb").textContent = run === null ? "Start" : state === "finishing" ? "Finishing" : "Stop";
  $("toggle").ariaDisabled = String(state === "finishing"); // "disabled" would take the keyboard's place away
  $("welcome").hidden = run !== null || !transcript.empty;
  if (run === null || state === "finishing") meter.clear();
  shelf.set({ running: run !== null });
}

function chosen() {
  $("demonstration").hidden = !choice.model?.demonstration;
  hotwords.offered = choice.model?.hotwords ?? false;
  view.language = choice.language;
  shelf.set({ demonstration: choice.model?.demonstration ?? false });
}

/** The server has one more model. */
async function joined({ name, served_as: served }, wanted, focused) {
  try {
    offer(await fetchModels());
  } catch {
    return; // the server was there a moment ago; if it is gone, Start says so
  }
  if (focused) $("model").focus();
  if (!wanted && !choice.model?.demonstration) return;
  if (run === null) choice.choose(served);
  else awaited = served;
  const text = run === null ? "It is chosen: press Start." : "It is chosen as soon as you stop.";
  notices.show("joined", { title: `${name} is here`, text }, { kind: "note" });
}

// The server, before and after a run

async function loadModels() {
  try {
    offer(await fetchModels());
  } catch (error) {
    tellAboutServer(error);
    return false;
  }
  notices.hide("models");
  if (document.body.dataset.state === "error") enter("idle");
  return true;
}

function offer({ models, allow_pull: pulls }) {
  choice.offer(models);
  choice.disabled = run !== null;
  $("demonstration").querySelector("details").hidden = pulls;
  shelf.set({ allowed: pulls });
  chosen();
}

function tellAboutServer({ status, message }) {
  enter("error");
  if (status === 401) notices.show("models", SERVER.token, { actions: [tokenForm()], lasting: true });
  else if (status === 403) notices.show("models", SERVER.refused);
  else notices.show("models", { ...SERVER.unreachable, detail: message }, { actions: [action("Try again", loadModels)] });
}

// A run

async function start() {
  $("elapsed").textContent = "";
  if (choice.model === null && !(await loadModels())) return;
  if (!hotwords.ready()) return;
  notices.hide();
  if (transcript.empty) clockMs = 0;
  const url = new URL("v1/stream", document.baseURI);
  url.protocol = url.protocol.replace("http", "ws");
  run = new Run({
    state, connection, lost, lag, level, silent, ended,
    session: (atMs) => transcript.beginSession(atMs),
    settled: (atMs) => transcript.settle(atMs),
    transcript: (...said) => transcript.apply(...said),
  });
  enter("connecting", "Waiting for the microphone…");
  try {
    await run.start(url, settings, clockMs);
  } catch (error) {
    const fault = error.reason === "unloaded" ? await fetchModels().catch((refusal) => refusal) : null;
    run = null;
    if (fault instanceof ModelsError) return tellAboutServer(fault);
    enter("error");
    if (!(error instanceof CaptureError)) throw error;
    const words = MICROPHONE[error.reason];
    const detailed = error.reason === "failed" || error.reason === "unloaded";
    notices.show("microphone", detailed ? { ...words, detail: error.message } : words);
  }
}

function settings() {
  enter("connecting");
  return { model: choice.model.name, language: choice.language, itn: choice.itn, hotwords: hotwords.words };
}

function stop() {
  if (document.body.dataset.state === "finishing") return run.abandon();
  enter("finishing");
  run.stop();
}

function state(name, { why }) {
  if (name === "ended") return;
  enter(name);
  if (name === "finishing") letCut(run, why);
}

function connection(trouble) {
  if (trouble === null) return notices.hide("connection");
  const { error } = trouble;
  const words = FULL.has(error?.code) ? SERVER.full : SERVER.lost;
  const retry = action("Retry now", () => run?.retry());
  notices.show("connection", { ...words, detail: error?.message }, { kind: "note", actions: [retry], lasting: true });
  findOutWhy(run);
}

function letCut(mine, why) {
  if (why === "behind") notices.show("behind", SERVER.behind);
  setTimeout(() => {
    if (run !== mine || document.body.dataset.state !== "finishing") return;
    $("verb").textContent = "End now";
    $("toggle").ariaDisabled = "false";
  }, PATIENCE_MS);
}

/** A WebSocket does not say why it was refused; the same server, asked otherwise, does. */
async function findOutWhy(mine) {
  try {
    await fetchModels();
  } catch (error) {
    if (run !== mine || (error.status !== 401 && error.status !== 403)) return;
    run.abandon();
    tellAboutServer(error);
  }
}

function lost(ms) {
  const text = `There was no connection for so long that ${seconds(ms)} of sound could not be kept.`;
  notices.show("lost", { title: "Some words are missing", text });
}

function seconds(ms) {
  return `${Math.max(1, Math.round(ms / 1000))} s`;
}

function lag(lagMs, overload) {
  $("lag").textContent = lagMs >= 1000 ? `text ${Math.round(lagMs / 1000)} s behind` : "";
  if (overload) notices.show("overload", SERVER.overload, { kind: "note" });
  else notices.hide("overload");
}

function level(peak, atMs) {
  meter.show(peak);
  const elapsed = clock(atMs);
  if ($("elapsed").textContent === elapsed) return;
  $("elapsed").textContent = elapsed;
  meter.tell();
}

function silent(is) {
  if (is) notices.show("silent", MICROPHONE.silent, { kind: "note" });
  else notices.hide("silent");
}

function ended({ error, lostMs, why }) {
  clockMs = run.clockMs ?? clockMs;
  run = null;
  transcript.end();
  if (awaited !== null) choice.choose(awaited);
  awaited = null;
  $("lag").textContent = "";
  notices.hide("connection", "overload", "silent");
  enter(error || why === "unplugged" ? "error" : "idle");
  if (why === "unplugged") notices.show("microphone", MICROPHONE.unplugged);
  if (error) {
    const words = SERVER[error.code] ?? { title: "The captions ended", text: "What stands here is kept." };
    notices.show("server", { ...words, detail: error.message });
  } else if (lostMs >= 1000) {
    const text = `The text of the last ${seconds(lostMs)} is not complete: there was no connection.`;
    notices.show("server", { title: "Some words are missing", text });
  }
}

$("toggle").onclick = () => {
  if ($("toggle").ariaDisabled === "true") return;
  if (run === null) start();
  else stop();
};
document.addEventListener("visibilitychange", () => document.hidden || run?.stayAwake());
addEventListener("online", () => run?.retry());
addEventListener("beforeunload", (event) => {
  if (run !== null || keep.unsaved) event.preventDefault();
});
$("privacy").textContent = isLocal()
  ? "Nothing leaves this computer: the recogniser runs on it, without the network."
  : `The sound goes to ${location.host}, where the recogniser runs, and nowhere else.`;
$("pull-where").textContent = `${isLocal() ? "This computer" : location.host} fetches it once and keeps it; after that it works without the network.`;
$("copy-command").hidden = !navigator.clipboard; // which browsers have where they trust the address
$("copy-command").onclick = () => copy($("command").textContent, $("copy-command"), $("feedback"));
if (!allowed()) notices.show("microphone", MICROPHONE.insecure, { lasting: true });
loadModels();
