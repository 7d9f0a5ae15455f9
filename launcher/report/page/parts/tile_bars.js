// A bar for each tile of an IPU: its bytes at its own peak, stacked by category or by region.
import {canvas, colourOf, darker, exactBytes, shade} from '../dom.js';
import {Plot} from './plot.js';
import {attachZoom} from './zoom.js';

/** The part of a bar that is not in a category: bytes that the plan leaves unused below a tile's peak. */
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

/** Returns the tile to draw in each column of pixels or, if there is room, each tile: [{tile, x, width}]. */
function columnsOf(tilesOfIpu, ipu, plot) {
  const {zoom, step} = plot;
  const columns = [];
  if (step >= 1) {
    const gap = step >= 5 ? 1 : 0;
    for (let tile = zoom.from; tile < zoom.to; ++tile) {
      const x = Math.round(plot.x(tile));
      columns.push({tile, x, width: Math.max(1, Math.round(plot.x(tile + 1)) - x - gap)});
    }
    return columns;
  }
  const peak = (tile) => ipu.classes[tilesOfIpu.classOf[tile]].peak;
  for (let tile = zoom.from; tile < zoom.to; ++tile) {
    const x = Math.floor(plot.x(tile));
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

/**
 * Returns the canvas. chart: {job, ipu: index, zoom, parts, scale: () => 'memory' or 'fullest', chosen: () => tile,
 * choose: (tile), hover: (tile or null)}; the caller may replace `parts` and call redraw().
 */
export function tileBars(chart) {
  const plot = new Plot(18);
  const draw = (context, width, height, theme) => {
    const ipu = chart.job.report.ipus[chart.ipu];
    const tiles = chart.job.memory.ipus[chart.ipu];
    const most = (chart.scale() === 'fullest' ? ipu.balance.max : Math.max(ipu.bytesPerTile, ipu.balance.max)) * 1.02;
    Object.assign(plot, {width, height, most, zoom: chart.zoom});
    plot.drawAxis(context, theme);
    const columns = columnsOf(tiles, ipu, plot);
    const below = new Float64Array(columns.length);
    chart.parts.forEach((part) => {
      const bytes = Float64Array.from(ipu.classes, part.of);
      context.fillStyle = part.colour;
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
    if (ipu.bytesPerTile <= most) {
      const text = `memory of a tile: ${exactBytes(ipu.bytesPerTile)}`;
      plot.drawLimit(context, ipu.bytesPerTile, text, theme.bad, theme.back);
    }
    const chosen = chart.chosen();
    if (chosen >= chart.zoom.from && chosen < chart.zoom.to) {
      context.strokeStyle = theme.text;
      context.strokeRect(
        Math.round(plot.x(chosen)) - 0.5,
        plot.top - 2,
        Math.max(2, Math.round(plot.step)) + 1,
        plot.base - plot.top + 2,
      );
    }
  };
  const element = canvas(340, 'bytes of each tile at its peak, by category', draw, {keys: true});
  attachZoom(element, plot, chart);
  return element;
}
