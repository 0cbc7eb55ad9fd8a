// The simulated machines: what they are, and what their constants rest on; and how far the answers can be trusted.

import { type MachineLedger, type Report, type Run, baselineOf, inputNames, interval, isLive } from "./data";
import { h, section } from "./dom";
import { bytes, percent, significant } from "./format";

/** A machine of the report with the runs on it. */
type Machine = { name: string; runs: Run[]; ledger: MachineLedger | undefined };

function machinesOf(report: Report): Machine[] {
  const runs = report.runs.filter((run) => !isLive(run) && run.machine !== "");
  return [...new Set(runs.map((run) => run.machine))].map((name) => ({
    name,
    runs: runs.filter((run) => run.machine === name),
    ledger: report.machines?.find((one) => one.name === name),
  }));
}

export function machine(report: Report): HTMLElement | null {
  const all = machinesOf(report);
  if (all.length === 0) return null;
  return section(
    "machine",
    "Machine",
    all.length === 1 ? `The machine: ${all[0].name}` : "The machines",
    "What the designs ran on. Where designs differ in a value, each of them is listed.",
    ...all.map((one) => card(one, all.length > 1)),
  );
}

function card(machine: Machine, named: boolean): HTMLElement {
  const list = h("dl", { class: "facts machine" });
  for (const [name, value] of facts(machine)) if (value !== "") list.append(h("div", {}, h("dt", {}, name), h("dd", {}, value)));
  const first = machine.runs[0];
  const tiers = (first.machine_tiers ?? []).map((tier) =>
    h("tr", {}, h("th", { scope: "row", class: "name" }, tier.name), h("td", { class: "number" }, bytes(tier.capacity_bytes)), h("td", { class: "number" }, `${significant(tier.read_latency_ns)} ns`), h("td", { class: "name" }, device(machine, tier.name))),
  );
  const head = h("tr", {}, ...["Tier", "Capacity", "Idle read", "Memory"].map((text, at) => h("th", { scope: "col", class: at === 1 || at === 2 ? "number" : "name" }, text)));
  const table = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Tiers of memory" }, h("table", {}, h("caption", { class: "hidden" }, "Tiers of memory"), h("thead", {}, head), h("tbody", {}, ...tiers)));
  return h("div", { class: "block", "data-machine": machine.name }, named ? h("h3", {}, machine.name) : null, list, tiers.length > 0 ? table : null, rests(machine.ledger));
}

/** The values of a parameter among the runs, of most first. */
function of(machine: Machine, key: string): string {
  const values = machine.runs.map((run) => run.parameters[key]).filter((value): value is string => value !== undefined);
  return [...new Set(values)].map((value) => value.replaceAll('"', "")).join(" or ");
}

function joined(...parts: string[]): string {
  return parts.filter((part) => part !== "").join(", ");
}

function named(value: string, unit: string): string {
  return value === "" ? "" : `${value} ${unit}`;
}

function cache(machine: Machine, level: string): string {
  const key = (name: string) => of(machine, `cache.${level}.${name}`);
  if (key("capacity") === "") return "";
  const index = key("index") === "hashed" ? "hashed index" : "";
  return joined(key("capacity"), named(key("ways"), "ways"), key("latency"), index);
}

function facts(machine: Machine): [string, string][] {
  const tlb = (level: string, name: string) => {
    const sizes = ["4k", "2m", "1g"].map((size) => [size, of(machine, `translation.${level}.${size}.entries`)]);
    const known = sizes.filter(([, entries]) => entries !== "").map(([size, entries]) => `${entries} of ${size}`);
    return [name, known.join(", ")] as [string, string];
  };
  const arrays = [0, 1, 2].map((at) => {
    const [entries, ways] = ["entries", "ways"].map((name) => of(machine, `translation.l2.array.${at}.${name}`));
    const sizes = of(machine, `translation.l2.array.${at}.sizes`).replace(/[[\]]/g, "");
    return entries === "" ? "" : `${entries} of ${sizes}${ways === "" || ways === "full" ? "" : ` (${ways} ways)`}`;
  });
  const gpuCache = (level: string) => joined(of(machine, `gpu.${level}.capacity`), named(of(machine, `gpu.${level}.ways`), "ways"));
  const sms = of(machine, "gpu.sms");
  const prefetcher = { true: "on", false: "off" }[of(machine, "cache.prefetcher.enabled")] ?? "";
  const gpu: [string, string][] = sms === "" ? [] : [
    ["GPU", joined(`${sms} SMs at ${of(machine, "gpu.frequency")}`, `${of(machine, "gpu.warps")} warps on each`)],
    ["GPU's level-1 caches", gpuCache("l1")],
    ["GPU's level-2 caches", joined(gpuCache("l2"), "in each slice")],
    ["GPU's TLBs", named(of(machine, "gpu.tlb.entries"), "entries")],
    ["cycles", "of the host's cores, whose clock all cycles and cycles per instruction here count"],
  ];
  return [
    ...gpu,
    ["cores", joined([of(machine, "core.count"), of(machine, "core.frequency")].filter((part) => part !== "").join(" at "), of(machine, "core.model.kind"))],
    ["window", named(of(machine, "core.reorder_buffer"), "instructions")],
    tlb("l1d", "level-1 data TLB"),
    ["level-2 TLB", joined(...arrays)],
    ["page walkers", of(machine, "translation.walkers")],
    ["level-1 cache", cache(machine, "l1")],
    ["level-2 cache", cache(machine, "l2")],
    ["last level", cache(machine, "llc")],
    ["prefetcher", prefetcher],
    ["a page fault", of(machine, "os.fault_cost")],
    ["zeroing", joined(of(machine, "os.zero_bandwidth"), named(of(machine, "os.huge_zero_bandwidth"), "for large pages"))],
  ];
}

