// The memory: a mesh of MG-conv-LSTM layers (src/mgmem/nn/memory.py), one step at a time.
//
// Its state is a value: one Float32Array with h and then c of every layer and level. A step
// makes a new one and leaves the old as it was, so every moment of a walk can be kept.

import { Padded, addResidual, channelsReadBy, convolve, levelsOf, newGrid, newPyramid } from "./grids.js";

const sigmoid = (x) => 1 / (1 + Math.exp(-x));

export class Memory {
  // spec: {input: [lowest, highest, channels], base, layers: [[lowest, highest, channels], ...]}
  // weights(layer, level): {weight (4·channels, channels read + channels, 3, 3), bias}
  constructor(spec, weights) {
    this.spec = spec;
    this.parts = []; // where h and c of each layer and level lie in a state
    this.cells = 0;
    let below = spec.input;
    spec.layers.forEach((layer, number) => {
      for (const level of levelsOf(layer)) {
        const height = spec.base[0] << level;
        const width = spec.base[1] << level;
        const read = channelsReadBy(below, level);
        this.parts.push({
          layer: number, level, channels: layer[2], height, width, start: this.cells, read,
          input: new Padded(read + layer[2], height, width),
          gates: newGrid(4 * layer[2], height, width),
          ...weights(number, level),
        });
        this.cells += layer[2] * height * width;
      }
      below = layer;
    });
  }

  emptyState() {
    return new Float32Array(2 * this.cells);
  }

  // One grid of a state, {channels, height, width, data}, without a copy; which: "h" or "c".
  grid(state, layer, level, which) {
    const part = this.parts.find((p) => p.layer === layer && p.level === level);
    return this.view(state, part, which);
  }

  view(state, part, which) {
    const { channels, height, width, start } = part;
    const from = start + (which === "c" ? this.cells : 0);
    const data = state.subarray(from, from + channels * height * width);
    return { channels, height, width, data };
  }

  // input: a pyramid on the levels of spec.input. Returns the state after it.
  step(state, input) {
    const next = this.emptyState();
    const handedOn = [];
    let below = input;
    this.spec.layers.forEach((layer, number) => {
      for (const part of this.parts.filter((p) => p.layer === number)) {
        const end = part.input.gather(below, part.level);
        part.input.put(this.view(state, part, "h"), end);
        convolve(part.input, part.weight, part.bias, part.gates);
        applyGates(part, this.view(state, part, "c").data, this.view(next, part, "h").data,
          this.view(next, part, "c").data);
      }
      below = this.handOn(next, number, handedOn);
    });
    return next;
  }

  // What every layer hands on to the next, and shows to readers: h, plus residuals.
  outputs(state) {
    const handedOn = [];
    this.spec.layers.forEach((_, number) => this.handOn(state, number, handedOn));
    return handedOn;
  }

  handOn(state, number, handedOn) {
    const layer = this.spec.layers[number];
    const outputs = newPyramid(layer, this.spec.base);
    for (const part of this.parts.filter((p) => p.layer === number)) {
      outputs.grids[part.level - layer[0]].data.set(this.view(state, part, "h").data);
    }
    if (this.spec.residual && number >= 2 && number % 2 === 0) {
      addResidual(outputs, handedOn[number - 2]);
    }
    handedOn.push(outputs);
    return outputs;
  }
}

// Gates are stacked i, f, g, o.
function applyGates(part, oldCell, hidden, cell) {
  const gates = part.gates.data;
  const size = oldCell.length;
  for (let i = 0; i < size; i++) {
    const keep = sigmoid(gates[size + i]) * oldCell[i];
    const c = keep + sigmoid(gates[i]) * Math.tanh(gates[2 * size + i]);
    cell[i] = c;
    hidden[i] = sigmoid(gates[3 * size + i]) * Math.tanh(c);
  }
}
