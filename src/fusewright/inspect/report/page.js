"use strict";
(() => {
const programs = JSON.parse(document.getElementById("data").textContent);
const find = (selector, from = document) => [...from.querySelectorAll(selector)];
const SVG = "http://www.w3.org/2000/svg";
const draw = (kind, attributes = {}, parent = null, text = null) => {
  const element = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== null) element.textContent = text;
  if (parent) parent.append(element);
  return element;
};
const tag = (kind, text, parent, name = "") => {
  const element = document.createElement(kind);
  element.textContent = text;
  if (name) element.className = name;
  parent.append(element);
  return element;
};
const bytes = count => count >= 1e9 ? `${(count / 1e9).toPrecision(3)} GB` : count >= 1e6 ? `${(count / 1e6).toPrecision(3)} MB` : count >= 1e3 ? `${(count / 1e3).toPrecision(3)} kB` : `${count} B`;

// Light and dark
const theme = document.getElementById("theme");
theme.addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});

// Where one is
const links = find("nav a");
const seen = new IntersectionObserver(entries => {
  for (const entry of entries) if (entry.isIntersecting)
    for (const link of links) {
      const here = link.hash === `#${entry.target.id}`, nav = link.parentElement;
      link.classList.toggle("here", here);
      if (here) nav.scrollLeft = link.offsetLeft - nav.offsetLeft - (nav.clientWidth - link.clientWidth) / 2;
    }
}, {rootMargin: "-20% 0px -70% 0px"});
find("section").forEach(section => seen.observe(section));

// A link to a kernel opens it
const open = () => {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target && target.tagName === "DETAILS") { target.open = true; target.scrollIntoView({block: "start"}); }
};
addEventListener("hashchange", open); open();

