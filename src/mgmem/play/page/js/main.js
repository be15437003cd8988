// The page: one scene, what may happen to it, and a picture of it whenever something changed.

import { Belief } from "./belief.js";
import { connect } from "./controls.js";
import { Engine } from "./engine.js";
import { Mesh } from "./mesh.js";
import { KnownPanel, MemoryPanel, WorldPanel, wrongCells } from "./panels.js";
import { Question } from "./question.js";
import { Walk, readEvents } from "./walk.js";
import { MOVES, commonPatches, patchAt, spiral } from "./world.js";
import { Words } from "./words.js";

const byId = (id) => document.getElementById(id);
const READERS = Math.max(1, Math.min(3, (navigator.hardwareConcurrency || 2) - 1));

export class App {
  constructor(engine) {
    this.engine = engine;
    this.task = engine.header.task;
    this.memory = engine.layout;
    const { probe } = engine.header;
    const deepest = this.memory.parts.at(-1);
    this.look = { layer: deepest.layer, level: deepest.level, which: "h", channel: probe.channels[0] };
    this.canAskEverything = this.task.query === 3;
    this.reading = this.canAskEverything ? "asked" : "probe";
    this.motion = this.task.motion;
    this.tool = "ask";
    this.speed = 6;
    this.playing = false;
    this.touched = false; // whether anybody took part yet
    this.cursor = null;
    this.brush = null;
    this.keys = 0;
    this.jobs = Promise.resolve();
    this.question = new Question(this.task, (...request) => engine.ask(...request));
    this.world = new WorldPanel(byId("world"), this.task);
    this.memoryPanel = new MemoryPanel(byId("memory"), this.task);
    this.known = new KnownPanel(byId("known"), this.task);
    this.words = new Words(this);
    this.mesh = new Mesh(byId("mesh"), this.memory,
      (layer, level) => this.lookAt({ layer, level }),
      (pointed, boxes) => this.words.sayPointed(pointed, boxes));
    this.mesh.onChange = () => this.redraw();
    if (this.canAskEverything) {
      const patches = commonPatches(this.task.world, 3);
      this.belief = new Belief(engine, patches, 3, this.task.grid);
    }
    this.winding = cellsOf(spiral(this.task.world), this.task.start);
  }

  get now() {
    return this.walk?.now ?? null;
  }

  // Start in a maze of its own; text: what happened there already.
  begin(seed, text = "") {
    return this.queue(async () => {
      this.walk = new Walk(this.task, this.engine, seed);
      this.question.clear();
      this.belief?.reset();
      this.map = null;
      await this.walk.begin();
      await this.walk.replay(text, () => this.words.sayStep());
      this.changed();
    });
  }

  // One thing after another: a step needs the state of the step before.
  queue(job) {
    this.jobs = this.jobs.then(job).catch((error) => this.words.sayTrouble(error));
    return this.jobs;
  }

  // What follows whenever another moment is looked at.
  changed() {
    this.now.key ??= ++this.keys;
    const shift = (this.task.grid >> 1) - this.task.start;
    this.belief?.want(this.now.state, this.now.key, this.now.agent.map((x) => x + shift));
    this.askNow();
    this.readProbe();
    this.words.sayMoment();
    this.saveAddress();
    this.redraw();
  }

  async askNow() {
    if (this.asking) {
      this.askAgain = true;
      return;
    }
    this.asking = true;
    do {
      this.askAgain = false;
      await this.question.put(this.now).catch((error) => this.words.sayTrouble(error));
    } while (this.askAgain);
    this.asking = false;
    this.onAnswer?.();
    this.words.sayAnswer();
    this.redraw();
  }

  async readProbe() {
    if (this.reading !== "probe") return;
    const { now } = this;
    const map = await this.engine.decode(now.state);
    if (now !== this.now) return;
    this.map = map;
    this.redraw();
  }

  // The agent moves by itself.
  async play() {
    if (this.playing) return;
    this.setPlaying(true);
    while (this.playing) {
      const started = performance.now();
      const letter = this.nextLetter();
      if (letter === null) {
        this.setPlaying(false);
        if (!this.touched) this.restTimer = setTimeout(() => this.freshMaze(), 4000);
        return;
      }
      await this.move(letter);
      await this.asked();
      const rest = 1000 / this.speed - (performance.now() - started);
      await new Promise((done) => setTimeout(done, Math.max(0, rest)));
    }
  }

  // When the question of the last step has been answered: no step overtakes its answer.
  async asked() {
    while (this.asking) await new Promise((done) => setTimeout(done, 2));
  }

  setPlaying(playing) {
    this.playing = playing;
    clearTimeout(this.restTimer);
    document.body.classList.toggle("playing", playing);
    this.words.sayPlaying();
    if (!playing) this.saveAddress(true);
  }

  // Spiral: towards the first cell of the winding that it has not been to. Random: any of four,
  // and a wall leaves it where it is.
  nextLetter() {
    const { agent, walls } = this.now;
    if (this.motion === "random") {
      const letter = "urdl"[Math.floor(4 * Math.random())];
      const [row, column] = agent.map((x, i) => x + MOVES[letter][i]);
      return walls[row * this.task.world + column] ? "x" : letter;
    }
    const been = new Set(this.path().map(String));
    const goal = this.winding.find((cell) => !been.has(String(cell)));
    return goal ? towards(agent, goal) : null;
  }

  path() {
    return this.walk.moments.slice(0, this.walk.at + 1).map((moment) => moment.agent);
  }

