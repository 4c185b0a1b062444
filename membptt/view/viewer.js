"use strict";
// One clock for all schedules: a forward step, a backward step and the expansion of a block take one
// tick each, all else none.
// A Track is a schedule with all that follows from its actions; a Panel draws a track.
(() => {
const ADVANCE = 0, SAVE_HIDDEN = 1, SAVE_INTERNAL = 2, RESTORE = 3, BACKWARD = 4, FREE = 5;
const STORE = 6, PREFETCH = 7, FETCH = 8, DROP = 9;  // hidden states on disk
const EXPAND = 10;  // a block of steps at once
const HIDDEN = "hidden", INTERNAL = "internal", DISK = "disk";
const data = JSON.parse(document.getElementById("data").textContent);
const T = data.steps;
const at = id => document.getElementById(id);

// ---- words --------------------------------------------------------------------------------------

const ordinal = n => ["", "first", "second", "third"][n] ??
  n + (n % 100 > 10 && n % 100 < 14 ? "th" : ["th", "st", "nd", "rd"][n % 10] ?? "th");
const times = n => n === 1 ? "once" : n === 2 ? "twice" : `${n} times`;
const stepsWords = (from, to) => from === to ? `step ${from}` : `steps ${from}–${to}`;
const capital = text => text[0].toUpperCase() + text.slice(1);
const stateName = (position, kind) => kind === INTERNAL ? `[${position}]`
  : `h${position}` + (kind === DISK ? " on disk" : "");
const numbered = index => index + 1;  // actions are counted from 1 wherever people read
const plural = n => n === 1 ? "1 unit" : `${n} units`;

function amount(size) {
  if (data.unit === "units") return plural(size);
  const power = size < 1024 ? 0 : Math.min(Math.floor(Math.log2(size) / 10), 5);
  const value = size / 1024 ** power;
  const digits = power === 0 ? 0 : value < 10 ? 2 : value < 100 ? 1 : 0;
  return `${value.toFixed(digits)} ${["B", "KiB", "MiB", "GiB", "TiB", "PiB"][power]}`;
}

function share(used, budget) {
  return data.unit === "units" ? `${used} of ${plural(budget)}` : `${amount(used)} of ${amount(budget)}`;
}

// ---- a schedule, and what follows from it -------------------------------------------------------

class Track {
  constructor({name, budget, stacked, buffers}, flat, width) {
    this.name = name;
    this.budget = budget;
    this.stacked = stacked;
    this.buffers = buffers;
    const n = this.length = flat.length / width;
    this.code = new Uint8Array(n);
    this.start = new Int32Array(n);
    this.stop = new Int32Array(n);
    for (let i = 0; i < n; i++) {
      this.code[i] = flat[width * i];
      this.start[i] = flat[width * i + 1];
      this.stop[i] = flat[width * i + 2];
    }
    this.replay();
    if (width === 4 && data.unit === "bytes")  // recorded, not replayed
      for (let i = 0; i < n; i++) this.used[i] = flat[4 * i + 3];
  }

  replay() {
    const n = this.length;
    this.begin = new Int32Array(n + 1);  // ticks before action i
    this.used = new Float64Array(n);     // memory after it
    this.from = new Int32Array(n);       // the working state before it
    this.next = new Int32Array(n);       // the step whose backward comes next, before it
    this.counts = new Int32Array(T + 1);
    this.forward = 0;                    // forward steps in all
    this.states = [];                    // everything that is saved, from when to when
    const saved = new Map();
    let used = this.buffers * data.hidden, working = 0, next = T;
    const save = (i, position, kind, size) => {
      const state = {position, kind, saved: i, freed: n, size, uses: 0};
      this.states.push(state);
      saved.set(stateName(position, kind), state);
      used += size;
    };
    const free = (i, name) => {
      const state = saved.get(name);
      if (!state) return;
      state.freed = i;
      used -= state.size;
      saved.delete(name);
    };
    for (let i = 0; i < n; i++) {
      const code = this.code[i], start = this.start[i], stop = this.stop[i];
      this.from[i] = working;
      this.next[i] = next;
      let ticks = 0;
      if (code <= SAVE_INTERNAL) {
        ticks = stop - start;
        this.forward += ticks;
        for (let step = start + 1; step <= stop; step++) this.counts[step]++;
        working = stop;
        if (code === SAVE_HIDDEN) save(i, stop, HIDDEN, data.hidden);
        else if (code === SAVE_INTERNAL) save(i, stop, INTERNAL, data.internal);
      } else if (code === RESTORE || code === FETCH) {
        working = start;
        const giver = [`h${start}`, `[${start}]`, `[${start + 1}]`, `h${start} on disk`]
          .map(name => saved.get(name)).find(Boolean);
        if (giver) giver.uses++;
      } else if (code === BACKWARD) {
        ticks = 1;
        next = start - 1;
      } else if (code === FREE) free(i, stateName(start, stop === 1 ? INTERNAL : HIDDEN));
      else if (code === STORE) save(i, start, DISK, 0);
      else if (code === DROP) free(i, `h${start} on disk`);
      else if (code === EXPAND) {
        ticks = 1;
        for (let step = start; step < stop; step++) {
          this.counts[step + 1]++;
          free(i, `h${step}`);
        }
        for (let step = start + 1; step <= stop; step++) save(i, step, INTERNAL, data.internal);
      }
      this.begin[i + 1] = this.begin[i] + ticks;
      this.used[i] = used;
    }
    this.ticks = this.begin[n];
    for (const state of this.states) {
      state.begin = this.begin[state.saved + 1];
      state.end = this.begin[Math.min(state.freed, n)];
    }
  }

  // The last action that begins before `tick` ends; of those without duration, none.
  actionAt(tick) {
    let low = 0, high = this.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.begin[middle + 1] > tick) high = middle; else low = middle + 1;
    }
    return low;
  }

  // The last action that has ended at `tick`.
  lastAt(tick) {
    let low = 0, high = this.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.begin[middle + 1] <= tick) low = middle; else high = middle - 1;
    }
    return low;
  }

  computes(i) {
    return this.code[i] <= SAVE_INTERNAL || this.code[i] === EXPAND;
  }

  runs(i, step) {
    return this.computes(i) && this.start[i] < step && step <= this.stop[i];
  }

  touches(i, step) {
    return this.runs(i, step) || (this.code[i] === BACKWARD && this.start[i] === step);
  }

  countsAfter(i) {
    const change = new Int32Array(T + 2);
    for (let k = 0; k <= i; k++)
      if (this.computes(k)) {
        change[this.start[k] + 1]++;
        change[this.stop[k] + 1]--;
      }
    for (let step = 1; step <= T; step++) change[step] += change[step - 1];
    return change;
  }

  savedAfter(i) {
    return this.states.filter(state => state.saved <= i && state.freed > i);
  }

  // What action i does, in a few words.
  short(i) {
    const start = this.start[i], stop = this.stop[i];
    switch (this.code[i]) {
      case ADVANCE: return `run ${stepsWords(start + 1, stop)}`;
      case SAVE_HIDDEN: return `run ${stepsWords(start + 1, stop)}, save h${stop}`;
      case SAVE_INTERNAL: return `run ${stepsWords(start + 1, stop)}, save [${stop}]`;
      case RESTORE: return `go back to h${start}`;
      case BACKWARD: return `backward of step ${start}`;
      case STORE: return `store h${start} on disk`;
      case PREFETCH: return `begin to read h${start}`;
      case FETCH: return `go back to h${start} from disk`;
      case DROP: return `drop h${start}`;
      case EXPAND: return `expand ${stepsWords(start + 1, stop)} at once`;
      default: return `free ${stateName(start, stop === 1 ? INTERNAL : HIDDEN)}`;
    }
  }

  // What action i does and why; for a run, about this step of it.
  explain(i, step) {
    switch (this.code[i]) {
      case RESTORE: return this.explainRestore(i);
      case BACKWARD: return this.explainBackward(i);
      case FREE: return this.explainFree(i);
      case STORE: case PREFETCH: case FETCH: case DROP: return this.explainTransfer(i);
      case EXPAND: return this.explainExpand(i);
    }
    const start = this.start[i], stop = this.stop[i];
    step ??= stop;
    const before = [];
    for (let k = 0; k < i; k++) if (this.runs(k, step)) before.push(k);
    const where = before.length > 3 ? `${before.length} times before`
      : `before: action${before.length > 1 ? "s" : ""} ${before.map(numbered).join(", ")}`;
    const run = capital(stepsWords(start + 1, stop)) + (stop - start > 1 ? " run" : " runs");
    let text = `${run} forward from h${start}. `;
    if (!before.length) text += `${capital(`step ${step}`)} is computed for the first time. `;
    else text += `Step ${step} is computed a ${ordinal(before.length + 1)} time (${where}), because ` +
      `${this.reason(i, step, before[before.length - 1])}. `;
    return text + this.saving(i);
  }

  reason(i, step, earlier) {
    const next = this.next[i], start = this.start[i], stop = this.stop[i];
    const way = `h${start} was the nearest state to start from`;
    if (this.code[i] === SAVE_INTERNAL && stop === next && step === stop) {
      const used = this.used[earlier], lacking = used + data.internal > this.budget;
      const room = lacking
        ? `then ${share(used, this.budget)} were in use, too much for ${amount(data.internal)} more`
        : "the room was to serve other states";
      return `its backward comes next and needs its internal state, which was not kept when it ran: ${room}`;
    }
    if (this.code[i] === SAVE_INTERNAL && stop === next)
      return `the backward of step ${next} comes next, and ${way}`;
    return `the way to step ${next}, the next to be back-propagated, leads through it: ${way}`;
  }

  saving(i) {
    const stop = this.stop[i], next = this.next[i];
    const used = `In use: ${share(this.used[i], this.budget)}.`;
    const later = stepsWords(stop + 1, next);
    if (this.code[i] === ADVANCE) return `Nothing is saved. ${used}`;
    if (this.code[i] === SAVE_HIDDEN)
      return `The hidden state h${stop} is saved, so that ${later} can start from it again. ${used}`;
    if (stop >= next)
      return `The internal state [${stop}] is saved for the backward of step ${stop}. ${used}`;
    return `The internal state [${stop}] is saved: it spares step ${stop} another run before its ` +
      `backward, and until then ${later} can start from the hidden state it holds. ${used}`;
  }

  explainRestore(i) {
    const step = this.start[i];
    let giver = null;
    for (const state of this.savedAfter(i))
      if (state.position === step || (state.kind === INTERNAL && state.position === step + 1)) giver = state;
    const source = !giver ? "the initial state, which the caller holds at no cost"
      : giver.kind !== INTERNAL ? `saved by action ${numbered(giver.saved)}`
      : giver.position === step ? `derived from the internal state [${step}], without a matrix product`
      : `which entered step ${step + 1} and stands in its internal state [${step + 1}]`;
    return `Back to h${step}: ${source}. The next step to be back-propagated is ${this.next[i]}.`;
  }

  explainTransfer(i) {
    const step = this.start[i];
    switch (this.code[i]) {
      case STORE: return `h${step} goes to disk by one of ${this.buffers} buffers, while the run goes on: ` +
        `the steps after it will start from it again.`;
      case PREFETCH: return `h${step} is read from disk into a buffer in the background, since the steps ` +
        `after it come after those that are under way.`;
      case FETCH: return `Back to h${step}, which came from disk; the run waits here if it is not there yet. ` +
        `The next step to be back-propagated is ${this.next[i]}.`;
      default: return `The buffer of h${step} is given back: all steps after it are back-propagated.`;
    }
  }

  explainExpand(i) {
    const start = this.start[i], stop = this.stop[i];
    return `${capital(stepsWords(start + 1, stop))} are computed at once, since the hidden states before ` +
      `each of them are at hand, h${start} to h${stop - 1}: none waits for another. Their internal states ` +
      `take the places of those hidden states. In use: ${share(this.used[i], this.budget)}.`;
  }

  explainBackward(i) {
    const step = this.start[i];
    const count = this.countsAfter(i)[step];
    const left = step - 1;
    return `The head and the backward of step ${step}, from its internal state [${step}]. The step has ` +
      `run forward ${times(count)}. ` +
      (left ? `${left} step${left > 1 ? "s are" : " is"} left.` : "It was the last one.");
  }

  explainFree(i) {
    const position = this.start[i], internal = this.stop[i] === 1;
    const freed = `${amount(internal ? data.internal : data.hidden)} free again, ` +
      `${amount(this.used[i])} in use.`;
    if (internal) return `The internal state [${position}] is given back: its backward is done. ${freed}`;
    const converts = i + 1 < this.length && this.code[i + 1] === SAVE_INTERNAL &&
      this.start[i + 1] === position;
    return `The hidden state h${position} is given back` + (converts
      ? `: the run that follows is its last use, and its room becomes a part of the internal state ` +
        `[${this.stop[i + 1]}]. `
      : `: all steps after it are back-propagated. `) + freed;
  }

  explainState(state) {
    const uses = state.uses ? ` The run goes back to it ${times(state.uses)}.` : "";
    if (state.kind === DISK)
      return `The hidden state h${state.position} on disk, stored by action ${numbered(state.saved)}, ` +
        `dropped by action ${numbered(state.freed)}.${uses}`;
    return `The ${state.kind} state ${stateName(state.position, state.kind)}, ${amount(state.size)}, saved ` +
      `by action ${numbered(state.saved)}, given back by action ${numbered(state.freed)}.${uses}`;
  }
}

