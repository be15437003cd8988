// How the agent walks by itself, and where walls stop it.

import { MOVES, distancesTo, spiral } from "./world.js";

// Walls stop the agent where they stopped it as its network learned; in a spiral they did not.
export function wallsStop({ task, policy }) {
  return policy !== undefined || task.motion === "random";
}

// The motions that a page offers, its own first. A spiral goes through walls: where they stop the
// agent there is none.
export function motionsOf(header) {
  if (header.policy) return ["explore", "random"];
  return wallsStop(header) ? ["random"] : ["spiral", "random"];
}

export const ACTIONS = "udlr"; // in the order of a policy's chances

// Each gives the letter of the next step, or null when there is nowhere left to go. Chance comes
// from the walk (`lot`, from 0 to 1): from the same moment the same way is taken again.
export const motions = {
  // Towards the first cell of the winding that it has not been to.
  spiral(walk) {
    const been = new Set(walk.path().map(String));
    const goal = winding(walk.task).find((cell) => !been.has(String(cell)));
    return goal ? towards(walk.now.agent, goal) : null;
  },

  // Any of four; a wall leaves it where it is.
  random({ now: { agent, walls, lot }, task }) {
    const letter = ACTIONS[Math.floor(4 * lot)];
    const [row, column] = agent.map((x, i) => x + MOVES[letter][i]);
    return walls[row * task.world + column] ? "x" : letter;
  },

  // As the policy has it, until every cell in reach has been visited.
  async explore(walk) {
    const { visited, reachable } = walk.coverage();
    if (visited === reachable) return null;
    const chances = await walk.chancesAt(walk.now);
    return ACTIONS[drawn(chances, walk.now.lot)];
  },
};

// The number of one of several things with such chances, by a lot from 0 to 1.
export function drawn(chances, lot) {
  let sum = 0;
  const found = chances.findIndex((chance) => (sum += chance) > lot);
  return found < 0 ? chances.length - 1 : found;
}

// The letter of a step from one cell towards another, through walls; null: it is there.
export function towards([row, column], [toRow, toColumn]) {
  const [down, right] = [toRow - row, toColumn - column];
  if (!down && !right) return null;
  if (Math.abs(right) > Math.abs(down)) return right > 0 ? "r" : "l";
  return down > 0 ? "d" : "u";
}

// The same around walls, on a shortest way; null also where no way leads.
export function around(walls, side, agent, goal) {
  const steps = distancesTo(walls, side, goal);
  const at = ([row, column]) => steps[row * side + column];
  const nearer = (letter) => at(agent.map((x, i) => x + MOVES[letter][i])) === at(agent) - 1;
  return at(agent) > 0 ? [...ACTIONS].find(nearer) : null;
}

function winding({ world, start }) {
  let cell = [start, start];
  const cells = [cell];
  for (const letter of spiral(world)) {
    cell = cell.map((x, i) => x + MOVES[letter][i]);
    cells.push(cell);
  }
  return cells;
}
