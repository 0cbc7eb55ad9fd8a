// The document that the page shows (results.json, schema 2) and the measures derived from it.

export type Histogram = { buckets: number[]; count: number; sum: number; max: number };
export type Leaf = number | null | Histogram;
export type Tree = { [name: string]: Tree | Leaf };

export type Run = {
  design: string;
  machine: string;
  /** Of a simulated machine, fastest first. */
  machine_tiers?: { name: string; capacity_bytes: number; read_latency_ns: number }[];
  input: string;
  accesses: number;
  instructions: number;
  cycles: number;
  seconds_simulated: number;
  /** Of the document's `host`. */
  wall_seconds: number;
  accesses_per_second: number;
  fidelity: string;
  scale: number;
  seed: number | null;
  bound: boolean;
  /** Over the baseline, of a comparison; absent in results of earlier versions. */
  speedup?: SpeedUp;
  design_summary: string;
  command: string;
  left_out: string[];
  notes: string[];
  /** On machines with several tiers. */
  tiering?: Tiering;
  /** Where hardware or a policy is about contiguity. */
  contiguity?: Contiguity;
  /** Where translations had to go and somebody noticed. */
  translation_coherence?: TranslationCoherence;
  /** Of programs in virtual machines. */
  virtual_machines?: VirtualMachines;
  /** Of programs side by side. */
  mix?: Mix;
  /** Of a live run. */
  timeline?: Moment[];
  /** Where it was sampled. */
  contiguity_over_time?: ContiguityPoint[];
  /** Of a simulated GPU. */
  pools?: Pools;
  parameters: Record<string, string>;
  stats: Tree;
};

/** A speed-up and between which values it lies; what moves it by which logarithm. */
export type SpeedUp = {
  value: number;
  low: number;
  high: number;
  uncertainty?: { os_constants: number; memory_constants: number; seeds: number | null };
};

/** What the constants of a machine rest on. */
export type MachineLedger = { name: string; cited: string[]; calibrated: string[]; assumed: string[]; spread: string[] };

/** A live run at one moment: what had been moved by then, and what lay where. */
export type Moment = { seconds: number; promoted_bytes: number; demoted_bytes: number; used_bytes: Record<string, number> };

export type Tiering = {
  slowdown: number | null;
  tiers: { name: string; mean_bytes: number; share: number }[];
  cost: number | null;
  is_pareto: boolean;
  is_pareto_by_cost: boolean;
  policy: PolicyWork | null;
};

export type PolicyWork = {
  copied_bytes: number;
  promoted_pages: number;
  demoted_pages: number;
  ping_pong_pages: number;
  wait_seconds: number;
  interrupts: number;
  policy_seconds: number;
  migration_seconds: number;
};

/** What memories and link beside a GPU carried; rows of counts are one number per interval. */
export type Pools = {
  interval_seconds: number;
  memories: { name: string; bytes_per_second: number; demand_bytes: string; migration_bytes: string }[];
  link?: { to_cpu: { bytes_per_second: number; bytes: string }; to_gpu: { bytes_per_second: number; bytes: string } };
  structures: { name: string; code_line?: string; bytes: number; lines: Record<string, number> }[];
};

/** Against the baseline of the same input. */
export type Contiguity = {
  translation_share: number;
  saved_seconds: number;
  net_seconds: number;
  coverage_128: number | null;
  policy: PolicyWork | null;
};

/** Walks in two dimensions, and exits. */
export type VirtualMachines = {
  walks: number;
  guest_references: number;
  host_references: number;
  ept_violations: number;
  interrupts: number;
  preemptions: number;
  hypercalls: number;
  share: number;
  each?: VirtualMachine[];
};

/** One of several. */
export type VirtualMachine = {
  programs: number;
  accesses: number;
  guest_bytes: number;
  host_bytes: number;
  ept_violations: number;
  interrupts: number;
};

/** Programs side by side; what is null needs them alone, too. */
export type Mix = {
  weighted_speedup: number | null;
  harmonic_speedup: number | null;
  largest_slowdown: number | null;
  programs: ProgramOfMix[];
};

/** One of them, in its first region of interest. */
export type ProgramOfMix = {
  name: string;
  accesses: number;
  instructions: number;
  ipc: number;
  seconds: number;
  alone_seconds: number | null;
  slowdown: number | null;
  repeats: number;
};

