// The picture of a timeline: a lane for each part of each IPU, with zoom, pan, search and a description of each bar.
import {canvas, clamp, facts, grouped, h, legend, onKeys, pixelOf, rgbOf, unitOf} from '../dom.js';
import {doings} from '../data.js';
import {kinds} from './timeline_data.js';

const gutter = 112; // Pixels for the lanes' names.
const axis = 22; // Pixels for the times above the lanes.
const shortest = 20; // Cycles: the smallest part of the timeline that is shown.

const help = [
  'Mouse: click a bar to read its details here, drag to move, wheel to zoom (after a click on the picture, or with Ctrl), double-click to ',
  'zoom in. Keys, when the picture has the focus: + and - zoom, left and right move, up and down choose a lane, n and p select its next and ',
  'previous bar, Enter zooms to the bar, Home shows all, Escape shows this text.',
];

const moreText = (count) => (count === 1 ? '1 more bar' : `${grouped(count)} more bars`);
const mixed = (a, b, part) => a.map((value, k) => Math.round(value * part + b[k] * (1 - part)));
const isBright = ([red, green, blue]) => 0.3 * red + 0.59 * green + 0.11 * blue > 128;

/** Returns round numbers for an axis of `width` pixels. */
function ticks(from, to, width) {
  const rough = (to - from) / Math.max(width / 150, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough * 0.999);
  const list = [];
  for (let n = Math.ceil(from / step); n * step < to; ++n) {
    list.push(n * step);
  }
  return {step, list};
}

/** Returns a time with as many digits as distinguish it from the next tick. */
function tickText(seconds, step) {
  const [scale, unit] = unitOf(seconds);
  const digits = clamp(-Math.floor(Math.log10(step * scale) + 1e-9), 0, 12);
  return seconds === 0 ? '0' : `${(seconds * scale).toFixed(digits)} ${unit}`;
}

/**
 * Returns the timeline as an element. `describe(bar, repeat)` returns pairs for the details of a bar, `nameOf(bar)` a
 * short name, and `textOf(step)` the text that the search compares.
 */
