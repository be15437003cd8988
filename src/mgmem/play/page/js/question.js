// What is asked, what came back, and how right the answers have been so far.

import { placesOf } from "./world.js";
import { onGrid } from "./panels.js";

export class Question {
  // ask(state, key, patch): promise of logits over the grid
  constructor(task, ask) {
    Object.assign(this, { task, ask });
    this.clear();
  }

  clear() {
    this.patch = null; // painted or taken from a cell; null: whatever the agent sees
    this.place = null; // the cell that it was taken from
    this.answer = null;
    this.score = { asked: 0, hits: 0, said: 0, wanted: 0 };
    this.log = []; // every question that counts: {sight, patch, places, hits, said, wanted}
    this.counted = new Map(); // the same by name
  }

  // The patch in question at a moment.
  at(moment) {
    if (this.patch !== null) return this.patch;
    return this.task.query === this.task.fov ? moment.patch : null;
  }

  // Ask at a moment and keep the answer; false if there is nothing to ask.
  async put(moment) {
    const patch = this.at(moment);
    if (patch === null) {
      this.answer = null;
      return false;
    }
    const logits = await this.ask(moment.state, moment.key, patch);
    const answer = this.judged(patch, logits, moment);
    answer.entry = this.count(answer, `${moment.key} ${patch.join("")}`);
    this.answer = answer;
    return true;
  }

  judged(patch, logits, moment) {
    const places = placesOf(patch, this.task.query, moment.walls, moment.seen);
    return { patch, places, moment, ...marks(this.task, logits, places) };
  }

  // The same question at the same moment counts once.
  count({ patch, places, moment, hits, said, wanted }, name) {
    if (!this.counted.has(name)) {
      const entry = { sight: moment.sight, patch, places, hits, said, wanted };
      this.counted.set(name, entry);
      this.log.push(entry);
      this.score.asked += 1;
      this.score.hits += hits;
      this.score.said += said;
      this.score.wanted += wanted;
    }
    return this.counted.get(name);
  }
}

// What an answer marks, as chances over the maze, and how much of it is right.
export function marks(task, logits, places) {
  const { world } = task;
  const chances = new Float32Array(world * world);
  const shown = new Set();
  for (let cell = 0; cell < world * world; cell++) {
    const place = onGrid(task, cell);
    if (place < 0) continue;
    chances[cell] = 1 / (1 + Math.exp(-logits[place]));
    shown.add(place);
  }
  let [hits, said, wanted] = [0, 0, 0];
  chances.forEach((chance, cell) => {
    said += chance >= 0.5;
    wanted += places[cell];
    hits += chance >= 0.5 && places[cell] === 1;
  });
  // Beyond the maze there is nothing to find: whatever is marked there is wrong.
  const beyond = logits.filter((logit, place) => logit >= 0 && !shown.has(place)).length;
  return { chances, hits, wanted, said: said + beyond, beyond };
}
