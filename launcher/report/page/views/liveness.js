import {
  clamp,
  exactBytes,
  figure,
  grouped,
  h,
  legend,
  numberInput,
  percentText,
  secondsText,
  select,
  warning,
} from '../dom.js';
import {colours, curveOfTile, livenessCurve} from '../parts/curve.js';
import {scaleLegend, sumFrame, tileMap} from '../parts/frame.js';
import {chosenOf, cyclesOf, ipuSelect, layerOf, stepText} from '../parts/steps.js';
import {tilePanel} from '../parts/tile_contents.js';
import {Zoom, zoomControls} from '../parts/zoom.js';

/** Returns the name of a step with its layer and device time. */
function describe(job, step) {
  const row = job.stepNames[step]?.row;
  const layer = layerOf(job, step);
  const texts = [stepText(job, step), layer && `layer ${layer}`];
  if (row && row.calls > 0) {
    const cycles = cyclesOf(row.cost) / row.calls;
    const clock = job.profile.device?.clockHz;
    texts.push(
      `${grouped(Math.round(cycles))} cycles${clock ? ` (${secondsText(cycles / clock)}, device clock)` : ''} each time`,
    );
    texts.push(row.plan && `plan: ${row.plan}`);
  }
  return texts.filter(Boolean).join('; ');
}

/** Returns the curve that the controls select: {curve, limit, title, check: text of a difference or ''}. */
function sourceOf(job, chosen) {
  const {source} = chosen;
  const ipu = job.report.ipus[chosen.ipu];
  if (source === 'all') {
    return {curve: ipu.liveness, limit: ipu.capacity, title: `all tiles of IPU ${ipu.number} together`, check: ''};
  }
  const {tile} = source === 'fullest' ? ipu.fullestTile : chosen;
  const computed = curveOfTile(job, chosen.ipu, tile);
  const stated = tile === ipu.fullestTile.tile ? ipu.fullestTile.liveness : null;
  const differs = (sum, k) => sum + computed.alwaysLive !== stated.alwaysLive + (stated.notAlwaysLive[k] ?? 0);
  const step = stated ? computed.notAlwaysLive.findIndex(differs) : -1;
  return {
    curve: stated ?? computed,
    limit: ipu.bytesPerTile,
    title: `tile ${grouped(tile)} of IPU ${ipu.number}`,
    check: step < 0 ? '' : `Warning: the variables of tile ${tile} do not sum to the profile's curve at step ${step}.`,
  };
}

/** Returns the table of the IPUs in a frame: {element, show: (sums, step)}. The sums must agree with the report's liveness. */
function ipuSums(job) {
  const problem = warning();
  const cells = job.report.ipus.map(() => [0, 1, 2, 3, 4, 5].map(() => h('td', {class: 'number'})));
  const head = [
    'IPU',
    'live on all tiles',
    'liveness in the profile',
    'of its memory',
    'fullest tile',
    'tiles over',
    'tiles with bytes beyond the end',
  ].map((text) => h('th', {class: 'number', scope: 'col'}, text));
  const element = h(
    'div',
    {class: 'table'},
    problem,
    h(
      'table',
      {},
      h('thead', {}, h('tr', {}, head)),
      h(
        'tbody',
        {},
        cells.map((row, k) => h('tr', {}, h('td', {class: 'number'}, String(job.report.ipus[k].number)), row)),
      ),
    ),
  );
  const show = (sums, step) => {
    const wrong = [];
    sums.forEach((sum, k) => {
      const {liveness, capacity, number} = job.report.ipus[k];
      const stated = liveness.alwaysLive + (liveness.notAlwaysLive[step] ?? 0);
      if (sum.bytes !== stated) {
        wrong.push(`IPU ${number}: ${exactBytes(sum.bytes)} on its tiles, ${exactBytes(stated)} in the profile`);
      }
      const texts = [
        exactBytes(sum.bytes),
        `${exactBytes(stated)} ${sum.bytes === stated ? '=' : '≠'}`,
        percentText(sum.bytes / capacity, 1),
        `${exactBytes(sum.most)} (tile ${grouped(sum.fullest)})`,
        grouped(sum.over),
        grouped(sum.outside),
      ];
      texts.forEach((text, c) => {
        cells[k][c].textContent = text;
      });
      [sum.over, sum.outside].forEach((count, c) => {
        cells[k][4 + c].className = count > 0 ? 'number bad' : 'number';
      });
    });
    problem.hidden = wrong.length === 0;
    problem.textContent = wrong.length > 0 ? `Warning: sums differ at step ${step}. ${wrong.join('; ')}` : '';
  };
  return {element, show};
}

