// Charts: horizontal bars per design, a panel per input, and the heat map.

import { BarChart, HeatmapChart, LineChart } from "echarts/charts";
import { GridComponent, MarkLineComponent, TooltipComponent, VisualMapContinuousComponent } from "echarts/components";
import * as echarts from "echarts/core";
import { CanvasRenderer, SVGRenderer } from "echarts/renderers";
import { counts, type Input } from "./data";
import { h } from "./dom";
import { basename, bytes, count, round, significant } from "./format";
import { onSchemeChange, palette } from "./theme";

echarts.use([
  BarChart,
  HeatmapChart,
  LineChart,
  GridComponent,
  MarkLineComponent,
  TooltipComponent,
  VisualMapContinuousComponent,
  CanvasRenderer,
  SVGRenderer,
]);

const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
const BAR = 30;

export type Series = { name: string; color: (design: number) => string; values: (number | null)[]; dashed?: (design: number) => boolean };
export type Panel = {
  title: string;
  designs: string[];
  /** Designs whose name is emphasised. */
  strong: (design: number) => boolean;
  series: Series[];
  /** The number at the end of each bar. */
  ends: (string | null)[];
  format: (value: number) => string;
  max?: number;
  /** Values may be negative: bars go either way from 0, and even a small one is seen. */
  signed?: boolean;
  /** Ends of the interval around each bar's end. */
  whiskers?: ([number, number] | null)[];
  /** Whether ticks stand at powers of two, as bytes want them. */
  binary?: boolean;
  reference?: number;
  description: string;
};

type Mounted = { chart: echarts.ECharts; draw: () => void; element: HTMLElement };
const mounted = new Set<Mounted>();

function mount(element: HTMLElement, renderer: "svg" | "canvas", option: () => echarts.EChartsCoreOption): void {
  const chart = echarts.init(element, null, { renderer });
  const draw = () => chart.setOption({ animation: false, ...option() }, true);
  const entry = { chart, draw, element };
  mounted.add(entry);
  draw();
}

const resized = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    for (const entry of mounted) {
      if (entry.element === target && entry.element.isConnected) {
        entry.chart.resize();
        entry.draw();
      }
    }
  }
});

/** Ends the charts in an element that is about to go. */
export function release(within: HTMLElement): void {
  for (const entry of mounted) {
    if (within.contains(entry.element)) {
      resized.unobserve(entry.element);
      // A canvas paints many marks over several frames, and goes on when its chart is gone; cleared, it has nothing left to paint.
      entry.chart.clear();
      entry.chart.dispose();
      mounted.delete(entry);
    }
  }
}

onSchemeChange(() => {
  for (const entry of mounted) entry.draw();
});

function tooltipStyle() {
  const p = palette();
  return {
    backgroundColor: p.surface,
    borderColor: p.line,
    textStyle: { color: p.text, fontFamily: FONT, fontSize: 13 },
    confine: true,
  };
}

/** Fills `container` with a panel per input; what was there before is released. */
export function barPanels(container: HTMLElement, panels: () => Panel[]): void {
  release(container);
  const list = panels();
  container.className = list.length === 1 ? "panels single" : "panels";
  container.replaceChildren();
  list.forEach((panel, at) => {
    const box = h("div", { class: "chart", role: "img", "aria-label": panel.description });
    box.style.height = `${panel.designs.length * BAR + 34}px`;
    container.append(h("figure", {}, h("figcaption", {}, panel.title), box));
    mount(box, "svg", () => barOption(panels()[at], box.clientWidth));
    resized.observe(box);
  });
}

/** Width of a letter of a design's name, in pixels. */
const LETTER = 7.4;

/** A name of so many letters at most that keeps its end, in which designs differ: all behind `@`, the share of fast memory. */
function shortened(name: string, letters: number): string {
  if (name.length <= letters) return name;
  const at = name.lastIndexOf("@");
  const end = name.slice(at < 0 ? name.length - Math.floor(letters / 2) : at);
  return `${name.slice(0, Math.max(1, letters - end.length - 1))}…${end}`;
}

