// The page of differences: two sets or two runs are chosen, and what changed most comes first.

import type { Report, Run } from "../data";
import { h } from "../dom";
import { exact, seconds } from "../format";
import { scroll } from "../tables";
import { type Changed, type Pair, type RunDifference, change, differenceOf, isEqual } from "./difference";
import { type Catalog, type ResultSet, type RunRow, type Source, hasRuns, identity, nameOf, report, valuesOf } from "./source";

/** A set, or one run of it. */
export type Side = { set: number; run: number | null };

/** Statistics that are shown of a run before a click shows all. */
const MOST = 12;

export function sideOf(text: string | undefined): Side | null {
  const match = /^(\d+)(?:\.(\d+))?$/.exec(text ?? "");
  return match ? { set: Number(match[1]), run: match[2] === undefined ? null : Number(match[2]) } : null;
}

export function address(before: Side | null, after: Side | null): string {
  const text = (side: Side | null) => (side === null ? "-" : side.run === null ? String(side.set) : `${side.set}.${side.run}`);
  return `#/difference/${text(before)}/${text(after)}`;
}

export function runName(row: RunRow): string {
  const values = valuesOf(row);
  return `${row.design} on ${row.input}${row.machine === "" ? "" : `, ${row.machine}`}${values === "" ? "" : `, ${values}`}`;
}

export async function differences(catalog: Catalog, source: Source, before: Side | null, after: Side | null): Promise<HTMLElement> {
  const sets = catalog.sets.filter(hasRuns);
  const page = h("section", { id: "differences", "aria-labelledby": "differences-title" }, h("h2", { id: "differences-title" }, "Differences"));
  page.append(h("p", { class: "lead" }, "Of two sets the runs of the same design, machine and input are compared, as ", h("code", {}, "terrace diff"), " does. Two single runs are compared whatever they are."));
  if (sets.length === 0) {
    page.append(h("p", { class: "empty" }, "There are no runs to compare."));
    return page;
  }
  const go = (first: Side | null, second: Side | null) => void (location.hash = address(first, second));
  page.append(
    h(
      "div",
      { class: "sides" },
      chooser("Before", sets, before, (side) => go(side, after)),
      chooser("After", sets, after, (side) => go(before, side)),
    ),
  );
  const find = (side: Side | null) => (side === null ? undefined : sets.find((set) => set.id === side.set));
  const [first, second] = [find(before), find(after)];
  if (!first || !second) {
    page.append(h("p", { class: "empty" }, "Choose both sides."));
    return page;
  }
  const [one, other] = [await report(source, first), await report(source, second)];
  page.append(...compared({ set: first, report: one, run: before!.run }, { set: second, report: other, run: after!.run }));
  return page;
}

type Compared = { set: ResultSet; report: Report; run: number | null };

function chooser(label: string, sets: ResultSet[], side: Side | null, choose: (side: Side | null) => void): HTMLElement {
  const set = h("select", { "aria-label": `${label}: set` }, h("option", { value: "" }, "choose a set"));
  for (const one of sets) set.append(h("option", { value: one.id, selected: one.id === side?.set }, nameOf(one)));
  const chosen = sets.find((one) => one.id === side?.set);
  const run = h("select", { "aria-label": `${label}: run`, disabled: chosen === undefined }, h("option", { value: "" }, "all runs"));
  chosen?.runs.forEach((row, at) => run.append(h("option", { value: at, selected: at === side?.run }, runName(row))));
  set.addEventListener("change", () => choose(set.value === "" ? null : { set: Number(set.value), run: null }));
  run.addEventListener("change", () => choose({ set: side!.set, run: run.value === "" ? null : Number(run.value) }));
  return h("div", { class: "side" }, h("span", { class: "side-name" }, label), set, run);
}

function compared(before: Compared, after: Compared): HTMLElement[] {
  if (before.run !== null && after.run !== null) {
    const [first, second] = [before.report.runs[before.run], after.report.runs[after.run]];
    const [row, other] = [before.set.runs[before.run], after.set.runs[after.run]];
    if (!first || !second) return [h("p", { class: "empty" }, "The run is no longer there.")];
    const name = identity(row) === identity(other) ? runName(row) : `${runName(row)} → ${runName(other)}`;
    return [oneRun(name, differenceOf(first, second), before.report.units, true)];
  }
  // A single run on one side stands for a set of one.
  const rows = (side: Compared) => side.set.runs.map((row, at) => ({ row, run: side.report.runs[at] as Run | undefined })).filter((_, at) => side.run === null || at === side.run);
  const ambiguous = [before, after].map((side) => repeated(rows(side).map(({ row }) => row))).find((name) => name !== null);
  if (ambiguous) return [h("p", { class: "empty" }, `Two runs of a set are ${ambiguous}: choose single runs.`)];
  const rest = new Map(rows(after).map((one) => [identity(one.row), one]));
  const pairs: { name: string; difference: RunDifference }[] = [];
  const only: { side: string; row: RunRow }[] = [];
  for (const { row, run } of rows(before)) {
    const match = rest.get(identity(row));
    rest.delete(identity(row));
    if (match?.run && run) pairs.push({ name: runName(row), difference: differenceOf(run, match.run) });
    else only.push({ side: "before", row });
  }
  for (const { row } of rest.values()) only.push({ side: "after", row });
  const changed = pairs.filter(({ difference }) => !isEqual(difference));
  const parts: HTMLElement[] = [];
  if (pairs.length === 0) parts.push(h("p", { class: "empty" }, "No run is in both."));
  else parts.push(summary(pairs));
  const equal = pairs.length - changed.length;
  if (equal > 0) parts.push(h("p", { class: "measure", id: "equal-runs" }, equal === 1 ? "1 run is equal in every statistic." : `${equal} runs are equal in every statistic.`));
  changed.forEach(({ name, difference }, at) => parts.push(oneRun(name, difference, before.report.units, at === 0)));
  if (only.length > 0) {
    const list = h("ul", { class: "caveats", id: "only" }, ...only.map(({ side, row }) => h("li", {}, `Only ${side}: ${runName(row)}`)));
    parts.push(h("h3", {}, "Without a counterpart"), list);
  }
  return parts;
}

