// Everything the page says in words and numbers.

const byId = (id) => document.getElementById(id);
export const percent = (share) => `${(100 * share).toFixed(1).replace("100.0", "100")} %`;
const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

const WAYS = ["up", "down", "left", "right"]; // as a policy's chances

export function put(id, text) {
  const element = byId(id);
  if (element.textContent !== text) element.textContent = text;
}

export class Words {
  constructor(app) {
    this.app = app;
  }

  sayTrouble(error) {
    const box = byId("trouble");
    box.hidden = false;
    box.textContent = `Something went wrong: ${error.message ?? error}. Reload to start again.`;
    console.error(error);
  }

  sayAbout() {
    const { about, memory, reader, policy } = this.app.engine.header;
    const mesh = memory.layers.map(([low, high, channels]) => `${low}-${high}:${channels}`).join(" ");
    put("about",
      `${about.name}: ${about.cells.toLocaleString("en")} memory cells, ` +
      `${about.parameters.toLocaleString("en")} parameters, mesh ${mesh}, ` +
      `a reader of ${reader.layers.length} layers` +
      `${policy ? `, a policy of ${policy.parameters.toLocaleString("en")} parameters` : ""}. ` +
      "Everything is computed in this page.");
  }

  // What is true of this memory, and not of every one.
  sayLearned() {
    const { task, policy, solid } = this.app;
    const walks = `${task.motion === "spiral" ? "spirals" : "random walks"} of ${task.steps} steps`;
    if (policy) sayPolicy(policy, walks);
    put("learned", solid
      ? `${policy ? "" : `It learned from ${walks}. `}Walls stop the agent, as they did when ` +
        `${policy ? "its policy" : "it"} learned.`
      : `Let it walk at random: it learned from ${walks} only, so that is hard for it. Walls stop a ` +
        "random walk. They stop neither a spiral nor you, as they did not when it learned.");
  }

  sayStep() {
    put("step-said", `step ${this.app.now?.steps ?? 0}`);
  }

  sayMoment() {
    const { walk, now } = this.app;
    this.sayStep();
    const time = byId("time");
    time.max = walk.moments.length - 1;
    time.value = walk.at;
    time.setAttribute("aria-valuetext", `step ${now.steps}`);
    byId("back").disabled = walk.at === 0;
    byId("restart").disabled = walk.at === 0;
    this.sayCoverage();
    this.sayPatch();
  }

  sayCoverage() {
    if (!this.app.solid) return;
    const { visited, reachable } = this.app.walk.coverage();
    put("world-said", `been to ${percent(visited / reachable)} of ${reachable} cells in reach`);
  }

  sayPlaying() {
    byId("play").setAttribute("aria-label", this.app.playing ? "Pause" : "Play");
  }

  // The switch of the DNC, and whether its part of the page is there.
  sayBeside() {
    const { wantsBeside, beside, engine } = this.app;
    byId("beside-on").checked = wantsBeside;
    byId("beside").hidden = !wantsBeside;
    if (wantsBeside && !beside) {
      put("beside-verdict", `loading ${(engine.header.beside.bytes / 1e6).toFixed(1)} MB, and walking the same way …`);
    }
  }

  // The patch in question, on the buttons that change it.
  sayPatch() {
    const { question, now, task } = this.app;
    const patch = question.at(now);
    [...byId("patch").children].forEach((button, i) => {
      const wall = patch?.[i] === 1;
      if (button.getAttribute("aria-pressed") === String(wall)) return;
      button.setAttribute("aria-pressed", wall);
      const place = `row ${Math.floor(i / task.query) + 1}, column ${(i % task.query) + 1}`;
      button.setAttribute("aria-label", `${place}: ${wall ? "wall" : "free"}`);
    });
    byId("follow").setAttribute("aria-pressed", question.patch === null);
  }

  sayAnswer() {
    const { question, now } = this.app;
    const { answer, score } = question;
    this.sayPatch();
    const verdict = byId("verdict");
    // Spoken only when somebody asked, not at every step of a walk.
    verdict.setAttribute("aria-live", this.app.announce ? "polite" : "off");
    this.app.announce = false;
    verdict.replaceChildren(...(answer ? verdictOf(answer, now) : ["not asked yet"]));
    put("score-asked", score.asked.toLocaleString("en"));
    put("score-precision", score.said ? percent(score.hits / score.said) : "–");
    put("score-recall", score.wanted ? percent(score.hits / score.wanted) : "–");
    this.sayWorld();
  }

  sayWorld() {
    byId("world").setAttribute("aria-label", this.worldLabel());
  }

