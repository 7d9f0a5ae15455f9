import {figure, grouped, h, secondsText, table} from '../dom.js';
import {CallGraph, eachNode, kindOf} from '../parts/call_graph.js';
import {verdictOf} from '../parts/checks.js';
import {ProgramTree} from '../parts/program_tree.js';
import {bytes, counted} from '../parts/steps.js';

const codeCategories = ['vertex code', 'vertex state', 'control code', 'exchange code'];

/** Returns the table of code by IPU, with a check against the profile's bytes at the IPU's peak. */
function codeSizes(job) {
  const {report} = job;
  const rows = report.ipus.map(() => codeCategories.map(() => ({bytes: 0, share: 0})));
  report.variables.forEach((variable) => {
    const column = codeCategories.indexOf(variable.category);
    if (column >= 0 && variable.ipu < rows.length) {
      const cell = rows[variable.ipu][column];
      cell.bytes += variable.bytes;
      cell.share += variable.largestShare;
    }
  });
  const differences = [];
  rows.forEach((row, k) =>
    row.forEach((cell, c) => {
      const index = report.categories.indexOf(codeCategories[c]);
      const {alwaysLive, notAlwaysLive} = report.ipus[k].atPeak;
      const stated = index < 0 ? 0 : alwaysLive[index] + notAlwaysLive[index];
      if (cell.bytes !== stated) {
        differences.push(
          `IPU ${k}, ${codeCategories[c]}: ${bytes(cell.bytes)} in variables, ${bytes(stated)} in the profile`,
        );
      }
    }),
  );
  const sum = (row) => row.reduce((all, cell) => all + cell.bytes, 0);
  const columns = [
    {title: 'IPU', value: (row) => row.k, number: true},
    ...codeCategories.map((title, c) => ({
      title,
      value: ({row}) => row[c].bytes,
      text: ({row}) => bytes(row[c].bytes),
      number: true,
      help: 'bytes on all tiles together',
    })),
    {title: 'all', value: ({row}) => sum(row), text: ({row}) => bytes(sum(row)), number: true},
    {
      title: 'of the IPU',
      value: ({row}) => sum(row),
      text: ({row, k}) => `${((100 * sum(row)) / report.ipus[k].capacity).toFixed(1)} %`,
      number: true,
    },
    {
      title: 'most on one tile',
      value: ({row}) => row.reduce((all, cell) => all + cell.share, 0),
      text: ({row}) => bytes(row.reduce((all, cell) => all + cell.share, 0)),
      number: true,
      help: 'sum of the largest shares of each kind',
    },
  ];
  return [
    figure(
      'Bytes of code on all tiles of each IPU; code is always live. Vertex state is what vertices keep beside their code.',
      table(
        columns,
        rows.map((row, k) => ({row, k})),
        {label: 'code'},
      ),
    ),
    verdictOf(differences, 'Checked: the sizes sum to the bytes of these categories at the peak of each IPU.'),
  ];
}

/** Returns what one copy of a function holds, as text: its most frequent operations. */
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
  const inlined = [...graph.functions.values()].reduce((sum, one) => sum + (one.sites === 0 ? one.inlined : 0), 0);
  const number = (title, value, help) => ({
    title,
    value: ({one}) => value(one),
    text: ({one}) => grouped(Math.round(value(one))),
    number: true,
    help,
  });
  const columns = [
    {title: 'function', value: (row) => row.name},
    number('places', (one) => one.sites, 'calls of this function in the Program'),
    number('runs', (one) => one.runs, `executions in one call of ${job.report.stepFunction}`),
    number('steps of one copy', (one) => one.steps),
    {title: 'one copy holds', value: ({one}) => contentsText(one)},
    number('cycles', (one) => one.cycles, 'device cycles of one execution'),
    ...(clock
      ? [
          {
            title: 'device time',
            value: ({one}) => one.cycles,
            text: ({one}) => secondsText(one.cycles / clock),
            number: true,
          },
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
        'execution, summed over the steps inside; work of different IPUs at the same time is summed too, so the time of a step is shorter (see Execution).',
      ),
      ...search(tree),
      tree.element,
      ...(job.report.ipus.length > 0 ? [h('h2', {}, 'Code'), ...codeSizes(job)] : []),
      h('h2', {}, 'Outlining'),
      ...outlined(job, graph, tree),
    );
  },
};
