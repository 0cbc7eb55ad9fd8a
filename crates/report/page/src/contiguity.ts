// What contiguity gained in translation and what producing it cost: where hardware or a policy is about it.

import { type Contiguity, type Report, type Run } from "./data";
import { section } from "./dom";
import { percent, seconds } from "./format";
import { type Column, costOfMoves, scroll, sortable } from "./tables";

type Contiguous = Run & { contiguity: Contiguity };

export function contiguity(report: Report): HTMLElement | null {
  const runs = report.runs.filter((run): run is Contiguous => run.contiguity !== undefined);
  if (runs.length === 0) return null;
  const table = sortable("contiguity-table", "Contiguity, one row per run", columns(runs), runs);
  const intro = `What contiguity saved in translation, and what producing it took. Times saved are against ${report.baseline}'s on the same input.`;
  return section("contiguity", "Contiguity", "Contiguity", intro, scroll(table, "Contiguity"));
}

function columns(runs: Contiguous[]): Column[] {
  const of = (run: Run) => (run as Contiguous).contiguity;
  const signed = (value: number) => (value < 0 ? `−${seconds(-value)}` : seconds(value));
  const all: Column[] = [
    { key: "input", title: "Input", help: "Program or workload", value: (run) => run.input },
    { key: "design", title: "Design", help: "What is compared", value: (run) => run.design },
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
