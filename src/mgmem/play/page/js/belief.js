// The map as the reader believes it: ask for every patch that mazes have, and let each answer
// vote for what the cells of the patch are (src/mgmem/report/moments.py, beliefs).
//
// There are over a hundred patches, so the questions go on in helpers while the agent walks on.
// First come those that fit what is believed of the cells around the agent: there the memory has
// just learned something. Each answer is the reader's own; only their order is guessed.

export class Belief {
  // patches: Uint8Array(9) each; side: of the grid of answers
  constructor(engine, patches, size, side) {
    Object.assign(this, { engine, patches, size, side });
    this.reset();
    this.running = false;
    this.wanted = null; // {state, key} to ask about
  }

  reset() {
    const area = this.side ** 2;
    this.answers = this.patches.map(() => new Float32Array(area));
    this.asked = this.patches.map(() => null); // the key of the state each answer belongs to
    this.all = new Float32Array(area);
    this.walls = Array.from({ length: this.size ** 2 }, () => new Float32Array(area));
    this.epoch = (this.epoch ?? 0) + 1;
  }

  // How much of the map belongs to the state wanted now: 0 to 1.
  get fresh() {
    const key = this.wanted?.key;
    return this.asked.filter((k) => k === key).length / this.patches.length;
  }

  // Turn to another state; the helpers go on with it from their next question. place: the
  // agent's, [row, column] on the grid.
  want(state, key, place) {
    this.wanted = { state, key };
    this.order = this.likeliest(place);
    if (!this.running) this.run();
  }

  async run() {
    this.running = true;
    await Promise.all(this.engine.others.map((helper) => this.serve(helper)));
    this.running = false;
  }

  async serve(helper) {
    while (this.fresh < 1 && !document.hidden) {
      const { state, key } = this.wanted;
      const number = this.choose(key);
      if (number < 0) return;
      const { epoch } = this;
      this.asked[number] = key;
      const logits = await this.engine.ask(state, key, this.patches[number], helper);
      if (epoch === this.epoch) this.take(number, logits);
    }
  }

  // The first patch in order that was not asked about this state yet.
  choose(key) {
    return this.order.find((number) => this.asked[number] !== key) ?? -1;
  }

  // All patches, those first that agree with what is believed around a place; among equals those
  // that were not asked about for longest.
  likeliest([row, column]) {
    const { seen, wall } = this.map();
    const reach = this.size >> 1;
    const fits = this.patches.map((patch, number) => {
      let fit = -1e-6 * (this.asked[number] ?? 0);
      patch.forEach((isWall, d) => {
        const r = row + Math.floor(d / this.size) - reach;
        const c = column + (d % this.size) - reach;
        if (r < 0 || c < 0 || r >= this.side || c >= this.side) return;
        const i = r * this.side + c;
        const belief = seen[i] * (isWall ? wall[i] : 1 - wall[i]) + (1 - seen[i]) * 0.5;
        fit += Math.log(Math.max(belief, 1e-3));
      });
      return fit;
    });
    return fits.map((_, number) => number).sort((a, b) => fits[b] - fits[a]);
  }

  take(number, logits) {
    const old = this.answers[number];
    const patch = this.patches[number];
    for (let place = 0; place < old.length; place++) {
      const chance = 1 / (1 + Math.exp(-logits[place]));
      const change = chance - old[place];
      old[place] = chance;
      this.all[place] += change;
      for (let d = 0; d < patch.length; d++) if (patch[d]) this.walls[d][place] += change;
    }
  }

  // {seen, wall} over the grid: how sure it is to have seen a cell, and that it is a wall.
  map() {
    const { side, size } = this;
    const reach = size >> 1;
    const seen = new Float32Array(side * side);
    const wall = new Float32Array(side * side).fill(0.5);
    for (let row = 0, cell = 0; row < side; row++) {
      for (let column = 0; column < side; column++, cell++) {
        let votes = 0;
        let forWall = 0;
        for (let d = 0; d < size * size; d++) {
          const r = row - (Math.floor(d / size) - reach);
          const c = column - ((d % size) - reach);
          if (r < 0 || c < 0 || r >= side || c >= side) continue;
          votes += this.all[r * side + c];
          forWall += this.walls[d][r * side + c];
        }
        seen[cell] = Math.min(1, Math.max(0, votes));
        if (votes > 0.05) wall[cell] = Math.min(1, Math.max(0, forWall / votes));
      }
    }
    return { seen, wall };
  }
}
