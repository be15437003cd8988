// Keyboard, pointer and buttons: what a visitor does becomes what the app is asked to do.

import { forgetTheme } from "./paint.js";

const byId = (id) => document.getElementById(id);
const ARROWS = { ArrowUp: "u", ArrowRight: "r", ArrowDown: "d", ArrowLeft: "l" };
const SHIFTS = { u: [-1, 0], r: [0, 1], d: [1, 0], l: [0, -1] };
const BRUSH = 5;

export function connect(app) {
  buildPatch(app);
  buildChannels(app);
  connectButtons(app);
  connectChoices(app);
  connectKeys(app);
  connectWorld(app);
  connectMemory(app);
  connectKnown(app);
  connectTheme(app);
  connectBeside(app);
  new ResizeObserver(() => app.redraw()).observe(byId("world"));
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && app.now) app.changed();
  });
  window.addEventListener("hashchange", () => location.reload());
  app.words.sayAbout();
  app.words.sayLearned();
  app.words.sayLook();
}

function connectButtons(app) {
  const on = (id, action) => byId(id).addEventListener("click", action);
  on("play", () => {
    app.touched = true;
    if (app.playing) app.setPlaying(false);
    else app.play();
  });
  on("back", () => app.goTo(app.walk.at - 1));
  on("forward", () => app.onward());
  on("restart", () => app.goTo(0));
  on("fresh", () => {
    app.touched = true;
    app.freshMaze();
  });
  on("follow", () => app.follow());
  on("link", () => copyLink(app));
  byId("time").addEventListener("input", (event) => app.goTo(Number(event.target.value)));
  byId("speed").addEventListener("input", (event) => setSpeed(app, Number(event.target.value)));
  setSpeed(app, Number(byId("speed").value));
  for (const button of document.querySelectorAll("[data-move]")) holdToWalk(app, button);
}

function setSpeed(app, setting) {
  app.speed = 2 ** setting;
  byId("speed").setAttribute("aria-valuetext", `${Math.round(app.speed)} steps a second`);
}

async function copyLink(app) {
  app.saveAddress(true);
  const button = byId("link");
  try {
    await navigator.clipboard.writeText(location.href);
    button.textContent = "copied";
  } catch {
    button.textContent = "it is in the address bar";
  }
  setTimeout(() => (button.textContent = "copy link"), 1600);
}

// A step at once, and more while the button is held.
function holdToWalk(app, button) {
  let timer;
  const stop = () => clearInterval(timer);
  button.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    app.step(button.dataset.move);
    timer = setInterval(() => app.step(button.dataset.move), 160);
    button.setPointerCapture(event.pointerId);
  });
  for (const kind of ["pointerup", "pointercancel", "lostpointercapture"]) button.addEventListener(kind, stop);
  button.addEventListener("click", (event) => {
    if (event.detail === 0) app.step(button.dataset.move); // from the keyboard
  });
}

function connectChoices(app) {
  const on = (name, action) => byId(name).addEventListener("change", (event) => action(event.target.value));
  on("motion", (value) => (app.motion = value));
  on("tool", (value) => setTool(app, value));
  on("reading", (value) => app.read(value));
  on("which", (value) => {
    const best = app.engine.header.probe.channels[value === "h" ? 0 : 1];
    const channel = app.look.channel === "mean" ? "mean" : best;
    app.lookAt({ which: value, channel });
    checkChannel(channel);
  });
  on("channel", (value) => app.lookAt({ channel: value === "mean" ? "mean" : Number(value) }));
  offerMotions(app);
  byId("reading").hidden = !app.canAskEverything;
}

function offerMotions(app) {
  const box = byId("motion");
  for (const input of box.querySelectorAll("input")) {
    const label = input.closest("label");
    if (!app.motions.includes(input.value)) label.remove();
    label.hidden = false;
    input.checked = input.value === app.motion;
  }
  box.hidden = app.motions.length < 2;
}

function setTool(app, tool) {
  app.tool = tool;
  document.body.dataset.tool = tool;
  if (tool === "erase") {
    const deepest = app.memory.parts.at(-1);
    app.lookAt({ layer: deepest.layer, level: deepest.level });
  }
}

function buildChannels(app) {
  const box = byId("channel");
  const most = Math.max(...app.memory.parts.map((part) => part.channels));
  const values = ["mean", ...Array.from({ length: most }, (_, i) => i)];
  for (const value of values) {
    const label = document.createElement("label");
    const input = document.createElement("input");
    const span = document.createElement("span");
    Object.assign(input, { type: "radio", name: "channel", value });
    span.textContent = value === "mean" ? "mean" : value + 1;
    label.append(input, span);
    box.append(label);
  }
  checkChannel(app.look.channel);
}

function checkChannel(channel) {
  byId("channel").querySelector(`[value="${channel}"]`).checked = true;
}

function buildPatch(app) {
  const box = byId("patch");
  const { query } = app.task;
  box.style.setProperty("--side", query);
  for (let i = 0; i < query * query; i++) {
    const button = document.createElement("button");
    button.type = "button";
    button.setAttribute("aria-label", `row ${Math.floor(i / query) + 1}, column ${(i % query) + 1}: free`);
    button.addEventListener("click", () => {
      const patch = Uint8Array.from(app.question.at(app.now) ?? new Uint8Array(query * query));
      patch[i] = 1 - patch[i];
      app.askFor(patch);
    });
    box.append(button);
  }
}

