// The variables of an IPU as a table, and everything about the one that is selected.
import {
  canvas,
  colourOf,
  counted,
  exactBytes,
  facts,
  figure,
  grouped,
  h,
  numeric,
  spanText,
  sumOf,
  table,
  warning,
} from '../dom.js';
import {tickText} from './plot.js';
import {chosenOf, operationAt, stepLink} from './steps.js';

const livesText = (variable) => {
  const spans = variable.lives.slice(0, 3).map(spanText).join(', ');
  const one = variable.lives.length === 1 && variable.lives[0].first === variable.lives[0].last;
  const more = variable.lives.length > 3 ? ` and ${counted(variable.lives.length - 3, 'more span')}` : '';
  return variable.alwaysLive ? 'always live' : `${one ? 'step' : 'steps'} ${spans}${more}`;
};

/** Returns the steps from the last read or write to the end of a variable's last live range, or null if there is no use in it. */
function stepsFreedLate(variable) {
  const last = variable.lives.at(-1);
  if (variable.alwaysLive || !last) {
    return null;
  }
  let use = -1;
  for (const step of [...(variable.readAt ?? []), ...(variable.writtenAt ?? [])]) {
    use = step >= last.first && step <= last.last && step > use ? step : use;
  }
  return use < 0 ? null : last.last - use;
}

/** Returns a list of links to steps, of which the first 12 are shown at once. */
function stepList(job, data, steps) {
  const list = h('ol', {class: 'plain'});
  const add = (count) =>
    list.replaceChildren(
      ...steps.slice(0, count).map((step) => h('li', {}, stepLink(job, data, step))),
      steps.length > count
        ? h(
            'li',
            {},
            h('button', {onclick: () => add(count + 500)}, `show ${grouped(Math.min(500, steps.length - count))} more`),
          )
        : '',
    );
  add(12);
  return steps.length > 0 ? list : 'no operation';
}

/** Returns the spans of tiles that hold equal numbers of bytes of a variable at equal offsets: [{first, last, bytes, offset}]. */
function placesOf(job, k, index) {
  const places = [];
  job.report.ipus[k].classes.forEach((one) => {
    const at = one.variables.indexOf(index);
    if (at >= 0) {
      one.tiles.forEach((span) => places.push({...span, bytes: one.bytes[at], offset: one.offsets[at]}));
    }
  });
  places.sort((a, b) => a.first - b.first);
  return places.reduce((merged, place) => {
    const last = merged.at(-1);
    if (last && last.last + 1 === place.first && last.bytes === place.bytes && last.offset === place.offset) {
      last.last = place.last;
    } else {
      merged.push(place);
    }
    return merged;
  }, []);
}

/** Returns a small figure of a variable's bytes by tile. */
function placesFigure(job, k, variable, places) {
  const tiles = job.memory.ipus[k].tiles;
  const colour = colourOf(job.report.categories.indexOf(variable.category));
  return canvas(70, `bytes of ${variable.name} on each tile`, (context, width, height, theme) => {
    const scale = (width - 62) / tiles;
    context.fillStyle = theme.faint;
    context.textAlign = 'right';
    context.fillText(tickText(variable.largestShare), 56, 12);
    context.fillText('0', 56, height - 14);
    context.textAlign = 'left';
    context.fillText('tile 0', 62, height - 1);
    context.textAlign = 'right';
    context.fillText(grouped(tiles - 1), width, height - 1);
    context.fillStyle = colour;
    for (const {first, last, bytes: own} of places) {
      const tall = ((height - 18) * own) / variable.largestShare;
      const from = Math.floor(62 + first * scale);
      context.fillRect(from, height - 14 - tall, Math.max(1, Math.floor(62 + (last + 1) * scale) - from), tall);
    }
    context.fillStyle = theme.line;
    context.fillRect(62, height - 14, width - 62, 1);
  });
}

function checkOf(places, variable) {
  const sum = sumOf(places, (place) => place.bytes * (place.last - place.first + 1));
  return sum === variable.bytes
    ? h('p', {class: 'hint'}, `Checked: the bytes on all tiles sum to ${exactBytes(variable.bytes)}.`)
    : warning(
        `Warning: the bytes on the tiles sum to ${exactBytes(sum)}, the profile says ${exactBytes(variable.bytes)}.`,
      );
}

