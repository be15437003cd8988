// The page's rules on what Python made: node run_rules.mjs < cases.json > results.json
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const given = JSON.parse(readFileSync(0, "utf8"));
const load = (name) => import(pathToFileURL(`${given.page}/js/${name}.js`));
const { MOVES, Seen, commonPatches, growMaze, makeMaze, patchAt, placesOf, spiral } =
  await load("world");
const { Walk, readEvents } = await load("walk");

const results = {};
if (given.grow) {
  results.grown = given.grow.map(({ size, seeds, choices }) => [...growMaze(size, seeds, choices)]);
}
if (given.spiral) results.spiral = given.spiral.map(spiral);
if (given.mazes) {
  results.mazes = given.mazes.map(([seed, size]) => [...makeMaze(seed, size)]);
}
if (given.patches) results.patches = commonPatches(...given.patches).map((patch) => [...patch]);
if (given.walks) {
  results.walks = given.walks.map(({ side, view, size, walls, path, patch }) => {
    let seen = new Seen(side, Math.max(view, size) >> 1);
    for (const place of path) seen = seen.after(place, view);
    return {
      places: [...placesOf(patch, size, walls, seen)],
      looks: path.map((place) => [...patchAt(walls, side, place, view)]),
    };
  });
}
if (given.texts) {
  // States are counted, not computed: what a walk remembers of itself is what matters here.
  const engine = {
    empty: () => 0,
    step: async (state) => state + 1,
    erased: (state) => state + 1000,
  };
  results.texts = [];
  for (const text of given.texts) {
    const walk = new Walk(given.task, engine, 7);
    await walk.begin();
    const whole = await walk.replay(text);
    results.texts.push({
      whole,
      text: walk.toText(),
      agent: walk.now.agent,
      state: walk.now.state,
      steps: walk.now.steps,
      moments: walk.moments.length,
      walls: [...walk.now.walls],
    });
  }
}
if (given.events) results.events = given.events.map((text) => readEvents(text)?.length ?? null);
results.moves = MOVES;
console.log(JSON.stringify(results));
