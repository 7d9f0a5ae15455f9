// Elements and numbers as text. Every string reaches the page as text, never as HTML.

/** Returns an element: h('td', {class: 'number', onclick: f}, 'text', otherElement, [more]). Null children are left out. */
export function h(tag, attributes = {}, ...children) {
  const svg = ['svg', 'path', 'rect', 'line', 'text', 'g', 'title'].includes(tag);
  const element = svg ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) {
      element.addEventListener(name.slice(2), value);
    } else if (value !== undefined && value !== null && value !== false) {
      element.setAttribute(name, value === true ? '' : value);
    }
  }
  element.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

const grouping = new Intl.NumberFormat('en-US');

/** 638976 -> "638,976". */
export const grouped = (count) => grouping.format(count);

/** Bytes, exact up to 1 MiB: "638,976 B", "119.5 MiB", "1.20 GiB". */
export function bytesText(bytes) {
  if (bytes < 2 ** 20) {
    return `${grouped(bytes)} B`;
  }
  return bytes < 2 ** 30 ? `${(bytes / 2 ** 20).toFixed(1)} MiB` : `${(bytes / 2 ** 30).toFixed(2)} GiB`;
}

/** Bytes to the last one: "638,976 B". */
export const exactBytes = (count) => `${grouped(count)} B`;

/** Returns "1 step", "12 steps". */
export const counted = (count, noun) => `${grouped(count)} ${noun}${count === 1 ? '' : 's'}`;

/** Returns "7" or "7 to 12". */
export const spanText = ({first, last}) => (first === last ? grouped(first) : `${grouped(first)} to ${grouped(last)}`);

/** Returns the factor and the name of the unit in which to show a time. */
export const unitOf = (seconds) =>
  seconds >= 1 ? [1, 's'] : seconds >= 1e-3 ? [1e3, 'ms'] : seconds >= 1e-6 ? [1e6, 'us'] : [1e9, 'ns'];

/** Seconds with a suitable unit: "214.8 us", "1.52 s". */
export function secondsText(seconds) {
  const [scale, unit] = unitOf(seconds);
  return `${Number((seconds * scale).toPrecision(4))} ${unit}`;
}

/** Returns cycles with their time: "1,234 cycles, 931.3 ns". */
export const cyclesText = (cycles, clock) => `${grouped(cycles)} cycles, ${secondsText(cycles / clock)}`;

/** Returns "42 %"; by default, small fractions have a decimal. */
export const percentText = (fraction, digits = fraction > 0 && fraction < 0.1 ? 1 : 0) =>
  `${(100 * fraction).toFixed(digits)} %`;

/** Returns "1, 2 and 3". */
export const listText = (words) =>
  words.length > 1 ? `${words.slice(0, -1).join(', ')} and ${words.at(-1)}` : words[0];

export const sumOf = (list, of = (one) => one) => list.reduce((sum, one) => sum + of(one), 0);

export const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

/** Returns a square of a colour, for legends and tables. */
export const swatch = (colour) => h('span', {class: 'swatch', style: `background:${colour}`});

/** Returns a paragraph that reports an inconsistency. */
export const warning = (...content) => h('p', {class: 'bad', role: 'alert'}, content);

/** Returns a warning if there are differences; otherwise the text of the check. */
export const verdictOf = (differences, checked) =>
  differences.length === 0
    ? h('p', {class: 'hint'}, checked)
    : warning(
        `Warning: ${grouped(differences.length)} sums differ from the profile. `,
        differences.slice(0, 5).join('; '),
        differences.length > 5 ? ' ...' : '',
      );

/** Returns a select. Each choice is a value or [value, text]; onchange gets the value as a string. */
export const select = (choices, chosen, onchange, label) =>
  h(
    'select',
    {'aria-label': label, onchange: (event) => onchange(event.target.value)},
    choices.map((choice) => {
      const [value, text = value] = [choice].flat();
      return h('option', {value, selected: value === chosen}, text);
    }),
  );