// ---- drawing ------------------------------------------------------------------------------------

const LEFT = 26 + 7 * String(T).length, RIGHT = 64, TOP = 12, GAP = 30, MEMORY = 84, BOTTOM = 34;
let colours = {};

function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["ground", "ink", "faint", "soft", "hidden", "internal", "disk", "backward", "now", "wrong"])
    colours[name] = style.getPropertyValue(`--${name}`).trim();
}

// Round distances for about `count` lines: 1, 2 or 5 times a power of ten.
function spacing(range, count) {
  const raw = Math.max(range / count, 1), power = 10 ** Math.floor(Math.log10(raw));
  return power * [1, 2, 5, 10].find(factor => factor * power >= raw);
}

class Panel {
  constructor(track, executed, number) {
    this.track = track;
    this.executed = executed;
    this.wrong = executed ? firstDifference(track, executed) : null;
    this.index = 0;
    this.now = 0;  // ticks
    this.section = document.createElement("section");
    this.section.innerHTML = "<h2></h2><canvas tabindex=0 role=img></canvas>";
    this.section.querySelector("h2").textContent = track.name;
    this.canvas = this.section.querySelector("canvas");
    this.canvas.setAttribute("aria-label", `Schedule ${track.name}: ${track.length} actions, ` +
      `${track.forward} forward steps for ${T} steps. The words below follow the arrow keys.`);
    this.canvas.setAttribute("aria-describedby", "words");
    this.layer = document.createElement("canvas");
    this.canvas.addEventListener("focus", () => activate(number));
    this.canvas.addEventListener("pointermove", event => this.point(event, false));
    this.canvas.addEventListener("pointerdown", event => this.point(event, true));
    this.canvas.addEventListener("pointerleave", () => { hover = null; show(); });
    at("panels").append(this.section);
  }

