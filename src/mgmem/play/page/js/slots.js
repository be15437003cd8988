// A DNC's memory as a picture: its slots from left to right, in as many bands as the width asks for.
// Of each slot, from above: its numbers, how much is written to it, how much each head reads of it.

import { diverging, mix, theme, usualSize } from "./paint.js";

const NARROWEST = 3; // pixels of a slot
const TALL = 4; // pixels of a number
const GAP = 2; // rows between bands

// state: {memory, write, read}, see addressing.js
export function drawSlots(canvas, { slots, width, heads }, state) {
  const side = Math.max(1, canvas.clientWidth);
  const bands = Math.max(1, Math.ceil((slots * NARROWEST) / side));
  const columns = Math.ceil(slots / bands);
  const rows = width + 1 + heads;
  const small = document.createElement("canvas");
  small.width = columns;
  small.height = bands * (rows + GAP) - GAP;
  const image = new ImageData(small.width, small.height);
  const colour = colours({ slots, width }, state);
  for (let slot = 0; slot < slots; slot++) {
    const top = Math.floor(slot / columns) * (rows + GAP);
    for (let row = 0; row < rows; row++) {
      image.data.set([...colour(slot, row), 255], 4 * ((top + row) * columns + (slot % columns)));
    }
  }
  small.getContext("2d").putImageData(image, 0, 0);
  const ratio = Math.min(3, window.devicePixelRatio || 1);
  canvas.style.height = `${TALL * small.height}px`;
  canvas.width = Math.round(side * ratio);
  canvas.height = Math.round(TALL * small.height * ratio);
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(small, 0, 0, canvas.width, canvas.height);
}

// [red, green, blue] of a row of a slot.
function colours({ slots, width }, { memory, write, read }) {
  const { zero, path, agent } = theme();
  const scale = Math.max(usualSize(memory), 1e-3);
  const share = (weight) => Math.sqrt(Math.min(1, weight)); // so that small weights are seen as well
  return (slot, row) => {
    if (row < width) return diverging(memory[slot * width + row] / scale);
    if (row === width) return mix(zero, path, share(write[slot]));
    return mix(zero, agent, share(read[(row - width - 1) * slots + slot]));
  };
}

// In words: how large it is, where this answer wrote and read.
export function slotsInWords({ slots, width, heads }, { usage, write, read }) {
  const most = (weights) => {
    const slot = weights.reduce((best, weight, i) => (weight > weights[best] ? i : best), 0);
    const share = Math.round(100 * weights[slot]);
    return `${slot + 1} (${share < 1 ? "under 1" : share} %)`;
  };
  const reads = Array.from({ length: heads }, (_, head) => most(read.subarray(head * slots, (head + 1) * slots)));
  const used = usage.filter((share) => share >= 0.1).length;
  return `${slots} slots of ${width} numbers, ${used} of them in use. To answer, it wrote most to slot ` +
    `${most(write)}; its ${heads} heads read most from slots ${reads.join(", ")}.`;
}
