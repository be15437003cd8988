// The page: one scene, what may happen to it, and a picture of it whenever something changed.

import { Belief } from "./belief.js";
import { connect } from "./controls.js";
import { Engine } from "./engine.js";
import { Mesh } from "./mesh.js";
import { around, motions, motionsOf, towards, wallsStop } from "./motion.js";
import { KnownPanel, MemoryPanel, WorldPanel, wrongCells } from "./panels.js";
import { Question } from "./question.js";
import { Walk, readEvents } from "./walk.js";
import { commonPatches, patchAt } from "./world.js";
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
    this.policy = engine.header.policy ?? null;
    this.solid = wallsStop(engine.header);
    this.motions = motionsOf(engine.header);
    this.motion = this.motions[0];
    this.tool = "ask";
    this.speed = 6;
    this.playing = false;
    this.touched = false; // whether anybody took part yet
    this.cursor = null;
    this.brush = null;
    this.keys = 0;
    this.beside = null; // the DNC, while it is switched on
    this.wantsBeside = false;
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
  }

  get now() {
    return this.walk?.now ?? null;
  }

  // Start in a maze of its own; text: what happened there already.
  begin(seed, text = "") {
    return this.queue(async () => {
      this.walk = new Walk(this.task, this.engine, seed, this.solid);
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
    this.readPolicy();
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
      await this.askBoth().catch((error) => this.words.sayTrouble(error));
    } while (this.askAgain);
    this.asking = false;
    this.redraw();
  }

  async askBoth() {
    const aloud = this.announce;
    await this.question.put(this.now);
    this.words.sayAnswer();
    this.redraw();
    await this.beside?.put(this.question, aloud);
  }

  // The DNC beside the memory: loaded when it is first wanted, and idle while it is not.
  async setBeside(wanted) {
    this.wantsBeside = wanted;
    this.beside = null;
    this.words.sayBeside();
    this.saveAddress();
    if (!wanted) return;
    try {
      this.loading ??= import("./beside.js").then(({ Beside }) => Beside.load(document.baseURI, this));
      const loaded = await this.loading;
      if (!this.wantsBeside) return; // switched off meanwhile
      this.beside = loaded;
      await this.askNow();
    } catch (error) {
      this.loading = null; // another try may do
      this.wantsBeside = false;
      this.words.sayBeside();
      this.words.sayTrouble(error);
    }
  }

  async readProbe() {
    if (this.reading !== "probe") return;
    const { now } = this;
    const map = await this.engine.decode(now.state);
    if (now !== this.now) return;
    this.map = map;
    this.redraw();
  }

  async readPolicy() {
    const { now, walk } = this;
    if (!this.policy || now.chances) return;
    await walk.chancesAt(now);
    if (now !== this.now) return;
    this.words.sayWorld();
    this.redraw();
  }

  // The agent moves by itself.
  async play() {
    if (this.playing) return;
    this.setPlaying(true);
    while (this.playing) {
      const started = performance.now();
      if (this.isShown() || !(await this.moveOn())) {
        this.setPlaying(false);
        if (!this.touched) this.restTimer = setTimeout(() => this.freshMaze(), 4000);
        return;
      }
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

  // Whether a policy has walked as long as it learned to, with nobody taking part.
  isShown() {
    return this.policy !== null && !this.touched && this.now.steps > this.policy.steps;
  }

  // A step as its motion has it; promises whether there was one to take.
  moveOn() {
    return this.queue(async () => {
      const letter = await motions[this.motion](this.walk);
      if (letter === null) return false;
      await this.walk.move(letter);
      this.changed();
      return true;
    });
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
      const letter = this.letterTo(this.goal);
      if (letter === null) break;
      const started = performance.now();
      await this.move(letter);
      const rest = 1000 / 12 - (performance.now() - started);
      await new Promise((done) => setTimeout(done, Math.max(0, rest)));
    }
    this.goal = null;
    this.walking = false;
  }

  letterTo(goal) {
    const { agent, walls } = this.now;
    return this.solid ? around(walls, this.task.world, agent, goal) : towards(agent, goal);
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
    return this.moveOn();
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
    return `#maze=${this.walk.seed}${text ? `&walk=${text}` : ""}${this.wantsBeside ? "&beside=on" : ""}`;
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
    const scene = { moment: now, path: this.walk.path(), pinned: place, cursor };
    const moving = [
      this.world.draw({ ...scene, answer }),
      this.beside?.view.draw(scene),
      this.memoryPanel.draw({ grid, channel, brush: this.brush, cursor }),
      this.map && this.known.draw({ map: this.map, moment: now, cursor }),
    ];
    this.mesh.draw(now.state, this.look);
    if (this.map) this.words.sayKnown(wrongCells(this.task, this.map, now));
    this.words.sayScale(this.memoryPanel.scale);
    if (moving.some(Boolean) || (this.reading === "asked" && this.belief.fresh < 1)) this.redraw();
  }
}

// Maze and walk of an address, or null; whatever else stands there is ignored.
export function readAddress(hash) {
  const fields = new URLSearchParams(hash.slice(1));
  const seed = fields.get("maze") ?? "";
  const text = fields.get("walk") ?? "";
  if (!/^\d{1,10}$/.test(seed) || readEvents(text) === null) return null;
  return { seed: Number(seed) % 2 ** 31, text, beside: fields.get("beside") === "on" };
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
    if (given?.beside && engine.header.beside) app.setBeside(true);
    const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (!given?.text && !still) app.play();
  } catch (error) {
    trouble.sayTrouble(error);
  }
}

main();