function barOption(panel: Panel, width: number): echarts.EChartsCoreOption {
  const p = palette();
  const longest = Math.max(...panel.designs.map((name) => name.length)) * 8 + 6;
  const names = Math.min(longest, width < 380 ? 104 : 170);
  const { step, min, max } = scale(panel);
  const last = panel.series.length - 1;
  const endWidth = Math.max(...panel.ends.map((text) => (text ?? "").length)) * 7.5 + 18;
  const series: unknown[] = panel.series.map((one, at) => ({
    type: "bar",
    name: one.name,
    stack: "all",
    barWidth: "64%",
    barMinHeight: panel.signed ? 3 : 0,
    data: one.values.map((value, design) => ({
      // A bar of no length has none of the least length either.
      value: value || (panel.signed ? null : 0),
      itemStyle: {
        color: one.dashed?.(design) ? "transparent" : one.color(design),
        borderColor: one.dashed?.(design) ? one.color(design) : p.surface,
        borderWidth: one.dashed?.(design) ? 1.5 : panel.series.length > 1 ? 0.75 : 0,
        borderType: one.dashed?.(design) ? "dashed" : "solid",
        borderRadius: at !== last ? 0 : (value ?? 0) < 0 ? [3, 0, 0, 3] : [0, 3, 3, 0],
      },
    })),
    markLine:
      at === 0 && panel.reference !== undefined
        ? {
            silent: true,
            z: 1,
            symbol: "none",
            label: { show: false },
            lineStyle: { color: p.muted, type: "solid", width: 1 },
            data: [{ xAxis: panel.reference }],
          }
        : undefined,
  }));
  // The text after a stacked bar belongs to the whole, so a series of its own without length carries it.
  series.push({
    type: "bar",
    name: "",
    stack: "all",
    silent: true,
    tooltip: { show: false },
    // Above the bars: what lies within a bar is half of an interval.
    markLine: { silent: true, z: 6, symbol: "none", label: { show: false }, lineStyle: { type: "solid" }, data: whiskers(panel) },
    data: panel.ends.map((text, design) => ({
      value: beyond(panel, design),
      itemStyle: { color: "transparent" },
      label: { show: true, position: "right", formatter: () => text ?? "–", color: p.text, backgroundColor: p.surface, padding: [1, 3], distance: 3, fontFamily: FONT, fontSize: 12.5 },
    })),
  });
  return {
    grid: { left: names + 8, right: endWidth, top: 4, bottom: 26 },
    textStyle: { fontFamily: FONT },
    tooltip: {
      ...tooltipStyle(),
      trigger: "axis",
      axisPointer: { type: "shadow", shadowStyle: { color: p.line, opacity: 0.35 } },
      formatter: (items: { dataIndex: number }[]) => barTooltip(panel, items[0].dataIndex),
    },
    xAxis: {
      type: "value",
      min,
      max,
      interval: step,
      axisLabel: { color: p.muted, fontSize: 11.5, formatter: (value: number) => round(panel.format(value)), hideOverlap: true },
      splitLine: { lineStyle: { color: p.line } },
    },
    yAxis: {
      type: "category",
      inverse: true,
      data: panel.designs,
      axisTick: { show: false },
      axisLine: { show: false },
      axisLabel: {
        color: p.text,
        fontSize: 12.5,
        width: names,
        overflow: "truncate",
        formatter: (name: string, index: number) => {
          const text = shortened(name, Math.floor(names / LETTER));
          return panel.strong(index) ? `{strong|${text}}` : text;
        },
        rich: { strong: { fontWeight: 700, fontSize: 12.5, color: p.text } },
      },
    },
    series,
  };
}

/** Lines from the lower to the upper end of each interval. */
function whiskers(panel: Panel): unknown[] {
  const p = palette();
  return (panel.whiskers ?? []).flatMap((ends, design) =>
    ends === null
      ? []
      : [[{ coord: [ends[0], design], lineStyle: { color: p.text, width: 1.5 } }, { coord: [ends[1], design] }]],
  );
}

/** A length that nobody sees: what has one stands to the right of 0, whichever way the bar goes. */
const NOTHING = 1e-12;

