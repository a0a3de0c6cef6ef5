// The page of a flame graph: replaces the picture, if a browser runs the script.
// Names come from traced processes, so they are only ever set as text.
(function () {
"use strict";
const SVG = "http://www.w3.org/2000/svg", HTML = "http://www.w3.org/1999/xhtml";
const ROW = 18, NARROWEST = 0.4, MARGIN = 4;
const root = document.currentScript.ownerSVGElement;
const data = JSON.parse(root.querySelector("#data").textContent);

function make(parent, namespace, name, attributes, text) {
  const element = document.createElementNS(namespace, name);
  for (const key in attributes || {}) element.setAttribute(key, attributes[key]);
  if (text !== undefined) element.textContent = text;
  if (parent) parent.appendChild(element);
  return element;
}
const html = (parent, name, attributes, text) => make(parent, HTML, name, attributes, text);

// ---- Data ----

const names = data.names.map(([full, brief, bare, color, module, language]) => {
  brief = brief || full;
  const parts = [module < 0 ? "" : data.modules[module], language].filter(Boolean);
  return {full, brief, bare: bare || brief, color, parts};
});

// Each metric has its frames depth first. The first one holds all others.
function frames(metric) {
  const list = [{depth: 0, name: null, x: 0, w: metric.sum, error: 0, parent: -1}];
  const path = [0];
  let variance = 0;
  for (let at = 0, id = 1; at < metric.frames.length; at += 4, id++) {
    const [depth, name, from, w] = metric.frames.slice(at, at + 4);
    path.length = depth + 1;
    const parent = path[depth];
    const error = metric.errors[id - 1] || 0;
    if (depth === 0) variance += error * error;
    list.push({depth: depth + 1, name: names[name], x: list[parent].x + from, w, error, parent});
    path.push(id);
  }
  list[0].error = Math.sqrt(variance);
  // Each frame's callees end before `end`.
  const open = [];
  list.forEach((frame, id) => {
    while (open.length && list[open[open.length - 1]].depth >= frame.depth) list[open.pop()].end = id;
    open.push(id);
  });
  for (const id of open) list[id].end = list.length;
  return list;
}
const metrics = data.metrics.map(metric => ({...metric, list: null}));

// ---- Texts ----

const count = n => Math.round(n).toLocaleString("en-US");
function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let unit = 0;
  for (; unit < 6 && n >= (unit ? 1023.95 : 1024); unit++) n /= 1024;
  return (unit ? n.toFixed(1) : Math.round(n)) + " " + units[unit];
}
const amount = n => metric().is_bytes ? bytes(n) : count(n);
const plusMinus = error => error > 0 ? " ± " + amount(error) : "";
const share = (part, whole) => (100 * part / whole).toFixed(1) + " %";
const title = frame => frame.name ? frame.name.full : "all " + metric().title;

function cut(text, room) {
  return text.length <= room ? text : text.slice(0, Math.max(room - 1, 0)) + "…";
}
// The longest name that fits; the function alone is cut at its end.
function label(frame, room) {
  if (!frame.name) return cut("all " + metric().title, room);
  const fits = [frame.name.full, frame.name.brief].find(text => text.length <= room);
  return fits === undefined ? cut(frame.name.bare, room) : fits;
}

// ---- State ----

let shown = data.first, zoomed = 0, at = -1, query = "";
const metric = () => metrics[shown];
const list = () => metric().list || (metric().list = frames(metric()));

// ---- Page ----

root.querySelector("#picture").remove();
root.removeAttribute("viewBox");
root.setAttribute("width", "100%");
root.setAttribute("height", "100%");
const page = html(make(root, SVG, "foreignObject", {width: "100%", height: "100%"}), "div", {class: "page"});
const heading = html(page, "h1");
const subtitle = html(page, "div", {class: "sub"});
const legend = html(page, "div", {class: "legend"});
for (const [color, part] of data.legend) {
  const key = html(legend, "span");
  make(make(key, SVG, "svg"), SVG, "rect", {class: "c" + color, width: 12, height: 12});
  key.appendChild(document.createTextNode(part));
}
const row = html(page, "div", {class: "row"});
const group = html(row, "div", {class: "switch", role: "group", "aria-label": "Metric"});
const buttons = metrics.map((metric, index) => {
  const button = html(group, "button", {type: "button", title: "Key " + (index + 1)}, metric.title);
  button.addEventListener("click", () => choose(index));
  return button;
});
const field = html(row, "input", {
  type: "search", placeholder: "Search functions  ( / )", "aria-label": "Search functions", spellcheck: "false"
});
const back = html(row, "button", {type: "button", title: "Escape"}, "Reset zoom");
const found = html(row, "span", {class: "found", role: "status"});
const area = html(page, "div", {class: "area", tabindex: "0", "aria-label": "Flame graph"});
let canvas = make(area, SVG, "svg");
const about = html(page, "div", {class: "about", "aria-live": "polite"});
const aboutName = html(about, "b"), aboutNumbers = html(about, "span");

function characterWidth() {
  const probe = make(canvas, SVG, "text", {}, "M".repeat(50));
  const width = probe.getComputedTextLength() / 50;
  probe.remove();
  return width || 7.3;
}

// ---- Drawing ----

function isMatch(frame) {
  if (!query || !frame.name) return false;
  const name = frame.name;
  if (name.match !== query) {
    const text = (name.full + name.parts.map(part => " [" + part + "]").join("")).toLowerCase();
    [name.match, name.isMatch] = [query, text.includes(query.toLowerCase())];
  }
  return name.isMatch;
}

function draw() {
  const all = list(), zoom = all[zoomed], narrow = characterWidth();
  const width = area.clientWidth - 2 * MARGIN, scale = width / zoom.w;
  const visible = [];
  for (let id = zoom.parent; id >= 0; id = all[id].parent) visible.push(id);
  for (let id = zoomed; id < zoom.end; id++) {
    // Callees are not wider than their caller.
    if (all[id].w * scale < NARROWEST) id = all[id].end - 1;
    else visible.push(id);
  }
  const rows = 1 + visible.reduce((most, id) => Math.max(most, all[id].depth), 0);
  const next = make(null, SVG, "svg", {width: area.clientWidth, height: rows * ROW + 2});
  for (const id of visible) {
    const frame = all[id], isCaller = frame.depth < zoom.depth;
    const x = MARGIN + (isCaller ? 0 : (frame.x - zoom.x) * scale), w = isCaller ? width : frame.w * scale;
    const y = 1 + (rows - 1 - frame.depth) * ROW;
    const color = frame.name ? frame.name.color : data.all;
    const g = make(next, SVG, "g");
    g.frame = id;
    g.setAttribute("class", [isMatch(frame) && "hit", isCaller && "up", id === at && "at"].filter(Boolean).join(" "));
    make(g, SVG, "rect", {class: "c" + color, x: x.toFixed(2), y, width: Math.max(w - 0.5, 0.3).toFixed(2), height: ROW - 1});
    const room = Math.floor((w - 6) / narrow);
    if (room < 3) continue;
    const name = label(frame, room), value = "  " + amount(frame.w);
    const text = make(g, SVG, "text", {x: (x + 3).toFixed(2), y: y + ROW - 5}, name);
    if (name.length + value.length <= room) make(text, SVG, "tspan", {class: "v"}, value);
  }
  canvas.replaceWith(next);
  canvas = next;
}

// The sum of the frames that match. A match inside of another one is a part of it.
function search() {
  found.textContent = "";
  if (!query) return;
  const all = list(), zoom = all[zoomed];
  let sum = 0, variance = 0, matches = 0, begin = zoomed;
  for (let id = zoomed; id >= 0; id = all[id].parent) if (isMatch(all[id])) begin = id;
  for (let id = begin, end = begin; id < zoom.end; id++) {
    if (!isMatch(all[id])) continue;
    if (id >= zoomed) matches++;
    if (id < end) continue;
    const part = id < zoomed ? zoom : all[id];
    [sum, variance, end] = [sum + part.w, variance + part.error ** 2, all[id].end];
  }
  found.textContent = matches + sum === 0 ? "nothing found" :
    amount(sum) + plusMinus(Math.sqrt(variance)) + " of " + amount(zoom.w) + " (" + share(sum, zoom.w) + ") in " +
    count(matches) + (matches === 1 ? " frame" : " frames");
}

function describe() {
  const all = list(), frame = all[at];
  if (!frame) {
    aboutName.textContent = "";
    aboutNumbers.textContent = "Click a frame, or Enter: zoom · Escape: whole graph · arrow keys: move · / or Ctrl-F: search · " +
      "1–" + metrics.length + ": metric";
    return;
  }
  let callees = 0;
  for (let id = at + 1; id < frame.end; id = all[id].end) callees += all[id].w;
  const whole = all[0].w, zoom = all[zoomed];
  const parts = [];
  if (frame.name) parts.push(...frame.name.parts);
  parts.push(amount(frame.w) + (metric().is_bytes && frame.w >= 1024 ? " (" + count(frame.w) + " bytes)" : "") +
    plusMinus(frame.error));
  parts.push(share(frame.w, whole) + " of all " + metric().title);
  if (zoomed && at > zoomed) parts.push(share(frame.w, zoom.w) + " of what is shown");
  parts.push("itself " + amount(frame.w - callees));
  aboutName.textContent = title(frame);
  aboutNumbers.textContent = parts.join(" · ");
}

function update() {
  heading.textContent = metric().heading;
  document.title = metric().heading;
  subtitle.textContent = "";
  metric().subtitle.forEach((part, index) => {
    html(subtitle, "span", {}, (index ? "· " : "") + part);
    subtitle.appendChild(document.createTextNode(" "));
  });
  buttons.forEach((button, index) => button.setAttribute("aria-pressed", index === shown));
  back.disabled = zoomed === 0;
  search();
  draw();
  describe();
  const state = new URLSearchParams();
  if (shown !== data.first) state.set("metric", metric().name);
  if (zoomed) state.set("zoom", zoomed);
  if (query) state.set("search", query);
  // Some viewers forbid it; then the address does not follow.
  try { history.replaceState(null, "", "#" + state); } catch (_) {}
}

// ---- Actions ----

// Shows the frame, if it is outside of the visible part.
function reveal(id) {
  const rows = Math.round(canvas.getAttribute("height") / ROW);
  const y = (rows - 1 - list()[id].depth) * ROW;
  if (y < area.scrollTop) area.scrollTop = y;
  else if (y + 2 * ROW > area.scrollTop + area.clientHeight) area.scrollTop = y + 2 * ROW - area.clientHeight;
}
function showBase() { area.scrollTop = area.scrollHeight; }

function zoom(id) {
  zoomed = at = id;
  update();
  if (id) reveal(id); else showBase();
}

// The frame of another metric with the same callers, or the nearest one to it.
function same(from, id, to) {
  const path = [];
  for (; id > 0; id = from[id].parent) path.unshift(from[id].name);
  let last = 0;
  for (const name of path) {
    let next = last + 1;
    while (next < to[last].end && to[next].name !== name) next = to[next].end;
    if (next >= to[last].end) break;
    last = next;
  }
  return last;
}
function choose(index) {
  if (index < 0 || index >= metrics.length) return;
  const before = list();
  shown = index;
  zoomed = same(before, zoomed, list());
  at = -1;
  update();
  if (zoomed) reveal(zoomed); else showBase();
}

function mark(id) {
  if (id === at) return;
  for (const g of canvas.children) {
    if (g.frame === at) g.classList.remove("at");
    if (g.frame === id) g.classList.add("at");
  }
  at = id;
  describe();
}

function frameAt(event) {
  const g = event.target.closest && event.target.closest("g");
  return g && g.frame !== undefined ? g.frame : -1;
}
area.addEventListener("mousemove", event => mark(frameAt(event)));
area.addEventListener("mouseleave", () => mark(-1));
area.addEventListener("click", event => { if (frameAt(event) >= 0) zoom(frameAt(event)); });
back.addEventListener("click", () => zoom(0));
field.addEventListener("input", () => { query = field.value.trim(); update(); });
window.addEventListener("resize", draw);

// Moves to the widest callee, the caller or a neighbor.
function move(key) {
  const all = list();
  if (at < 0) return mark(zoomed);
  const frame = all[at];
  let to = at;
  if (key === "ArrowDown") to = Math.max(frame.parent, 0);
  if (key === "ArrowUp") {
    for (let id = at + 1, most = 0; id < frame.end; id = all[id].end) if (all[id].w > most) [to, most] = [id, all[id].w];
    if (at < zoomed && !(zoomed >= at && zoomed < frame.end)) to = at;
  }
  if (key === "ArrowRight" && frame.parent >= 0 && frame.end < all[frame.parent].end) to = frame.end;
  if (key === "ArrowLeft" && frame.parent >= 0)
    for (let id = frame.parent + 1; id < at; id = all[id].end) to = id;
  mark(to);
  reveal(to);
}

window.addEventListener("keydown", event => {
  const isField = document.activeElement === field;
  if (event.key === "f" && (event.ctrlKey || event.metaKey) && !isField || event.key === "/" && !isField) {
    // In the field, Ctrl-F is the browser's own search.
    field.focus();
    field.select();
  } else if (event.key === "Escape") {
    if (query) { field.value = query = ""; update(); } else zoom(0);
    area.focus();
  } else if (isField && event.key === "Enter") {
    area.focus();
  } else if (isField || event.ctrlKey || event.altKey || event.metaKey) {
    return;
  } else if (event.key.startsWith("Arrow")) {
    move(event.key);
  } else if (event.key === "Enter" && at >= 0 && document.activeElement.localName !== "button") {
    zoom(at);
  } else if (/^[1-9]$/.test(event.key)) {
    choose(Number(event.key) - 1);
  } else {
    return;
  }
  event.preventDefault();
});

const state = new URLSearchParams(location.hash.slice(1));
const wanted = metrics.findIndex(metric => metric.name === state.get("metric"));
if (wanted >= 0) shown = wanted;
field.value = query = state.get("search") || "";
const id = Number(state.get("zoom"));
if (list()[id]) zoomed = id;
update();
if (zoomed) reveal(zoomed); else showBase();
area.focus({preventScroll: true});
})();
