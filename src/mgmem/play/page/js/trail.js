// The states of a DNC along a walk. One holds a megabyte of links, so they are not kept with every
// moment: only the latest, and a few on the way, from which any other is computed again.

const EVERY = 32; // steps between states that are kept
const MOST = 16; // of them; on longer walks they lie further apart

export class Trail {
  // dnc: {emptyState(), step(state, sight)}
  constructor(dnc) {
    this.dnc = dnc;
    this.sights = [];
    this.every = EVERY;
    this.kept = new Map([[0, dnc.emptyState()]]); // steps taken to the state after them
    this.latest = { steps: 0, state: this.kept.get(0) };
  }

  // The walk leads on otherwise after so many steps.
  follow(steps, sights) {
    this.sights.length = steps;
    this.sights.push(...sights);
    for (const known of [...this.kept.keys()]) if (known > steps) this.kept.delete(known);
    if (this.latest.steps > steps) this.latest = this.nearest(steps);
  }

  // The state after so many steps.
  after(steps) {
    const near = this.nearest(steps);
    if (this.latest.steps > steps || this.latest.steps < near.steps) this.latest = near;
    while (this.latest.steps < steps) {
      const state = this.dnc.step(this.latest.state, this.sights[this.latest.steps]);
      this.latest = { steps: this.latest.steps + 1, state };
      this.keep();
    }
    return this.latest.state;
  }

  // The last state that was kept up to so many steps.
  nearest(steps) {
    const known = Math.max(...[...this.kept.keys()].filter((other) => other <= steps));
    return { steps: known, state: this.kept.get(known) };
  }

  keep() {
    const { steps, state } = this.latest;
    if (steps % this.every === 0) this.kept.set(steps, state);
    if (this.kept.size <= MOST) return;
    this.every *= 2;
    for (const known of [...this.kept.keys()]) if (known % this.every) this.kept.delete(known);
  }
}