/** How far the upper end of an interval lies beyond the bar, so that the number stands after both. */
function beyond(panel: Panel, design: number): number {
  const upper = panel.whiskers?.[design]?.[1] ?? 0;
  const total = panel.series.reduce((sum, one) => sum + (one.values[design] ?? 0), 0);
  return Math.max(panel.signed ? NOTHING : 0, upper - Math.max(0, total));
}

/** Round ticks, four or so, and an axis that ends at one of them. */
function scale(panel: Panel): { step: number; min: number; max: number } {
  const totals = panel.designs.map((_, at) => panel.series.reduce((sum, one) => sum + (one.values[at] ?? 0), 0));
  const ends = (panel.whiskers ?? []).flatMap((one) => one ?? []);
  const largest = panel.max ?? Math.max(...totals, ...ends, 0);
  const least = panel.signed ? Math.min(...totals, ...ends, 0) : 0;
  // What differs by less than two percent does not fill the panel.
  const span = Math.max(largest - least, panel.signed ? 0.02 : 0);
  if (!(span > 0)) return { step: 1, min: 0, max: 1 };
  const rough = span / 4;
  let step = 2 ** Math.round(Math.log2(rough));
  if (!panel.binary) {
    const decade = 10 ** Math.floor(Math.log10(rough));
    step = [1, 2, 2.5, 5, 10].map((m) => m * decade).find((candidate) => candidate >= rough * 0.8)!;
  }
  return { step, min: step * Math.floor(least / step + 1e-9), max: step * Math.ceil(Math.max(largest, least + span) / step - 1e-9) };
}

function barTooltip(panel: Panel, design: number): HTMLElement {
  const rows = panel.series.map((one) => {
    const value = one.values[design];
    const swatch = h("span", { class: "swatch" });
    swatch.style.background = one.color(design);
    return h("tr", {}, h("td", {}, panel.series.length > 1 ? swatch : null, one.name), h("td", {}, value === null ? "–" : panel.format(value)));
  });
  const ends = panel.whiskers?.[design];
  if (ends) rows.push(h("tr", {}, h("td", {}, "between"), h("td", {}, `${panel.format(ends[0])} and ${panel.format(ends[1])}`)));
  return h("div", {}, h("strong", {}, panel.designs[design]), h("table", { class: "tip" }, ...rows));
}

export type Point = { name: string; x: number; y: number; best: boolean; facts: [string, string][] };
/** What an axis shows; `log` where what matters spans decades, `binary` where ticks stand at powers of two. */
export type Measure = { name: string; format: (value: number) => string; log?: boolean; binary?: boolean };
export type Trade = {
  title: string;
  /** Points that a line joins, from left to right. */
  series: { name: string; color: () => string; symbol: string; size?: number; points: Point[] }[];
  x: Measure;
  y: Measure;
  description: string;
};

/** Two measures against each other, a panel per input: nearer the lower left corner is better. */
export function tradePanels(container: HTMLElement, panels: () => Trade[]): void {
  release(container);
  const list = panels();
  container.className = list.length === 1 ? "panels single" : "panels";
  container.replaceChildren();
  list.forEach((panel, at) => {
    const box = h("div", { class: "chart", role: "img", "aria-label": panel.description });
    box.style.height = "340px";
    container.append(h("figure", {}, h("figcaption", {}, panel.title), box));
    mount(box, "svg", () => tradeOption(panels()[at]));
    resized.observe(box);
  });
}

