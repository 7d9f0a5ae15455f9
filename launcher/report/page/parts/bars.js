// One bar whose parts sum to a stated whole, with a table of the parts.
import {grouped, h} from '../dom.js';

const percent = (part, whole) => `${((100 * part) / whole).toFixed(1)} %`;

/**
 * Returns a bar and its parts: [{name, colour, amount}], with amounts in `unit`. The bar is as long as `whole`; a part beyond
 * `limit` is marked. Parts of 0 are left out.
 */
export function shareBar(parts, whole, unit, limit = whole) {
  const shown = parts.filter((part) => part.amount > 0);
  const label = shown.map((part) => `${part.name} ${percent(part.amount, whole)}`).join(', ');
  const line = limit < whole ? h('span', {class: 'limit', style: `left:${(100 * limit) / whole}%`}) : null;
  const bar = h(
    'div',
    {class: 'share-bar', role: 'img', 'aria-label': label},
    shown.map((part) =>
      h('span', {
        title: `${part.name}: ${grouped(Math.round(part.amount))} ${unit}, ${percent(part.amount, whole)}`,
        style: `width:${(100 * part.amount) / whole}%;background:${part.colour}`,
      }),
    ),
    line,
  );
  const rows = shown.map((part) =>
    h(
      'tr',
      {},
      h('td', {}, h('span', {class: 'swatch', style: `background:${part.colour}`}), part.name),
      h('td', {class: 'number'}, `${grouped(Math.round(part.amount))} ${unit}`),
      h('td', {class: 'number'}, percent(part.amount, whole)),
    ),
  );
  const sum = shown.reduce((all, part) => all + part.amount, 0);
  rows.push(
    h(
      'tr',
      {},
      h('td', {}, 'all'),
      h('td', {class: 'number'}, `${grouped(Math.round(sum))} ${unit}`),
      h('td', {class: 'number'}, percent(sum, whole)),
    ),
  );
  return [bar, h('table', {}, h('tbody', {}, rows))];
}

/** Returns a small bar for a table's cell. */
export const cellBar = (fraction, colour) =>
  h(
    'span',
    {class: 'share-bar cell-bar'},
    h('span', {style: `width:${100 * Math.min(Math.max(fraction, 0), 1)}%;background:${colour}`}),
  );
