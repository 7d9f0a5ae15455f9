// When each IPU does what, in one call of the function that the host calls.
import {cyclesText, facts, figure, grouped, h, numeric, percentText, secondsText, sumOf, table} from '../dom.js';
import {doings} from '../data.js';
import {Bars} from '../parts/timeline_data.js';
import {timelineView} from '../parts/timeline_canvas.js';
import {scheduleFigure} from '../parts/schedule.js';
import {limitSentence, microBatchFunctions, utilisationSection} from '../parts/utilisation.js';

const laneNames = ['tiles', 'links', 'I/O tiles'];

/** Returns a function that lists the properties of a bar. */
function describer(bars, job) {
  const parts = microBatchFunctions(job.report);
  return (bar, repeat) => {
    const step = job.stepNames[bars.step[bar]] ?? {};
    const repeats = bars.repeats[bar];
    return [
      ['operation', `${step.text ?? 'unknown'} (step ${grouped(bars.step[bar])})`],
      ['activity', `${doings[bars.doing[bar]][0]}, IPU ${bars.ipu[bar]}, ${laneNames[bars.lane[bar]]}`],
      ['function', step.functionName ?? 'unknown'],
      parts.has(step.functionName) && ['micro-batch', grouped(bars.microBatch[bar] + repeat + 1)],
      ['begins after', cyclesText(bars.begin[bar] + repeat * bars.distance[bar], bars.clock)],
      ['length', cyclesText(bars.length[bar], bars.clock)],
      repeats > 1 && [
        'repeated',
        `bar ${grouped(repeat + 1)} of ${grouped(repeats)} equal bars, one every ${grouped(bars.distance[bar])} cycles`,
      ],
      step.row?.plan && ['plan', step.row.plan],
    ];
  };
}

function timelineFigure(bars, job) {
  const textOf = (step) => `${job.stepNames[step]?.text ?? ''} ${job.stepNames[step]?.functionName ?? ''}`;
  const view = timelineView(bars, {
    describe: describer(bars, job),
    nameOf: (bar) => {
      const {row, text} = job.stepNames[bars.step[bar]] ?? {};
      return row?.name || row?.operation || text || '';
    },
    textOf,
  });
  const left =
    bars.leftOut > 0
      ? h(
          'p',
          {class: 'bad'},
          `${grouped(bars.leftOut)} bars beyond the first ${grouped(bars.count)} are left out: ` +
            'empty places near the end of this picture are not idle time. The figures by IPU below are complete unless they say otherwise.',
        )
      : null;
  return figure(
    [
      `One call of ${job.report.stepFunction}: ${cyclesText(bars.cycles, bars.clock)}. Device clock. `,
      `${grouped(bars.drawn)} bars, stored as ${grouped(bars.count)}. Where a pixel holds several bars, the heights of its colours are `,
      'their shares of its time.',
    ],
    left,
    view,
  );
}

/** Returns the table of busy, idle and activity by IPU. */
function byIpu(bars, job) {
  const stages = job.profile.device?.stages ?? [];
  const sums = bars.sums();
  const complete = bars.leftOut === 0;
  const rows = bars.busy.map((busy, ipu) => ({
    ipu,
    busy,
    sums: sums[ipu] ?? [],
    stages: stages.map((stage, k) => (stage.ipu === ipu ? k : -1)).filter((k) => k >= 0),
  }));
  const time = (cycles) => secondsText(cycles / bars.clock);
  const cycles = (title, of) => numeric(title, of, (count) => h('span', {title: time(count)}, grouped(count)));
  const wrong = complete ? rows.filter((row) => sumOf(row.sums) !== row.busy) : [];
  const used = doings.map((doing, k) => [doing[0], k]).filter(([, k]) => rows.some((row) => row.sums[k] > 0));
  return figure(
    [
      `Cycles of each IPU's tiles in this call of ${grouped(bars.cycles)} cycles. Device clock. Busy is the time in which the tiles do not wait `,
      'for other IPUs of the replica; it includes waiting for the links and for I/O tiles. ',
      complete ? 'Activities sum to busy.' : 'Activities are counted from the bars that are not left out.',
    ],
    wrong.length > 0 &&
      h(
        'p',
        {class: 'bad'},
        `The bars of IPU ${wrong.map((row) => row.ipu).join(', ')} do not sum to its busy cycles.`,
      ),
    table(
      [
        {title: 'IPU', number: true, value: (row) => row.ipu},
        ...(stages.length > 1 ? [{title: 'stages', value: (row) => row.stages.join(', ')}] : []),
        cycles('busy', (row) => row.busy),
        numeric('busy, time', (row) => row.busy, time),
        numeric(
          'busy, share',
          (row) => row.busy,
          (busy) => percentText(busy / bars.cycles),
        ),
        cycles('idle', (row) => bars.cycles - row.busy),
        ...used.map(([name, k]) => cycles(name, (row) => row.sums[k] ?? 0)),
      ],
      rows,
      {limit: 64},
    ),
  );
}

export const view = {
  id: 'execution',
  title: 'Execution',
  applies: (job) => (job.report?.timeline?.begin?.length ?? 0) > 0,
  render(root, job) {
    const device = job.profile.device ?? {};
    const bars = new Bars(job.report.timeline);
    const steps = job.profile.config?.inference ? 'batch' : 'step';
    root.append(
      h('h1', {}, 'Execution'),
      limitSentence(job, bars),
      facts([
        ['device step', `${secondsText(device.stepSeconds)} a ${steps}`],
        ['one call', `${cyclesText(bars.cycles, bars.clock)} at ${(bars.clock / 1e9).toFixed(3)} GHz`],
        device.host?.callsAreCounted && [
          'host call',
          `${secondsText(device.host.callSeconds)} a ${steps} in addition, not part of the timeline`,
        ],
        bars.busy.length > 1 && [
          'busy',
          `${percentText(device.utilisation)} of the IPUs' cycles (IPUs wait for one another in the rest)`,
        ],
      ]),
      h('h2', {}, 'Timeline'),
      timelineFigure(bars, job),
      h('h2', {}, 'Busy and idle by IPU'),
      byIpu(bars, job),
    );
    if (job.report.schedule) {
      root.append(h('h2', {}, 'Schedule of the pipeline'), scheduleFigure(job.report.schedule));
    }
    const formula = utilisationSection(job, bars);
    if (formula) {
      root.append(h('h2', {}, 'Utilisation'), formula);
    }
  },
};
