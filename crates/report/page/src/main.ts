// The page: reads the embedded document, builds the sections, keeps to the reader's colour scheme.

import "./style.css";
import { translationCoherence } from "./coherence";
import { virtualMachines } from "./virtual_machines";
import { contiguity } from "./contiguity";
import { asReport, designNames, inputNames, type Conclusion, type Report, type Run } from "./data";
import { h } from "./dom";
import { bytes, significant, times, withTimesSign } from "./format";
import { live } from "./live";
import { machine, validity } from "./machine";
import { mixes } from "./mixes";
import { cycles, drawPending, inputs, pageSizes, speedups, traffic, translation } from "./sections";
import { numbers, parameters, provenance, statistics } from "./tables";
import { pools } from "./pools";
import { structures } from "./structures";
import { tiering } from "./tiering";
import { brand, schemeToggle } from "./bar";
import { apply } from "./theme";

function start(): void {
  const report = asReport(JSON.parse(document.getElementById("data")!.textContent!));
  const sections = [
    speedups(report),
    mixes(report),
    tiering(report),
    live(report),
    cycles(report),
    translation(report),
    contiguity(report),
    translationCoherence(report),
    virtualMachines(report),
    pools(report),
    traffic(report),
    pageSizes(report),
    inputs(report),
    structures(report),
    machine(report),
    validity(report),
    numbers(report),
    statistics(report),
    parameters(report),
    provenance(report),
  ].filter((s): s is HTMLElement => s !== null);
  const page = document.getElementById("page")!;
  page.replaceChildren(bar(sections), h("main", {}, hero(report), ...sections), footer(report));
  apply();
  drawPending();
  document.documentElement.dataset.ready = "true";
}

function bar(sections: HTMLElement[]): HTMLElement {
  const nav = h("nav", { "aria-label": "Sections" });
  for (const one of sections) nav.append(h("a", { href: `#${one.id}` }, one.dataset.short!));
  return h("header", { class: "bar" }, brand(), nav, schemeToggle());
}

/** A machine with its tiers: what they hold, and how long a read takes with nothing else under way. */
function machineInWords(run: Run): string {
  const tiers = (run.machine_tiers ?? []).map((t) => `${t.name} ${bytes(t.capacity_bytes)} at ${significant(t.read_latency_ns)} ns`);
  return tiers.length === 0 ? run.machine : `${run.machine}: ${tiers.join(", ")}`;
}

function hero(report: Report): HTMLElement {
  // One input needs no card beside its sentence.
  const verdict = report.conclusions.find((c) => c.input === null) ?? (report.conclusions.length === 1 ? report.conclusions[0] : null);
  const each = report.conclusions.filter((c) => c !== verdict);
  const machines = [...new Set(report.runs.map(machineInWords).filter((m) => m !== ""))];
  const fidelities = [...new Set(report.runs.map((run) => run.fidelity).filter((f) => f !== ""))];
  const scales = [...new Set(report.runs.map((run) => run.scale))].filter((s) => s > 1);
  const facts = [
    plural(designNames(report).length, "design"),
    plural(inputNames(report).length, "input"),
    machines.length > 0 ? `machine ${machines.join(", ")}` : "",
    fidelities.length > 0 ? `fidelity ${fidelities.join(", ")}` : "",
    scales.length > 0 ? `scaled down by ${scales.join(", ")}` : "",
    report.host.date,
  ].filter((text) => text !== "");
  const chips = h("ul", { class: "chips" }, ...facts.map((text) => h("li", {}, text)));
  const cards = h("div", { class: "cards" }, ...each.map(card));
  const empty = report.runs.length === 0 ? h("p", { class: "verdict" }, "No run is complete: nothing to compare.") : null;
  return h(
    "div",
    { class: "hero" },
    h("h1", {}, report.title || "Comparison"),
    chips,
    verdict ? h("p", { class: "verdict" }, withTimesSign(verdict.text)) : empty,
    failed(report),
    each.length > 0 ? cards : null,
  );
}

/** The runs that were asked for and have no result, with the reasons. */
function failed(report: Report): HTMLElement | null {
  const reasons = report.failures ?? [];
  if (reasons.length === 0) return null;
  const list = h("ul", {}, ...reasons.map((reason) => h("li", {}, reason)));
  return h("div", { class: "failed", role: "alert" }, h("strong", {}, `${plural(reasons.length, "run")} failed, and what stands below is without ${reasons.length === 1 ? "it" : "them"}:`), list);
}

function card(conclusion: Conclusion): HTMLElement {
  const [low, high] = [conclusion.low ?? null, conclusion.high ?? null];
  const between = low !== null && high !== null && high > low && conclusion.winner !== conclusion.baseline ? `between ${times(low)} and ${times(high)}` : "";
  const figure = conclusion.speedup !== null && conclusion.winner !== conclusion.baseline ? times(conclusion.speedup) : conclusion.winner ? "1×" : "–";
  return h(
    "article",
    { class: "card" },
    h("div", { class: "card-head" }, h("span", { class: "card-input" }, conclusion.input!), h("span", { class: "card-winner" }, conclusion.winner ?? "")),
    conclusion.winner === null ? null : h("div", { class: "card-figure" }, figure, h("small", {}, conclusion.winner ? (conclusion.winner === conclusion.baseline ? "the baseline" : ` vs ${conclusion.baseline}`) : "")),
    between === "" ? null : h("p", { class: "card-between" }, between),
    h("p", {}, withTimesSign(conclusion.detail)),
  );
}

function footer(report: Report): HTMLElement {
  return h("footer", {}, `Terrace ${report.tool_version}. This page is complete in itself: it loads nothing. Charts by Apache ECharts.`);
}

function plural(n: number, noun: string): string {
  return `${n} ${noun}${n === 1 ? "" : "s"}`;
}

start();
