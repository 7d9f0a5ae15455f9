// The live bytes of every tile of every IPU at one step, as a map with a cell for each tile.
import {canvas, clamp, grouped, h, onKeys, pixelOf, rgbOf, swatch} from '../dom.js';

const across = 64; // Cells in a row of an IPU's map.
const scale = ['#440154', '#472d7b', '#3b528b', '#2c728e', '#21918c', '#28ae80', '#5ec962', '#addc30', '#fde725'];
const overflow = '#ff2a4d'; // More bytes are live than the tile holds.
const beyond = '#ff8fd8'; // Fewer are live, but some lie beyond the end of the tile's memory.

const [overflowPixel, beyondPixel] = [overflow, beyond].map((colour) => pixelOf(rgbOf(colour)));

/** Colours for fractions from 0 to 1 of a tile's memory, in 256 steps. */
const colours = Uint32Array.from({length: 256}, (_, k) => {
  const at = (k / 255) * (scale.length - 1);
  const [a, b] = [rgbOf(scale[Math.floor(at)]), rgbOf(scale[Math.min(Math.floor(at) + 1, scale.length - 1)])];
  return pixelOf(a.map((from, c) => Math.round(from + (b[c] - from) * (at % 1))));
});

/** Returns by class whether something live at a step lies beyond the tile's memory; false for all tiles that hold their peak. */
function beyondOf(job, k, step) {
  const {classes, bytesPerTile} = job.report.ipus[k];
  const live = job.memory.liveAt(step);
  return classes.map(
    (one) =>
      one.overflowed > 0 &&
      one.variables.some((index, i) => live[index] === 1 && one.offsets[i] + one.bytes[i] > bytesPerTile),
  );
}

/**
 * Sums the live bytes of all tiles at a step, by IPU: [{ofClasses, beyond, bytes, fullest: tile, most: its bytes, over, outside}].
 * `over` counts the tiles with more live bytes than they hold; `outside` counts those of the others on which something lies
 * beyond the end of the memory.
 */
export function sumFrame(job, step) {
  return job.memory.ipus.map((ipu, k) => {
    const ofClasses = job.memory.bytesOfClasses(k, step);
    const sum = {ofClasses, beyond: beyondOf(job, k, step), bytes: 0, fullest: 0, most: -1, over: 0, outside: 0};
    for (let tile = 0; tile < ipu.tiles; ++tile) {
      const c = ipu.classOf[tile];
      sum.bytes += ofClasses[c];
      sum.over += ofClasses[c] > ipu.bytesPerTile ? 1 : 0;
      sum.outside += sum.beyond[c] && ofClasses[c] <= ipu.bytesPerTile ? 1 : 0;
      if (ofClasses[c] > sum.most) {
        sum.most = ofClasses[c];
        sum.fullest = tile;
      }
    }
    return sum;
  });
}

/** Returns the largest cells with which the maps of all IPUs fit: {cell, perRow}, in CSS pixels. */
function fit(ipus, rows, width, height) {
  let best = {cell: 0, perRow: 1};
  for (let perRow = 1; perRow <= ipus; ++perRow) {
    const cell = Math.min(
      (width - 6 - (perRow - 1) * 16) / perRow / across,
      (height / Math.ceil(ipus / perRow) - 24) / rows,
    );
    best = cell > best.cell ? {cell, perRow} : best;
  }
  return {...best, cell: best.cell > 2 ? Math.floor(best.cell * 2) / 2 : best.cell};
}

function paint(image, ipu, sum) {
  const pixels = new Uint32Array(image.data.buffer);
  pixels.fill(0);
  const ofClass = sum.ofClasses.map((bytes, c) =>
    bytes > ipu.bytesPerTile
      ? overflowPixel
      : sum.beyond[c]
        ? beyondPixel
        : colours[Math.floor((255 * bytes) / ipu.bytesPerTile)],
  );
  for (let tile = 0; tile < ipu.tiles; ++tile) {
    pixels[tile] = ofClass[ipu.classOf[tile]];
  }
}

const heights = {1: 330, 2: 260};

