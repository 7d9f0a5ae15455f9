import {facts, figure, grouped, h, legend, table} from '../dom.js';
import {checkTiles, tilesOf, verdictOf} from '../parts/checks.js';
import {bytes, chosenOf, ipuSelect, stepLink, stepText} from '../parts/steps.js';
import {partsOf, tileBars} from '../parts/tile_bars.js';
import {variablesOf} from '../parts/variables.js';
import {Zoom, zoomControls} from '../parts/zoom.js';

const spansText = (spans) => {
  const texts = spans
    .slice(0, 6)
    .map(({first, last}) => (first === last ? grouped(first) : `${grouped(first)} to ${grouped(last)}`));
  return texts.join(', ') + (spans.length > 6 ? `, and ${grouped(spans.length - 6)} more spans` : '');
};

/** Returns the exact numbers of a tile: its sum in one sentence, and the bytes of each part. */
function tileText(job, k, tile, parts) {
  const ipu = job.report.ipus[k];
  const one = ipu.classes[job.memory.ipus[k].classOf[tile]];
  const rest =
    one.overflowed > 0
      ? h('span', {class: 'bad'}, `${bytes(one.overflowed)} beyond the tile's memory`)
      : `${bytes(ipu.bytesPerTile - one.peak)} unused`;
  return [
    h(
      'p',
      {},
      h('strong', {}, `Tile ${grouped(tile)}: `),
      `peak ${bytes(one.peak)} = ${bytes(one.alwaysLive)} always live + `,
      `${bytes(one.notAlwaysLive)} live at ${stepText(job, one.worstStep)} + ${bytes(one.gaps)} gaps left by the plan; `,
      rest,
      '.',
    ),
    legend(parts.map((part) => [part.name, part.colour, bytes(part.of(one))])),
  ];
}

function tileTable(job, data, k, choose) {
  const ipu = job.report.ipus[k];
  const number = (title, key, help) => ({
    title,
    value: (row) => row[key],
    text: (row) => bytes(row[key]),
    number: true,
    help,
  });
  const columns = [
    {title: 'tiles', value: (row) => row.tiles[0].first, text: (row) => spansText(row.tiles)},
    {
      title: 'number',
      value: tilesOf,
      text: (row) => grouped(tilesOf(row)),
      number: true,
      help: 'tiles with these contents',
    },
    number('peak', 'peak', 'always live + not always live + gaps'),
    number('always live', 'alwaysLive'),
    number('not always live', 'notAlwaysLive', "at the tile's worst step"),
    number('gaps', 'gaps', 'unused bytes below the peak that the plan leaves between variables'),
    number('overflowed', 'overflowed', `bytes of the peak beyond ${bytes(ipu.bytesPerTile)}`),
    {title: 'worst step', value: (row) => row.worstStep, text: (row) => stepLink(job, data, row.worstStep)},
  ];
  const rows = table(columns, ipu.classes, {
    sort: 2,
    limit: 20,
    filter: true,
    label: 'tiles',
    onselect: (row) => choose(row.tiles[0].first),
  });
  rows.style.maxHeight = '40vh';
  return rows;
}

function overview(job, k) {
  const ipu = job.report.ipus[k];
  const over = ipu.classes.reduce((sum, one) => sum + (one.overflowed > 0 ? tilesOf(one) : 0), 0);
  const gaps = ipu.classes.reduce((sum, one) => sum + one.gaps * tilesOf(one), 0);
  const border =
    ipu.interleavedFrom > 0
      ? `from offset ${bytes(ipu.interleavedFrom)} on. The plan allocates bytes regardless of that border, ` +
        'so the regions below are by time only.'
      : 'unknown for this chip. The plan allocates bytes without regard to interleaved memory.';
  return facts([
    ['tiles', `${grouped(job.memory.ipus[k].tiles)}, ${bytes(ipu.bytesPerTile)} each; ${bytes(ipu.capacity)} in all`],
    ['peaks', `${bytes(ipu.peak)}, the sum of all tiles' own peaks; ${bytes(gaps)} of it are gaps left by the plan`],
    [
      'fullest tile',
      `${bytes(ipu.balance.max)} (tile ${grouped(ipu.balance.maxTile)}); mean ${bytes(ipu.balance.mean)}, rounded down; ` +
        `least ${bytes(ipu.balance.min)} (tile ${grouped(ipu.balance.minTile)})`,
    ],
    ['tiles over their memory', over > 0 ? h('span', {class: 'bad'}, grouped(over)) : 'none'],
    ['interleaved region', border],
  ]);
}

