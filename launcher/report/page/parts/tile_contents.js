// The contents of a tile at a step: a table of live variables, and a strip of the tile's addresses.
import {
  canvas,
  colourOf,
  counted,
  darker,
  exactBytes,
  figure,
  grouped,
  h,
  legend,
  numeric,
  swatch,
  table,
  warning,
} from '../dom.js';
import {tickDistance, tickText} from './plot.js';
import {operationAt} from './steps.js';

const colourOfHeld = (job, {variable}) => {
  const colour = colourOf(job.report.categories.indexOf(variable.category));
  return variable.alwaysLive ? darker(colour) : colour;
};

/** Returns the last step of the live range that contains a step. */
const endOf = (variable, step) => variable.lives.find((span) => span.first <= step && step <= span.last).last;

function endText(job, variable, step) {
  const end = endOf(variable, step);
  return variable.alwaysLive ? 'always live' : `step ${grouped(end)}: ${operationAt(job, end)}`;
}

/** Returns the sum of live bytes, the end of the highest address, and whether two variables overlap: {live, end, overlap}. */
function extentOf(contents) {
  const extent = {live: 0, end: 0, overlap: null};
  for (const held of contents) {
    extent.live += held.bytes;
    extent.overlap ??= held.offset < extent.end ? held : null;
    extent.end = Math.max(extent.end, held.offset + held.bytes);
  }
  return extent;
}

function mark(context, x, height, text, colour, dash, align) {
  context.strokeStyle = context.fillStyle = colour;
  context.setLineDash(dash);
  context.beginPath();
  context.moveTo(Math.round(x) + 0.5, 14);
  context.lineTo(Math.round(x) + 0.5, height - 16);
  context.stroke();
  context.setLineDash([]);
  context.textAlign = align;
  context.fillText(text, x, 10);
}

/** Returns the strip of addresses. strip: {job, contents, bytesPerTile, interleavedFrom}; the caller may replace `contents`. */
function addressStrip(strip) {
  const {job} = strip;
  let scale = 1;
  const element = canvas(86, 'addresses of what is live on the tile', (context, width, height, theme) => {
    const most = Math.max(strip.bytesPerTile, extentOf(strip.contents).end);
    scale = width / most;
    context.fillStyle = '#ffffff';
    context.fillRect(0, 18, width, height - 36);
    for (const held of strip.contents) {
      const from = held.offset * scale;
      context.fillStyle = colourOfHeld(job, held);
      context.fillRect(from, 18, Math.max(0.5, held.bytes * scale - 0.5), height - 36);
    }
    context.strokeStyle = theme.line;
    context.strokeRect(0.5, 18.5, width - 1, height - 37);
    context.fillStyle = theme.faint;
    context.textAlign = 'center';
    for (let at = 0, distance = tickDistance(most, 10); at <= most; at += distance) {
      context.fillText(tickText(at), Math.min(Math.max(at * scale, 12), width - 24), height - 4);
    }
    if (strip.interleavedFrom > 0) {
      mark(context, strip.interleavedFrom * scale, height, 'interleaved from here on', theme.accent, [3, 3], 'left');
    }
    mark(
      context,
      Math.min(strip.bytesPerTile * scale, width - 1),
      height,
      "end of the tile's memory",
      theme.bad,
      [6, 4],
      'right',
    );
  });
  element.addEventListener('mousemove', (event) => {
    const at = event.offsetX / scale;
    const held = strip.contents.find((one) => one.offset <= at && at < one.offset + one.bytes);
    element.title = held
      ? `${held.variable.name}: ${exactBytes(held.bytes)} from offset ${exactBytes(held.offset)}`
      : 'unused';
  });
  return element;
}

/** Returns the table of the variables that are live. */
function contentsTable(job, contents, step) {
  const {categories} = job.report;
  return table(
    [
      numeric('offset', (held) => held.offset, exactBytes),
      numeric('bytes', (held) => held.bytes, exactBytes),
      {
        title: 'variable',
        value: (held) => held.variable.name,
        text: (held) => h('span', {}, swatch(colourOf(categories.indexOf(held.variable.category))), held.variable.name),
      },
      {title: 'category', value: (held) => held.variable.category},
      {
        title: 'live until',
        value: (held) => (held.variable.alwaysLive ? Infinity : endOf(held.variable, step)),
        text: (held) => endText(job, held.variable, step),
      },
    ],
    contents,
    {sort: 1, limit: 40, filter: true, label: 'live variables'},
  );
}

/** Returns the panel of a tile: {element, show: (ipu, tile, step)}. */
export function tilePanel(job) {
  const strip = {job, contents: [], bytesPerTile: 1, interleavedFrom: 0};
  const canvasOfStrip = addressStrip(strip);
  const sum = h('p', {role: 'status'});
  const problem = warning();
  const rows = h('div');
  const key = h('div');
  const element = h(
    'section',
    {'aria-label': 'contents of the tile'},
    sum,
    problem,
    figure(
      'Addresses from 0 to the end of the tile: white is unused at this step. Darker: always live.',
      canvasOfStrip,
      key,
    ),
    rows,
  );

  function show(k, tile, step) {
    const ipu = job.report.ipus[k];
    strip.contents = job.memory.contents(k, tile, step);
    Object.assign(strip, {bytesPerTile: ipu.bytesPerTile, interleavedFrom: ipu.interleavedFrom ?? 0});
    canvasOfStrip.redraw();
    const {live, end, overlap} = extentOf(strip.contents);
    sum.textContent =
      `IPU ${ipu.number}, tile ${grouped(tile)}, step ${grouped(step)}: ${exactBytes(live)} live in ` +
      `${counted(strip.contents.length, 'variable')}; the last of them ends at offset ${exactBytes(end)}, with ${exactBytes(end - live)} unused below.`;
    problem.textContent = overlap
      ? `Warning: '${overlap.variable.name}' overlaps another live variable.`
      : end > ipu.bytesPerTile
        ? `${exactBytes(end - ipu.bytesPerTile)} beyond the tile's memory of ${exactBytes(ipu.bytesPerTile)}.`
        : '';
    problem.hidden = problem.textContent === '';
    const present = job.report.categories.filter((name) =>
      strip.contents.some((held) => held.variable.category === name),
    );
    key.replaceChildren(
      legend(
        present.map((name) => [
          name,
          colourOf(job.report.categories.indexOf(name)),
          exactBytes(strip.contents.reduce((all, held) => all + (held.variable.category === name ? held.bytes : 0), 0)),
        ]),
      ),
    );
    const filter = rows.querySelector('input')?.value ?? '';
    rows.replaceChildren(contentsTable(job, strip.contents, step));
    if (filter !== '') {
      const input = rows.querySelector('input');
      input.value = filter;
      input.dispatchEvent(new Event('input'));
    }
  }
  return {element, show};
}
