// What the reader chose: highlighted ("lit") methods, a shift, a level. The address carries it, so that
// a link keeps it. Of many methods a few are lit at first; an empty "lit" in the address takes that back.

const explorer = carried("explorer-data"); // none on the page of one set of predictions
const series = explorer ? explorer.series : [];
const few = explorer ? explorer.first : []; // lit at first, where there are many methods
const many = few.length > 0;
const chosen = { lit: new Set(few), shift: "", level: "" };
const afterChoosing = []; // functions that show what is chosen

function readAddress() {
  const words = new URLSearchParams(location.hash.slice(1));
  const named = words.has("lit") ? words.getAll("lit") : few;
  chosen.lit = new Set(named.filter((name) => series.includes(name)));
  chosen.shift = words.get("shift") || "";
  chosen.level = words.get("level") || "";
}

function writeAddress() {
  const asAtFirst = String([...chosen.lit]) === String(few);
  const named = many && !chosen.lit.size ? [""] : [...chosen.lit];
  const words = new URLSearchParams(asAtFirst ? [] : named.map((name) => ["lit", name]));
  for (const name of ["shift", "level"]) if (chosen[name]) words.append(name, chosen[name]);
  const fragment = String(words);
  history.replaceState(null, "", location.href.split("#")[0] + (fragment && `#${fragment}`));
}

let writing;

function choose(changes) {
  Object.assign(chosen, changes);
  clearTimeout(writing);
  writing = setTimeout(writeAddress, 150); // browsers refuse an address that changes at every step of a slider
  showChosen();
}

function showChosen() {
  afterChoosing.forEach((show) => show());
}

function toggle(name) {
  const lit = new Set(chosen.lit);
  if (!lit.delete(name)) lit.add(name);
  choose({ lit });
}

// whether these methods are dimmed because others are highlighted
function isDim(methods) {
  return chosen.lit.size > 0 && !methods.some((name) => chosen.lit.has(name));
}

function isLit(methods) {
  return methods.some((name) => chosen.lit.has(name));
}

function paint(element, methods) {
  element.classList.toggle("lit", isLit(methods));
  element.classList.toggle("dim", isDim(methods));
}

// Charts: every mark that Vega drew keeps its item, whose datum says which methods it concerns. So a
// click changes classes alone, and nothing is drawn again.

function inLegend(element) {
  const { __data__: item } = element;
  return Boolean(item && item.mark && (item.mark.role || "").startsWith("legend"));
}

function methodsOfMark(element) {
  const item = element.__data__;
  const datum = item && item.mark && item.datum;
  // grounds and diagonals concern nobody; what only answers the pointer, most of all marks, stays unseen
  if (!datum || item.mark.aria === false || item.opacity === 0) return [];
  const names = inLegend(element) ? [datum.value] : [datum.series, datum.row, datum.column];
  return names.filter((name) => series.includes(name));
}

function gatherMarks(place) {
  const elements = Array.from(place.querySelectorAll("path, line, rect, text, circle"));
  place.marks = elements.map((element) => [element, methodsOfMark(element)])
    .filter(([, methods]) => methods.length);
  for (const [element] of place.marks) element.classList.toggle("knob", inLegend(element));
  paintMarks(place);
}

function paintMarks(place) {
  (place.marks || []).forEach(([element, methods]) => paint(element, methods));
}

let painting = 0;

// what is seen at once, the figures further away one by one after it is shown
async function paintCharts() {
  painting += 1;
  const mine = painting;
  document.documentElement.dataset.painted = "not yet";
  const away = charts.filter(({ place }) => distance(place) > 0);
  charts.filter((chart) => !away.includes(chart)).forEach(({ place }) => paintMarks(place));
  await nextFrame();
  for (const { place } of away) {
    await pause();
    if (painting !== mine) return; // another choice came meanwhile
    paintMarks(place);
  }
  document.documentElement.dataset.painted = "all";
}

function addLegendClicks({ place }) {
  place.addEventListener("click", ({ target }) => {
    if (inLegend(target)) methodsOfMark(target).forEach(toggle);
  });
}

// Tables: rows of one method, rows of two, and columns of methods.

function methodsOfRow(text, heading) {
  if (heading === "Method") return series.filter((name) => name === text);
  if (heading !== "Pair") return [];
  return series.filter((name) => text.startsWith(`${name} less `) || text.endsWith(` less ${name}`));
}

