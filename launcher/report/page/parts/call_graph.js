// Which functions of the Program call which, how often they run, and the device cycles of one execution.
import {sumOf} from '../dom.js';
import {cyclesOf} from './steps.js';

/** Returns {call: name} for "Call(target: name)", {repeat: count} for "Repeat(count: 4)", or {}. */
export function kindOf(node) {
  const call = /^Call\(target: (.*)\)$/.exec(node.text);
  const repeat = call ? null : /^Repeat\(count: (\d+)\)$/.exec(node.text);
  return call ? {call: call[1]} : repeat ? {repeat: Number(repeat[1])} : {};
}

/** Calls visit(node, times) for a function's nodes and those inside its repeats; times: executions in one call of the function. */
export function eachNode(nodes, visit, times = 1) {
  for (const node of nodes) {
    visit(node, times);
    if (node.nodes.length > 0) {
      eachNode(node.nodes, visit, times * (kindOf(node).repeat ?? 1));
    }
  }
}

/**
 * Returns by name: {tree, steps, inlined: steps if each call were a copy, sites: calls of it, callers: Map of name -> sites,
 * runs: executions in one call of the step function}.
 */
function functionsOf(report) {
  const functions = new Map(
    report.functions.map((tree) => [
      tree.name,
      {tree, steps: 0, sites: 0, callers: new Map(), calls: [], runs: 0, inlined: 0},
    ]),
  );
  for (const [name, one] of functions) {
    eachNode(one.tree.nodes, (node, times) => {
      ++one.steps;
      const {call} = kindOf(node);
      const callee = functions.get(call);
      if (callee) {
        ++callee.sites;
        callee.callers.set(name, (callee.callers.get(name) ?? 0) + 1);
        one.calls.push({callee, times});
      }
    });
  }
  return functions;
}

/** Returns the functions so that each is before those that it calls. */
function callersFirst(functions) {
  const order = [];
  const seen = new Set();
  const add = (one) => {
    if (!seen.has(one)) {
      seen.add(one);
      one.calls.forEach(({callee}) => add(callee));
      order.push(one);
    }
  };
  functions.forEach(add);
  return order.reverse();
}

export class CallGraph {
  constructor(job) {
    this.job = job;
    this.functions = functionsOf(job.report);
    const order = callersFirst(this.functions);
    const main = this.functions.get(job.report.stepFunction);
    if (main) {
      main.runs = 1;
    }
    order.forEach((one) =>
      one.calls.forEach(({callee, times}) => {
        callee.runs += one.runs * times;
      }),
    );
    order.reverse().forEach((one) => {
      one.cycles = this.cyclesOfNodes(one.tree.nodes);
      one.inlined = one.steps - one.calls.length + sumOf(one.calls, ({callee}) => callee.inlined);
    });
  }

  /** Returns the cycles of one execution of a step with everything that it calls, or null if they are not known. */
  cyclesOfNode(node) {
    const {call, repeat} = kindOf(node);
    if (call) {
      return this.functions.get(call)?.cycles ?? null;
    }
    if (repeat) {
      return repeat * this.cyclesOfNodes(node.nodes);
    }
    const row = this.job.stepNames[node.step]?.row;
    return row && row.calls > 0 ? cyclesOf(row.cost) / row.calls : null;
  }

  /** Returns the sum of the cycles that are known. */
  cyclesOfNodes(nodes) {
    return sumOf(nodes, (node) => this.cyclesOfNode(node) ?? 0);
  }
}
