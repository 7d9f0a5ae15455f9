// Names of steps, and what the memory views have in common: the IPU, tile and step that are chosen.
import {grouped, h} from '../dom.js';

/** Returns "638,976 B". */
export const bytes = (count) => `${grouped(count)} B`;

/** Returns "1 step", "12 steps". */
export const counted = (count, noun) => `${grouped(count)} ${noun}${count === 1 ? '' : 's'}`;

/** Returns the name of a step: "conv2d 'conv1'", or "end of the Program" beyond the last one. */
export const operationAt = (job, step) =>
  job.stepNames[step]?.text ?? (step >= job.report.steps ? 'end of the Program' : 'unnamed step');

/** Returns "step 61, backward.0: conv2d_input_gradient 'pool1.gradient'". */
export function stepText(job, step) {
  const name = job.stepNames[step];
  return name ? `step ${grouped(step)}, ${name.functionName}: ${name.text}` : `step ${grouped(step)}`;
}

const isNameOf = (layer, name) => name === layer || (name.startsWith(layer) && /[._/]/.test(name[layer.length]));

/** Returns the layer that a step belongs to, or '' if its name does not begin with the name of a layer. */
export function layerOf(job, step) {
  const name = (job.stepNames[step]?.row?.name ?? '').replace(/^evaluate\//, '');
  job.layers ??= [...new Set((job.profile.device?.stages ?? []).flatMap((stage) => stage.layers))].sort(
    (a, b) => b.length - a.length,
  );
  return name ? (job.layers.find((layer) => isNameOf(layer, name)) ?? '') : '';
}

/** The cycles of a cost that count as time: proto/program.proto, Cost. */
export const cyclesOf = (cost) =>
  cost.computeCycles + cost.exchangeCycles + cost.linkCycles + cost.hostCycles + cost.syncCycles + cost.streamingCycles;

/** Returns {ipu, tile, step}, which the memory views of a job share. */
export function chosenOf(job) {
  if (!job.chosen) {
    let fullest = 0;
    job.report.ipus.forEach((ipu, k) => {
      fullest = ipu.balance.max > job.report.ipus[fullest].balance.max ? k : fullest;
    });
    const ipu = job.report.ipus[fullest];
    job.chosen = {ipu: fullest, tile: ipu.fullestTile.tile, step: ipu.liveness.worstStep};
  }
  return job.chosen;
}

/** Returns a select of the job's IPUs. */
export function ipuSelect(job, chosen, onchange) {
  const options = job.report.ipus.map((ipu, k) =>
    h(
      'option',
      {value: k, selected: k === chosen},
      `IPU ${k}: fullest tile ${grouped(ipu.balance.max)} of ${grouped(ipu.bytesPerTile)} B`,
    ),
  );
  return h('label', {}, 'IPU ', h('select', {onchange: (event) => onchange(Number(event.target.value))}, options));
}

/** Returns a link that opens a step in the liveness view. */
export function stepLink(job, data, step, text = stepText(job, step)) {
  return h(
    'a',
    {
      href: `#liveness/${data.jobs.indexOf(job)}`,
      onclick: () => {
        chosenOf(job).step = step;
      },
    },
    text,
  );
}

/** Returns a colour mixed with black (amount < 0) or white (amount > 0). */
export function shade(colour, amount) {
  const target = amount < 0 ? 0 : 255;
  const mix = (k) =>
    Math.round(parseInt(colour.slice(k, k + 2), 16) * (1 - Math.abs(amount)) + target * Math.abs(amount));
  return `rgb(${mix(1)},${mix(3)},${mix(5)})`;
}

/** The categories of bytes that are always live have the darker colour. */
export const darker = (colour) => shade(colour, -0.38);

/** Returns "512 KiB" for the ticks of an axis. */
export function tickText(count) {
  const power = Math.min(3, Math.floor(Math.log2(Math.max(count, 1)) / 10));
  return `${Number((count / 1024 ** power).toPrecision(4))} ${['B', 'KiB', 'MiB', 'GiB'][power]}`;
}

/** Returns the distance of about `count` ticks up to `most` bytes: a power of two. */
export const tickDistance = (most, count) => 2 ** Math.ceil(Math.log2(Math.max(most / count, 1)));