/** What keeping translations coherent took. */
export type TranslationCoherence = {
  scheme: string;
  shootdowns: number;
  interrupts: number;
  messages: number;
  waited_seconds: number;
  interrupted_seconds: number;
  beside_seconds: number;
  share: number;
  joules: number | null;
  net_seconds: number | null;
};

/** How contiguous memory was at one moment: contiguous regions, and the share of memory in the largest of them. */
export type ContiguityPoint = { seconds: number; regions: number; coverage_32: number; coverage_128: number };

export type HeatRow = { process: number; start: string; bytes: number; name: string; line?: string; reads: string; writes: string };

export type Input = {
  name: string;
  program: string;
  arguments: string[];
  origin: string;
  machine: string;
  date: string;
  seed: number | null;
  accesses: number;
  reads: number;
  writes: number;
  instructions: number;
  threads: number;
  processes: number;
  footprint_bytes: number;
  footprint_is_estimate: boolean;
  /** Absent in results of earlier versions. */
  reuse?: Reuse;
  heat: { accesses_per_bin: number; sample_every: number; rows: HeatRow[] };
};

/** What memory of any size would hold of an input. */
export type Reuse = {
  page_bytes: number;
  sampled_share: number;
  memory_bytes: number[];
  miss_ratio: number[];
  miss_ratio_error: number;
  window_accesses: number[];
  working_set_bytes: number[];
  working_set_error: number;
};

export type Conclusion = {
  input: string | null;
  winner: string | null;
  speedup: number | null;
  /** Between which values it lies; absent in results of earlier versions. */
  low?: number | null;
  high?: number | null;
  rivals?: string[];
  baseline: string;
  text: string;
  detail: string;
};

export type Report = {
  schema: number;
  runs: Run[];
  title: string;
  command: string;
  tool_version: string;
  baseline: string;
  /** Of a tier's memory, where the fastest tier's is 1. */
  prices?: Record<string, number>;
  /** Runs that were asked for and have no result, and why. */
  failures?: string[];
  conclusions: Conclusion[];
  machines?: MachineLedger[];
  inputs: Input[];
  units: Record<string, string>;
  /** What the computer and the day decide. */
  host: { date: string; runs: { wall_seconds: number; accesses_per_second: number }[] };
};

/** A document as the page wants it: those of a single run lack what joins runs, and in schema 1 `host` did not exist. */
export function asReport(document: Partial<Report> & { runs: Run[]; date?: string }): Report {
  const host = document.host ?? { date: document.date ?? "", runs: [] };
  document.runs.forEach((run, at) => Object.assign(run, host.runs[at]));
  const empty = { title: "", command: "", tool_version: "", baseline: document.runs[0]?.design ?? "", conclusions: [], inputs: [], units: {} };
  return { schema: 0, ...empty, ...document, host: { ...host, date: host.date ?? "" } };
}

/** Whether this is what a policy did to real processes: no time, cycles or accesses were simulated. */
export function isLive(run: Run): boolean {
  return run.fidelity === "live";
}

/** Whether the run's time can be compared: other fidelities than `full` leave out that of its accesses. */
export function hasTimes(run: Run): boolean {
  return run.fidelity !== "translation" && run.fidelity !== "pages";
}

export function isHistogram(value: unknown): value is Histogram {
  return typeof value === "object" && value !== null && Array.isArray((value as Histogram).buckets);
}

/** All statistics of a run by their full dotted names, in the order of the document. */
export function flatten(tree: Tree, prefix = ""): Map<string, Leaf> {
  const leaves = new Map<string, Leaf>();
  for (const [name, value] of Object.entries(tree)) {
    if (value === null || typeof value === "number" || isHistogram(value)) {
      leaves.set(prefix + name, value as Leaf);
    } else {
      for (const [below, leaf] of flatten(value as Tree, prefix + name + ".")) leaves.set(below, leaf);
    }
  }
  return leaves;
}

/** A statistic as a number, or null where the run does not have it. */
export function stat(run: Run, name: string): number | null {
  let node: Tree | Leaf | undefined = run.stats;
  for (const part of name.split(".")) {
    if (typeof node !== "object" || node === null || isHistogram(node)) return null;
    node = (node as Tree)[part];
  }
  if (isHistogram(node)) return node.count;
  return typeof node === "number" ? node : null;
}

