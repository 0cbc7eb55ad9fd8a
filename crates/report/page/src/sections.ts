// The sections with charts, top to bottom. Each appears only where the runs have its numbers.

import { barPanels, heatMap, release, type HeatKind, type Panel } from "./charts";
import {
  type Input,
  type Report,
  type Run,
  baselineOf,
  children,
  componentTotal,
  components,
  cpi,
  inputNames,
  interval,
  perKilo,
  ratio,
  speedup,
  stat,
  tierNames,
  winnerOf,
} from "./data";
import { h, legend, section, segmented } from "./dom";
import { bytes, count, difference, exact, joules, percent, significant, times } from "./format";
import { reuseCurves } from "./reuse";
import { onSchemeChange, palette } from "./theme";

const COMPONENT_NAMES: Record<string, string> = {
  base: "computing",
  translation: "address translation",
  cache: "caches",
  memory: "memory",
  os: "operating system",
};

export function runsOf(report: Report, input: string): Run[] {
  return report.runs.filter((run) => run.input === input);
}

/** A panel per input that has at least one value. */
function panelsOf(report: Report, make: (runs: Run[], input: string) => Omit<Panel, "title" | "designs" | "strong" | "description">): Panel[] {
  return inputNames(report)
    .map((input) => ({ input, runs: runsOf(report, input) }))
    .filter(({ runs }) => runs.length > 0)
    .map(({ input, runs }) => {
      const made = make(runs, input);
      const designs = runs.map((run) => run.design);
      const winner = winnerOf(report, input);
      const description = `${input}: ` + designs.map((design, at) => `${design} ${made.ends[at] ?? "no value"}`).join(", ");
      return { ...made, title: input, designs, strong: (at: number) => designs[at] === winner, description };
    });
}

/** One value per design: the winner stands out, the baseline is neutral, a bound is an outline. */
function single(report: Report, name: string, runs: Run[], input: string, value: (run: Run) => number | null) {
  const winner = winnerOf(report, input);
  const baseline = baselineOf(report, input);
  return {
    name,
    values: runs.map(value),
    color: (at: number) => {
      const p = palette();
      if (runs[at].bound) return p.muted;
      if (runs[at].design === winner) return p.accent;
      return runs[at] === baseline ? p.neutral : p.soft;
    },
    dashed: (at: number) => runs[at].bound,
  };
}

function maximum(values: (number | null)[]): number {
  return Math.max(0, ...values.filter((v): v is number => v !== null));
}

export function speedups(report: Report): HTMLElement | null {
  if (!report.runs.some((run) => speedup(report, run) !== null)) return null;
  const max = maximum(report.runs.map((run) => interval(run)?.[1] ?? speedup(report, run))) * 1.02;
  let mode = "difference";
  const panels = h("div");
  const less = (value: number | null) => (value === null ? null : value - 1);
  const draw = () =>
    barPanels(panels, () =>
      panelsOf(report, (runs, input) => {
        const ends = runs.map((run) => interval(run));
        if (mode === "times") {
          return {
            series: [single(report, "speed-up", runs, input, (run) => speedup(report, run))],
            ends: runs.map((run) => orNull(speedup(report, run), times)),
            whiskers: ends,
            format: (v: number) => `${significant(v)}×`,
            max,
            reference: 1,
          };
        }
        // Each panel has a scale of its own, so that a few percent are seen on an input where nothing gains more.
        return {
          series: [single(report, "faster by", runs, input, (run) => less(speedup(report, run)))],
          ends: runs.map((run) => (run === baselineOf(report, input) ? "baseline" : orNull(less(speedup(report, run)), difference))),
          whiskers: ends.map((one) => one && ([one[0] - 1, one[1] - 1] as [number, number])),
          format: difference,
          signed: true,
          reference: 0,
        };
      }),
    );
  const modes = segmented("Measure", [["difference", "Difference from baseline"], ["times", "Times as fast"]], mode, (value) => {
    mode = value;
    draw();
  });
  const intervals = report.runs.some((run) => interval(run) !== null);
  const lines = intervals ? " A thin line reaches as far as assumed constants and seeds could move a bar." : "";
  const bound = report.runs.some((run) => run.bound) ? " A dashed outline is a bound, not a contender." : "";
  const element = section("speedup", "Speed-up", "Speed-up", `How much faster than ${report.baseline || "the first design"} each design runs; to the left it is slower.${lines}${bound}`, h("div", { class: "controls" }, modes), panels);
  whenShown(draw);
  return element;
}

