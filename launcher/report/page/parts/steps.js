// Names of steps, and the IPU, tile and step that are chosen in the memory views.
import {exactBytes, grouped, h, select, sumOf} from '../dom.js';

/** Returns the name of a step: "conv2d 'conv1'", or "end of the Program" beyond the last one. */
export const operationAt = (job, step) =>
  job.stepNames[step]?.text ?? (step >= job.report.steps ? 'end of the Program' : 'unnamed step');

/** Returns "step 61, backward.0: conv2d_input_gradient 'pool1.gradient'". */
export function stepText(job, step) {
  const name = job.stepNames[step];
  return name ? `step ${grouped(step)}, ${name.functionName}: ${name.text}` : `step ${grouped(step)}`;
}

const isNameOf = (layer, name) => name === layer || (name.startsWith(layer) && /[._/]/.test(name[layer.length]));

/** Returns the layers of a job's stages, those with the longest names first. */
export const layersOf = (job) =>
  (job.layers ??= [...new Set((job.profile.device?.stages ?? []).flatMap((stage) => stage.layers))].sort(
    (a, b) => b.length - a.length,
  ));

/** Returns the layer that a step belongs to, or '' if its name does not begin with the name of a layer. */
export function layerOf(job, step) {
  const name = (job.stepNames[step]?.row?.name ?? '').replace(/^evaluate\//, '');
  return name ? (layersOf(job).find((layer) => isNameOf(layer, name)) ?? '') : '';
}

/** The kinds of cycles of a Cost that take time on the tiles (proto/program.proto). */
export const busyKinds = [
  'computeCycles',
  'exchangeCycles',
  'syncCycles',
  'linkCycles',
  'hostCycles',
  'streamingCycles',
];
export const cyclesOf = (cost) => sumOf(busyKinds, (kind) => cost[kind]);

/** Returns {ipu, tile, step}, which the memory views of a job share; `ipu` is a place in report.ipus. */
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
export const ipuSelect = (job, chosen, onchange) =>
  h(
    'label',
    {},
    'IPU ',
    select(
      job.report.ipus.map(({number, balance, bytesPerTile}, k) => [
        k,
        `IPU ${number}: fullest tile ${grouped(balance.max)} of ${exactBytes(bytesPerTile)}`,
      ]),
      chosen,
      (k) => onchange(Number(k)),
    ),
  );

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
