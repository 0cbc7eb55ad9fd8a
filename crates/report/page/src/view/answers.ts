// The answers of `terrace tune` and `terrace advise`.

import { h } from "../dom";
import { bytes, count, percent, seconds, significant, slowdown } from "../format";
import { type Column, commandBlock, scroll, sortable } from "../tables";
import type { ResultSet } from "./source";

type Setting = { seconds_simulated: number; slowdown: number; slow_share: number; cost: number | null };
type Parameter = { name: string; low: string; high: string; default: string; tuned: string; sensitivity: { value: string; change: number | null }[] };
type Tuned = {
  policy: string;
  objective: string;
  gain: number;
  runs: number;
  fast_share: number;
  default: Setting;
  tuned: Setting;
  parameters: Parameter[];
  checks: { input: string; default_slowdown: number; tuned_slowdown: number; gain: number }[];
  remarks: string[];
  command: string;
};
type Placement = { policy: string; fast_capacity_share: number; fast_capacity_bytes: number; slow_share: number; slowdown: number; cost: number | null; saving: number | null };
type Policy = { policy: string; answer: Placement | null; too_small_share: number; too_small_slowdown: number | null; copied_bytes: number | null; refused: string | null };
type Advice = { resident_bytes: number; tolerated_slowdown: number; advice: Placement | null; policies: Policy[]; uncertainty: { remarks: string[] }; command: string | null };
type Way = { name: string; meaning: string; figures: { seconds_simulated: number; gain: number; translation_share: number; walks: number } | null; refused: string | null };
type Region = {
  name: string;
  walk_share: number;
  walks: number;
  touched_bytes: number;
  size: string;
  is_structure: boolean;
  costs: { way: string; faults: number; fault_seconds: number; copied_bytes: number }[];
};
type Pages = { verdict: { advice: string; reason: string }; ways: Way[]; regions: Region[]; touched_bytes: number; remarks: string[]; command: string | null };

/** The parts of an answer's page. */
export function answer(set: ResultSet, document: unknown): HTMLElement[] {
  if (set.kind === "tune") return tuned(document as Tuned);
  if (set.kind === "advice") return advised(document as Advice);
  return pages(document as Pages);
}

function part(id: string, title: string, ...content: (Node | null)[]): HTMLElement {
  return h("section", { id, "data-short": title }, h("h2", {}, title), ...content);
}

function verdict(text: string, detail = ""): HTMLElement {
  return h("div", {}, h("p", { class: "verdict" }, text), detail === "" ? null : h("p", { class: "lead" }, detail));
}

function ending(remarks: string[], command: string | null, title: string): HTMLElement[] {
  const parts: HTMLElement[] = [];
  if (remarks.length > 0) parts.push(part("remarks", "Before you rely on it", h("ul", { class: "caveats" }, ...remarks.map((text) => h("li", {}, text)))));
  if (command) parts.push(part("repeat", title, commandBlock(command)));
  return parts;
}

function tuned(one: Tuned): HTMLElement[] {
  const text = one.gain > 0 ? `The tuned ${one.policy} saves ${percent(one.gain)}, as measured by: ${one.objective}.` : `No setting of ${one.policy} is better than the one in force.`;
  const rows = [{ name: "as it was", ...one.default }, { name: "tuned", ...one.tuned }];
  const settings: Column<(typeof rows)[number]>[] = [
    { key: "design", title: "Setting", help: "", value: (row) => row.name },
    { key: "seconds", title: "Time", help: "Simulated", value: (row) => row.seconds_simulated, text: seconds },
    { key: "slowdown", title: "Slowdown", help: "Against everything in the fastest tier", value: (row) => row.slowdown, text: slowdown },
    { key: "slow", title: "Slow memory", help: "Of the memory in use, averaged over time", value: (row) => row.slow_share, text: percent },
  ];
  const parameters: Column<Parameter>[] = [
    { key: "design", title: "Parameter", help: "Those that matter most first", value: (row) => row.name },
    { key: "default", title: "As it was", help: "", value: (row) => row.default },
    { key: "tuned", title: "Tuned", help: "", value: (row) => row.tuned },
    { key: "tried", title: "Tried", help: "From the smallest to the largest", value: (row) => `${row.low} to ${row.high}` },
    { key: "worst", title: "Matters", help: "Most that the objective changes when this parameter alone moves away from the tuned setting", value: most, text: slowdown },
  ];
  const checks: Column<Tuned["checks"][number]>[] = [
    { key: "design", title: "Input", help: "Not tuned on", value: (row) => row.input },
    { key: "before", title: "As it was", help: "Slowdown", value: (row) => row.default_slowdown, text: slowdown },
    { key: "after", title: "Tuned", help: "Slowdown", value: (row) => row.tuned_slowdown, text: slowdown },
    { key: "gain", title: "Saves", help: "Of the objective", value: (row) => row.gain, text: percent },
  ];
  return [
    verdict(text, `${one.runs} settings were tried, with ${percent(one.fast_share)} of what is resident in the fastest tier.`),
    part("settings", "Before and after", scroll(sortable("settings-table", "Settings", settings, rows), "Settings")),
    part("parameters", "Parameters", scroll(sortable("parameters-table", "Parameters", parameters, one.parameters), "Parameters")),
    ...(one.checks.length > 0 ? [part("checks", "On other inputs", scroll(sortable("checks-table", "Other inputs", checks, one.checks), "Other inputs"))] : []),
    ...ending(one.remarks, one.command, "The options that set it"),
  ];
}

