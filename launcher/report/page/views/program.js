import {
  counted,
  exactBytes,
  figure,
  grouped,
  h,
  numeric,
  percentText,
  secondsText,
  sumOf,
  table,
  verdictOf,
} from '../dom.js';
import {CallGraph, eachNode, kindOf} from '../parts/call_graph.js';
import {ProgramTree} from '../parts/program_tree.js';

const codeCategories = ['vertex code', 'vertex state', 'control code', 'exchange code'];

/** Returns the table of code by IPU, with a check against the profile's bytes at the IPU's peak. */
function codeSizes(job) {
  const {report} = job;
  const rows = report.ipus.map((ipu) => ({
    ipu,
    cells: codeCategories.map((category) => {
      const code = report.variables.filter((one) => one.ipu === ipu.number && one.category === category);
      return {bytes: sumOf(code, (one) => one.bytes), share: sumOf(code, (one) => one.largestShare)};
    }),
  }));
  const differences = [];
  rows.forEach(({ipu, cells}) =>
    cells.forEach((cell, c) => {
      const index = report.categories.indexOf(codeCategories[c]);
      const {alwaysLive, notAlwaysLive} = ipu.atPeak;
      const stated = index < 0 ? 0 : alwaysLive[index] + notAlwaysLive[index];
      if (cell.bytes !== stated) {
        differences.push(
          `IPU ${ipu.number}, ${codeCategories[c]}: ${exactBytes(cell.bytes)} in variables, ${exactBytes(stated)} in the profile`,
        );
      }
    }),
  );
  const sum = ({cells}) => sumOf(cells, (cell) => cell.bytes);
  const columns = [
    numeric('IPU', ({ipu}) => ipu.number),
    ...codeCategories.map((title, c) =>
      numeric(title, ({cells}) => cells[c].bytes, exactBytes, 'bytes on all tiles together'),
    ),
    numeric('all', sum, exactBytes),
    {...numeric('of the IPU', sum), text: (row) => percentText(sum(row) / row.ipu.capacity, 1)},
    numeric(
      'most on one tile',
      ({cells}) => sumOf(cells, (cell) => cell.share),
      exactBytes,
      'sum of the largest shares of each kind',
    ),
  ];
  return [
    figure(
      'Bytes of code on all tiles of each IPU; code is always live. Vertex state is what vertices keep beside their code.',
      table(columns, rows, {label: 'code'}),
    ),
    verdictOf(differences, 'Checked: the sizes sum to the bytes of these categories at the peak of each IPU.'),
  ];
}

/** Returns the most frequent operations in one copy of a function, as text. */
function contentsText(one) {
  const kinds = new Map();
  eachNode(one.tree.nodes, (node) => {
    const {call, repeat} = kindOf(node);
    const kind = call ? 'calls' : repeat ? 'repeats' : node.text.split(' ')[0];
    kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
  });
  const sorted = [...kinds].sort((a, b) => b[1] - a[1]);
  return (
    sorted
      .slice(0, 6)
      .map(([kind, count]) => `${grouped(count)} ${kind}`)
      .join(', ') + (sorted.length > 6 ? `, ${counted(sorted.length - 6, 'other kind')}` : '')
  );
}

/** Returns the table of functions that several places call. */
function outlined(job, graph, tree) {
  const rows = [...graph.functions].filter(([, one]) => one.sites > 1).map(([name, one]) => ({name, one}));
  if (rows.length === 0) {
    return [h('p', {}, 'No function is called from more than one place, so every step has its own code.')];
  }
  const clock = job.profile.device?.clockHz;
  const inlined = sumOf([...graph.functions.values()], (one) => (one.sites === 0 ? one.inlined : 0));
  const number = (title, of, help) =>
    numeric(
      title,
      ({one}) => of(one),
      (count) => grouped(Math.round(count)),
      help,
    );
  const columns = [
    {title: 'function', value: (row) => row.name},
    number('places', (one) => one.sites, 'calls of this function in the Program'),
    number('runs', (one) => one.runs, `executions in one call of ${job.report.stepFunction}`),
    number('steps of one copy', (one) => one.steps),
    {title: 'one copy holds', value: ({one}) => contentsText(one)},
    number('cycles', (one) => one.cycles, 'device cycles of one execution'),
    ...(clock
      ? [
          numeric(
            'device time',
            ({one}) => one.cycles,
            (cycles) => secondsText(cycles / clock),
          ),
        ]
      : []),
    number('steps not repeated', (one) => (one.sites - 1) * one.steps, 'steps of one copy x (places - 1)'),
  ];
  return [
    h(
      'p',
      {},
      `${grouped(rows.length)} functions are called from more than one place. Each has one copy of its code. `,
      `With a copy in each of these places, the Program would have ${grouped(inlined)} steps instead of ${grouped(job.report.steps)}. `,
      h(
        'span',
        {class: 'hint'},
        'The profile counts bytes of code by IPU, not by function. Select a row to see the function in the tree.',
      ),
    ),
    table(columns, rows, {
      sort: 7,
      limit: 50,
      filter: true,
      label: 'functions',
      onselect: (row) => tree.revealFunction(row.name),
    }),
  ];
}

/** Returns a field that finds steps by their text. */
function search(tree) {
  const results = h('div', {role: 'status', style: 'max-height:22vh;overflow:auto'});
  const show = (text) => {
    const found = text.length < 2 ? [] : tree.find(text);
    const count = `${counted(found.length, 'step')}${found.length > 30 ? ', of which these are 30' : ''}: `;
    results.replaceChildren(
      text.length < 2 ? '' : h('span', {class: 'hint'}, count),
      ...found
        .slice(0, 30)
        .map(({functionName, node}) =>
          h(
            'button',
            {style: 'margin:2px', onclick: () => tree.reveal(functionName, node.step)},
            `${functionName}: ${node.text}`,
          ),
        ),
    );
  };
  return [
    h(
      'div',
      {class: 'controls'},
      h(
        'label',
        {},
        'find steps ',
        h('input', {type: 'search', placeholder: "conv2d 'conv1'", oninput: (event) => show(event.target.value)}),
      ),
    ),
    results,
  ];
}

export const view = {
  id: 'program',
  title: 'Program',
  applies: (job) => (job.report?.functions.length ?? 0) > 0,
  render(root, job, data) {
    const graph = new CallGraph(job);
    const tree = new ProgramTree(job, data, graph);
    root.append(
      h('h1', {}, 'Program'),
      h(
        'p',
        {},
        `${grouped(job.report.steps)} steps in ${counted(graph.functions.size, 'function')}; `,
        `the host calls ${job.report.stepFunction} for a step or batch.`,
      ),
      h('h2', {}, 'Functions'),
      h(
        'p',
        {class: 'hint'},
        'Enter or space opens a line; a call opens to the steps of its function. Cycles are device cycles of one ',
        'execution, summed over the steps inside. Work of different IPUs is summed, so the time of a step is shorter (see Execution); but ',
        'a step that runs on several IPUs at once counts once here, and once for each of them in Operations.',
      ),
      ...search(tree),
      tree.element,
      ...(job.report.ipus.length > 0 ? [h('h2', {}, 'Code'), ...codeSizes(job)] : []),
      h('h2', {}, 'Outlining'),
      ...outlined(job, graph, tree),
    );
  },
};
