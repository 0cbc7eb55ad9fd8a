// The page of `terrace view`: results under some folders, one set or run, differences. The address says what is shown.

import "../style.css";
import "./view.css";
import { brand, schemeToggle } from "../bar";
import { release } from "../charts";
import { h } from "../dom";
import { drawPending } from "../sections";
import { apply, listenersSince } from "../theme";
import { detail } from "./detail";
import { differences, sideOf } from "./differences";
import { type Beginning, begin, leave, listenTo, live } from "./live";
import { results } from "./results";
import { type Catalog, type Source, open } from "./source";

const source: Source = open();
const content = h("main", {});
const tabs = h("nav", { "aria-label": "Pages" });
const state = h("span", { class: "state", role: "status" });
let catalog: Catalog = { roots: [], sets: [], problems: [] };
let forget = () => {};
/** Whether a running engine is shown. */
let hasLive = false;
/** Pages may be asked for faster than they come: only the last is shown. */
let asked = 0;

async function start(): Promise<void> {
  const page = document.getElementById("page")!;
  page.replaceChildren(h("header", { class: "bar" }, brand(), tabs, state, schemeToggle()), content);
  page.querySelector<HTMLAnchorElement>(".brand")!.href = "#/";
  apply();
  const [first, beginning] = await Promise.all([source.catalog(), source.isServed ? (fetch("live").then((answer) => answer.json()) as Promise<Beginning | null>) : null]);
  catalog = first;
  if (beginning !== null) {
    hasLive = true;
    begin(beginning);
  }
  addEventListener("hashchange", () => void show(true));
  await show(true);
  document.documentElement.dataset.ready = "true";
  if (source.isServed) listen();
  else say("saved", `as of ${new Date(Math.max(0, ...catalog.sets.map((set) => set.modified)) * 1000).toISOString().slice(0, 10)}`);
}

/** What the address asks for. */
async function show(isNew: boolean): Promise<void> {
  const number = ++asked;
  const [, page, ...rest] = location.hash.split("/");
  drawTabs(page ?? "");
  let shown: HTMLElement;
  const since = listenersSince();
  try {
    shown = await pageOf(page ?? "", rest);
  } catch (error) {
    shown = h("p", { class: "problems", role: "alert" }, error instanceof Error ? error.message : String(error));
  }
  if (number !== asked) return;
  forget();
  forget = since;
  release(content);
  if (page !== "live" && !(hasLive && isStart(page))) leave();
  content.replaceChildren(shown);
  drawPending();
  if (isNew) scrollTo(0, 0);
  document.documentElement.dataset.shown = location.hash;
}

async function pageOf(page: string, rest: string[]): Promise<HTMLElement> {
  if (page === "set") {
    const set = catalog.sets.find((one) => String(one.id) === rest[0]);
    if (!set) return h("p", { class: "empty" }, "These results are no longer there.");
    return detail(catalog, source, set, rest[1] === undefined ? null : Number(rest[1]));
  }
  if (hasLive && (page === "live" || isStart(page))) return live();
  if (page === "difference") return differences(catalog, source, sideOf(rest[0]), sideOf(rest[1]));
  return results(catalog, source.isServed);
}

/** Where nothing is asked for and there is nothing but an engine, that is shown. */
const isStart = (page: string | undefined): boolean => (page ?? "") === "" && location.hash === "" && catalog.roots.length === 0;

function drawTabs(page: string): void {
  const tab = (href: string, text: string, pages: string[]) => h("a", { href, "aria-current": pages.includes(page) ? "page" : undefined }, text);
  const ofResults = [tab("#/", "Results", hasLive && isStart(page) ? ["set"] : ["", "set"]), tab("#/difference/-/-", "Differences", ["difference"])];
  const ofEngine = tab("#/live", "Live", hasLive && isStart(page) ? ["", "live"] : ["live"]);
  tabs.replaceChildren(...(hasLive ? [ofEngine] : []), ...(catalog.roots.length > 0 || !hasLive ? ofResults : []));
}

/** New results come in while the page is open. */
function listen(): void {
  const events = new EventSource("events");
  let isFirst = true;
  events.addEventListener("open", () => say("connected", "up to date"));
  events.addEventListener("error", () => say("lost", "terrace view has ended"));
  events.addEventListener("catalog", async () => {
    // What the first event tells of is already shown, unless the connection was lost.
    if (isFirst) return void (isFirst = false);
    catalog = await source.catalog();
    const [, page] = location.hash.split("/");
    // Whoever reads a run is not disturbed; lists are drawn anew.
    if ((page ?? "") === "" && !(hasLive && isStart(page))) await show(false);
  });
  if (hasLive) listenTo(events);
}

function say(kind: string, text: string): void {
  state.dataset.kind = kind;
  state.textContent = text;
}

void start();
