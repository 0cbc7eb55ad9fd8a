// A running engine: memory by tier and address, moves, budget, when orders are done, what is saved; pause and resume.

import { type Trade, release, tradePanels } from "../charts";
import { h, legend } from "../dom";
import { bytes, exact, percent, seconds } from "../format";
import { scroll } from "../tables";
import { onSchemeChange, palette } from "../theme";

type Tier = { name: string; capacity: number; used: number; hot: number | null; cold: number | null };
type Status = {
  pid: number;
  policy: string;
  parameters: Record<string, unknown>;
  choices: string[];
  accesses: string;
  state: "working" | "paused" | "held-back" | "resting" | "stopped";
  dry_run: boolean;
  run_seconds: number;
  ends_after_seconds?: number | null;
  cpu: { seconds: number; share: number; budget: number | null };
  bounds?: { bandwidth: number | null; pressure: number | null };
  tiers: Tier[];
  processes: { pid: number; name: string; bytes: Record<string, number>; hot: number | null }[];
  moves: { promoted: number; demoted: number; failed: number; exchanged: number; waiting: number; planned: number; bytes_per_second: number; eta_seconds?: number | null };
  notes: string[];
};
type Part = { start: number; bytes: number; kind: string; resident: number[]; hot: number[] | null };
type MemoryMap = { tiers: string[]; processes: { pid: number; name: string; parts: Part[] }[] };
type Moment = { seconds: number; used: Record<string, number>; promoted: number; demoted: number };
export type Beginning = { prices: Record<string, number>; history: Moment[] };

const STATES: Record<Status["state"], string> = {
  working: "working",
  paused: "paused: nothing moves",
  "held-back": "held back: tasks wait for memory",
  resting: "resting: its processor time is used up for now",
  stopped: "stopped: the processes run on",
};
/** Moments that the charts show; of a longer run every second one is left out. */
const MOMENTS = 240;
/** Processes whose memory is drawn: the largest. */
const DRAWN = 6;

/** What the engine has said so far. Pages come and go, this stays. */
const known: { prices: Record<string, number>; history: Moment[]; status: Status | null; map: MemoryMap | null; gone: string | null } = {
  prices: {},
  history: [],
  status: null,
  map: null,
  gone: null,
};
let every = 1;
let since = 0;
let redraw: { status: () => void; map: () => void } | null = null;

export function begin({ prices, history }: Beginning): void {
  known.prices = prices;
  known.history = history;
}

export function listenTo(events: EventSource): void {
  events.addEventListener("status", (event) => {
    known.status = JSON.parse(event.data) as Status;
    known.gone = null;
    remember(known.status);
    redraw?.status();
  });
  events.addEventListener("map", (event) => {
    known.map = JSON.parse(event.data) as MemoryMap;
    redraw?.map();
  });
  events.addEventListener("gone", (event) => {
    known.gone = JSON.parse(event.data) as string;
    redraw?.status();
  });
}

function remember(status: Status): void {
  const last = known.history[known.history.length - 1];
  if (last && status.run_seconds <= last.seconds) return;
  if (++since < every) return;
  since = 0;
  if (known.history.length >= MOMENTS) {
    known.history = known.history.filter((_, at) => at % 2 === 0);
    every *= 2;
  }
  const used = Object.fromEntries(status.tiers.map((tier) => [tier.name, tier.used]));
  known.history.push({ seconds: status.run_seconds, used, promoted: status.moves.promoted, demoted: status.moves.demoted });
}

const tierColor = (at: number) => palette().tiers[at % palette().tiers.length];

