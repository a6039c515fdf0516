// Any level of any shift: its pictures, and how sure and how right the chosen methods are there.

const KINDS = { tested: "Tested", selection: "Used to choose settings", outliers: "Outliers" };

// what is shown: the chosen shift and level, or else the ones at which the methods differ most
function explored() {
  const { start } = explorer;
  const placeOf = (name) => explorer.shifts.findIndex((shift) => shift.name === name);
  const found = placeOf(chosen.shift);
  const place = found < 0 ? Math.max(0, placeOf(start.shift)) : found;
  const shift = explorer.shifts[place];
  const steps = [chosen.level, shift.name === start.shift ? start.level : ""].map((level) => (
    shift.levels.indexOf(level === "" ? NaN : Number(level))));
  const step = steps.find((one) => one >= 0);
  return { shift, place, step: step === undefined ? shift.levels.length - 1 : step };
}

function rungOf(method, { shift, place, step }) {
  if (shift.levels[step] === 0) return explorer.clean[method];
  return explorer.rungs[method][place][shift.levels[0] === 0 ? step - 1 : step];
}

function shownRungs(where) {
  const shown = explorer.ranked.map((name) => {
    const method = series.indexOf(name);
    return { name, method, rung: rungOf(method, where) };
  });
  return shown.filter(({ name, rung }) => rung && !isDim([name]));
}

function reliabilityRows(shown) {
  const rows = shown.flatMap(({ name, rung }) => (rung.bins || []).map((bin, place) => {
    const counts = rung.cells[2 * place] + rung.cells[2 * place + 1];
    const [confidence, accuracy] = bin || [];
    return { series: name, bin: place, confidence, accuracy, counts, share: counts / rung.n };
  }));
  const filled = rows.filter((row) => row.counts);
  return filled.map((row, place) => ({ ...row, first: place === 0, all: "" }));
}

function confidenceRows(shown) {
  return shown.flatMap(({ name, rung }) => {
    const shares = rung.cells.map((counts) => counts / rung.n);
    // the last step has an end too
    return [...shares, shares.at(-1)].map((share, place) => (
      { series: name, from: place / explorer.cells, share, all: "" }));
  });
}

function told(field, title, format) {
  return { field, title, format, type: format ? "quantitative" : "nominal" };
}

function panelOf(layer, square) {
  const { config } = charts[0].specification;
  const facet = { field: "all", type: "nominal", header: { title: null, labels: false } };
  const spec = { width: 300, height: 260, layer };
  return { data: { name: "explored", values: [] }, facet, columns: 1, spec, config, usermeta: { legendWidth: 75, square, cells: 0, byMethod: true } };
}

const inkOfSeries = () => ({
  field: "series",
  type: "nominal",
  legend: null,
  scale: { domain: series, range: explorer.colours },
});

function reliabilityChart() {
  const axis = { format: ".1f", values: [0, 0.2, 0.4, 0.6, 0.8, 1] };
  const scale = { domain: [-0.04, 1.04], nice: false };
  const encoding = {
    x: { field: "confidence", type: "quantitative", title: "confidence", axis, scale },
    y: { field: "accuracy", type: "quantitative", title: "accuracy", axis, scale },
    color: inkOfSeries(),
  };
  const size = { field: "share", type: "quantitative", legend: null, scale: { domain: [0, 1], range: [12, 500] } };
  const tooltip = [told("series", "method"), told("counts", explorer.inputs, ",d"), told("confidence", "mean confidence", ".3f"), told("accuracy", "accuracy", ".3f")];
  return panelOf([
    {
      transform: [{ filter: "datum.first" }],
      mark: { type: "rule", strokeDash: [4, 3], opacity: 0.5, aria: false },
      encoding: { x: { datum: 0 }, y: { datum: 0 }, x2: { datum: 1 }, y2: { datum: 1 } },
    },
    { mark: { type: "line", strokeWidth: 1.8 }, encoding },
    { mark: { type: "circle", opacity: 0.85 }, encoding: { ...encoding, size, tooltip } },
  ], true);
}

function confidenceChart() {
  const encoding = {
    x: { field: "from", type: "quantitative", title: "confidence", axis: { format: ".1f", values: [0, 0.2, 0.4, 0.6, 0.8, 1] }, scale: { domain: [0, 1] } },
    y: { field: "share", type: "quantitative", title: `share of ${explorer.inputs}`, axis: { format: "~%", tickCount: 5 } },
    color: inkOfSeries(),
  };
  const tooltip = [told("series", "method"), told("from", "confidence above", ".2f"), told("share", "share", ".1%")];
  return panelOf([
    { mark: { type: "line", interpolate: "step-after", strokeWidth: 1.8 }, encoding },
    { mark: { type: "circle", size: 90, opacity: 0 }, encoding: { ...encoding, tooltip } },
  ], true);
}