  move(letter) {
    return this.queue(async () => {
      await this.walk.move(letter);
      this.changed();
    });
  }

  // By hand: whatever plays stops first.
  step(letter) {
    this.take();
    return this.move(letter);
  }

  take() {
    this.touched = true;
    this.setPlaying(false);
  }

  // Walk to a cell, as long as nothing else is wanted.
  async walkTo(goal) {
    this.take();
    this.goal = goal;
    if (this.walking) return;
    this.walking = true;
    while (this.goal && !this.playing) {
      const letter = towards(this.now.agent, this.goal);
      if (letter === null) break;
      const started = performance.now();
      await this.move(letter);
      const rest = 1000 / 12 - (performance.now() - started);
      await new Promise((done) => setTimeout(done, Math.max(0, rest)));
    }
    this.goal = null;
    this.walking = false;
  }

  askAt([row, column]) {
    this.touched = true;
    const { query, world } = this.task;
    if (!this.now.seen.hasWindow([row, column], query)) return false;
    this.question.patch = patchAt(this.now.walls, world, [row, column], query);
    this.question.place = [row, column];
    this.announce = true;
    this.askNow();
    return true;
  }

  askFor(patch) {
    this.touched = true;
    this.question.patch = patch;
    this.question.place = null;
    this.announce = true;
    this.askNow();
  }

  follow() {
    this.question.patch = this.question.place = null;
    this.askNow();
  }

  draw(cells) {
    this.take();
    return this.queue(() => {
      if (this.walk.draw(cells)) this.changed();
    });
  }

  erase(stamps, size) {
    this.take();
    return this.queue(() => {
      this.walk.erase(stamps, size);
      this.changed();
    });
  }

  goTo(index) {
    this.take();
    this.goal = null;
    return this.queue(() => {
      this.walk.goTo(index);
      this.changed();
    });
  }

  // Forward: what was lived through already, else a new step.
  onward() {
    if (this.walk.at < this.walk.moments.length - 1) return this.goTo(this.walk.at + 1);
    this.take();
    const letter = this.nextLetter();
    return letter ? this.move(letter) : this.jobs;
  }

  async freshMaze() {
    this.setPlaying(false);
    this.goal = null;
    await this.begin(Math.floor(Math.random() * 2 ** 31));
    this.play();
  }

  lookAt(change) {
    Object.assign(this.look, change);
    this.words.sayLook();
    this.redraw();
  }

  read(how) {
    this.reading = how;
    this.readProbe();
    this.redraw();
  }

  // The address holds maze and walk, so that a link shows the same.
  saveAddress(atOnce = false) {
    clearTimeout(this.saving);
    if (!this.walk?.now) return;
    const save = () => history.replaceState(null, "", this.address());
    if (atOnce) save();
    else this.saving = setTimeout(save, 600);
  }

  address() {
    const text = this.walk.toText();
    return `#maze=${this.walk.seed}${text ? `&walk=${text}` : ""}`;
  }

  redraw() {
    if (this.frame === undefined) this.frame = requestAnimationFrame(() => this.paint());
  }

  paint() {
    this.frame = undefined;
    if (!this.now) return;
    const { now, cursor } = this;
    if (this.reading === "asked") this.map = this.belief.map();
    const { layer, level, which, channel } = this.look;
    const grid = this.memory.grid(now.state, layer, level, which);
    const { answer, place } = this.question;
    const moving = [
      this.world.draw({ moment: now, path: this.path(), answer, pinned: place, cursor }),
      this.memoryPanel.draw({ grid, channel, brush: this.brush, cursor }),
      this.map && this.known.draw({ map: this.map, moment: now, cursor }),
    ];
    this.mesh.draw(now.state, this.look);
    if (this.map) this.words.sayKnown(wrongCells(this.task, this.map, now));
    this.words.sayScale(this.memoryPanel.scale);
    if (moving.some(Boolean) || (this.reading === "asked" && this.belief.fresh < 1)) this.redraw();
  }
}

// The letter of a step from one cell towards another; null: it is there.
export function towards([row, column], [toRow, toColumn]) {
  const [down, right] = [toRow - row, toColumn - column];
  if (!down && !right) return null;
  if (Math.abs(right) > Math.abs(down)) return right > 0 ? "r" : "l";
  return down > 0 ? "d" : "u";
}

function cellsOf(letters, start) {
  let cell = [start, start];
  const cells = [cell];
  for (const letter of letters) {
    cell = cell.map((x, i) => x + MOVES[letter][i]);
    cells.push(cell);
  }
  return cells;
}

// Maze and walk of an address, or null; whatever else stands there is ignored.
export function readAddress(hash) {
  const fields = new URLSearchParams(hash.slice(1));
  const seed = fields.get("maze") ?? "";
  const text = fields.get("walk") ?? "";
  if (!/^\d{1,10}$/.test(seed) || readEvents(text) === null) return null;
  return { seed: Number(seed) % 2 ** 31, text };
}

async function main() {
  const trouble = new Words(null);
  try {
    const engine = await Engine.load(document.baseURI, READERS);
    const app = new App(engine);
    window.mgmem = app; // for the curious, in the console
    connect(app);
    const given = readAddress(location.hash);
    await app.begin(given?.seed ?? Math.floor(Math.random() * 2 ** 31), given?.text);
    document.body.classList.add("awake");
    const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (!given?.text && !still) app.play();
  } catch (error) {
    trouble.sayTrouble(error);
  }
}

main();
