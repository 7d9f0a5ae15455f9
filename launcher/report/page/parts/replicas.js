// The speed of each replica over time, from replicas.csv: a map of their times relative to the median, and the slow ones.
import {canvas, clamp, figure, grouped, h, onKeys, rgbOf, secondsText, select, sumOf} from '../dom.js';

const measures = [
  ['compute_seconds', 'in operators'],
  ['exchange_seconds', 'in collectives, with waiting'],
  ['stream_seconds', 'in host streams'],
];
const most = 256; // Replicas that the map shows.
const slowFrom = 1.2; // Times the median.

const median = (values) => {
  const sorted = values.filter((value) => !Number.isNaN(value)).sort((a, b) => a - b);
  return sorted.length === 0 ? NaN : (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2;
};

/**
 * Returns {replicas: [{replica, samples, segments}], attempts: [{attempt, begin, end}]}. A sample is {wall, attempt, steps,
 * ...seconds}, a segment holds those of one attempt. The wall time of each attempt continues that of the attempt before.
 */
export function readReplicas(columns) {
  const byReplica = new Map();
  const attempts = new Map();
  let latest = 0;
  columns.replica.forEach((text, k) => {
    const row = {attempt: Number(columns.attempt?.[k] ?? 0), steps: Number(columns.steps[k])};
    measures.forEach(([name]) => {
      row[name] = Number(columns[name]?.[k] ?? NaN);
    });
    const wall = Number(columns.wall_seconds[k]);
    const attempt = attempts.get(row.attempt) ?? {attempt: row.attempt, offset: wall < latest ? latest : 0};
    row.wall = wall + attempt.offset;
    latest = Math.max(latest, row.wall);
    attempt.begin ??= row;
    attempt.end = !attempt.end || row.steps >= attempt.end.steps ? row : attempt.end;
    attempts.set(row.attempt, attempt);
    const replica = byReplica.get(text) ?? {replica: Number(text), samples: [], segments: []};
    if (replica.samples.at(-1)?.attempt !== row.attempt) {
      replica.segments.push([]);
    }
    replica.samples.push(row);
    replica.segments.at(-1).push(row);
    byReplica.set(text, replica);
  });
  return {replicas: [...byReplica.values()].sort((a, b) => a.replica - b.replica), attempts: [...attempts.values()]};
}

/** Returns the counter of a segment at x, interpolated between its samples. */
function counterAt(samples, axis, x, name) {
  let [low, high] = [0, samples.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    samples[middle][axis] <= x ? (low = middle) : (high = middle);
  }
  const [a, b] = [samples[low], samples[high]];
  return b[axis] === a[axis] ? b[name] : a[name] + ((b[name] - a[name]) * (x - a[axis])) / (b[axis] - a[axis]);
}

/** Returns a replica's seconds per step from x to y, in the latest attempt that has at least half of that; or NaN. */
function secondsPerStep(replica, axis, x, y, name) {
  for (const segment of replica.segments.toReversed()) {
    const from = Math.max(x, segment[0][axis]);
    const to = Math.min(y, segment.at(-1)[axis]);
    if (to - from >= (y - x) / 2) {
      const steps = counterAt(segment, axis, to, 'steps') - counterAt(segment, axis, from, 'steps');
      return steps > 0 ? (counterAt(segment, axis, to, name) - counterAt(segment, axis, from, name)) / steps : NaN;
    }
  }
  return NaN;
}

/** Returns {edges, seconds[replica][interval] per step, ratios, medians} for intervals of steps ('steps') or time ('wall'). */
function intervals(replicas, axis, name) {
  const all = replicas.flatMap((one) => one.segments.flatMap((segment) => [segment[0][axis], segment.at(-1)[axis]]));
  const first = all.reduce((a, b) => Math.min(a, b));
  const last = all.reduce((a, b) => Math.max(a, b));
  const samples = median(replicas.map((one) => one.samples.length));
  const count = Math.max(1, Math.min(Math.floor(samples) - 1, 300, axis === 'steps' ? last - first : 300));
  const edges = Array.from({length: count + 1}, (_, k) => first + ((last - first) * k) / count);
  const seconds = replicas.map((one) => edges.slice(1).map((end, k) => secondsPerStep(one, axis, edges[k], end, name)));
  const medians = edges.slice(1).map((_, k) => median(seconds.map((row) => row[k])));
  return {edges, seconds, medians, ratios: seconds.map((row) => row.map((value, k) => value / medians[k]))};
}

/** Returns the longest stretch of intervals in which a replica is slow, or null: {replica, from, to, factor, seconds, median, toEnd}. */
function slowStretch(data, index) {
  const ratios = data.ratios[index];
  let best = null;
  for (let from = 0; from < ratios.length; ++from) {
    let to = from;
    for (
      let k = from;
      ratios[from] >= slowFrom && k < ratios.length && (ratios[k] >= slowFrom || ratios[k + 1] >= slowFrom);
      ++k
    ) {
      to = ratios[k] >= slowFrom ? k + 1 : to;
    }
    if (to - from > (best ? best.to - best.from : 0)) {
      best = {from, to};
    }
    from = Math.max(from, to - 1);
  }
  if (!best || best.to - best.from < Math.max(2, ratios.length * 0.02)) {
    return null;
  }
  const mean = (list) =>
    list
      .slice(best.from, best.to)
      .filter((x) => !Number.isNaN(x))
      .reduce((sum, x, _, all) => sum + x / all.length, 0);
  return {
    index,
    ...best,
    seconds: mean(data.seconds[index]),
    median: mean(data.medians),
    factor: mean(ratios),
    toEnd: best.to === ratios.length,
  };
}

/** Returns the sentence that names slow replicas. */
export function slowSentence(replicas) {
  if (replicas.length < 2 || replicas.every((one) => one.samples.length < 3)) {
    return 'There are too few samples to compare the replicas.';
  }
  const data = intervals(replicas, 'steps', 'compute_seconds');
  const slow = replicas
    .map((_, index) => slowStretch(data, index))
    .filter(Boolean)
    .sort((a, b) => b.factor * (b.to - b.from) - a.factor * (a.to - a.from));
  if (slow.length === 0) {
    return `No replica needs ${slowFrom} times the median of the replicas or more in operators for long.`;
  }
  const {index, from, to, factor, seconds, median: middle, toEnd} = slow[0];
  const begin = from === 0 ? 'in all steps' : `from about step ${grouped(Math.round(data.edges[from]) + 1)}`;
  const until = toEnd ? (from === 0 ? '' : ' to the end') : ` to about step ${grouped(Math.round(data.edges[to]))}`;
  const others = slow
    .slice(1, 4)
    .map((one) => `replica ${replicas[one.index].replica} (${one.factor.toFixed(2)} times)`)
    .join(', ');
  const when = from === 0 && !toEnd ? until.trim() : `${begin}${until}`;
  return (
    `Replica ${replicas[index].replica} is slow ${when}: it needs ${factor.toFixed(2)} times the median of the replicas in operators, ` +
    `${secondsText(seconds)} instead of ${secondsText(middle)} a step (wall clock), and the other replicas wait for it in collectives.` +
    (others ? ` Also slow: ${others}${slow.length > 4 ? ` and ${slow.length - 4} more` : ''}.` : '')
  );
}

/** Returns the colour of a ratio: red is slower than the median, blue is faster. */
function colourOf(ratio, dark) {
  if (Number.isNaN(ratio)) {
    return 'transparent';
  }
  const part = clamp(Math.log2(ratio), -1, 1);
  const middle = dark ? [44, 52, 60] : [240, 241, 243];
  const end = part > 0 ? (dark ? [255, 96, 80] : [196, 30, 30]) : dark ? [90, 160, 255] : [30, 90, 190];
  return `rgb(${middle.map((value, k) => Math.round(value + (end[k] - value) * Math.abs(part))).join(',')})`;
}

/** Returns the map of the replicas as a figure, with a choice of the axis and of what is measured. */
export function replicaMap(replicas, attempts) {
  const state = {axis: 'steps', name: 'compute_seconds', data: null, rows: [], cell: null};
  const status = h(
    'p',
    {class: 'hint', 'aria-live': 'polite'},
    'Move the mouse over the map, or use the arrow keys on it, to read its values.',
  );
  const gutter = 84;
  const shown = Math.min(replicas.length, most);
  const row = Math.max(3, Math.min(18, Math.floor(420 / shown)));
  const left =
    replicas.length > shown
      ? h('span', {}, ` The ${shown} slowest of ${grouped(replicas.length)} replicas are shown.`)
      : '';

  function measure() {
    state.data = intervals(replicas, state.axis, state.name);
    const worst = (index) => sumOf(state.data.ratios[index], (ratio) => (ratio > 1 ? ratio - 1 : 0));
    const order = replicas.map((_, index) => index);
    state.rows =
      replicas.length > shown
        ? order
            .sort((a, b) => worst(b) - worst(a))
            .slice(0, shown)
            .sort((a, b) => a - b)
        : order;
    picture?.redraw();
  }

  const edgeText = (x) => (state.axis === 'steps' ? grouped(Math.round(x)) : `${x.toFixed(1)} s`);

  function draw(context, width, height, theme) {
    const {ratios, edges} = state.data;
    const count = edges.length - 1;
    const size = (width - gutter) / count;
    const dark = rgbOf(theme.back)[0] < 128;
    context.textBaseline = 'middle';
    state.rows.forEach((index, k) => {
      if (row >= 11 || k % Math.ceil(11 / row) === 0) {
        context.fillStyle = theme.text;
        context.fillText(`replica ${replicas[index].replica}`, 0, Math.max(k * row + row / 2, 6));
      }
      for (let x = 0; x < count; ++x) {
        context.fillStyle = colourOf(ratios[index][x], dark);
        context.fillRect(gutter + x * size, k * row, Math.ceil(size), row - (row > 5 ? 1 : 0));
      }
    });
    context.fillStyle = theme.faint;
    for (let k = 0; k <= 4; ++k) {
      const x = gutter + ((width - gutter) * k) / 4;
      context.textAlign = k === 0 ? 'left' : k === 4 ? 'right' : 'center';
      context.fillText(edgeText(edges[0] + ((edges.at(-1) - edges[0]) * k) / 4), x, height - 9);
    }
    context.textAlign = 'left';
    context.fillStyle = theme.text;
    for (const attempt of attempts.slice(1)) {
      const x = gutter + ((width - gutter) * (attempt.begin[state.axis] - edges[0])) / (edges.at(-1) - edges[0]);
      context.fillRect(x, 0, 1.5, shown * row + 4);
    }
    if (state.cell) {
      context.strokeStyle = theme.text;
      context.lineWidth = 2;
      context.strokeRect(gutter + state.cell.x * size, state.cell.k * row, Math.max(size, 2), row);
    }
  }

  function choose(x, k) {
    const {edges, seconds, ratios, medians} = state.data;
    state.cell = {x: clamp(x, 0, edges.length - 2), k: clamp(k, 0, state.rows.length - 1)};
    const index = state.rows[state.cell.k];
    const at = state.cell.x;
    const span = `${state.axis === 'steps' ? 'steps' : 'time'} ${edgeText(edges[at])} to ${edgeText(edges[at + 1])}`;
    status.textContent =
      `Replica ${replicas[index].replica}, ${span}: ` +
      (Number.isNaN(ratios[index][at])
        ? 'no samples.'
        : `${secondsText(seconds[index][at])} a step, ${ratios[index][at].toFixed(2)} times the median of ${secondsText(medians[at])}.`);
    picture.redraw();
  }

  const picture = canvas(
    shown * row + 22,
    'Map of the replicas by step or time',
    (...all) => state.data && draw(...all),
    {keys: true},
  );
  picture.addEventListener('pointermove', (event) => {
    if (event.offsetX >= gutter && event.offsetY < shown * row) {
      choose(
        Math.floor(((event.offsetX - gutter) / (picture.clientWidth - gutter)) * (state.data.edges.length - 1)),
        Math.floor(event.offsetY / row),
      );
    }
  });
  const move = (x, k) => () => choose((state.cell?.x ?? 0) + x, (state.cell?.k ?? 0) + k);
  onKeys(picture, () => ({
    ArrowLeft: move(-1, 0),
    ArrowRight: move(1, 0),
    ArrowUp: move(0, -1),
    ArrowDown: move(0, 1),
  }));
  const known = measures.filter(([name]) =>
    replicas.some((one) => one.samples.some((sample) => !Number.isNaN(sample[name]))),
  );
  const choice = (label, choices, field) =>
    h(
      'label',
      {},
      `${label} `,
      select(choices, state[field], (value) => {
        Object.assign(state, {[field]: value, cell: null});
        measure();
      }),
    );
  measure();
  const scale = h(
    'span',
    {class: 'hint'},
    'half the median ',
    h('span', {class: 'ratioScale'}),
    ' twice the median or more',
  );
  return figure(
    [
      'Seconds per step of each replica, relative to the median of all replicas in the same interval. Wall clock of the replicas.',
      attempts.length > 1 ? ' A vertical line marks a restart.' : '',
      left,
    ],
    h(
      'div',
      {class: 'controls'},
      known.length > 1 ? choice('seconds', known, 'name') : h('span', {}, `seconds ${known[0]?.[1] ?? ''}`),
      choice(
        'by',
        [
          ['steps', 'step'],
          ['wall', 'time'],
        ],
        'axis',
      ),
      scale,
    ),
    picture,
    status,
  );
}
