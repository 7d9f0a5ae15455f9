// Why the job does not fit in memory, and which changes would make it fit.
import {
  bytesText,
  colourOf,
  exactBytes,
  facts,
  figure,
  grouped,
  h,
  numeric,
  percentText,
  secondsText,
  sumOf,
  swatch,
  table,
} from '../dom.js';
import {stackBar} from '../parts/bars.js';

/** Returns the fullest tile of each IPU: [{ipu, tile, needed, available, over}]. */
function fullestTiles(job) {
  return (job.profile.plannedMemory ?? []).map((memory, ipu) => ({
    ipu,
    tile: memory.fullestTile,
    needed: memory.fullestTilePeak,
    available: memory.bytesPerTile,
    over: memory.fullestTilePeak - memory.bytesPerTile,
    streaming: memory.streamingPeak,
    streamingCapacity: memory.streamingCapacity,
  }));
}

function byIpu(tiles) {
  const widest = Math.max(...tiles.map((one) => Math.max(one.needed, one.available)), 1);
  const bar = (row) =>
    h(
      'span',
      {class: 'gauge', title: `${grouped(row.needed)} of ${exactBytes(row.available)}`},
      h('span', {class: row.over > 0 ? 'over' : '', style: `width:${(100 * row.needed) / widest}%`}),
      h('i', {style: `left:${(100 * row.available) / widest}%`}),
    );
  const streaming = tiles.some((row) => row.streaming > 0);
  return figure(
    'The fullest tile of each IPU, at its fullest step, with unused gaps. The mark is the memory of a tile.',
    table(
      [
        {title: 'IPU', number: true, value: (row) => row.ipu},
        numeric('tile', (row) => row.tile),
        numeric('needed, B', (row) => row.needed),
        numeric('available, B', (row) => row.available),
        {
          title: 'over, B',
          number: true,
          value: (row) => row.over,
          text: (row) => (row.over > 0 ? h('span', {class: 'bad'}, grouped(row.over)) : 'fits'),
        },
        {title: 'needed and available', value: (row) => row.needed, text: bar},
        ...(streaming
          ? [
              {
                title: 'Streaming Memory',
                number: true,
                value: (row) => row.streaming,
                text: (row) =>
                  h(
                    'span',
                    {class: row.streaming > row.streamingCapacity ? 'bad' : ''},
                    `${bytesText(row.streaming)} of ${bytesText(row.streamingCapacity)}`,
                  ),
              },
            ]
          : []),
      ],
      tiles,
      {limit: 64},
    ),
  );
}

/** Explains why a tile's need exceeds the bytes that are live at any step, or returns ''. */
function reachText(job, worst) {
  const k = job.report.ipus.findIndex((ipu) => ipu.number === worst.ipu);
  const one = job.report.ipus[k]?.classes[job.memory.ipus[k].classOf[worst.tile]];
  if (!one || one.gaps === 0) {
    return '';
  }
  const {end, variable, step} = job.memory.reach(k, worst.tile);
  return (
    `At most ${exactBytes(one.alwaysLive + one.notAlwaysLive)} are live at a step (${grouped(one.worstStep)}), but a variable keeps its ` +
    `address while others come and go, so gaps arise: ${variable.name} ends at ${exactBytes(end)} from step ${grouped(step)} on.`
  );
}

