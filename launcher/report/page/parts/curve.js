// The curve of live bytes over the steps of the Program.
import {canvas, darker, exactBytes} from '../dom.js';
import {Plot} from './plot.js';
import {attachZoom} from './zoom.js';

export const colours = {always: darker('#4e79a7'), notAlways: '#4e79a7'};

/** Returns the curve of a tile, as in proto/report.proto, Liveness: {alwaysLive, notAlwaysLive, peaks}. */
export function curveOfTile(job, k, tile) {
  const {steps} = job.report;
  const notAlwaysLive = new Array(steps).fill(0);
  let alwaysLive = 0;
  for (const held of job.memory.contents(k, tile)) {
    if (held.variable.alwaysLive) {
      alwaysLive += held.bytes;
      continue;
    }
    for (const span of held.variable.lives) {
      notAlwaysLive[span.first] += held.bytes;
      if (span.last + 1 < steps) {
        notAlwaysLive[span.last + 1] -= held.bytes;
      }
    }
  }
  for (let step = 1; step < steps; ++step) {
    notAlwaysLive[step] += notAlwaysLive[step - 1];
  }
  return {alwaysLive, notAlwaysLive, peaks: []};
}

/** Returns the consecutive steps of each function: [{name, first, last}]. */
function functionsOf(job) {
  const spans = [];
  for (let step = 0; step < job.report.steps; ++step) {
    const name = job.stepNames[step]?.functionName ?? '';
    if (spans.at(-1)?.name === name) {
      spans.at(-1).last = step;
    } else {
      spans.push({name, first: step, last: step});
    }
  }
  return spans;
}

function drawFunctions(context, plot, functions, theme) {
  const {left, top, zoom} = plot;
  context.textAlign = 'left';
  functions.forEach(({name, first, last}, k) => {
    if (last < zoom.from || first >= zoom.to) {
      return;
    }
    const from = Math.max(plot.x(first), left);
    const to = Math.min(plot.x(last + 1), plot.width);
    if (k % 2 === 1) {
      context.globalAlpha = 0.35;
      context.fillStyle = theme.line;
      context.fillRect(from, top, to - from, plot.base - top);
      context.globalAlpha = 1;
    }
    context.fillStyle = theme.faint;
    if (context.measureText(name).width + 6 < to - from) {
      context.fillText(name, from + 3, 11);
    }
  });
}

/** Draws each step as a column; if several share a pixel, the fullest of them. */
function drawAreas(context, plot, curve, limit, theme) {
  const {left, zoom} = plot;
  const zero = plot.y(0);
  const base = plot.y(curve.alwaysLive);
  for (let step = zoom.from; step < zoom.to;) {
    const x = Math.floor(plot.x(step));
    let most = 0;
    do {
      most = Math.max(most, curve.notAlwaysLive[step] ?? 0);
      ++step;
    } while (step < zoom.to && plot.x(step) < x + 1);
    const wide = Math.max(1, Math.floor(plot.x(step)) - x);
    const high = plot.y(curve.alwaysLive + most);
    context.fillStyle = colours.notAlways;
    context.fillRect(x, high, wide, base - high);
    if (curve.alwaysLive + most > limit) {
      context.fillStyle = '#e0201b';
      context.fillRect(x, high, wide, plot.y(limit) - high);
    }
  }
  context.fillStyle = colours.always;
  context.fillRect(left, base, plot.width - left, zero - base);
  context.fillStyle = theme.line;
  context.fillRect(left, zero, plot.width - left, 1);
}

function drawPeaks(context, plot, peaks, theme) {
  const {top, zoom} = plot;
  context.textAlign = 'center';
  context.fillStyle = theme.text;
  const marked = [];
  peaks.forEach(({step, bytes}, k) => {
    const x = plot.x(step + 0.5);
    if (step >= zoom.from && step < zoom.to && marked.every((other) => Math.abs(x - other) > 11)) {
      marked.push(x);
      context.fillText(String(k + 1), x, Math.max(plot.y(bytes) - 4, top));
    }
  });
}

function drawChosen(context, plot, step, theme) {
  const x = Math.round(plot.x(step + 0.5)) + 0.5;
  if (x > plot.left && x < plot.width) {
    context.strokeStyle = theme.text;
    context.beginPath();
    context.moveTo(x, 14);
    context.lineTo(x, plot.base);
    context.stroke();
  }
}

/**
 * Returns the canvas. chart: {job, zoom, title, curve, limit, chosen: () => step, choose: (step), hover: (step or null)}; the
 * caller may replace `curve`, `limit` and `title` (different for each curve) and call redraw().
 */
export function livenessCurve(chart) {
  const functions = functionsOf(chart.job);
  const plot = new Plot(32);
  const still = document.createElement('canvas'); // Everything except the line of the chosen step.
  const pen = still.getContext('2d');
  let drawn = '';
  const element = canvas(
    230,
    'live bytes at each step of the Program',
    (context, width, height, theme) => {
      const {curve, zoom, limit} = chart;
      const most = Math.max(limit, curve.notAlwaysLive.reduce((a, b) => Math.max(a, b), 0) + curve.alwaysLive) * 1.03;
      Object.assign(plot, {width, height, most, zoom});
      const state = [element.width, element.height, chart.title, zoom.from, zoom.to, theme.back].join();
      if (state !== drawn) {
        drawn = state;
        [still.width, still.height] = [element.width, element.height];
        pen.setTransform(context.getTransform());
        pen.font = context.font;
        drawFunctions(pen, plot, functions, theme);
        plot.drawAxis(pen, theme);
        drawAreas(pen, plot, curve, limit, theme);
        drawPeaks(pen, plot, curve.peaks, theme);
        plot.drawLimit(pen, limit, `memory: ${exactBytes(limit)}`, theme.bad);
      }
      context.drawImage(still, 0, 0, width, height);
      drawChosen(context, plot, chart.chosen(), theme);
    },
    {keys: true},
  );
  attachZoom(element, plot, chart);
  return element;
}
