// The parts of a program's memory: data structures by the place that allocates them, mapped files, the stack. What was accessed
// of each, and when.

import { type HeatKind, heatMap, release } from "./charts";
import { type HeatRow, type Input, type Report, counts } from "./data";
import { h, section, segmented } from "./dom";
import { basename, bytes, count, percent, significant } from "./format";
import { whenShown } from "./sections";
import { type Column, codeLine, scroll, sortable } from "./tables";

export type Structure = {
  name: string;
  /** Source file and line of the allocation; empty where unknown. */
  line: string;
  rows: HeatRow[];
  bytes: number;
  reads: number;
  writes: number;
  /** Of the intervals in which it was accessed, the first and the last. */
  first: number;
  last: number;
};

/** The rows of the heat map by what lies there. */
export function structuresOf(input: Input): Structure[] {
  const by = new Map<string, Structure>();
  for (const row of input.heat.rows) {
    const name = row.name === "" ? "unnamed memory" : row.name;
    const one = by.get(name) ?? { name, line: row.line ?? "", rows: [], bytes: 0, reads: 0, writes: 0, first: Infinity, last: -1 };
    by.set(name, one);
    one.rows.push(row);
    one.bytes += row.bytes;
    const [reads, writes] = [counts(row.reads), counts(row.writes)];
    reads.forEach((read, at) => {
      one.reads += read;
      one.writes += writes[at];
      if (read + writes[at] === 0) return;
      one.first = Math.min(one.first, at);
      one.last = Math.max(one.last, at);
    });
  }
  return [...by.values()].sort((a, b) => b.reads + b.writes - a.reads - a.writes);
}

export function structures(report: Report): HTMLElement | null {
  const inputs = report.inputs.filter((input) => input.heat.rows.length > 0);
  if (inputs.length === 0) return null;
  let input = inputs[0];
  let name: string | null = null;
  let kind: HeatKind = "all";
  const body = h("div");
  const map = h("div", { class: "heat" });
  const draw = () => {
    const all = structuresOf(input);
    const chosen = all.find((one) => one.name === name) ?? all[0];
    const table = sortable("structures-table", `Data structures of ${input.name}`, columns(input, all, chosen, (other) => {
      name = other;
      draw();
    }), all);
    release(map);
    body.replaceChildren(
      scroll(table, "Data structures", "tall"),
      h("figure", { class: "wide" }, h("figcaption", { id: "structure-name" }, `Addresses over time: ${chosen.name}`), map),
    );
    heatMap(map, { ...input, heat: { ...input.heat, rows: chosen.rows } }, kind);
  };
  const tabs = segmented("Input", inputs.map((one) => [one.name, one.name]), input.name, (value) => {
    input = inputs.find((one) => one.name === value)!;
    name = null;
    draw();
  });
  const kinds = segmented("Accesses", [["all", "All"], ["reads", "Reads"], ["writes", "Writes"]], kind, (value) => {
    kind = value as HeatKind;
    draw();
  });
  whenShown(draw);
  const lead = "Data structures by the place that allocates them where the input was recorded with --allocations or is a built-in workload, else mappings. Counts are from a sample of the accesses. A click on a name shows its addresses over time.";
  return section("structures", "Structures", "Data structures", lead, h("div", { class: "controls" }, inputs.length > 1 ? tabs : null, kinds), body);
}

function columns(input: Input, all: Structure[], chosen: Structure, choose: (name: string) => void): Column<Structure>[] {
  const scale = input.heat.sample_every;
  const total = all.reduce((sum, one) => sum + one.reads + one.writes, 0);
  const accesses = (one: Structure) => one.reads + one.writes;
  const interval = input.heat.accesses_per_bin;
  const button = (one: Structure) => {
    const link = h("button", { type: "button", class: "link", "aria-pressed": one === chosen ? "true" : "false", title: one.name }, basename(one.name));
    link.addEventListener("click", () => choose(one.name));
    return link;
  };
  return [
    { key: "name", title: "Structure", help: "What lies there", value: (one) => one.name, node: button },
    ...codeLine(all, (one) => one.line),
    { key: "bytes", title: "Touched", help: "Address ranges that were accessed", value: (one) => one.bytes, text: bytes },
    { key: "share", title: "Share", help: "Of all accesses", value: (one) => (total > 0 ? accesses(one) / total : null), text: percent },
    { key: "accesses", title: "Accesses", help: "Loads and stores, from a sample", value: (one) => accesses(one) * scale, text: count },
    { key: "written", title: "Written", help: "Stores, of its accesses", value: (one) => (accesses(one) > 0 ? one.writes / accesses(one) : null), text: percent },
    { key: "per-kib", title: "Per KiB", help: "Accesses for each KiB: how hot it is", value: (one) => (accesses(one) * scale * 1024) / one.bytes, text: significant },
    { key: "first", title: "First", help: "First access, in accesses of the whole input", value: (one) => (one.last < 0 ? null : one.first * interval), text: count },
    { key: "last", title: "Last", help: "End of the interval of its last access", value: (one) => (one.last < 0 ? null : Math.min((one.last + 1) * interval, input.accesses)), text: count },
  ];
}
