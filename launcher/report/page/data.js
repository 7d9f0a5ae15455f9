// The data of the page: {schema, version, jobs: [{name, profile, ...}]}, as gzip in base64. launcher/report/page_data.h
// lists the members of a job. `profile` is profile.json, whose fields proto/profile.proto and proto/report.proto explain.
import {sumOf} from './dom.js';

export async function readData(base64) {
  const bytes = Uint8Array.from(atob(base64.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  const data = JSON.parse(await new Response(stream).text());
  for (const job of data.jobs) {
    job.report = job.profile?.report ?? null;
    if (job.report) {
      numberIpus(job.report);
      job.memory = new TileMemory(job.report);
      job.stepNames = namesOfSteps(job.report);
    }
  }
  return data;
}

/** Adds the number of each IPU. The report leaves out IPUs without a layout, so the place in the list need not be the number. */
function numberIpus(report) {
  report.ipus.forEach((ipu, k) => {
    const held = ipu.classes.find((one) => one.variables.length > 0);
    ipu.number = held ? report.variables[held.variables[0]].ipu : k;
  });
}

/** Returns, by step number: {text, functionName, row}; row is the OperatorRow, or undefined for calls and repeats. */
function namesOfSteps(report) {
  const names = [];
  const add = (nodes, functionName) =>
    nodes.forEach((node) => {
      names[node.step] = {text: node.text, functionName, row: undefined};
      add(node.nodes, functionName);
    });
  report.functions.forEach((tree) => add(tree.nodes, tree.name));
  report.operators.forEach((row) => {
    (names[row.step] ??= {text: row.operation, functionName: row.function}).row = row;
  });
  return names;
}

/** Answers what lies on a tile at a step. Tiles of a class have the same contents, so everything is summed by class. */
class TileMemory {
  constructor(report) {
    this.report = report;
    this.steps = report.steps;
    this.ipus = report.ipus.map((ipu) => {
      const tiles = Math.max(0, ...ipu.classes.flatMap((one) => one.tiles.map((span) => span.last + 1)));
      const classOf = new Int32Array(tiles);
      ipu.classes.forEach((one, c) => one.tiles.forEach((span) => classOf.fill(c, span.first, span.last + 1)));
      const begin = new Uint32Array(ipu.classes.length + 1);
      ipu.classes.forEach((one, c) => {
        begin[c + 1] = begin[c] + one.variables.length;
      });
      const variables = new Uint32Array(begin.at(-1));
      const bytes = new Uint32Array(begin.at(-1));
      ipu.classes.forEach((one, c) => {
        variables.set(one.variables, begin[c]);
        bytes.set(one.bytes, begin[c]);
      });
      return {tiles, classOf, begin, variables, bytes, bytesPerTile: ipu.bytesPerTile, ipu};
    });
    this.live = new Uint8Array(report.variables.length);
    this.liveStep = -1;
  }

  /** Returns an array with 1 for each variable that is live at the step. The next call overwrites it. */
  liveAt(step) {
    if (step !== this.liveStep) {
      this.report.variables.forEach((variable, k) => {
        this.live[k] = variable.lives.some((span) => span.first <= step && step <= span.last) ? 1 : 0;
      });
      this.liveStep = step;
    }
    return this.live;
  }

  /** Returns the live bytes of each class of an IPU at a step. Gaps are not counted. */
  bytesOfClasses(ipu, step) {
    const {begin, variables, bytes} = this.ipus[ipu];
    const live = this.liveAt(step);
    const sums = new Uint32Array(begin.length - 1);
    for (let c = 0; c + 1 < begin.length; ++c) {
      let sum = 0;
      for (let k = begin[c]; k < begin[c + 1]; ++k) {
        sum += live[variables[k]] * bytes[k];
      }
      sums[c] = sum;
    }
    return sums;
  }

  /** Returns [{variable, index, bytes, offset}] of a tile at a step (or at any step, if it is undefined), by offset. */
  contents(ipu, tile, step) {
    const one = this.report.ipus[ipu].classes[this.ipus[ipu].classOf[tile]];
    const live = step === undefined ? null : this.liveAt(step);
    return one.variables
      .map((index, k) => ({variable: this.report.variables[index], index, bytes: one.bytes[k], offset: one.offsets[k]}))
      .filter((held) => !live || live[held.index])
      .sort((a, b) => a.offset - b.offset || a.index - b.index);
  }

  /** Returns where the plan of a tile reaches highest: {end, variable, step: the first at which that variable is live}. */
  reach(ipu, tile) {
    const contents = this.contents(ipu, tile).map((one) => ({...one, end: one.offset + one.bytes}));
    const {end, variable} = contents.reduce((best, one) => (one.end > best.end ? one : best));
    return {end, variable, step: Math.min(...variable.lives.map((span) => span.first))};
  }

  /** Returns the bytes of a tile by category at a step, in the order of report.categories. */
  categories(ipu, tile, step) {
    const sums = this.report.categories.map(() => 0);
    for (const held of this.contents(ipu, tile, step)) {
      sums[this.report.categories.indexOf(held.variable.category)] += held.bytes;
    }
    return sums;
  }
}

/** Returns the number of tiles of a class. */
export const tilesOf = (one) => sumOf(one.tiles, (span) => span.last - span.first + 1);

/** The name of each activity of a timeline's bar (proto/report.proto, Doing), with its colour. */
export const doings = [
  ['sync', '#9aa5b1'],
  ['exchange', '#f28e2b'],
  ['compute', '#4e79a7'],
  ['links', '#e15759'],
  ['host', '#59a14f'],
  ['Streaming Memory', '#b07aa1'],
];