function tradeOption(panel: Trade): echarts.EChartsCoreOption {
  const p = palette();
  const all = panel.series.flatMap((one) => one.points);
  const frontier = all.filter((point) => point.best).sort((a, b) => a.x - b.x);
  const axis = (measure: Trade["x"], values: number[]) => ({
    ...(measure.log
      ? { type: "log", min: "dataMin", max: "dataMax", logBase: measure.binary ? 2 : 10 }
      : { type: "value", min: Math.min(0, ...values), interval: measure.binary ? 2 ** Math.round(Math.log2(Math.max(...values) / 5)) : undefined }),
    name: measure.name,
    nameLocation: "middle",
    nameTextStyle: { color: p.muted, fontSize: 11.5, fontFamily: FONT },
    axisLabel: { color: p.muted, fontSize: 11.5, formatter: (value: number) => round(measure.format(value)), hideOverlap: true },
    axisLine: { show: true, onZero: false, lineStyle: { color: p.line } },
    axisTick: { show: false },
    splitLine: { lineStyle: { color: p.line } },
  });
  const steps = {
    type: "line",
    name: "not beaten",
    step: "end",
    silent: true,
    symbol: "none",
    tooltip: { show: false },
    z: 1,
    lineStyle: { color: p.muted, width: 1.5, type: "dashed" },
    data: frontier.map((point) => [point.x, point.y]),
  };
  return {
    grid: { left: 58, right: 22, top: 14, bottom: 44 },
    textStyle: { fontFamily: FONT },
    tooltip: {
      ...tooltipStyle(),
      trigger: "item",
      formatter: (item: { data: { point?: Point } }) => (item.data.point ? pointTooltip(item.data.point) : ""),
    },
    xAxis: { ...axis(panel.x, all.map((point) => point.x)), nameGap: 27 },
    yAxis: { ...axis(panel.y, all.map((point) => point.y)), nameGap: 44 },
    series: [
      steps,
      ...panel.series.map((one) => ({
        type: "line",
        name: one.name,
        symbol: one.symbol,
        symbolSize: one.size ?? 10,
        z: 3,
        lineStyle: { color: one.color(), width: 1.5, opacity: 0.55 },
        itemStyle: { color: one.color(), borderColor: p.surface, borderWidth: 1 },
        data: [...one.points].sort((a, b) => a.x - b.x).map((point) => ({ value: [point.x, point.y], point })),
      })),
    ],
  };
}

function pointTooltip(point: Point): HTMLElement {
  const rows = point.facts.map(([name, value]) => h("tr", {}, h("td", {}, name), h("td", {}, value)));
  return h("div", {}, h("strong", {}, point.name), h("table", { class: "tip" }, ...rows));
}

export type HeatKind = "all" | "reads" | "writes";

/** One label in the middle of each run of lines, the longest first, as far as there is room. */
function placeLabels(runs: { text: string; first: number; last: number }[]): Map<number, string> {
  const labels = new Map<number, string>();
  const apart = 3;
  for (const run of [...runs].sort((a, b) => b.last - b.first - (a.last - a.first))) {
    const middle = Math.floor((run.first + run.last) / 2);
    if ([...labels.keys()].every((other) => Math.abs(other - middle) >= apart)) labels.set(middle, run.text);
  }
  return labels;
}

