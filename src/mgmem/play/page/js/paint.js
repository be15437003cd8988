// Colours and canvases: what all pictures of the page share.

const NAMES = [
  "free", "wall", "dim-free", "dim-wall", "unknown", "agent", "path", "glow", "right", "wrong",
  "zero", "low", "high", "ink", "panel", "soft",
];

let colours = null;

// The colours of the style sheet as [red, green, blue], read once and again after `forget`.
export function theme() {
  if (colours === null) {
    const style = getComputedStyle(document.documentElement);
    colours = Object.fromEntries(
      NAMES.map((name) => [name, parse(style.getPropertyValue(`--${name}`).trim())]),
    );
  }
  return colours;
}

export function forgetTheme() {
  colours = null;
}

function parse(text) {
  const digits = text.slice(1);
  return [0, 2, 4].map((start) => parseInt(digits.slice(start, start + 2), 16));
}

export function mix(one, other, share) {
  return one.map((value, i) => value + (other[i] - value) * share);
}

export function css([red, green, blue], alpha = 1) {
  return `rgb(${Math.round(red)} ${Math.round(green)} ${Math.round(blue)} / ${alpha})`;
}

// A number from -1 to 1: blue below zero, the ground's own colour at zero, orange above. The root
// lets small numbers be seen beside large ones.
export function diverging(value) {
  const { zero, low, high } = theme();
  const strength = Math.sqrt(Math.min(1, Math.abs(value)));
  return mix(zero, value < 0 ? low : high, strength);
}

// Make the canvas as fine as the screen; returns its context and side in CSS pixels.
export function prepare(canvas) {
  const ratio = Math.min(3, window.devicePixelRatio || 1);
  const side = Math.max(1, canvas.clientWidth);
  const pixels = Math.round(side * ratio);
  if (canvas.width !== pixels || canvas.height !== pixels) {
    canvas.width = pixels;
    canvas.height = pixels;
  }
  const context = canvas.getContext("2d");
  context.setTransform(pixels / side, 0, 0, pixels / side, 0, 0);
  return { context, side };
}

const sheets = new Map();

// A square of numbers as crisp cells over the whole canvas; colour(index) gives [r, g, b].
export function drawCells(context, side, cells, colour) {
  if (!sheets.has(cells)) {
    const sheet = document.createElement("canvas");
    sheet.width = sheet.height = cells;
    sheets.set(cells, sheet);
  }
  const sheet = sheets.get(cells);
  const small = sheet.getContext("2d");
  const image = small.createImageData(cells, cells);
  for (let i = 0; i < cells * cells; i++) {
    const [red, green, blue] = colour(i);
    image.data.set([red, green, blue, 255], 4 * i);
  }
  small.putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(sheet, 0, 0, side, side);
}

export function roundedCell(context, x, y, size, inset, radius) {
  context.beginPath();
  context.roundRect(x + inset, y + inset, size - 2 * inset, size - 2 * inset, radius);
}

// The mean over channels, or one channel, of a grid {channels, height, width, data}.
export function pictureOf(grid, channel) {
  const area = grid.height * grid.width;
  if (channel !== "mean") {
    const one = Math.min(channel, grid.channels - 1);
    return grid.data.slice(one * area, (one + 1) * area);
  }
  const mean = new Float32Array(area);
  for (let i = 0; i < grid.data.length; i++) mean[i % area] += grid.data[i] / grid.channels;
  return mean;
}

// The size that 98 in 100 numbers do not exceed: a scale that outliers leave alone.
export function usualSize(numbers) {
  const sizes = Float32Array.from(numbers, Math.abs).sort();
  return sizes[Math.floor(0.98 * (sizes.length - 1))] || 0;
}