/** Returns what lies on a tile at its fullest step: a stacked bar by category, and the largest variables. */
function contentsOf(job, worst) {
  const {report} = job;
  const k = report.ipus.findIndex((ipu) => ipu.number === worst.ipu);
  const one = report.ipus[k]?.classes[job.memory.ipus[k].classOf[worst.tile]];
  if (!one) {
    return h('p', {class: 'hint'}, 'The report has no plan of the tiles.');
  }
  const step = one.worstStep;
  const held = job.memory.contents(k, worst.tile, step).sort((a, b) => b.bytes - a.bytes);
  const parts = report.categories
    .map((name, c) => {
      const own = held.filter(({variable}) => variable.category === name);
      const always = own.filter(({variable}) => variable.alwaysLive);
      return {name, colour: colourOf(c), always: bytesOf(always), bytes: bytesOf(own)};
    })
    .filter((part) => part.bytes > 0)
    .sort((a, b) => b.bytes - a.bytes);
  const all = withGaps(parts, one.gaps);
  const total = bytesOf(all);
  const share = (bytes) => percentText(bytes / Math.max(worst.needed, 1));
  const text = job.stepNames[step];
  return [
    figure(
      [
        `Tile ${grouped(worst.tile)} of IPU ${worst.ipu} at step ${grouped(step)}, ${text?.functionName ?? ''}: ${text?.text ?? 'unknown'}. `,
        total === worst.needed
          ? `The parts sum to the ${exactBytes(worst.needed)} that it needs.`
          : `The parts sum to ${exactBytes(total)} of the ${exactBytes(worst.needed)} that it needs.`,
      ],
      stackBar(
        all.map((part) => ({...part, amount: part.bytes, text: exactBytes(part.bytes)})),
        'bytes of the tile by category',
      ),
      h(
        'div',
        {class: 'columns'},
        table(
          [
            {
              title: 'category',
              value: (part) => part.name,
              text: (part) => h('span', {}, swatch(part.colour), part.name),
            },
            numeric('bytes', (part) => part.bytes),
            numeric('share', (part) => part.bytes, share),
            numeric('always live', (part) => part.always),
          ],
          all,
          {limit: 32},
        ),
        table(
          [
            {title: 'largest variables on this tile', value: (part) => part.variable.name},
            numeric('bytes', (part) => part.bytes),
            numeric('share', (part) => part.bytes, share),
            {title: 'category', value: (part) => part.variable.category},
            {title: 'always live', value: (part) => (part.variable.alwaysLive ? 'yes' : 'no')},
          ],
          held,
          {limit: 15, sort: 1},
        ),
      ),
    ),
  ];
}

/** Adds the bytes between the variables to the category "gaps". */
function withGaps(parts, gaps) {
  const known = parts.find((part) => part.name === 'gaps');
  const others = parts.filter((part) => part !== known);
  const bytes = gaps + (known?.bytes ?? 0);
  return bytes > 0 ? [...others, {name: 'gaps', colour: '#9aa5b1', always: known?.always ?? 0, bytes}] : others;
}

const bytesOf = (parts) => sumOf(parts, (part) => part.bytes);

/** Returns an option of a remedy as words of a command: "memory.phases 2" becomes "--memory.phases 2". */
function optionText(option) {
  const [name, ...value] = option.split(' ');
  const joined = value.join(' ');
  return `${name.startsWith('-') ? name : `--${name}`} ${/^(['"]).*\1$/.test(joined) ? joined : shellWord(joined)}`.trim();
}

