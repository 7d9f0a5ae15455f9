// The schedule of a pipeline: which micro-batch each IPU works on in each cycle (StageSchedule of proto/report.proto).
import {canvas, clamp, figure, grouped, h, legend, onKeys, sumOf} from '../dom.js';

const works = {
  A: ['#4e79a7', 'forward: activations'],
  R: ['#59a14f', 'recomputation'],
  G: ['#f28e2b', 'backward: gradients'],
  U: ['#b07aa1', 'weight update'],
};
const line = 19; // Height of one entry.
const gutter = 66;

const worksOf = ({part}) => (part.backward ? (part.recomputes ? 'RG' : 'G') : 'A');

/** Answers what an IPU does in a cycle. */
export class Cells {
  constructor(schedule) {
    this.sequences = schedule.sequences;
    this.updates = new Map(schedule.updates.map(({ipu, cycle}) => [ipu, cycle]));
    const parts = this.sequences.flatMap((one) => one.cycles.flatMap((cycle) => cycle.parts));
    this.ipus = [...new Set(parts.map((work) => work.part.ipu))].sort((a, b) => a - b);
    const inSequences = sumOf(this.sequences, (one) => one.repeat * one.cycles.length);
    this.columns = Math.max(inSequences, ...[...this.updates.values()].map((cycle) => cycle + 1));
    this.works = new Set([
      'A',
      ...parts.flatMap((work) => [...worksOf(work)]),
      ...(this.updates.size > 0 ? ['U'] : []),
    ]);
    this.recomputes = parts.some((work) => work.part.recomputes);
    const entered = (cycle) => cycle.parts.filter(({part}) => !part.backward && part.stage === 0).length;
    this.microBatches = sumOf(this.sequences, (one) => one.repeat * sumOf(one.cycles, entered));
  }

  /** Returns [{works: 'A' | 'RG' | 'G' | 'U', number, stage}] of an IPU in a cycle, in the order of execution. */
  at(column, ipu) {
    const entries = this.updates.get(ipu) === column ? [{works: 'U'}] : [];
    for (const {repeat, cycles} of this.sequences) {
      if (column < repeat * cycles.length) {
        const round = Math.floor(column / cycles.length);
        const parts = cycles[column % cycles.length].parts.filter((work) => work.part.ipu === ipu);
        return [
          ...parts.map((work) => ({
            works: worksOf(work),
            number: work.microBatch + round + 1,
            stage: work.part.stage,
          })),
          ...entries,
        ];
      }
      column -= repeat * cycles.length;
    }
    return entries;
  }
}

function sentence(cells, column, ipu) {
  const parts = cells
    .at(column, ipu)
    .map((one) =>
      one.works === 'U'
        ? 'weight update'
        : `${[...one.works].map((work) => works[work][1].split(':')[0]).join(' and ')} of micro-batch ${grouped(one.number)} in stage ${one.stage}`,
    );
  return `Cycle ${grouped(column + 1)}, IPU ${ipu}: ${parts.join('; ') || 'idle'}.`;
}

/** Returns the height of each IPU's row, in entries. Cycles of one sequence have the same parts in all rounds. */
function linesByIpu(cells) {
  return cells.ipus.map((ipu) => {
    let [most, begin] = [1, 0];
    for (const {repeat, cycles} of cells.sequences) {
      for (let k = 0; k < cycles.length; ++k) {
        most = Math.max(most, cells.at(begin + k, ipu).length);
      }
      begin += repeat * cycles.length;
    }
    return Math.max(most, cells.at(cells.updates.get(ipu) ?? 0, ipu).length);
  });
}