function connectKeys(app) {
  document.addEventListener("keydown", (event) => {
    if (!app.now || event.ctrlKey || event.metaKey || event.altKey) return;
    const control = event.target.closest("input, summary, a");
    const letter = ARROWS[event.key];
    if (letter && !control) {
      event.preventDefault();
      if (event.shiftKey) moveCursor(app, letter);
      else app.step(letter);
    } else if (event.key === " " && !event.target.closest("button, input, summary, a")) {
      event.preventDefault();
      byId("play").click();
    } else if (event.key === "Backspace" && !control) {
      event.preventDefault();
      app.goTo(app.walk.at - 1);
    } else if (!control && !event.target.closest("button")) cursorKeys(app, event);
  });
}

function moveCursor(app, letter) {
  const from = app.cursor ?? app.now.agent;
  const inside = (x) => Math.min(app.task.world - 1, Math.max(0, x));
  setCursor(app, from.map((x, i) => inside(x + SHIFTS[letter][i])));
}

function cursorKeys(app, event) {
  const key = event.key.toLowerCase();
  const { cursor, task } = app;
  if (key === "n") byId("fresh").click();
  else if (!cursor) return;
  else if (key === "enter") app.askAt(cursor);
  else if (key === "w") app.draw([cursor[0] * task.world + cursor[1]]);
  else if (key === "e") {
    const shift = (task.grid >> 1) - task.start;
    app.erase([onFinest(app, cursor.map((x) => x + shift))], BRUSH);
  } else return;
  event.preventDefault();
}

// A cell of the map of answers as a cell of the memory's finest grid, which may be coarser.
function onFinest(app, cell) {
  const finest = app.memory.parts.at(-1).height;
  return cell.map((x) => Math.floor((x * finest) / app.task.grid));
}

function setCursor(app, cursor) {
  if (String(cursor) === String(app.cursor)) return;
  app.cursor = cursor;
  app.words.sayCursor();
  app.redraw();
}

// The cell of a square picture of `cells` a side under the pointer.
function cellUnder(event, canvas, cells) {
  const box = canvas.getBoundingClientRect();
  const at = (x, size) => Math.min(cells - 1, Math.max(0, Math.floor((x / size) * cells)));
  return [at(event.clientY - box.top, box.height), at(event.clientX - box.left, box.width)];
}

function connectWorld(app) {
  const canvas = byId("world");
  const { world } = app.task;
  let down = null; // {cell, dragged, drawn}
  canvas.addEventListener("pointerdown", (event) => {
    if (!app.now || event.button > 0) return;
    canvas.setPointerCapture(event.pointerId);
    const cell = cellUnder(event, canvas, world);
    down = { cell, dragged: false, drawn: app.tool === "draw" ? [cell] : null };
  });
  canvas.addEventListener("pointermove", (event) => {
    const cell = cellUnder(event, canvas, world);
    setCursor(app, cell);
    if (!down || String(cell) === String(down.cell)) return;
    if (down.drawn) {
      if (!down.drawn.some((other) => String(other) === String(cell))) down.drawn.push(cell);
      return;
    }
    down.dragged = true;
    app.walkTo(cell);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (!down) return;
    const cell = cellUnder(event, canvas, world);
    if (down.drawn) app.draw(down.drawn.map(([row, column]) => row * world + column));
    else if (!down.dragged && !app.askAt(cell)) app.walkTo(cell);
    down = null;
  });
  canvas.addEventListener("pointercancel", () => (down = null));
  canvas.addEventListener("pointerleave", () => setCursor(app, null));
}

function connectMemory(app) {
  const canvas = byId("memory");
  let stamps = null;
  const finest = () => app.memory.parts.at(-1).height;
  const stamp = (event) => {
    const cell = cellUnder(event, canvas, finest());
    app.brush = app.tool === "erase" ? { row: cell[0], column: cell[1], size: BRUSH } : null;
    if (stamps && !stamps.some((other) => String(other) === String(cell))) stamps.push(cell);
    app.redraw();
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (app.tool !== "erase" || !app.now) return;
    canvas.setPointerCapture(event.pointerId);
    stamps = [];
    stamp(event);
  });
  canvas.addEventListener("pointermove", (event) => {
    stamp(event);
    const [row, column] = cellUnder(event, canvas, app.task.grid);
    const shift = (app.task.grid >> 1) - app.task.start;
    const cell = [row - shift, column - shift];
    const inside = cell.every((x) => x >= 0 && x < app.task.world);
    setCursor(app, inside && app.tool !== "erase" ? cell : null);
  });
  canvas.addEventListener("pointerup", () => {
    if (stamps?.length) app.erase(stamps, BRUSH);
    stamps = null;
  });
  canvas.addEventListener("pointerleave", () => {
    app.brush = null;
    setCursor(app, null);
    app.redraw();
  });
}

function connectKnown(app) {
  const canvas = byId("known");
  canvas.addEventListener("pointermove", (event) => setCursor(app, cellUnder(event, canvas, app.task.world)));
  canvas.addEventListener("pointerleave", () => setCursor(app, null));
}

// The switch is there if a DNC is part of the page.
function connectBeside(app) {
  const { beside } = app.engine.header;
  if (!beside) return;
  byId("beside-switch").hidden = false;
  byId("beside-on").addEventListener("change", (event) => {
    app.touched = true;
    app.setBeside(event.target.checked);
  });
}

// As the system has it, until somebody says otherwise; kept for the next visit where it may be.
function connectTheme(app) {
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const kept = stored();
  let chosen = kept === "light" || kept === "dark" ? kept : null;
  const show = () => {
    document.documentElement.dataset.theme = chosen ?? (system.matches ? "dark" : "light");
    forgetTheme();
    app.redraw();
  };
  system.addEventListener("change", show);
  byId("theme").addEventListener("click", () => {
    chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    stored(chosen);
    show();
  });
  show();
}

function stored(value) {
  try {
    if (value !== undefined) localStorage.setItem("mgmem-theme", value);
    return localStorage.getItem("mgmem-theme");
  } catch {
    return null; // private windows may keep nothing
  }
}
