// The operations of the job: where the cycles of a call go.
import {
  bytesText,
  exactBytes,
  facts,
  figure,
  grouped,
  h,
  numeric,
  percentText,
  secondsText,
  select,
  sumOf,
  table,
  warning,
} from '../dom.js';
import {cyclesOf, layersOf} from '../parts/steps.js';

/** The kinds of cycles of a Cost, with their titles and whether they take time on the tiles. */
export const cycleKinds = [
  ['computeCycles', 'compute', true],
  ['exchangeCycles', 'exchange', true],
  ['syncCycles', 'sync', true],
  ['linkCycles', 'links', true],
  ['hostCycles', 'host', true],
  ['streamingCycles', 'Streaming Memory', true],
  ['backgroundCycles', 'links in background', false],
  ['ioCycles', 'I/O tiles', false],
];
const rowsText = (count) => (count === 1 ? '1 row' : `${grouped(count)} rows`);

/** Returns ascending IPUs as text: "0-3, 8". */
const ipusText = (ipus) =>
  ipus
    .reduce((spans, ipu) => {
      spans.at(-1)?.[1] === ipu - 1 ? (spans.at(-1)[1] = ipu) : spans.push([ipu, ipu]);
      return spans;
    }, [])
    .map(([first, last]) => (first === last ? first : `${first}-${last}`))
    .join(', ');

