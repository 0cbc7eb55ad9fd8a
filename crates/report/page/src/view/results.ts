// All runs of all sets, filtered by design, machine, input, kind and text.

import { h } from "../dom";
import { count, seconds, slowdown } from "../format";
import { type Column, type Order, filterBox, scroll, sortable } from "../tables";
import { type Side, address, runName } from "./differences";
import { type Catalog, KINDS, type ResultSet, type RunRow, hasRuns, nameOf, valuesOf } from "./source";

/** Rows that are drawn before a click draws all. */
const MOST = 300;

type Row = RunRow & { set: ResultSet; at: number };

/** What the reader has chosen; it stays while new results come in. */
const chosen = { text: "", design: "", machine: "", input: "", kind: "", all: false };
const order: Order = { key: "", ascending: true };
/** The first is before, the second after. */
let picked: Side[] = [];

export function results(catalog: Catalog, isServed: boolean): HTMLElement {
  const rows: Row[] = catalog.sets.flatMap((set) => set.runs.map((row, at) => ({ ...row, set, at })));
  const page = h("section", { id: "results", "aria-labelledby": "results-title" }, h("h2", { id: "results-title" }, "Results"));
  const places = catalog.roots.map((root) => (root === "." ? "the current folder" : root)).join(", ");
  page.append(h("p", { class: "lead" }, `${plural(rows.length, "run")} in ${plural(catalog.sets.length, "set")} under ${places}.${isServed ? " New results appear by themselves." : ""}`));
  if (catalog.problems.length > 0) page.append(problems(catalog));
  if (catalog.sets.length === 0) {
    const hint = "terrace compare -o FOLDER writes some.";
    page.append(h("p", { class: "empty" }, `There are no results here. ${hint}`));
    return page;
  }
  const body = h("div");
  const tray = h("div", { class: "tray", role: "status" });
  // What is chosen changes no row: the tables stay, and with them the place of the keyboard.
  const choose = () => {
    for (const box of page.querySelectorAll<HTMLInputElement>("input[data-side]")) box.checked = picked.some((side) => nameOfSide(side) === box.dataset.side);
    drawTray(catalog, tray, choose);
  };
  const draw = () => {
    const words = chosen.text.toLowerCase().split(/\s+/).filter((word) => word !== "");
    const shown = rows.filter((row) => isChosen(row, words));
    const drawn = chosen.all ? shown : shown.slice(0, MOST);
    body.replaceChildren(h("p", { class: "measure", role: "status" }, shown.length === rows.length ? plural(rows.length, "run") : `${shown.length} of ${plural(rows.length, "run")}`));
    if (shown.length === 0) body.append(h("p", { class: "empty" }, "No run matches."));
    else body.append(scroll(sortable("runs-table", "All runs", columns(drawn, choose), drawn, order), "All runs"));
    if (drawn.length < shown.length) {
      const more = h("button", { type: "button", class: "copy more" }, `Show all ${shown.length}`);
      more.addEventListener("click", () => {
        chosen.all = true;
        draw();
      });
      body.append(more);
    }
    choose();
  };
  const search = filterBox("Filter, such as gups thp", (text) => {
    chosen.text = text;
    draw();
  });
  search.setAttribute("value", chosen.text);
  const facet = (key: "design" | "machine" | "input" | "kind", label: string, values: string[], name = (value: string) => value) => {
    const all = [...new Set(values)].filter((value) => value !== "").sort();
    if (all.length < 2 && chosen[key] === "") return null;
    const select = h("select", { "aria-label": label }, h("option", { value: "" }, `any ${label}`));
    for (const value of all) select.append(h("option", { value, selected: value === chosen[key] }, name(value)));
    select.addEventListener("change", () => {
      chosen[key] = select.value;
      draw();
    });
    return select;
  };
  page.append(
    h(
      "div",
      { class: "controls filters" },
      search,
      facet("design", "design", rows.map((row) => row.design)),
      facet("machine", "machine", rows.map((row) => row.machine)),
      facet("input", "input", rows.map((row) => row.input)),
      facet("kind", "kind", rows.map((row) => row.set.kind), (kind) => KINDS[kind as keyof typeof KINDS]),
    ),
    tray,
    body,
    sets(catalog, choose),
  );
  draw();
  return page;
}

function isChosen(row: Row, words: string[]): boolean {
  const is = (key: "design" | "machine" | "input") => chosen[key] === "" || row[key] === chosen[key];
  if (!is("design") || !is("machine") || !is("input")) return false;
  if (chosen.kind !== "" && row.set.kind !== chosen.kind) return false;
  const text = [row.design, row.machine, row.input, valuesOf(row), row.fidelity, row.set.path].join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
}

