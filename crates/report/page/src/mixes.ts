// Programs side by side: what each lost to the others, and what all of them together do.

import { type Mix, type ProgramOfMix, type Report, type Run } from "./data";
import { h, section } from "./dom";
import { count, exact, seconds, significant } from "./format";
import { type Column, WHICH_RUN, scroll, sortable } from "./tables";

type Mixed = Run & { mix: Mix };
/** One program of a run, as a row. */
type Row = Run & { program: ProgramOfMix };

export function mixes(report: Report): HTMLElement | null {
  const runs = report.runs.filter((run): run is Mixed => run.mix !== undefined);
  if (runs.length === 0) return null;
  const rows = runs.flatMap((run): Row[] => run.mix.programs.map((program) => ({ ...run, program })));
  const intro = "Each program runs on cores of its own beside the others, and again alone on the same machine under the same design. A program that ends early begins again until the last one has ended; only its first run counts.";
  return section(
    "mixes",
    "Mixes",
    "Programs side by side",
    intro,
    scroll(sortable("mixes-table", "Mixes, one row per run", ofRuns(), runs), "Mixes"),
    h("h3", {}, "Each program"),
    scroll(sortable("mix-programs-table", "Each program of a mix, one row", ofPrograms(), rows), "Programs of mixes"),
  );
}

function ofRuns(): Column[] {
  const of = (run: Run) => (run as Mixed).mix;
  return [
    ...WHICH_RUN,
    { key: "weighted", title: "Weighted", help: "Sum over the programs of instructions per cycle in the mix by those alone; at best the number of programs", value: (run) => of(run).weighted_speedup, text: significant },
    { key: "harmonic", title: "Harmonic", help: "Harmonic mean of the same; at best 1", value: (run) => of(run).harmonic_speedup, text: significant },
    { key: "largest", title: "Slowest", help: "The largest slowdown of a program", value: (run) => of(run).largest_slowdown, text: significant },
  ];
}

function ofPrograms(): Column[] {
  const of = (run: Run) => (run as Row).program;
  return [
    ...WHICH_RUN,
    { key: "program", title: "Program", help: "By its name in the mix", value: (run) => of(run).name },
    { key: "slowdown", title: "Slowdown", help: "Time in the mix by time alone", value: (run) => of(run).slowdown, text: significant },
    { key: "time", title: "Time", help: "In the mix, of its region of interest", value: (run) => of(run).seconds, text: seconds },
    { key: "alone", title: "Alone", help: "The same alone", value: (run) => of(run).alone_seconds, text: seconds },
    { key: "ipc", title: "IPC", help: "Instructions per cycle in the mix", value: (run) => of(run).ipc, text: significant },
    { key: "instructions", title: "Instructions", help: "Of its first region of interest", value: (run) => of(run).instructions, text: count },
    { key: "repeats", title: "Repeats", help: "How often it began again", value: (run) => of(run).repeats, text: exact },
  ];
}
