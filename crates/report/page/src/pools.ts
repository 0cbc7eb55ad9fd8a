// The memories beside a GPU: what share of the traffic each carried, how fast over time against its limit, what of that was
// migration, how busy the link was, and for which data structures.

import { barPanels, tradePanels, type Trade } from "./charts";
import { type Pools, type Report, type Run, counts } from "./data";
import { h, legend, section, segmented } from "./dom";
import { basename, bytes, count, percent, seconds, significant } from "./format";
import { whenShown } from "./sections";
import { type Column, codeLine, scroll, sortable } from "./tables";
import { onSchemeChange, palette } from "./theme";

type Pooled = Run & { pools: Pools };
type Structure = Pools["structures"][number];
/** Bytes of an interval after the other, and how many a second there could be. */
type Flow = { name: string; bytes: number[]; limit: number; color: () => string };

const perSecond = (value: number) => `${significant(value / 1e9)} GB/s`;
const total = (values: number[]) => values.reduce((a, b) => a + b, 0);
const tier = (at: number, dim = 0) => palette().tiers[at % palette().tiers.length][dim];

export function pools(report: Report): HTMLElement | null {
  const runs = report.runs.filter((run): run is Pooled => run.pools !== undefined && run.pools.memories.length > 0);
  if (runs.length === 0) return null;
  const lead = "What memories and link carried while kernels ran; the host's time between kernels is left out.";
  return section("pools", "GPU memories", "Memories of the GPU", lead, shares(runs), overTime(runs));
}

/** Who carried how much, and how much of that was migration; a bar per design. */
function shares(runs: Pooled[]): HTMLElement {
  const names = [...new Set(runs.flatMap((run) => run.pools.memories.map((one) => one.name)))];
  const of = (run: Pooled, name: string, kind: "demand_bytes" | "migration_bytes") => {
    const memory = run.pools.memories.find((one) => one.name === name);
    return memory ? total(counts(memory[kind])) : 0;
  };
  const parts = names.flatMap((name, at) => [
    { name, color: () => tier(at), of: (run: Pooled) => of(run, name, "demand_bytes") },
    { name: `${name}, migration`, color: () => tier(at, 1), of: (run: Pooled) => of(run, name, "migration_bytes") },
  ]);
  let mode = "share";
  const panels = h("div");
  const key = h("div");
  const draw = () => {
    key.replaceChildren(mode === "link" ? legend(DIRECTIONS.map((one) => ({ name: one.name, color: one.color() }))) : legend(parts.map((part) => ({ name: part.name, color: part.color() }))));
    const inputs = [...new Set(runs.map((run) => run.input))];
    barPanels(panels, () =>
      inputs.map((input) => {
        const own = runs.filter((run) => run.input === input);
        const all = (run: Pooled) => total(parts.map((part) => part.of(run)));
        const demand = (run: Pooled, name: string) => of(run, name, "demand_bytes");
        const busy = (run: Pooled, at: number) => utilization(run, DIRECTIONS[at].key);
        const ends = own.map((run) =>
          mode === "link"
            ? DIRECTIONS.map((_, at) => percent(busy(run, at) ?? 0)).join(" and ")
            : mode === "share"
              ? `${percent(demand(run, names[0]) / Math.max(1, total(names.map((name) => demand(run, name)))))} of demand in ${names[0]}`
              : bytes(all(run)),
        );
        return {
          title: input,
          designs: own.map((run) => run.design),
          strong: () => false,
          description: `${input}: ` + own.map((run, at) => `${run.design} ${ends[at]}`).join(", "),
          series:
            mode === "link"
              ? DIRECTIONS.map((one, at) => ({ name: one.name, color: one.color, values: own.map((run) => busy(run, at)) }))
              : parts.map((part) => ({
                  name: part.name,
                  color: part.color,
                  values: own.map((run) => (mode === "share" ? part.of(run) / Math.max(1, all(run)) : part.of(run))),
                })),
          ends,
          format: mode === "bytes" ? bytes : percent,
          max: mode === "share" ? 1 : undefined,
          binary: mode === "bytes",
        };
      }),
    );
  };
  const options: [string, string][] = [["share", "Share of traffic"], ["bytes", "Bytes"]];
  if (runs.some((run) => run.pools.link)) options.push(["link", "Link in use"]);
  const modes = segmented("Measure", options, mode, (value) => {
    mode = value;
    draw();
  });
  whenShown(draw);
  onSchemeChange(() => key.childElementCount > 0 && draw());
  return h("div", { class: "block", id: "pools-shares" }, h("div", { class: "controls" }, modes, key), panels);
}

const DIRECTIONS: { key: "to_cpu" | "to_gpu"; name: string; color: () => string }[] = [
  { key: "to_cpu", name: "link to the CPU", color: () => palette().others[0] },
  { key: "to_gpu", name: "link to the GPU", color: () => palette().others[1] },
];

/** Share of what the link could have carried in one direction, over all intervals. */
function utilization(run: Pooled, direction: "to_cpu" | "to_gpu"): number | null {
  const link = run.pools.link?.[direction];
  if (!link) return null;
  const carried = counts(link.bytes);
  return total(carried) / Math.max(1, link.bytes_per_second * run.pools.interval_seconds * carried.length);
}