/** Returns the layer of an operation: the layer of a stage with that prefix or, without one, the name up to its first number. */
function layerNamed(name, layers) {
  const plain = name.replace(/^(evaluate|outlined\.\d+)\//, '');
  const layer = layers.find((one) => plain === one || plain.startsWith(`${one}.`));
  if (layer || !plain) {
    return layer ?? '(no layer: copies, streams and collectives)';
  }
  const parts = plain.split('.');
  const number = parts.findIndex((part) => /^\d+$/.test(part));
  return parts.slice(0, number > 0 ? number + 1 : 1).join('.');
}

/** Returns a function that gives the temporary bytes of an operation, on all tiles of its IPUs together. */
function temporariesOf(report) {
  const byName = new Map();
  for (const variable of report.variables) {
    const name = /^temporaries of '(.*)'$/.exec(variable.name)?.[1];
    if (name !== undefined) {
      byName.has(name) ? byName.get(name).push(variable) : byName.set(name, [variable]);
    }
  }
  return (row) =>
    sumOf(
      (byName.get(row.name) ?? []).filter(
        (one) => one.alwaysLive || one.lives.some((span) => span.first <= row.step && row.step <= span.last),
      ),
      (one) => one.bytes,
    );
}

/** Returns the rows of the report with their cycles summed over the IPUs on which they run. */
export function operationRows(job) {
  const {report} = job;
  const temporaries = temporariesOf(report);
  const layers = layersOf(job);
  return report.operators.map((row) => {
    const cost = Object.fromEntries(cycleKinds.map(([name]) => [name, row.cost[name] * row.ipus.length]));
    return {
      ...row,
      cost,
      cycles: cyclesOf(cost),
      flops: row.cost.flops * row.ipus.length,
      peak: row.shareOfPeak,
      temporary: temporaries(row),
      layer: layerNamed(row.name, layers),
    };
  });
}

/** Returns the sums of rows as one row. The share of the peak is weighted by the cycles of the rows. */
function summed(name, rows) {
  const cycles = sumOf(rows, (row) => row.cycles);
  return {
    name,
    rows,
    cycles,
    cost: Object.fromEntries(cycleKinds.map(([kind]) => [kind, sumOf(rows, (row) => row.cost[kind])])),
    flops: sumOf(rows, (row) => row.flops),
    calls: sumOf(rows, (row) => row.calls),
    temporary: Math.max(0, ...rows.map((row) => row.temporary)),
    peak: cycles > 0 ? sumOf(rows, (row) => row.peak * row.cycles) / cycles : 0,
  };
}

const groupings = {
  'each operation': null,
  kind: (row) => row.operation.replace(/ of \d+ tensors?$/, '').replace(/ '.*'$/, ''),
  layer: (row) => row.layer,
  function: (row) => row.function,
  IPUs: (row) => ipusText(row.ipus),
};

function groupsOf(rows, key) {
  const groups = new Map();
  for (const row of rows) {
    const name = key(row);
    groups.has(name) ? groups.get(name).push(row) : groups.set(name, [row]);
  }
  return [...groups].map(([name, members]) => summed(name, members));
}

/** Returns the columns that operations and groups have in common. `total` is the sum that shares refer to. */
function costColumns(rows, total) {
  const used = cycleKinds.filter(([kind]) => rows.some((row) => row.cost[kind] > 0));
  const bar = (row) =>
    h(
      'span',
      {},
      h('span', {class: 'share', style: `width:${((80 * row.cycles) / Math.max(total, 1)).toFixed(1)}px`}),
      percentText(row.cycles / Math.max(total, 1)),
    );
  return [
    numeric('calls', (row) => row.calls, grouped, 'executions in one call'),
    numeric('cycles', (row) => row.cycles, grouped, 'cycles of all its executions, summed over its IPUs'),
    {
      title: 'share',
      number: true,
      help: 'of the cycles of all operations in the table',
      value: (row) => row.cycles,
      text: bar,
    },
    ...used.map(([kind, title]) => numeric(title, (row) => row.cost[kind])),
    numeric('FLOPs', (row) => row.flops, grouped, 'a multiply-add counts as two'),
    numeric('of peak', (row) => row.peak, percentText, 'share of the peak of the matrix units while it runs'),
    numeric('temporaries', (row) => row.temporary, bytesText, 'temporary bytes on all tiles together'),
  ];
}

function operationColumns(rows, total) {
  return [
    numeric('step', (row) => row.step),
    {title: 'operation', value: (row) => row.operation},
    {
      title: 'name',
      value: (row) => row.name ?? '',
      text: (row) => h('span', {class: 'tail', title: row.name || null}, h('bdi', {}, row.name ?? '')),
    },
    {title: 'IPUs', value: (row) => row.ipus[0] ?? -1, text: (row) => ipusText(row.ipus)},
    ...costColumns(rows, total),
    {
      title: 'plan',
      value: (row) => row.plan,
      text: (row) => h('span', {class: 'plan', title: row.plan || null}, row.plan),
    },
  ];
}

/** Compares the sums of the step function's rows with the device's cost of a step. */
function checkTotals(job, rows) {
  const cost = job.profile.device?.stepCost;
  if (!cost) {
    return h('p', {class: 'hint'}, 'The profile has no cost of a step, so the sums cannot be compared with it.');
  }
  const differing = [...cycleKinds, ['flops', 'FLOPs']]
    .map(([name, title]) => {
      const sum = name === 'flops' ? sumOf(rows, (row) => row.flops) : sumOf(rows, (row) => row.cost[name]);
      return {name, title, sum, step: Number(cost[name] ?? 0)};
    })
    .filter((one) => one.sum !== one.step);
  if (differing.length === 0) {
    return h(
      'p',
      {class: 'good'},
      `The sums equal the profile's cost of one call of ${job.report.stepFunction} exactly.`,
    );
  }
  const overlaps = Number(cost.backgroundCycles ?? 0) + Number(cost.ioCycles ?? 0) > 0;
  const explained =
    overlaps &&
    differing.every(({name}) =>
      ['linkCycles', 'hostCycles', 'streamingCycles', 'backgroundCycles', 'ioCycles'].includes(name),
    );
  const list = differing
    .map((one) => `${one.title} ${grouped(one.sum)} in the table, ${grouped(one.step)} in the step`)
    .join('; ');
  return explained
    ? h(
        'p',
        {class: 'hint'},
        `Transfers overlap with other work, so their cycles differ: ${list}. The step counts only the time that the tiles wait for them; `,
        "the table counts the length of each transfer. All other sums equal the profile's cost of one call.",
      )
    : warning(`The sums differ from the profile's cost of one call of ${job.report.stepFunction}: ${list}.`);
}

/** Returns a sentence about the rows that other host functions execute. */
function excluded(rows, host) {
  const groups = groupsOf(
    rows.filter((row) => row.hostFunction !== host),
    (row) => row.hostFunction || 'no host function',
  );
  return groups.length === 0
    ? null
    : h(
        'p',
        {class: 'hint'},
        `Not included, because ${host} does not execute them: `,
        groups
          .map((group) => `${group.name} (${rowsText(group.rows.length)}, ${grouped(group.cycles)} cycles)`)
          .join(', '),
        '.',
      );
}

function detailsOf(row, clock) {
  return h(
    'div',
    {},
    h('h2', {}, `${row.operation}${row.name ? ` '${row.name}'` : ''}`),
    facts([
      ['step', grouped(row.step)],
      ['function', row.function],
      ['executed', `${grouped(row.calls)} times in one call of ${row.hostFunction}, on IPU ${ipusText(row.ipus)}`],
      [
        'time',
        `${secondsText(row.cycles / Math.max(row.ipus.length, 1) / clock)} on each IPU in a call, ` +
          `${secondsText(row.cycles / Math.max(row.ipus.length * row.calls, 1) / clock)} per execution (device clock)`,
      ],
      row.attributes && ['attributes', row.attributes],
      row.plan && ['plan', row.plan],
      ['temporaries', `${exactBytes(row.temporary)} on all tiles together`],
    ]),
  );
}

export const view = {
  id: 'operations',
  title: 'Operations',
  applies: (job) => (job.report?.operators?.length ?? 0) > 0,
  render(root, job) {
    const {report} = job;
    const clock = job.profile.device?.clockHz ?? 1;
    const all = operationRows(job);
    const hosts = [...new Set(all.map((row) => row.hostFunction))].sort(
      (a, b) => (b === report.stepFunction) - (a === report.stepFunction),
    );
    const state = {host: hosts[0], group: 'each operation'};
    const place = h('div', {class: 'wide'});
    const details = h('div', {'aria-live': 'polite'});

    const draw = () => {
      const rows = all.filter((row) => row.hostFunction === state.host);
      const total = summed('', rows);
      const key = groupings[state.group];
      const onselect = key
        ? (group) => showMembers(group, rows)
        : (row) => details.replaceChildren(detailsOf(row, clock));
      const shown = key ? groupsOf(rows, key) : rows;
      const columns = key
        ? [
            {title: state.group, value: (row) => row.name},
            numeric('rows', (row) => row.rows.length),
            ...costColumns(shown, total.cycles),
          ]
        : operationColumns(shown, total.cycles);
      const absent = cycleKinds.filter(([kind, , busy]) => busy && total.cost[kind] === 0).map(([, title]) => title);
      details.replaceChildren();
      place.replaceChildren(
        state.host === report.stepFunction
          ? checkTotals(job, rows)
          : h('p', {class: 'hint'}, 'The profile has no cost of this function to compare the sums with.'),
        figure(
          [
            `Cycles of one call of ${state.host}, summed over the IPUs. Device clock, ${(clock / 1e9).toFixed(3)} GHz. `,
            absent.length > 0 ? `Not shown, because they are 0 in all rows: ${absent.join(', ')}.` : '',
            key && state.group === 'layer'
              ? ' Steps that several layers share (outlined functions) count under the layer that gives them their name.'
              : '',
          ],
          table(columns, shown, {
            sort: columns.findIndex((one) => one.title === 'cycles'),
            filter: true,
            label: 'operations',
            onselect,
            limit: 200,
          }),
        ),
        totals(total, rows),
        excluded(all, state.host) ?? '',
      );
    };

    function showMembers(group, rows) {
      const total = sumOf(rows, (row) => row.cycles);
      details.replaceChildren(
        h('h2', {}, `${state.group}: ${group.name}`),
        table(operationColumns(group.rows, total), group.rows, {
          sort: 5,
          filter: true,
          label: 'operations of the group',
          limit: 100,
        }),
      );
      details.scrollIntoView({block: 'nearest'});
    }

    function totals(total, rows) {
      return facts([
        [
          'total',
          `${grouped(total.cycles)} cycles in ${rowsText(rows.length)}: ${cycleKinds
            .filter(([kind]) => total.cost[kind] > 0)
            .map(([kind, title]) => `${title} ${grouped(total.cost[kind])}`)
            .join(', ')}`,
        ],
        ['FLOPs', `${grouped(total.flops)}`],
        total.flops > 0 && [
          'of peak',
          `${percentText(total.peak)} of the matrix units' peak, as a mean over the cycles`,
        ],
      ]);
    }

    const choice = (label, values, field) =>
      h(
        'label',
        {},
        `${label} `,
        select(values, state[field], (value) => {
          state[field] = value;
          draw();
        }),
      );
    root.append(
      h('h1', {}, 'Operations'),
      h(
        'div',
        {class: 'controls'},
        choice('function that the host calls', hosts, 'host'),
        choice('group by', Object.keys(groupings), 'group'),
      ),
      place,
      details,
    );
    draw();
  },
};