function most({ sensitivity }: Parameter): number | null {
  const changes = sensitivity.map((one) => one.change).filter((change): change is number => change !== null);
  return changes.length === 0 ? null : changes.reduce((a, b) => (Math.abs(b) > Math.abs(a) ? b : a));
}

function advised(one: Advice): HTMLElement[] {
  const best = one.advice;
  const text = best
    ? `${bytes(best.fast_capacity_bytes)} of fast memory (${percent(best.fast_capacity_share)} of what is resident) are enough with ${best.policy}: slowdown ${slowdown(best.slowdown)}.`
    : `No policy keeps within a slowdown of ${slowdown(one.tolerated_slowdown)}.`;
  const columns: Column<Policy>[] = [
    { key: "design", title: "Policy", help: "", value: (row) => row.policy },
    { key: "fast", title: "Fast tier", help: "The smallest that is enough, of what is resident", value: (row) => row.answer?.fast_capacity_share ?? null, text: percent },
    { key: "slowdown", title: "Slowdown", help: "Against everything in the fastest tier", value: (row) => row.answer?.slowdown ?? null, text: slowdown },
    { key: "slow", title: "Slow memory", help: "Of the memory in use, averaged over time", value: (row) => row.answer?.slow_share ?? null, text: percent },
    { key: "cost", title: "Cost", help: "Of the memory in use, against all of it in the fastest tier", value: (row) => row.answer?.cost ?? null, text: percent },
    { key: "less", title: "One less", help: "Slowdown with a step less of fast memory", value: (row) => row.too_small_slowdown, text: slowdown },
    { key: "copied", title: "Copied", help: "Between tiers", value: (row) => row.copied_bytes, text: bytes },
  ];
  const refused = one.policies.filter((row) => row.refused).map((row) => `${row.policy} could not run: ${row.refused}`);
  return [
    verdict(text, best?.saving ? `That saves ${percent(best.saving)} of the memory's price.` : ""),
    part("policies", "Policies", scroll(sortable("policies-table", "Policies", columns, one.policies), "Policies")),
    ...ending([...one.uncertainty.remarks, ...refused], one.command, "Repeat it"),
  ];
}

function pages(one: Pages): HTMLElement[] {
  const ways: Column<Way>[] = [
    { key: "design", title: "Way", help: "Of using large pages", value: (row) => row.name },
    { key: "meaning", title: "Meaning", help: "", value: (row) => row.refused ?? row.meaning },
    { key: "seconds", title: "Time", help: "Simulated", value: (row) => row.figures?.seconds_simulated ?? null, text: seconds },
    { key: "gain", title: "Gain", help: "Against base pages", value: (row) => row.figures?.gain ?? null, text: slowdown },
    { key: "translation", title: "Transl.", help: "Share of the cycles", value: (row) => row.figures?.translation_share ?? null, text: percent },
    { key: "walks", title: "Walks", help: "Page walks", value: (row) => row.figures?.walks ?? null, text: count },
  ];
  const regions: Column<Region>[] = [
    { key: "design", title: "Structure", help: "A data structure by the place that allocates it, or a mapping", value: (row) => row.name },
    { key: "touched", title: "Touched", help: "Resident with base pages, when most was", value: (row) => row.touched_bytes, text: bytes },
    { key: "walks", title: "Walks", help: "Page walks with base pages", value: (row) => row.walks, text: count },
    { key: "share", title: "Share", help: "Of all walk cycles", value: (row) => row.walk_share, text: percent },
    { key: "per-kib", title: "Per KiB", help: "Walks for each KiB", value: (row) => (row.touched_bytes > 0 ? (row.walks * 1024) / row.touched_bytes : null), text: significant },
    { key: "size", title: "Deserves", help: "The page size that pays", value: (row) => row.size },
    ...one.ways.filter((way) => way.figures).map((way): Column<Region> => ({ key: `faults-${way.name}`, title: `Faults, ${way.name}`, help: "Page faults", value: (row) => row.costs.find((cost) => cost.way === way.name)?.faults ?? null, text: count })),
  ];
  return [
    verdict(one.verdict.advice, one.verdict.reason),
    part("ways", "Ways", scroll(sortable("ways-table", "Ways of using large pages", ways, one.ways), "Ways of using large pages")),
    part("structures", "Data structures", scroll(sortable("regions-table", "Data structures", regions, one.regions), "Data structures")),
    ...ending(one.remarks, one.command, "Repeat it"),
  ];
}
