// How training went: curves, the speed of the replicas, restarts, and where the time went.
import {colourOf, counted, facts, figure, grouped, h, legend, percentText, secondsText, sumOf} from '../dom.js';
import {stackBar} from '../parts/bars.js';
import {curveFigure, numberText} from '../parts/uplot_curves.js';
import {readReplicas, replicaMap, slowSentence} from '../parts/replicas.js';

const colours = {train: '#4e79a7', test: '#f28e2b', other: '#59a14f'};

/** Returns the rows of metrics.csv as numbers: [{step, epoch, split, wall, ...}]; cells without a number are NaN. */
function readMetrics(columns) {
  const names = Object.keys(columns).filter((name) => name !== 'split');
  return (columns.step ?? []).map((_, k) => {
    const row = {split: columns.split?.[k] ?? 'train'};
    names.forEach((name) => {
      row[name] = columns[name][k] === '' ? NaN : Number(columns[name][k]);
    });
    return row;
  });
}

/** Returns the last row of each step and split, by step: steps that were done again count once. */
function lastOfEachStep(rows) {
  const last = new Map(rows.map((row) => [`${row.split} ${row.step}`, row]));
  return [...last.values()].sort((a, b) => a.step - b.step);
}

/** Returns xs and a list of values for each split, aligned, with null where a split has no row. */
function aligned(rows, name) {
  const xs = [...new Set(rows.map((row) => row.step))];
  const at = new Map(xs.map((x, k) => [x, k]));
  const splits = [...new Set(rows.map((row) => row.split))];
  const values = splits.map(() => new Array(xs.length).fill(null));
  for (const row of rows) {
    values[splits.indexOf(row.split)][at.get(row.step)] = Number.isFinite(row[name]) ? row[name] : null;
  }
  return {
    xs,
    series: splits
      .map((split, k) => ({
        label: split,
        values: values[k],
        colour: colours[split] ?? colours.other,
        points: values[k].filter((value) => value !== null).length < 100,
      }))
      .filter((one) => one.values.some((value) => value !== null)),
  };
}

function metricFigure(rows, name, title, caption, extra = {}) {
  const {xs, series} = aligned(rows, name);
  return series.length === 0 ? null : curveFigure({title, caption, x: 'step', xs, series, ...extra});
}

/** Returns samples (or steps) per second of wall time between training steps, without the time of evaluations in between. */
function speeds(all, samples) {
  const every = Math.max(1, Math.floor(all.filter((row) => row.split === 'train').length / 200));
  const xs = [];
  const values = [];
  let [from, spent, steps] = [null, 0, 0];
  for (const row of all) {
    if (row.split === 'train' && from && row.step > from.step && row.wall_seconds >= from.wall) {
      spent += row.wall_seconds - from.wall;
      steps += row.step - from.step;
      if (steps >= every && spent > 0) {
        xs.push(row.step);
        values.push((steps * samples) / spent);
        [spent, steps] = [0, 0];
      }
    }
    from = {step: row.step, wall: row.wall_seconds};
  }
  return {xs, values, every};
}

function speedFigure(all, job) {
  const batch = Number(job.profile?.batchSizes?.globalBatchSize ?? 0);
  const {xs, values, every} = speeds(all, batch || 1);
  if (xs.length < 2) {
    return null;
  }
  let least = Infinity; // Of steps that were done again, the last time counts.
  const order = xs
    .map((_, k) => k)
    .reverse()
    .filter((k) => xs[k] < least && ((least = xs[k]), true))
    .reverse();
  const unit = batch ? 'samples/s' : 'steps/s';
  return curveFigure({
    title: unit,
    caption:
      `of all replicas, as a mean over ${counted(every, 'step')}, without evaluations. ` +
      `Wall clock of this machine, not the speed of IPUs.${batch ? ` ${grouped(batch)} samples a step.` : ''}`,
    x: 'step',
    xs: order.map((k) => xs[k]),
    series: [{label: unit, values: order.map((k) => values[k]), colour: colours.other, points: xs.length < 60}],
    range: (_, low, high) => [0, high * 1.05],
  });
}

