// A trained memory with its reader and its probe, out of the two files that the page ships:
// memory.json (what it is) and memory.bin (all numbers, the weights in half precision).

import { fitted, patchPicture } from "./fit.js";
import { Memory } from "./memory.js";
import { Policy } from "./policy.js";
import { Probe } from "./probe.js";
import { Reader } from "./reader.js";

// 16 bits to a number: sign, five bits of exponent, ten of fraction.
export function fromHalf(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

// All tensors by name, as full numbers; the file is little endian wherever the page runs.
export function readTensors(header, buffer) {
  const view = new DataView(buffer);
  const tensors = new Map();
  for (const { name, shape, kind, offset } of header.tensors) {
    const size = shape.reduce((product, side) => product * side, 1);
    const values = new Float32Array(size);
    for (let i = 0; i < size; i++) {
      if (kind === "f4") values[i] = view.getFloat32(offset + 4 * i, true);
      else values[i] = fromHalf(view.getUint16(offset + 2 * i, true));
    }
    tensors.set(name, values);
  }
  return tensors;
}

export class Model {
  constructor(header, buffer) {
    this.header = header;
    this.task = header.task;
    const tensors = readTensors(header, buffer);
    const from = (part) => (layer, level) => ({
      weight: tensors.get(`${part}.${layer}.${level}.weight`),
      bias: tensors.get(`${part}.${layer}.${level}.bias`),
    });
    this.memory = new Memory(header.memory, from("memory"));
    this.reader = new Reader(header.reader, header.memory.layers, from("reader"));
    this.probe = new Probe(header.probe, header.task.grid, tensors, this.memory);
    if (header.policy) {
      const linear = (name) => ({
        weight: tensors.get(`policy.${name}.weight`), bias: tensors.get(`policy.${name}.bias`),
      });
      this.policy = new Policy(
        header.policy, header.task.grid, from("policy"), linear("join"), linear("action"));
    }
  }

  // What the memory is told of `walls` (fov x fov) seen at (row, column) from the start.
  observation(walls, place) {
    const { fov, location } = this.task;
    return patchPicture(walls, fov, place.map((x) => (x + location.shift) * location.scale));
  }

  // The state after seeing `walls` at a place.
  step(state, walls, place) {
    const { input, base, fit } = this.header.memory;
    return this.memory.step(state, fitted(this.observation(walls, place), input, base, fit));
  }

  // How the policy would go on from a state, seeing `walls` at a place: logits of four moves.
  judge(state, walls, place) {
    const deepest = this.memory.outputs(state).at(-1);
    return this.policy.logits(deepest, this.observation(walls, place), place);
  }

  // Where was this patch seen? Logits over the grid. `outputs`: Memory.outputs of a state.
  answer(outputs, patch) {
    const { input, base, fit } = this.header.reader;
    return this.reader.answer(fitted(patchPicture(patch, this.task.query), input, base, fit), outputs);
  }

  // What a linear probe reads off the memory: {seen, wall}, probabilities over the grid.
  decode(state) {
    return this.probe.read(state);
  }
}
