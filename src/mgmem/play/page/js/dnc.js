// A trained DNC that answers questions (src/mgmem/baselines/dnc.py behind flat.py), out of
// beside.json (what it is) and beside.bin (its weights in half precision).
//
// It knows no reader: a question goes in with what is seen, and changes its state as a step does.
// So each is asked on a copy, from the state before the step, and the walk goes on without it.

import { access, emptyMemory, parseInterface } from "./addressing.js";
import { patchPicture } from "./fit.js";
import { readTensors } from "./model.js";

const sigmoid = (x) => 1 / (1 + Math.exp(-x));

export class DNC {
  constructor(header, buffer) {
    this.task = header.task;
    this.spec = header.dnc; // {hidden, slots, width, heads, clip, epsilon}
    const tensors = readTensors(header, buffer);
    const layer = (name) => ({ weight: tensors.get(`${name}.weight`), bias: tensors.get(`${name}.bias`) });
    this.fromInput = layer("from_input");
    this.fromPast = layer("from_past");
    this.toInterface = layer("to_interface");
    this.head = layer("head");
  }

  emptyState() {
    const { hidden } = this.spec;
    return { hidden: new Float64Array(hidden), cell: new Float64Array(hidden), ...emptyMemory(this.spec) };
  }

  // The state after seeing `walls` (fov x fov) at (row, column) from the start, and being asked for
  // a patch, if it is. The state given stays as it was.
  step(state, { walls, location }, patch = null) {
    const { hidden: units, clip } = this.spec;
    const input = linear(this.fromInput, this.input(walls, location, patch));
    const past = linear(this.fromPast, joined(state.hidden, state.reads));
    const gates = input.map((x, i) => x + past[i]); // stacked in, forget, out, candidate
    const cell = state.cell.map((old, i) => {
      const kept = sigmoid(gates[units + i]) * old;
      const value = kept + sigmoid(gates[i]) * Math.tanh(gates[3 * units + i]);
      return clip === null ? value : Math.min(clip, Math.max(-clip, value));
    });
    const hidden = cell.map((value, i) => sigmoid(gates[2 * units + i]) * Math.tanh(value));
    const ask = parseInterface(linear(this.toInterface, hidden), this.spec);
    return { hidden, cell, ...access(ask, state, this.spec) };
  }

  // Logits over the grid, of a state whose step was asked.
  answer(state) {
    return Float32Array.from(linear(this.head, joined(state.hidden, state.reads)));
  }

  // What is seen, the patch asked for, and whether one is.
  input(walls, place, patch) {
    const { fov, query, location } = this.task;
    const seen = patchPicture(walls, fov, place.map((x) => (x + location.shift) * location.scale)).data;
    const input = new Float64Array(seen.length + 4 * query ** 2 + 1);
    input.set(seen);
    if (patch !== null) {
      input.set(patchPicture(patch, query).data, seen.length);
      input[input.length - 1] = 1;
    }
    return input;
  }
}

function joined(one, other) {
  const both = new Float64Array(one.length + other.length);
  both.set(one);
  both.set(other, one.length);
  return both;
}

// weight: (outputs, inputs); without a bias it starts at zero.
function linear({ weight, bias }, inputs) {
  const size = inputs.length;
  const outputs = new Float64Array(weight.length / size);
  for (let output = 0, from = 0; output < outputs.length; output++, from += size) {
    let sum = bias ? bias[output] : 0;
    for (let i = 0; i < size; i++) sum += weight[from + i] * inputs[i];
    outputs[output] = sum;
  }
  return outputs;
}