function gatherCells(table) {
  const headings = Array.from(table.tHead.rows[0].cells, textOf);
  const rows = Array.from(table.tBodies[0].rows);
  const places = rows.map((row) => [row, methodsOfRow(textOf(row.cells[0]), headings[0])]);
  if (headings[0] === "Shift") {
    headings.forEach((name, column) => {
      if (column && series.includes(name)) rows.forEach((row) => places.push([row.cells[column], [name]]));
    });
  }
  return places.filter(([, methods]) => methods.length);
}

// the name of a method becomes a button, for the keyboard too
function addRowButton(row, name) {
  const button = made("button", { type: "button", className: "method", textContent: name });
  button.dataset.method = name;
  row.cells[0].replaceChildren(button);
}

function addRowClicks(places) {
  for (const [row, methods] of places.filter(([place, names]) => place.matches("tr") && names.length === 1)) {
    addRowButton(row, methods[0]);
    row.addEventListener("click", ({ target }) => {
      // who marks text to copy it means no click
      if (target.matches("button") || getSelection().isCollapsed) toggle(methods[0]);
    });
  }
}

// The bar: all methods with their colours, always at hand.

function makeBar() {
  const bar = made("div", { className: "bar" });
  bar.setAttribute("role", "group");
  bar.setAttribute("aria-label", "Methods to highlight");
  const all = made("button", { type: "button", className: "all", textContent: "all" });
  all.addEventListener("click", () => choose({ lit: new Set() }));
  if (many) bar.append(makeFilter());
  bar.append(all);
  for (const group of new Set(explorer.ranked.map((name) => explorer.groups[name]))) {
    const names = explorer.ranked.filter((name) => explorer.groups[name] === group);
    if (many) bar.append(made("span", { className: "group", textContent: group.split(",")[0] }));
    bar.append(...names.map(methodButton));
  }
  return bar;
}

function methodButton(name) {
  const button = made("button", { type: "button", className: "method", textContent: name });
  button.dataset.method = name;
  button.style.setProperty("--ink-of-method", explorer.colours[series.indexOf(name)]);
  button.addEventListener("click", () => toggle(name));
  return button;
}

// many methods: only those whose names hold the words stay in the bar and in the tables
function makeFilter() {
  const filter = made("input", { type: "search", placeholder: "Filter methods" });
  filter.setAttribute("aria-label", "Filter methods by name");
  filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/);
    const left = new Set(series.filter((name) => words.every((word) => name.toLowerCase().includes(word))));
    document.querySelectorAll(".bar .method").forEach((button) => { button.hidden = !left.has(button.dataset.method); });
    ofMethods.filter(([place]) => place.matches("tr")).forEach(([row, names]) => {
      row.hidden = !names.some((name) => left.has(name));
    });
  });
  return filter;
}

function showPressed() {
  document.querySelectorAll("button[data-method]").forEach((button) => {
    button.setAttribute("aria-pressed", chosen.lit.has(button.dataset.method));
  });
  document.querySelector(".bar .all").setAttribute("aria-pressed", chosen.lit.size === 0);
}

// move the bar alone, and only if the first lit method is out of sight
function revealLit(bar) {
  const button = bar.querySelector(".method[aria-pressed='true']");
  if (!button) return;
  const left = button.offsetLeft - bar.offsetLeft;
  const past = left + button.offsetWidth - bar.clientWidth;
  if (left < bar.scrollLeft || past > bar.scrollLeft) bar.scrollLeft = past + bar.clientWidth / 3;
}

const ofMethods = []; // rows, cells and sentences, and which methods they are about

function startSelection() {
  ofMethods.push(...Array.from(document.querySelectorAll(".scroll > table")).flatMap(gatherCells));
  addRowClicks(ofMethods);
  ofMethods.push(...Array.from(document.querySelectorAll("li[data-series]"), (item) => [item, [item.dataset.series]]));
  const bar = makeBar();
  document.querySelector("header").after(bar);
  charts.forEach(addLegendClicks);
  afterDrawing.push(gatherMarks);
  afterChoosing.push(
    showPressed,
    () => revealLit(bar),
    paintCharts,
    () => ofMethods.forEach(([element, methods]) => paint(element, methods)),
  );
  window.addEventListener("hashchange", () => { readAddress(); showChosen(); });
}

if (explorer) startSelection();
