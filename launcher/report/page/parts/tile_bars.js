// A bar for each tile of an IPU: its bytes at its own peak, stacked by category or by region.
import {canvas, colourOf, grouped} from '../dom.js';
import {attachZoom} from './zoom.js';
import {darker, shade, tickDistance, tickText} from './steps.js';

const left = 62;
const bottom = 22;
const top = 18;

/** What differs from a category: bytes that the plan leaves unused below a tile's peak. */
const planGaps = {name: 'gaps left by the plan', colour: '#b9bec5', of: (one) => one.gaps};

const used = (ipu, entry) => ipu.classes.some((one) => entry.of(one) > 0);

/** Returns the parts of each bar from the bottom up: [{name, colour, of: (class) => bytes}]. Their sum is the peak. */
export function partsOf(report, ipu, byRegion) {
  const regions = [
    {name: 'always live', colour: darker('#4e79a7'), of: (one) => one.alwaysLive},
    {name: "live at the tile's worst step, not always", colour: '#4e79a7', of: (one) => one.notAlwaysLive},
    planGaps,
  ];
  const names = report.categories.map((name) => (name === 'gaps' ? 'gaps by placement constraints' : name));
  const always = names.map((name, k) => ({
    name: `${name}, always live`,
    colour: darker(colourOf(k)),
    of: (one) => one.atPeak.alwaysLive[k],
  }));
  const notAlways = names.map((name, k) => ({
    name,
    colour: shade(colourOf(k), 0.12),
    of: (one) => one.atPeak.notAlwaysLive[k],
  }));
  return (byRegion ? regions : [...always, ...notAlways, planGaps]).filter((entry) => used(ipu, entry));
}

/** Returns for each part an array of its bytes by class. */
const bytesByClass = (ipu, parts) => parts.map((part) => Float64Array.from(ipu.classes, (one) => part.of(one)));

function drawAxis(context, plot, ipu, zoom, theme) {
  const {width, height, y, most} = plot;
  context.fillStyle = theme.faint;
  context.strokeStyle = theme.line;
  context.textAlign = 'right';
  const distance = tickDistance(most, 5);
  for (let bytes = 0; bytes <= most; bytes += distance) {
    context.fillText(tickText(bytes), left - 6, y(bytes) + 4);
    context.beginPath();
    context.moveTo(left, Math.round(y(bytes)) + 0.5);
    context.lineTo(width, Math.round(y(bytes)) + 0.5);
    context.stroke();
  }
  context.textAlign = 'center';
  const every = Math.max(1, 2 ** Math.ceil(Math.log2(zoom.size / 10)));
  for (let tile = Math.ceil(zoom.from / every) * every; tile < zoom.to; tile += every) {
    context.fillText(grouped(tile), Math.min(left + (tile - zoom.from + 0.5) * plot.step, width - 20), height - 6);
  }
}

/** Returns the tile to draw in each column of pixels or, if there is room, each tile: [{tile, x, width}]. */
function columnsOf(tilesOfIpu, ipu, zoom, step) {
  const columns = [];
  if (step >= 1) {
    const gap = step >= 5 ? 1 : 0;
    for (let tile = zoom.from; tile < zoom.to; ++tile) {
      const x = Math.round(left + (tile - zoom.from) * step);
      columns.push({tile, x, width: Math.max(1, Math.round(left + (tile + 1 - zoom.from) * step) - x - gap)});
    }
    return columns;
  }
  const peak = (tile) => ipu.classes[tilesOfIpu.classOf[tile]].peak;
  for (let tile = zoom.from; tile < zoom.to; ++tile) {
    const x = Math.floor(left + (tile - zoom.from) * step);
    const last = columns.at(-1);
    if (!last || last.x !== x) {
      columns.push({tile, x, width: 1});
    } else if (peak(tile) > peak(last.tile)) {
      last.tile = tile;
    }
  }
  return columns;
}

function drawOverflow(context, columns, peaks, plot, limit) {
  context.fillStyle = '#e0201b';
  columns.forEach(({x, width}, k) => {
    if (peaks[k] > limit) {
      const [from, to] = [plot.y(peaks[k]), plot.y(limit)];
      context.globalAlpha = 0.45;
      context.fillRect(x, from, width, to - from);
      context.globalAlpha = 1;
      context.fillRect(x, from - 3, width, 3);
    }
  });
}

function drawLimit(context, plot, limit, theme) {
  if (limit > plot.most) {
    return;
  }
  const y = Math.round(plot.y(limit)) + 0.5;
  context.strokeStyle = theme.bad;
  context.setLineDash([6, 4]);
  context.beginPath();
  context.moveTo(left, y);
  context.lineTo(plot.width, y);
  context.stroke();
  context.setLineDash([]);
  const text = `memory of a tile: ${grouped(limit)} B`;
  context.fillStyle = theme.back;
  context.fillRect(left + 2, y - 17, context.measureText(text).width + 6, 15);
  context.textAlign = 'left';
  context.fillStyle = theme.bad;
  context.fillText(text, left + 5, y - 5);
}

/**
 * Returns the canvas. chart: {job, ipu: index, zoom, parts, scale: () => 'memory' or 'fullest', chosen: () => tile,
 * choose: (tile), hover: (tile or null)}; the caller may replace `ipu`, `zoom` and `parts` and call redraw().
 */
export function tileBars(chart) {
  const plot = {step: 1};
  const draw = (context, width, height, theme) => {
    const ipu = chart.job.report.ipus[chart.ipu];
    const tiles = chart.job.memory.ipus[chart.ipu];
    const most = (chart.scale() === 'fullest' ? ipu.balance.max : Math.max(ipu.bytesPerTile, ipu.balance.max)) * 1.02;
    Object.assign(plot, {
      width,
      height,
      most,
      step: (width - left) / chart.zoom.size,
      y: (bytes) => top + (height - top - bottom) * (1 - bytes / most),
    });
    drawAxis(context, plot, ipu, chart.zoom, theme);
    const columns = columnsOf(tiles, ipu, chart.zoom, plot.step);
    const below = new Float64Array(columns.length);
    bytesByClass(ipu, chart.parts).forEach((bytes, k) => {
      context.fillStyle = chart.parts[k].colour;
      columns.forEach(({tile, x, width: wide}, c) => {
        const own = bytes[tiles.classOf[tile]];
        if (own > 0) {
          const from = plot.y(below[c] + own);
          context.fillRect(x, from, wide, plot.y(below[c]) - from);
          below[c] += own;
        }
      });
    });
    drawOverflow(context, columns, below, plot, ipu.bytesPerTile);
    drawLimit(context, plot, ipu.bytesPerTile, theme);
    const chosen = chart.chosen();
    if (chosen >= chart.zoom.from && chosen < chart.zoom.to) {
      const x = left + (chosen - chart.zoom.from) * plot.step;
      context.strokeStyle = theme.text;
      context.strokeRect(
        Math.round(x) - 0.5,
        top - 2,
        Math.max(2, Math.round(plot.step)) + 1,
        height - top - bottom + 2,
      );
    }
  };
  const element = canvas(340, 'bytes of each tile at its peak, by category', draw);
  element.setAttribute('role', 'application');
  element.style.cursor = 'crosshair';
  const itemAt = (x) =>
    Math.min(Math.max(chart.zoom.from + Math.floor((x - left) / plot.step), chart.zoom.from), chart.zoom.to - 1);
  attachZoom(element, chart.zoom, {
    itemAt,
    chosen: chart.chosen,
    choose: chart.choose,
    hover: (tile) => chart.hover(tile),
  });
  return element;
}
