import {
  colourOf,
  counted,
  exactBytes,
  facts,
  figure,
  grouped,
  h,
  listText,
  numeric,
  percentText,
  secondsText,
  sumOf,
  table,
  warning,
} from '../dom.js';
import {cellBar, shareBar} from '../parts/bars.js';
import {view as execution} from './execution.js';
import {view as training} from './training.js';
import {view as why} from './why.js';

const seconds = (value, clock) => `${secondsText(value)} (${clock} clock)`;
const rate = (value) => `${grouped(Math.round(value))} samples/s`;

/** The name, field and colour of each activity of a stepCost. */
const activities = [
  ['compute', 'computeCycles', '#4e79a7'],
  ['exchange between tiles', 'exchangeCycles', '#f28e2b'],
  ['sync', 'syncCycles', '#9aa5b1'],
  ['links between IPUs', 'linkCycles', '#e15759'],
  ['host', 'hostCycles', '#59a14f'],
  ['Streaming Memory', 'streamingCycles', '#b07aa1'],
];

/** Returns {ipu, k, tile, peak, bytesPerTile} of the fullest tile of the job, or null; k is the place of the IPU in the list. */
function fullestOf(profile) {
  const ofReport = (profile.report?.ipus ?? []).map(({number, balance, bytesPerTile}, k) => ({
    ipu: number,
    k,
    tile: balance.maxTile,
    peak: balance.max,
    bytesPerTile,
  }));
  const ofPlan = (profile.plannedMemory ?? []).map(({fullestTile, fullestTilePeak, bytesPerTile}, k) => ({
    ipu: k,
    k,
    tile: fullestTile,
    peak: fullestTilePeak,
    bytesPerTile,
  }));
  const all = (ofReport.length > 0 ? ofReport : ofPlan).filter((one) => one.peak > 0);
  return all.reduce((most, one) => (most && most.peak >= one.peak ? most : one), null);
}

const fits = (profile) => {
  const fullest = fullestOf(profile);
  return !profile.report?.shortage && !profile.outOfMemory && (!fullest || fullest.peak <= fullest.bytesPerTile);
};

/** Returns the memory of the fullest IPU of a job without a plan of its tiles. */
function plannedText(profile) {
  const all = (profile.plannedMemory ?? []).map((one, k) => ({...one, k}));
  const most = all.reduce(
    (best, one) => (best && best.peak / best.capacity >= one.peak / one.capacity ? best : one),
    null,
  );
  return most
    ? `${exactBytes(most.peak)} of ${exactBytes(most.capacity)} on IPU ${most.k}`
    : 'its memory is not planned';
}

/** Returns the verdict in one line and, if there is more, the whole message. */
function verdict(job) {
  const {profile} = job;
  if (!profile) {
    return job.failure ? h('p', {class: 'lead bad'}, 'The job failed.') : null;
  }
  const fullest = fullestOf(profile);
  const tile = fullest && `tile ${grouped(fullest.tile)} of IPU ${fullest.ipu}`;
  const {device} = profile;
  const what = profile.config.inference ? 'a batch' : 'a step';
  const time =
    device?.stepSeconds > 0
      ? `; ${what} takes ${seconds(device.stepSeconds, 'device')}, ${rate(device.samplesPerSecond)}`
      : '';
  const failed = job.failure ? h('span', {class: 'bad'}, 'The job failed. ') : null;
  if (fits(profile)) {
    const memory = fullest
      ? `${exactBytes(fullest.peak)} of ${exactBytes(fullest.bytesPerTile)} on the fullest tile (${tile})`
      : plannedText(profile);
    return h('p', {class: 'lead'}, failed, h('span', {class: 'good'}, 'Fits: '), memory, time, '.');
  }
  const over =
    fullest && fullest.peak > fullest.bytesPerTile
      ? `${tile} needs ${exactBytes(fullest.peak)} of ${exactBytes(fullest.bytesPerTile)}, ` +
        `${exactBytes(fullest.peak - fullest.bytesPerTile)} too many`
      : '';
  const [shortage, ...more] = (profile.report?.shortage ?? '').split('\n');
  const line = h(
    'p',
    {class: 'lead'},
    failed,
    h('span', {class: 'bad'}, 'Does not fit: '),
    shortage || over || 'the job is out of memory',
    profile.outOfMemory && !profile.report ? '. It ran with more memory than the chip has' : '',
    time ? `${time} if it had the memory` : '',
    '.',
  );
  return more.length > 0
    ? [line, h('details', {}, h('summary', {}, 'the whole message'), h('pre', {}, profile.report.shortage))]
    : line;
}

