// Every layer and level as a small picture; pointing at a cell outlines what it reads.

import { channelsReadBy } from "./grids.js";
import { css, diverging, drawCells, pictureOf, prepare, theme, usualSize } from "./paint.js";

export class Mesh {
  // memory: the layout of states; choose(layer, level): called when a grid is pressed
  constructor(box, memory, choose, say) {
    Object.assign(this, { box, memory, say, pointed: null });
    const layers = memory.spec.layers;
    const top = Math.max(...layers.map((layer) => layer[1]));
    const bottom = Math.min(...layers.map((layer) => layer[0]));
    box.style.gridTemplateColumns = `auto repeat(${layers.length}, minmax(44px, 1fr))`;
    box.append(heading(""), ...layers.map((_, i) => heading(`layer ${i + 1}`)));
    this.tiles = [];
    for (let level = top; level >= bottom; level--) {
      const sides = memory.spec.base.map((side) => side << level);
      box.append(heading(sides.join("×"), "side"));
      layers.forEach((layer, number) => {
        const there = level >= layer[0] && level <= layer[1];
        box.append(there ? this.tile(number, level, sides, choose) : document.createElement("span"));
      });
    }
  }

  tile(layer, level, sides, choose) {
    const button = document.createElement("button");
    const canvas = document.createElement("canvas");
    button.type = "button";
    button.setAttribute("aria-label", `Layer ${layer + 1}, ${sides.join(" by ")} cells`);
    button.setAttribute("aria-pressed", "false");
    button.append(canvas);
    button.addEventListener("click", () => choose(layer, level));
    button.addEventListener("pointermove", (event) => this.point(event, canvas, layer, level));
    button.addEventListener("pointerleave", () => this.point(null));
    this.tiles.push({ layer, level, button, canvas });
    return button;
  }

  point(event, canvas, layer, level) {
    if (event === null) {
      this.pointed = null;
      this.say(null);
    } else {
      const part = this.memory.parts.find((p) => p.layer === layer && p.level === level);
      const box = canvas.getBoundingClientRect();
      const row = within(((event.clientY - box.top) / box.height) * part.height, part.height);
      const column = within(((event.clientX - box.left) / box.width) * part.width, part.width);
      this.pointed = { layer, level, row, column };
      this.say(this.pointed, this.reads());
    }
    this.onChange?.();
  }

  // The boxes of cells that the pointed one reads: [{layer, level, top, left, height, width}].
  reads() {
    const { layer, level, row, column } = this.pointed;
    const boxes = [{ layer, level, top: row - 1, left: column - 1, height: 3, width: 3 }];
    const below = layer > 0 ? this.memory.spec.layers[layer - 1] : null;
    for (const j of below ? [level - 1, level, level + 1] : []) {
      if (j < below[0] || j > below[1]) continue;
      const scale = 2 ** (j - level);
      const [top, left] = [Math.floor((row - 1) * scale), Math.floor((column - 1) * scale)];
      const bottom = Math.ceil((row + 2) * scale);
      const right = Math.ceil((column + 2) * scale);
      boxes.push({ layer: layer - 1, level: j, top, left, height: bottom - top, width: right - left });
    }
    return boxes;
  }

  // How many numbers one gate of the pointed cell sums over.
  inputs() {
    const { layer, level } = this.pointed;
    const { input, layers } = this.memory.spec;
    const below = layer > 0 ? layers[layer - 1] : input;
    return 9 * (channelsReadBy(below, level) + layers[layer][2]);
  }

  draw(state, look) {
    const boxes = this.pointed ? this.reads() : [];
    for (const { layer, level, button, canvas } of this.tiles) {
      const chosen = layer === look.layer && level === look.level;
      if (button.getAttribute("aria-pressed") !== String(chosen)) button.setAttribute("aria-pressed", chosen);
      const grid = this.memory.grid(state, layer, level, look.which);
      const picture = pictureOf(grid, look.channel);
      const { context, side } = prepare(canvas);
      const scale = Math.max(usualSize(picture), 1e-3);
      drawCells(context, side, grid.height, (i) => diverging(picture[i] / scale));
      const unit = side / grid.height;
      context.lineWidth = 2;
      for (const box of boxes.filter((b) => b.layer === layer && b.level === level)) {
        context.strokeStyle = css(theme().right);
        context.strokeRect(box.left * unit, box.top * unit, box.width * unit, box.height * unit);
      }
      if (this.pointed?.layer === layer && this.pointed.level === level) {
        context.strokeStyle = css(theme().ink);
        context.strokeRect(this.pointed.column * unit, this.pointed.row * unit, unit, unit);
      }
    }
  }
}

function heading(text, more = "") {
  const span = document.createElement("span");
  span.className = `head ${more}`;
  span.textContent = text;
  return span;
}

function within(x, side) {
  return Math.min(side - 1, Math.max(0, Math.floor(x)));
}