/** The heat map of one input. */
export function heatMap(container: HTMLElement, input: Input, kind: HeatKind): void {
  release(container);
  container.replaceChildren();
  const { rows, sample_every, accesses_per_bin } = input.heat;
  // Addresses that nobody touched are left out; a blank line shows where.
  const lines: (number | null)[] = [];
  const runs: { text: string; first: number; last: number }[] = [];
  let previous: (typeof rows)[number] | undefined;
  rows.forEach((row, at) => {
    const jump = previous && (previous.process !== row.process || BigInt(previous.start) + BigInt(previous.bytes) !== BigInt(row.start));
    if (jump) lines.push(null);
    const run = runs[runs.length - 1];
    const goes_on = run && previous && previous.process === row.process && (row.name !== "" ? previous.name === row.name : !jump && previous.name === "");
    if (goes_on) {
      run.last = lines.length;
    } else {
      const text = (input.processes > 1 ? `p${row.process} ` : "") + (basename(row.name) || row.start);
      runs.push({ text, first: lines.length, last: lines.length });
    }
    lines.push(at);
    previous = row;
  });
  const labels = placeLabels(runs);

  const cells: [number, number, number, number][] = [];
  let columns = 0;
  let most = 0;
  lines.forEach((at, y) => {
    if (at === null) return;
    const reads = counts(rows[at].reads);
    const writes = counts(rows[at].writes);
    columns = Math.max(columns, reads.length);
    reads.forEach((read, x) => {
      const n = (kind === "writes" ? 0 : read) + (kind === "reads" ? 0 : writes[x]);
      if (n > 0) cells.push([x, y, Math.log10(n * sample_every), n * sample_every]);
      most = Math.max(most, n * sample_every);
    });
  });
  const box = h("div", {
    class: "chart",
    role: "img",
    "aria-label": `Heat map of ${input.name}: ${rows.length} address ranges over ${columns} intervals of ${count(accesses_per_bin)} accesses; at most ${count(most)} accesses in a cell.`,
  });
  box.style.height = `${Math.min(560, Math.max(240, lines.length * 5 + 70))}px`;
  container.append(box);
  if (cells.length === 0) {
    box.replaceWith(h("p", { class: "empty" }, kind === "all" ? "No access was sampled." : `No ${kind} in this input.`));
    return;
  }

  const option = (): echarts.EChartsCoreOption => {
    const p = palette();
    const narrow = box.clientWidth < 560;
    const rough = (columns * accesses_per_bin) / (narrow ? 3 : 8);
    const decade = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * decade).find((candidate) => candidate >= rough)!;
    const nearest = (x: number) => Math.floor((x * accesses_per_bin) / step + 1e-9) * step;
    return {
      grid: { left: narrow ? 92 : 168, right: 14, top: 8, bottom: 62 },
      textStyle: { fontFamily: FONT },
      tooltip: { ...tooltipStyle(), formatter: (item: { data: [number, number, number, number] }) => tip(item.data) },
      xAxis: {
        type: "category",
        data: Array.from({ length: columns }, (_, x) => x),
        axisTick: { show: false },
        axisLine: { lineStyle: { color: p.line } },
        axisLabel: {
          color: p.muted,
          fontSize: 11.5,
          hideOverlap: true,
          interval: (x: number) => x === 0 || nearest(x) !== nearest(x - 1),
          formatter: (x: string) => round(count(nearest(Number(x)))),
        },
        name: "time in accesses",
        nameLocation: "middle",
        nameGap: 24,
        nameTextStyle: { color: p.muted, fontSize: 11.5 },
      },
      yAxis: {
        type: "category",
        data: lines.map((_, y) => y),
        axisTick: { show: false },
        axisLine: { show: false },
        axisLabel: {
          color: p.text,
          fontSize: 11.5,
          width: narrow ? 86 : 160,
          overflow: "truncate",
          interval: (y: number) => labels.has(y),
          formatter: (y: string) => labels.get(Number(y)) ?? "",
        },
      },
      visualMap: {
        type: "continuous",
        dimension: 2,
        min: 0,
        max: Math.max(0.001, Math.log10(most)),
        orient: "horizontal",
        right: 12,
        bottom: 0,
        itemWidth: 10,
        itemHeight: narrow ? 90 : 160,
        text: [`${count(most)} accesses`, "1"],
        textStyle: { color: p.muted, fontSize: 11.5 },
        calculable: false,
        inRange: { color: p.ramp },
      },
      series: [{ type: "heatmap", data: cells, progressive: 0, itemStyle: { borderWidth: 0 }, emphasis: { itemStyle: { borderColor: p.text, borderWidth: 1 } } }],
    };
  };
  const tip = ([x, y, , n]: [number, number, number, number]): HTMLElement => {
    const row = rows[lines[y]!];
    const end = "0x" + (BigInt(row.start) + BigInt(row.bytes)).toString(16);
    const facts: [string, string][] = [
      ...(row.line ? [["line", row.line] as [string, string]] : []),
      ["addresses", `${row.start} – ${end} (${bytes(row.bytes)})`],
      ["time", `access ${count(x * accesses_per_bin)} to ${count((x + 1) * accesses_per_bin)}`],
      ["accesses", `${sample_every > 1 ? "about " : ""}${count(n)}`],
      ["per KiB", significant((n * 1024) / row.bytes)],
    ];
    return h("div", {}, h("strong", {}, row.name || "unnamed memory"), h("table", { class: "tip" }, ...facts.map(([k, v]) => h("tr", {}, h("td", {}, k), h("td", {}, v)))));
  };
  mount(box, "canvas", option);
  resized.observe(box);
}
