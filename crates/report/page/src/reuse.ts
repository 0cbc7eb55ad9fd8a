// What memory of any size would serve of an input, and how much it uses within a time.

import { tradePanels, type Trade } from "./charts";
import { type Input, type Reuse } from "./data";
import { h } from "./dom";
import { bytes, count, percent } from "./format";
import { palette } from "./theme";

/** The panels of one input; nothing where the document has no curves, as of a live run. */
export function reuseCurves(input: Input): { element: HTMLElement; draw: () => void } | null {
  const reuse = input.reuse;
  if (!reuse || reuse.memory_bytes.length < 2) return null;
  const panels = h("div", { "data-curves": "true" });
  const note = h("p", { class: "measure" }, howCounted(reuse));
  const element = h("div", { class: "block" }, h("h3", {}, "Memory of any size"), note, panels);
  return { element, draw: () => tradePanels(panels, () => curves(input, reuse)) };
}

function howCounted(reuse: Reuse): string {
  const page = bytes(reuse.page_bytes);
  const error =
    reuse.sampled_share < 1
      ? `Estimated from ${shareInWords(reuse.sampled_share)} of the pages: standard error at most ${points(reuse.miss_ratio_error)} of the accesses, ${percent(reuse.working_set_error)} of a working set.`
      : "Exact: every page was looked at.";
  return `Memory that keeps the pages of ${page} used last (LRU). All loads and stores count, also those that caches serve. ${error}`;
}

function shareInWords(share: number): string {
  return `one in ${count(Math.round(1 / share))}`;
}

/** `0.3 percentage points`. */
function points(share: number): string {
  const value = share * 100;
  return `${value < 0.1 ? value.toFixed(2) : value.toFixed(1)} percentage points`;
}

function curves(input: Input, reuse: Reuse): Trade[] {
  const touched = input.footprint_bytes;
  const line = (title: string, xs: number[], ys: number[], xName: string, x: (v: number) => string, y: (v: number) => string, log: boolean): Trade => ({
    title,
    series: [
      {
        name: title,
        color: () => palette().accent,
        symbol: "circle",
        size: 5,
        points: xs.map((at, i) => ({ name: x(at), x: at, y: ys[i], best: false, facts: [[title.toLowerCase(), y(ys[i])]] })),
      },
    ],
    x: { name: xName, format: x, log, binary: x === bytes },
    y: { name: "", format: y, binary: y === bytes },
    description: `${title} of ${input.name}: ${at(xs, ys, x, y)}`,
  });
  const served = reuse.miss_ratio.map((ratio) => 1 - ratio);
  const shares = reuse.memory_bytes.map((size) => Math.min(1, size / touched));
  return [
    line("Miss ratio", reuse.memory_bytes, reuse.miss_ratio, "memory", bytes, fine, true),
    line("Served by fast memory", shares, served, `fast memory, all of ${bytes(touched)} touched = 100%`, percent, fine, false),
    line("Working set", reuse.window_accesses, reuse.working_set_bytes, "within so many accesses, the mean over the input", count, bytes, true),
  ];
}

/** A share with a tenth of a percent, where the last percent decides. */
function fine(share: number): string {
  const p = share * 100;
  return p === 0 || p === 100 ? `${p}%` : `${p.toFixed(p > 0 && p < 0.1 ? 2 : 1)}%`;
}

/** A few points of a curve in words, for who cannot see it. */
function at(xs: number[], ys: number[], x: (v: number) => string, y: (v: number) => string): string {
  const places = [0, 0.25, 0.5, 0.75, 1].map((share) => Math.round(share * (xs.length - 1)));
  return [...new Set(places)].map((place) => `${y(ys[place])} at ${x(xs[place])}`).join(", ");
}
