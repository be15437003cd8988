// Forgetting on purpose: a state with the cells under a brush set to zero.

// stamps: [row, column] on the finest grid; size: side of the brush there, odd. On coarser grids
// a cell goes if its centre lies under the brush.
export function erased(memory, state, stamps, size) {
  const next = state.slice();
  const finest = Math.max(...memory.parts.map((part) => part.height));
  for (const part of memory.parts) {
    const scale = finest / part.height;
    for (const [row, column] of stamps) {
      const [top, left] = [row - (size >> 1), column - (size >> 1)];
      for (const r of centresBetween(top, top + size, scale, part.height)) {
        for (const c of centresBetween(left, left + size, scale, part.width)) {
          clear(memory, next, part, r, c);
        }
      }
    }
  }
  return next;
}

// Cells of a coarser grid whose centre lies in [from, to) of the finest.
function centresBetween(from, to, scale, side) {
  const cells = [];
  for (let cell = 0; cell < side; cell++) {
    const centre = (cell + 0.5) * scale;
    if (centre >= from && centre < to) cells.push(cell);
  }
  return cells;
}

function clear(memory, state, part, row, column) {
  for (const which of ["h", "c"]) {
    const { channels, height, width, data } = memory.view(state, part, which);
    for (let channel = 0; channel < channels; channel++) {
      data[(channel * height + row) * width + column] = 0;
    }
  }
}
