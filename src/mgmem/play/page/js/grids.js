// Grids and the moves between them: what src/mgmem/pyramid.py and ops/reference.py define.
//
// A grid is {channels, height, width, data}: a Float32Array, channel by channel, row by row.
// A pyramid is {lowest, grids}: one grid per level, coarsest first, sides doubling.

export function newGrid(channels, height, width) {
  return { channels, height, width, data: new Float32Array(channels * height * width) };
}

export function levelsOf([lowest, highest]) {
  return Array.from({ length: highest - lowest + 1 }, (_, index) => lowest + index);
}

export function gridOf(pyramid, level) {
  return pyramid.grids[level - pyramid.lowest] ?? null;
}

// An empty pyramid of a layer [lowest, highest, channels] above a base grid [height, width].
export function newPyramid(layer, base) {
  const grids = levelsOf(layer).map((level) =>
    newGrid(layer[2], base[0] << level, base[1] << level),
  );
  return { lowest: layer[0], grids };
}

// Channels that a grid on `level` of the next layer reads: levels j-1, j and j+1 of this one.
export function channelsReadBy(layer, level) {
  const [lowest, highest, channels] = layer;
  const near = [level - 1, level, level + 1];
  return channels * near.filter((j) => j >= lowest && j <= highest).length;
}

// A block of channels with a frame of zeros around each, so that convolutions need no edges.
export class Padded {
  constructor(channels, height, width) {
    Object.assign(this, { channels, height, width, pitch: width + 2 });
    this.plane = (height + 2) * this.pitch;
    this.data = new Float32Array(channels * this.plane);
  }

  // Write a grid's channels from channel `first` on; returns the channel after the last.
  put(grid, first) {
    const { height, width, pitch, plane, data } = this;
    for (let channel = 0, from = 0; channel < grid.channels; channel++) {
      let to = (first + channel) * plane + pitch + 1;
      for (let row = 0; row < height; row++, to += pitch) {
        for (let column = 0; column < width; column++) data[to + column] = grid.data[from++];
      }
    }
    return first + grid.channels;
  }

  // The same for a grid of half the sides: nearest upsampling.
  putUpsampled(grid, first) {
    const { height, width, pitch, plane, data } = this;
    for (let channel = 0; channel < grid.channels; channel++) {
      let to = (first + channel) * plane + pitch + 1;
      for (let row = 0; row < height; row++, to += pitch) {
        const from = (channel * grid.height + (row >> 1)) * grid.width;
        for (let column = 0; column < width; column++) {
          data[to + column] = grid.data[from + (column >> 1)];
        }
      }
    }
    return first + grid.channels;
  }

  // The same for a grid of twice the sides: max pooling.
  putPooled(grid, first) {
    const { height, width, pitch, plane, data } = this;
    for (let channel = 0; channel < grid.channels; channel++) {
      let to = (first + channel) * plane + pitch + 1;
      for (let row = 0; row < height; row++, to += pitch) {
        let from = (channel * grid.height + 2 * row) * grid.width;
        for (let column = 0; column < width; column++, from += 2) {
          const below = from + grid.width;
          const upper = Math.max(grid.data[from], grid.data[from + 1]);
          data[to + column] = Math.max(upper, grid.data[below], grid.data[below + 1]);
        }
      }
    }
    return first + grid.channels;
  }

  // What a grid on `level` reads of the pyramid below: level-1 up, level, level+1 down.
  gather(pyramid, level, first = 0) {
    const [below, same, above] = [-1, 0, 1].map((shift) => gridOf(pyramid, level + shift));
    let next = first;
    if (below) next = this.putUpsampled(below, next);
    if (same) next = this.put(same, next);
    if (above) next = this.putPooled(above, next);
    return next;
  }
}

// 3x3 convolution of a padded block; weight (channels out, channels in, 3, 3).
//
// Four output channels at a time: what is loaded of the input then serves four times.
export function convolve(input, weight, bias, out) {
  const { channels, height, width, plane } = input;
  const area = height * width;
  const size = channels * 9;
  for (let o = 0; o < out.channels; o++) out.data.fill(bias[o], o * area, (o + 1) * area);
  for (let o = 0; o < out.channels; ) {
    const four = o + 4 <= out.channels;
    for (let channel = 0; channel < channels; channel++) {
      const k = o * size + channel * 9;
      (four ? addFour : addOne)(input, channel * plane, weight, k, size, out.data, o * area);
    }
    o += four ? 4 : 1;
  }
}