export function live(): HTMLElement {
  const head = h("div", { class: "hero small", id: "live-head" });
  const cards = h("div", { class: "cards", id: "live-cards" });
  const tiers = h("div", { id: "live-tiers" });
  const key = h("div", { class: "controls" });
  const charts = h("div", { id: "live-charts" });
  const map = h("div", { id: "live-map" });
  const processes = h("div");
  const remarks = h("div");
  const button = pauseButton();
  const drawStatus = () => {
    const { status } = known;
    if (status === null) {
      head.replaceChildren(h("h1", {}, "A running Terrace"), h("p", { class: "lead" }, known.gone ?? "It has only just begun."));
      return;
    }
    drawHead(head, status, button);
    cards.replaceChildren(saving(status), moves(status), budget(status));
    tiers.replaceChildren(...status.tiers.map((tier, at) => tierBar(tier, at)));
    processes.replaceChildren(processTable(status));
    const said = [...status.choices, ...status.notes];
    remarks.replaceChildren(...(said.length > 0 ? [h("h3", {}, "Chosen, and remarks of the policy"), h("ul", { class: "caveats" }, ...said.map((text) => h("li", {}, text)))] : []));
    if (known.history.length > 1) drawCharts(key, charts, status);
  };
  const drawMap = () => known.map !== null && map.replaceChildren(...memory(known.map));
  redraw = { status: drawStatus, map: drawMap };
  onSchemeChange(() => {
    drawStatus();
    drawMap();
  });
  const page = h(
    "div",
    { id: "live" },
    head,
    cards,
    h("section", {}, h("h2", {}, "Memory by tier"), h("p", { class: "lead" }, "Of the managed processes. Hot is what was accessed since the policy's look before the last."), tiers),
    h("section", {}, h("h2", {}, "Memory by address"), h("p", { class: "lead" }, "A cell is a range of addresses. Its colour says in which tier its pages lie: full where they are hot or nobody sees accesses, pale where they are cold; empty is not resident."), map),
    h("section", {}, h("h2", {}, "Over time"), key, charts),
    h("section", {}, h("h2", {}, "Processes"), processes),
    h("section", {}, remarks),
  );
  // Charts measure their element, so they are drawn once it is in the page.
  requestAnimationFrame(() => {
    drawStatus();
    drawMap();
  });
  return page;
}

/** The page is left: what comes is remembered and not drawn. */
export function leave(): void {
  redraw = null;
}

function pauseButton(): HTMLButtonElement {
  const button = h("button", { type: "button", class: "pause" });
  button.addEventListener("click", async () => {
    button.disabled = true;
    const answer = await fetch(button.dataset.wish!, { method: "POST" });
    if (!answer.ok) known.gone = (await answer.text()).trim();
    redraw?.status();
    // What the engine then does, its next status says.
  });
  return button;
}

function drawHead(head: HTMLElement, status: Status, button: HTMLButtonElement): void {
  const isPaused = status.state === "paused";
  const wish = isPaused ? "resume" : "pause";
  if (button.dataset.wish !== wish) {
    button.dataset.wish = wish;
    button.textContent = isPaused ? "Resume" : "Pause";
    button.disabled = false;
  }
  button.hidden = status.state === "stopped" || known.gone !== null;
  const left = status.ends_after_seconds ? Math.max(0, status.ends_after_seconds - status.run_seconds) : null;
  const facts = [
    status.dry_run ? "dry run" : "",
    `process ${status.pid}`,
    `for ${duration(status.run_seconds)}`,
    left === null ? "" : `ends in ${duration(left)}`,
    status.accesses === "none" ? "accesses are not seen" : `accesses: ${status.accesses}`,
  ];
  const chip = h("span", { class: "chip", "data-state": known.gone ? "gone" : status.state, role: "status" }, known.gone ? "no longer there" : STATES[status.state]);
  head.replaceChildren(
    h("div", { class: "live-title" }, h("h1", {}, `${status.policy}, live`), chip, button),
    h("ul", { class: "chips" }, ...facts.filter((text) => text !== "").map((text) => h("li", {}, text))),
  );
  if (known.gone) head.append(h("p", { class: "problems", role: "alert" }, `The engine no longer answers: ${known.gone}. What is shown was last known.`));
}

function card(id: string, title: string, figure: string, small: string, ...rest: (HTMLElement | null)[]): HTMLElement {
  return h(
    "article",
    { class: "card", id },
    h("div", { class: "card-head" }, h("span", { class: "card-input" }, title)),
    h("div", { class: "card-figure" }, figure, h("small", {}, small)),
    ...rest,
  );
}

/** Price of a tier's memory over that of the fastest. */
function price(tier: Tier, at: number): number | null {
  return known.prices[tier.name] ?? (at === 0 ? 1 : (known.prices.slow ?? null));
}

function saving(status: Status): HTMLElement {
  const [fastest, ...slower] = status.tiers;
  const below = slower.reduce((sum, tier) => sum + tier.used, 0);
  const used = fastest.used + below;
  const prices = status.tiers.map(price);
  const more = fastest.cold ? h("p", {}, `Of ${fastest.name} ${bytes(fastest.cold)} is cold: that could be slower memory too.`) : null;
  if (slower.length === 0) return card("saving", "Estimated saving", "none", "", h("p", {}, "All memory here is of one kind."));
  if (used > 0 && prices.every((one) => one !== null)) {
    const cost = status.tiers.reduce((sum, tier, at) => sum + tier.used * prices[at]!, 0) / used;
    const list = slower.map((tier, at) => `${tier.name} at ${prices[at + 1]}`).join(", ");
    return card("saving", "Estimated saving", percent(Math.max(0, 1 - cost)), "of the memory's price", h("p", {}, `${bytes(below)} of ${bytes(used)} are not in ${fastest.name}; ${list} of its price.`), more);
  }
  return card("saving", "Estimated saving", bytes(below), `not in ${fastest.name}`, h("p", {}, "With --price slow=0.33 this is a share of the memory's price."), more);
}