const shellWord = (text) => (/^[\w@%+=:,./-]*$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

/** Copies the text of an element; if the browser refuses, selects it. */
async function copy(element, status) {
  try {
    await navigator.clipboard.writeText(element.textContent);
    status.textContent = 'copied';
  } catch {
    const range = document.createRange();
    range.selectNodeContents(element);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    status.textContent = document.execCommand?.('copy') ? 'copied' : 'selected; press Ctrl+C';
  }
}

function remediesSection(job) {
  const {remedies} = job.report;
  const available = job.profile.plannedMemory?.[0]?.bytesPerTile ?? 0;
  if (!remedies?.length) {
    return h('p', {}, 'No remedies were tried.');
  }
  const rows = remedies.map((one, k) => ({
    k,
    fits: one.fits,
    options: one.options,
    bytes: one.fullestTileBytes,
    seconds: one.stepSeconds,
    relative: one.timePerSample,
  }));
  let chosen = rows.find((row) => row.fits) ?? rows[0];
  const file = job.name.endsWith('.cfg') ? shellWord(job.name) : 'train.cfg';
  const command = h('pre', {tabindex: 0, 'aria-label': 'command line'});
  const status = h('span', {class: 'hint', 'aria-live': 'polite'});
  const verdict = h('p');
  const show = (row) => {
    chosen = row;
    command.textContent = `poprun-emu profile ${row.options.map(optionText).join(' ')} ${file}`;
    status.textContent = '';
    verdict.className = row.fits ? 'good' : 'bad';
    verdict.textContent = row.fits
      ? 'With these options the job fits:'
      : 'Even with these options the job does not fit:';
  };
  const radio = (row) =>
    h('input', {
      type: 'radio',
      name: 'remedy',
      checked: row === chosen,
      'aria-label': row.options.join(', '),
      onchange: () => show(row),
    });
  const more = (row) =>
    row.relative > 0
      ? `${row.relative >= 1 ? '+' : '−'}${grouped(Number(Math.abs(100 * (row.relative - 1)).toFixed(1)))} %`
      : '-';
  const fitting = rows.filter((row) => row.fits).length;
  show(chosen);
  const result = fitting === 0 ? 'none of them fits' : fitting === 1 ? '1 of them fits' : `${fitting} of them fit`;
  return [
    figure(
      [
        `${grouped(rows.length)} changes were compiled; ${result}. Times of the device clock; the time per sample is relative to the job `,
        'as it is.',
      ],
      table(
        [
          {title: 'try', value: (row) => row.k, text: radio},
          {
            title: 'options, all together',
            value: (row) => row.options.join(' '),
            text: (row) => h('code', {}, row.options.map(optionText).join(' ')),
          },
          {
            title: 'fits',
            value: (row) => row.fits,
            text: (row) => h('span', {class: row.fits ? 'good' : 'bad'}, row.fits ? 'yes' : 'no'),
          },
          numeric('fullest tile, B', (row) => row.bytes),
          {
            title: 'over, B',
            number: true,
            value: (row) => row.bytes - available,
            text: (row) => (row.fits ? '-' : grouped(Math.max(row.bytes - available, 0))),
          },
          {
            title: 'device step',
            number: true,
            value: (row) => row.seconds,
            text: (row) => (row.seconds > 0 ? secondsText(row.seconds) : '-'),
          },
          {title: 'time per sample', number: true, value: (row) => row.relative, text: more},
        ],
        rows,
        {limit: 64},
      ),
    ),
    verdict,
    command,
    h(
      'div',
      {class: 'controls'},
      h('button', {onclick: () => copy(command, status)}, 'copy'),
      status,
      h(
        'span',
        {class: 'hint'},
        file === 'train.cfg'
          ? 'Put the name of your job file for train.cfg, and add the options of your own command.'
          : 'Add the options of your own command.',
      ),
    ),
  ];
}

export const view = {
  id: 'why',
  title: 'Why',
  applies: (job) => Boolean(job.report?.shortage),
  render(root, job) {
    const [first, ...rest] = job.report.shortage.split('\n');
    const sentence = `${first.charAt(0).toUpperCase()}${first.slice(1).replace(/;[^;]*--dry-run[^;]*$/, '')}.`;
    const tiles = fullestTiles(job);
    const worst = tiles.reduce((best, one) => (one.over > best.over ? one : best), tiles[0]);
    root.append(h('h1', {}, 'Why the job does not fit'), h('p', {class: 'lead'}, sentence));
    if (worst) {
      const ratio = worst.needed / Math.max(worst.available, 1);
      const off = tiles.filter((one) => one.streaming > one.streamingCapacity);
      root.append(
        facts([
          worst.over > 0 && [
            'short by',
            `${exactBytes(Math.max(worst.over, 0))} on tile ${grouped(worst.tile)} of IPU ${worst.ipu}: ` +
              `${exactBytes(worst.needed)} needed, ${exactBytes(worst.available)} available (${ratio.toFixed(2)} times)`,
          ],
          [
            'does not fit',
            tiles
              .filter((one) => one.over > 0)
              .map((one) => `IPU ${one.ipu}`)
              .join(', ') || 'none by their tiles',
          ],
          reachText(job, worst) && ['with gaps', reachText(job, worst)],
          ...off.map((one) => [
            `Streaming Memory of IPU ${one.ipu}`,
            `short by ${exactBytes(one.streaming - one.streamingCapacity)}: ${exactBytes(one.streaming)} needed, ` +
              `${exactBytes(one.streamingCapacity)} available`,
          ]),
        ]),
      );
    }
    root.append(h('h2', {}, 'Remedies'), ...[remediesSection(job)].flat());
    if (worst) {
      root.append(
        h('h2', {}, 'What lies there'),
        ...[contentsOf(job, worst)].flat(),
        h('h2', {}, 'By IPU'),
        byIpu(tiles),
      );
    }
    root.append(
      h(
        'details',
        {},
        h('summary', {}, 'The message of the compiler'),
        h('pre', {tabindex: 0}, [first, ...rest].join('\n')),
      ),
    );
  },
};
