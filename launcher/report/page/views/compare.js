// Two jobs side by side, differences first.
import {bytesText, figure, grouped, h, percentText, secondsText, select, table} from '../dom.js';
import {cycleKinds, operationRows} from './operations.js';
import {curveFigure} from '../parts/uplot_curves.js';
import {changedNames, configDifferences, identityDifferences} from '../parts/differences.js';

const signed = (value, text) => (value === 0 ? '0' : `${value > 0 ? '+' : '−'}${text(Math.abs(value))}`);
const relative = (from, to) =>
  from > 0
    ? to / from >= 10
      ? `${grouped(Math.round(to / from))} times`
      : signed(to / from - 1, (x) => percentText(x, x < 0.1 ? 2 : 1))
    : '-';

/** Returns the columns source, target, difference for rows {a, b, text}, whose values may be undefined. */
function pairColumns(names) {
  const cell = (side) => (row) => (row[side] === undefined ? '-' : row.text(row[side]));
  const difference = (row) => (row.b ?? 0) - (row.a ?? 0);
  return [
    {title: `source: ${names[0]}`, number: true, value: (row) => row.a ?? -1, text: cell('a')},
    {title: `target: ${names[1]}`, number: true, value: (row) => row.b ?? -1, text: cell('b')},
    {
      title: 'difference',
      number: true,
      value: (row) => Math.abs(difference(row)),
      text: (row) =>
        row.a === undefined
          ? 'only in target'
          : row.b === undefined
            ? 'only in source'
            : signed(difference(row), row.changeText ?? row.text),
    },
    {
      title: 'relative',
      number: true,
      value: (row) => (row.a > 0 && row.b !== undefined ? Math.abs(row.b / row.a - 1) : 0),
      text: (row) => (row.a === undefined || row.b === undefined ? '-' : relative(row.a, row.b)),
    },
  ];
}

const lastOf = (job, split, name) => {
  const k = job.metrics?.split?.lastIndexOf(split) ?? -1;
  const value = k < 0 ? '' : (job.metrics[name]?.[k] ?? '');
  return value === '' ? undefined : Number(value);
};

const points = (x) => `${(100 * x).toFixed(2)} percentage points`;

/** Returns the main figures of a job: [[name, value, text, text of a difference]]. */
function figures(job) {
  const {device, wall, parameterCount, operatorCount, plannedMemory} = job.profile ?? {};
  const fullest = (plannedMemory ?? []).map((memory) => memory.fullestTilePeak);
  const streaming = (plannedMemory ?? []).map((memory) => memory.streamingPeak);
  const cost = device?.stepCost;
  const plain = (value) => String(Number(value.toPrecision(6)));
  return [
    ['device step (device clock)', device?.stepSeconds, secondsText],
    ['samples/s (device clock)', device?.samplesPerSecond, (x) => grouped(Math.round(x))],
    ['busy share of the IPUs (device clock)', device?.utilisation, (x) => percentText(x, 1), points],
    ...cycleKinds.map(([name, title]) => [`${title} cycles of a call, all IPUs (device clock)`, cost?.[name], grouped]),
    ['FLOPs of a call', cost?.flops, grouped],
    ['fullest tile, B', fullest.length > 0 ? Math.max(...fullest) : undefined, grouped],
    ['Streaming Memory of the fullest IPU', streaming.length > 0 ? Math.max(...streaming) : undefined, bytesText],
    ['parameters', parameterCount, grouped],
    ['operators', operatorCount, grouped],
    ['samples/s (wall clock)', wall?.samplesPerSecond || undefined, (x) => grouped(Math.round(x))],
    ['training time (wall clock)', wall?.trainingSeconds || undefined, secondsText],
    ['last training loss', lastOf(job, 'train', 'loss'), plain],
    ['last test loss', lastOf(job, 'test', 'loss'), plain],
    ['last test accuracy', lastOf(job, 'test', 'accuracy'), (x) => percentText(x, 2), points],
  ];
}

function mainTable(jobs, names) {
  const target = figures(jobs[1]);
  const rows = figures(jobs[0])
    .map(([name, a, text, changeText], k) => ({name, a, b: target[k][1], text, changeText}))
    .filter((row) => (row.a ?? row.b) !== undefined && !(row.a === 0 && row.b === 0));
  const ordered = [...rows.filter((row) => row.a !== row.b), ...rows.filter((row) => row.a === row.b)];
  return table([{title: 'figure', value: (row) => row.name}, ...pairColumns(names)], ordered, {limit: 64});
}

/** Returns the bytes of each IPU by category at its worst step: Map of "IPU|category" to bytes, with two sums in parentheses. */
function memoryOf(job) {
  const sums = new Map();
  job.report.ipus.forEach(({number, atPeak, balance}) => {
    const all = `${number}|(all categories)`;
    job.report.categories.forEach((name, c) => {
      const bytes = atPeak.alwaysLive[c] + atPeak.notAlwaysLive[c];
      sums.set(`${number}|${name}`, bytes);
      sums.set(all, (sums.get(all) ?? 0) + bytes);
    });
    sums.set(`${number}|(fullest tile)`, balance.max);
  });
  return sums;
}

