// Runs the DNC of the page on a walk: node run_dnc.mjs FOLDER < walk.json > numbers
//
// walk.json: {page, steps: [{walls, location}], ask: [[step, patch]], start}; start: parts of the
// state to begin with. numbers: float64, for each that is asked: hidden, cell, memory, usage, write
// and read of the walk's own state after the step, reads of the copy that was asked, its answer.
import { readFileSync, writeSync } from "node:fs";
import { pathToFileURL } from "node:url";

const folder = process.argv[2];
const walk = JSON.parse(readFileSync(0, "utf8"));
const load = (name) => import(pathToFileURL(`${walk.page}/js/${name}.js`));
const { DNC } = await load("dnc");
const { Trail } = await load("trail");
const bytes = readFileSync(`${folder}/beside.bin`);
const buffer = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
const dnc = new DNC(JSON.parse(readFileSync(`${folder}/beside.json`, "utf8")), buffer);

const write = (numbers) => {
  const chunk = Buffer.from(Float64Array.from(numbers).buffer);
  for (let done = 0; done < chunk.length; ) {
    try {
      done += writeSync(1, chunk, done);
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
    }
  }
};

const trail = new Trail(dnc);
for (const [part, numbers] of Object.entries(walk.start ?? {})) trail.latest.state[part].set(numbers);
trail.follow(0, walk.steps);
for (const [step, patch] of walk.ask) {
  const before = trail.after(step);
  const copy = structuredClone(before);
  const asked = dnc.step(before, walk.steps[step], patch);
  for (const part in copy) {
    if (copy[part].some((value, i) => value !== before[part][i])) throw new Error(`a step changed ${part}`);
  }
  const own = trail.after(step + 1);
  for (const part of ["hidden", "cell", "memory", "usage", "write", "read"]) write(own[part]);
  write(asked.reads);
  write(dnc.answer(asked));
}
