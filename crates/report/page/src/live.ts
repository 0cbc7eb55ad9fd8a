// What a policy did to real processes, with the kernel's own counters beside.

import { tradePanels, type Trade } from "./charts";
import { type Moment, type Report, type Run, isLive, stat } from "./data";
import { h, legend, section } from "./dom";
import { bytes, exact, percent, seconds } from "./format";
import { whenShown } from "./sections";
import { scroll } from "./tables";
import { onSchemeChange, palette } from "./theme";

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
    ...runs.filter((run) => (run.timeline?.length ?? 0) > 1).map(overTime),
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

/** What was moved, and what lay where, as the run went on. */
function overTime(run: Run): HTMLElement {
  const moments = run.timeline!;
  const tiers = Object.keys(moments[0].used_bytes);
  type Measure = { name: string; color: () => string; value: (moment: Moment) => number };
  const used = tiers.map((name, at): Measure => ({ name, color: () => palette().tiers[at % palette().tiers.length][0], value: (moment) => moment.used_bytes[name] ?? 0 }));
  const moved: Measure[] = [
    { name: "promoted", color: () => palette().accent, value: (moment) => moment.promoted_bytes },
    { name: "demoted", color: () => palette().others[1], value: (moment) => moment.demoted_bytes },
  ];
  const panel = (title: string, measures: Measure[]): Trade => ({
    title,
    series: measures.map((one) => ({
      name: one.name,
      color: one.color,
      symbol: "none",
      points: moments.map((moment) => ({ name: one.name, x: moment.seconds, y: one.value(moment), best: false, facts: [] })),
    })),
    x: { name: "time since the start", format: seconds },
    y: { name: "", format: bytes },
    description: `${title}: at the end ` + measures.map((one) => `${one.name} ${bytes(one.value(moments[moments.length - 1]))}`).join(", "),
  });
  const panels = h("div");
  const key = h("div");
  const draw = () => {
    key.replaceChildren(legend([...moved, ...used].map((one) => ({ name: one.name, color: one.color() }))));
    tradePanels(panels, () => [panel("Moved since the start", moved), panel("Memory in use by tier", used)]);
  };
  whenShown(draw);
  onSchemeChange(() => key.childElementCount > 0 && draw());
  return h("div", { class: "block" }, h("h3", {}, "Over time"), h("div", { class: "controls" }, key), panels);
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
