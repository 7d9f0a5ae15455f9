// How a job scales: samples/s and efficiency by the number of replicas (poprun-emu scale --report).
import {counted, facts, grouped, h, percentText, secondsText} from '../dom.js';
import {curveFigure} from '../parts/uplot_curves.js';

const colours = {weak: '#4e79a7', strong: '#f28e2b', ideal: '#9aa5b1'};
const parts = [
  ['exchanges with other replicas', 'allReduceSeconds', '#e15759'],
  ['copies between IPUs', 'copySeconds', '#59a14f'],
  ['host and Streaming Memory', 'hostSeconds', '#edc948'],
  ['waiting for other IPUs', 'idleSeconds', '#b07aa1'],
];

/** Returns the compiled jobs of one kind of scaling, in the order of their replicas. */
const jobsOf = (scaling, kind) => scaling.jobs.filter((job) => job.scaling === kind && !job.refusal);
const replicasOf = (jobs) => jobs.map((job) => Number(job.replicas));
const values = (jobs, name) => jobs.map((job) => Number(job[name] ?? 0));

function speed(jobs, kind, colour) {
  const [first] = jobs;
  const ideal = replicasOf(jobs).map((count) => (first.samplesPerSecond * count) / Number(first.replicas));
  return curveFigure({
    title: 'samples/s',
    caption: `of all replicas, on the device clock, beside those of ${counted(Number(first.replicas), 'replica')} times their number.`,
    x: 'replicas',
    xs: replicasOf(jobs),
    logarithmic: 'xy',
    series: [
      {label: `${kind} scaling`, values: values(jobs, 'samplesPerSecond'), colour, points: true},
      {label: 'without losses', values: ideal, colour: colours.ideal, points: false},
    ],
  });
}

function losses(jobs) {
  const shown = parts.filter(([, name]) => jobs.some((job) => job[name] > 0));
  return curveFigure({
    title: 'percent of a step',
    caption: 'in which an IPU waits. An exchange that is hidden behind computation is not counted.',
    x: 'replicas',
    xs: replicasOf(jobs),
    logarithmic: 'x',
    series: shown.map(([label, name, colour]) => ({
      label,
      values: jobs.map((job) => (100 * Number(job[name] ?? 0)) / job.stepSeconds),
      colour,
      points: true,
      unit: ' %',
    })),
    range: (_, low, high) => [0, Math.max(high * 1.05, 1)],
  });
}

function section(scaling, kind, title) {
  const jobs = jobsOf(scaling, kind);
  if (jobs.length < 2) {
    return null;
  }
  const last = jobs.at(-1);
  const disturbed = last.disturbed;
  return [
    h('h2', {}, title),
    facts(
      [
        [
          `${grouped(Number(last.replicas))} replicas`,
          `${grouped(Math.round(last.samplesPerSecond))} samples/s, efficiency ${percentText(last.efficiency)}, ` +
            `steps of ${secondsText(last.stepSeconds)}`,
        ],
        disturbed && [
          'disturbed',
          `median ${secondsText(disturbed.medianStepSeconds)}, 99 % ${secondsText(disturbed.stepSeconds99)}, ` +
            `slowest ${secondsText(disturbed.slowestStepSeconds)}` +
            (disturbed.losses > 0 ? `; ${secondsText(disturbed.lostSeconds)} lost` : ''),
        ],
      ].filter(Boolean),
    ),
    speed(jobs, kind, colours[kind]),
    losses(jobs),
  ];
}

export const view = {
  id: 'scaling',
  title: 'Scaling',
  applies: (job) => (job.scaling?.jobs?.length ?? 0) > 1,
  render(root, job) {
    root.append(
      h('h1', {}, 'Scaling'),
      ...[
        section(job.scaling, 'weak', 'Weak scaling: each replica keeps its batch'),
        section(job.scaling, 'strong', 'Strong scaling: all replicas together keep the batch of the first'),
      ]
        .filter(Boolean)
        .flat(),
    );
  },
};
