// What a policy did to real processes, with the kernel's own counters beside.

import { type Report, type Run, isLive, stat } from "./data";
import { h, section } from "./dom";
import { exact, percent, seconds } from "./format";
import { scroll } from "./tables";

/** What Terrace counts, and the kernel's counter of the same. */
const PAIRS: [string, string, string][] = [
  ["pages promoted", "vmstat.pgpromote_success", "pgpromote_success"],
  ["pages demoted", "vmstat.pgdemote_policy", "pgdemote_"],
  ["pages moved", "vmstat.pgmigrate_success", "pgmigrate_success"],
  ["moves that failed", "vmstat.pgmigrate_fail", "pgmigrate_fail"],
  ["huge pages moved whole", "vmstat.thp_migration_success", "thp_migration_success"],
  ["huge pages split", "vmstat.thp_split_page", "thp_split_page"],
];

export function live(report: Report): HTMLElement | null {
  const runs = report.runs.filter(isLive);
  if (runs.length === 0) return null;
  return section(
    "live",
    "Moves",
    "What was moved",
    "What Terrace moved, and what the kernel counts for the whole machine in the same time: other processes and its own moves included. A move that the kernel counts as failed may have been tried again.",
    ...runs.map(table),
  );
}

function table(run: Run): HTMLElement {
  const head = h("tr", {}, ...["", "Terrace", "Kernel"].map((text, at) => h("th", { scope: "col", class: at === 0 ? "name" : "number" }, text)));
  const row = (what: string, ...values: string[]) =>
    h("tr", {}, h("th", { scope: "row", class: "name" }, what), ...values.map((value) => h("td", { class: "number" }, value)));
  const rows = PAIRS.map(([what, ours, theirs]) => row(what, shown(stat(run, ours)), shown(kernel(run, theirs))));
  const processor = (stat(run, "live.cpu_time") ?? 0) * 1e-9;
  const share = run.wall_seconds > 0 ? ` (${percent(processor / run.wall_seconds)} of a core)` : "";
  rows.push(row("run time", seconds(run.wall_seconds), ""), row("Terrace's processor time", seconds(processor) + share, ""));
  return scroll(h("table", { id: "live-table" }, h("caption", { class: "hidden" }, `What was moved by ${run.design}`), h("thead", {}, head), h("tbody", {}, ...rows)), "What was moved");
}

function shown(value: number | null): string {
  return value === null ? "–" : exact(value);
}

/** One of the kernel's counters; the sum of several where the name ends in an underscore. */
function kernel(run: Run, name: string): number | null {
  if (!name.endsWith("_")) return stat(run, `kernel.${name}`);
  const all = run.stats.kernel;
  if (typeof all !== "object" || all === null) return null;
  const values = Object.entries(all).filter(([known, value]) => known.startsWith(name) && typeof value === "number");
  return values.length === 0 ? null : values.reduce((sum, [, value]) => sum + (value as number), 0);
}