function moves({ moves: all, dry_run, state }: Status): HTMLElement {
  const eta = all.waiting === 0 ? "no order waits" : `${exact(all.waiting)} pieces wait, ${all.eta_seconds === null || all.eta_seconds === undefined ? (state === "paused" ? "until it is resumed" : "nothing moves at the moment") : `done in about ${duration(all.eta_seconds)}`}`;
  const failed = all.failed > 0 ? `, ${exact(all.failed)} failed` : "";
  const exchanged = all.exchanged > 0 ? `, ${exact(all.exchanged)} ${all.exchanged === 1 ? "pair" : "pairs"} exchanged` : "";
  const figure = dry_run ? exact(all.planned) : bytes(all.promoted + all.demoted);
  const what = dry_run ? "moves planned, none made" : "moved";
  return card("moves", "Moves", figure, what, h("p", {}, `${bytes(all.promoted)} up, ${bytes(all.demoted)} down${exchanged}${failed}.`), h("p", { id: "eta" }, `${eta[0].toUpperCase()}${eta.slice(1)}.`));
}

function budget({ cpu, bounds, moves: { bytes_per_second } }: Status): HTMLElement {
  const share = (value: number) => `${(value * 100).toFixed(1)} %`;
  const of = cpu.budget === null ? "of a core, without a bound" : `of a core, of ${share(cpu.budget)}`;
  const bandwidth = bounds?.bandwidth ? ` of at most ${bytes(bounds.bandwidth)}/s` : "";
  const guard = bounds?.pressure ? `Moves stop while tasks lose more than ${percent(bounds.pressure)} of their time waiting for memory.` : "No guard against memory pressure.";
  return card(
    "budget",
    "Budget",
    share(cpu.share),
    of,
    cpu.budget === null ? null : meter(cpu.share / cpu.budget, "Processor time of its budget"),
    h("p", {}, `${bytes(Math.round(bytes_per_second))}/s moved${bandwidth}. ${guard}`),
  );
}

function meter(share: number, label: string): HTMLElement {
  const fill = h("span", { class: share > 1 ? "fill over" : "fill" });
  fill.style.width = `${Math.min(100, share * 100)}%`;
  return h("div", { class: "meter", role: "img", "aria-label": `${label}: ${percent(share)}` }, fill);
}

function tierBar(tier: Tier, at: number): HTMLElement {
  const [full, pale] = tierColor(at);
  const fill = (size: number, color: string) => {
    const part = h("span", {});
    part.style.width = `${tier.capacity > 0 ? (100 * size) / tier.capacity : 0}%`;
    part.style.background = color;
    return part;
  };
  const hot = tier.hot ?? tier.used;
  const heat = tier.hot === null ? "" : `, ${bytes(tier.hot)} hot${tier.cold === null ? "" : `, ${bytes(tier.cold)} cold`}`;
  const text = `${bytes(tier.used)} of ${bytes(tier.capacity)}${heat}`;
  return h(
    "div",
    { class: "tier", "data-tier": tier.name, "data-used": tier.used },
    h("span", { class: "tier-name" }, tier.name),
    h("div", { class: "tier-bar", role: "img", "aria-label": `${tier.name}: ${text}` }, fill(hot, full), fill(Math.max(0, tier.used - hot), pale)),
    h("span", { class: "tier-text" }, text),
  );
}