  // Sizes, and the window of ticks and steps that the shared view gives.
  measure() {
    const ratio = window.devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.main = T <= 20 ? Math.max(150, 24 * T) : T <= 60 ? Math.max(300, 9 * T) : 400;
    this.height = TOP + this.main + GAP + MEMORY + BOTTOM;
    for (const canvas of [this.canvas, this.layer]) {
      canvas.width = Math.round(this.width * ratio);
      canvas.height = Math.round(this.height * ratio);
      canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    this.canvas.style.height = `${this.height}px`;
    this.right = this.width - RIGHT;
    this.base = TOP + this.main;
    this.floor = this.base + GAP + MEMORY;
  }

  x(tick) { return LEFT + (tick - view.x0) / (view.x1 - view.x0) * (this.right - LEFT); }
  y(position) { return this.base - (position - view.y0) / (view.y1 - view.y0) * this.main; }
  tickAt(x) { return view.x0 + (x - LEFT) / (this.right - LEFT) * (view.x1 - view.x0); }
  positionAt(y) { return view.y0 + (this.base - y) / this.main * (view.y1 - view.y0); }

  paint() {
    this.measure();
    const context = this.layer.getContext("2d");
    context.fillStyle = colours.ground;
    context.fillRect(0, 0, this.width, this.height);
    this.paintGrid(context);
    context.save();
    context.beginPath();
    context.rect(LEFT, TOP - 6, this.right - LEFT, this.main + 12);
    context.clip();
    this.paintStates(context);
    if (this.executed) {
      this.paintActions(context, this.track, 7, 0.28);
      this.paintActions(context, this.executed, 1.5, 1);
    } else this.paintActions(context, this.track, 1.6, 1);
    context.restore();
    this.paintMemory(context);
  }

  paintGrid(context) {
    const scale = this.main / (view.y1 - view.y0);
    context.lineWidth = 1;
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    const every = spacing(view.y1 - view.y0, this.main / 22);
    context.textAlign = "right";
    // A label stands at a hidden state, between the steps that it divides.
    for (let p = Math.ceil(view.y0 / every) * every; p <= view.y1; p += every) {
      const y = Math.round(this.y(p)) + 0.5;
      context.strokeStyle = colours.faint;
      line(context, LEFT, y, this.right, y);
      context.fillStyle = colours.soft;
      context.fillText(scale * every >= 12 || p % (2 * every) === 0 ? `h${p}` : "", LEFT - 6, y);
    }
    context.textAlign = "center";
    const across = spacing(view.x1 - view.x0, (this.right - LEFT) / 60);
    for (let tick = Math.ceil(view.x0 / across) * across; tick <= view.x1; tick += across) {
      const x = Math.round(this.x(tick)) + 0.5;
      context.strokeStyle = colours.faint;
      line(context, x, TOP, x, this.base);
      line(context, x, this.base + GAP, x, this.floor);
      context.fillStyle = colours.soft;
      context.fillText(tick.toLocaleString("en"), x, this.floor + 11);
    }
    context.fillText("steps executed, forward and backward", (LEFT + this.right) / 2, this.floor + 26);
    context.textAlign = "left";
    context.fillText("runs", this.right + 8, this.base + 14);
  }

  paintStates(context) {
    const row = Math.abs(this.y(1) - this.y(0));
    const hidden = Math.max(1, Math.min(6, row * 0.3));
    for (const kind of [INTERNAL, HIDDEN, DISK]) {
      context.fillStyle = colours[kind];
      context.globalAlpha = kind === INTERNAL ? 0.28 : 0.6;
      context.beginPath();
      for (const state of this.track.states) {
        if (state.kind !== kind || state.end < view.x0 || state.begin > view.x1) continue;
        const x = this.x(state.begin), y = this.y(state.position);
        const width = Math.max(1, this.x(state.end) - x);
        if (kind === INTERNAL) context.rect(x, y + row * 0.08, width, Math.max(1, row * 0.84));
        else if (kind === HIDDEN) context.rect(x, y - hidden / 2, width, hidden);
        else for (let dash = x; dash < x + width; dash += 8)
          context.rect(dash, y - hidden / 2, Math.min(5, x + width - dash), hidden);
      }
      context.fill();
    }
    context.globalAlpha = 1;
  }

  paintActions(context, track, width, alpha) {
    const forward = new Path2D(), backward = new Path2D(), restore = new Path2D(), rings = new Path2D();
    const tick = this.x(1) - this.x(0);
    const first = track.actionAt(Math.max(0, view.x0 - 1));
    for (let i = first; i < track.length && track.begin[i] <= view.x1; i++) {
      const x = this.x(track.begin[i]), code = track.code[i], start = track.start[i];
      if (code <= SAVE_INTERNAL) {
        forward.moveTo(x, this.y(start));
        forward.lineTo(this.x(track.begin[i + 1]), this.y(track.stop[i]));
      } else if (code === EXPAND) {
        forward.rect(x + tick * 0.15, this.y(track.stop[i]), tick * 0.7, this.y(start) - this.y(track.stop[i]));
      } else if (code === BACKWARD) {
        backward.moveTo(x, this.y(start));
        backward.lineTo(x + tick, this.y(start - 1));
      } else if ((code === RESTORE || code === FETCH) && tick >= 1) {
        const y = this.y(start);
        restore.moveTo(x, this.y(track.from[i]));
        restore.lineTo(x, y);
        if (tick >= 6) {
          rings.moveTo(x + 3.5, y);
          rings.arc(x, y, 3.5, 0, 7);
        }
      }
    }
    context.globalAlpha = alpha;
    context.lineWidth = width;
    context.strokeStyle = colours.ink;
    context.stroke(forward);
    context.strokeStyle = colours.backward;
    context.lineWidth = width * 1.25;
    context.stroke(backward);
    context.lineWidth = Math.min(width, 1.2);
    context.strokeStyle = colours.soft;
    context.setLineDash([2, 3]);
    context.stroke(restore);
    context.setLineDash([]);
    context.fillStyle = colours.ground;
    context.fill(rings);
    context.stroke(rings);
    context.globalAlpha = 1;
  }

  showWrong(context) {
    const x = this.x(this.executed.begin[Math.min(this.wrong, this.executed.length)]);
    context.strokeStyle = colours.wrong;
    context.lineWidth = 2;
    line(context, x, TOP - 6, x, this.base + 6);
    context.fillStyle = colours.wrong;
    context.textAlign = "left";
    context.fillText(`differs from action ${numbered(this.wrong)} on`, x + 5, TOP + 4);
  }

  paintMemory(context) {
    const top = this.base + GAP, {track, executed} = this;
    const recorded = executed && data.unit === "bytes";
    let most = track.budget;
    for (const used of track.used) if (used > most) most = used;
    if (recorded) for (const used of executed.used) if (used > most) most = used;
    const y = used => this.floor - used / most * (MEMORY - 8);
    context.save();
    context.beginPath();
    context.rect(LEFT, top - 8, this.right - LEFT, MEMORY + 9);
    context.clip();
    context.globalAlpha = 0.35;
    context.fillStyle = colours.hidden;
    context.fill(this.steps(track, y, true));
    context.globalAlpha = 1;
    context.strokeStyle = recorded ? colours.ink : colours.hidden;
    context.lineWidth = 1.3;
    context.stroke(this.steps(recorded ? executed : track, y, false));
    context.restore();
    context.strokeStyle = colours.wrong;
    context.setLineDash([5, 3]);
    const limit = Math.round(y(track.budget)) + 0.5;
    line(context, LEFT, limit, this.right, limit);
    context.setLineDash([]);
    context.fillStyle = colours.soft;
    context.textAlign = "left";
    context.fillText(`memory in use, of ${amount(track.budget)}`, LEFT + 2, top - 8);
    context.textAlign = "right";
    context.fillText("0", LEFT - 6, this.floor);
    if (data.unit === "units") context.fillText(track.budget, LEFT - 6, limit);
  }

  // Memory after each action, as a line of steps; what changes inside one pixel becomes its peak.
  steps(track, y, closed) {
    const path = new Path2D();
    let i = track.actionAt(Math.max(0, view.x0)), column = -Infinity, peak = 0;
    let level = i > 0 ? track.used[i - 1] : track.buffers * data.hidden;
    path.moveTo(LEFT - 5, closed ? this.floor : y(level));
    path.lineTo(LEFT - 5, y(level));
    for (; i < track.length && track.begin[i] <= view.x1; i++) {
      const saves = [SAVE_HIDDEN, SAVE_INTERNAL, EXPAND].includes(track.code[i]);
      if (!saves && track.code[i] !== FREE) continue;
      const x = this.x(track.begin[i + 1]);
      if (x - column < 0.5) {
        if (track.used[i] > peak) path.lineTo(column, y(peak = track.used[i]));
        level = track.used[i];
        continue;
      }
      path.lineTo(column > 0 ? column : x, y(level));
      path.lineTo(x, y(level));
      level = peak = track.used[i];
      path.lineTo(x, y(level));
      column = x;
    }
    const end = this.x(Math.min(view.x1, track.ticks));
    path.lineTo(end, y(level));
    if (closed) path.lineTo(end, this.floor);
    return path;
  }

  // What is painted once, and over it the present: what is still to come is pale.
  show() {
    const context = this.canvas.getContext("2d"), {track, index} = this;
    context.drawImage(this.layer, 0, 0, this.width, this.height);
    const now = Math.max(LEFT, Math.min(this.right, this.x(this.now)));
    context.globalAlpha = 0.62;
    context.fillStyle = colours.ground;
    context.fillRect(now + 1, TOP - 8, this.right - now, this.main + 16);
    context.fillRect(now + 1, this.base + GAP, this.right - now, MEMORY);
    context.globalAlpha = 1;
    context.strokeStyle = colours.now;
    context.lineWidth = 1;
    line(context, now, TOP - 6, now, this.floor);
    context.save();
    context.beginPath();
    context.rect(LEFT - 6, TOP - 8, this.right - LEFT + 12, this.main + 16);
    context.clip();
    this.showAction(context, hover?.panel === this && hover.action !== null ? hover.action : index);
    context.restore();
    if (this.wrong !== null) this.showWrong(context);
    this.showCounts(context);
  }

  showAction(context, i) {
    const {track} = this, code = track.code[i], start = track.start[i];
    const x = this.x(track.begin[i]), end = this.x(track.begin[i + 1]);
    context.strokeStyle = context.fillStyle = colours.now;
    context.lineWidth = 4;
    context.lineCap = "round";
    if (code <= SAVE_INTERNAL) line(context, x, this.y(start), end, this.y(track.stop[i]));
    else if (code === EXPAND)
      context.strokeRect(x, this.y(track.stop[i]), end - x, this.y(start) - this.y(track.stop[i]));
    else if (code === BACKWARD) line(context, x, this.y(start), end, this.y(start - 1));
    else if (code === RESTORE || code === FETCH) line(context, x, this.y(track.from[i]), x, this.y(start));
    context.lineCap = "butt";
    let position = null;
    if (code === SAVE_HIDDEN || code === SAVE_INTERNAL) position = track.stop[i];
    else if (![ADVANCE, BACKWARD, EXPAND].includes(code)) position = start;
    if (position === null) return;
    const internal = code === SAVE_INTERNAL || (code === FREE && track.stop[i] === 1);
    context.beginPath();
    if (internal) context.rect(end - 5, this.y(position - 0.5) - 5, 10, 10);
    else context.arc(end, this.y(position), 5, 0, 7);
    if (code === FREE || code === DROP) {
      context.lineWidth = 2;
      context.stroke();
    } else context.fill();
  }

  showCounts(context) {
    const {track} = this, done = track.countsAfter(this.index);
    let most = 1;
    for (const count of track.counts) if (count > most) most = count;
    const row = this.main / (view.y1 - view.y0), left = this.right + 8, width = RIGHT - 26;
    const numbers = row >= 11;
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.textAlign = "left";
    // Where many steps share a pixel, the one that ran most often is shown.
    const pixels = row >= 1 ? view.y1 - view.y0 : this.main;
    for (let k = 0; k < pixels; k++) {
      const low = Math.floor(view.y0 + k * (view.y1 - view.y0) / pixels);
      const high = Math.max(low + 1, Math.floor(view.y0 + (k + 1) * (view.y1 - view.y0) / pixels));
      let all = 0, now = 0;
      for (let step = low + 1; step <= Math.min(high, T); step++) {
        all = Math.max(all, track.counts[step]);
        now = Math.max(now, done[step]);
      }
      const top = this.y(high), height = Math.max(1, this.y(low) - top - (row >= 6 ? 1 : 0));
      context.fillStyle = colours.faint;
      context.fillRect(left, top, all / most * width, height);
      context.fillStyle = colours.soft;
      context.fillRect(left, top, now / most * width, height);
      if (numbers) {
        context.fillStyle = colours.ink;
        context.fillText(now, left + all / most * width + 4, (top + this.y(low)) / 2);
      }
    }
    if (numbers) return;
    context.fillStyle = colours.soft;
    context.textAlign = "right";
    context.fillText(`up to ${most}`, this.right + RIGHT - 2, this.base + 26);
  }

  // What stands under the pointer: a step of a run, or a state that is saved there.
  point(event, click) {
    const box = this.canvas.getBoundingClientRect();
    const tick = this.tickAt(event.clientX - box.left), position = this.positionAt(event.clientY - box.top);
    if (tick < 0 || tick >= this.track.ticks || tick < view.x0 || tick > view.x1) {
      hover = null;
      return show();
    }
    const action = this.track.actionAt(tick), {track} = this;
    const step = track.code[action] === EXPAND
      ? Math.min(track.stop[action], Math.max(track.start[action], Math.floor(position)) + 1)
      : track.code[action] <= SAVE_INTERNAL
      ? Math.min(track.stop[action], track.start[action] + 1 + Math.floor(tick - track.begin[action]))
      : undefined;
    const row = this.main / (view.y1 - view.y0), reach = 5 / row;
    const line = track.code[action] === EXPAND
      ? Math.min(track.stop[action], Math.max(track.start[action], position))
      : track.code[action] === BACKWARD ? track.start[action] - (tick - track.begin[action])
      : track.start[action] + (tick - track.begin[action]);
    let state = null;
    if (Math.abs(position - line) > reach)
      for (const one of track.states)
        if (one.begin <= tick && tick < one.end &&
            (one.kind === INTERNAL ? one.position - 1 <= position && position <= one.position
              : Math.abs(one.position - position) < reach)) state = one;
    hover = {panel: this, action: state ? null : action, step, state};
    if (click) {
      activate(panels.indexOf(this));
      go(action, step);
    } else show();
  }
}

function line(context, x0, y0, x1, y1) {
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
}

function firstDifference(planned, executed) {
  if (!planned.stacked) return null;  // between two lanes the order is open
  const n = Math.min(planned.length, executed.length);
  for (let i = 0; i < n; i++)
    if (planned.code[i] !== executed.code[i] || planned.start[i] !== executed.start[i] ||
        planned.stop[i] !== executed.stop[i] || (data.unit === "bytes" && planned.used[i] !== executed.used[i]))
      return i;
  return planned.length === executed.length ? null : n;
}

// ---- the shared clock, and what moves it --------------------------------------------------------

const panels = [];
let active = 0, playing = null, hover = null, zoom = 1, chosenStep = null;
const view = {x0: 0, x1: 1, y0: 0, y1: T};

function activate(number) {
  active = number;
  panels.forEach((panel, k) => panel.section.classList.toggle("active", k === number));
  at("scrub").max = panels[active].track.length - 1;
  show();
}

// Go to an action of the active schedule; the others follow the clock.
function go(index, step = null) {
  const panel = panels[active];
  panel.index = Math.max(0, Math.min(panel.track.length - 1, index));
  chosenStep = step;
  const tick = panel.track.begin[panel.index + 1];
  for (const other of panels) {
    if (other !== panel) other.index = other.track.lastAt(tick);
    other.now = Math.min(tick, other.track.ticks);
  }
  if (follow(tick)) repaint(); else show();
}

// Move the view so that the present is inside; return whether it moved.
function follow(tick) {
  const all = Math.max(...panels.map(panel => panel.track.ticks));
  const {track, index} = panels[active], width = all / zoom, height = T / zoom;
  const code = track.code[index];
  const position = track.computes(index) ? (chosenStep ?? track.stop[index]) : track.start[index];
  const before = [view.x0, view.x1, view.y0, view.y1].join();
  if (zoom === 1) Object.assign(view, {x0: 0, x1: all, y0: 0, y1: T});
  else {
    if (view.x1 - view.x0 !== width || tick < view.x0 + width * 0.1 || tick > view.x1 - width * 0.1)
      view.x0 = Math.max(0, Math.min(all - width, tick - width / 2));
    view.x1 = view.x0 + width;
    if (view.y1 - view.y0 !== height || position < view.y0 + height * 0.1 || position > view.y1 - height * 0.1)
      view.y0 = Math.max(0, Math.min(T - height, position - height / 2));
    view.y1 = view.y0 + height;
  }
  return before !== [view.x0, view.x1, view.y0, view.y1].join();
}

function zoomTo(factor) {
  const all = Math.max(...panels.map(panel => panel.track.ticks));
  zoom = Math.max(1, Math.min(factor, Math.max(1, T / 8, all / 400)));
  const {track, index} = panels[active];
  follow(track.begin[index + 1]);
  repaint();
}

// The next or the previous action that runs this step or back-propagates it, round and round.
function jump(step, direction) {
  const {track, index} = panels[active], n = track.length;
  for (let k = 1; k <= n; k++) {
    const i = (((index + direction * k) % n) + n) % n;
    if (track.touches(i, step)) return go(i, step);
  }
}

function play(on) {
  if (playing) cancelAnimationFrame(playing.frame);
  playing = null;
  at("play").textContent = on ? "Pause" : "Play";
  at("words").setAttribute("aria-live", on ? "off" : "polite");
  const {track} = panels[active];
  if (!on) return show();
  if (panels[active].index === track.length - 1) go(0);
  playing = {from: performance.now(), index: panels[active].index};
  const turn = now => {
    if (!playing) return;
    // Everything in about half a minute, but no slower than three actions a second.
    const rate = Math.max(3, track.length / 30) * Number(at("speed").value);
    const done = Math.floor((now - playing.from) / 1000 * rate);
    if (done > 0) {
      playing.from += done / rate * 1000;
      playing.index += done;
      go(playing.index);
    }
    if (playing.index >= track.length - 1) return play(false);
    playing.frame = requestAnimationFrame(turn);
  };
  playing.frame = requestAnimationFrame(turn);
}

let frame = null;
function show() {
  frame ??= requestAnimationFrame(() => {
    frame = null;
    for (const panel of panels) panel.show();
    tell();
  });
}

function repaint() {
  for (const panel of panels) panel.paint();
  show();
}

let row = null;
function tell() {
  const panel = panels[active], {track, index} = panel;
  at("scrub").value = index;
  at("position").textContent = `action ${numbered(index)} of ${track.length}`;
  const shown = hover?.panel ?? panel;
  let text;
  if (hover?.state) text = shown.track.explainState(hover.state);
  else {
    const i = hover ? hover.action : index;
    text = `Action ${numbered(i)}: ${shown.track.short(i)}. ` +
      shown.track.explain(i, hover ? hover.step : chosenStep ?? undefined);
  }
  if (panels.length > 1) text = `${shown.track.name} — ${text}`;
  if (at("words").textContent !== text) at("words").textContent = text;
  tellSaved(track, index);
  row?.classList.remove("now");
  row = active === 0 ? document.querySelector(`.actions tr[data-index="${index}"]`) : null;
  row?.classList.add("now");
}

function tellSaved(track, index) {
  const saved = track.savedAfter(index), most = 16;
  const names = saved.slice(-most).map(state => {
    const name = document.createElement("b");
    name.className = state.kind;
    name.textContent = stateName(state.position, state.kind);
    return name;
  });
  const line = at("saved");
  line.textContent = `Saved after action ${numbered(index)}, ${share(track.used[index], track.budget)}: ` +
    (saved.length > most ? `${saved.length - most} more, ` : saved.length ? "" : "nothing");
  for (const name of names) line.append(name, " ");
}

// ---- hands --------------------------------------------------------------------------------------

function moveBy(count) {
  if (playing) play(false);
  hover = null;
  go(panels[active].index + count);
}

function currentStep() {
  const {track, index} = panels[active];
  return chosenStep ?? (track.computes(index) ? track.stop[index] : Math.max(1, track.start[index]));
}

const keys = {
  ArrowLeft: () => moveBy(-1), ArrowRight: () => moveBy(1),
  PageUp: () => moveBy(-10), PageDown: () => moveBy(10),
  Home: () => moveBy(-Infinity), End: () => moveBy(Infinity),
  ArrowUp: () => jump(currentStep(), -1), ArrowDown: () => jump(currentStep(), 1),
  " ": () => play(!playing),
  "+": () => zoomTo(zoom * 2), "=": () => zoomTo(zoom * 2), "-": () => zoomTo(zoom / 2), 0: () => zoomTo(1),
};

document.addEventListener("keydown", event => {
  const inside = event.target.closest("input, select");
  if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
  if (inside) return;
  // Elsewhere the other keys scroll the page.
  const sideways = event.key === "ArrowLeft" || event.key === "ArrowRight";
  if (!sideways && event.target.tagName !== "CANVAS") return;
  event.preventDefault();
  hover = null;
  keys[event.key]();
});

data.schedules.forEach((planned, number) => {
  const track = new Track(planned, planned.actions, 3);
  const executed = number === 0 && data.executed
    ? new Track(planned, data.executed, 4) : null;
  panels.push(new Panel(track, executed, number));
});
at("panels").classList.toggle("several", panels.length > 1);
if (data.executed) {
  const item = document.createElement("li");
  item.innerHTML = '<svg viewBox="0 0 26 14"><path class="run" style="stroke-width:8;opacity:.28" d="M3 12L23 2"/>' +
    '<path class="run" d="M3 12L23 2"/></svg>planned (broad) and executed (narrow)';
  at("legend").prepend(item);
}
at("blocks").hidden = !panels.some(panel => panel.track.code.includes(EXPAND));
at("on-disk").hidden = !panels.some(panel => panel.track.buffers);
at("first").onclick = () => moveBy(-Infinity);
at("back").onclick = () => moveBy(-1);
at("next").onclick = () => moveBy(1);
at("last").onclick = () => moveBy(Infinity);
at("play").onclick = () => play(!playing);
at("in").onclick = () => zoomTo(zoom * 2);
at("out").onclick = () => zoomTo(zoom / 2);
at("fit").onclick = () => zoomTo(1);
at("scrub").oninput = event => {
  if (playing) play(false);
  go(Number(event.target.value));
};
at("step").max = T;
at("jump").onclick = () => {
  const step = Number(at("step").value);
  if (Number.isInteger(step) && step >= 1 && step <= T) jump(step, 1);
  else at("step").focus();
};
at("step").onkeydown = event => { if (event.key === "Enter") at("jump").click(); };
for (const line of document.querySelectorAll(".actions tbody tr"))
  line.onclick = () => { activate(0); go(Number(line.dataset.index)); };

readColours();
at("controls").hidden = false;
activate(0);
go(0);
zoomTo(1);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); repaint(); });
new ResizeObserver(repaint).observe(at("panels"));
})();
