import {
  exactBytes,
  facts,
  figure,
  grouped,
  h,
  legend,
  numberInput,
  numeric,
  select,
  spanText,
  sumOf,
  table,
  verdictOf,
} from '../dom.js';
import {tilesOf} from '../data.js';
import {chosenOf, ipuSelect, stepLink, stepText} from '../parts/steps.js';
import {partsOf, tileBars} from '../parts/tile_bars.js';
import {variablesOf} from '../parts/variables.js';
import {Zoom, zoomControls} from '../parts/zoom.js';

const spansText = (spans) =>
  spans.slice(0, 6).map(spanText).join(', ') +
  (spans.length > 6 ? `, and ${grouped(spans.length - 6)} more spans` : '');

/** Returns a list of differences for the tiles of an IPU, between sums of parts and the profile's bytes, as texts. */
function checkTiles(job, k) {
  const ipu = job.report.ipus[k];
  const differences = [];
  const compare = (name, sum, stated) => {
    if (sum !== stated) {
      differences.push(`${name}: the parts sum to ${exactBytes(sum)}, the profile says ${exactBytes(stated)}`);
    }
  };
  let peaks = 0;
  ipu.classes.forEach((one, c) => {
    const tile = `tile ${one.tiles[0].first}`;
    compare(`${tile}, always live by category`, sumOf(one.atPeak.alwaysLive), one.alwaysLive);
    compare(`${tile}, not always live by category`, sumOf(one.atPeak.notAlwaysLive), one.notAlwaysLive);
    compare(`${tile}, regions`, one.alwaysLive + one.notAlwaysLive + one.gaps, one.peak);
    compare(`${tile}, overflow`, Math.max(0, one.peak - ipu.bytesPerTile), one.overflowed);
    compare(
      `${tile}, variables at step ${one.worstStep}`,
      job.memory.bytesOfClasses(k, one.worstStep)[c],
      one.alwaysLive + one.notAlwaysLive,
    );
    peaks += one.peak * tilesOf(one);
  });
  compare(`IPU ${ipu.number}, peaks of all tiles`, peaks, ipu.peak);
  const {liveness} = ipu;
  compare(
    `IPU ${ipu.number}, categories at step ${liveness.worstStep}`,
    sumOf(ipu.atPeak.alwaysLive) + sumOf(ipu.atPeak.notAlwaysLive),
    liveness.alwaysLive + liveness.notAlwaysLive[liveness.worstStep],
  );
  return differences;
}

/** Returns the exact numbers of a tile: its sum in one sentence, and the bytes of each part. */
function tileText(job, k, tile, parts) {
  const ipu = job.report.ipus[k];
  const one = ipu.classes[job.memory.ipus[k].classOf[tile]];
  const rest =
    one.overflowed > 0
      ? h('span', {class: 'bad'}, `${exactBytes(one.overflowed)} beyond the tile's memory`)
      : `${exactBytes(ipu.bytesPerTile - one.peak)} unused`;
  return [
    h(
      'p',
      {},
      h('strong', {}, `Tile ${grouped(tile)}: `),
      `peak ${exactBytes(one.peak)} = ${exactBytes(one.alwaysLive)} always live + `,
      `${exactBytes(one.notAlwaysLive)} live at ${stepText(job, one.worstStep)} + ${exactBytes(one.gaps)} gaps left by the plan; `,
      rest,
      '.',
    ),
    legend(parts.map((part) => [part.name, part.colour, exactBytes(part.of(one))])),
  ];
}

function tileTable(job, data, k, choose) {
  const ipu = job.report.ipus[k];
  const number = (title, key, help) => numeric(title, (row) => row[key], exactBytes, help);
  const columns = [
    {title: 'tiles', value: (row) => row.tiles[0].first, text: (row) => spansText(row.tiles)},
    numeric('number', tilesOf, grouped, 'tiles with these contents'),
    number('peak', 'peak', 'always live + not always live + gaps'),
    number('always live', 'alwaysLive'),
    number('not always live', 'notAlwaysLive', "at the tile's worst step"),
    number('gaps', 'gaps', 'unused bytes below the peak that the plan leaves between variables'),
    number('overflowed', 'overflowed', `bytes of the peak beyond ${exactBytes(ipu.bytesPerTile)}`),
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
  const over = sumOf(ipu.classes, (one) => (one.overflowed > 0 ? tilesOf(one) : 0));
  const gaps = sumOf(ipu.classes, (one) => one.gaps * tilesOf(one));
  const border =
    ipu.interleavedFrom > 0
      ? `from offset ${exactBytes(ipu.interleavedFrom)} on. The plan allocates bytes regardless of that border, ` +
        'so the regions below are by time only.'
      : 'unknown for this chip. The plan allocates bytes without regard to interleaved memory.';
  return facts([
    [
      'tiles',
      `${grouped(job.memory.ipus[k].tiles)}, ${exactBytes(ipu.bytesPerTile)} each; ${exactBytes(ipu.capacity)} in all`,
    ],
    [
      'peaks',
      `${exactBytes(ipu.peak)}, the sum of all tiles' own peaks; ${exactBytes(gaps)} of it are gaps left by the plan`,
    ],
    [
      'fullest tile',
      `${exactBytes(ipu.balance.max)} (tile ${grouped(ipu.balance.maxTile)}); mean ${exactBytes(ipu.balance.mean)}, rounded down; ` +
        `least ${exactBytes(ipu.balance.min)} (tile ${grouped(ipu.balance.minTile)})`,
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
      const number = numberInput(tiles - 1, chosen.tile, chart.choose);
      const regions = select(['category', 'region'], state.byRegion ? 'region' : 'category', (value) => {
        state.byRegion = value === 'region';
        chart.parts = partsOf(job.report, ipu, state.byRegion);
        chart.choose(chosen.tile);
      });
      const scale = select(
        [
          ['memory', "the tile's memory"],
          ['fullest', 'the fullest tile'],
        ],
        state.scale,
        (value) => {
          state.scale = value;
          bars.redraw();
        },
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
            `${grouped(ipu.classes.length)} groups with equal contents), and all peaks to ${exactBytes(ipu.peak)}.`,
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
        h('h2', {}, `Variables of IPU ${ipu.number}`),
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