function memoryTable(jobs, names) {
  const [a, b] = jobs.map(memoryOf);
  const rows = [...new Set([...a.keys(), ...b.keys()])]
    .map((key) => {
      const [ipu, category] = key.split('|');
      return {
        ipu: Number(ipu),
        category,
        a: a.get(key),
        b: b.get(key),
        text: bytesText,
      };
    })
    .filter((row) => (row.a ?? 0) !== 0 || (row.b ?? 0) !== 0);
  const equal = rows.filter((row) => row.a === row.b).length;
  return figure(
    [
      'Bytes on all tiles of each IPU, by category, at the step at which the IPU has the most live bytes, largest differences first. ',
      `Exact bytes below 1 MiB. ${grouped(equal)} of ${grouped(rows.length)} rows are equal.`,
    ],
    table(
      [
        {title: 'IPU', number: true, value: (row) => row.ipu},
        {title: 'category', value: (row) => row.category},
        ...pairColumns(names),
      ],
      rows,
      {sort: 4, filter: true, label: 'memory', limit: 30},
    ),
  );
}

/** Returns the rows of the step function by operation and name, summed. */
function operationsOf(job) {
  const sums = new Map();
  for (const row of operationRows(job)) {
    if (row.hostFunction === job.report.stepFunction) {
      const key = `${row.operation}\n${(row.name ?? '').replace(/^outlined\.\d+\//, '')}`;
      const one = sums.get(key) ?? {cycles: 0, rows: 0, plans: new Set()};
      one.cycles += row.cycles;
      one.rows += 1;
      row.plan && one.plans.add(row.plan);
      sums.set(key, one);
    }
  }
  return sums;
}

function operationTable(jobs, names) {
  const [a, b] = jobs.map(operationsOf);
  const rows = [...new Set([...a.keys(), ...b.keys()])].map((key) => {
    const [operation, name] = key.split('\n');
    const [one, other] = [a.get(key), b.get(key)];
    const plans = [one, other].map((side) => [...(side?.plans ?? [])].join('; '));
    return {
      operation,
      name,
      a: one?.cycles,
      b: other?.cycles,
      text: grouped,
      change: Math.abs((other?.cycles ?? 0) - (one?.cycles ?? 0)),
      plan: one && other && plans[0] !== plans[1] ? 'other plan' : '',
      title: plans.join('\n'),
    };
  });
  const both = rows.filter((row) => row.a !== undefined && row.b !== undefined);
  const only = (side) => rows.filter((row) => row[side] !== undefined).length - both.length;
  const changed = both.filter((row) => row.change > 0).length;
  return figure(
    [
      'Cycles of one call of the step function, summed over the IPUs (device clock), largest changes first. ',
      `${grouped(both.length)} operations are in both, ${grouped(changed)} of them with other cycles; `,
      `${grouped(only('a'))} are only in the source and ${grouped(only('b'))} only in the target. `,
      'They are matched by operation and name; rows with the same name are summed.',
    ],
    table(
      [
        {title: 'operation', value: (row) => row.operation},
        {title: 'name', value: (row) => row.name},
        ...pairColumns(names),
        {title: 'plan', value: (row) => row.plan, text: (row) => h('span', {title: row.title}, row.plan)},
      ],
      rows,
      {sort: 4, filter: true, label: 'operations', limit: 50},
    ),
  );
}

function notesOf(jobs, names) {
  const texts = jobs.map((job) => (job.profile?.notes ?? []).map((note) => note.text));
  const only = texts.map((list, k) => list.filter((text) => !texts[1 - k].includes(text)));
  const shared = texts[0].filter((text) => texts[1].includes(text)).length;
  const listOf = (k) =>
    h(
      'div',
      {},
      h('strong', {}, `only in ${['source', 'target'][k]}: ${names[k]}`),
      only[k].length > 0
        ? h(
            'ul',
            {},
            only[k].map((text) => h('li', {}, text)),
          )
        : h('p', {class: 'hint'}, 'none'),
    );
  return [
    h('p', {class: 'hint'}, `${shared === 1 ? '1 note is' : `${grouped(shared)} notes are`} in both.`),
    h('div', {class: 'columns'}, listOf(0), listOf(1)),
  ];
}

/** Returns a curve of the training loss of both jobs, or null if they do not both have one. */
function lossCurve(jobs, names) {
  if (!jobs.every((job) => job.metrics?.step?.length > 0)) {
    return null;
  }
  const values = jobs.map(
    (job) =>
      new Map(
        job.metrics.step
          .map((step, k) => [Number(step), k])
          .filter(([, k]) => job.metrics.split?.[k] === 'train')
          .map(([step, k]) => [step, Number(job.metrics.loss[k])]),
      ),
  );
  const xs = [...new Set(values.flatMap((map) => [...map.keys()]))].sort((a, b) => a - b);
  return curveFigure({
    title: 'Training loss',
    caption: 'by step.',
    x: 'step',
    xs,
    series: values.map((map, k) => ({
      label: `${['source', 'target'][k]}: ${names[k]}`,
      values: xs.map((x) => map.get(x) ?? null),
      colour: ['#4e79a7', '#f28e2b'][k],
    })),
  });
}