  worldLabel() {
    const { now, task } = this.app;
    const [down, right] = now.agent.map((x) => x - task.start);
    const look = [...now.patch].map((wall) => (wall ? "wall" : "free")).join(" ");
    const parts = [`Maze, step ${now.steps}; the agent is ${away(down, "down", "up")}, ` +
      `${away(right, "right", "left")} of its start`];
    if (task.fov === 3) parts.push(`it sees, row by row, ${look}`);
    if (now.chances) parts.push(`it would go ${WAYS.map((way, i) => `${way} ${percent(now.chances[i])}`).join(", ")}`);
    return parts.join("; ");
  }

  sayKnown({ right, seen }) {
    const { belief, reading } = this.app;
    const busy = reading === "asked" && belief.fresh < 1 && !this.app.playing;
    const round = busy ? ` · asking ${Math.round(100 * belief.fresh)} %` : "";
    put("known-said", `${percent(seen ? right / seen : 0)} of ${seen} seen cells right${round}`);
  }

  sayScale(scale) {
    const text = scale >= 10 ? scale.toFixed(0) : scale.toFixed(2);
    put("scale-low", `−${text}`);
    put("scale-high", text);
  }

  sayLook() {
    const { look, memory } = this.app;
    const part = memory.parts.find((p) => p.layer === look.layer && p.level === look.level);
    const channel = look.channel === "mean" ? "mean of channels" :
      `channel ${Math.min(look.channel, part.channels - 1) + 1} of ${part.channels}`;
    put("memory-said", `layer ${look.layer + 1}, ${part.height}×${part.width}, ${look.which}, ${channel}`);
    byId("memory").setAttribute("aria-label",
      `The memory: layer ${look.layer + 1}, ${part.height} by ${part.width} cells, ${look.which}, ${channel}`);
  }

  sayPointed(pointed, boxes) {
    if (!pointed) {
      put("mesh-said", "Point at a cell: outlined is what it reads. Press a grid to see it large.");
      return;
    }
    const { layer, level, row, column } = pointed;
    const grids = new Set(boxes.map((box) => `${box.layer} ${box.level}`)).size;
    put("mesh-said",
      `Layer ${layer + 1}, level ${level}, row ${row + 1}, column ${column + 1} reads ` +
      `${grids} ${grids === 1 ? "grid, itself" : "grids, itself among them"}: ` +
      `${this.app.mesh.inputs()} numbers for each gate.`);
  }

  // What lies under the pointer, in all three pictures.
  sayCursor() {
    const { cursor, now, task, map } = this.app;
    if (!cursor || !now) {
      put("under", "\u00a0");
      return;
    }
    const [row, column] = cursor;
    const cell = row * task.world + column;
    const [down, right] = [row - task.start, column - task.start];
    const truth = now.walls[cell] ? "a wall" : "free";
    const seen = now.seen.has(row, column);
    const place = (row - task.start + (task.grid >> 1)) * task.grid + column - task.start + (task.grid >> 1);
    const wall = map?.wall[place] ?? 0.5;
    const said = seen && map && map.seen[place] >= 0.5
      ? `; the memory says ${wall > 0.5 ? "a wall" : "free"}, ${percent(Math.max(wall, 1 - wall))} sure` : "";
    put("under", `${away(down, "down", "up")}, ${away(right, "right", "left")}: ${truth}, ` +
      `${seen ? "seen" : "not seen yet"}${said}`);
  }
}

function sayPolicy({ window, steps }, walks) {
  put("walking", "finding its own way through");
  byId("chances-legend").hidden = byId("policy").hidden = false;
  put("policy-said",
    `A third network, the policy, sees ${window}×${window} cells of the memory around the agent, and what ` +
    "the agent sees. The arrows are its chances; a step is drawn by them. It learned by reward, in " +
    `walks of ${steps} steps: 1 for a cell it had not been to, −1 for a wall. The memory had learned ` +
    `before, from ${walks}, and stayed as it was. From the same moment the same way is taken again; ` +
    "a step of your own leads to another.");
}

function away(distance, positive, negative) {
  if (distance === 0) return `0 ${positive}`;
  return `${Math.abs(distance)} ${distance > 0 ? positive : negative}`;
}

function bold(text, kind) {
  const element = document.createElement("b");
  element.className = kind;
  element.textContent = text;
  return element;
}

export function verdictOf(answer, now) {
  const { hits, wanted, said, beyond } = answer;
  const wrong = said - hits;
  const found = wanted === 0 ? "It has not seen this." : `Seen in ${plural(wanted, "place")}.`;
  const parts = [found, " "];
  if (wanted) parts.push(bold(hits === wanted ? "All found" : `${hits} found`, hits === wanted ? "good" : "bad"), ", ");
  else parts.push("It marks ");
  if (wrong) parts.push(bold(wanted ? `${wrong} wrong` : plural(wrong, "place"), "bad"), beyond ? ` (${beyond} beyond the maze).` : ".");
  else parts.push(bold(wanted ? "none wrong" : "nothing", "good"), wanted ? "." : ": right.");
  if (answer.moment !== now) parts.push(" …");
  return parts;
}