function jobFacts(job) {
  const {config, batchSizes: batch, parameterCount, operatorCount} = job.profile;
  const {topology, model, device, data} = config;
  const replicas = topology?.numReplicas ?? 1;
  const ipus = topology?.ipusPerReplica ?? 1;
  return facts([
    [
      'model',
      `${model.name || model.onnx}, ${model.precision}, ` +
        (config.inference ? 'inference' : `training with ${config.training.optimizer}`),
    ],
    ['data', data.source],
    [
      'IPUs',
      `${grouped(replicas * ipus)} ${device.ipu}: ${counted(replicas, 'replica')} of ${counted(ipus, 'IPU')}` +
        (topology?.numInstances > 1 ? ` in ${grouped(topology.numInstances)} instances` : ''),
    ],
    batch && [
      'batch sizes',
      `${grouped(batch.computeBatchSize)} computed at once, micro-batch ${grouped(batch.microBatchSize)}, ` +
        `replica ${grouped(batch.replicaBatchSize)}, global ${grouped(batch.globalBatchSize)} samples`,
    ],
    parameterCount > 0 && ['parameters', grouped(parameterCount)],
    operatorCount > 0 && ['operators', grouped(operatorCount)],
    ['poprun-emu', job.profile.version],
  ]);
}

/** Returns whether jobs of this kind were compared with chips, and the error. */
function comparedText(device) {
  return device.comparedError > 0
    ? `within ${percentText(device.comparedError, 0)} on published jobs of this kind`
    : h('span', {class: 'bad'}, 'never compared with a chip');
}

function timeFigure(profile) {
  const {device} = profile;
  const {stepCost, clockHz} = device;
  const idle = sumOf(device.ipus, (one) => one.idleSeconds) * clockHz;
  const busy = sumOf(device.ipus, (one) => one.busySeconds) * clockHz;
  const parts = activities.map(([name, key, colour]) => ({name, colour, amount: stepCost[key] ?? 0}));
  const sum = sumOf(parts, (part) => part.amount);
  if (sum === 0) {
    return null;
  }
  // In inference, the cost is of all batches and the seconds are of one.
  const batches = profile.config.inference ? Math.max(1, Math.round(sum / busy)) : 1;
  parts.push({name: 'waiting for other IPUs', colour: 'var(--line)', amount: idle * batches});
  const agrees = Math.abs(sum - busy * batches) <= Math.max(1, batches) * device.ipus.length;
  const what = batches > 1 ? `${grouped(batches)} batches` : profile.config.inference ? 'a batch' : 'a step';
  const {host} = device;
  const included = host?.callsAreCounted ? 'which the time above includes' : 'which the time above does not include';
  const besides = [
    stepCost.backgroundCycles > 0 &&
      `${grouped(stepCost.backgroundCycles)} cycles of exchanges between IPUs while tiles compute`,
    stepCost.ioCycles > 0 && `${grouped(stepCost.ioCycles)} cycles of transfers by I/O tiles`,
  ].filter(Boolean);
  return figure(
    [
      `Device clock at ${grouped(Math.round(clockHz / 1e6))} MHz: cycles of ${what}, summed over ${counted(device.ipus.length, 'IPU')}. `,
      besides.length > 0 ? `Left out, as they add no time: ${besides.join(' and ')}. ` : '',
      host?.callSeconds > 0
        ? `Left out: the host's overhead of a call, ${secondsText(host.callSeconds)}, ${included}.`
        : '',
    ],
    shareBar(parts, sum + idle * batches, 'cycles'),
    agrees
      ? null
      : warning(
          `Warning: the activities sum to ${grouped(sum)} cycles, ` +
            `the IPUs are busy for ${grouped(Math.round(busy * batches))}.`,
        ),
  );
}

function utilisation(device) {
  if (device.ipus.length < 2) {
    return null;
  }
  const rows = device.ipus.map(({busySeconds: busy, idleSeconds: idle}, k) => ({
    k,
    busy,
    idle,
    part: busy / (busy + idle || 1),
  }));
  return figure(
    'Utilisation: the fraction of a step in which an IPU does not wait for others (device clock). ' +
      `Mean: ${percentText(device.utilisation)}.`,
    table(
      [
        numeric('IPU', (row) => row.k),
        numeric('busy', (row) => row.busy, secondsText),
        numeric('waiting', (row) => row.idle, secondsText),
        numeric(
          'utilisation',
          (row) => row.part,
          (part) => percentText(part),
        ),
        {title: '', value: (row) => row.part, text: (row) => cellBar(row.part, '#4e79a7')},
      ],
      rows,
      {sort: 0, descending: false, limit: 32, label: 'IPUs'},
    ),
  );
}

