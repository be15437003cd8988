// Addressing of a DNC (src/mgmem/baselines/dnc_addressing.py, same names, one sequence): N slots of
// W numbers, R read heads. Nothing given is changed; every function makes what it returns.
//
// Slots that were hardly used differ by next to nothing, and the least of them is written to: all
// but the links is kept in doubles, so that rounding does not decide which.

const sigmoid = (x) => 1 / (1 + Math.exp(-x));
const softplus = (x) => (x > 20 ? x : Math.log1p(Math.exp(x)));

// Everything the memory carries from one step to the next.
export function emptyMemory({ slots, width, heads }) {
  return {
    memory: new Float64Array(slots * width), // slot by slot
    usage: new Float64Array(slots),
    precedence: new Float64Array(slots),
    link: new Float32Array(slots * slots), // [i, j]: was i written right after j?
    write: new Float64Array(slots),
    read: new Float64Array(heads * slots), // head by head
    reads: new Float64Array(heads * width),
  };
}

// The controller's raw vector, cut in the published order, each part in its range.
export function parseInterface(vector, { width, heads }) {
  let from = 0;
  const cut = (size) => vector.subarray(from, (from += size));
  const readKeys = cut(heads * width);
  const readStrengths = cut(heads).map((x) => 1 + softplus(x));
  const writeKey = cut(width);
  const writeStrength = cut(1).map((x) => 1 + softplus(x));
  const erase = cut(width).map(sigmoid);
  const value = cut(width);
  const freeGates = cut(heads).map(sigmoid);
  const [allocationGate, writeGate] = cut(2).map(sigmoid);
  const modes = cut(3 * heads); // backward, content, forward of each head
  for (let head = 0; head < heads; head++) softmaxed(modes, 3 * head, 3);
  return {
    readKeys, readStrengths, writeKey, writeStrength, erase, value, freeGates, allocationGate,
    writeGate, modes,
  };
}

// One step of the memory: free, allocate, write, link, read.
export function access(ask, state, spec) {
  const usage = updateUsage(state, ask.freeGates, spec);
  const lookedUp = contentWeights(state.memory, ask.writeKey, ask.writeStrength, spec);
  const free = allocationWeights(usage, spec.epsilon);
  const write = lookedUp.map(
    (content, slot) => ask.writeGate * (content + ask.allocationGate * (free[slot] - content)));
  const memory = writeMemory(state.memory, write, ask, spec);
  const { link, forward, backward } = linkStep(state, write, spec);
  const content = contentWeights(memory, ask.readKeys, ask.readStrengths, spec);
  const read = content.map((looked, i) => {
    const mode = 3 * Math.floor(i / spec.slots);
    return ask.modes[mode] * backward[i] + ask.modes[mode + 1] * looked + ask.modes[mode + 2] * forward[i];
  });
  const written = 1 - write.reduce((sum, weight) => sum + weight, 0);
  const precedence = state.precedence.map((before, slot) => written * before + write[slot]);
  return { memory, usage, precedence, link, write, read, reads: readSlots(memory, read, spec) };
}

// Softmax over the slots of strength times cosine of key and slot, for each key.
function contentWeights(memory, keys, strengths, { slots, width, epsilon }) {
  const weights = new Float64Array(strengths.length * slots);
  const lengths = new Float64Array(slots);
  for (let slot = 0; slot < slots; slot++) lengths[slot] = lengthOf(memory, slot * width, width, epsilon);
  strengths.forEach((strength, head) => {
    const scale = strength / lengthOf(keys, head * width, width, epsilon);
    for (let slot = 0; slot < slots; slot++) {
      let sum = 0;
      for (let i = 0; i < width; i++) sum += keys[head * width + i] * memory[slot * width + i];
      weights[head * slots + slot] = (scale * sum) / lengths[slot];
    }
    softmaxed(weights, head * slots, slots);
  });
  return weights;
}

function lengthOf(numbers, from, width, epsilon) {
  let sum = epsilon;
  for (let i = from; i < from + width; i++) sum += numbers[i] ** 2;
  return Math.sqrt(sum);
}

// In place.
function softmaxed(numbers, from, count) {
  const part = numbers.subarray(from, from + count);
  const most = part.reduce((a, b) => Math.max(a, b));
  let sum = 0;
  for (let i = 0; i < count; i++) sum += part[i] = Math.exp(part[i] - most);
  for (let i = 0; i < count; i++) part[i] /= sum;
}

// How much each slot is in use: written slots gain, slots freed after reading lose.
function updateUsage({ usage, write, read }, freeGates, { slots }) {
  return usage.map((used, slot) => {
    let kept = 1;
    freeGates.forEach((gate, head) => (kept *= 1 - gate * read[head * slots + slot]));
    return Math.min(1, Math.max(0, (used + (1 - used) * write[slot]) * kept));
  });
}

// Where to write next: the least used slots first, slots of equal usage in their own order.
function allocationWeights(usage, epsilon) {
  const weights = new Float64Array(usage.length);
  let before = 1;
  for (const slot of Uint32Array.from(usage.keys()).sort((a, b) => usage[a] - usage[b] || a - b)) {
    weights[slot] = (1 - usage[slot]) * before;
    before *= epsilon + (1 - epsilon) * usage[slot];
  }
  return weights;
}

function writeMemory(memory, write, { erase, value }, { width }) {
  return memory.map((old, i) => {
    const at = i % width;
    return old + write[Math.floor(i / width)] * (value[at] - old * erase[at]);
  });
}

// The links after a write, and where reading goes on along them: forward and backward.
function linkStep({ link, precedence, read }, write, { slots, heads }) {
  const next = new Float32Array(slots * slots);
  for (let i = 0, at = 0; i < slots; i++) {
    const written = write[i];
    const stays = 1 - written;
    for (let j = 0; j < slots; j++, at++) next[at] = (stays - write[j]) * link[at] + written * precedence[j];
    next[at - slots + i] = 0;
  }
  const forward = new Float64Array(heads * slots);
  const backward = new Float64Array(heads * slots);
  for (let head = 0; head < heads; head += 4) {
    const part = (numbers, more) =>
      head + more < heads ? numbers.subarray((head + more) * slots, (head + more + 1) * slots) : new Float64Array(slots);
    const four = (numbers) => [0, 1, 2, 3].map((more) => part(numbers, more));
    followLinks(next, slots, four(read), four(forward), four(backward));
  }
  return { link: next, forward, backward };
}

// Four heads at a time: what is loaded of the links then serves eight sums.
function followLinks(link, slots, [r0, r1, r2, r3], forward, [b0, b1, b2, b3]) {
  for (let i = 0, at = 0; i < slots; i++) {
    const h0 = r0[i], h1 = r1[i], h2 = r2[i], h3 = r3[i];
    let f0 = 0, f1 = 0, f2 = 0, f3 = 0;
    for (let j = 0; j < slots; j++, at++) {
      const x = link[at];
      f0 += x * r0[j]; f1 += x * r1[j]; f2 += x * r2[j]; f3 += x * r3[j];
      b0[j] += x * h0; b1[j] += x * h1; b2[j] += x * h2; b3[j] += x * h3;
    }
    forward[0][i] = f0; forward[1][i] = f1; forward[2][i] = f2; forward[3][i] = f3;
  }
}

function readSlots(memory, read, { slots, width, heads }) {
  const reads = new Float64Array(heads * width);
  for (let head = 0; head < heads; head++) {
    for (let slot = 0; slot < slots; slot++) {
      const weight = read[head * slots + slot];
      for (let i = 0; i < width; i++) reads[head * width + i] += weight * memory[slot * width + i];
    }
  }
  return reads;
}