// Words of code get their colours when it is first shown
const WORDS = /([;#][^\n]*)|([%@][\w.]+)|\b(\d[\w.]*)\b|\b(group|stage|over|local|read|write|reuse|for|load|store|reduce|accumulate|define|call|ret|br|label|phi|alloca|getelementptr|def|return|if|else|in|masked|cast|index|indirect|fadd|fsub|fmul|fdiv|icmp|fcmp|select|add|mul|sub|div)\b/g;
const CLASSES = ["comment", "name", "number", "word"];
const colour = pre => {
  if (pre.dataset.done) return;
  pre.dataset.done = "1";
  const text = pre.textContent, parts = document.createDocumentFragment();
  let end = 0;
  for (const match of text.matchAll(WORDS)) {
    parts.append(text.slice(end, match.index));
    tag("i", match[0], parts, CLASSES[match.slice(1).findIndex(group => group !== undefined)]);
    end = match.index + match[0].length;
  }
  parts.append(text.slice(end));
  pre.replaceChildren(parts);
};
document.addEventListener("toggle", event => {
  if (event.target.open) find(":scope > .code, :scope > .sides .side > .code", event.target).forEach(colour);
}, true);
find("details.kernel").slice(0, 1).forEach(first => { if (!location.hash) first.open = true; });

if (!programs.length) return;

// Graphs
const WIDTH = 184, HEIGHT = 40, ACROSS = 206, DOWN = 74;
const canvas = document.getElementById("canvas"), details = document.getElementById("details");
const graph = {program: 0, when: "after", chosen: -1, view: null, elements: [], edges: [], drawn: null};
const at = node => ({x: node.place * ACROSS, y: node.layer * DOWN});
const short = (text, most) => text.length > most ? `${text.slice(0, most - 1)}…` : text;

function paint() {
  const picture = programs[graph.program][graph.when];
  const svg = draw("svg", {role: "img"});
  const back = draw("g", {}, svg), front = draw("g", {}, svg);
  graph.drawn = picture; graph.chosen = -1;
  graph.edges = picture.edges.map(([from, to]) => {
    const a = at(picture.nodes[from]), b = at(picture.nodes[to]);
    const x1 = a.x + WIDTH / 2, y1 = a.y + HEIGHT, x2 = b.x + WIDTH / 2, y2 = b.y, bend = Math.max(24, (y2 - y1) / 2.4);
    return draw("path", {class: "edge", d: `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`}, back);
  });
  graph.elements = picture.nodes.map((node, number) => {
    const {x, y} = at(node), group = draw("g", {class: `node ${node.kind}`, transform: `translate(${x} ${y})`}, front);
    draw("rect", {width: WIDTH, height: HEIGHT}, group);
    draw("rect", {class: "tag", width: 4, height: HEIGHT - 14, x: 7, y: 7}, group);
    draw("text", {x: 19, y: 17}, group, short(node.label, 24));
    draw("text", {x: 19, y: 31, class: "sub"}, group, short(node.bytes ? `${node.shape}  ${bytes(node.bytes)}` : node.shape, 27));
    draw("title", {}, group, node.label);
    group.addEventListener("click", () => { if (!graph.moved) choose(number); });
    return group;
  });
  canvas.replaceChildren(svg);
  const counts = programs[graph.program];
  document.getElementById("graph-count").textContent = `${counts.before.nodes.length} statements before, ${counts.after.nodes.length} steps after`;
  start();
}
function bounds() {
  const places = graph.drawn.nodes.map(at);
  const x1 = Math.min(...places.map(p => p.x)), x2 = Math.max(...places.map(p => p.x)) + WIDTH;
  const y1 = Math.min(...places.map(p => p.y)), y2 = Math.max(...places.map(p => p.y)) + HEIGHT;
  return {x: x1 - 24, y: y1 - 24, w: x2 - x1 + 48, h: y2 - y1 + 48};
}
function show(view) {
  graph.view = view;
  canvas.firstChild.setAttribute("viewBox", `${view.x} ${view.y} ${view.w} ${view.h}`);
}
function start() {
  const whole = bounds(), ratio = canvas.clientHeight / Math.max(1, canvas.clientWidth);
  const w = Math.max(Math.min(whole.w, canvas.clientWidth * 1.5), canvas.clientWidth * .92), h = w * ratio;
  show({x: whole.x + (whole.w - w) / 2, y: whole.y, w, h});
}
function zoom(factor, cx = .5, cy = .5) {
  const v = graph.view;
  if (factor === 0) {
    const whole = bounds(), ratio = canvas.clientHeight / Math.max(1, canvas.clientWidth);
    const w = Math.max(whole.w, whole.h / ratio);
    show({x: whole.x + (whole.w - w) / 2, y: whole.y, w, h: w * ratio});
    return;
  }
  show({x: v.x + v.w * (1 - 1 / factor) * cx, y: v.y + v.h * (1 - 1 / factor) * cy, w: v.w / factor, h: v.h / factor});
}
function intoView(number) {
  const {x, y} = at(graph.drawn.nodes[number]), v = graph.view;
  const dx = Math.min(0, x - 30 - v.x) + Math.max(0, x + WIDTH + 30 - v.x - v.w);
  const dy = Math.min(0, y - 40 - v.y) + Math.max(0, y + HEIGHT + 40 - v.y - v.h);
  if (dx || dy) show({...v, x: v.x + dx, y: v.y + dy});
}
function choose(number) {
  const picture = graph.drawn, node = picture.nodes[number];
  graph.chosen = number;
  const near = new Set();
  picture.edges.forEach(([from, to], n) => {
    const lit = from === number || to === number;
    graph.edges[n].classList.toggle("lit", lit);
    if (lit) { graph.edges[n].parentNode.append(graph.edges[n]); near.add(from === number ? to : from); }
  });
  graph.elements.forEach((element, n) => {
    element.classList.toggle("chosen", n === number);
    element.classList.toggle("near", near.has(n));
    element.classList.toggle("same", n !== number && graph.when === "before" && node.step >= 0 && picture.nodes[n].step === node.step);
  });
  intoView(number);
  details.replaceChildren();
  tag("h3", {kernel: "Kernel", library: "Library call", number: "Step"}[node.kind], details);
  tag("p", node.label, details).style.cssText = "margin:0 0 .6rem;font-weight:600";
  const list = tag("dl", "", details);
  const row = (name, text) => { if (text) { tag("dt", name, list); tag("dd", text, list); } };
  row("computes", node.operators.join(", ")); row("writes", node.writes.join(", ")); row("shape", node.shape);
  row("moves", node.bytes ? bytes(node.bytes) : "");
  if (graph.when === "before" && node.step >= 0) row("fused with", `${picture.nodes.filter(other => other.step === node.step).length - 1} others`);
  if (node.lines.length) { tag("h3", "Lines", details); for (const line of node.lines) tag("div", line, details).style.cssText = "font:.78rem var(--mono)"; }
  if (node.kernel) { tag("h3", "", details); const link = tag("a", "Show its source", details); link.href = `#${node.kernel}`; }
}
function walk(key) {
  const picture = graph.drawn, now = graph.chosen;
  if (now < 0) return choose(0);
  const here = picture.nodes[now];
  let others = [];
  if (key === "ArrowUp") others = picture.edges.filter(edge => edge[1] === now).map(edge => edge[0]);
  if (key === "ArrowDown") others = picture.edges.filter(edge => edge[0] === now).map(edge => edge[1]);
  if (key === "ArrowLeft" || key === "ArrowRight") {
    const sign = key === "ArrowLeft" ? -1 : 1;
    others = picture.nodes.map((node, n) => n).filter(n => picture.nodes[n].layer === here.layer && sign * (picture.nodes[n].place - here.place) > 0);
  }
  if (key === "Home") others = [0];
  if (key === "End") others = [picture.nodes.length - 1];
  others.sort((a, b) => Math.abs(picture.nodes[a].place - here.place) + Math.abs(picture.nodes[a].layer - here.layer) - Math.abs(picture.nodes[b].place - here.place) - Math.abs(picture.nodes[b].layer - here.layer));
  if (others.length) choose(others[0]);
}
canvas.addEventListener("keydown", event => {
  if (/^(Arrow|Home|End)/.test(event.key)) { walk(event.key); event.preventDefault(); }
  else if (event.key === "Enter" && graph.chosen >= 0 && graph.drawn.nodes[graph.chosen].kernel) location.hash = graph.drawn.nodes[graph.chosen].kernel;
  else if (event.key === "+" || event.key === "=") zoom(1.25);
  else if (event.key === "-") zoom(.8);
  else if (event.key === "0") zoom(0);
});
canvas.addEventListener("wheel", event => {
  if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
  event.preventDefault();
  const box = canvas.getBoundingClientRect();
  zoom(event.deltaY < 0 ? 1.12 : 1 / 1.12, (event.clientX - box.x) / box.width, (event.clientY - box.y) / box.height);
}, {passive: false});
const fingers = new Map();
canvas.addEventListener("pointerdown", event => { fingers.set(event.pointerId, event); graph.moved = false; });
canvas.addEventListener("pointermove", event => {
  const last = fingers.get(event.pointerId);
  if (!last) return;
  const scale = graph.view.w / canvas.clientWidth, v = graph.view;
  if (fingers.size === 2) {
    const [other] = [...fingers.values()].filter(one => one.pointerId !== event.pointerId);
    const size = one => Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY);
    zoom(size(event) / Math.max(1, size(last)));
  } else {
    if (Math.hypot(event.clientX - last.clientX, event.clientY - last.clientY) > 3) graph.moved = true;
    show({...v, x: v.x - (event.clientX - last.clientX) * scale, y: v.y - (event.clientY - last.clientY) * scale});
  }
  fingers.set(event.pointerId, event);
});
for (const end of ["pointerup", "pointercancel", "pointerleave"]) canvas.addEventListener(end, event => fingers.delete(event.pointerId));
const pictures = find("[data-when]");
pictures.forEach(button => button.addEventListener("click", () => {
  graph.when = button.dataset.when;
  pictures.forEach(other => other.setAttribute("aria-pressed", other === button));
  paint();
}));
find("[data-zoom]").forEach(button => button.addEventListener("click", () => zoom(+button.dataset.zoom)));

// Memory
const chart = document.getElementById("memory-chart"), readout = document.getElementById("memory-readout");
let memory = null, cursor = -1;
const COLOURS = ["--capture", "--guardstage", "--load", "--kernels", "--schedule", "--lower", "--aot", "--wrapper"];
const hue = n => `var(${COLOURS[n % COLOURS.length]})`;
const nameAt = (names, step) => names.filter(([, begin]) => begin <= step).pop()[0];
function plot() {
  memory = programs[graph.program].memory; cursor = -1;
  const width = Math.max(300, chart.clientWidth), height = chart.clientHeight, left = 62, top = 18, bottom = height - 30, right = width - 14;
  const steps = Math.max(1, memory.steps.length);
  const most = Math.max(1, memory.peak, ...memory.blocks.map(block => block[4] + block[1]));
  const x = step => left + (right - left) * step / steps, y = amount => bottom - (bottom - top) * amount / most;
  const svg = draw("svg", {viewBox: `0 0 ${width} ${height}`});
  for (const part of [0, .25, .5, .75, 1]) draw("text", {x: left - 8, y: y(most * part) + 4, "text-anchor": "end"}, svg, bytes(Math.round(most * part)));
  draw("text", {x: (left + right) / 2, y: height - 8, "text-anchor": "middle"}, svg, `${memory.steps.length} kernels and library calls, in order`);
  memory.shapes = memory.blocks.map(([names, size, begin, end, offset], n) => {
    const shape = draw("rect", {class: "block", x: x(begin), width: Math.max(1, x(end) - x(begin)), y: y(offset + size), height: Math.max(1, y(offset) - y(offset + size)), fill: hue(n), rx: 2}, svg);
    draw("title", {}, shape, `${names.map(([name]) => name).join(" → ")}  ${bytes(size)}`);
    return shape;
  });
  let line = "";
  memory.held.forEach((held, step) => { line += `${step ? "L" : "M"}${x(step)} ${y(held)}L${x(step + 1)} ${y(held)}`; });
  if (line) draw("path", {class: "held", d: line}, svg);
  draw("line", {class: "peak", x1: left, x2: right, y1: y(memory.peak), y2: y(memory.peak)}, svg);
  draw("text", {x: right, y: y(memory.peak) - 5, "text-anchor": "end"}, svg, `peak ${bytes(memory.peak)}`);
  memory.line = draw("line", {class: "cursor", y1: top, y2: bottom, visibility: "hidden"}, svg);
  memory.x = x; memory.left = left; memory.right = right; memory.width = width;
  chart.replaceChildren(svg);
  readout.textContent = memory.blocks.length ? "Point at a step, or give the chart focus and use the left and right arrow keys." : "No buffers are planned: results of library calls and of the graph alone.";
  document.getElementById("memory-count").textContent = `${memory.blocks.length} pieces of memory`;
}
function point(step) {
  if (!memory.steps.length) return;
  cursor = Math.min(Math.max(step, 0), memory.steps.length - 1);
  const middle = memory.x(cursor + .5);
  memory.line.setAttribute("x1", middle); memory.line.setAttribute("x2", middle); memory.line.setAttribute("visibility", "visible");
  const alive = memory.blocks.map((block, n) => [block, n]).filter(([block]) => block[2] <= cursor && cursor < block[3]);
  memory.shapes.forEach((shape, n) => shape.classList.toggle("lit", alive.some(one => one[1] === n)));
  readout.replaceChildren();
  tag("b", `Step ${cursor + 1}, ${memory.steps[cursor]}: ${bytes(memory.held[cursor])}`, readout);
  const largest = alive.sort((a, b) => b[0][1] - a[0][1]).slice(0, 6).map(([block]) => `${nameAt(block[0], cursor)} ${bytes(block[1])}`);
  readout.append(`  ${largest.join(", ")}${alive.length > 6 ? `, and ${alive.length - 6} more` : ""}`);
}
chart.addEventListener("pointermove", event => {
  const box = chart.getBoundingClientRect(), place = (event.clientX - box.x) * memory.width / box.width;
  point(Math.floor((place - memory.left) / (memory.right - memory.left) * memory.steps.length));
});
chart.addEventListener("keydown", event => {
  const move = {ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10}[event.key];
  if (move) point(cursor + move);
  else if (event.key === "Home") point(0);
  else if (event.key === "End") point(memory.steps.length - 1);
  else return;
  event.preventDefault();
});

const selects = find("select.program");
selects.forEach(select => select.addEventListener("change", () => {
  graph.program = +select.value;
  selects.forEach(other => { other.value = select.value; });
  paint(); plot();
}));
// What lies far below is drawn when the page has shown.
requestAnimationFrame(() => { paint(); plot(); });
addEventListener("resize", () => { start(); plot(); });
})();
