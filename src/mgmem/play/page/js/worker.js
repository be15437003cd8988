// The memory at work, away from what draws: a request with a state in, a result out.

import { Model } from "./model.js";
import { serve } from "./serve.js";

let model;
let read = { key: null, outputs: null }; // the outputs of the state that was asked last

serve({
  load({ header, buffer }) {
    model = new Model(header, buffer);
    return true;
  },
  step({ state, walls, location }) {
    return model.step(state, walls, location);
  },
  judge({ state, walls, location }) {
    return model.judge(state, walls, location);
  },
  // state may be left out when it is the one that `key` named last.
  ask({ state, key, patch }) {
    if (read.key !== key) read = { key, outputs: model.memory.outputs(state) };
    return model.answer(read.outputs, patch);
  },
  decode({ state }) {
    return model.decode(state);
  },
});
