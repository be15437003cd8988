// A walk as a list of moments, each a value: maze, agent, what was seen, the memory's state.
//
// What happens (a move, walls drawn, memory erased) makes a new moment out of the one before, so
// going back in time is looking at an earlier one. The same list of events, from the same maze,
// gives the same walk: that is what a link holds.

import { MOVES, Seen, makeMaze, patchAt } from "./world.js";

const LONGEST = 4000;

export class Walk {
  // engine: {step(state, walls, location), empty()}, see engine.js
  constructor(task, engine, seed) {
    Object.assign(this, { task, engine, seed });
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
    };
    await this.observe(before, { kind: "begin" }, [start, start]);
  }

  // The agent's next cell for a letter of a walk; it can not leave the interior. Walls do not
  // stop it: in a spiral, which this memory learned from, the agent walks through them.
  target(letter, [row, column] = this.now.agent) {
    const [down, right] = MOVES[letter];
    const inside = (x) => Math.min(this.task.world - 2, Math.max(1, x));
    return [inside(row + down), inside(column + right)];
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
      walls: before.walls,
      seen: before.seen.after(agent, fov),
      steps: before.steps + 1,
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
    this.add({ ...this.now, event: { kind: "erase", stamps, size }, state, key: undefined });
  }

  add(moment) {
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
      if (event.kind === "draw") parts.push(`w${event.cells.join("_")}`);
      else if (event.kind === "erase") {
        parts.push(`e${event.size}_${event.stamps.map((s) => s.join("x")).join("_")}`);
      } else {
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