/** Returns the canvas; the caller sets `map.sums` and calls redraw(). map: {job, sums, chosen: () => {ipu, tile}, choose: (ipu, tile)}. */
export function tileMap(map) {
  const {job} = map;
  const rows = Math.max(...job.memory.ipus.map((ipu) => Math.ceil(ipu.tiles / across)));
  const small = document.createElement('canvas');
  const pen = small.getContext('2d');
  [small.width, small.height] = [across, rows];
  const image = pen.createImageData(across, rows);
  let at = null;
  const corner = (k) => [
    3 + (k % at.perRow) * (across * at.cell + 16),
    Math.floor(k / at.perRow) * (rows * at.cell + 24) + 18,
  ];
  const draw = (context, width, height, theme) => {
    at = fit(job.memory.ipus.length, rows, width, height);
    context.imageSmoothingEnabled = false;
    job.memory.ipus.forEach((ipu, k) => {
      const [x, y] = corner(k);
      context.fillStyle = theme.text;
      context.fillText(`IPU ${ipu.ipu.number}`, x, y - 5);
      paint(image, ipu, map.sums[k]);
      pen.putImageData(image, 0, 0);
      context.drawImage(small, x, y, across * at.cell, rows * at.cell);
      if (at.cell >= 4) {
        context.fillStyle = theme.back;
        for (let c = 1; c < across; ++c) {
          context.fillRect(Math.round(x + c * at.cell) - 0.5, y, 1, rows * at.cell);
        }
        for (let r = 1; r < rows; ++r) {
          context.fillRect(x, Math.round(y + r * at.cell) - 0.5, across * at.cell, 1);
        }
      }
    });
    const {ipu, tile} = map.chosen();
    const [x, y] = corner(ipu);
    for (const [colour, grown] of [
      [theme.back, 1],
      [theme.text, 2.5],
    ]) {
      context.strokeStyle = colour;
      context.lineWidth = 2;
      const size = at.cell + 2 * grown;
      context.strokeRect(
        x + (tile % across) * at.cell - grown,
        y + Math.floor(tile / across) * at.cell - grown,
        size,
        size,
      );
    }
  };
  const element = canvas(heights[job.memory.ipus.length] ?? 490, 'live bytes of every tile at this step', draw, {
    keys: true,
  });
  element.style.cursor = 'crosshair';
  const tileAt = (event) =>
    job.memory.ipus.findIndex((ipu, k) => {
      const [x, y] = corner(k);
      const [c, r] = [Math.floor((event.offsetX - x) / at.cell), Math.floor((event.offsetY - y) / at.cell)];
      element.found = r * across + c;
      return c >= 0 && c < across && r >= 0 && element.found < ipu.tiles;
    });
  element.addEventListener('click', (event) => {
    const k = tileAt(event);
    if (k >= 0) {
      map.choose(k, element.found);
    }
  });
  element.addEventListener('mousemove', (event) => {
    const k = tileAt(event);
    element.title =
      k < 0
        ? ''
        : `IPU ${job.report.ipus[k].number}, tile ${grouped(element.found)}: ` +
          `${grouped(map.sums[k].ofClasses[job.memory.ipus[k].classOf[element.found]])} B live`;
  });
  const move = (ipus, tiles) => () => {
    const {ipu, tile} = map.chosen();
    const k = clamp(ipu + ipus, 0, job.memory.ipus.length - 1);
    map.choose(k, clamp(tile + tiles, 0, job.memory.ipus[k].tiles - 1));
  };
  onKeys(element, () => ({
    ArrowLeft: move(0, -1),
    ArrowRight: move(0, 1),
    ArrowUp: move(0, -across),
    ArrowDown: move(0, across),
    PageUp: move(-1, 0),
    PageDown: move(1, 0),
  }));
  return element;
}

/** Returns the explanation of the map's colours. */
export function scaleLegend(bytesPerTile) {
  const stop = (fraction) => `${100 * fraction} % (${grouped(bytesPerTile * fraction)} B)`;
  const bar = `width:220px;height:12px;display:inline-block;background:linear-gradient(to right,${scale.join(',')})`;
  return h(
    'div',
    {class: 'controls hint'},
    'live bytes: ',
    '0 B',
    h('span', {style: bar, role: 'img', 'aria-label': 'colour scale'}),
    `${stop(1)} of a tile's memory`,
    [
      [overflow, 'more than the tile holds'],
      [beyond, "fewer, but some lie beyond the end of the tile's memory"],
    ].map(([colour, text]) => h('span', {}, swatch(colour), text)),
  );
}
