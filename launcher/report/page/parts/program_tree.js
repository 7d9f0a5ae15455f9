// The tree of the Program's functions. Children are added when they are first shown, a piece at a time.
import {counted, grouped, h, secondsText} from '../dom.js';
import {eachNode, kindOf} from './call_graph.js';
import {stepLink} from './steps.js';

const piece = 200;

export class ProgramTree {
  constructor(job, data, graph) {
    Object.assign(this, {job, data, graph, clock: job.profile.device?.clockHz, openers: new Map()});
    this.element = h(
      'div',
      {class: 'program-tree'},
      [...graph.functions.values()].map((one) => this.functionItem(one)),
    );
  }

  cyclesText(cycles, each) {
    if (cycles === null) {
      return '';
    }
    const time = this.clock ? `, ${secondsText(cycles / this.clock)}` : '';
    return `${grouped(Math.round(cycles))} cycles${time}${each}`;
  }

  /** Returns a details element whose children are made when it opens. openers: (step) => makes the children up to that step visible. */
  branch(summary, nodes, depth) {
    const children = h('div', {style: `margin-left:${depth > 6 ? 8 : 22}px`});
    let shown = 0;
    const more = h('button', {onclick: () => add(shown + piece)});
    const add = (count) => {
      children.append(...nodes.slice(shown, count).map((node) => this.nodeItem(node, depth + 1)));
      shown = Math.min(Math.max(count, shown), nodes.length);
      more.remove();
      if (shown < nodes.length) {
        more.textContent = `show ${grouped(Math.min(piece, nodes.length - shown))} more of ${grouped(nodes.length - shown)} steps`;
        children.append(more);
      }
    };
    const element = h('details', {ontoggle: () => shown === 0 && add(piece)}, h('summary', {}, summary), children);
    element.reveal = (index) => {
      element.open = true;
      if (index >= shown) {
        add(Math.ceil((index + 1) / piece) * piece);
      }
      return children.children[index];
    };
    return element;
  }

  functionItem(one) {
    const {tree, sites, callers, runs, cycles, steps} = one;
    const from =
      sites === 0
        ? 'called by the host'
        : `called from ${counted(sites, 'place')} in ${[...callers.keys()].slice(0, 3).join(', ')}${callers.size > 3 ? ' ...' : ''}`;
    const often =
      runs > 0 && sites > 0 ? `, runs ${counted(runs, 'time')} in a call of ${this.job.report.stepFunction}` : '';
    const item = this.branch(
      [
        h('strong', {}, tree.name),
        h(
          'span',
          {class: 'hint'},
          ` ${counted(steps, 'step')}; ${from}${often}; `,
          this.cyclesText(cycles, ' for one execution'),
        ),
      ],
      tree.nodes,
      0,
    );
    item.id = `function-${tree.name}`;
    this.openers.set(tree.name, item);
    return item;
  }

  nodeItem(node, depth) {
    const {call, repeat} = kindOf(node);
    const cycles = this.cyclesText(this.graph.cyclesOfNode(node), '');
    const callee = this.graph.functions.get(call);
    if (repeat || callee) {
      return this.branch(
        [
          node.text,
          h('span', {class: 'hint'}, ` step ${grouped(node.step)}; ${cycles}${repeat ? ' for all rounds' : ''}`),
        ],
        callee ? callee.tree.nodes : node.nodes,
        depth,
      );
    }
    const row = this.job.stepNames[node.step]?.row;
    const times = row && row.calls > 1 ? `, ${grouped(row.calls)} times in a call of ${row.hostFunction}` : '';
    return h(
      'div',
      {class: 'step'},
      h('span', {title: row?.attributes}, node.text),
      h(
        'span',
        {class: 'hint'},
        ' ',
        stepLink(this.job, this.data, node.step, `step ${grouped(node.step)}`),
        cycles ? `; ${cycles}${times}` : '',
        row?.plan ? `; ${row.plan}` : '',
      ),
    );
  }

  /** Opens the branches that lead to a step and moves the focus there. */
  reveal(functionName, step) {
    const has = (node) => node.step === step || node.nodes.some(has);
    let item = this.openers.get(functionName);
    let nodes = this.graph.functions.get(functionName).tree.nodes;
    for (let index = nodes.findIndex(has); index >= 0; index = nodes.findIndex(has)) {
      item = item.reveal(index);
      nodes = nodes[index].step === step ? [] : nodes[index].nodes;
    }
    const target = item.querySelector('summary, a') ?? item;
    item.scrollIntoView({block: 'center'});
    target.focus();
  }

  /** Opens a function and moves the focus there. */
  revealFunction(name) {
    const item = this.openers.get(name);
    item.open = true;
    item.scrollIntoView({block: 'start'});
    item.querySelector('summary').focus();
  }

  /** Returns the steps whose text contains a text: [{functionName, node}]. */
  find(text) {
    const found = [];
    const needle = text.toLowerCase();
    for (const [functionName, {tree}] of this.graph.functions) {
      eachNode(tree.nodes, (node) => {
        if (node.text.toLowerCase().includes(needle)) {
          found.push({functionName, node});
        }
      });
    }
    return found;
  }
}
