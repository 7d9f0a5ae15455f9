// The stages of a pipeline: which one limits it, and the estimate of its utilisation beside the timeline's figure.
import {cyclesText, facts, figure, grouped, h, listText, numeric, percentText, secondsText, table} from '../dom.js';
import {eachNode, kindOf} from './call_graph.js';
import {Cells} from './schedule.js';
import {cyclesOf} from './steps.js';

const totalOf = (stage) => stage.forwardCycles + stage.backwardCycles;
const isPart = (name) => /^(forward|backward|evaluate)\.\d+$/.test(name);
const targetOf = (node) => kindOf(node).call;

/** Returns the names of the functions that the nodes call, directly or not. */
function reached(report, nodes, names = new Set()) {
  eachNode(nodes, (node) => {
    const target = targetOf(node);
    if (target && !names.has(target)) {
      names.add(target);
      reached(report, report.functions.find((tree) => tree.name === target)?.nodes ?? [], names);
    }
  });
  return names;
}

/** Returns the functions that work on micro-batches. */
export function microBatchFunctions(report) {
  const parts = report.functions.filter((tree) => isPart(tree.name));
  return parts.reduce((names, tree) => reached(report, tree.nodes, names.add(tree.name)), new Set());
}

/** Returns the cycles, by IPU, of the steps after the last micro-batch in one call of the step function. */
function updateCycles(report) {
  const nodes = report.functions.find((one) => one.name === report.stepFunction)?.nodes ?? [];
  let last = -1;
  eachNode(nodes, (node) => {
    last = isPart(targetOf(node) ?? '') ? Math.max(last, node.step) : last;
  });
  const later = new Set();
  eachNode(nodes, (node) => {
    if (node.step > last && targetOf(node)) {
      reached(report, [node], later);
    }
  });
  const before = microBatchFunctions(report);
  const cycles = [];
  for (const row of report.operators) {
    const isLate =
      row.function === report.stepFunction ? row.step > last : later.has(row.function) && !before.has(row.function);
    if (isLate && last >= 0 && row.hostFunction === report.stepFunction) {
      const sum = cyclesOf(row.cost);
      row.ipus.forEach((ipu) => {
        cycles[ipu] = (cycles[ipu] ?? 0) + sum;
      });
    }
  }
  return cycles;
}

const layersText = (layers) => (layers.length > 1 ? `${layers[0]} to ${layers.at(-1)}` : (layers[0] ?? 'no layers'));

/** Returns a sentence that says which stage limits the pipeline. */
export function limitSentence(job, bars) {
  const stages = job.profile.device?.stages ?? [];
  const busiest = bars.busy.reduce((best, busy, ipu) => (busy > bars.busy[best] ? ipu : best), 0);
  if (stages.length < 2) {
    return h(
      'p',
      {class: 'lead'},
      bars.busy.length > 1
        ? `The model is not divided into stages. IPU ${busiest} is the busiest, for ${percentText(bars.busy[busiest] / bars.cycles)} of the call.`
        : `The model runs on one IPU, which is busy for ${percentText((bars.busy[0] ?? 0) / bars.cycles)} of the call.`,
    );
  }
  const most = Math.max(...stages.map(totalOf));
  const isLimiting = (cycles) => cycles > 0.99 * most;
  const limiting = stages.map((_, k) => k).filter((k) => isLimiting(totalOf(stages[k])));
  const others = stages.map(totalOf).filter((cycles) => !isLimiting(cycles));
  const exact = limiting.every((k) => totalOf(stages[k]) === most) ? '' : ', within 1 %';
  const passes = stages.some((stage) => stage.backwardCycles > 0) ? ' forward and backward' : '';
  const cost = `${grouped(most)} cycles (${secondsText(most / bars.clock)})${passes} per micro-batch`;
  const first = stages[limiting[0]];
  const text =
    limiting.length > 1
      ? `Stages ${listText(limiting.map(String))} limit the pipeline equally${exact}, with ${exact ? 'up to ' : ''}${cost}`
      : `Stage ${limiting[0]} on IPU ${first.ipu} (${layersText(first.layers)}) limits the pipeline, with ${cost}`;
  const next = others.length > 0 ? `, ${(most / Math.max(...others, 1)).toFixed(2)} times the next stage` : '';
  const byIpu = [];
  stages.forEach((stage) => {
    byIpu[stage.ipu] = (byIpu[stage.ipu] ?? 0) + totalOf(stage);
  });
  const worst = byIpu.reduce((best, sum, ipu) => ((sum ?? 0) > (byIpu[best] ?? 0) ? ipu : best), 0);
  const shared = stages
    .map((stage, k) => [stage.ipu, k])
    .filter(([ipu]) => ipu === worst)
    .map(([, k]) => String(k));
  const more =
    byIpu[worst] > most
      ? ` But IPU ${worst} runs stages ${listText(shared)}, together ${grouped(byIpu[worst])} cycles, and limits it further.`
      : '';
  return h('p', {class: 'lead'}, `${text}${next}.${more}`);
}

/** Returns the estimate's inputs, in cycles. */
function inputs(job) {
  const {stages} = job.profile.device;
  const cells = new Cells(job.report.schedule);
  const longest = (name) => Math.max(...stages.map((stage) => stage[name]));
  const update = updateCycles(job.report);
  const forward = longest('forwardCycles');
  const backward = longest('backwardCycles');
  return {
    trains: backward > 0,
    n: stages.length,
    batches: cells.microBatches,
    forward,
    backward,
    recomputes: cells.recomputes,
    gradient: cells.recomputes ? Math.max(backward - forward, 0) : backward,
    update: Math.max(0, ...update.map((cycles) => cycles ?? 0)),
    updates: update,
  };
}

