// The DNC in pictures and words: its marks in the maze, its memory, its score beside the memory's.

import { WorldPanel } from "./panels.js";
import { drawSlots, slotsInWords } from "./slots.js";
import { percent, put, verdictOf } from "./words.js";

const byId = (id) => document.getElementById(id);
const count = (number) => number.toLocaleString("en");

export class BesideView {
  // beside: see beside.js
  constructor(beside) {
    this.beside = beside;
    this.world = new WorldPanel(byId("beside-world"), beside.app.task);
    this.shown = null; // the answer whose memory is drawn, and how
    put("beside-about", aboutOf(beside.header));
  }

  // Returns whether it still moves.
  draw({ moment, path, pinned, cursor }) {
    const { header, app } = this.beside;
    const answer = app.question.answer && this.beside.answer;
    const still = { ...moment, chances: undefined }; // where to go is not the DNC's to say
    const moving = this.world.draw({ moment: still, path, answer, pinned, cursor });
    const canvas = byId("slots");
    const look = `${canvas.clientWidth} ${document.documentElement.dataset.theme}`;
    if (answer && (answer !== this.shown?.answer || look !== this.shown.look)) {
      drawSlots(canvas, header.dnc, answer.memory);
      this.shown = { answer, look };
    }
    return moving;
  }

  // aloud: spoken to those who listen, because somebody asked
  say(aloud) {
    const { answer, app, header } = this.beside;
    const verdict = byId("beside-verdict");
    verdict.setAttribute("aria-live", aloud ? "polite" : "off");
    verdict.replaceChildren(...(answer ? ["The DNC: ", ...verdictOf(answer, app.now)] : ["not asked yet"]));
    if (answer) {
      put("slots-said", slotsInWords(header.dnc, answer.memory));
      byId("beside-world").setAttribute("aria-label",
        `The DNC's answer: of ${answer.wanted} places it finds ${answer.hits}, and marks ${answer.said - answer.hits} wrong ones`);
    }
    this.sayScores();
  }

  sayScores() {
    const { header, app } = this.beside;
    const { memory, beside } = this.beside.scores();
    put("both-memory", header.memory.name);
    put("both-beside", header.about.name);
    for (const [id, score] of [["both-memory", memory], ["both-beside", beside]]) {
      put(`${id}-precision`, score.said ? percent(score.hits / score.said) : "–");
      put(`${id}-recall`, score.wanted ? percent(score.hits / score.wanted) : "–");
    }
    const all = app.question.log.length;
    put("both-asked", beside.asked < all
      ? `${count(beside.asked)} of ${count(all)} questions; the others are being asked`
      : `Every question so far: ${count(all)}, put to both on the same walk`);
  }
}

// What it is, how good it is and what that took, beside the same of the memory.
function aboutOf({ about, memory, task, dnc }) {
  const hours = ({ seconds }) => `${(seconds / 3600).toFixed(1)} hours`;
  const walks = `${task.motion === "spiral" ? "spirals" : "walks"} of ${task.steps} steps`;
  const parts = [
    `${about.name} is a differentiable neural computer: an LSTM of ${dnc.hidden} units that writes to and ` +
    `reads from ${dnc.slots} slots, ${count(about.parameters)} parameters. It learned from ${walks}.`,
  ];
  const { trained, paper } = about;
  if (trained) {
    parts.push(`On fresh mazes it reaches F ${trained.f.toFixed(2)}, after ${count(trained.updates)} updates in ` +
      `${hours(trained)}.`);
    if (memory.trained) {
      parts.push(`${memory.name} reaches ${memory.trained.f.toFixed(4)}, after ${count(memory.trained.updates)} ` +
        `updates in ${hours(memory.trained)}.`);
    }
    if (paper > trained.f) {
      parts.push(`The paper has ${paper.toFixed(2)} for its DNC: what you see is these weights, not the best ` +
        "that a DNC can do.");
    }
  } else parts.push("How good it is on fresh mazes was not recorded.");
  return parts.join(" ");
}
