// What people are told when something is not as it should be: what happened, and the way out.

const here = () => location.host || "this server";

/** Whether the server is this computer itself. */
export function isLocal(host = location.hostname) {
  return host === "localhost" || host.endsWith(".localhost") || /^127\./.test(host) || host === "[::1]";
}

/** By the reason of a CaptureError. */
export const MICROPHONE = {
  insecure: {
    title: "This address may not use the microphone",
    text:
      "Browsers allow it only over https, or on the computer that runs liveasr. Open the page there, as " +
      `http://localhost:${location.port || 80}, or start the server with --tls-cert and --tls-key and come back by https.`,
  },
  denied: {
    title: "The microphone is not allowed",
    text: "Allow it for this page, by the icon beside the address or in the settings of the browser, then press Start again.",
  },
  missing: { title: "There is no microphone", text: "Connect one, or switch it on, then press Start again." },
  busy: {
    title: "The microphone cannot be used",
    text: "Another program may be using it. Close that program, or connect the microphone again, then press Start.",
  },
  unloaded: { title: "A part of the page is missing", text: "It did not come from the server. Press Start again." },
  failed: { title: "The sound could not be opened", text: "Another browser may do better." },
  unplugged: {
    title: "The microphone is gone",
    text: "It was unplugged or switched off. What was said until then is kept. Connect it, then press Start to go on.",
  },
  silent: {
    title: "Nothing is heard",
    text: "The microphone sends only silence. It may be muted, or another one may be the right one.",
  },
};

/** By the code of a server's error; others are shown in the server's own words. */
export const SERVER = {
  unreachable: { title: "The server does not answer", text: `Is liveasr running on ${here()}? Start it there again.` },
  lost: {
    title: "The connection broke",
    text: "The latest half minute of sound is kept, and sent once the server is there again.",
  },
  full: { title: "The server takes no new captions now", text: "The latest half minute of sound is kept until it does." },
  behind: {
    title: "This computer is too slow for this model",
    text: "The text was a minute behind, so listening has stopped. What was said until then still comes.",
  },
  overload: { title: "The text is falling behind", text: "The computer has more to do than it can. Nothing is lost, it comes later." },
  engine_failed: { title: "The recogniser failed", text: "What stands here is kept. Press Start to try again." },
  unsupported: { title: "The server cannot do that", text: "Choose another model or language." },
  token: { title: "This server wants a token", text: "Whoever started it knows it." },
  refused: { title: "The server refuses this page", text: "It answers only to addresses that it was told to (--allow-origin)." },
};

export class Notices {
  #root;
  #shown = new Map(); // by name

  /** @param {HTMLElement} root a polite live region */
  constructor(root) {
    this.#root = root;
  }

  /**
   * Show a notice, in place of one of the same name.
   * @param {string} name
   * @param {{title: string, text: string, detail?: string}} words
   * @param {{kind?: "error" | "note", actions?: HTMLElement[], lasting?: boolean}} [options] lasting: people cannot
   *   close it, as it goes away by itself or nothing works until it is heeded
   */
  show(name, words, { kind = "error", actions = [], lasting = false } = {}) {
    const known = this.#shown.get(name);
    const saying = JSON.stringify(words);
    if (known?.dataset.words === saying) return; // already said
    const notice = element("div", `notice ${kind}`);
    notice.dataset.name = name;
    notice.dataset.words = saying;
    const said = element("div", "said");
    said.append(element("strong", "", words.title), element("p", "", words.text));
    if (words.detail) said.append(element("p", "detail", words.detail));
    notice.append(said, ...actions);
    if (!lasting) {
      const close = action("×", () => this.hide(name));
      close.className = "close";
      close.setAttribute("aria-label", "Close this message");
      notice.append(close);
    }
    if (known) known.replaceWith(notice);
    else this.#root.append(notice);
    this.#shown.set(name, notice);
  }

  hide(...names) {
    for (const name of names.length ? names : [...this.#shown.keys()]) {
      this.#shown.get(name)?.remove();
      this.#shown.delete(name);
    }
  }
}

/** A button for a notice. */
export function action(words, onclick) {
  const button = element("button", "action", words);
  button.type = "button";
  button.onclick = onclick;
  return button;
}

/** A form that hands a token to the server, which keeps it in a cookie. */
export function tokenForm() {
  const form = element("form", "token");
  form.action = "./";
  const label = element("label", "", "Token ");
  const input = Object.assign(element("input"), { name: "token", type: "password", required: true, autocomplete: "current-password" });
  label.append(input);
  form.append(label, element("button", "action", "Open"));
  return form;
}

function element(tag, className = "", text = "") {
  return Object.assign(document.createElement(tag), { className, textContent: text });
}
