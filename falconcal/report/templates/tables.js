// Tables: sorted by a heading, and taken away as CSV.

const NUMBER = /^[<>]?\s*([-+\u2212]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?(?:e[-+]?\d+)?)(%?)(?=$|\s)/i;
const NONE = new Set(["", "-", "n/a"]);
const LAST = new Set([...NONE, "none"]); // "none" may also be a name, so that a file keeps it
const alphabet = new Intl.Collator("en", { numeric: true });

// the text of a cell without what stands below it, and without the arrow that says what is better
function textOf(cell) {
  const copy = cell.cloneNode(true);
  copy.querySelectorAll("small, .direction").forEach((aside) => aside.remove());
  return copy.textContent.trim();
}

// the number that a text begins with, as in "0.185 ± 0.01"; NaN if it begins with none
function numberIn(text) {
  const found = NUMBER.exec(text);
  if (!found || !/\d/.test(found[1])) return NaN;
  return Number(found[1].replaceAll(",", "").replace("\u2212", "-")) / (found[2] ? 100 : 1);
}

// the order of rows by a column: 1 rising, -1 falling; what is empty stays last either way
function sortedRows(rows, column, direction) {
  const texts = new Map(rows.map((row) => [row, textOf(row.cells[column])]));
  const empty = (row) => LAST.has(texts.get(row));
  const numbers = new Map(rows.map((row) => [row, numberIn(texts.get(row))]));
  const numeric = rows.every((row) => empty(row) || !Number.isNaN(numbers.get(row)));
  const compare = numeric
    ? (one, other) => numbers.get(one) - numbers.get(other)
    : (one, other) => alphabet.compare(texts.get(one), texts.get(other));
  return [...rows].sort((one, other) => {
    if (empty(one) || empty(other)) return empty(one) - empty(other);
    return direction * compare(one, other);
  });
}

const AS_GIVEN = { column: -1, direction: 1 };

function showSorted(table, { column, direction }) {
  const rows = column < 0 ? table.asGiven : sortedRows(table.asGiven, column, direction);
  table.tBodies[0].append(...rows);
  Array.from(table.tHead.rows[0].cells).forEach((cell, place) => {
    if (place === column) cell.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
    else cell.removeAttribute("aria-sort");
  });
  table.sorted = { column, direction };
  table.chooser.value = column < 0 ? "" : `${column} ${direction}`;
}

// rising, falling, and as it was
function sortNext(table, column) {
  const { column: before, direction } = table.sorted;
  if (before !== column) showSorted(table, { column, direction: 1 });
  else showSorted(table, direction > 0 ? { column, direction: -1 } : AS_GIVEN);
}

function makeSortable(table) {
  table.asGiven = Array.from(table.tBodies[0].rows);
  table.sorted = AS_GIVEN;
  Array.from(table.tHead.rows[0].cells).forEach((cell, column) => {
    const button = made("button", { type: "button", className: "sort", textContent: textOf(cell) });
    button.addEventListener("click", () => sortNext(table, column));
    cell.replaceChildren(button, ...cell.querySelectorAll(".direction"));
  });
}

// where the headings are not seen, on a phone, a list stands for them
function makeChooser(table) {
  const chooser = made("select");
  chooser.append(made("option", { value: "", textContent: "as given" }));
  Array.from(table.tHead.rows[0].cells).forEach((cell, column) => {
    for (const [direction, words] of [[1, "rising"], [-1, "falling"]]) {
      const textContent = `${textOf(cell)}, ${words}`;
      chooser.append(made("option", { value: `${column} ${direction}`, textContent }));
    }
  });
  chooser.addEventListener("change", () => {
    const [column, direction] = chooser.value.split(" ").map(Number);
    showSorted(table, chooser.value ? { column, direction } : AS_GIVEN);
  });
  return chooser;
}