function detailOf(job, data, k, index) {
  const variable = job.report.variables[index];
  const places = placesOf(job, k, index);
  const late = stepsFreedLate(variable);
  const spans = h(
    'ol',
    {class: 'plain'},
    variable.lives
      .slice(0, 12)
      .map((span) =>
        h(
          'li',
          {},
          `${spanText(span)}: `,
          stepLink(job, data, span.first, operationAt(job, span.first)),
          span.last > span.first ? [' to ', stepLink(job, data, span.last, operationAt(job, span.last))] : '',
        ),
      ),
    variable.lives.length > 12 ? h('li', {}, `and ${grouped(variable.lives.length - 12)} more spans`) : '',
  );
  const tiles = table(
    [
      {title: 'tiles', value: (row) => row.first, text: spanText},
      numeric('number', (row) => row.last - row.first + 1),
      numeric('bytes per tile', (row) => row.bytes, exactBytes),
      numeric('offset', (row) => row.offset, exactBytes),
    ],
    places,
    {
      limit: 8,
      onselect: (row) => {
        Object.assign(chosenOf(job), {ipu: k, tile: row.first});
        location.hash = `#liveness/${data.jobs.indexOf(job)}`;
      },
    },
  );
  return [
    h('h2', {tabindex: -1}, variable.name),
    h(
      'div',
      {class: 'columns'},
      facts([
        ['category', variable.category],
        ['type', variable.type || 'no tensor'],
        ['bytes', `${exactBytes(variable.bytes)} on ${grouped(variable.tiles)} tiles`],
        ['largest share', `${exactBytes(variable.largestShare)} on one tile`],
        ['live', variable.alwaysLive ? 'always' : spans],
        [
          'freed late',
          late === null
            ? 'not known: no read or write in the last live range'
            : `${counted(late, 'step')} after its last read or write`,
        ],
        ['shares its bytes with', variable.sharedWith.length > 0 ? variable.sharedWith.join(', ') : 'no other tensor'],
      ]),
      facts([
        ['read by', stepList(job, data, variable.readAt ?? [])],
        ['written by', stepList(job, data, variable.writtenAt ?? [])],
      ]),
    ),
    figure(
      'Bytes of this variable on each tile. Select a row to see that tile in the liveness view.',
      placesFigure(job, k, variable, places),
      tiles,
    ),
    checkOf(places, variable),
  ];
}

/** Returns the table of the variables of an IPU, and below it the details of the selected one. */
export function variablesOf(job, data, k) {
  const detail = h('section', {'aria-label': 'selected variable'});
  const rows = job.report.variables
    .map((variable, index) => ({variable, index, late: stepsFreedLate(variable)}))
    .filter((row) => row.variable.ipu === job.report.ipus[k].number);
  const of = (key) => (row) => row.variable[key];
  const columns = [
    {title: 'name', value: of('name')},
    {title: 'category', value: of('category')},
    {title: 'type', value: of('type')},
    numeric('bytes', of('bytes'), exactBytes, 'on all tiles together'),
    numeric('tiles', of('tiles')),
    numeric('largest share', of('largestShare'), exactBytes, 'most bytes on one tile'),
    {
      title: 'live',
      value: (row) => (row.variable.alwaysLive ? -1 : (row.variable.lives[0]?.first ?? 0)),
      text: (row) => livesText(row.variable),
    },
    numeric('read by', (row) => row.variable.readAt?.length ?? 0, String, 'number of operations that read it'),
    {
      title: 'freed late',
      value: (row) => row.late ?? -1,
      number: true,
      text: (row) => (row.late === null ? '-' : counted(row.late, 'step')),
      help: 'steps from the last read or write to the end of the last live range',
    },
  ];
  const select = (row) => {
    detail.replaceChildren(...detailOf(job, data, k, row.index));
    detail.firstChild.focus();
    detail.firstChild.scrollIntoView({block: 'start'});
  };
  const list = table(columns, rows, {sort: 3, limit: 50, filter: true, label: 'variables', onselect: select});
  list.style.maxHeight = '50vh';
  return [
    h(
      'p',
      {class: 'hint'},
      'Bytes are on all tiles together. A variable is freed late if steps pass between its last read or write ',
      'and the end of its live range; inside a repeat or before a call, that can be necessary. Select a row for its readers, writers, ',
      'tiles and the tensors that share its bytes.',
    ),
    list,
    detail,
  ];
}