/** The numbers directly under a branch of the tree. */
export function children(run: Run, branch: string): Map<string, number> {
  const found = new Map<string, number>();
  for (const [name, leaf] of flatten(run.stats)) {
    const rest = name.startsWith(branch + ".") ? name.slice(branch.length + 1) : "";
    if (rest !== "" && !rest.includes(".") && typeof leaf === "number") found.set(rest, leaf);
  }
  return found;
}

/** Names of the branches directly under a branch (`tier` gives the tiers' names). */
export function branches(run: Run, branch: string): string[] {
  const names = new Set<string>();
  for (const name of flatten(run.stats).keys()) {
    if (name.startsWith(branch + ".")) {
      const parts = name.slice(branch.length + 1).split(".");
      if (parts.length > 1) names.add(parts[0]);
    }
  }
  return [...names];
}

export function ratio(a: number | null, b: number | null): number | null {
  return a === null || b === null || b === 0 || !Number.isFinite(a / b) ? null : a / b;
}

export function perKilo(run: Run, ...names: string[]): number | null {
  const values = names.map((name) => stat(run, name)).filter((v): v is number => v !== null);
  if (values.length === 0) return null;
  return ratio(1000 * values.reduce((a, b) => a + b, 0), run.instructions);
}

/** Cycles by cause, summed over the cores, in the order of display. */
export const COMPONENTS = ["base", "translation", "cache", "memory", "os"];
export function components(run: Run): Map<string, number> {
  if (!hasTimes(run)) return new Map();
  const all = children(run, "core.cycles");
  // As in the program: neither the sum nor cores that had nothing to run.
  all.delete("total");
  all.delete("idle");
  const order = [...COMPONENTS, ...[...all.keys()].filter((name) => !COMPONENTS.includes(name))];
  return new Map(order.filter((name) => all.has(name)).map((name) => [name, all.get(name)!]));
}

export function componentTotal(run: Run): number {
  let total = 0;
  for (const cycles of components(run).values()) total += cycles;
  return total;
}

export function share(run: Run, component: string): number | null {
  return ratio(components(run).get(component) ?? null, componentTotal(run));
}

export function cpi(run: Run): number | null {
  if (!hasTimes(run)) return null;
  return ratio(componentTotal(run) || run.cycles || null, run.instructions);
}

/** The tiers' names in the machine's order, which the parameters keep. */
export function tierNames(report: Report): string[] {
  const names = new Set<string>();
  for (const run of report.runs) {
    for (const key of Object.keys(run.parameters)) {
      const match = /^tier\.([^.]+)\./.exec(key);
      if (match) names.add(match[1]);
    }
  }
  const counted = new Set(report.runs.flatMap((run) => branches(run, "tier")));
  return [...[...names].filter((name) => counted.has(name)), ...[...counted].filter((name) => !names.has(name))];
}

/** Same rule as the program: the baseline design's run, else the input's first. */
export function baselineOf(report: Report, input: string): Run | undefined {
  const runs = report.runs.filter((run) => run.input === input);
  return runs.find((run) => run.design === report.baseline) ?? runs[0];
}

export function speedup(report: Report, run: Run): number | null {
  // Of programs side by side it is no ratio of times, and only the program knows it.
  if (run.speedup) return run.speedup.value;
  const baseline = baselineOf(report, run.input);
  if (!baseline || !hasTimes(run) || !(run.seconds_simulated > 0) || !(baseline.seconds_simulated > 0)) return null;
  return baseline.seconds_simulated / run.seconds_simulated;
}

/** The ends of a run's interval, where it has one that is wider than nothing. */
export function interval(run: Run): [number, number] | null {
  const of = run.speedup;
  return of?.uncertainty && of.high > of.low ? [of.low, of.high] : null;
}

export function inputNames(report: Report): string[] {
  return [...new Set([...report.inputs.map((i) => i.name), ...report.runs.map((r) => r.input)])];
}

export function designNames(report: Report): string[] {
  return [...new Set(report.runs.map((run) => run.design))];
}

export function winnerOf(report: Report, input: string): string | null {
  return report.conclusions.find((c) => c.input === input)?.winner ?? null;
}

/** Parses a row of counts of the heat map. */
export function counts(row: string): number[] {
  return row === "" ? [] : row.split(" ").map(Number);
}
