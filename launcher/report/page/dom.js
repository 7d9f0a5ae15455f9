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

/** Seconds with a suitable unit: "214.8 us", "1.52 s". */
export function secondsText(seconds) {
  const [scale, unit] =
    seconds >= 1 ? [1, 's'] : seconds >= 1e-3 ? [1e3, 'ms'] : seconds >= 1e-6 ? [1e6, 'us'] : [1e9, 'ns'];
  return `${Number((seconds * scale).toPrecision(4))} ${unit}`;
}

export const percentText = (fraction) => `${(100 * fraction).toFixed(fraction > 0 && fraction < 0.1 ? 1 : 0)} %`;

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

/** The colour of a category, by its index. */
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
export const colourOf = (index) => palette[index % palette.length];

/** Returns a legend: [[name, colour, text], ...]. */
export const legend = (entries) =>
  h(
    'ul',
    {class: 'legend'},
    entries.map(([name, colour, text]) =>
      h(
        'li',
        {},
        h('span', {class: 'swatch', style: `background:${colour}`}),
        name,
        text ? h('span', {class: 'hint'}, ` ${text}`) : null,
      ),
    ),
  );

/**
 * Returns a canvas that draws itself when its size or the colours change. `draw(context, width, height, theme)` uses CSS
 * pixels; theme has the colours `text`, `faint`, `line`, `back`, `accent`, `bad`.
 */
export function canvas(height, label, draw) {
  const element = h('canvas', {role: 'img', 'aria-label': label, style: `height:${height}px`});
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
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    text: colour('text'),
    faint: colour('faint'),
    line: colour('line'),
    back: colour('back'),
    accent: colour('accent'),
    bad: colour('bad'),
  };
}
