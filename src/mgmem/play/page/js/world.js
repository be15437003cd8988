// Mazes, the ways to walk through them, and what is true: the rules of src/mgmem/tasks/maze.py,
// motion.py and windows.py. Walls are a Uint8Array, row by row, 1 for a wall.

// A stream of random whole numbers below a limit; the same seed gives the same stream.
export function randomNumbers(seed) {
  let state = seed >>> 0;
  return (limit) => {
    state = (state + 0x9e3779b9) >>> 0;
    let bits = state;
    bits = Math.imul(bits ^ (bits >>> 16), 0x85ebca6b);
    bits = Math.imul(bits ^ (bits >>> 13), 0xc2b2ae35);
    return Math.floor((((bits ^ (bits >>> 16)) >>> 0) / 2 ** 32) * limit);
  };
}

const COMPLEXITY = 0.05;
const DENSITY = 0.2;

export function makeMaze(seed, size) {
  const below = randomNumbers(seed);
  const half = Math.floor(size / 2);
  const count = Math.floor(DENSITY * half ** 2);
  const tries = Math.floor(COMPLEXITY * 10 * size);
  const even = () => 2 * below(half + 1);
  const seeds = Array.from({ length: count }, () => even() * size + even());
  return growMaze(size, seeds, seeds.map(() => Array.from({ length: tries }, () => below(12))));
}

// A border, and walls grown from seeds (cells with even coordinates): each choice, a number below
// 12, looks at a cell two steps away; a free one becomes wall, with the cell between, and the
// growth goes on from there.
export function growMaze(size, seeds, choices) {
  const walls = new Uint8Array(size * size);
  for (let i = 0; i < size; i++) {
    for (const cell of [i, (size - 1) * size + i, i * size, i * size + size - 1]) walls[cell] = 1;
  }
  seeds.forEach((seed, number) => {
    let cell = seed;
    walls[cell] = 1;
    for (const choice of choices[number]) {
      const near = twoStepsFrom(cell, size);
      const target = near[choice % near.length];
      if (!walls[target]) {
        walls[target] = 1;
        walls[(cell + target) / 2] = 1;
        cell = target;
      }
    }
  });
  return walls;
}

function twoStepsFrom(cell, size) {
  const row = Math.floor(cell / size);
  const column = cell % size;
  return [[row - 2, column], [row + 2, column], [row, column - 2], [row, column + 2]]
    .filter(([r, c]) => r >= 0 && r < size && c >= 0 && c < size)
    .map(([r, c]) => r * size + c);
}

export const MOVES = { u: [-1, 0], r: [0, 1], d: [1, 0], l: [0, -1], x: [0, 0] };

// The letters of a walk that winds outward over the whole interior of a maze.
export function spiral(size) {
  const side = size - 2;
  const turns = "rdlu";
  let letters = "";
  for (let run = 0; run < 2 * (side - 1); run++) letters += turns[run % 4].repeat(1 + (run >> 1));
  return letters + turns[(2 * (side - 1)) % 4].repeat(side - 1);
}

// Steps from every cell to a goal where walls are in the way; -1: no way leads there.
export function distancesTo(walls, side, [row, column]) {
  const steps = new Int32Array(side * side).fill(-1);
  const queue = walls[row * side + column] ? [] : [row * side + column];
  for (const cell of queue) steps[cell] = 0;
  for (const cell of queue) {
    for (const next of [cell - side, cell + side, cell - 1, cell + 1]) {
      if (walls[next] || steps[next] >= 0) continue; // the border is wall: none lies outside
      steps[next] = steps[cell] + 1;
      queue.push(next);
    }
  }
  return steps;
}

// The size x size cells around a place; what lies outside the maze is wall.
export function patchAt(walls, side, [row, column], size) {
  const reach = size >> 1;
  const patch = new Uint8Array(size * size);
  for (let i = 0; i < size * size; i++) {
    const r = row + Math.floor(i / size) - reach;
    const c = column + (i % size) - reach;
    const inside = r >= 0 && r < side && c >= 0 && c < side;
    patch[i] = inside ? walls[r * side + c] : 1;
  }
  return patch;
}

// What has been seen of a maze: cells, and the windows whose every cell has been. A margin around
// the maze counts as well, because windows reach beyond it.
export class Seen {
  constructor(side, margin) {
    Object.assign(this, { side, margin, pitch: side + 2 * margin });
    this.cells = new Uint8Array(this.pitch ** 2);
  }

  after([row, column], view) {
    const next = new Seen(this.side, this.margin);
    next.cells.set(this.cells);
    const reach = view >> 1;
    for (let r = row - reach; r <= row + reach; r++) {
      for (let c = column - reach; c <= column + reach; c++) next.cells[next.index(r, c)] = 1;
    }
    return next;
  }

  index(row, column) {
    return (row + this.margin) * this.pitch + column + this.margin;
  }

  has(row, column) {
    return this.cells[this.index(row, column)] === 1;
  }

  // Whether the whole size x size window around an interior cell has been seen.
  hasWindow([row, column], size) {
    const reach = size >> 1;
    if (Math.min(row, column) < 1 || Math.max(row, column) > this.side - 2) return false;
    for (let r = row - reach; r <= row + reach; r++) {
      for (let c = column - reach; c <= column + reach; c++) if (!this.has(r, c)) return false;
    }
    return true;
  }
}

// Where a patch has been seen: 1 at the interior cells whose window was seen and looks like it.
export function placesOf(patch, size, walls, seen) {
  const { side } = seen;
  const places = new Uint8Array(side * side);
  for (let row = 1; row < side - 1; row++) {
    for (let column = 1; column < side - 1; column++) {
      if (!seen.hasWindow([row, column], size)) continue;
      const here = patchAt(walls, side, [row, column], size);
      if (here.every((wall, i) => wall === patch[i])) places[row * side + column] = 1;
    }
  }
  return places;
}

// All 3x3 patches that mazes have, the commonest first. A few hundred mazes show every one.
export function commonPatches(side, size, mazes = 300) {
  const counts = new Map();
  for (let seed = 0; seed < mazes; seed++) {
    const walls = makeMaze(seed, side);
    for (let row = 1; row < side - 1; row++) {
      for (let column = 1; column < side - 1; column++) {
        const key = patchAt(walls, side, [row, column], size).join("");
        counts.set(key, (counts.get(key) ?? 0) + 1);
      }
    }
  }
  return [...counts.entries()]
    .sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1))
    .map(([key]) => Uint8Array.from(key, Number));
}
