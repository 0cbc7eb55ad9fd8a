// One set, or one run of it: what the report shows, its data structures, and the way to what it can be compared with.

import { translationCoherence } from "../coherence";
import { contiguity } from "../contiguity";
import type { Report } from "../data";
import { h } from "../dom";
import { withTimesSign } from "../format";
import { live } from "../live";
import { machine, validity } from "../machine";
import { cycles, inputs, pageSizes, speedups, traffic, translation } from "../sections";
import { numbers, parameters, provenance, statistics } from "../tables";
import { tiering } from "../tiering";
import { virtualMachines } from "../virtual_machines";
import { answer } from "./answers";
import { address, runName } from "./differences";
import { dateOf, plural } from "./results";
import { type Catalog, KINDS, type ResultSet, type Source, hasRuns, identity, nameOf, report } from "./source";
import { structures } from "../structures";

export async function detail(catalog: Catalog, source: Source, set: ResultSet, run: number | null): Promise<HTMLElement> {
  if (!hasRuns(set)) {
    const document = await source.document(set.id);
    return h("div", {}, hero(catalog, set, null), ...answer(set, document));
  }
  const whole = await report(source, set);
  const shown = run === null ? whole : only(whole, run);
  if (shown === null) return h("div", {}, hero(catalog, set, null), h("p", { class: "empty" }, "The run is no longer there."));
  const sections = [
    run === null ? speedups(shown) : null,
    tiering(shown),
    live(shown),
    cycles(shown),
    translation(shown),
    contiguity(shown),
    translationCoherence(shown),
    virtualMachines(shown),
    traffic(shown),
    pageSizes(shown),
    inputs(shown),
    structures(shown),
    machine(shown),
    run === null ? validity(shown) : null,
    run === null ? numbers(shown) : null,
    statistics(shown),
    parameters(shown),
    provenance(shown),
  ].filter((one): one is HTMLElement => one !== null);
  const verdict = run === null ? (shown.conclusions.find((one) => one.input === null) ?? shown.conclusions[0]) : undefined;
  return h(
    "div",
    {},
    hero(catalog, set, run),
    verdict ? h("p", { class: "verdict" }, withTimesSign(verdict.text)) : null,
    contents(sections),
    ...sections,
  );
}

/** The document of one of its runs. */
function only(whole: Report, run: number): Report | null {
  const one = whole.runs[run];
  if (!one) return null;
  return { ...whole, runs: [one], inputs: whole.inputs.filter((input) => input.name === one.input), baseline: one.design, conclusions: [] };
}

function hero(catalog: Catalog, set: ResultSet, run: number | null): HTMLElement {
  const row = run === null ? undefined : set.runs[run];
  const facts = [KINDS[set.kind], row ? row.machine : hasRuns(set) ? plural(set.runs.length, "run") : "", row?.fidelity ?? "", set.tool_version === "" ? "" : `Terrace ${set.tool_version}`, dateOf(set)];
  const path = h("a", { href: row ? `#/set/${set.id}` : "#/" }, row ? nameOf(set) : "Results");
  return h(
    "div",
    { class: "hero small" },
    h("p", { class: "path" }, path, row ? "" : ` / ${nameOf(set)}`),
    h("h1", {}, row ? runName(row) : set.title || nameOf(set)),
    h("ul", { class: "chips" }, ...facts.filter((text) => text !== "").map((text) => h("li", {}, text))),
    hasRuns(set) ? counterparts(catalog, set, run) : null,
  );
}

/** Other sets with the same run, or with runs in common: a click shows the differences, the older before the younger. */
function counterparts(catalog: Catalog, set: ResultSet, run: number | null): HTMLElement | null {
  const row = run === null ? undefined : set.runs[run];
  const own = new Set(set.runs.map(identity));
  const found = catalog.sets
    .filter((other) => other.id !== set.id && hasRuns(other))
    .map((other) => ({ other, at: row ? other.runs.findIndex((one) => identity(one) === identity(row)) : other.runs.findIndex((one) => own.has(identity(one))) }))
    .filter(({ at }) => at >= 0);
  if (found.length === 0) return null;
  const select = h("select", { "aria-label": "Differences" }, h("option", { value: "" }, row ? "the same run in …" : "another set …"));
  for (const { other } of found) select.append(h("option", { value: other.id }, nameOf(other)));
  select.addEventListener("change", () => {
    const { other, at } = found.find((one) => String(one.other.id) === select.value)!;
    const [here, there] = [{ set: set.id, run }, { set: other.id, run: row ? at : null }];
    const isOlder = other.modified < set.modified;
    location.hash = isOlder ? address(there, here) : address(here, there);
  });
  return h("p", { class: "counterparts" }, h("label", {}, "Differences from ", select));
}

/** Links to the sections. Buttons, since the address says which page this is. */
function contents(sections: HTMLElement[]): HTMLElement {
  const nav = h("nav", { class: "contents", "aria-label": "Sections" });
  for (const one of sections) {
    const button = h("button", { type: "button" }, one.dataset.short!);
    button.addEventListener("click", () => one.scrollIntoView());
    nav.append(button);
  }
  return nav;
}
