// The memory at work, away from what draws: a request with a state in, a result out.

import { Model } from "./model.js";

let model;
let read = { key: null, outputs: null }; // the outputs of the state that was asked last

const answers = {
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
};

self.addEventListener("message", ({ data: { id, kind, request } }) => {
  try {
    self.postMessage({ id, result: answers[kind](request) });
  } catch (error) {
    self.postMessage({ id, error: String(error) });
  }
});