/** One run by time, and its structures. */
function overTime(runs: Pooled[]): HTMLElement {
  let chosen = runs[0];
  const name = (run: Pooled) => `${run.design} on ${run.input}`;
  const title = h("h3");
  const panels = h("div");
  const key = h("div");
  const table = h("div");
  const draw = () => {
    title.textContent = `Over time: ${name(chosen)}`;
    const flows = flowsOf(chosen);
    key.replaceChildren(legend([...flows.flat().map((flow) => ({ name: flow.name, color: flow.color() })), { name: "limit", color: palette().muted }]));
    tradePanels(panels, () => PANELS.map((panel, at) => trade(chosen, panel, flows[at])).filter((one) => one.series.length > 0));
    const structures = chosen.pools.structures;
    table.replaceChildren(
      ...(structures.length === 0
        ? [h("p", {}, "No data structure has a name in this input.")]
        : [h("h3", {}, `Hottest structures: ${name(chosen)}`), scroll(sortable("pools-table", `Data structures of ${name(chosen)}`, columns(chosen), structures), "Data structures")]),
    );
  };
  const select = h("select", { id: "pools-run", "aria-label": "Run" }, ...runs.map((run, at) => h("option", { value: String(at) }, name(run))));
  select.addEventListener("change", () => {
    chosen = runs[Number(select.value)];
    draw();
  });
  whenShown(draw);
  onSchemeChange(() => key.childElementCount > 0 && draw());
  return h("div", { class: "block", id: "pools-time" }, title, h("div", { class: "controls" }, runs.length > 1 ? select : null, key), panels, table);
}

const PANELS = ["Bandwidth of each memory", "Of that, migration", "Bandwidth of the link"];

/** What the panels show: memories, migration where there is any, the link. */
function flowsOf(run: Pooled): Flow[][] {
  const { memories, link } = run.pools;
  const moved = memories.map((one) => counts(one.migration_bytes));
  const all = memories.map((one, at) => ({
    name: one.name,
    bytes: counts(one.demand_bytes).map((demand, when) => demand + moved[at][when]),
    limit: one.bytes_per_second,
    color: () => tier(at),
  }));
  const migration = memories.map((one, at) => ({ name: `${one.name}, migration`, bytes: moved[at], limit: 0, color: () => tier(at, 1) }));
  const crossing = link ? DIRECTIONS.map((one) => ({ name: one.name, bytes: counts(link[one.key].bytes), limit: link[one.key].bytes_per_second, color: one.color })) : [];
  return [all, moved.some((bytes) => total(bytes) > 0) ? migration : [], crossing];
}

function trade(run: Pooled, title: string, flows: Flow[]): Trade {
  const width = run.pools.interval_seconds;
  const point = (name: string, at: number, value: number) => ({ name, x: at * width, y: value, best: false, facts: [] });
  const lines = flows.map((flow) => ({
    name: flow.name,
    color: flow.color,
    symbol: "none",
    points: flow.bytes.map((carried, at) => point(flow.name, at + 0.5, carried / width)),
  }));
  // Both directions of a link mostly have one limit, which is drawn once.
  const limits = [...new Map(flows.filter((flow) => flow.limit > 0).map((flow) => [flow.limit, flow])).values()];
  const bounds = limits.map((flow) => ({
    name: `limit of ${flow.name}`,
    color: () => palette().muted,
    symbol: "none",
    points: [0, flow.bytes.length].map((at) => point(`limit of ${flow.name}`, at, flow.limit)),
  }));
  const mean = (flow: Flow) => total(flow.bytes) / Math.max(1e-12, width * flow.bytes.length);
  const words = flows.map((flow) => `${flow.name} ${perSecond(mean(flow))}` + (flow.limit > 0 ? ` of ${perSecond(flow.limit)}` : ""));
  return {
    title,
    series: [...lines, ...bounds],
    x: { name: "time of kernels", format: seconds },
    y: { name: "", format: perSecond },
    description: `${title} of ${run.design} on ${run.input}, on average ${words.join(", ")}`,
  };
}

function columns(run: Pooled): Column<Structure>[] {
  const names = run.pools.memories.map((one) => one.name);
  const lines = (one: Structure) => total(names.map((name) => one.lines[name] ?? 0));
  const all = total(run.pools.structures.map(lines));
  return [
    { key: "name", title: "Structure", help: "The place that allocates it", value: (one) => basename(one.name) },
    ...codeLine(run.pools.structures, (one) => one.code_line ?? ""),
    { key: "bytes", title: "Size", help: "All that was allocated there", value: (one) => one.bytes, text: bytes },
    { key: "share", title: "Share", help: "Of all accesses of named structures that reached memory", value: (one) => (all > 0 ? lines(one) / all : null), text: percent },
    { key: "lines", title: "Lines", help: "Loads and stores of lines that no cache of the GPU held", value: lines, text: count },
    { key: "heat", title: "Per KiB", help: "Lines for each KiB: how hot it is", value: (one) => (one.bytes > 0 ? (lines(one) * 1024) / one.bytes : null), text: significant },
    ...names.map((name) => ({
      key: `in-${name}`,
      title: `From ${name}`,
      help: `Share of its lines that ${name} served`,
      value: (one: Structure) => (lines(one) > 0 ? (one.lines[name] ?? 0) / lines(one) : null),
      text: percent,
    })),
  ];
}