function showRows({ place, specification }, rows) {
  specification.data.values = rows;
  if (place.drawn) place.drawn.view.data("explored", rows).runAsync();
}

// what was chosen while a figure was being drawn is not in it yet
function catchUp(chart) {
  const { values } = chart.specification.data;
  if (chart.place.drawnValues !== values) showRows(chart, values);
}

// the clean examples and, beside them, the same ones at the level: columns of the shift's picture
function showPictures({ shift, step }) {
  const strip = Array.from(document.querySelectorAll("img[data-strip]")).find((image) => image.dataset.strip === shift.name);
  const figure = document.getElementById("explorer-pictures");
  figure.hidden = !strip;
  if (!strip) return;
  figure.querySelector("figcaption").textContent = shift.columns && step
    ? `Clean, and at level ${shift.levels[step]} of ${shift.name}` : shift.columns ? "Clean" : shift.name;
  strip.decode().then(() => paintPictures(figure.querySelector("canvas"), strip, shift, step));
}

function paintPictures(canvas, strip, shift, step) {
  const width = shift.columns ? strip.naturalWidth / shift.columns : strip.naturalWidth;
  const places = shift.columns ? [...new Set([0, step])] : [0];
  Object.assign(canvas, { width: width * places.length, height: strip.naturalHeight });
  const brush = canvas.getContext("2d");
  places.forEach((place, column) => {
    brush.drawImage(strip, place * width, 0, width, canvas.height, column * width, 0, width, canvas.height);
  });
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `Examples under ${shift.name}, level ${shift.levels[step]}`);
}

function showTable(shown) {
  const table = document.getElementById("explorer-table");
  const figure = (value) => (value === null ? "n/a" : value.toFixed(3));
  table.asGiven = shown.map(({ name, method, rung }) => {
    const row = made("tr");
    row.append(made("th", { scope: "row", textContent: name }));
    row.firstChild.style.setProperty("--ink-of-method", explorer.colours[method]);
    const cells = [figure(rung.accuracy), figure(rung.confidence), figure(rung.ece), rung.n.toLocaleString("en")];
    cells.forEach((textContent, place) => {
      const cell = made("td", { textContent });
      cell.dataset.label = table.tHead.rows[0].cells[place + 1].textContent;
      row.append(cell);
    });
    return row;
  });
  table.tBodies[0].replaceChildren();
  showSorted(table, table.sorted);
}

function showControls({ shift, step }) {
  document.getElementById("explorer-shift").value = shift.name;
  const slider = document.getElementById("explorer-level");
  slider.max = shift.levels.length - 1;
  slider.value = step;
  slider.disabled = shift.levels.length < 2;
  const words = shift.kind === "outliers" ? "none" : `${shift.levels[step]} of ${shift.levels.at(-1)}`;
  slider.setAttribute("aria-valuetext", words);
  document.getElementById("explorer-shown").value = words;
}

function makeShifts() {
  const list = document.getElementById("explorer-shift");
  for (const [kind, label] of Object.entries(KINDS)) {
    const names = explorer.shifts.filter((shift) => shift.kind === kind).map((shift) => shift.name);
    const group = made("optgroup", { label });
    group.append(...names.map((name) => made("option", { value: name, textContent: name })));
    if (names.length) list.append(group);
  }
  list.addEventListener("change", () => choose({ shift: list.value }));
  const slider = document.getElementById("explorer-level");
  slider.addEventListener("input", () => {
    const { shift } = explored();
    choose({ shift: shift.name, level: String(shift.levels[slider.value]) });
  });
}

function startExplorer() {
  const diagram = { place: document.getElementById("explorer-reliability"), specification: reliabilityChart() };
  const histogram = { place: document.getElementById("explorer-confidence"), specification: confidenceChart() };
  charts.push(diagram, histogram);
  afterDrawing.push((place) => [diagram, histogram].filter((one) => one.place === place).forEach(catchUp));
  document.getElementById("explorer").hidden = false;
  makeShifts();
  afterChoosing.push(() => {
    const where = explored();
    const shown = shownRungs(where);
    showControls(where);
    showPictures(where);
    const showFigures = () => {
      const latest = shownRungs(explored());
      showRows(diagram, reliabilityRows(latest));
      showRows(histogram, confidenceRows(latest));
    };
    // out of sight it can wait, but never for its first rows: the first drawing measures with them
    if (diagram.place.drawn && distance(diagram.place) > 0) nextFrame().then(showFigures);
    else showFigures();
    const figure = document.getElementById("explorer-diagram");
    const comesBack = figure.hidden && where.shift.kind !== "outliers";
    figure.hidden = where.shift.kind === "outliers";
    if (comesBack) drawAll(); // it may never have been drawn
    showTable(shown);
  });
}

if (explorer && explorer.shifts.length) startExplorer();