/** Returns a field for a number from 0 to max, which may change; action gets each valid number. */
export const numberInput = (max, value, action) =>
  h('input', {
    type: 'number',
    min: 0,
    max,
    value,
    style: 'width:100px',
    oninput: ({target}) => {
      const number = Number(target.value);
      if (target.value !== '' && number >= 0 && number <= Number(target.max)) {
        action(number);
      }
    },
  });

/** Calls the action of a key that is pressed without a modifier. actionsOf(event) returns the actions by key. */
export function onKeys(element, actionsOf) {
  element.addEventListener('keydown', (event) => {
    const action = !event.ctrlKey && !event.altKey && !event.metaKey && actionsOf(event)[event.key];
    if (action) {
      action();
      event.preventDefault();
      event.stopPropagation();
    }
  });
}

/** Returns a table's column of numbers. */
export const numeric = (title, value, text = grouped, help = undefined) => ({
  title,
  value,
  text: (row) => text(value(row)),
  number: true,
  help,
});

/**
 * Returns a sortable, filterable table that shows at most `limit` rows at first.
 * columns: [{title, value: (row) => sort key, text: (row) => string or element, number: true|false, help}]
 * options: {sort: column index, descending, limit, filter: true shows a filter field, onselect: (row) => ..., label}
 * Rows with onselect can be reached with the Tab and arrow keys, and selected with Enter.
 */
export function table(columns, rows, options = {}) {
  const state = {
    sort: options.sort ?? -1,
    descending: options.descending ?? true,
    limit: options.limit ?? 100,
    filter: '',
  };
  const body = h('tbody');
  const head = h('tr');
  const count = h('p', {class: 'hint'});
  const textOf = (column, row) => (column.text ? column.text(row) : String(column.value(row)));
  const plain = (column, row) => {
    const text = textOf(column, row);
    return typeof text === 'string' ? text : (text?.textContent ?? '');
  };

  function shownRows() {
    const needle = state.filter.toLowerCase();
    const kept = needle
      ? rows.filter((row) => columns.some((c) => plain(c, row).toLowerCase().includes(needle)))
      : [...rows];
    if (state.sort >= 0) {
      const {value} = columns[state.sort];
      const sign = state.descending ? -1 : 1;
      kept.sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        return sign * (x < y ? -1 : x > y ? 1 : 0);
      });
    }
    return kept;
  }

  function drawHead() {
    head.replaceChildren(
      ...columns.map((column, k) => {
        const mark = state.sort === k ? (state.descending ? ' ▾' : ' ▴') : '';
        const sort = () => {
          state.descending = state.sort === k ? !state.descending : (column.number ?? false);
          state.sort = k;
          draw();
          head.children[k].firstChild.focus();
        };
        const order = state.sort === k ? (state.descending ? 'descending' : 'ascending') : 'none';
        return h(
          'th',
          {class: column.number ? 'number' : '', scope: 'col', 'aria-sort': order},
          h('button', {class: 'plain', title: column.help, onclick: sort}, column.title + mark),
        );
      }),
    );
  }

  function keys(event) {
    const next = {ArrowDown: 'nextElementSibling', ArrowUp: 'previousElementSibling'}[event.key];
    if (next) {
      event.currentTarget[next]?.focus();
      event.preventDefault();
    } else if (event.key === 'Enter') {
      event.currentTarget.click();
    }
  }

  function draw() {
    drawHead();
    const kept = shownRows();
    body.replaceChildren(
      ...kept.slice(0, state.limit).map((row) => {
        const cells = columns.map((c) => h('td', {class: c.number ? 'number' : ''}, textOf(c, row)));
        const chosen = options.onselect && {
          tabindex: 0,
          class: 'choice',
          onkeydown: keys,
          onclick: () => options.onselect(row),
        };
        return h('tr', chosen || {}, cells);
      }),
    );
    const more = kept.length - state.limit;
    count.replaceChildren(
      `${grouped(Math.min(kept.length, state.limit))} of ${grouped(kept.length)} rows`,
      more > 0
        ? h(
            'button',
            {
              onclick: () => {
                state.limit += 1000;
                draw();
              },
            },
            `show ${grouped(Math.min(more, 1000))} more`,
          )
        : '',
    );
  }

  draw();
  const filter =
    options.filter &&
    h('input', {
      type: 'search',
      placeholder: 'filter',
      'aria-label': `filter ${options.label ?? 'rows'}`,
      oninput: (event) => {
        state.filter = event.target.value;
        draw();
      },
    });
  return h(
    'div',
    {class: 'table'},
    filter,
    h('table', {}, h('thead', {}, head), body),
    rows.length > state.limit || filter ? count : null,
  );
}

