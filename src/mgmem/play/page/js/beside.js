// The DNC beside the memory: every question that the memory was asked is put to it as well, on the
// same walk. Loaded when somebody switches it on, and asked only while it is on.

import { BesideView } from "./beside_view.js";
import { Helper } from "./engine.js";
import { marks } from "./question.js";

export class Beside {
  static async load(folder, app) {
    const [header, buffer] = await Promise.all([
      fetch(new URL("beside.json", folder)).then((reply) => reply.json()),
      fetch(new URL("beside.bin", folder)).then((reply) => reply.arrayBuffer()),
    ]);
    const helper = new Helper("./beside_worker.js");
    await helper.call("load", { header, buffer });
    return new Beside(app, header, helper);
  }

  constructor(app, header, helper) {
    Object.assign(this, { app, header, helper });
    this.told = []; // the sights that the helper knows, in their order
    this.answer = null;
    this.view = new BesideView(this);
  }

  // Put the question that the memory has just answered, and then those it was asked before.
  async put(question, aloud) {
    const { answer, log } = question;
    if (answer) {
      const { patch, places, moment, entry } = answer;
      const { logits, memory } = await this.ask(moment.sight, patch, true);
      this.answer = { ...marks(this.app.task, logits, places), places, moment, memory };
      entry.beside ??= counts(this.answer);
    } else this.answer = null;
    this.view.say(aloud);
    this.catchUp(log).catch((error) => this.app.words.sayTrouble(error));
  }

  // Questions from before it was switched on, one after another; a new maze has others.
  async catchUp(log) {
    if (this.catching === log) return;
    this.catching = log;
    const { app } = this;
    const left = log.filter((entry) => !entry.beside);
    for (const entry of left) {
      const { logits } = await this.ask(entry.sight, entry.patch);
      entry.beside = counts(marks(app.task, logits, entry.places));
      if (app.beside !== this || app.question.log !== log) break;
      this.view.sayScores();
    }
    if (this.catching === log) this.catching = null;
  }

  // Logits over the grid at a sight of a walk; the helper is told what it does not know of the way.
  ask(sight, patch, look = false) {
    const more = [];
    let known = sight;
    for (; known && this.told[known.number] !== known; known = known.before) more.push(known);
    const kept = known ? known.number + 1 : 0;
    if (more.length) {
      this.told.length = kept;
      this.told.push(...more.reverse());
    }
    const told = more.map(({ walls, location }) => ({ walls, location }));
    return this.helper.call("ask", { kept, more: told, at: sight.number, patch, look });
  }

  // Its score and, of the same questions, that of the memory.
  scores() {
    const both = this.app.question.log.filter((entry) => entry.beside);
    return { memory: total(both), beside: total(both.map((entry) => entry.beside)) };
  }
}

// All that is kept of an answer once it was shown.
function counts({ hits, said, wanted }) {
  return { hits, said, wanted };
}

function total(answers) {
  const sum = (part) => answers.reduce((all, answer) => all + answer[part], 0);
  return { asked: answers.length, hits: sum("hits"), said: sum("said"), wanted: sum("wanted") };
}