function stageTable(stages, put, clock) {
  const rows = stages.map((stage, k) => ({k, stage}));
  const update = (row) => put.updates[row.stage.ipu] ?? 0;
  const sharing = stages.map((stage) => stage.ipu);
  return table(
    [
      {title: 'stage', number: true, value: (row) => row.k},
      {title: 'IPU', number: true, value: (row) => row.stage.ipu},
      {title: 'layers', value: (row) => layersText(row.stage.layers)},
      numeric('forward', (row) => row.stage.forwardCycles),
      ...(put.trains
        ? [
            numeric(put.recomputes ? 'backward with recomputation' : 'backward', (row) => row.stage.backwardCycles),
            numeric('both', (row) => totalOf(row.stage)),
          ]
        : []),
      numeric(
        'time',
        (row) => totalOf(row.stage),
        (cycles) => secondsText(cycles / clock),
      ),
      ...(put.trains
        ? [
            {
              title: 'update of its IPU',
              number: true,
              help: 'cycles of all steps after the last micro-batch',
              value: update,
              text: (row) =>
                grouped(update(row)) + (sharing.filter((ipu) => ipu === row.stage.ipu).length > 1 ? ' (shared)' : ''),
            },
          ]
        : []),
    ],
    rows,
    {limit: 64},
  );
}

/** Returns the formula's value and the text with the numbers put in. */
function estimate(put, schedule) {
  if (schedule === 'sequential') {
    return {value: 1 / put.n, formula: '1 / n', filled: `1 / ${put.n}`};
  }
  if (!put.trains) {
    return {
      value: put.batches / (put.batches + put.n - 1),
      formula: 'T_GA / (T_GA + n − 1)',
      filled: `${grouped(put.batches)} / (${grouped(put.batches)} + ${put.n} − 1)`,
    };
  }
  const cycle = put.recomputes ? '(2 T_a + T_g)' : '(T_a + T_g)';
  const sum = put.forward + put.backward;
  const value = (put.batches * sum + put.update) / ((put.batches + put.n - 1) * sum + put.update);
  const number = put.recomputes
    ? `(2 × ${grouped(put.forward)} + ${grouped(put.gradient)})`
    : `(${grouped(put.forward)} + ${grouped(put.gradient)})`;
  return {
    value,
    formula: `(T_GA × ${cycle} + T_WU) / ((T_GA + n − 1) × ${cycle} + T_WU)`,
    filled:
      `(${grouped(put.batches)} × ${number} + ${grouped(put.update)}) / ` +
      `((${grouped(put.batches)} + ${put.n} − 1) × ${number} + ${grouped(put.update)})`,
  };
}

/** Returns why the estimate and the timeline may differ. */
function reasons(job, put) {
  const {stages} = job.profile.device;
  const ipus = new Set(stages.map((stage) => stage.ipu));
  const totals = stages.map(totalOf);
  return [
    Math.min(...totals) < Math.max(...totals) &&
      'the stages are not equally long, and the formula assumes that they are',
    ipus.size < stages.length &&
      `the ${stages.length} stages share ${ipus.size} IPUs, and the formula assumes an IPU for each stage`,
    new Set(put.updates).size > 1 && 'the IPUs do not update equally long',
    'the formula leaves out copies between stages and host transfers',
  ].filter(Boolean);
}

/** Returns the section with T_a, T_g, T_WU and the utilisation, or null if the model is not pipelined. */
export function utilisationSection(job, bars) {
  const {stages, utilisation} = job.profile.device ?? {};
  if (!job.report.schedule || (stages?.length ?? 0) < 2) {
    return null;
  }
  const put = inputs(job);
  const schedule = job.profile.config?.pipeline?.schedule || 'grouped';
  const {value, formula, filled} = estimate(put, schedule);
  const cycles = (count) => cyclesText(count, bars.clock);
  const without = `, without the recomputation, which is taken as T_a (with it: ${grouped(put.backward)})`;
  const simple = put.batches / (put.batches + put.n - 1);
  return figure(
    [
      "Time of each stage per micro-batch, without copies to other stages, and the estimate of Graphcore's guide to memory and performance ",
      '(section 5.4.2). Cycles of the device clock.',
    ],
    stageTable(stages, put, bars.clock),
    facts([
      ['n', `${put.n} stages`],
      ['T_GA', `${grouped(put.batches)} micro-batches in a call`],
      ['T_a', `${cycles(put.forward)}: longest forward pass of a stage`],
      put.trains && ['T_g', `${cycles(put.gradient)}: longest backward pass${put.recomputes ? without : ''}`],
      put.trains && [
        'T_WU',
        `${cycles(put.update)}: steps after the last micro-batch, on the IPU where they take longest`,
      ],
      ['formula', h('code', {}, formula)],
      ['values', h('code', {}, filled)],
      ['estimate', percentText(value, 1)],
      put.trains &&
        schedule !== 'sequential' && [
          'estimate if T_WU = 0',
          `${grouped(put.batches)} / (${grouped(put.batches)} + ${put.n} − 1) = ${percentText(simple, 1)}`,
        ],
      [
        'timeline',
        h('strong', {}, `${percentText(utilisation, 1)}: busy cycles of all IPUs / (IPUs × cycles of the call)`),
      ],
      ['why they differ', `${reasons(job, put).join('; ')}.`],
    ]),
  );
}
