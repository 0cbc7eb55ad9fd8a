// Where the memory lay, what it costs, what a policy moved: on machines with several tiers.

import { barPanels, tradePanels, type Trade } from "./charts";
import { type PolicyWork, type Report, type Run, type Tiering, inputNames, isLive } from "./data";
import { h, legend, section, segmented } from "./dom";
import { bytes, exact, percent, seconds, slowdown, tenths } from "./format";
import { runsOf, whenShown } from "./sections";
import { type Column, WHICH_RUN, costOfMoves, scroll, sortable } from "./tables";
import { onSchemeChange, palette } from "./theme";

const SYMBOLS = ["circle", "diamond", "triangle", "rect", "emptyCircle", "emptyDiamond"];

type Placed = Run & { tiering: Tiering };

export function tiering(report: Report): HTMLElement | null {
  const placed = report.runs.filter((run): run is Placed => run.tiering !== undefined);
  const spread = placed.some((run) => run.tiering.policy !== null || run.tiering.tiers[0].share < 1);
  if (!spread) return null;
  const slowdowns = placed.some((run) => run.tiering.slowdown !== null);
  const costs = placed.some((run) => run.tiering.cost !== null);
  const fastest = placed[0].tiering.tiers[0].name;
  const prices = Object.entries(report.prices ?? {}).map(([tier, price]) => `${tier} at ${price}`);
  const priced = prices.length > 0 ? ` Cost: of the memory in use, with ${prices.join(", ")} of ${fastest}'s price, against all of it in ${fastest}.` : "";
  const against = slowdowns ? ` Slowdowns are against everything in ${fastest}.` : "";
  const parts: HTMLElement[] = [];
  if (slowdowns) parts.push(trade(report, placed, fastest, costs));
  parts.push(shares(report, placed));
  const table = sortable("tiering-table", "Tiering, one row per run", columns(placed, slowdowns, costs), placed);
  parts.push(scroll(table, "Tiering"));
  return section("tiering", "Tiering", "Tiering", `How much fast memory each design uses, averaged over time, and what moving pages took.${against}${priced}`, ...parts);
}

/** The design without the size of its fast memory: what a line of the plot joins. */
function family(run: Run): string {
  return run.design.split("@")[0];
}

/** Slowdown against fast memory or cost. */
function trade(report: Report, placed: Placed[], fastest: string, costs: boolean): HTMLElement {
  const families = [...new Set(placed.map(family))];
  const color = (name: string) => {
    const p = palette();
    const colors = [p.accent, p.components.memory, p.components.translation, p.components.cache, p.components.os, ...p.others];
    const contenders = families.filter((other) => !placed.some((run) => family(run) === other && run.bound));
    const at = contenders.indexOf(name);
    return at < 0 ? p.muted : colors[at % colors.length];
  };
  let mode = "share";
  const panels = h("div");
  const key = h("div");
  const draw = () => {
    key.replaceChildren(legend(families.map((name) => ({ name, color: color(name) }))));
    const measure = (run: Placed) => (mode === "cost" ? run.tiering.cost : run.tiering.tiers[0].share);
    const make = (): Trade[] =>
      inputNames(report).map((input) => {
        const runs = placed.filter((run) => run.input === input && run.tiering.slowdown !== null && measure(run) !== null);
        return {
          title: input,
          series: families.map((name, at) => ({
            name,
            color: () => color(name),
            symbol: SYMBOLS[at % SYMBOLS.length],
            points: runs.filter((run) => family(run) === name).map((run) => ({
              name: run.design,
              x: measure(run)!,
              y: run.tiering.slowdown!,
              best: mode === "cost" ? run.tiering.is_pareto_by_cost : run.tiering.is_pareto,
              facts: facts(run.tiering, fastest),
            })),
          })),
          x: { name: mode === "cost" ? `cost of the memory, all ${fastest} = 100%` : `memory in use that is ${fastest}`, format: tenths },
          y: { name: "slowdown", format: tenths },
          description: `${input}: ` + runs.map((run) => `${run.design} ${slowdown(run.tiering.slowdown!)} at ${percent(measure(run)!)}`).join(", "),
        };
      }).filter((panel) => panel.series.some((one) => one.points.length > 0));
    tradePanels(panels, make);
  };
  const modes = segmented("Against", [["share", "Fast memory"], ["cost", "Cost"]], mode, (value) => {
    mode = value;
    draw();
  });
  whenShown(draw);
  onSchemeChange(() => key.childElementCount > 0 && draw());
  return h("div", { class: "block" }, h("h3", {}, "Slowdown against fast memory"), h("p", { class: "measure" }, "Lower left is better. The dashed line joins what nothing else beats in both; a percentage point of the memory counts as no difference."), h("div", { class: "controls" }, costs ? modes : null, key), panels);
}

