// The three large pictures: the world, the memory, and the map that the memory holds.
//
// Each keeps what it shows now and moves towards what it should show, frame by frame.

import { ACTIONS } from "./motion.js";
import { css, diverging, drawCells, mix, pictureOf, prepare, roundedCell, theme, usualSize } from "./paint.js";
import { MOVES } from "./world.js";

const calm = window.matchMedia("(prefers-reduced-motion: reduce)");

// Numbers that follow others smoothly.
class Eased {
  constructor() {
    this.now = null;
  }

  towards(target, share) {
    if (this.now === null || this.now.length !== target.length || calm.matches) {
      this.now = Float32Array.from(target);
      return false;
    }
    let moving = false;
    for (let i = 0; i < target.length; i++) {
      const gap = target[i] - this.now[i];
      this.now[i] += gap * share;
      if (Math.abs(gap) > 0.004 * (1 + Math.abs(target[i]))) moving = true;
    }
    return moving;
  }
}

export class WorldPanel {
  constructor(canvas, task) {
    Object.assign(this, { canvas, side: task.world, view: task.fov, query: task.query });
    this.agent = new Eased();
    this.glow = new Eased();
  }

  // {moment, path, answer: {chances, places} | null, pinned, cursor}
  draw(scene) {
    const { context, side } = prepare(this.canvas);
    const cell = side / this.side;
    const { moment } = scene;
    const paint = theme();
    const seen = (i) => moment.seen.has(Math.floor(i / this.side), i % this.side);
    drawCells(context, side, this.side, (i) => {
      const wall = moment.walls[i];
      return seen(i) ? paint[wall ? "wall" : "free"] : paint[wall ? "dim-wall" : "dim-free"];
    });
    this.drawPath(context, cell, scene.path);
    const glowing = this.drawAnswer(context, cell, scene.answer);
    if (scene.pinned) this.frame(context, cell, scene.pinned, this.query, css(paint.glow), 2.5);
    const moving = this.agent.towards(moment.agent, 0.35);
    this.frame(context, cell, this.agent.now, this.view, css(paint.agent), 2);
    this.drawAgent(context, cell);
    if (moment.chances) this.drawChances(context, cell, moment.chances);
    if (scene.cursor) this.frame(context, cell, scene.cursor, 1, css(paint.path), 2);
    return moving || glowing;
  }

  drawPath(context, cell, path) {
    const { path: colour } = theme();
    context.lineJoin = context.lineCap = "round";
    const line = (points, alpha, width) => {
      context.beginPath();
      for (const [row, column] of points) context.lineTo((column + 0.5) * cell, (row + 0.5) * cell);
      context.strokeStyle = css(colour, alpha);
      context.lineWidth = width;
      context.stroke();
    };
    line(path, 0.4, Math.max(1, cell * 0.06));
    line(path.slice(-14), 0.9, Math.max(1.5, cell * 0.1));
  }

  drawAnswer(context, cell, answer) {
    if (!answer) return false;
    const { glow, right, wrong } = theme();
    const moving = this.glow.towards(answer.chances, 0.3);
    this.glow.now.forEach((chance, i) => {
      const said = answer.chances[i] >= 0.5;
      const wanted = answer.places[i] === 1;
      if (chance < 0.03 && !wanted) return;
      const x = (i % this.side) * cell;
      const y = Math.floor(i / this.side) * cell;
      roundedCell(context, x, y, cell, cell * 0.1, cell * 0.22);
      context.fillStyle = css(glow, Math.min(1, 0.92 * chance));
      context.fill();
      if (!said && !wanted) return;
      context.lineWidth = Math.max(1.5, cell * 0.09);
      context.strokeStyle = css(said && wanted ? right : wrong);
      context.setLineDash(said ? [] : [cell * 0.16, cell * 0.12]);
      context.stroke();
      context.setLineDash([]);
      if (said && !wanted) cross(context, x, y, cell);
    });
    return moving;
  }

  frame(context, cell, [row, column], size, colour, width) {
    const reach = (size - 1) / 2;
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.beginPath();
    context.roundRect((column - reach) * cell, (row - reach) * cell, size * cell, size * cell, cell * 0.2);
    context.stroke();
  }

  drawAgent(context, cell) {
    const { agent, panel } = theme();
    const [row, column] = this.agent.now;
    context.beginPath();
    context.arc((column + 0.5) * cell, (row + 0.5) * cell, cell * 0.3, 0, 7);
    context.fillStyle = css(agent);
    context.fill();
    context.lineWidth = Math.max(1.5, cell * 0.08);
    context.strokeStyle = css(panel);
    context.stroke();
  }

  // An arrow to each neighbour, as large and strong as the policy's chance to go there is.
  drawChances(context, cell, chances) {
    const { agent, panel } = theme();
    const [row, column] = this.agent.now;
    [...ACTIONS].forEach((letter, i) => {
      if (chances[i] < 0.01) return;
      const [down, right] = MOVES[letter];
      const [x, y] = [column + 0.5 + 0.75 * right, row + 0.5 + 0.75 * down];
      arrow(context, x * cell, y * cell, MOVES[letter], cell * (0.08 + 0.36 * Math.sqrt(chances[i])));
      context.fillStyle = css(agent, 0.5 + 0.5 * chances[i]);
      context.fill();
      context.lineWidth = 1;
      context.strokeStyle = css(panel, 0.8);
      context.stroke();
    });
  }
}