type CycleMode = "relative" | "instruction" | "share";

export function cycles(report: Report): HTMLElement | null {
  const names = [...new Set(report.runs.flatMap((run) => [...components(run).keys()]))];
  if (names.length === 0) return null;
  let mode: CycleMode = "relative";
  const color = (name: string) => {
    const p = palette();
    const extra = names.filter((n) => !(n in p.components));
    return p.components[name] ?? p.others[extra.indexOf(name) % p.others.length];
  };
  const measure = (run: Run, cycles: number): number | null => {
    if (mode === "share") return ratio(cycles, componentTotal(run));
    if (mode === "instruction") return ratio(cycles, run.instructions);
    return ratio(cycles, componentTotal(baselineOf(report, run.input)!));
  };
  const format = (v: number) => (mode === "instruction" ? significant(v) : percent(v));
  const panels = h("div");
  const key = h("div");
  const draw = () => {
    key.replaceChildren(legend(names.map((name) => ({ name: COMPONENT_NAMES[name] ?? name, color: color(name) }))));
    barPanels(panels, () =>
      panelsOf(report, (runs) => ({
        series: names.map((name) => ({
          name: COMPONENT_NAMES[name] ?? name,
          color: () => color(name),
          values: runs.map((run) => measure(run, components(run).get(name) ?? 0)),
        })),
        ends: runs.map((run) =>
          mode === "share" ? `CPI ${orNull(cpi(run), significant) ?? "–"}` : orNull(measure(run, componentTotal(run)), format),
        ),
        format,
        max: mode === "share" ? 1 : undefined,
      })),
    );
  };
  const modes = segmented("Measure", [["relative", "Relative to baseline"], ["instruction", "Per instruction"], ["share", "Shares"]], mode, (value) => {
    mode = value as CycleMode;
    draw();
  });
  const element = section("cycles", "Cycles", "Where the cycles went", "Every stalled cycle is blamed on what the core waited for, summed over the cores, idle ones left out. Shorter is better.", h("div", { class: "controls" }, modes, key), panels);
  whenShown(draw);
  onSchemeChange(() => key.childElementCount > 0 && draw());
  return element;
}

export function translation(report: Report): HTMLElement | null {
  const sizes = ["4k", "2m", "1g"];
  const measures: [string, string, (run: Run) => number | null, (v: number) => string, string][] = [
    ["l2", "L2 TLB misses", (run) => perKilo(run, "tlb.l2.miss"), significant, "per 1000 instructions"],
    ["l1", "L1 TLB misses", (run) => perKilo(run, ...sizes.map((size) => `tlb.l1d.${size}.miss`)), significant, "per 1000 instructions, all page sizes"],
    ["walks", "Page walks", (run) => perKilo(run, "walk.count"), significant, "per 1000 instructions"],
    ["refs", "References per walk", (run) => ratio(stat(run, "walk.memory_refs"), stat(run, "walk.count")), significant, "page-table entries fetched per walk, after the page-walk cache"],
    ["latency", "Cycles per walk", (run) => ratio(stat(run, "walk.cycles"), stat(run, "walk.count")), significant, "from the miss to the translation, on average"],
  ];
  return metrics(report, "translation", "TLB", "TLB and page walks", "How well each design translates addresses. Shorter is better.", measures);
}

