// The figures: Vega-Lite specifications of the page, drawn as wide as their places.

const PANEL = 210; // the width below which a grid takes one column less
const NARROW = 500;
const CELL = 32; // the width of a number in a cell
const LABELS = 44; // what axis labels take beside a panel, before it is measured

function sized(specification, width, correction) {
  const copy = structuredClone(specification);
  const wrapped = !copy.facet.row;
  const cells = copy.usermeta.cells;
  const wide = cells > 3;
  const most = wrapped ? Math.max(copy.columns, wide ? 1 : Math.floor(width / 270)) : 1;
  // two columns even on a phone, or a dozen panels make a very long scroll; but few cells keep their numbers
  const least = wrapped && !cells && width >= 320 ? 2 : 1;
  const columns = Math.max(Math.min(most, Math.floor(width / PANEL)), least);
  const panel = Math.max(80, Math.floor(width / columns - LABELS + correction / columns));
  if (wrapped) copy.columns = Math.min(columns, most);
  copy.spec.width = panel;
  // numbers that would run into each other are left to the tooltip and the table
  if (cells && panel / cells < CELL) copy.spec.layer = copy.spec.layer.filter((layer) => layer.mark.type !== "text");
  if (copy.usermeta.square) copy.spec.height = panel;
  if (copy.usermeta.byMethod && many) dropLegends(copy.spec.layer);
  copy.config.legend.columns = Math.max(1, Math.floor(width / copy.usermeta.legendWidth));
  // a heading wider than its panel would push the panels apart
  copy.config.header.labelLimit = panel + 12;
  // names are whole where there is room for them; on a phone the numbers need it more
  copy.config.axis.labelLimit = width < NARROW ? 110 : 180;
  if (width < NARROW) Object.assign(copy.config.header, { labelFontSize: 10, labelFontWeight: 500 });
  return copy;
}

// of many methods the bar at the top is the legend of all figures
function dropLegends(layers) {
  for (const { encoding = {} } of layers) {
    for (const channel of Object.values(encoding)) if (channel.field === "series" && channel.legend) channel.legend = null;
  }
}

async function draw(place, specification) {
  const width = place.clientWidth;
  let correction = 0;
  for (let attempt = 0; attempt < 3; attempt += 1) {
    if (place.drawn) place.drawn.finalize();
    place.drawnValues = specification.data && specification.data.values;
    place.drawn = await vegaEmbed(place, sized(specification, width, correction), {
      mode: "vega-lite",
      renderer: "svg",
      actions: false,
    });
    const left = width - place.querySelector("svg").getAttribute("width");
    if (left >= 0 && left < 8) break;
    correction += left;
  }
  // a group without marks has nothing to say, and no name to say it by
  place.querySelectorAll("g[role]:empty").forEach((group) => group.removeAttribute("role"));
  place.drawnWidth = width;
}

const charts = Array.from(document.querySelectorAll("script[data-chart]"), (script) => ({
  place: document.getElementById(script.dataset.chart),
  specification: JSON.parse(script.textContent),
}));
const afterDrawing = []; // functions of a place whose marks are new

let drawing = Promise.resolve();

// one after the other, also when the window changes meanwhile
function drawAll() {
  document.documentElement.dataset.drawn = "not yet";
  drawing = drawing.then(drawEach);
}

function distance(place) {
  const { top, bottom } = place.getBoundingClientRect();
  return Math.max(0, top - innerHeight, -bottom);
}

// the nearest figure that is not drawn as wide as its place; hidden ones wait until they are seen
function nextToDraw() {
  const left = charts.filter(({ place }) => place.checkVisibility() && place.drawnWidth !== place.clientWidth);
  return left.sort((one, other) => distance(one.place) - distance(other.place))[0];
}

// clicks and scrolling come in between
const pause = () => new Promise((done) => { setTimeout(done); });

const nextFrame = () => new Promise((done) => { requestAnimationFrame(() => setTimeout(done)); });

async function drawEach() {
  for (let chart = nextToDraw(); chart; chart = nextToDraw()) {
    await draw(chart.place, chart.specification);
    afterDrawing.forEach((follow) => follow(chart.place));
    await pause();
  }
  document.documentElement.dataset.drawn = "all";
}

let waiting;
// not the window alone: a scroll bar that comes, or details that open, change widths too
new ResizeObserver(() => {
  clearTimeout(waiting);
  waiting = setTimeout(drawAll, 200);
}).observe(document.querySelector("main"));