/** Returns the parts of a bar of memory that ends with unused bytes; `sum` is the peak that the parts must sum to. */
function memoryBar(report, atPeak, peak, memory, restName) {
  const parts = report.categories.map((name, k) => ({
    name: name === 'gaps' ? 'gaps by placement constraints' : name,
    colour: colourOf(k),
    amount: atPeak.alwaysLive[k] + atPeak.notAlwaysLive[k],
  }));
  const live = sumOf(parts, (part) => part.amount);
  parts.push({name: restName, colour: '#b9bec5', amount: Math.max(0, peak - live)});
  parts.push({name: 'unused', colour: 'transparent', amount: Math.max(0, memory - peak)});
  return [
    shareBar(parts, Math.max(peak, memory), 'B', memory),
    live > peak
      ? warning(`Warning: the categories sum to ${exactBytes(live)}, more than the peak of ${exactBytes(peak)}.`)
      : null,
  ];
}

function memoryFigures(profile) {
  const {report} = profile;
  const {k, ipu: number} = fullestOf(profile);
  const ipu = report.ipus[k];
  return h(
    'div',
    {class: 'columns'},
    figure(
      [
        `Fullest tile: tile ${grouped(ipu.fullestTile.tile)} of IPU ${number}, ${exactBytes(ipu.fullestTile.peak)} of ${exactBytes(ipu.bytesPerTile)}, `,
        'at its worst step. Nothing is left out.',
      ],
      memoryBar(report, ipu.fullestTile.atPeak, ipu.fullestTile.peak, ipu.bytesPerTile, 'gaps left by the plan'),
    ),
    figure(
      [
        `All tiles of IPU ${number} at its worst step: ${exactBytes(ipu.peak)} of ${exactBytes(ipu.capacity)}. `,
        "The last part but one is what tiles need at other steps, and gaps: the sum of the tiles' own peaks minus what is live at this step.",
      ],
      memoryBar(report, ipu.atPeak, ipu.peak, ipu.capacity, 'peaks of tiles at other steps, and gaps'),
    ),
  );
}

/** Returns the memory of each IPU as planned and, after a run, as measured. */
function plannedMemory(profile) {
  const planned = profile.plannedMemory ?? [];
  if (planned.length === 0) {
    return null;
  }
  const number = (title, value, help) => numeric(title, value, exactBytes, help);
  const measured = profile.measuredPeakBytes ?? [];
  return figure(
    'Memory of each IPU. Planned: the sum of the peaks of all tiles, with gaps.',
    table(
      [
        numeric('IPU', (row) => row.k),
        number('planned peak', (row) => row.peak),
        number('capacity', (row) => row.capacity),
        number('always live', (row) => row.alwaysLive),
        number('fullest tile', (row) => row.fullestTilePeak),
        number('memory of a tile', (row) => row.bytesPerTile),
        ...(measured.length > 0
          ? [number('measured peak of tensors', (row) => measured[row.k] ?? 0, 'the largest of all replicas')]
          : []),
        ...(planned.some((one) => one.streamingPeak > 0)
          ? [number('Streaming Memory', (row) => row.streamingPeak ?? 0)]
          : []),
      ],
      planned.map((one, k) => ({...one, k})),
      {sort: 0, descending: false, limit: 32, label: 'IPUs'},
    ),
  );
}

/** Returns the results of a run and its times on this machine. */
function outcomeFacts({outcome, wall}) {
  if (!outcome || !(outcome.steps > 0)) {
    return null;
  }
  const accuracy = (value) => (value >= 0 ? percentText(value, 2) : null);
  return [
    h('h2', {}, 'Run'),
    facts([
      [
        'steps',
        [
          `${grouped(outcome.steps)} in ${counted(outcome.epochs, 'epoch')}`,
          outcome.skippedSteps > 0 ? `, ${grouped(outcome.skippedSteps)} skipped` : '',
          outcome.drained ? '; stopped early on request' : '',
        ],
      ],
      outcome.resumedAfterStep > 0 && ['resumed', `after step ${grouped(outcome.resumedAfterStep)}`],
      ['final loss', String(Number(outcome.finalLoss.toPrecision(6)))],
      accuracy(outcome.trainAccuracy) && ['accuracy, training', accuracy(outcome.trainAccuracy)],
      accuracy(outcome.testAccuracy) && [
        'accuracy, test',
        `${accuracy(outcome.testAccuracy)} of ${grouped(outcome.testItems)} items`,
      ],
      wall?.startupSeconds > 0 && ['startup', seconds(wall.startupSeconds, 'wall')],
      wall?.trainingSeconds > 0 && [
        'training',
        `${seconds(wall.trainingSeconds, 'wall')}, ${rate(wall.samplesPerSecond)}`,
      ],
      wall?.evaluationSeconds > 0 && ['evaluation', seconds(wall.evaluationSeconds, 'wall')],
    ]),
  ];
}

