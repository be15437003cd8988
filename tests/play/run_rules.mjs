// The page's rules on what Python made: node run_rules.mjs < cases.json > results.json
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const given = JSON.parse(readFileSync(0, "utf8"));
const load = (name) => import(pathToFileURL(`${given.page}/js/${name}.js`));
const { MOVES, Seen, commonPatches, growMaze, makeMaze, patchAt, placesOf, spiral } =
  await load("world");
const { Walk, readEvents } = await load("walk");
const { Trail } = await load("trail");
const { around, drawn, motions, motionsOf, wallsStop } = await load("motion");

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
// States are counted, not computed: what a walk remembers of itself is what matters here.
const engine = {
  empty: () => 0,
  step: async (state) => state + 1,
  erased: (state) => state + 1000,
  judge: async () => [0, 0, 1, 2],
};
if (given.texts) {
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
if (given.solid) {
  // Walks that walls stop: by letters, then so many steps of a motion, back to the first moment
  // and as many again, and a way to a goal.
  results.solid = [];
  for (const { seed, letters, motion, count, goal } of given.solid) {
    const walk = new Walk(given.task, engine, seed, true);
    await walk.begin();
    await walk.replay(letters);
    const go = async () => {
      for (let i = 0; i < count; i++) {
        const letter = await motions[motion](walk);
        if (letter !== null) await walk.move(letter);
      }
      return walk.toText();
    };
    const end = walk.at;
    const first = await go();
    const path = walk.path();
    const coverage = walk.coverage();
    walk.goTo(end);
    const again = await go();
    const way = [];
    for (let letter; (letter = around(walk.now.walls, given.task.world, walk.now.agent, goal)); ) {
      await walk.move(letter);
      way.push(letter);
    }
    results.solid.push({
      first, again, path, coverage, way: way.length, agent: walk.now.agent, walls: [...walk.now.walls],
    });
  }
}
if (given.trails) {
  // A state is told by how many steps led to it and the sum of what was seen on the way.
  results.trails = given.trails.map((jumps) => {
    let [computed, wrong, count] = [0, 0, 0];
    const step = ([steps, sum], sight) => [steps + 1, sum + sight, computed++];
    const trail = new Trail({ emptyState: () => [0, 0], step });
    const at = (share) => Math.round(share * trail.sights.length);
    for (const [kind, share, more] of jumps) {
      if (kind === "follow") trail.follow(at(share), Array.from({ length: more }, () => ++count));
      else {
        const [steps, sum] = trail.after(at(share));
        const walked = trail.sights.slice(0, at(share)).reduce((a, b) => a + b, 0);
        wrong += steps !== at(share) || sum !== walked;
      }
    }
    return { wrong, computed, kept: trail.kept.size };
  });
}
if (given.lots) results.drawn = given.lots.map(([chances, lot]) => drawn(chances, lot));
if (given.headers) results.headers = given.headers.map((header) => [wallsStop(header), ...motionsOf(header)]);
if (given.events) results.events = given.events.map((text) => readEvents(text)?.length ?? null);
results.moves = MOVES;
console.log(JSON.stringify(results));
