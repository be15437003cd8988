// How a picture becomes a network's input (src/mgmem/nn/fit.py). A picture is a grid of any side.

import { newGrid, newPyramid } from "./grids.js";

export function fitted(picture, input, base, how) {
  if (how === "as is") return { lowest: input[0], grids: [picture] };
  const pyramid = newPyramid(input, base);
  if (how === "unshuffle") unshuffle(picture, pyramid.grids[0]);
  else if (how === "resize") pyramid.grids.forEach((grid) => resize(picture, grid));
  else pad(picture, pyramid.grids);
  return pyramid;
}

// Each block of pixels under one cell becomes channels of that cell.
function unshuffle(picture, grid) {
  const { height, width } = grid;
  const factor = picture.height / height;
  for (let channel = 0; channel < grid.channels; channel++) {
    const source = Math.floor(channel / factor ** 2);
    const [down, right] = [Math.floor(channel / factor) % factor, channel % factor];
    for (let row = 0; row < height; row++) {
      for (let column = 0; column < width; column++) {
        const from = (source * picture.height + row * factor + down) * picture.width;
        grid.data[(channel * height + row) * width + column] =
          picture.data[from + column * factor + right];
      }
    }
  }
}

function resize(picture, grid) {
  for (let channel = 0, to = 0; channel < grid.channels; channel++) {
    for (let row = 0; row < grid.height; row++) {
      const r = Math.floor((row * picture.height) / grid.height);
      for (let column = 0; column < grid.width; column++, to++) {
        const c = Math.floor((column * picture.width) / grid.width);
        grid.data[to] = picture.data[(channel * picture.height + r) * picture.width + c];
      }
    }
  }
}

// In the middle of the finest grid, each pixel in a cell of its own; pooled to the coarser ones.
function pad(picture, grids) {
  const finest = grids.at(-1);
  const top = (finest.height - picture.height) >> 1;
  const left = (finest.width - picture.width) >> 1;
  for (let channel = 0, from = 0; channel < picture.channels; channel++) {
    for (let row = 0; row < picture.height; row++) {
      const to = (channel * finest.height + row + top) * finest.width + left;
      for (let column = 0; column < picture.width; column++) {
        finest.data[to + column] = picture.data[from++];
      }
    }
  }
  for (let level = grids.length - 2; level >= 0; level--) pool(grids[level + 1], grids[level]);
}

function pool(fine, coarse) {
  for (let channel = 0, to = 0; channel < coarse.channels; channel++) {
    for (let row = 0; row < coarse.height; row++) {
      for (let column = 0; column < coarse.width; column++, to++) {
        const from = (channel * fine.height + 2 * row) * fine.width + 2 * column;
        const below = from + fine.width;
        const { data } = fine;
        coarse.data[to] = Math.max(data[from], data[from + 1], data[below], data[below + 1]);
      }
    }
  }
}

// A patch of walls (size x size, 1 for a wall) at a location, or asked for (location zero):
// channels free, wall, row, column.
export function patchPicture(walls, size, location = [0, 0]) {
  const picture = newGrid(4, size, size);
  const area = size * size;
  for (let i = 0; i < area; i++) {
    picture.data[i] = walls[i] ? 0 : 1;
    picture.data[area + i] = walls[i] ? 1 : 0;
    picture.data[2 * area + i] = location[0];
    picture.data[3 * area + i] = location[1];
  }
  return picture;
}