/** Returns the stretches of steps that were done again: [{from, to}], from the order of the rows. */
function redone(rows) {
  const stretches = [];
  let most = 0;
  let now = null;
  for (const row of rows.filter((one) => one.split === 'train')) {
    if (row.step <= most) {
      now ??= {from: row.step, to: row.step};
      now.to = row.step;
    } else {
      now && stretches.push(now);
      now = null;
      most = row.step;
    }
  }
  return now ? [...stretches, now] : stretches;
}

/** Returns the stretches of steps that replicas did again after a restart, from the samples of each attempt. */
function redoneAfterRestarts(attempts) {
  let most = 0;
  return attempts
    .map(({begin, end}) => {
      const again =
        most > 0 && begin.steps <= most
          ? `from about step ${grouped(begin.steps)} to ${grouped(Math.min(most, end.steps))}`
          : null;
      most = Math.max(most, end.steps);
      return again;
    })
    .filter(Boolean);
}

const attemptText = ({attempt, begin, end}) =>
  `attempt ${attempt}: steps ${grouped(begin.steps)} to ${grouped(end.steps)} in ` + secondsText(end.wall - begin.wall);
const restartsText = (count) => (count === 0 ? 'no restart' : counted(count, 'restart'));

function attemptsSection(job, rows, replicas) {
  const attempts = replicas?.attempts ?? [];
  const again = [
    ...redone(rows).map((one) => `steps ${grouped(one.from)} to ${grouped(one.to)}`),
    ...redoneAfterRestarts(attempts),
  ];
  const resumed = Number(job.profile?.outcome?.resumedAfterStep ?? 0);
  const skipped = Number(job.profile?.outcome?.skippedSteps ?? 0);
  const pairs = [
    attempts.length > 0 && [
      'attempts',
      `${restartsText(attempts.length - 1)}; ` +
        `${attempts.map(attemptText).join('; ')} (wall clock, between the first and the last sample)`,
    ],
    resumed > 0 && ['checkpoint', `the last attempt resumed from the checkpoint of step ${grouped(resumed)}`],
    again.length > 0 && ['done again', again.join('; ')],
    skipped > 0 && ['skipped', `${grouped(skipped)} steps, because a gradient was not finite`],
  ].filter(Boolean);
  return pairs.length === 0 ? null : [h('h2', {}, 'Attempts and checkpoints'), facts(pairs)];
}

const causes = {
  productiveSeconds: 'productive training',
  startSeconds: 'start-up',
  dataSeconds: 'waiting for data',
  checkpointSeconds: 'checkpoints',
  redoneSeconds: 'steps done again',
  downSeconds: 'down, from a failure to the restart',
  evaluationSeconds: 'evaluation',
  otherSeconds: 'not attributed',
};

/** Returns a name for a field: "somethingElseSeconds" becomes "something else". */
const causeText = (name) =>
  causes[name] ?? name.replace(/Seconds$/, '').replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);

function goodputSection(goodput) {
  const fields = Object.entries(goodput).filter(
    ([name, value]) => /Seconds$/.test(name) && name !== 'totalSeconds' && typeof value === 'number',
  );
  const sum = sumOf(fields, ([, value]) => value);
  const total = Number(goodput.totalSeconds ?? sum);
  const rest = total - sum;
  const parts = Math.abs(rest) > 1e-6 * Math.max(total, 1) && rest > 0 ? [...fields, ['otherSeconds', rest]] : fields;
  const shown = parts.map(([name, value], k) => ({
    name: causeText(name),
    colour: name === 'otherSeconds' ? '#9aa5b1' : colourOf(k),
    amount: value / Math.max(total, 1e-9),
    text: secondsText(value),
  }));
  const productive = Number(goodput.productiveSeconds ?? NaN);
  return [
    h('h2', {}, 'Where the wall time went'),
    figure(
      [
        `${secondsText(total)} in all, wall clock. `,
        Number.isFinite(productive) && total > 0
          ? `Goodput: ${percentText(productive / total)} of it was productive training. `
          : '',
        'The parts sum to the total.',
      ],
      sum > total * 1.000001 && h('p', {class: 'bad'}, `The parts sum to ${secondsText(sum)}, more than the total.`),
      stackBar(
        shown.filter((one) => one.amount > 0),
        'parts of the wall time',
      ),
      legend(shown.map((one) => [one.name, one.colour, `${one.text}, ${percentText(one.amount)}`])),
    ),
  ];
}