// a number stays one, without thousands' commas; other text is kept from being taken for a formula
function csvCell(text) {
  if (NONE.has(text)) return "";
  const plain = text.replace("\u2212", "-");
  if (/^[-+]?(\d{1,3}(,\d{3})+|\d+)(\.\d+)?(e[-+]?\d+)?%?$/i.test(plain)) return plain.replaceAll(",", "");
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

const MEASURED = /^([-+\u2212]?[\d.,]+)(?: ± ([\d.,]+))?(?: ([a-zµ]{1,3}))?$/i;

// a cell in parts: its figure, its deviation, what stands below it; and its unit
function cellParts(cell) {
  const below = cell.querySelector("small");
  const found = MEASURED.exec(textOf(cell)) || [];
  return {
    whole: textOf(cell),
    unit: found[3] || "",
    parts: [found[1] || textOf(cell), found[2] || "", below ? below.textContent : ""],
  };
}

const PARTS = ["", ", deviation", ", 95 % interval"];

// the columns that one of the page makes: a unit that all its cells share goes into the heading
function csvColumns(name, cells) {
  const told = cells.filter((cell) => !NONE.has(cell.whole));
  const unit = told.length && told.every((cell) => cell.unit === told[0].unit) ? told[0].unit : "";
  const bare = told.every((cell) => cell.unit === unit);
  return PARTS.map((words, part) => [
    name + words + (unit && part < 2 ? `, ${unit}` : ""),
    ...cells.map((cell) => (bare || part > 1 ? cell.parts[part] : [cell.whole, ""][part])),
  ]).filter((column, part) => part === 0 || column.slice(1).some(Boolean)).flatMap(bounds);
}

const INTERVAL = /^([-+\u2212]?[\d.,]+) to ([-+\u2212]?[\d.,]+)$/;

// a column of intervals is two of numbers
function bounds([name, ...texts]) {
  const told = texts.filter((text) => !NONE.has(text));
  if (!told.length || !told.every((text) => INTERVAL.test(text))) return [[name, ...texts]];
  return [1, 2].map((end) => [
    `${name}, ${["from", "to"][end - 1]}`,
    ...texts.map((text) => (INTERVAL.exec(text) || [])[end] || ""),
  ]);
}

function csvOf(table) {
  const rows = Array.from(table.tBodies[0].rows, (row) => Array.from(row.cells, cellParts));
  const columns = Array.from(table.tHead.rows[0].cells, textOf).flatMap((name, place) => csvColumns(
    name,
    rows.map((row) => row[place]),
  ));
  const lines = [null, ...rows].map((_, line) => columns.map((column) => csvCell(column[line])));
  return lines.map((line) => `${line.join(",")}\r\n`).join("");
}

// CSV from elsewhere, each cell as ours are
function csvAgain(text) {
  return text.replace(/("(?:[^"]|"")*"|[^,\n]*)([,\n])/g, (_, cell, end) => {
    const bare = cell.startsWith('"') ? cell.slice(1, -1).replaceAll('""', '"') : cell;
    return csvCell(bare) + (end === "\n" ? "\r\n" : end);
  });
}

function download(name, text) {
  const address = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
  const link = made("a", { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

function fileName(words) {
  return `${words.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "") || "table"}.csv`;
}

// what a table is called: the heading right before it, or that of what it stands in
function nameOf(table) {
  const place = table.closest(".scroll");
  for (let before = place.previousElementSibling; before; before = before.previousElementSibling) {
    if (before.matches("h2, h3, summary")) return before.textContent;
  }
  const section = table.closest("section");
  return (section && section.querySelector("h2").textContent) || "table";
}

function addTools(table) {
  table.chooser = makeChooser(table);
  makeSortable(table);
  const button = made("button", { type: "button", className: "download", textContent: "Download as CSV" });
  button.addEventListener("click", () => download(fileName(`${document.title} ${nameOf(table)}`), csvOf(table)));
  const label = made("label", { className: "chooser", textContent: "Sort by " });
  label.append(table.chooser);
  const tools = made("p", { className: "tools" });
  tools.append(label, button);
  table.closest(".scroll").after(tools);
}

document.querySelectorAll(".scroll > table").forEach(addTools);

// all rows, beside the table of every method
function addRows(text) {
  const button = made("button", { type: "button", className: "download", textContent: "Download all rows as CSV" });
  button.addEventListener("click", () => download(fileName(`${document.title} rows`), csvAgain(text)));
  document.querySelector("#summary .tools").append(button);
}

const allRows = carried("rows-csv");
if (allRows) addRows(allRows);