export function traffic(report: Report): HTMLElement | null {
  const tiers = tierNames(report).filter((tier) =>
    report.runs.some((run) => (stat(run, `tier.${tier}.bytes_read`) ?? 0) + (stat(run, `tier.${tier}.bytes_written`) ?? 0) > 0),
  );
  if (tiers.length === 0) return null;
  const energies = [...new Set(report.runs.flatMap((run) => [...children(run, "energy").keys()]))].filter((name) => name !== "total");
  const causes = [...new Set(report.runs.flatMap((run) => tiers.flatMap((tier) => [...children(run, `tier.${tier}.bytes_by`).keys()])))].filter((cause) =>
    report.runs.some((run) => byCause(run, cause) > 0),
  );
  function byCause(run: Run, cause: string): number {
    return sum(tiers.map((tier) => stat(run, `tier.${tier}.bytes_by.${cause}`))) ?? 0;
  }
  let mode = "bytes";
  const parts = () =>
    mode === "cause"
      ? causes.map((cause, at) => ({ name: cause.replaceAll("_", " "), key: cause, color: causeColor(at) }))
      : mode === "energy"
      ? energies.map((name, at) => ({ name, key: `energy.${name}`, color: tierColor(tiers.includes(name) ? tiers.indexOf(name) : at)[0] }))
      : tiers.flatMap((tier, at) => [
          { name: `${tier} read`, key: `tier.${tier}.bytes_read`, color: tierColor(at)[0] },
          { name: `${tier} written`, key: `tier.${tier}.bytes_written`, color: tierColor(at)[1] },
        ]);
  const panels = h("div");
  const key = h("div");
  const draw = () => {
    key.replaceChildren(legend(parts()));
    const format = mode === "bytes" || mode === "cause" ? bytes : mode === "energy" ? joules : (v: number) => `${significant(v)} GB/s`;
    const value = (run: Run, name: string) => {
      if (mode === "cause") return byCause(run, name);
      const total = stat(run, name);
      return mode === "bandwidth" ? ratio(total === null ? null : total / 1e9, run.seconds_simulated || null) : total;
    };
    barPanels(panels, () =>
      panelsOf(report, (runs) => ({
        series: parts().map((part) => ({ name: part.name, color: () => part.color, values: runs.map((run) => value(run, part.key)) })),
        ends: runs.map((run) => orNull(sum(parts().map((part) => value(run, part.key))), format)),
        format,
        binary: mode === "bytes" || mode === "cause",
      })),
    );
  };
  const options: [string, string][] = [["bytes", "Bytes"]];
  if (causes.length > 0) options.push(["cause", "By cause"]);
  if (report.runs.some((run) => run.seconds_simulated > 0)) options.push(["bandwidth", "Bandwidth"]);
  if (energies.length > 0) options.push(["energy", "Energy"]);
  const modes = segmented("Measure", options, mode, (value) => {
    mode = value;
    draw();
  });
  const element = section("traffic", "Tiers", "Memory tiers", "What each tier's devices moved, page walks and write-backs included.", h("div", { class: "controls" }, modes, key), panels);
  whenShown(draw);
  onSchemeChange(() => key.childElementCount > 0 && draw());
  return element;
}

function causeColor(at: number): string {
  const p = palette();
  const colors = [p.components.memory, p.components.translation, p.components.cache, p.components.os, ...p.others];
  return colors[at % colors.length];
}

function tierColor(at: number): [string, string] {
  const colors = palette().tiers;
  return colors[at % colors.length];
}

export function pageSizes(report: Report): HTMLElement | null {
  const resident = (run: Run, size: string): number | null => {
    const inBytes = stat(run, `os.peak_resident_bytes.${size}`);
    const page = { "4k": 2 ** 12, "2m": 2 ** 21, "1g": 2 ** 30 }[size]!;
    const pages = stat(run, `os.pages.${size}`);
    return inBytes ?? (pages === null ? null : pages * page);
  };
  const sizes = ["4k", "2m", "1g"];
  if (!report.runs.some((run) => sizes.some((size) => (resident(run, size) ?? 0) > 0))) return null;
  const names: Record<string, string> = { "4k": "4 KiB pages", "2m": "2 MiB pages", "1g": "1 GiB pages" };
  const panels = h("div");
  const key = h("div");
  const draw = () => {
    key.replaceChildren(legend(sizes.map((size) => ({ name: names[size], color: palette().pages[size] }))));
    barPanels(panels, () =>
      panelsOf(report, (runs) => ({
        series: sizes.map((size) => ({ name: names[size], color: () => palette().pages[size], values: runs.map((run) => resident(run, size)) })),
        ends: runs.map((run) => orNull(sum(sizes.map((size) => resident(run, size))), bytes)),
        format: bytes,
        binary: true,
      })),
    );
  };
  const element = section("pages", "Pages", "Page sizes", "Resident memory by the size of the pages that back it. A longer bar is memory that larger pages cost.", h("div", { class: "controls" }, key), panels);
  whenShown(draw);
  onSchemeChange(() => key.childElementCount > 0 && draw());
  return element;
}