function facts(tiering: Tiering, fastest: string): [string, string][] {
  const rows: [string, string][] = [["slowdown", slowdown(tiering.slowdown ?? 0)], [fastest, percent(tiering.tiers[0].share)]];
  if (tiering.cost !== null) rows.push(["cost", percent(tiering.cost)]);
  if (tiering.policy) rows.push(["copied", bytes(tiering.policy.copied_bytes)], ["waited", seconds(tiering.policy.wait_seconds)]);
  return rows;
}

/** Memory in use by tier. */
function shares(report: Report, placed: Placed[]): HTMLElement {
  const tiers = [...new Set(placed.flatMap((run) => run.tiering.tiers.map((tier) => tier.name)))];
  const color = (at: number) => palette().tiers[at % palette().tiers.length][0];
  const of = (run: Run, name: string) => run.tiering?.tiers.find((tier) => tier.name === name)?.mean_bytes ?? null;
  const panels = h("div");
  const key = h("div");
  const draw = () => {
    key.replaceChildren(legend(tiers.map((name, at) => ({ name, color: color(at) }))));
    barPanels(panels, () =>
      inputNames(report)
        .map((input) => ({ input, runs: runsOf(report, input).filter((run) => run.tiering !== undefined) }))
        .filter(({ runs }) => runs.length > 0)
        .map(({ input, runs }) => {
          const ends = runs.map((run) => `${percent(run.tiering!.tiers[0].share)} ${run.tiering!.tiers[0].name}`);
          return {
            title: input,
            designs: runs.map((run) => run.design),
            strong: () => false,
            series: tiers.map((name, at) => ({ name, color: () => color(at), values: runs.map((run) => of(run, name)) })),
            ends,
            format: bytes,
            binary: true,
            description: `${input}: ` + runs.map((run, at) => `${run.design} ${ends[at]}`).join(", "),
          };
        }),
    );
  };
  whenShown(draw);
  onSchemeChange(() => key.childElementCount > 0 && draw());
  return h("div", { class: "block" }, h("h3", {}, "Memory in use by tier"), h("div", { class: "controls" }, key), panels);
}

function columns(placed: Placed[], slowdowns: boolean, costs: boolean): Column[] {
  const of = (run: Run) => (run as Placed).tiering;
  const work = (key: keyof PolicyWork) => (run: Run) => of(run).policy?.[key] ?? null;
  const all: Column[] = [...WHICH_RUN];
  if (slowdowns) all.push({ key: "slowdown", title: "Slowdown", help: "Against everything in the fastest tier", value: (run) => of(run).slowdown, text: slowdown });
  for (const { name } of placed[0].tiering.tiers) {
    all.push({ key: `share-${name}`, title: name, help: "Share of the memory in use", value: (run) => of(run).tiers.find((tier) => tier.name === name)?.share ?? null, text: percent });
  }
  if (costs) all.push({ key: "cost", title: "Cost", help: "Of the memory in use, against all of it in the fastest tier", value: (run) => of(run).cost, text: percent });
  if (!placed.some((run) => run.tiering.policy !== null)) return all;
  all.push(
    { key: "promoted_pages", title: "Promoted", help: "Pages of 4 KiB that came to a faster tier", value: work("promoted_pages"), text: exact },
    { key: "demoted_pages", title: "Demoted", help: "Pages of 4 KiB that came to a slower tier", value: work("demoted_pages"), text: exact },
    { key: "ping_pong_pages", title: "Ping-pong", help: "Pages that went back within a period", value: work("ping_pong_pages"), text: exact },
    ...costOfMoves((run) => of(run).policy),
  );
  // Nobody counts these on a real machine.
  const unknown = placed.every(isLive) ? ["ping_pong_pages", "wait_seconds", "interrupts", "policy_seconds"] : [];
  return all.filter((column) => !unknown.includes(column.key));
}