const members = {
  report: 'the report of the compiled job',
  metrics: 'metrics.csv',
  replicas: 'replicas.csv',
  failure: 'failure.txt',
  check: 'check.json',
};

function onlyInOne(jobs, names) {
  const lists = jobs.map((job, k) =>
    Object.entries(members)
      .filter(([name]) => job[name] && !jobs[1 - k][name])
      .map(([, text]) => text),
  );
  return lists.map(
    (list, k) =>
      list.length > 0 && h('p', {}, `Only ${['the source', 'the target'][k]}, ${names[k]}, has ${list.join(', ')}.`),
  );
}

function verdict(jobs) {
  const [a, b] = jobs.map((job) => job.profile?.device?.stepSeconds);
  if (!a || !b) {
    return h('p', {class: 'lead'}, 'At least one of the two has no device time, so their speeds cannot be compared.');
  }
  const rates = jobs.map((job) => job.profile.device.samplesPerSecond ?? 0);
  const factor = rates[1] / Math.max(rates[0], 1e-12);
  const fits = jobs.map((job) => (job.report?.shortage ? 'does not fit' : 'fits'));
  return h(
    'p',
    {class: 'lead'},
    factor === 1
      ? 'Source and target have the same samples/s on the device clock'
      : `The target computes ${grouped(Math.round(rates[1]))} samples/s instead of ${grouped(Math.round(rates[0]))} ` +
          `(${relative(rates[0], rates[1])}, device clock)`,
    fits[0] !== fits[1] ? `; the source ${fits[0]}, the target ${fits[1]}.` : '.',
  );
}

function comparison(jobs) {
  const names = jobs.map((job) => job.name);
  const identity = identityDifferences(jobs);
  const config = configDifferences(jobs);
  const both = jobs.every((job) => job.report);
  const parts = [verdict(jobs)];
  const unknown = jobs.map((job, k) => (job.profile ? null : names[k])).filter(Boolean);
  parts.push(
    unknown.length > 0
      ? h('p', {class: 'bad'}, `${unknown.join(' and ')} has no profile, so it is unknown whether both are of one job.`)
      : identity.length > 0
        ? h(
            'div',
            {class: 'warning', role: 'note'},
            h('strong', {class: 'bad'}, 'These are not two variants of one job. '),
            'They differ in ',
            changedNames(identity),
            '. Compare their figures with that in mind.',
          )
        : h('p', {class: 'good'}, 'Both are of the same model, with the same parameters, batch sizes, IPUs and chip.'),
  );
  parts.push(
    ...onlyInOne(jobs, names),
    h('h2', {}, 'Figures'),
    mainTable(jobs, names),
    h('h2', {}, 'Options that differ'),
    config.length === 0 || unknown.length > 0
      ? h('p', {class: 'hint'}, unknown.length > 0 ? 'Unknown.' : 'None.')
      : table(
          [
            {title: 'option', value: (row) => row.name},
            {title: `source: ${names[0]}`, value: (row) => row.a},
            {title: `target: ${names[1]}`, value: (row) => row.b},
          ],
          config,
          {limit: 50},
        ),
  );
  if (both) {
    parts.push(h('h2', {}, 'Memory'), memoryTable(jobs, names), h('h2', {}, 'Operations'), operationTable(jobs, names));
  } else {
    parts.push(
      h(
        'p',
        {class: 'hint'},
        'Memory and operations can be compared only if both have the report of a compiled job (poprun-emu profile).',
      ),
    );
  }
  const loss = lossCurve(jobs, names);
  parts.push(...(loss ? [h('h2', {}, 'Loss'), loss] : []), h('h2', {}, 'Notes'), ...notesOf(jobs, names));
  return parts;
}

export const view = {
  id: 'compare',
  title: 'Compare',
  applies: (job, data) => data.jobs.length > 1,
  render(root, job, data) {
    const first = data.jobs.indexOf(job);
    const chosen = first === 0 ? [0, 1] : [0, first];
    const place = h('div');
    const draw = () => place.replaceChildren(...comparison(chosen.map((k) => data.jobs[k])).filter(Boolean));
    const selects = ['source', 'target'].map((text, side) =>
      select(
        data.jobs.map((one, k) => [k, one.name]),
        chosen[side],
        (k) => {
          chosen[side] = Number(k);
          draw();
        },
        text,
      ),
    );
    const swap = () => {
      chosen.reverse();
      selects.forEach((select, side) => {
        select.value = chosen[side];
      });
      draw();
    };
    root.append(
      h('h1', {}, 'Compare'),
      h(
        'div',
        {class: 'controls'},
        h('label', {}, 'source ', selects[0]),
        h('label', {}, 'target ', selects[1]),
        h('button', {onclick: swap}, 'swap'),
      ),
      place,
    );
    draw();
  },
};