function columns(rows: Row[], choose: () => void): Column<Row>[] {
  const some = (value: (row: Row) => unknown) => rows.some((row) => value(row) !== null && value(row) !== "");
  const all: (Column<Row> | false)[] = [
    { key: "pick", title: "Δ", help: "Choose two runs to see what differs", value: () => "", node: (row) => (hasRuns(row.set) ? pick({ set: row.set.id, run: row.at }, runName(row), choose) : h("span")) },
    { key: "design", title: "Design", help: "What was run", value: (row) => row.design, node: (row) => h("a", { href: hasRuns(row.set) ? `#/set/${row.set.id}/${row.at}` : `#/set/${row.set.id}` }, row.design) },
    { key: "set", title: "Set", help: "The file or folder", value: (row) => nameOf(row.set), node: (row) => h("a", { href: `#/set/${row.set.id}` }, nameOf(row.set)) },
    { key: "input", title: "Input", help: "Program or workload", value: (row) => row.input },
    some(valuesOf) && { key: "values", title: "Values", help: "What the sweep varies", value: valuesOf },
    { key: "machine", title: "Machine", help: "The machine", value: (row) => row.machine },
    { key: "seconds", title: "Time", help: "Simulated", value: (row) => row.seconds, text: seconds },
    some((row) => row.slowdown) && { key: "slowdown", title: "Slowdown", help: "Against everything in the fastest tier", value: (row) => row.slowdown, text: slowdown },
    { key: "accesses", title: "Accesses", help: "Loads and stores", value: (row) => row.accesses, text: count },
    { key: "fidelity", title: "Fidelity", help: "How much of the machine was simulated, or live", value: (row) => row.fidelity },
    { key: "date", title: "Date", help: "Of the run, or of its file", value: (row) => dateOf(row.set) },
  ];
  return all.filter((column) => column !== false);
}

const nameOfSide = (side: Side): string => (side.run === null ? String(side.set) : `${side.set}.${side.run}`);

function pick(side: Side, name: string, choose: () => void): HTMLElement {
  const box = h("input", { type: "checkbox", "aria-label": `Compare ${name}`, "data-side": nameOfSide(side) });
  const same = (other: Side) => nameOfSide(other) === nameOfSide(side);
  // A table that is sorted anew makes its boxes anew.
  box.checked = picked.some(same);
  box.addEventListener("change", () => {
    // A third takes the place of the second.
    picked = box.checked ? [...picked.slice(0, 1), side] : picked.filter((other) => !same(other));
    choose();
  });
  return box;
}

function drawTray(catalog: Catalog, tray: HTMLElement, choose: () => void): void {
  const name = (side: Side) => {
    const set = catalog.sets.find((one) => one.id === side.set);
    if (!set) return null;
    return side.run === null ? nameOf(set) : `${runName(set.runs[side.run] ?? set.runs[0])} (${nameOf(set)})`;
  };
  picked = picked.filter((side) => name(side) !== null);
  tray.replaceChildren();
  if (picked.length === 0) return;
  const clear = h("button", { type: "button", class: "copy" }, "Clear");
  clear.addEventListener("click", () => {
    picked = [];
    choose();
  });
  const [before, after] = picked;
  tray.append(
    h("span", {}, h("strong", {}, "Before "), name(before)!),
    h("span", {}, h("strong", {}, "After "), after ? name(after)! : "choose another"),
    after ? h("a", { class: "go", href: address(before, after) }, "Show differences") : "",
    clear,
  );
}

/** The files and folders, a line each. */
function sets(catalog: Catalog, choose: () => void): HTMLElement {
  const list = h("tbody");
  for (const set of catalog.sets) {
    list.append(
      h(
        "tr",
        {},
        h("td", { class: "name" }, hasRuns(set) ? pick({ set: set.id, run: null }, nameOf(set), choose) : ""),
        h("th", { scope: "row", class: "name" }, h("a", { href: `#/set/${set.id}` }, nameOf(set))),
        h("td", { class: "name" }, KINDS[set.kind]),
        h("td", { class: "name" }, set.title),
        h("td", { class: "number", "data-value": set.runs.length }, String(set.runs.length)),
        h("td", { class: "name" }, set.tool_version),
        h("td", { class: "name" }, dateOf(set)),
      ),
    );
  }
  const head = h("tr", {}, ...["Δ", "Set", "Kind", "Title", "Runs", "Version", "Date"].map((text) => h("th", { scope: "col", class: text === "Runs" ? "number" : "name" }, text)));
  const table = h("table", { id: "sets-table" }, h("caption", { class: "hidden" }, "All sets of results"), h("thead", {}, head), list);
  return h("div", { class: "block" }, h("h3", {}, "Sets"), scroll(table, "All sets of results", "tall"));
}

function problems(catalog: Catalog): HTMLElement {
  const list = catalog.problems.map(({ path, message }) => h("li", {}, h("code", {}, path), `: ${message}`));
  const title = `${catalog.problems.length === 1 ? "1 file" : `${catalog.problems.length} files`} cannot be shown`;
  return h("div", { class: "problems", role: "alert" }, h("strong", {}, title), h("ul", {}, ...list));
}

export function dateOf(set: ResultSet): string {
  return set.date !== "" ? set.date : new Date(set.modified * 1000).toISOString().slice(0, 10);
}

export function plural(n: number, noun: string): string {
  return `${n.toLocaleString("en-US")} ${noun}${n === 1 ? "" : "s"}`;
}
