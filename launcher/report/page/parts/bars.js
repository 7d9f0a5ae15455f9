// Bars whose parts sum to a whole.
import {grouped, h, percentText, sumOf, swatch} from '../dom.js';

/**
 * Returns a bar and its parts: [{name, colour, amount}], with amounts in `unit`. The bar is as long as `whole`; a part beyond
 * `limit` is marked. Parts of 0 are left out.
 */
export function shareBar(parts, whole, unit, limit = whole) {
  const shown = parts.filter((part) => part.amount > 0);
  const texts = (amount) => [`${grouped(Math.round(amount))} ${unit}`, percentText(amount / whole, 1)];
  const label = shown.map((part) => `${part.name} ${texts(part.amount)[1]}`).join(', ');
  const line = limit < whole ? h('span', {class: 'limit', style: `left:${(100 * limit) / whole}%`}) : null;
  const bar = h(
    'div',
    {class: 'share-bar', role: 'img', 'aria-label': label},
    shown.map((part) =>
      h('span', {
        title: `${part.name}: ${texts(part.amount).join(', ')}`,
        style: `width:${(100 * part.amount) / whole}%;background:${part.colour}`,
      }),
    ),
    line,
  );
  const row = (name, amount) =>
    h(
      'tr',
      {},
      h('td', {}, name),
      texts(amount).map((text) => h('td', {class: 'number'}, text)),
    );
  const rows = [
    ...shown.map((part) => row([swatch(part.colour), part.name], part.amount)),
    row(
      'all',
      sumOf(shown, (part) => part.amount),
    ),
  ];
  return [bar, h('table', {}, h('tbody', {}, rows))];
}

/** Returns a bar of parts [{name, colour, amount, text}] without a table. */
export const stackBar = (parts, label) =>
  h(
    'div',
    {class: 'stack', role: 'img', 'aria-label': label},
    parts.map((part) =>
      h('span', {
        style: `background:${part.colour};flex:${part.amount} 0 0`,
        title: `${part.name}: ${part.text}`,
      }),
    ),
  );

/** Returns a small bar for a table's cell. */
export const cellBar = (fraction, colour) =>
  h('span', {class: 'share-bar cell-bar'}, h('span', {style: `width:${100 * fraction}%;background:${colour}`}));