/** Returns a button for each peak of a curve. */
const peakButtons = (job, peaks, goTo) =>
  peaks.map((peak, k) =>
    h(
      'button',
      {onclick: () => goTo(peak.step), title: stepText(job, peak.step)},
      `${k + 1}: step ${grouped(peak.step)}, ${exactBytes(peak.bytes)}`,
    ),
  );

/** Returns a button for the step at which the plan of an IPU's fullest tile reaches beyond its memory, if it does. */
function overflowButton(job, k, goTo) {
  const {fullestTile, bytesPerTile} = job.report.ipus[k];
  if (fullestTile.peak <= bytesPerTile) {
    return [];
  }
  const {end, variable, step} = job.memory.reach(k, fullestTile.tile);
  const text = `tile ${grouped(fullestTile.tile)} overflows: step ${grouped(step)}`;
  const title = `${variable.name} ends at ${exactBytes(end)}; gaps below it count`;
  return [h('button', {class: 'bad', onclick: () => goTo(step), title}, text)];
}

/** Returns the step of the previous (direction -1) or next (1) peak, around the end if there is none. */
function peakBeside(peaks, step, direction) {
  const steps = peaks.map((peak) => direction * peak.step).sort((a, b) => a - b);
  return direction * (steps.find((one) => one > direction * step) ?? steps[0]);
}