/** The memory of each process as cells. */
function memory(map: MemoryMap): HTMLElement[] {
  const size = (parts: Part[]) => parts.reduce((sum, part) => sum + part.resident.reduce((a, b) => a + b, 0), 0);
  const largest = [...map.processes].sort((a, b) => size(b.parts) - size(a.parts));
  const key = h("div", { class: "controls" }, legend(map.tiers.flatMap((name, at) => [{ name: `${name}, hot`, color: tierColor(at)[0] }, { name: `${name}, cold`, color: tierColor(at)[1] }])));
  const drawn = largest.slice(0, DRAWN).map(({ pid, name, parts }) => {
    const sums = map.tiers.map((tier, at) => `${bytes(parts.reduce((sum, part) => sum + part.resident[at], 0))} in ${tier}`).join(", ");
    const cells = h("div", { class: "cells", role: "img", "aria-label": `Memory of ${name}: ${parts.length} ranges of addresses; ${sums}` }, ...parts.map((part) => cell(part, map.tiers)));
    return h("figure", { class: "process-map", "data-pid": pid }, h("figcaption", {}, `${name} (${pid}): ${sums}`), cells);
  });
  const rest = largest.length - drawn.length;
  return [key, ...drawn, ...(rest > 0 ? [h("p", { class: "measure" }, `And ${rest} smaller processes.`)] : [])];
}

function cell(part: Part, tiers: string[]): HTMLElement {
  const stops: string[] = [];
  let from = 0;
  const add = (size: number, color: string) => {
    if (size <= 0) return;
    const to = from + (100 * size) / part.bytes;
    stops.push(`${color} ${from}% ${to}%`);
    from = to;
  };
  part.resident.forEach((size, at) => {
    const hot = part.hot === null ? size : part.hot[at];
    add(hot, tierColor(at)[0]);
    add(size - hot, tierColor(at)[1]);
  });
  const lines = part.resident.map((size, at) => (size === 0 ? "" : `${tiers[at]} ${bytes(size)}${part.hot === null ? "" : ` (${bytes(part.hot[at])} hot)`}`)).filter((text) => text !== "");
  const box = h("span", { class: "cell", title: `0x${part.start.toString(16)}, ${bytes(part.bytes)}, ${part.kind}: ${lines.join(", ") || "not resident"}`, "data-resident": part.resident.join(" ") });
  if (stops.length > 0) box.style.background = `linear-gradient(to top, ${stops.join(", ")}, transparent ${from}%)`;
  return box;
}

function drawCharts(key: HTMLElement, charts: HTMLElement, status: Status): void {
  type Measure = { name: string; color: () => string; value: (moment: Moment) => number };
  const used = status.tiers.map(({ name }, at): Measure => ({ name, color: () => tierColor(at)[0], value: (moment) => moment.used[name] ?? 0 }));
  const moved: Measure[] = [
    { name: "promoted", color: () => palette().accent, value: (moment) => moment.promoted },
    { name: "demoted", color: () => palette().others[1], value: (moment) => moment.demoted },
  ];
  const moments = known.history;
  const panel = (title: string, measures: Measure[]): Trade => ({
    title,
    series: measures.map(({ name, color, value }) => ({ name, color, symbol: "none", points: moments.map((moment) => ({ name, x: moment.seconds, y: value(moment), best: false, facts: [] })) })),
    x: { name: "time since the start", format: (value: number) => (value === 0 ? "0 s" : seconds(value)) },
    y: { name: "", format: bytes },
    description: `${title}: now ${measures.map(({ name, value }) => `${name} ${bytes(value(moments[moments.length - 1]))}`).join(", ")}`,
  });
  key.replaceChildren(legend([...used, ...moved].map(({ name, color }) => ({ name, color: color() }))));
  release(charts);
  tradePanels(charts, () => [panel("Memory in use by tier", used), panel("Moved since the start", moved)]);
}

function processTable(status: Status): HTMLElement {
  const tiers = status.tiers.map((tier) => tier.name);
  const head = h("tr", {}, h("th", { scope: "col", class: "number" }, "Process"), h("th", { scope: "col", class: "name" }, "Name"), ...tiers.map((name) => h("th", { scope: "col", class: "number" }, name)), h("th", { scope: "col", class: "number" }, "Hot"));
  const rows = status.processes.map((one) =>
    h("tr", {}, h("td", { class: "number" }, String(one.pid)), h("th", { scope: "row", class: "name" }, one.name), ...tiers.map((name) => h("td", { class: "number", "data-value": one.bytes[name] ?? 0 }, bytes(one.bytes[name] ?? 0))), h("td", { class: "number" }, one.hot === null ? "–" : bytes(one.hot))),
  );
  return scroll(h("table", { id: "processes-table" }, h("caption", { class: "hidden" }, "The managed processes"), h("thead", {}, head), h("tbody", {}, ...rows)), "The managed processes", "tall");
}

/** `75 s`, `12 min`, `3.4 h`: as long as somebody waits. */
export function duration(value: number): string {
  if (value < 120) return `${value < 10 ? Math.round(value * 10) / 10 : Math.round(value)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  return `${(value / 3600).toFixed(1)} h`;
}