/** Returns the values of the last rows, as facts. */
function lastFacts(rows, job) {
  const last = (split) => rows.filter((row) => row.split === split).at(-1);
  const text = (row) =>
    row &&
    `step ${grouped(row.step)}: ${['loss', 'accuracy']
      .filter((name) => Number.isFinite(row[name]))
      .map((name) => `${name} ${name === 'accuracy' ? percentText(row[name], 2) : numberText(row[name])}`)
      .join(', ')}`;
  const end = rows.at(-1);
  const wall = job.profile?.wall;
  return facts([
    ['last training step', text(last('train')) ?? 'none'],
    last('test') && ['last evaluation', text(last('test'))],
    end &&
      Number.isFinite(end.wall_seconds) && [
        'wall time',
        `${secondsText(end.wall_seconds)} until then, on this machine`,
      ],
    end &&
      Number.isFinite(end.device_seconds) && [
        'device time',
        `${secondsText(end.device_seconds)} until then, on the emulated IPUs`,
      ],
    wall?.samplesPerSecond > 0 && [
      'speed',
      `${grouped(Math.round(wall.samplesPerSecond))} samples/s in training steps (wall clock)`,
    ],
  ]);
}

export const view = {
  id: 'training',
  title: 'Training',
  applies: (job) =>
    (job.metrics?.step?.length ?? 0) > 0 ||
    Boolean(job.failure) ||
    (job.replicas?.replica?.length ?? 0) > 0 ||
    Boolean(job.profile?.goodput),
  render(root, job) {
    const all = job.metrics?.step ? readMetrics(job.metrics) : [];
    const rows = lastOfEachStep(all);
    const replicas = (job.replicas?.replica?.length ?? 0) > 0 ? readReplicas(job.replicas) : null;
    const rate = Object.keys(job.metrics ?? {}).find((name) => /^(learning[_-]?rate|lr)$/i.test(name));
    root.append(h('h1', {}, job.profile?.config?.inference ? 'Evaluation' : 'Training'));
    if (job.failure) {
      root.append(h('p', {class: 'bad'}, 'The job failed.'), h('pre', {tabindex: 0}, job.failure));
    }
    if (replicas) {
      root.append(h('p', {class: 'lead'}, slowSentence(replicas.replicas)));
    }
    if (rows.length > 0) {
      root.append(
        lastFacts(rows, job),
        h(
          'p',
          {class: 'hint'},
          'Drag over a curve to zoom; a double-click or 0 shows all. With the focus on a curve, left and right move ',
          'the cursor, + and - zoom.',
        ),
        h('div', {class: 'columns'}, [
          metricFigure(rows, 'loss', 'Loss', "by step; training: of the step's samples; test: of the whole test data."),
          metricFigure(rows, 'accuracy', 'Accuracy', 'fraction of the samples, by step.'),
          rate &&
            metricFigure(
              rows.filter((row) => row.split === 'train'),
              rate,
              'Learning rate',
              'by step.',
            ),
          speedFigure(all, job),
        ]),
      );
    }
    if (replicas) {
      root.append(h('h2', {}, 'Replicas'), replicaMap(replicas.replicas, replicas.attempts));
    }
    root.append(
      ...(attemptsSection(job, all, replicas) ?? []),
      ...(job.profile?.goodput ? goodputSection(job.profile.goodput) : []),
    );
  },
};