/** Returns the IPU with the most work in its stages if it is above the mean, or null: {ipu, ratio}. */
function slowestStage(device) {
  const costs = new Map();
  (device?.stages ?? []).forEach((stage) =>
    costs.set(stage.ipu, (costs.get(stage.ipu) ?? 0) + stage.forwardCycles + stage.backwardCycles),
  );
  const mean = sumOf([...costs.values()]) / costs.size;
  const most = Math.max(0, ...costs.values());
  const ipus = [...costs].filter(([, cycles]) => cycles > 0.99 * most).map(([ipu]) => String(ipu));
  return costs.size > 1 && most > 1.05 * mean ? {ipus, ratio: most / mean} : null;
}

/** Returns suggestions for what to look at next, as list items. */
function nextSteps(job, data) {
  const index = data.jobs.indexOf(job);
  const to = (id, text) => h('a', {href: `#${id}/${index}`}, text);
  const items = [];
  const {profile} = job;
  if (profile && !fits(profile)) {
    items.push(
      why.applies(job, data)
        ? [to('why', 'Why'), ': what needs the memory, and changes that were tried.']
        : 'Run `poprun-emu profile` for changes that make the job fit.',
    );
  }
  const slow = slowestStage(profile?.device);
  if (slow) {
    const text =
      `${slow.ipus.length > 1 ? `IPUs ${listText(slow.ipus)} have` : `IPU ${slow.ipus[0]} has`} ${percentText(slow.ratio - 1)} more work ` +
      'per micro-batch than the mean of the IPUs, so the others wait. ' +
      'Move layers with pipeline.layers-per-ipu.';
    items.push(execution.applies(job, data) ? [to('execution', 'Execution'), `: ${text}`] : text);
  }
  const host = profile?.device?.stepCost;
  const parts = host ? activities.map(([, key]) => host[key] ?? 0) : [];
  if (host && host.hostCycles + host.streamingCycles > 0.3 * sumOf(parts)) {
    const text = 'a large part of the time goes to transfers from the host or Streaming Memory.';
    items.push(execution.applies(job, data) ? [to('execution', 'Execution'), `: ${text}`] : text);
  }
  if (profile?.report?.ipus.length > 0) {
    items.push([to('memory', 'Memory'), ' shows every tile, ', to('liveness', 'Liveness'), ' every step.']);
  } else if (profile && !profile.report) {
    items.push('Run `poprun-emu profile` with the same options for the memory and time of each operation.');
  }
  if (training.applies(job, data)) {
    items.push([to('training', 'Training'), ': the loss, the speed, and which replica was slow.']);
  }
  return items;
}

function notesTable(notes) {
  const columns = [
    {title: 'note', value: (note) => note.text},
    {title: 'code', value: (note) => note.code},
  ];
  return [
    h('h2', {}, 'Notes'),
    notes.length === 0
      ? h('p', {}, 'None.')
      : table(columns, notes, {limit: 25, filter: notes.length > 10, label: 'notes'}),
  ];
}

export const view = {
  id: 'summary',
  title: 'Summary',
  applies: () => true,
  render(root, job, data) {
    const {profile} = job;
    const next = nextSteps(job, data);
    const children = [
      h('h1', {}, job.name),
      verdict(job),
      job.failure && h('pre', {class: 'message'}, job.failure),
      next.length > 0 && [
        h('h2', {}, 'Next'),
        h(
          'ul',
          {},
          next.map((item) => h('li', {}, item)),
        ),
      ],
      profile?.config && [h('h2', {}, 'Job'), jobFacts(job)],
      profile && outcomeFacts(profile),
    ];
    if (profile?.device?.stepSeconds > 0) {
      const {device} = profile;
      children.push(
        h('h2', {}, 'Device time'),
        facts([
          [
            profile.config.inference ? 'batch' : 'step',
            `${seconds(device.stepSeconds, 'device')}, ${rate(device.samplesPerSecond)}`,
          ],
          ['compared with chips', comparedText(device)],
          ['utilisation', `${percentText(device.utilisation)}, the mean of ${counted(device.ipus.length, 'IPU')}`],
          device.totalSeconds > 0 && ['everything executed', seconds(device.totalSeconds, 'device')],
          device.host?.bytesToDevice > 0 && [
            'host',
            `${exactBytes(Math.round(device.host.bytesToDevice))} to the device and ` +
              `${exactBytes(Math.round(device.host.bytesFromDevice))} from it, in ${secondsText(device.host.streamSeconds)} (device clock)`,
          ],
        ]),
        timeFigure(profile),
        utilisation(device),
      );
    }
    if (profile?.report?.ipus.length > 0) {
      children.push(h('h2', {}, 'Memory'), memoryFigures(profile));
    }
    children.push(
      profile && plannedMemory(profile),
      profile && notesTable(profile.notes ?? []),
      job.text && [h('h2', {}, 'Text'), h('pre', {}, job.text)],
    );
    root.append(...children.flat(Infinity).filter(Boolean));
  },
};
