// A horizontal window over numbered items (tiles or steps) that the mouse and the keyboard move.
import {clamp, grouped, h, onKeys} from '../dom.js';

export class Zoom {
  constructor(count) {
    this.count = count;
    this.onchange = () => {};
    this.from = 0;
    this.to = count;
  }

  get size() {
    return this.to - this.from;
  }

  /** Shows `size` items from `from` on or, near the end, the last `size` items. */
  set(from, size) {
    const kept = clamp(Math.round(size), Math.min(8, this.count), this.count);
    this.from = clamp(Math.round(from), 0, this.count - kept);
    this.to = this.from + kept;
    this.onchange();
  }

  /** Changes the size by a factor; the item `centre` stays where it is. */
  by(factor, centre = this.from + this.size / 2) {
    const size = this.size * factor;
    this.set(centre - (centre - this.from) * factor, size);
  }

  /** Moves the window if an item is outside. */
  include(item) {
    if (item < this.from || item >= this.to) {
      this.set(item - this.size / 2, this.size);
    }
  }

  all() {
    this.set(0, this.count);
  }
}

/** Returns buttons and a range input that move the window. `centre()` returns the item to zoom at. */
export function zoomControls(zoom, items, centre) {
  const text = h('span', {class: 'hint'});
  const position = h('input', {
    type: 'range',
    min: 0,
    step: 1,
    'aria-label': `first of the ${items} shown`,
    style: 'width:160px',
    oninput: (event) => zoom.set(Number(event.target.value), zoom.size),
  });
  const button = (sign, label, action) =>
    h('button', {type: 'button', 'aria-label': label, title: label, onclick: action}, sign);
  const before = zoom.onchange;
  zoom.onchange = () => {
    text.textContent = `${items} ${grouped(zoom.from)} to ${grouped(zoom.to - 1)} of ${grouped(zoom.count)}`;
    position.max = zoom.count - zoom.size;
    position.value = zoom.from;
    position.disabled = zoom.size === zoom.count;
    before();
  };
  zoom.onchange();
  return [
    button('+', `zoom in on the ${items} (key +)`, () => zoom.by(0.5, centre())),
    button('−', `zoom out of the ${items} (key -)`, () => zoom.by(2, centre())),
    button('all', `show all ${items} (key 0)`, () => zoom.all()),
    position,
    text,
  ];
}

/**
 * Lets a focused canvas choose an item with the arrow keys, and zoom with +, -, 0, by dragging over the items (a double
 * click shows all again) and by the wheel with Ctrl. chart: {zoom, chosen: () => item, choose, hover}.
 */
export function attachZoom(canvas, plot, chart) {
  const {zoom} = chart;
  const move = (by) => () => {
    const item = clamp(chart.chosen() + by, 0, zoom.count - 1);
    zoom.include(item);
    chart.choose(item);
  };
  const scale = (factor) => () => zoom.by(factor, chart.chosen());
  onKeys(canvas, ({shiftKey}) => ({
    ArrowLeft: move(shiftKey ? -10 : -1),
    ArrowRight: move(shiftKey ? 10 : 1),
    PageUp: move(-64),
    PageDown: move(64),
    Home: move(-zoom.count),
    End: move(zoom.count),
    '+': scale(0.5),
    '=': scale(0.5),
    '-': scale(2),
    0: () => zoom.all(),
  }));
  canvas.style.cursor = 'crosshair';
  let begin = null;
  canvas.addEventListener('pointerdown', (event) => {
    begin = event.offsetX;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener('pointermove', (event) => chart.hover(plot.itemAt(event.offsetX)));
  canvas.addEventListener('pointerleave', () => chart.hover(null));
  canvas.addEventListener('pointerup', (event) => {
    const [a, b] = [plot.itemAt(Math.min(begin ?? 0, event.offsetX)), plot.itemAt(Math.max(begin ?? 0, event.offsetX))];
    if (begin !== null && Math.abs(event.offsetX - begin) > 8 && b > a) {
      zoom.set(a, b - a + 1);
    } else {
      chart.choose(plot.itemAt(event.offsetX));
    }
    begin = null;
  });
  canvas.addEventListener('dblclick', () => zoom.all());
  canvas.addEventListener(
    'wheel',
    (event) => {
      if (event.ctrlKey) {
        event.preventDefault();
        zoom.by(event.deltaY < 0 ? 0.8 : 1.25, plot.itemAt(event.offsetX));
      }
    },
    {passive: false},
  );
}
