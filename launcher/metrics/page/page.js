
"use strict";
// Shows status.json (launcher/metrics/job_status.h) and asks for it again every 2 s. All texts of the job go through
// textContent or attributes, never through HTML.

const PERIOD_MS = 2000;
const SVG = "http://www.w3.org/2000/svg";
const PARTS = [
  ["step", "steps", "#2f7d4f"], ["evaluation", "evaluation", "#6fbf8b"], ["start", "start", "#8a94a0"],
  ["data", "data", "#d99a1e"], ["saving", "saving", "#8d6bc2"], ["redone", "redone", "#c2570c"],
  ["down", "down", "#b3261e"],
];
// The page may be served below a path of a proxy, with or without a slash at its end.
const base = location.pathname.replace(/\/*$/, "/");
const byId = (id) => document.getElementById(id);

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function drawing(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

const grouped = (number) => Math.round(number).toLocaleString("en");
const percent = (ratio) => (100 * ratio).toFixed(1) + " %";

function duration(seconds) {
  if (seconds < 0.001) return (1e6 * seconds).toFixed(0) + " us";
  if (seconds < 1) return (1000 * seconds).toFixed(1) + " ms";
  if (seconds < 60) return seconds.toFixed(1) + " s";
  const whole = Math.round(seconds);
  const two = (number) => String(number).padStart(2, "0");
  const rest = two(Math.floor(whole / 60) % 60) + ":" + two(whole % 60);
  return whole < 3600 ? rest : Math.floor(whole / 3600) + ":" + rest;
}

const clock = (unix) => new Date(1000 * unix).toLocaleTimeString();

function showFigures(status) {
  const figures = [];
  const add = (name, value, shown) => {
    if (value !== null && value !== undefined) figures.push(element("dt", name), element("dd", shown(value)));
  };
  add("step", status.step, (step) => grouped(step) + " / " + grouped(status.lastStep));
  add("items", status.items, grouped);
  add("epoch", status.epoch, String);
  add("speed", status.samplesPerSecond, (speed) => grouped(speed) + " samples/s");
  add("time left", status.etaSeconds, duration);
  add("loss", status.loss, (loss) => loss.toPrecision(5));
  add("accuracy", status.accuracy, percent);
  add("learning rate", status.learningRate, (rate) => String(Number(rate.toPrecision(4))));
  const evaluation = status.evaluation;
  add("evaluation loss", evaluation && evaluation.loss, (loss) => loss.toPrecision(5));
  add("evaluation accuracy", evaluation && evaluation.accuracy, percent);
  add("last checkpoint", status.checkpoint,
      (last) => "step " + grouped(last.step) + ", " + duration(last.ageSeconds) + " ago");
  add("restarts", status.restarts || null, String);
  add("last heartbeat", status.heartbeatAgeSeconds, (age) => duration(age) + " ago");
  byId("figures").replaceChildren(...figures.reduce((groups, made, k) => {
    if (k % 2 === 0) groups.push(element("div"));
    groups[groups.length - 1].append(made);
    return groups;
  }, []));
  byId("bar").value = status.lastStep ? status.step / status.lastStep : 0;
}

function showGoodput(goodput) {
  byId("goodput").hidden = !goodput;
  if (!goodput) return;
  const total = goodput.totalSeconds + goodput.pendingSeconds;
  byId("goodput-ratio").textContent = goodput.totalSeconds > 0 ? percent(goodput.ratio) : "not known yet";
  const bars = [];
  const legend = [];
  for (const [key, name, colour] of PARTS) {
    const seconds = goodput.seconds[key];
    const bar = element("span");
    bar.style.background = colour;
    bar.style.width = (total > 0 ? 100 * seconds / total : 0) + "%";
    bars.push(bar);
    const more = key === "redone" && goodput.redoneSteps > 0 ? " (" + grouped(goodput.redoneSteps) + " steps)" : "";
    const entry = element("li");
    const mark = element("i");
    mark.style.background = colour;
    entry.append(mark, name + " " + duration(seconds) + more);
    legend.push(entry);
  }
  legend.push(element("li", "not assigned yet " + duration(goodput.pendingSeconds)));
  byId("goodput-bar").replaceChildren(...bars);
  byId("goodput-legend").replaceChildren(...legend);
  byId("goodput-bar").setAttribute("aria-label", legend.map((entry) => entry.textContent).join(", "));
}

function chart(curves, key, shown) {
  const width = 480, height = 200, left = 52, right = 10, top = 8, bottom = 22;
  const points = (curve) => curve.steps.map((step, k) => [step, curve[key][k]]).filter(([, y]) => y !== null);
  const training = points(curves.training);
  const evaluation = points(curves.evaluation);
  const all = training.concat(evaluation);
  const svg = drawing("svg", {viewBox: "0 0 " + width + " " + height, role: "img", "aria-label": key + " by step"});
  if (all.length === 0) {
    svg.append(drawing("text", {x: width / 2, y: height / 2, "text-anchor": "middle"}, "no step yet"));
    return svg;
  }
  const [x0, x1] = all.reduce(([low, high], [x]) => [Math.min(low, x), Math.max(high, x)], [Infinity, -Infinity]);
  let [y0, y1] = all.reduce(([low, high], [, y]) => [Math.min(low, y), Math.max(high, y)], [Infinity, -Infinity]);
  if (y0 === y1) [y0, y1] = [y0 - 0.5, y1 + 0.5];
  const x = (step) => left + (width - left - right) * (x1 > x0 ? (step - x0) / (x1 - x0) : 0.5);
  const y = (value) => top + (height - top - bottom) * (y1 - value) / (y1 - y0);
  for (let k = 0; k <= 4; ++k) {
    const value = y0 + (y1 - y0) * k / 4;
    svg.append(drawing("line", {class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value)}),
               drawing("text", {x: left - 6, y: y(value) + 4, "text-anchor": "end"}, shown(value)));
  }
  svg.append(drawing("text", {x: left, y: height - 6}, grouped(x0)),
             drawing("text", {x: width - right, y: height - 6, "text-anchor": "end"}, grouped(x1)));
  if (training.length > 0) {
    const path = training.map(([step, value], k) => (k ? "L" : "M") + x(step).toFixed(1) + " " + y(value).toFixed(1));
    svg.append(drawing("path", {class: "training", d: path.join("")}));
  }
  for (const [step, value] of evaluation) {
    svg.append(drawing("circle", {class: "evaluation", cx: x(step), cy: y(value), r: 3}));
  }
  return svg;
}

// Returns a colour from green (as fast as the median) through yellow to red (twice its time, or more).
function heat(ratio) {
  const slow = Math.max(0, Math.min(1, ratio - 1));
  return "hsl(" + Math.round(140 * (1 - slow)) + " 55% 66%)";
}

function describe(number, replica, median) {
  const speed = replica.stepSeconds === null ? "no time known yet" :
      duration(replica.stepSeconds) + " in operators per step, " + (replica.stepSeconds / median).toFixed(2) +
      " times the median";
  return "replica " + number + " on " + replica.host + ": step " + grouped(replica.step) + ", " +
      (replica.activity || "not heard from yet") + "; " + speed;
}

let pointedAt = null;

function showReplicas(status) {
  const grid = byId("replicas");
  grid.className = status.replicas.length > 128 ? "many" : "";
  while (grid.children.length > status.replicas.length) grid.lastChild.remove();
  while (grid.children.length < status.replicas.length) {
    const cell = element("button", "", "cell");
    const number = grid.children.length;
    cell.type = "button";
    for (const kind of ["mouseenter", "focus"]) {
      cell.addEventListener(kind, () => {
        pointedAt = number;
        byId("replica").textContent = cell.title;
      });
    }
    grid.append(cell);
  }
  const slowest = status.slowest;
  const lags = slowest && slowest.stepSeconds >= 1.5 * slowest.othersStepSeconds;
  status.replicas.forEach((replica, number) => {
    const cell = grid.children[number];
    const known = replica.stepSeconds !== null;
    cell.textContent = number + (known ? "\n" + (replica.stepSeconds / status.medianStepSeconds).toFixed(2) : "");
    cell.title = describe(number, replica, status.medianStepSeconds);
    cell.setAttribute("aria-label", cell.title);
    cell.style.background = known ? heat(replica.stepSeconds / status.medianStepSeconds) : "";
    cell.classList.toggle("slow", Boolean(lags) && slowest.replica === number);
    if (pointedAt === number) byId("replica").textContent = cell.title;
  });
  byId("slowest").textContent = "Wall time in operators per step, relative to the median" +
      (status.medianStepSeconds === null ? "." : " (" + duration(status.medianStepSeconds) + ").") +
      (slowest ? " Slowest: replica " + slowest.replica + ", " + duration(slowest.stepSeconds) + " against " +
           duration(slowest.othersStepSeconds) + (lags ? "; all replicas wait for it at each exchange." : ".") : "");
}

function showMessages(messages) {
  const list = byId("messages");
  list.replaceChildren(...messages.slice().reverse().map((message) => {
    const line = element("li");
    line.append(element("time", clock(message.time)), message.text);
    return line;
  }));
}

function show(status) {
  document.title = status.model + " " + status.phase +
      (status.lastStep ? " " + Math.floor(100 * status.step / status.lastStep) + " %" : "");
  byId("model").textContent = status.model;
  byId("phase").textContent = status.phase;
  byId("since").textContent = status.replicas.length + (status.replicas.length === 1 ? " replica" : " replicas") +
      " in " + status.instances + (status.instances === 1 ? " process" : " processes") + " (" +
      status.instancesJoined + " joined), started at " + clock(status.startTime);
  byId("version").textContent = status.version;
  showFigures(status);
  showGoodput(status.goodput);
  byId("loss").replaceChildren(chart(status.curves, "loss", (loss) => loss.toPrecision(3)));
  const hasAccuracy = Object.values(status.curves).some((curve) => curve.accuracy.some((value) => value !== null));
  byId("accuracy-figure").hidden = !hasAccuracy;
  if (hasAccuracy) byId("accuracy").replaceChildren(chart(status.curves, "accuracy", percent));
  showReplicas(status);
  showMessages(status.messages);
}

let answered = null;

async function refresh() {
  const trouble = byId("trouble");
  try {
    const answer = await fetch(base + "status.json", {cache: "no-store", signal: AbortSignal.timeout(10000)});
    if (!answer.ok) throw new Error("status " + answer.status);
    show(await answer.json());
    answered = new Date();
    trouble.hidden = true;
  } catch (error) {
    trouble.hidden = false;
    trouble.textContent = (answered ? "No answer since " + answered.toLocaleTimeString() : "No answer") +
        ": the job has ended or is being restarted, or the connection is broken (" + error.message + ").";
  }
  setTimeout(refresh, PERIOD_MS);
}

byId("metrics").href = base + "metrics";
byId("status").href = base + "status.json";
refresh();
