// The reader: a multigrid CNN that sees the memory's outputs layer by layer and never writes
// (src/mgmem/nn/reader.py).

import { Padded, addResidual, channelsReadBy, convolve, levelsOf, newPyramid } from "./grids.js";

export class Reader {
  // spec: {input, base, layers, sees: how many of the first layers are joined by the memory's,
  // rectified: whether the last layer ends in a ReLU like the others}
  // memoryLayers: the memory's own; weights(layer, level): {weight, bias}
  constructor(spec, memoryLayers, weights) {
    this.spec = spec;
    this.layers = [];
    let below = spec.input;
    spec.layers.forEach((layer, number) => {
      const joined = number < spec.sees ? memoryLayers[number][2] : 0;
      const grids = levelsOf(layer).map((level) => ({
        level,
        input: new Padded(channelsReadBy(below, level), spec.base[0] << level, spec.base[1] << level),
        ...weights(number, level),
      }));
      const handedOn = [layer[0], layer[1], layer[2] + joined];
      // Two views of one buffer: the layer's own channels come first, the memory's after them.
      const outputs = newPyramid(handedOn, spec.base);
      const own = {
        lowest: layer[0],
        grids: outputs.grids.map((grid) => ({
          ...grid, channels: layer[2], data: grid.data.subarray(0, layer[2] * grid.height * grid.width),
        })),
      };
      this.layers.push({ grids, outputs, own, joined });
      below = handedOn;
    });
  }

  // query: a pyramid on the levels of spec.input; memory: what Memory.outputs gives.
  // Returns the finest grid of the last layer as a Float32Array: logits, unless rectified.
  answer(query, memory) {
    let below = query;
    this.layers.forEach((layer, number) => {
      layer.grids.forEach(({ level, input, weight, bias }, index) => {
        input.gather(below, level);
        convolve(input, weight, bias, layer.own.grids[index]);
        if (this.spec.rectified || number < this.layers.length - 1) rectify(layer.own.grids[index].data);
      });
      if (this.spec.residual && number >= 2 && number % 2 === 0) {
        addResidual(layer.own, this.layers[number - 2].outputs);
      }
      if (layer.joined) join(layer, memory[number]);
      below = layer.outputs;
    });
    return below.grids.at(-1).data.slice();
  }
}

function rectify(data) {
  for (let i = 0; i < data.length; i++) if (data[i] < 0) data[i] = 0;
}

function join(layer, memory) {
  layer.outputs.grids.forEach((grid, index) => {
    grid.data.set(memory.grids[index].data, layer.own.grids[index].data.length);
  });
}