export function inputs(report: Report): HTMLElement | null {
  if (report.inputs.length === 0) return null;
  const body = h("div");
  let chosen = report.inputs[0].name;
  let kind: HeatKind = "all";
  const draw = () => {
    const input = report.inputs.find((one) => one.name === chosen)!;
    const map = h("div", { class: "heat" });
    const curves = reuseCurves(input);
    release(body);
    body.replaceChildren(facts(input), h("figure", { class: "wide" }, h("figcaption", {}, `Addresses over time: ${input.name}`), map));
    heatMap(map, input, kind);
    if (curves) {
      body.append(curves.element);
      curves.draw();
    }
  };
  const tabs = segmented("Input", report.inputs.map((one) => [one.name, one.name]), chosen, (value) => {
    chosen = value;
    draw();
  });
  const kinds = segmented("Accesses", [["all", "All"], ["reads", "Reads"], ["writes", "Writes"]], kind, (value) => {
    kind = value as HeatKind;
    draw();
  });
  const element = section("inputs", "Inputs", "The inputs", "Which addresses each program touched, and when; colour on a logarithmic scale. Memory that nobody touched is left out; a gap shows where. Below: what memory of any size would serve.", h("div", { class: "controls" }, report.inputs.length > 1 ? tabs : null, kinds), body);
  whenShown(draw);
  return element;
}

function facts(input: Input): HTMLElement {
  const list = h("dl", { class: "facts" });
  const add = (name: string, value: string) => value !== "" && list.append(h("div", {}, h("dt", {}, name), h("dd", {}, value)));
  add("program", [input.program, ...input.arguments].join(" "));
  add("made by", input.origin);
  add("accesses", count(input.accesses));
  add("reads", percent(ratio(input.reads, input.accesses) ?? 0));
  add("instructions", count(input.instructions));
  add("touched", (input.footprint_is_estimate ? "about " : "") + bytes(input.footprint_bytes));
  add("threads", exact(input.threads));
  if (input.processes > 1) add("processes", exact(input.processes));
  if (input.seed !== null) add("seed", String(input.seed));
  add("recorded on", [input.machine, input.date].filter((s) => s !== "").join(", "));
  return list;
}

/** A section whose measure is chosen with buttons. */
function metrics(
  report: Report,
  id: string,
  short: string,
  title: string,
  lead: string,
  measures: [string, string, (run: Run) => number | null, (v: number) => string, string][],
): HTMLElement | null {
  const known = measures.filter(([, , value]) => report.runs.some((run) => value(run) !== null));
  if (known.length === 0) return null;
  let chosen = known[0];
  const panels = h("div");
  const note = h("p", { class: "measure" });
  const draw = () => {
    const [, name, value, format, unit] = chosen;
    note.textContent = `${name} ${unit}`;
    barPanels(panels, () =>
      panelsOf(report, (runs, input) => ({
        series: [single(report, name, runs, input, value)],
        ends: runs.map((run) => orNull(value(run), format)),
        format,
      })),
    );
  };
  const modes = segmented("Measure", known.map(([key, name]) => [key, name]), chosen[0], (key) => {
    chosen = known.find(([k]) => k === key)!;
    draw();
  });
  const element = section(id, short, title, lead, h("div", { class: "controls" }, modes, note), panels);
  whenShown(draw);
  return element;
}

function sum(values: (number | null)[]): number | null {
  const known = values.filter((v): v is number => v !== null);
  return known.length === 0 ? null : known.reduce((a, b) => a + b, 0);
}

function orNull(value: number | null, format: (v: number) => string): string | null {
  return value === null ? null : format(value);
}

/** Charts measure their element, so they are drawn once it is in the page. */
const pending: (() => void)[] = [];
export function whenShown(draw: () => void): void {
  pending.push(draw);
}
export function drawPending(): void {
  for (const draw of pending.splice(0)) draw();
}