/** Returns a figure with a caption: the caption says what is counted, on which clock, and what is left out. */
export const figure = (caption, ...content) => h('figure', {}, h('figcaption', {}, caption), ...content);

/** Returns pairs of a term and its value as a definition list. Pairs that are null are left out. */
export const facts = (pairs) =>
  h(
    'dl',
    {class: 'facts'},
    pairs.filter(Boolean).map(([term, value]) => [h('dt', {}, term), h('dd', {}, value)]),
  );

const palette = [
  '#4e79a7',
  '#f28e2b',
  '#e15759',
  '#76b7b2',
  '#59a14f',
  '#edc948',
  '#b07aa1',
  '#ff9da7',
  '#9c755f',
  '#86bcb6',
  '#d37295',
  '#a0cbe8',
  '#8cd17d',
  '#b6992d',
  '#499894',
  '#d4a6c8',
  '#868e96',
];

/** Returns the colour of a category, by its index. */
export const colourOf = (index) => palette[index % palette.length];

/** Returns the colour '#rgb' or '#rrggbb' as [red, green, blue]. */
export function rgbOf(colour) {
  const digits = colour.length === 4 ? [...colour.slice(1)].map((c) => c + c).join('') : colour.slice(1, 7);
  return [0, 2, 4].map((k) => parseInt(digits.slice(k, k + 2), 16));
}

/** Returns a pixel of ImageData as one number, on a little-endian machine. */
export const pixelOf = ([red, green, blue]) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;

/** Returns a colour mixed with black (amount < 0) or white (amount > 0). */
export function shade(colour, amount) {
  const [part, target] = [Math.abs(amount), amount < 0 ? 0 : 255];
  return `rgb(${rgbOf(colour).map((value) => Math.round(value * (1 - part) + target * part))})`;
}

/** The categories of bytes that are always live have the darker colour. */
export const darker = (colour) => shade(colour, -0.38);

/** Returns a legend: [[name, colour, text], ...]. */
export const legend = (entries) =>
  h(
    'ul',
    {class: 'legend'},
    entries.map(([name, colour, text]) =>
      h('li', {}, swatch(colour), name, text ? h('span', {class: 'hint'}, ` ${text}`) : null),
    ),
  );

/**
 * Returns a canvas that draws itself when its size or the colours change. `draw(context, width, height, theme)` uses CSS
 * pixels; theme has the colours `text`, `faint`, `line`, `back`, `accent`, `bad`. With `keys`, the canvas takes the focus.
 */
export function canvas(height, label, draw, {keys = false} = {}) {
  const element = h('canvas', {
    role: keys ? 'application' : 'img',
    tabindex: keys ? 0 : null,
    'aria-label': label,
    style: `height:${height}px`,
  });
  const redraw = () => {
    const width = element.clientWidth;
    if (width === 0) {
      return;
    }
    const ratio = window.devicePixelRatio || 1;
    if (element.width !== Math.round(width * ratio) || element.height !== Math.round(height * ratio)) {
      element.width = Math.round(width * ratio);
      element.height = Math.round(height * ratio);
    }
    const context = element.getContext('2d');
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = '12px system-ui, sans-serif';
    draw(context, width, height, theme());
  };
  element.redraw = redraw;
  new ResizeObserver(redraw).observe(element);
  document.addEventListener('themechange', redraw);
  return element;
}

export function theme() {
  const style = getComputedStyle(document.documentElement);
  const names = ['text', 'faint', 'line', 'back', 'accent', 'bad'];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}
