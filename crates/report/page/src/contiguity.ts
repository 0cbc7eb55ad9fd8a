// What contiguity gained in translation and what producing it cost: where hardware or a policy is about it.

import { tradePanels, type Trade } from "./charts";
import { type Contiguity, type ContiguityPoint, type Report, type Run } from "./data";
import { h, legend, section } from "./dom";
import { count, percent, seconds } from "./format";
import { whenShown } from "./sections";
import { type Column, WHICH_RUN, costOfMoves, scroll, sortable } from "./tables";
import { onSchemeChange, palette } from "./theme";

type Contiguous = Run & { contiguity: Contiguity };
type Sampled = Run & { contiguity_over_time: ContiguityPoint[] };

export function contiguity(report: Report): HTMLElement | null {
  const runs = report.runs.filter((run): run is Contiguous => run.contiguity !== undefined);
  const sampled = report.runs.filter((run): run is Sampled => (run.contiguity_over_time?.length ?? 0) > 1);
  if (runs.length === 0 && sampled.length === 0) return null;
  const intro =
    runs.length === 0
      ? "Runs of pages that are neighbours both in an address space and in physical memory."
      : `What contiguity saved in translation, and what producing it took. Times saved are against ${report.baseline}'s on the same input.`;
  const table = runs.length === 0 ? [] : [scroll(sortable("contiguity-table", "Contiguity, one row per run", columns(runs), runs), "Contiguity")];
  const inputs = [...new Set(sampled.map((run) => run.input))];
  return section("contiguity", "Contiguity", "Contiguity", intro, ...table, ...inputs.map((input) => overTime(input, sampled.filter((run) => run.input === input))));
}

/** Coverage by the largest regions and their number as the runs of an input went on, a line per design. */
function overTime(input: string, runs: Sampled[]): HTMLElement {
  const color = (at: number) => {
    const hues = [...palette().tiers.map(([strong]) => strong), ...palette().others];
    return hues[at % hues.length];
  };
  const panel = (title: string, value: (point: ContiguityPoint) => number, format: (value: number) => string): Trade => ({
    title,
    series: runs.map((run, at) => ({
      name: run.design,
      color: () => color(at),
      symbol: "none",
      points: run.contiguity_over_time.map((point) => ({ name: run.design, x: point.seconds, y: value(point), best: false, facts: [] })),
    })),
    x: { name: "simulated time", format: seconds },
    y: { name: "", format },
    description: `${title} on ${input}: at the end ` + runs.map((run) => `${run.design} ${format(value(run.contiguity_over_time[run.contiguity_over_time.length - 1]))}`).join(", "),
  });
  const panels = h("div");
  const key = h("div");
  const draw = () => {
    key.replaceChildren(legend(runs.map((run, at) => ({ name: run.design, color: color(at) }))));
    tradePanels(panels, () => [
      panel("Memory in the 128 largest regions", (point) => point.coverage_128, percent),
      panel("Memory in the 32 largest regions", (point) => point.coverage_32, percent),
      panel("Contiguous regions", (point) => point.regions, count),
    ]);
  };
  whenShown(draw);
  onSchemeChange(() => key.childElementCount > 0 && draw());
  return h("div", { class: "block" }, h("h3", {}, `Over time on ${input}`), h("div", { class: "controls" }, key), panels);
}

function columns(runs: Contiguous[]): Column[] {
  const of = (run: Run) => (run as Contiguous).contiguity;
  const signed = (value: number) => (value < 0 ? `−${seconds(-value)}` : seconds(value));
  const all: Column[] = [
    ...WHICH_RUN,
    { key: "translation_share", title: "Translation", help: "Share of the time that waits for translations", value: (run) => of(run).translation_share, text: percent },
    { key: "saved_seconds", title: "Saved", help: "Time in translation less than the baseline's, per thread", value: (run) => of(run).saved_seconds, text: signed },
  ];
  if (runs.some((run) => run.contiguity.coverage_128 !== null)) {
    all.push({ key: "coverage_128", title: "In 128", help: "Share of memory in the 128 largest contiguous regions at the end", value: (run) => of(run).coverage_128, text: percent });
  }
  if (runs.some((run) => run.contiguity.policy !== null)) {
    all.push(...costOfMoves((run) => of(run).policy));
  }
  all.push({ key: "net_seconds", title: "Net", help: "Run time less than the baseline's, whatever the reason", value: (run) => of(run).net_seconds, text: signed });
  return all;
}
