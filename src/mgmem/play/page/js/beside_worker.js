// The DNC at work in a helper of its own: a place on a walk and a question in, an answer out.

import { DNC } from "./dnc.js";
import { serve } from "./serve.js";
import { Trail } from "./trail.js";

let dnc;
let trail;

serve({
  load({ header, buffer }) {
    dnc = new DNC(header, buffer);
    trail = new Trail(dnc);
    return true;
  },
  // After `kept` steps of the walk it knows come those in `more`; asked is the step `at`. look:
  // whether the memory that answered is wanted as well.
  ask({ kept, more, at, patch, look }) {
    if (more.length) trail.follow(kept, more);
    const state = dnc.step(trail.after(at), trail.sights[at], patch);
    const { memory, usage, write, read } = state;
    return { logits: dnc.answer(state), memory: look ? { memory, usage, write, read } : null };
  },
});
