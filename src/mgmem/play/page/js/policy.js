// The policy of an explorer: what it sees of the memory around the agent, and how it would go on
// (src/mgmem/rl/sight.py and policy.py).

import { newGrid } from "./grids.js";
import { Reader } from "./reader.js";

export class Policy {
  // spec: that of a reader, and `window`, the side of what it sees; grid: side of the memory's map
  // weights(layer, level): {weight, bias} of its layers; join, action: those behind them
  constructor(spec, grid, weights, join, action) {
    Object.assign(this, { spec, grid, join, action });
    this.reader = new Reader(spec, [], weights);
  }

  // Logits of up, down, left and right. outputs: what the memory's last layer hands on;
  // observation: the picture that the memory was told; place: [row, column] from the start.
  logits(outputs, observation, place) {
    const seen = windowAround(outputs.grids, place, this.grid, this.spec.window);
    const read = this.reader.answer({ lowest: this.spec.input[0], grids: [seen] }, []);
    const features = Float32Array.of(...read, ...observation.data);
    return linear(this.action, linear(this.join, features).map((x) => Math.max(0, x)));
  }
}

// The cells around the agent out of maps of one or more resolutions, channels one after another.
// The start is in the middle of each map, the agent in the middle of the window; what lies beyond
// a map is 0.
export function windowAround(grids, place, side, window) {
  const channels = grids.reduce((sum, grid) => sum + grid.channels, 0);
  const seen = newGrid(channels, window, window);
  const [top, left] = place.map((x) => x + (side >> 1) - (window >> 1));
  let to = 0;
  for (const { channels: own, height, width, data } of grids) {
    for (let channel = 0; channel < own; channel++) {
      for (let row = top; row < top + window; row++) {
        for (let column = left; column < left + window; column++, to++) {
          if (Math.min(row, column) < 0 || Math.max(row, column) >= side) continue;
          const [r, c] = [Math.floor((row * height) / side), Math.floor((column * width) / side)];
          seen.data[to] = data[(channel * height + r) * width + c];
        }
      }
    }
  }
  return seen;
}

// weight: (outputs, inputs)
function linear({ weight, bias }, inputs) {
  return Float32Array.from(bias, (start, output) => {
    let sum = start;
    for (let i = 0; i < inputs.length; i++) sum += weight[output * inputs.length + i] * inputs[i];
    return sum;
  });
}

export function softmax(logits) {
  const most = Math.max(...logits);
  const parts = Array.from(logits, (x) => Math.exp(x - most));
  const sum = parts.reduce((a, b) => a + b, 0);
  return parts.map((part) => part / sum);
}