function repeated(rows: RunRow[]): string | null {
  const seen = new Set<string>();
  for (const row of rows) {
    if (seen.has(identity(row))) return runName(row);
    seen.add(identity(row));
  }
  return null;
}

/** The times of all runs that are in both. */
function summary(pairs: { name: string; difference: RunDifference }[]): HTMLElement {
  const head = h("tr", {}, ...["Run", "Before", "After", "Change"].map((text, at) => h("th", { scope: "col", class: at === 0 ? "name" : "number" }, text)));
  const rows = pairs.map(({ name, difference: { seconds: pair } }) =>
    h("tr", {}, h("th", { scope: "row", class: "name" }, name), h("td", { class: "number", "data-value": pair.before }, seconds(pair.before)), h("td", { class: "number", "data-value": pair.after }, seconds(pair.after)), changeCell(pair, true)),
  );
  return scroll(h("table", { id: "times-table" }, h("caption", { class: "hidden" }, "Simulated time before and after"), h("thead", {}, head), h("tbody", {}, ...rows)), "Simulated time before and after");
}

/** A change in percent. Of times, more is worse. */
function changeCell(pair: Pair, isTime = false): HTMLElement {
  const share = change(pair);
  const kind = !isTime || share === 0 ? "" : share > 0 ? " worse" : " better";
  return h("td", { class: `number${kind}`, "data-value": Number.isFinite(share) ? share : undefined }, changeText(share));
}

export function changeText(share: number): string {
  if (!Number.isFinite(share)) return "new";
  if (share === 0) return "=";
  const percent = share * 100;
  if (Math.abs(percent) < 0.0005) return "<0.001 %";
  const digits = Math.abs(percent) < 0.1 ? 3 : Math.abs(percent) < 100 ? 2 : 0;
  return `${percent > 0 ? "+" : "−"}${Math.abs(percent).toFixed(digits)} %`;
}

function oneRun(name: string, difference: RunDifference, units: Record<string, string>, isOpen: boolean): HTMLElement {
  const { statistics, parameters } = difference;
  const body = h("div");
  const draw = (most: number) => {
    const shown = statistics.slice(0, most);
    const rows = shown.map((one) => row(one, units));
    const head = h("tr", {}, ...["Statistic", "Unit", "Before", "After", "Change"].map((text, at) => h("th", { scope: "col", class: at < 2 ? "name" : "number" }, text)));
    const table = h("table", { class: "changed-statistics" }, h("caption", { class: "hidden" }, `Statistics of ${name} that changed`), h("thead", {}, head), h("tbody", {}, ...rows));
    body.replaceChildren(scroll(table, `Statistics of ${name} that changed`, "tall"));
    if (shown.length < statistics.length) {
      const more = h("button", { type: "button", class: "copy more" }, `Show all ${statistics.length}`);
      more.addEventListener("click", () => draw(statistics.length));
      body.append(more);
    }
  };
  if (statistics.length > 0) draw(MOST);
  else body.append(h("p", { class: "empty" }, "Every statistic is equal."));
  const changed = parameters.length > 0 ? parameterTable(parameters) : null;
  const { seconds: pair } = difference;
  const time = pair.before > 0 || pair.after > 0 ? ` · ${seconds(pair.before)} → ${seconds(pair.after)} (${changeText(change(pair))})` : "";
  return h("details", { class: "run-difference", open: isOpen }, h("summary", {}, name + time), changed, body);
}

function row({ name, pair }: Changed, units: Record<string, string>): HTMLElement {
  const unit = units[name] ?? units[name.replace(/\.(count|max|sum)$/, "")] ?? "";
  return h("tr", {}, h("th", { scope: "row", class: "name code" }, name), h("td", { class: "name unit" }, unit), number(pair.before), number(pair.after), changeCell(pair));
}

function number(value: number): HTMLElement {
  const text = value !== 0 && Math.abs(value) < 0.001 ? value.toExponential(3) : exact(value);
  return h("td", { class: value === 0 ? "number zero" : "number", "data-value": value }, text);
}

function parameterTable(parameters: RunDifference["parameters"]): HTMLElement {
  const head = h("tr", {}, ...["Parameter", "Before", "After"].map((text) => h("th", { scope: "col", class: "name" }, text)));
  const cell = (value: string | null) => h("td", { class: value === null ? "name unit" : "name" }, value ?? "not there");
  const rows = parameters.map(({ key, before, after }) => h("tr", {}, h("th", { scope: "row", class: "name code" }, key), cell(before), cell(after)));
  return h("div", { class: "block" }, h("h3", {}, "Parameters that differ"), scroll(h("table", { class: "changed-parameters" }, h("thead", {}, head), h("tbody", {}, ...rows)), "Parameters that differ", "tall"));
}
