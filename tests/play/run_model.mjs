// Runs a memory of the page on a walk: node run_model.mjs FOLDER < walk.json > numbers
//
// walk.json: {page, steps: [{walls, location}], ask: {step: [patches]}, judge}; numbers: float32,
// if judge the policy's logits at every step; the state after every step that is asked at, and then
// its answers, seen and wall of the probe.
import { readFileSync, writeSync } from "node:fs";
import { pathToFileURL } from "node:url";

const folder = process.argv[2];
const walk = JSON.parse(readFileSync(0, "utf8"));
const { Model } = await import(pathToFileURL(`${walk.page}/js/model.js`));
const bytes = readFileSync(`${folder}/memory.bin`);
const buffer = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
const model = new Model(JSON.parse(readFileSync(`${folder}/memory.json`, "utf8")), buffer);

const write = (numbers) => {
  const chunk = Buffer.from(numbers.buffer, numbers.byteOffset, numbers.byteLength);
  for (let done = 0; done < chunk.length; ) {
    try {
      done += writeSync(1, chunk, done);
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
    }
  }
};

let state = model.memory.emptyState();
walk.steps.forEach(({ walls, location }, step) => {
  const before = state.slice();
  const next = model.step(state, walls, location);
  if (state.some((value, i) => value !== before[i])) throw new Error("a step changed its state");
  state = next;
  if (walk.judge) write(model.judge(state, walls, location));
  const patches = walk.ask[step];
  if (patches === undefined) return;
  write(state);
  const outputs = model.memory.outputs(state);
  for (const patch of patches) write(model.answer(outputs, patch));
  const { seen, wall } = model.decode(state);
  write(seen);
  write(wall);
});