export function scheduleFigure(schedule) {
  const cells = new Cells(schedule);
  const lines = linesByIpu(cells);
  const tops = lines.map((_, k) => 20 + sumOf(lines.slice(0, k), (n) => n * line + 5));
  const height = tops.at(-1) + lines.at(-1) * line + 6;
  const digits = String(cells.microBatches).length;
  const size = (cells.recomputes ? 2 : 1) * (17 + 7 * digits);
  const state = {first: 0, cell: null, fit: 1};
  const status = h(
    'p',
    {class: 'hint', 'aria-live': 'polite'},
    'Move the mouse over a cell, or use the arrow keys, to read what it means.',
  );
  const range = h('input', {
    type: 'range',
    min: 0,
    max: 0,
    value: 0,
    'aria-label': 'first cycle shown',
    oninput: (event) => show(Number(event.target.value)),
  });
  const shown = h('span', {class: 'hint'});
  const jump = (text, column) => h('button', {onclick: () => show(column)}, text);

  function show(first) {
    state.first = first;
    picture.redraw();
  }

  function drawEntry(context, entry, x, y) {
    const each = (size - 2) / entry.works.length;
    [...entry.works].forEach((work, k) => {
      context.fillStyle = works[work][0];
      context.fillRect(x + k * each, y, each - (k + 1 < entry.works.length ? 0.5 : 0), line - 2);
      context.fillStyle = work === 'G' ? '#111' : '#fff';
      context.fillText(work + (entry.number ?? ''), x + k * each + 4, y + line / 2);
    });
  }

  function draw(context, width, _, theme) {
    state.fit = Math.max(Math.floor((width - gutter) / size), 1);
    range.max = Math.max(cells.columns - state.fit, 0);
    range.hidden = range.max === '0';
    state.first = Math.min(state.first, Number(range.max));
    range.value = state.first;
    const end = Math.min(state.first + state.fit, cells.columns);
    shown.textContent = `cycles ${grouped(state.first + 1)} to ${grouped(end)} of ${grouped(cells.columns)}`;
    context.textBaseline = 'middle';
    cells.ipus.forEach((ipu, row) => {
      context.fillStyle = theme.text;
      context.fillText(`IPU ${ipu}`, 0, tops[row] + line / 2);
      context.fillStyle = theme.line;
      context.fillRect(gutter, tops[row] + lines[row] * line + 1, (end - state.first) * size, 1);
    });
    for (let column = state.first; column < end; ++column) {
      const x = gutter + (column - state.first) * size;
      context.fillStyle = theme.faint;
      context.fillText(grouped(column + 1), x + 3, 9);
      cells.ipus.forEach((ipu, row) => {
        cells.at(column, ipu).forEach((entry, k) => drawEntry(context, entry, x, tops[row] + k * line));
        if (state.cell?.column === column && state.cell.row === row) {
          context.strokeStyle = theme.text;
          context.lineWidth = 2;
          context.strokeRect(x, tops[row], size - 2, lines[row] * line);
        }
      });
    }
  }

  function choose(column, row) {
    const cell = {
      column: clamp(column, 0, cells.columns - 1),
      row: clamp(row, 0, cells.ipus.length - 1),
    };
    if (cell.column !== state.cell?.column || cell.row !== state.cell?.row) {
      state.cell = cell;
      state.first = clamp(state.first, cell.column - state.fit + 1, cell.column);
      status.textContent = sentence(cells, cell.column, cells.ipus[cell.row]);
      picture.redraw();
    }
  }

  const picture = canvas(height, 'Schedule of the pipeline by cycle', draw, {keys: true});
  picture.addEventListener('pointermove', (event) => {
    const row = tops.findLastIndex((top) => event.offsetY >= top);
    const column = state.first + Math.floor((event.offsetX - gutter) / size);
    if (row >= 0 && event.offsetX >= gutter && column < cells.columns) {
      choose(column, row);
    }
  });
  const move = (columns, rows) => () => {
    const from = state.cell ?? {column: state.first - (columns > 0 ? 1 : 0), row: 0};
    choose(from.column + columns, from.row + rows);
  };
  onKeys(picture, () => ({
    ArrowLeft: move(-1, 0),
    ArrowRight: move(1, 0),
    ArrowUp: move(0, -1),
    ArrowDown: move(0, 1),
    PageUp: move(-state.fit, 0),
    PageDown: move(state.fit, 0),
    Home: move(-cells.columns, 0),
    End: move(cells.columns, 0),
  }));
  const used = Object.entries(works).filter(([work]) => cells.works.has(work));
  return figure(
    [
      `${grouped(cells.microBatches)} micro-batches in ${grouped(cells.columns)} cycles. A column is a cycle of the schedule, in which each IPU `,
      'does what the cell shows, and lasts as long as the slowest IPU; its width is not a time.',
    ],
    legend(used.map(([work, [colour, text]]) => [`${work}: ${text}`, colour])),
    picture,
    range,
    h('div', {class: 'controls'}, jump('first cycles', 0), jump('last cycles', cells.columns), shown),
    status,
  );
}
