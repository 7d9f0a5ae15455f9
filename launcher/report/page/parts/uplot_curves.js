// Curves over steps, drawn by uPlot, in the page's colours and usable with the keyboard.
import uPlot from 'uplot';
import {clamp, figure, grouped, h, onKeys, theme} from '../dom.js';

/** Returns a number for people: six significant digits, or grouped if it is large. */
export const numberText = (value) =>
  value === null || value === undefined || Number.isNaN(value)
    ? '-'
    : Math.abs(value) >= 1e4
      ? grouped(Math.round(value))
      : String(Number(value.toPrecision(6)));

function optionsOf(curve, width) {
  const colours = theme();
  const axis = (extra) => ({
    stroke: colours.faint,
    grid: {stroke: colours.line, width: 1},
    ticks: {stroke: colours.line, width: 1},
    ...extra,
  });
  return {
    width,
    height: curve.height ?? 260,
    legend: {live: true},
    cursor: {drag: {x: true, y: false}, points: {size: 7}},
    scales: {
      x: {time: false, distr: curve.logarithmic ? 3 : 1, log: 2},
      y: {range: curve.range, distr: curve.logarithmic === 'xy' ? 3 : 1},
    },
    axes: [
      axis({values: (_, values) => values.map(numberText)}),
      axis({size: curve.logarithmic === 'xy' ? 92 : 76, values: (_, values) => values.map(numberText)}),
    ],
    series: [
      {label: curve.x, value: (_, value) => numberText(value)},
      ...curve.series.map((one) => ({
        label: one.label,
        stroke: one.colour,
        width: 1.5,
        spanGaps: true,
        points: one.points ? {show: true, size: 7, fill: one.colour, stroke: one.colour} : {show: false},
        value: (_, value) => `${numberText(value)}${one.unit ?? ''}`,
      })),
    ],
  };
}

/** Returns the actions of the keys, which move the cursor by data points and zoom around it. */
function actionsOf(plot, {shiftKey}) {
  const xs = plot.data[0];
  if (xs.length < 2) {
    return {};
  }
  const {min, max} = plot.scales.x;
  const at = plot.cursor.idx ?? xs.findIndex((x) => x >= min && x <= max);
  const move = (by) => () =>
    plot.setCursor({left: plot.valToPos(xs[clamp(at + by, 0, xs.length - 1)], 'x'), top: plot.over.clientHeight / 2});
  const show = (from, to) => () => plot.setScale('x', {min: from, max: to});
  const zoom = (factor) => show(xs[at] - (xs[at] - min) * factor, xs[at] + (max - xs[at]) * factor);
  const all = show(xs[0], xs.at(-1));
  return {
    ArrowLeft: move(shiftKey ? -10 : -1),
    ArrowRight: move(shiftKey ? 10 : 1),
    '+': zoom(0.5),
    '=': zoom(0.5),
    '-': zoom(2),
    Home: all,
    0: all,
  };
}

/**
 * Returns a figure. curve: {title, caption, x: label, xs, series: [{label, values, colour, points, unit}], height,
 * range, logarithmic: 'x', 'xy' or undefined}. */
export function curveFigure(curve) {
  const place = h('div', {
    tabindex: 0,
    role: 'application',
    'aria-label': `${curve.title}: left and right move the cursor, + and - zoom, 0 shows all`,
  });
  const state = {plot: null};
  const build = () => {
    const width = place.clientWidth;
    if (width > 0) {
      state.plot?.destroy();
      state.plot = new uPlot(optionsOf(curve, width), [curve.xs, ...curve.series.map((one) => one.values)], place);
    }
  };
  new ResizeObserver(() =>
    state.plot ? state.plot.setSize({width: place.clientWidth, height: curve.height ?? 260}) : build(),
  ).observe(place);
  document.addEventListener('themechange', build);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', build);
  onKeys(place, (event) => actionsOf(state.plot, event));
  return figure([h('strong', {}, curve.title), ` ${curve.caption}`], place);
}
