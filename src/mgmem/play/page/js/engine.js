// Workers as functions that promise their results.

import { erased } from "./erase.js";
import { Memory } from "./memory.js";

export class Helper {
  constructor(script = "./worker.js") {
    this.worker = new Worker(new URL(script, import.meta.url), { type: "module" });
    this.waiting = new Map();
    this.count = 0;
    this.worker.addEventListener("message", ({ data }) => {
      const { resolve, reject } = this.waiting.get(data.id);
      this.waiting.delete(data.id);
      if (data.error === undefined) resolve(data.result);
      else reject(new Error(data.error));
    });
  }

  call(kind, request) {
    const id = this.count++;
    this.worker.postMessage({ id, kind, request });
    return new Promise((resolve, reject) => this.waiting.set(id, { resolve, reject }));
  }
}

export class Engine {
  // One helper walks and answers, the others read the map out of the memory meanwhile.
  static async load(folder, readers) {
    const engine = new Engine();
    const [header, buffer] = await Promise.all([
      fetch(new URL("memory.json", folder)).then((reply) => reply.json()),
      fetch(new URL("memory.bin", folder)).then((reply) => reply.arrayBuffer()),
    ]);
    engine.header = header;
    // Only for the layout of its states: no weights, nothing is computed here.
    engine.layout = new Memory(header.memory, () => ({}));
    engine.first = new Helper();
    engine.others = Array.from({ length: readers }, () => new Helper());
    await Promise.all(
      [engine.first, ...engine.others].map((helper) => helper.call("load", { header, buffer })),
    );
    return engine;
  }

  empty() {
    return this.layout.emptyState();
  }

  erased(state, stamps, size) {
    return erased(this.layout, state, stamps, size);
  }

  step(state, walls, location) {
    return this.first.call("step", { state, walls, location });
  }

  judge(state, walls, location) {
    return this.first.call("judge", { state, walls, location });
  }

  ask(state, key, patch, helper = this.first) {
    return helper.call("ask", { state, key, patch });
  }

  decode(state) {
    return this.first.call("decode", { state });
  }
}
