// The linear probe: for every cell of the map, was it seen and is it a wall, each a weighted sum
// of what the finest grid of the deepest layer holds around it (src/mgmem/report/map_probe.py).

import { Padded, newGrid } from "./grids.js";

export class Probe {
  // spec: {period, reach}; weights: "probe.weight" (period², 2, features), "probe.bias" (period², 2)
  // side: that of the map, which may be finer than the memory's grid
  constructor(spec, side, tensors, memory) {
    Object.assign(this, spec, { side });
    this.memory = memory;
    this.part = memory.parts.at(-1);
    this.weight = tensors.get("probe.weight");
    this.bias = tensors.get("probe.bias");
    const { channels, height, width } = this.part;
    // Room for the reach on all sides: a frame of zeros of one cell is there already.
    const margin = this.reach - 1;
    this.input = new Padded(2 * channels, height + 2 * margin, width + 2 * margin);
  }

  read(state) {
    const { height, channels } = this.part;
    const factor = this.side / height;
    const seen = new Float32Array(this.side ** 2);
    const wall = new Float32Array(this.side ** 2);
    this.fill(state);
    const { data, pitch, plane } = this.input;
    const width = 2 * this.reach + 1;
    const features = 2 * channels * width * width;
    for (let row = 0, cell = 0; row < this.side; row++) {
      const top = Math.floor(row / factor);
      for (let column = 0; column < this.side; column++, cell++) {
        const left = Math.floor(column / factor);
        const phase = (row % this.period) * this.period + (column % this.period);
        let a = this.bias[2 * phase];
        let b = this.bias[2 * phase + 1];
        let k = 2 * phase * features;
        for (let channel = 0; channel < 2 * channels; channel++) {
          for (let down = 0; down < width; down++) {
            const from = channel * plane + (top + down) * pitch + left;
            for (let right = 0; right < width; right++, k++) {
              const value = data[from + right];
              a += this.weight[k] * value;
              b += this.weight[k + features] * value;
            }
          }
        }
        seen[cell] = Math.min(1, Math.max(0, a));
        wall[cell] = Math.min(1, Math.max(0, b));
      }
    }
    return { seen, wall };
  }

  fill(state) {
    const { height, width, channels } = this.part;
    const margin = this.reach - 1;
    for (const [index, which] of ["h", "c"].entries()) {
      const grid = this.memory.view(state, this.part, which);
      const framed = newGrid(channels, this.input.height, this.input.width);
      for (let i = 0; i < channels * height; i++) {
        const channel = Math.floor(i / height);
        const to = (channel * framed.height + (i % height) + margin) * framed.width + margin;
        framed.data.set(grid.data.subarray(i * width, (i + 1) * width), to);
      }
      this.input.put(framed, index * channels);
    }
  }
}