function addFour(input, start, w, k, size, y, to) {
  const { data: x, pitch, height, width } = input;
  const area = height * width;
  const [l, m, n] = [k + size, k + 2 * size, k + 3 * size];
  const a0 = w[k], a1 = w[k + 1], a2 = w[k + 2], a3 = w[k + 3], a4 = w[k + 4], a5 = w[k + 5], a6 = w[k + 6], a7 = w[k + 7], a8 = w[k + 8];
  const b0 = w[l], b1 = w[l + 1], b2 = w[l + 2], b3 = w[l + 3], b4 = w[l + 4], b5 = w[l + 5], b6 = w[l + 6], b7 = w[l + 7], b8 = w[l + 8];
  const c0 = w[m], c1 = w[m + 1], c2 = w[m + 2], c3 = w[m + 3], c4 = w[m + 4], c5 = w[m + 5], c6 = w[m + 6], c7 = w[m + 7], c8 = w[m + 8];
  const d0 = w[n], d1 = w[n + 1], d2 = w[n + 2], d3 = w[n + 3], d4 = w[n + 4], d5 = w[n + 5], d6 = w[n + 6], d7 = w[n + 7], d8 = w[n + 8];
  for (let row = 0; row < height; row++) {
    let p = start + row * pitch;
    let x0 = x[p], x1 = x[p + 1];
    let x3 = x[p + pitch], x4 = x[p + pitch + 1];
    let x6 = x[p + 2 * pitch], x7 = x[p + 2 * pitch + 1];
    p += 2;
    for (let column = 0; column < width; column++, p++, to++) {
      const x2 = x[p], x5 = x[p + pitch], x8 = x[p + 2 * pitch];
      y[to] += a0 * x0 + a1 * x1 + a2 * x2 + a3 * x3 + a4 * x4 + a5 * x5 + a6 * x6 + a7 * x7 + a8 * x8;
      y[to + area] += b0 * x0 + b1 * x1 + b2 * x2 + b3 * x3 + b4 * x4 + b5 * x5 + b6 * x6 + b7 * x7 + b8 * x8;
      y[to + 2 * area] += c0 * x0 + c1 * x1 + c2 * x2 + c3 * x3 + c4 * x4 + c5 * x5 + c6 * x6 + c7 * x7 + c8 * x8;
      y[to + 3 * area] += d0 * x0 + d1 * x1 + d2 * x2 + d3 * x3 + d4 * x4 + d5 * x5 + d6 * x6 + d7 * x7 + d8 * x8;
      x0 = x1; x1 = x2; x3 = x4; x4 = x5; x6 = x7; x7 = x8;
    }
  }
}

function addOne(input, start, w, k, size, y, to) {
  const { data: x, pitch, height, width } = input;
  for (let row = 0; row < height; row++) {
    let p = start + row * pitch;
    for (let column = 0; column < width; column++, p++, to++) {
      const q = p + pitch;
      const r = q + pitch;
      y[to] +=
        w[k] * x[p] + w[k + 1] * x[p + 1] + w[k + 2] * x[p + 2] +
        w[k + 3] * x[q] + w[k + 4] * x[q + 1] + w[k + 5] * x[q + 2] +
        w[k + 6] * x[r] + w[k + 7] * x[r + 1] + w[k + 8] * x[r + 2];
    }
  }
}

// Layers 3, 5, ...: add what the layer two below handed on, where both have the level; a layer
// that hands on more channels than this one has is left out (see add_residual in nn/conv.py).
export function addResidual(outputs, earlier) {
  outputs.grids.forEach((grid, index) => {
    const other = gridOf(earlier, outputs.lowest + index);
    if (other === null || other.channels > grid.channels) return;
    for (let i = 0; i < other.data.length; i++) grid.data[i] += other.data[i];
  });
}
