// What keeping translations coherent took of each run's time, and what hardware gave back or could.

import { type Report, type Run, type TranslationCoherence } from "./data";
import { section } from "./dom";
import { count, exact, percent, seconds, significant } from "./format";
import { type Column, WHICH_RUN, scroll, sortable } from "./tables";

type Coherent = Run & { translation_coherence: TranslationCoherence };

export function translationCoherence(report: Report): HTMLElement | null {
  const runs = report.runs.filter((run): run is Coherent => run.translation_coherence !== undefined);
  if (runs.length === 0) return null;
  const software = runs.filter((run) => run.translation_coherence.scheme === "software");
  const most = software.reduce<Coherent | null>((best, run) => (best === null || run.translation_coherence.share > best.translation_coherence.share ? run : best), null);
  const bound =
    most === null
      ? ""
      : ` With ${most.design} on ${most.input} it took ${percent(most.translation_coherence.share)} of the processors' time: a scheme in hardware gives back at most that, and what the translations take that were dropped needlessly.`;
  const intro = `When a page table changes, no processor may go on with what was.${bound}`;
  return section("coherence", "Coherence", "Translation coherence", intro, scroll(sortable("coherence-table", "Translation coherence, one row per run", columns(runs), runs), "Translation coherence"));
}

function columns(runs: Coherent[]): Column[] {
  const of = (run: Run) => (run as Coherent).translation_coherence;
  const signed = (value: number) => (value < 0 ? `−${seconds(-value)}` : seconds(value));
  const all: Column[] = [
    ...WHICH_RUN,
    { key: "scheme", title: "Coherence", help: "How processors lose translations whose page-table entries changed", value: (run) => of(run).scheme },
    { key: "share", title: "Share", help: "Of the time of the program's processors", value: (run) => of(run).share, text: percent },
    { key: "waited_seconds", title: "Waited", help: "Threads of the program, after changes of their own", value: (run) => of(run).waited_seconds, text: seconds },
    { key: "interrupted_seconds", title: "Held up", help: "Threads of the program, by interrupts", value: (run) => of(run).interrupted_seconds, text: seconds },
    { key: "beside_seconds", title: "Beside", help: "Kernel threads on other processors, waiting", value: (run) => of(run).beside_seconds, text: seconds },
    { key: "shootdowns", title: "Changes", help: "After which translations had to go", value: (run) => of(run).shootdowns, text: exact },
    { key: "interrupts", title: "Interrupts", help: "Processors interrupted for them", value: (run) => of(run).interrupts, text: exact },
    { key: "messages", title: "Messages", help: "Of the cache directory, about translations", value: (run) => of(run).messages, text: count },
  ];
  if (runs.some((run) => of(run).joules !== null)) {
    all.push({ key: "joules", title: "Energy (mJ)", help: "Of translation with its coherence", value: (run) => milli(of(run).joules), text: significant });
  }
  if (runs.some((run) => of(run).net_seconds !== null)) {
    all.push({ key: "net", title: "Net", help: "Run time less than with coherence by software", value: (run) => of(run).net_seconds, text: signed });
  }
  return all;
}

function milli(joules: number | null): number | null {
  return joules === null ? null : joules * 1000;
}