export const view = {
  id: 'liveness',
  title: 'Liveness',
  applies: (job) => (job.report?.ipus.length ?? 0) > 0,
  render(root, job) {
    const chosen = chosenOf(job);
    const {steps} = job.report;
    const state = {waiting: false, peaks: []};
    chosen.source ??= 'all';
    const goTo = (step) => {
      chosen.step = clamp(step, 0, steps - 1);
      zoom.include(chosen.step);
      soon();
    };
    const zoom = new Zoom(steps);
    const chart = {
      job,
      zoom,
      ...sourceOf(job, chosen),
      chosen: () => chosen.step,
      choose: goTo,
      hover: (step) => {
        curve.title = step === null ? '' : hoverText(step);
      },
    };
    const curve = livenessCurve(chart);
    zoom.onchange = () => curve.redraw();
    const map = {
      job,
      sums: sumFrame(job, chosen.step),
      chosen: () => chosen,
      choose: (ipu, tile) => chooseTile(ipu, tile),
    };
    const tiles = tileMap(map);
    const sums = ipuSums(job);
    const panel = tilePanel(job);
    const name = h('p', {role: 'status', style: 'min-height:3em;margin:0'});
    const slider = h('input', {
      type: 'range',
      min: 0,
      max: steps - 1,
      step: 1,
      value: chosen.step,
      'aria-label': 'step of the Program',
      oninput: (event) => goTo(Number(event.target.value)),
    });
    const stepNumber = numberInput(steps - 1, chosen.step, goTo);
    const tileNumber = numberInput(0, chosen.tile, (tile) => chooseTile(chosen.ipu, tile));
    const around = [
      ['previous peak', -1],
      ['next peak', 1],
    ].map(([text, direction]) =>
      h(
        'button',
        {
          onclick: () => {
            if (state.peaks.length > 0) {
              goTo(peakBeside(state.peaks, chosen.step, direction));
            }
          },
        },
        text,
      ),
    );
    const ipus = h('div');
    const buttons = h('div', {class: 'controls'});
    const caption = h('span');
    const curveCheck = warning();
    const hint = h('p', {class: 'hint'});

    const hoverText = (step) =>
      `${stepText(job, step)}: ${exactBytes(chart.curve.alwaysLive + (chart.curve.notAlwaysLive[step] ?? 0))} live`;

    function chooseTile(ipu, tile) {
      const moved = ipu !== chosen.ipu;
      Object.assign(chosen, {ipu, tile: Math.min(tile, job.memory.ipus[ipu].tiles - 1)});
      if (moved || chosen.source === 'chosen') {
        showSource();
      }
      soon();
    }

    /** Shows the chosen IPU's or tile's curve. */
    function showSource() {
      Object.assign(chart, sourceOf(job, chosen));
      const {peaks} = chart.curve.peaks.length > 0 ? chart.curve : job.report.ipus[chosen.ipu].liveness;
      state.peaks = peaks;
      const owner =
        peaks === chart.curve.peaks ? chart.title : `all tiles of IPU ${job.report.ipus[chosen.ipu].number}`;
      buttons.replaceChildren(
        peaks.length > 0 ? `highest peaks of ${owner}` : '',
        ...peakButtons(job, peaks, goTo),
        ...overflowButton(job, chosen.ipu, goTo),
      );
      caption.textContent =
        `Live bytes of ${chart.title} at each step of the Program, in the Program's order (not a time). ` +
        'Left out: the gaps that the plan leaves between variables. ' +
        'If several steps share a pixel, the fullest of them is drawn. Red: beyond the memory. Numbers: the highest peaks.';
      curveCheck.textContent = chart.check;
      curveCheck.hidden = chart.check === '';
      ipus.replaceChildren(ipuSelect(job, chosen.ipu, (k) => chooseTile(k, chosen.tile)));
      tileNumber.max = job.memory.ipus[chosen.ipu].tiles - 1;
      curve.redraw();
    }

    /** Draws everything that depends on the step. */
    function frame() {
      const begin = performance.now();
      map.sums = sumFrame(job, chosen.step);
      tiles.redraw();
      curve.redraw();
      panel.show(chosen.ipu, chosen.tile, chosen.step);
      sums.show(map.sums, chosen.step);
      slider.value = chosen.step;
      slider.setAttribute('aria-valuetext', stepText(job, chosen.step));
      name.textContent = describe(job, chosen.step);
      [stepNumber, tileNumber].forEach((input, k) => {
        if (input !== document.activeElement) {
          input.value = k === 0 ? chosen.step : chosen.tile;
        }
      });
      const time = performance.now() - begin;
      document.body.dataset.frameMs = time.toFixed(1);
      hint.textContent = `This frame took ${time.toFixed(1)} ms (wall clock of the browser).`;
    }

    function soon() {
      if (!state.waiting) {
        state.waiting = true;
        requestAnimationFrame(() => {
          state.waiting = false;
          frame();
        });
      }
    }

    const source = select(
      [
        ['all', 'all tiles'],
        ['fullest', 'the fullest tile'],
        ['chosen', 'the chosen tile'],
      ],
      chosen.source,
      (value) => {
        chosen.source = value;
        showSource();
        soon();
      },
    );
    root.append(
      h('h1', {}, 'Liveness'),
      h(
        'div',
        {class: 'controls'},
        ipus,
        h('label', {}, 'curve of ', source),
        zoomControls(zoom, 'steps', () => chosen.step),
      ),
      figure(
        caption,
        curve,
        legend([
          ['always live', colours.always],
          ['not always live', colours.notAlways],
          ['beyond the memory', '#e0201b'],
        ]),
      ),
      curveCheck,
      buttons,
      h(
        'div',
        {class: 'scrub', style: `top:${document.getElementById('header').offsetHeight}px`},
        h(
          'div',
          {class: 'controls'},
          h('label', {}, 'step ', stepNumber),
          h('span', {class: 'hint'}, `of 0 to ${grouped(steps - 1)}`),
          around,
          slider,
        ),
        name,
      ),
      h('h2', {}, 'All tiles at this step'),
      figure(
        [
          'A cell for each tile, row by row, 64 in a row. Colour: live bytes relative to the memory of the tile, without gaps. ',
          'Click a tile, or use the arrow keys; Page Up and Page Down change the IPU.',
        ],
        scaleLegend(job.report.ipus[0].bytesPerTile),
        tiles,
      ),
      sums.element,
      hint,
      h('h2', {}, 'The chosen tile at this step'),
      h('div', {class: 'controls'}, h('label', {}, 'tile ', tileNumber)),
      panel.element,
    );
    showSource();
    frame();
    setTimeout(frame); // The first frame also lays out the page, so its time is not typical.
  },
};