export function timelineView(bars, {describe, nameOf, textOf}) {
  const state = {from: 0, to: bars.cycles, lane: 0, chosen: null, faded: null, dragged: null};
  const laneHeight = clamp(Math.floor(520 / bars.lanes.length), 12, 30);
  const height = axis + bars.lanes.length * laneHeight + 12;
  const tip = h('div', {class: 'tip', hidden: true});
  const details = h('div', {class: 'barDetails', 'aria-live': 'polite'});
  const range = h('span', {class: 'hint'});
  const found = h('span', {class: 'hint', 'aria-live': 'polite'});
  let waiting = false;

  const picture = canvas(height, 'Timeline: activity of each IPU by device time', draw, {keys: true});
  picture.style.touchAction = 'none';
  const redraw = () => {
    if (!waiting) {
      waiting = true;
      requestAnimationFrame(() => {
        waiting = false;
        picture.redraw();
      });
    }
  };

  const scaleOf = (width) => (width - gutter) / (state.to - state.from);
  const cycleAt = (x) => state.from + (x - gutter) / scaleOf(picture.clientWidth);
  const topOf = (lane) => axis + lane * laneHeight;
  const laneAt = (y) => Math.floor((y - axis) / laneHeight);

  function show(from, to) {
    const size = clamp(to - from, Math.min(shortest, bars.cycles), bars.cycles);
    state.from = clamp(from, 0, bars.cycles - size);
    state.to = state.from + size;
    redraw();
  }

  function zoom(factor, centre = (state.from + state.to) / 2) {
    show(centre - (centre - state.from) * factor, centre + (state.to - centre) * factor);
  }

  const pan = (part) => show(state.from + part * (state.to - state.from), state.to + part * (state.to - state.from));

  function drawLane(context, image, words, index, width, ratio) {
    const {shares, size, wide} = bars.shares(bars.lanes[index], state.from, state.to, width, {
      edge: 3 * ratio,
      faded: state.faded,
    });
    const rows = image.height;
    const top = Math.round(topOf(index) * ratio);
    const pixels = new Uint32Array(image.data.buffer);
    for (let x = 0; x < width; ++x) {
      let y = rows;
      let sum = 0;
      for (let kind = 0; kind < size && y > 0; ++kind) {
        const share = shares[x * size + kind];
        if (share > 0) {
          sum += share;
          const end = Math.max(Math.round(rows * (1 - sum)), 0);
          for (; y > end; --y) {
            pixels[(y - 1) * width + x] = words[kind];
          }
        }
      }
      for (; y > 0; --y) {
        pixels[(y - 1) * width + x] = words[2 * kinds];
      }
    }
    context.putImageData(image, Math.round(gutter * ratio), top);
    return wide;
  }

  function label(context, wide, index, ratio, right, colours, theme) {
    const middle = topOf(index) + (laneHeight - 3) / 2;
    const clipped = (text, space) => {
      const kept = Math.floor(space / 6.4);
      return text.length <= kept ? text : `${text.slice(0, Math.max(kept - 1, 1))}…`;
    };
    context.textBaseline = 'middle';
    for (const [bar, , a, b] of wide) {
      const left = Math.max(gutter + a / ratio, gutter);
      const end = Math.min(gutter + b / ratio, right);
      context.fillStyle = theme.back;
      context.fillRect(end - 0.5, topOf(index), 0.5, laneHeight - 3);
      if (end - left > 40 && laneHeight >= 15) {
        context.fillStyle = isBright(colours[bars.doing[bar]]) ? '#111' : '#fff';
        context.fillText(clipped(nameOf(bar), end - left - 8), left + 4, middle);
      }
    }
  }

  function drawAxis(context, width, theme) {
    context.textBaseline = 'alphabetic';
    context.strokeStyle = theme.line;
    const scale = scaleOf(width);
    let free = 0;
    const {step, list} = ticks(state.from / bars.clock, state.to / bars.clock, width - gutter);
    for (const seconds of list) {
      const x = gutter + (seconds * bars.clock - state.from) * scale;
      const text = tickText(seconds, step);
      context.fillStyle = theme.faint;
      context.fillRect(x, axis - 6, 1, 6);
      if (x >= free && x + 60 < width) {
        context.fillText(text, x + 3, axis - 8);
        free = x + context.measureText(text).width + 16;
      }
    }
  }

  function drawChosen(context, width, theme) {
    if (!state.chosen) {
      return;
    }
    const begin = bars.beginOf(state.chosen);
    const scale = scaleOf(width);
    const left = Math.max(gutter + (begin - state.from) * scale, gutter);
    const right = Math.min(gutter + (begin + bars.length[state.chosen.bar] - state.from) * scale, width - 1);
    if (right >= gutter && left <= width) {
      context.strokeStyle = theme.text;
      context.lineWidth = 2;
      context.strokeRect(left, topOf(state.chosen.lane) - 1, Math.max(right - left, 2), laneHeight - 1);
    }
  }

  function draw(context, width, all, theme) {
    const start = performance.now();
    const ratio = window.devicePixelRatio || 1;
    const pixels = Math.max(Math.round((width - gutter) * ratio), 1);
    const colours = doings.map(([, colour]) => rgbOf(colour));
    const back = rgbOf(theme.back);
    const words = [
      ...colours.map(pixelOf),
      ...colours.map((colour) => pixelOf(mixed(colour, back, 0.18))),
      pixelOf(mixed(rgbOf(theme.line), back, 0.35)),
    ];
    const image = context.createImageData(pixels, Math.round((laneHeight - 3) * ratio));
    bars.lanes.forEach((lane, index) => {
      const wide = drawLane(context, image, words, index, pixels, ratio);
      label(context, wide, index, ratio, width, colours, theme);
      context.fillStyle = index === state.lane && document.activeElement === picture ? theme.accent : theme.text;
      context.textBaseline = 'middle';
      context.fillText(lane.text, 0, topOf(index) + (laneHeight - 3) / 2);
    });
    drawAxis(context, width, theme);
    drawChosen(context, width, theme);
    context.fillStyle = theme.line;
    context.fillRect(gutter, all - 6, width - gutter, 4);
    context.fillStyle = theme.accent;
    const part = (width - gutter) / bars.cycles;
    context.fillRect(gutter + state.from * part, all - 6, Math.max((state.to - state.from) * part, 3), 4);
    range.textContent =
      `shown: ${grouped(Math.round(state.to - state.from))} of ${grouped(bars.cycles)} cycles, from cycle ` +
      grouped(Math.round(state.from));
    picture.dataset.milliseconds = (performance.now() - start).toFixed(1);
  }

  const pairs = (chosen) => describe(chosen.bar, chosen.repeat);

  function choose(chosen) {
    state.chosen = chosen;
    details.replaceChildren(
      chosen
        ? facts([
            ...pairs(chosen),
            chosen.others > 0 && ['in the same pixel', `${moreText(chosen.others)}; zoom in to see all`],
          ])
        : h('p', {class: 'hint'}, ...help),
    );
    redraw();
  }

  function barAt(event) {
    const lane = laneAt(event.offsetY);
    if (event.offsetX < gutter || !bars.lanes[lane]) {
      return null;
    }
    const half = 0.5 / scaleOf(picture.clientWidth);
    const centre = cycleAt(event.offsetX);
    const found = bars.at(bars.lanes[lane], centre - half, centre + half);
    return found && {...found, lane};
  }

  function hover(event) {
    if (state.dragged) {
      const moved = (state.dragged.x - event.offsetX) / scaleOf(picture.clientWidth);
      state.dragged.far ||= Math.abs(state.dragged.x - event.offsetX) > 3;
      show(state.dragged.from + moved, state.dragged.to + moved);
    }
    const under = state.dragged?.far ? null : barAt(event);
    tip.hidden = !under;
    if (under) {
      tip.replaceChildren(
        ...pairs(under)
          .filter(Boolean)
          .slice(0, 6)
          .map(([term, value]) => h('div', {}, `${term}: ${value}`)),
        under.others > 0 ? h('div', {class: 'hint'}, `and ${moreText(under.others)} in this pixel`) : '',
      );
      const right = event.offsetX > picture.clientWidth - 360;
      tip.style.left = right ? 'auto' : `${event.offsetX + 14}px`;
      tip.style.right = right ? `${picture.clientWidth - event.offsetX + 14}px` : 'auto';
      tip.style.top = `${event.offsetY + 16}px`;
    }
  }

  function reveal(bar) {
    const size = state.to - state.from;
    const begin = bars.beginOf(bar);
    if (begin < state.from || begin + bars.length[bar.bar] > state.to) {
      show(begin - size / 4, begin + (size * 3) / 4);
    }
  }

  function step(back) {
    const lane = bars.lanes[state.lane];
    const from = state.chosen?.lane === state.lane ? bars.beginOf(state.chosen) : back ? state.to : state.from - 1;
    const next = bars.next(lane, from, back);
    if (next) {
      reveal(next);
      choose({...next, lane: state.lane});
    }
  }

  function zoomToChosen() {
    if (state.chosen) {
      const [begin, length] = [bars.beginOf(state.chosen), bars.length[state.chosen.bar]];
      show(begin - length, begin + 2 * length);
    }
  }

  function moveLane(by) {
    state.lane = clamp(state.lane + by, 0, bars.lanes.length - 1);
    redraw();
  }

  const keys = {
    '+': () => zoom(0.5),
    '=': () => zoom(0.5),
    '-': () => zoom(2),
    ArrowLeft: () => pan(-0.2),
    ArrowRight: () => pan(0.2),
    ArrowUp: () => moveLane(-1),
    ArrowDown: () => moveLane(1),
    n: () => step(false),
    p: () => step(true),
    Enter: zoomToChosen,
    Home: () => show(0, bars.cycles),
    0: () => show(0, bars.cycles),
    Escape: () => choose(null),
  };
  onKeys(picture, () => keys);
  picture.addEventListener('focus', redraw);
  picture.addEventListener('blur', redraw);
  picture.addEventListener(
    'wheel',
    (event) => {
      if (event.ctrlKey || event.metaKey || document.activeElement === picture) {
        event.preventDefault();
        Math.abs(event.deltaX) > Math.abs(event.deltaY)
          ? pan(event.deltaX / 800)
          : zoom(1.0015 ** event.deltaY, cycleAt(event.offsetX));
      }
    },
    {passive: false},
  );
  picture.addEventListener('pointerdown', (event) => {
    state.dragged = {x: event.offsetX, from: state.from, to: state.to, far: false};
    picture.setPointerCapture(event.pointerId);
    picture.focus();
  });
  picture.addEventListener('pointermove', hover);
  picture.addEventListener('pointerleave', () => {
    tip.hidden = true;
  });
  picture.addEventListener('pointerup', (event) => {
    const clicked = state.dragged && !state.dragged.far;
    state.dragged = null;
    if (clicked) {
      const under = barAt(event);
      state.lane = under?.lane ?? state.lane;
      choose(under);
    }
  });
  picture.addEventListener('dblclick', (event) => zoom(0.25, cycleAt(event.offsetX)));

  function search(needle) {
    const text = needle.trim().toLowerCase();
    const hits = new Set();
    let cycles = 0;
    state.faded = text ? [] : null;
    for (let k = 0; text && k < bars.count; ++k) {
      state.faded[bars.step[k]] ??= textOf(bars.step[k]).toLowerCase().includes(text) ? 0 : 1;
      if (!state.faded[bars.step[k]]) {
        hits.add(bars.step[k]);
        cycles += bars.length[k] * bars.repeats[k];
      }
    }
    found.textContent = text ? `${grouped(hits.size)} steps, ${grouped(cycles)} cycles in all lanes` : '';
    redraw();
  }

  choose(null);
  const button = (text, title, action) => h('button', {title, 'aria-label': title, onclick: action}, text);
  return h(
    'div',
    {},
    h(
      'div',
      {class: 'controls'},
      button('+', 'zoom in', () => zoom(0.5)),
      button('−', 'zoom out', () => zoom(2)),
      button('◂', 'move left', () => pan(-0.5)),
      button('▸', 'move right', () => pan(0.5)),
      button('all', 'show the whole call', () => show(0, bars.cycles)),
      h('input', {
        type: 'search',
        placeholder: 'highlight operations',
        'aria-label': 'highlight operations',
        oninput: (event) => search(event.target.value),
      }),
      found,
      range,
    ),
    legend([
      ...doings.map(([name, colour]) => [name, colour]),
      ['idle', 'color-mix(in srgb, var(--line) 35%, var(--back))'],
    ]),
    h('div', {class: 'overlaid'}, picture, tip),
    details,
  );
}