export const view = {
  id: 'memory',
  title: 'Memory',
  applies: (job) => (job.report?.ipus.length ?? 0) > 0,
  render(root, job, data) {
    const chosen = chosenOf(job);
    const state = {byRegion: false, scale: 'memory'};
    const body = h('div');
    const show = () => body.replaceChildren(...contents());

    function contents() {
      const k = chosen.ipu;
      const ipu = job.report.ipus[k];
      const tiles = job.memory.ipus[k].tiles;
      chosen.tile = Math.min(chosen.tile, tiles - 1);
      const readout = h('div', {role: 'status', style: 'min-height:7.5em'});
      const zoom = new Zoom(tiles);
      const chart = {
        job,
        ipu: k,
        zoom,
        scale: () => state.scale,
        parts: partsOf(job.report, ipu, state.byRegion),
        chosen: () => chosen.tile,
      };
      const tell = (tile) => readout.replaceChildren(...tileText(job, k, tile, chart.parts));
      chart.choose = (tile) => {
        chosen.tile = tile;
        zoom.include(tile);
        tell(tile);
        bars.redraw();
        number.value = tile;
      };
      chart.hover = (tile) => tell(tile ?? chosen.tile);
      const bars = tileBars(chart);
      zoom.onchange = () => bars.redraw();
      const number = h('input', {
        type: 'number',
        min: 0,
        max: tiles - 1,
        value: chosen.tile,
        style: 'width:90px',
        oninput: (event) => {
          const tile = Number(event.target.value);
          if (event.target.value !== '' && tile >= 0 && tile < tiles) {
            chart.choose(tile);
          }
        },
      });
      const regions = h(
        'select',
        {
          onchange: (event) => {
            state.byRegion = event.target.value === 'region';
            chart.parts = partsOf(job.report, ipu, state.byRegion);
            chart.choose(chosen.tile);
          },
        },
        ['category', 'region'].map((name) =>
          h('option', {value: name, selected: (name === 'region') === state.byRegion}, name),
        ),
      );
      const scale = h(
        'select',
        {
          onchange: (event) => {
            state.scale = event.target.value;
            bars.redraw();
          },
        },
        [
          ['memory', "the tile's memory"],
          ['fullest', 'the fullest tile'],
        ].map(([value, text]) => h('option', {value, selected: state.scale === value}, text)),
      );
      tell(chosen.tile);
      return [
        overview(job, k),
        figure(
          [
            "Bytes of each tile at the tile's own peak. Darker: always live. The part above the line is what overflows (tinted red). ",
            'Left out: unused memory above the peak. If several tiles share a pixel, the fullest of them is drawn. ',
            'Keys: arrows choose a tile, + and - zoom, 0 shows all; the mouse zooms by dragging.',
          ],
          h(
            'div',
            {class: 'controls'},
            h('label', {}, 'stack by ', regions),
            h('label', {}, 'height ', scale),
            h('label', {}, 'tile ', number),
            zoomControls(zoom, 'tiles', () => chosen.tile),
          ),
          bars,
          readout,
        ),
        verdictOf(
          checkTiles(job, k),
          `Checked: the parts of each bar sum to the tile's peak in the profile (${grouped(tiles)} tiles in ` +
            `${grouped(ipu.classes.length)} groups with equal contents), and all peaks to ${bytes(ipu.peak)}.`,
        ),
        h('h2', {}, 'Tiles by contents'),
        h(
          'p',
          {class: 'hint'},
          'Tiles in a row have equal contents. peak = always live + not always live (at the worst step) + gaps.',
        ),
        tileTable(job, data, k, (tile) => {
          chart.choose(tile);
          bars.focus();
        }),
        h('h2', {}, `Variables of IPU ${k}`),
        ...variablesOf(job, data, k),
      ];
    }

    root.append(
      h('h1', {}, 'Memory'),
      h(
        'div',
        {class: 'controls'},
        ipuSelect(job, chosen.ipu, (k) => {
          chosen.ipu = k;
          show();
        }),
      ),
      body,
    );
    show();
  },
};