// The outline of a triangle around (x, y) that points one way.
function arrow(context, x, y, [down, right], size) {
  const [tip, foot] = [size, -0.1 * size];
  context.beginPath();
  context.moveTo(x + right * tip, y + down * tip);
  context.lineTo(x + right * foot + down * size, y + down * foot + right * size);
  context.lineTo(x + right * foot - down * size, y + down * foot - right * size);
  context.closePath();
}

function cross(context, x, y, cell) {
  const [near, far] = [cell * 0.33, cell * 0.67];
  context.beginPath();
  context.moveTo(x + near, y + near);
  context.lineTo(x + far, y + far);
  context.moveTo(x + far, y + near);
  context.lineTo(x + near, y + far);
  context.stroke();
}

export class MemoryPanel {
  constructor(canvas, task) {
    Object.assign(this, { canvas, task, scale: 0 });
    this.values = new Eased();
  }

  // {grid, channel, brush: {row, column, size} | null, cursor: cell of the map | null}
  draw(scene) {
    const { context, side } = prepare(this.canvas);
    const picture = pictureOf(scene.grid, scene.channel);
    const cells = scene.grid.height;
    const usual = Math.max(usualSize(picture), 1e-3);
    // The scale follows slowly, so that what changes are the colours and not their meaning.
    this.scale = this.values.now?.length === picture.length ? this.scale + (usual - this.scale) * 0.06 : usual;
    const moving = this.values.towards(picture, 0.25);
    drawCells(context, side, cells, (i) => diverging(this.values.now[i] / this.scale));
    this.drawMaze(context, side);
    if (scene.brush) this.drawBrush(context, side / cells, scene.brush);
    if (scene.cursor) this.drawCursor(context, side, scene.cursor);
    return moving || Math.abs(usual - this.scale) > 0.02 * usual;
  }

  // Where the maze lies: the memory is larger, because nobody told it how large mazes are.
  drawMaze(context, side) {
    const { grid, world, start } = this.task;
    const unit = side / grid;
    const corner = ((grid >> 1) - start) * unit;
    context.strokeStyle = css(theme().ink, 0.5);
    context.lineWidth = 1;
    context.setLineDash([4, 4]);
    context.strokeRect(corner, corner, world * unit, world * unit);
    context.setLineDash([]);
  }

  drawBrush(context, cell, { row, column, size }) {
    const reach = size >> 1;
    const box = [(column - reach) * cell, (row - reach) * cell, size * cell, size * cell];
    context.fillStyle = css(theme().panel, 0.55);
    context.fillRect(...box);
    context.strokeStyle = css(theme().wrong);
    context.lineWidth = 2;
    context.strokeRect(...box);
  }

  drawCursor(context, side, [row, column]) {
    const { grid, start } = this.task;
    const unit = side / grid;
    const shift = (grid >> 1) - start;
    context.strokeStyle = css(theme().ink);
    context.lineWidth = 2;
    context.strokeRect((column + shift) * unit, (row + shift) * unit, unit, unit);
  }
}

export class KnownPanel {
  constructor(canvas, task) {
    Object.assign(this, { canvas, task });
    this.colour = new Eased();
  }

  // {map: {seen, wall} over the grid, moment, cursor}; returns whether it still moves.
  draw(scene) {
    const { context, side } = prepare(this.canvas);
    const { world } = this.task;
    const cell = side / world;
    const paint = theme();
    const target = new Float32Array(2 * world * world);
    for (let i = 0; i < world * world; i++) {
      const place = onGrid(this.task, i);
      if (place < 0) continue; // not known
      target[2 * i] = scene.map.seen[place];
      target[2 * i + 1] = scene.map.wall[place];
    }
    const moving = this.colour.towards(target, 0.25);
    drawCells(context, side, world, (i) => {
      const [seen, wall] = [this.colour.now[2 * i], this.colour.now[2 * i + 1]];
      return mix(paint.unknown, mix(paint.free, paint.wall, wall), seen);
    });
    this.drawErrors(context, cell, scene);
    this.drawCursor(context, cell, scene.cursor);
    return moving;
  }

  drawErrors(context, cell, { map, moment }) {
    context.fillStyle = css(theme().wrong);
    for (const i of wrongCells(this.task, map, moment).wrong) {
      context.beginPath();
      const [x, y] = [(i % this.task.world) + 0.5, Math.floor(i / this.task.world) + 0.5];
      context.arc(x * cell, y * cell, cell * 0.15, 0, 7);
      context.fill();
    }
  }

  drawCursor(context, cell, cursor) {
    if (!cursor) return;
    context.strokeStyle = css(theme().path);
    context.lineWidth = 2;
    context.strokeRect(cursor[1] * cell, cursor[0] * cell, cell, cell);
  }
}

// The place on the grid of answers of a cell of the maze; -1 for a border beyond a full grid.
export function onGrid({ grid, world, start }, cell) {
  const shift = (grid >> 1) - start;
  const [row, column] = [Math.floor(cell / world) + shift, (cell % world) + shift];
  return Math.min(row, column) < 0 || Math.max(row, column) >= grid ? -1 : row * grid + column;
}

// Among the cells seen: which are told wrong, how many are told right, how many there are.
export function wrongCells(task, map, moment) {
  const wrong = [];
  let [seen, right] = [0, 0];
  for (let i = 0; i < task.world ** 2; i++) {
    const place = onGrid(task, i);
    if (place < 0 || !moment.seen.has(Math.floor(i / task.world), i % task.world)) continue;
    seen += 1;
    if (map.seen[place] < 0.5) continue; // not known, and not claimed to be
    if (map.wall[place] > 0.5 === (moment.walls[i] === 1)) right += 1;
    else wrong.push(i);
  }
  return { wrong, right, seen };
}
