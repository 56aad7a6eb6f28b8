// The part of the page where models can be had that the server does not have yet, if it fetches any.

import { failed, Row } from "./offer.js";
import { Pulls } from "./pull.js";

export class Shelf {
  #elements;
  #joined;
  #pulls = new Pulls((models) => this.#show(models), (words) => this.#complain({ lost: words }));
  #faults = { lost: "", refused: "" }; // why the server does not answer, and why it does not do what was asked of it
  #rows = new Map(); // by the names of the models
  #wanted = new Set(); // of those that were asked for here
  #open = null; // whether people want to see it, once they said so
  #allowed = false;
  #demonstration = false;
  #running = false;

  /**
   * @param {object} elements section, title, list of models; more, the button that opens the section; two live regions:
   *   fault, what the server does not do, and said, for people who do not see the list
   * @param {(model: object, wanted: boolean, focused: boolean) => void} joined a model can be chosen now; whether it was
   *   asked for here, and whether its button had the keyboard
   */
  constructor(elements, joined) {
    [this.#elements, this.#joined] = [elements, joined];
    elements.more.onclick = () => {
      this.#open = elements.section.hidden;
      this.#update();
    };
  }

  /**
   * How things stand. It is open by default where only the demonstration is chosen, and while something is on its way.
   * @param {{allowed?: boolean, demonstration?: boolean, running?: boolean}} now whether the server fetches models,
   *   whether the one that is chosen is a demonstration, whether captions are running
   */
  set({ allowed = this.#allowed, demonstration = this.#demonstration, running = this.#running }) {
    const asks = allowed && !this.#allowed;
    [this.#allowed, this.#demonstration, this.#running] = [allowed, demonstration, running];
    if (asks) this.#pulls.look();
    this.#update();
  }

  #update() {
    const { section, title, more } = this.#elements;
    const some = this.#allowed && this.#rows.size > 0;
    const wanted = !this.#running && (this.#open ?? this.#demonstration);
    section.hidden = !(some && (wanted || this.#pulls.busy));
    if (!section.hidden) title.textContent = this.#demonstration ? "Get a full model" : "Get another model";
    more.hidden = !some;
    more.disabled = this.#running;
    more.ariaExpanded = String(!section.hidden);
  }

  #show(models) {
    this.#complain({ lost: "" });
    for (const model of models) {
      const row = this.#rows.get(model.name);
      if (model.state !== "served") {
        const shown = row ?? this.#add(model.name);
        this.#tell(shown.state, model);
        shown.show(model);
      } else if (row) {
        const focused = row.item.contains(document.activeElement);
        row.item.remove();
        this.#rows.delete(model.name);
        this.#complain({ refused: "" }); // what another was in the way of
        this.#joined(model, this.#wanted.delete(model.name), focused);
      }
    }
    this.#update();
  }

  #add(name) {
    const row = new Row(name, async (state) => {
      this.#complain({ refused: "" });
      if (state === "fetching") this.#wanted.delete(name);
      else this.#wanted.add(name);
      const refused = await (state === "fetching" ? this.#pulls.cancel(name) : this.#pulls.start(name));
      this.#complain({ refused });
      if (refused) this.#elements.fault.scrollIntoView({ block: "nearest" }); // the answer to a press has to be seen
    });
    this.#rows.set(name, row);
    this.#elements.list.append(row.item);
    return row;
  }

  #complain(faults) {
    Object.assign(this.#faults, faults);
    const words = this.#faults.lost || this.#faults.refused;
    if (this.#elements.fault.textContent !== words) this.#elements.fault.textContent = words; // or it is said again
  }

  #tell(before, { name, state, error }) {
    const { said } = this.#elements;
    if (before === "" || before === state) return;
    if (state === "fetching") said.textContent = `${name} is being downloaded.`;
    else if (state === "failed") said.textContent = `${name}: ${failed(error)}`;
    else if (before === "fetching" && state !== "opening") said.textContent = `The download of ${name} was stopped.`;
  }
}
