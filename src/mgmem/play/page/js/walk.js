// A walk as a list of moments, each a value: maze, agent, what was seen, the memory's state.
//
// What happens (a move, walls drawn, memory erased) makes a new moment out of the one before, so
// going back in time is looking at an earlier one. The same list of events, from the same maze,
// gives the same walk: that is what a link holds. Maze and events also decide each moment's lot, by
// which a motion that leaves things to chance goes on.

import { softmax } from "./policy.js";
import { MOVES, Seen, distancesTo, makeMaze, patchAt, randomNumbers } from "./world.js";

const LONGEST = 4000;

export class Walk {
  // engine: {step(state, walls, location), empty()}, see engine.js; solid: walls stop the agent
  constructor(task, engine, seed, solid = false) {
    Object.assign(this, { task, engine, seed, solid });
    this.margin = Math.max(task.fov, task.query) >> 1;
    this.moments = [];
    this.at = -1; // the moment that is shown
  }

  get now() {
    return this.moments[this.at];
  }

  // The first look around, where the agent starts.
  async begin() {
    const { world, start } = this.task;
    const before = {
      walls: makeMaze(this.seed, world),
      seen: new Seen(world, this.margin),
      state: this.engine.empty(),
      steps: 0,
      lot: this.seed / 2 ** 32,
    };
    await this.observe(before, { kind: "begin" }, [start, start]);
  }

  // The agent's next cell for a letter of a walk; it can not leave the interior. Walls that are
  // not solid do not stop it: in a spiral the agent walks through them.
  target(letter, [row, column] = this.now.agent) {
    const { world } = this.task;
    const inside = (x) => Math.min(world - 2, Math.max(1, x));
    const [r, c] = [row, column].map((x, i) => inside(x + MOVES[letter][i]));
    return this.solid && this.now.walls[r * world + c] ? [row, column] : [r, c];
  }

  async move(letter) {
    const agent = this.target(letter);
    await this.observe(this.now, { kind: "move", letter }, agent);
  }

  async observe(before, event, agent) {
    const { world, fov, start } = this.task;
    const patch = patchAt(before.walls, world, agent, fov);
    const location = agent.map((x) => x - start);
    const state = await this.engine.step(before.state, patch, location);
    this.add({
      event, agent, patch, state,
      // What was seen where, and what before that: all that a network without grids is told.
      sight: { walls: patch, location, number: before.steps, before: before.sight ?? null },
      walls: before.walls,
      seen: before.seen.after(agent, fov),
      steps: before.steps + 1,
      lot: before.lot,
    });
  }

  // Turn cells between wall and free; only such as were not seen yet, and not the border.
  draw(cells) {
    const { walls, seen } = this.now;
    const { world } = this.task;
    const free = cells.filter((cell) => {
      const [row, column] = [Math.floor(cell / world), cell % world];
      const inside = row > 0 && column > 0 && row < world - 1 && column < world - 1;
      return inside && !seen.has(row, column);
    });
    if (!free.length) return false;
    const changed = walls.slice();
    for (const cell of free) changed[cell] = 1 - changed[cell];
    this.add({ ...this.now, event: { kind: "draw", cells: free }, walls: changed });
    return true;
  }

  // Empty the memory under stamps [row, column] of a brush, on the finest grid: on every grid of
  // every layer the cells whose centre lies under it.
  erase(stamps, size) {
    const state = this.engine.erased(this.now.state, stamps, size);
    // Another state: what was answered about the one before (by its key) does not hold for it.
    const anew = { key: undefined, chances: undefined };
    this.add({ ...this.now, event: { kind: "erase", stamps, size }, state, ...anew });
  }

  // The cells of the agent up to now.
  path() {
    return this.moments.slice(0, this.at + 1).map((moment) => moment.agent);
  }

  // How many cells the agent has been to, and how many it can walk to from its start.
  coverage() {
    const { world, start } = this.task;
    const steps = distancesTo(this.now.walls, world, [start, start]);
    const reachable = steps.filter((distance) => distance >= 0).length;
    return { visited: new Set(this.path().map(String)).size, reachable };
  }

  // How the policy would go on from a moment: the chances of ACTIONS (motion.js).
  async chancesAt(moment) {
    const location = moment.agent.map((x) => x - this.task.start);
    moment.chances ??= softmax(await this.engine.judge(moment.state, moment.patch, location));
    return moment.chances;
  }

  add(moment) {
    moment.lot = lotAfter(moment.lot, textOf(moment.event));
    this.moments.length = this.at + 1;
    this.moments.push(moment);
    this.at += 1;
  }

  goTo(index) {
    this.at = Math.min(this.moments.length - 1, Math.max(0, index));
  }

  // Text of all that happened up to now, such as "r2d2-w17_18-e3_12x12".
  toText() {
    const parts = [];
    for (const { event } of this.moments.slice(1, this.at + 1)) {
      if (event.kind !== "move") parts.push(textOf(event));
      else {
        const last = parts.at(-1);
        if (last?.at(-1)[0] === event.letter) last.at(-1)[1] += 1;
        else if (Array.isArray(last)) last.push([event.letter, 1]);
        else parts.push([[event.letter, 1]]);
      }
    }
    const run = ([letter, count]) => (count > 1 ? `${letter}${count}` : letter);
    return parts.map((part) => (Array.isArray(part) ? part.map(run).join("") : part)).join("-");
  }

  // Live through the text of a walk; false if it is none. `watch` is called now and then.
  async replay(text, watch = () => {}) {
    const events = readEvents(text);
    if (events === null) return false;
    for (const event of events) {
      if (event.kind === "move") await this.move(event.letter);
      else if (event.kind === "draw") this.draw(event.cells);
      else this.erase(event.stamps, event.size);
      watch();
    }
    return true;
  }
}

function textOf({ kind, letter, cells, size, stamps }) {
  if (kind === "draw") return `w${cells.join("_")}`;
  if (kind === "erase") return `e${size}_${stamps.map((s) => s.join("x")).join("_")}`;
  return letter ?? "";
}

// A number from 0 to 1 out of the one before and what happened since.
function lotAfter(lot, text) {
  let bits = lot * 2 ** 32;
  for (const letter of `${text}.`) bits = randomNumbers(bits ^ letter.charCodeAt(0))(2 ** 32);
  return bits / 2 ** 32;
}

// The events of a text, or null if it is not the text of a walk. Links come from anywhere.
export function readEvents(text) {
  const events = [];
  for (const part of text ? text.split("-") : []) {
    if (/^([urdlx]\d{0,4})+$/.test(part)) {
      for (const [, letter, count] of part.matchAll(/([urdlx])(\d*)/g)) {
        for (let i = 0; i < Math.min(LONGEST, Number(count || 1)); i++) {
          events.push({ kind: "move", letter });
        }
      }
    } else if (/^w\d{1,4}(_\d{1,4})*$/.test(part)) {
      events.push({ kind: "draw", cells: part.slice(1).split("_").map(Number) });
    } else if (/^e\d{1,2}(_\d{1,3}x\d{1,3})+$/.test(part)) {
      const [size, ...stamps] = part.slice(1).split("_");
      events.push({
        kind: "erase", size: Number(size), stamps: stamps.map((s) => s.split("x").map(Number)),
      });
    } else return null;
    if (events.length > LONGEST) return null;
  }
  return events;
}