/** The device behind a tier: its channels, its bus, and a link in front of it. */
function device(machine: Machine, tier: string): string {
  const name = of(machine, `tier.${tier}.device`) || tier;
  const key = (what: string) => of(machine, `device.${name}.${what}`);
  const channels = key("channels");
  const bus = key("bus_bandwidth");
  const link = of(machine, `tier.${tier}.link.latency`);
  const text = channels === "" ? "" : `${channels} ${channels === "1" ? "channel" : "channels"}${bus === "" ? "" : ` of ${bus}`}`;
  return joined(text, link === "" || link === "0 ns" ? "" : `behind a link of ${link}`);
}

/** What the constants rest on, by kind. */
function rests(ledger: MachineLedger | undefined): HTMLElement | null {
  if (!ledger) return null;
  const kinds: [string, string[]][] = [
    ["assumed: no source states it", ledger.assumed],
    ["calibrated: fitted to published rows", ledger.calibrated],
    ["cited: from a data sheet, a publication or a measurement", ledger.cited],
    ["spread: between which values a measured constant lay", ledger.spread],
  ];
  const known = kinds.filter(([, entries]) => entries.length > 0);
  if (known.length === 0) return null;
  const words = known.map(([kind, entries]) => `${entries.length} ${kind.split(":")[0]}`).join(", ");
  const lists = known.flatMap(([kind, entries]) => [h("h3", {}, kind[0].toUpperCase() + kind.slice(1)), h("ul", { class: "caveats" }, ...entries.map((entry) => h("li", {}, entry)))]);
  return h("details", {}, h("summary", {}, `What its constants rest on: ${words}`), ...lists);
}

/** What to know before anybody decides something by the answers. */
export function validity(report: Report): HTMLElement | null {
  const simulated = report.runs.filter((run) => !isLive(run));
  if (simulated.length === 0) return null;
  const notes = [...intervals(report, simulated), ...limits(report, simulated)];
  return section(
    "validity",
    "Validity",
    "How far this can be trusted",
    "What was simulated is a model with constants, not a machine.",
    h("ul", { class: "caveats" }, ...notes.map((note) => h("li", {}, note))),
  );
}

function intervals(report: Report, runs: Run[]): string[] {
  const known = runs.filter((run) => interval(run) !== null);
  if (known.length === 0) {
    return ["No intervals: nothing says how far assumed constants and seeds move the speed-ups. A difference of 1 % is taken for one."];
  }
  const causes: ["os_constants" | "memory_constants" | "seeds", string][] = [
    ["os_constants", "Assumed costs of faults and of zeroing"],
    ["memory_constants", "Assumed latencies of memory and costs of copying"],
    ["seeds", "Another seed"],
  ];
  const notes = ["Intervals hold what assumed constants do, each group at an end of its spread (a quarter, or what was measured), and another seed. They do not hold what the model leaves out."];
  for (const [cause, words] of causes) {
    const moved = known.map((run) => ({ run, by: Math.exp(run.speedup!.uncertainty![cause] ?? 0) - 1 }));
    const most = moved.reduce((a, b) => (b.by > a.by ? b : a));
    notes.push(most.by < 0.0005 ? `${words}: no speed-up moves.` : `${words}: a speed-up moves by ${fine(most.by)} at most (${most.run.design} on ${most.run.input}).`);
  }
  const unclear = inputNames(report).filter((input) => {
    const found = report.conclusions.find((one) => one.input === input);
    return found !== undefined && (found.winner === null || (found.rivals?.length ?? 0) > 0) && baselineOf(report, input) !== undefined;
  });
  if (unclear.length > 0) notes.push(`Intervals overlap at the top on ${unclear.join(", ")}: nobody wins there.`);
  return notes;
}

function fine(share: number): string {
  return share < 0.1 ? `${(share * 100).toFixed(1)}%` : percent(share);
}

function limits(report: Report, runs: Run[]): string[] {
  const notes = [];
  for (const fidelity of new Set(runs.map((run) => run.fidelity))) {
    const left = [...new Set(runs.filter((run) => run.fidelity === fidelity).flatMap((run) => run.left_out))];
    if (left.length > 0) notes.push(`Fidelity ${fidelity} leaves out: ${left.join("; ").replace(/\.$/, "")}.`);
  }
  for (const scale of new Set(runs.map((run) => run.scale))) {
    if (scale > 1) notes.push(`Scaled down by ${scale}: capacities, TLB reach and periods are divided by it. The input is as it came, so its footprint has to be that part of the real one.`);
  }
  const recorded = report.inputs.filter((input) => input.origin !== "workload").map((input) => input.name);
  if (recorded.length > 0) notes.push(`One recording each stands for ${recorded.join(", ")}: other inputs of the program can behave otherwise.`);
  const workloads = report.inputs.filter((input) => input.origin === "workload").map((input) => input.name);
  if (workloads.length > 0) notes.push(`Built-in workloads (${workloads.join(", ")}) stand for programs and are none.`);
  notes.push("Directions are more certain than sizes. The book's page \"How far results can be trusted\" says what was checked against real machines and publications, and what is not modelled.");
  return notes;
}
