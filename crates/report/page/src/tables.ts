// The sections with tables: the numbers, all statistics, parameters, and what to know before quoting any of it.

import {
  type Leaf,
  type PolicyWork,
  type Report,
  type Run,
  cpi,
  hasTimes,
  designNames,
  flatten,
  inputNames,
  interval,
  isHistogram,
  isLive,
  perKilo,
  share,
  speedup,
} from "./data";
import { h, section, segmented } from "./dom";
import { bytes, exact, percent, seconds, significant, times } from "./format";

export type Column<Row = Run> = {
  key: string;
  title: string;
  help: string;
  value: (row: Row) => string | number | null;
  text?: (value: number) => string;
  /** In place of the value as text. */
  node?: (row: Row) => Node;
};

/** How a table is sorted; kept by whoever draws it anew. */
export type Order = { key: string; ascending: boolean };

/** What a policy's moves cost. */
export function costOfMoves(policy: (run: Run) => PolicyWork | null): Column[] {
  const work = (key: keyof PolicyWork) => (run: Run) => policy(run)?.[key] ?? null;
  return [
    { key: "copied_bytes", title: "Copied", help: "Bytes that moves copied", value: work("copied_bytes"), text: bytes },
    { key: "wait_seconds", title: "Waited", help: "Time that threads waited for pages on the move, summed over them", value: work("wait_seconds"), text: seconds },
    { key: "interrupts", title: "Interrupts", help: "Cores interrupted for the policy", value: work("interrupts"), text: exact },
    { key: "policy_seconds", title: "Policy", help: "Time of the policy's own processor", value: work("policy_seconds"), text: seconds },
    { key: "migration_seconds", title: "Migration", help: "Time of the processors that moved pages", value: work("migration_seconds"), text: seconds },
  ];
}

/** The columns that say which run a row is of. */
export const WHICH_RUN: Column[] = [
  { key: "input", title: "Input", help: "Program or workload", value: (run) => run.input },
  { key: "design", title: "Design", help: "What is compared", value: (run) => run.design },
];

export function numbers(report: Report): HTMLElement | null {
  if (report.runs.every(isLive)) return null;
  const columns: Column[] = [
    ...WHICH_RUN,
    { key: "speedup", title: "Speed-up", help: "Against the baseline", value: (run) => speedup(report, run), text: times },
    { key: "between", title: "Between", help: "How far assumed constants and seeds could move the speed-up", value: (run) => interval(run)?.[0] ?? null, text: times, node: (run) => document.createTextNode(between(run)) },
    { key: "seconds_simulated", title: "Time", help: "Simulated", value: (run) => (hasTimes(run) ? run.seconds_simulated : null), text: seconds },
    { key: "cycles", title: "Cycles", help: "Elapsed", value: (run) => (hasTimes(run) ? run.cycles : null), text: exact },
    { key: "instructions", title: "Instructions", help: "Retired", value: (run) => run.instructions, text: exact },
    { key: "accesses", title: "Accesses", help: "Loads and stores", value: (run) => run.accesses, text: exact },
    { key: "cpi", title: "CPI", help: "Cycles per instruction of an average core", value: cpi, text: significant },
    { key: "tlb", title: "TLB/k", help: "L2 TLB misses per 1000 instructions", value: (run) => perKilo(run, "tlb.l2.miss"), text: significant },
    { key: "translation", title: "Transl.", help: "Share of the cycles", value: (run) => share(run, "translation"), text: percent },
    { key: "memory", title: "Memory", help: "Share of the cycles", value: (run) => share(run, "memory"), text: percent },
    { key: "accesses_per_second", title: "Sim. rate", help: "Accesses simulated per second", value: (run) => run.accesses_per_second, text: (v) => exact(Math.round(v)) },
  ];
  const table = sortable("numbers-table", "One row per run", columns, report.runs);
  return section("numbers", "Numbers", "The numbers", "One row per run, as in results.json and results.csv. A click on a heading sorts.", scroll(table, "The numbers"));
}

function between(run: Run): string {
  const ends = interval(run);
  return ends ? `${times(ends[0])} – ${times(ends[1])}` : "–";
}

/** The source line of allocation sites; no column where none is known. */
export function codeLine<Row>(rows: Row[], line: (row: Row) => string): Column<Row>[] {
  return rows.some((row) => line(row) !== "") ? [{ key: "line", title: "Line", help: "Source file and line of the call that allocates it", value: line }] : [];
}

/** A row per run, or of another kind; a click on a heading sorts. */
export function sortable<Row extends object>(id: string, caption: string, columns: Column<Row>[], runs: Row[], order: Order = { key: "", ascending: true }): HTMLElement {
  const body = h("tbody");
  const draw = () => {
    const column = columns.find((c) => c.key === order.key);
    const rows = [...runs];
    if (column) {
      const sign = order.ascending ? 1 : -1;
      rows.sort((a, b) => {
        const [x, y] = [column.value(a), column.value(b)];
        // Absent values come last either way.
        if (x === null || y === null) return x === y ? 0 : x === null ? 1 : -1;
        return sign * (typeof x === "string" ? x.localeCompare(String(y), "en", { numeric: true }) : x - (y as number));
      });
    }
    body.replaceChildren(
      ...rows.map((run) => {
        const { design, input } = run as { design?: string; input?: string };
        const row = h("tr", { "data-design": design, "data-input": input });
        for (const column of columns) {
          const value = column.value(run);
          const text = value === null ? "–" : typeof value === "string" ? value : column.text!(value);
          const tag = column.key === "design" ? "th" : "td";
          row.append(
            h(tag, { scope: tag === "th" ? "row" : undefined, class: typeof value === "string" ? "name" : "number", "data-key": column.key, "data-value": value ?? undefined }, column.node?.(run) ?? text),
          );
        }
        return row;
      }),
    );
  };
  const head = h("tr");
  for (const column of columns) {
    const button = h("button", { type: "button", title: column.help }, column.title);
    const cell = h("th", { scope: "col", class: column.text ? "number" : "name", "aria-sort": column.key !== order.key ? "none" : order.ascending ? "ascending" : "descending", "data-key": column.key }, button);
    button.addEventListener("click", () => {
      order.ascending = order.key === column.key ? !order.ascending : column.text === undefined;
      order.key = column.key;
      for (const other of head.children) other.setAttribute("aria-sort", "none");
      cell.setAttribute("aria-sort", order.ascending ? "ascending" : "descending");
      draw();
    });
    head.append(cell);
  }
  draw();
  return h("table", { id }, h("caption", { class: "hidden" }, caption), h("thead", {}, head), body);
}

export function statistics(report: Report): HTMLElement | null {
  const names = inputNames(report).filter((input) => report.runs.some((run) => run.input === input));
  if (names.length === 0) return null;
  let input = names[0];
  let filter = "";
  let onlyDifferent = false;
  const body = h("div");
  const draw = () => {
    const runs = report.runs.filter((run) => run.input === input);
    const leaves = runs.map((run) => flatten(run.stats));
    const all = [...new Set(leaves.flatMap((one) => [...one.keys()]))].sort();
    const words = filter.toLowerCase().split(/\s+/).filter((word) => word !== "");
    const shown = all.filter((name) => {
      if (!words.every((word) => name.toLowerCase().includes(word))) return false;
      return !onlyDifferent || new Set(leaves.map((one) => JSON.stringify(one.get(name) ?? null))).size > 1;
    });
    const head = h("tr", {}, h("th", { scope: "col", class: "name" }, "Statistic"), h("th", { scope: "col", class: "name" }, "Unit"), ...runs.map((run) => h("th", { scope: "col", class: "number" }, run.design)));
    const rows = shown.map((name) => h("tr", {}, h("th", { scope: "row", class: "name code" }, name), h("td", { class: "name unit" }, report.units[name] ?? ""), ...leaves.map((one) => leafCell(one.get(name)))));
    const table = h("table", { id: "statistics-table" }, h("caption", { class: "hidden" }, `All statistics of ${input}`), h("thead", {}, head), h("tbody", {}, ...rows));
    body.replaceChildren(
      h("p", { class: "measure", role: "status" }, shown.length === all.length ? `${all.length} statistics` : `${shown.length} of ${all.length} statistics`),
      shown.length > 0 ? scroll(table, "All statistics", "tall") : h("p", { class: "empty" }, "No statistic matches."),
    );
  };
  const search = filterBox("Filter, such as tlb l1d or tier", (text) => {
    filter = text;
    draw();
  });
  const tabs = segmented("Input", names.map((name) => [name, name]), input, (value) => {
    input = value;
    draw();
  });
  const different = segmented("Rows", [["all", "All"], ["different", "Different"]], "all", (value) => {
    onlyDifferent = value === "different";
    draw();
  });
  draw();
  return section("statistics", "Statistics", "All statistics", "Everything that was counted, by its full name.", h("div", { class: "controls" }, names.length > 1 ? tabs : null, different, search), body);
}

function leafCell(leaf: Leaf | undefined): HTMLElement {
  if (leaf === undefined || leaf === null) return h("td", { class: "number zero" }, "–");
  if (isHistogram(leaf)) {
    const mean = leaf.count > 0 ? significant(leaf.sum / leaf.count) : "–";
    return h("td", { class: "number", title: `${exact(leaf.count)} values, largest ${exact(leaf.max)}`, "data-value": leaf.count }, `mean ${mean}`);
  }
  const text = Number.isInteger(leaf) ? exact(leaf) : Math.abs(leaf) < 0.001 ? leaf.toExponential(3) : exact(leaf);
  return h("td", { class: leaf === 0 ? "number zero" : "number", "data-value": leaf }, text);
}

export function parameters(report: Report): HTMLElement | null {
  const designs = designNames(report);
  const runs = designs.map((design) => report.runs.find((run) => run.design === design)!);
  const keys = [...new Set(runs.flatMap((run) => Object.keys(run.parameters)))];
  if (keys.length === 0) return null;
  const different = keys.filter((key) => new Set(runs.map((run) => run.parameters[key])).size > 1);
  const same = keys.filter((key) => !different.includes(key));
  const base = runs.find((run) => run.design === report.baseline) ?? runs[0];

  const head = h("tr", {}, h("th", { scope: "col", class: "name" }, "Parameter"), ...runs.map((run) => h("th", { scope: "col", class: "name", title: run.design_summary }, run.design)));
  const rows = different.map((key) =>
    h("tr", {}, h("th", { scope: "row", class: "name code" }, key), ...runs.map((run) => {
      const changed = run.parameters[key] !== base.parameters[key];
      return h("td", { class: changed ? "name changed" : "name" }, run.parameters[key] ?? "–");
    })),
  );
  const differences =
    different.length > 0
      ? scroll(h("table", { id: "parameters-table" }, h("caption", { class: "hidden" }, "Parameters that differ"), h("thead", {}, head), h("tbody", {}, ...rows)), "Parameters that differ")
      : h("p", { class: "empty" }, runs.length > 1 ? "The designs share every parameter." : "One design: nothing differs.");

  const list = h("tbody");
  const draw = (filter: string) => {
    const words = filter.toLowerCase().split(/\s+/);
    const rows = same.filter((key) => words.every((word) => `${key} ${base.parameters[key]}`.toLowerCase().includes(word)));
    list.replaceChildren(...rows.map((key) => h("tr", {}, h("th", { scope: "row", class: "name code" }, key), h("td", { class: "name" }, base.parameters[key]))));
  };
  draw("");
  const shared = h(
    "details",
    {},
    h("summary", {}, `${same.length} parameters that all designs share`),
    h("div", { class: "controls" }, filterBox("Filter, such as dram or latency", draw)),
    scroll(h("table", {}, h("caption", { class: "hidden" }, "Shared parameters"), list), "Shared parameters", "tall"),
  );
  const summaries = h("dl", { class: "designs" });
  for (const run of runs) if (run.design_summary !== "") summaries.append(h("div", {}, h("dt", {}, run.design), h("dd", {}, run.design_summary)));
  return section("parameters", "Parameters", "Parameters", `What differs between the designs; what departs from ${base.design} is marked.`, summaries, differences, same.length > 0 ? shared : null);
}

/** A note, and before it the designs and inputs that it is about where it is not about all. */
function noteAbout(report: Report, note: string): string {
  const noted = report.runs.filter((run) => run.notes.includes(note));
  const inputs = new Set(noted.map((run) => run.input));
  const designs = new Set(noted.map((run) => run.design));
  const onThese = report.runs.filter((run) => inputs.has(run.input));
  const about: string[] = [];
  if (designs.size < new Set(onThese.map((run) => run.design)).size) about.push(...designs);
  if (inputs.size < new Set(report.runs.map((run) => run.input)).size) about.push(...inputs);
  return about.length > 0 ? `${about.join(", ")}: ${note}` : note;
}

/** The command to repeat it all, and what keeps the numbers from being the whole truth. */
export function provenance(report: Report): HTMLElement {
  const caveats = h("ul", { class: "caveats" });
  const say = new Set<string>();
  for (const run of report.runs) {
    if (run.scale > 1) say.add(`Scaled down by ${run.scale}: capacities, TLB reach and periods are divided by it. The input is as it came, so its footprint has to be that part of the real one.`);
    if (run.left_out.length > 0) say.add(`Fidelity ${run.fidelity} leaves out: ${run.left_out.join("; ").replace(/\.$/, "")}.`);
    for (const note of run.notes) say.add(noteAbout(report, note));
  }
  for (const text of say) caveats.append(h("li", {}, text));
  const perRun = h("details", {}, h("summary", {}, `One command per run (${report.runs.length})`));
  for (const run of report.runs) {
    if (run.command !== "") perRun.append(h("h3", {}, `${run.design} on ${run.input}`), commandBlock(run.command));
  }
  const hasCommands = report.runs.some((run) => run.command !== "");
  return section(
    "repeat",
    "Repeat",
    "Repeat it",
    report.runs.some(isLive) ? "Real processes on a real machine: another run has other numbers." : "The same command gives the same statistics on every machine.",
    report.command !== "" ? commandBlock(report.command) : null,
    hasCommands ? perRun : null,
    caveats.childElementCount > 0 ? h("h3", {}, "Before you quote a number") : null,
    caveats.childElementCount > 0 ? caveats : null,
  );
}

export function commandBlock(command: string): HTMLElement {
  const button = h("button", { type: "button", class: "copy" }, "Copy");
  const code = h("code", {}, command);
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(command);
      button.textContent = "Copied";
    } catch {
      // Without access to the clipboard: select it, so that the reader's own shortcut copies it.
      getSelection()?.selectAllChildren(code);
      button.textContent = "Selected";
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  return h("div", { class: "command" }, h("pre", { tabindex: 0 }, code), button);
}

export function filterBox(hint: string, change: (text: string) => void): HTMLElement {
  const box = h("input", { type: "search", placeholder: hint, "aria-label": hint, spellcheck: "false", autocomplete: "off" });
  box.addEventListener("input", () => change(box.value.trim()));
  return box;
}

export function scroll(table: HTMLElement, label: string, extra = ""): HTMLElement {
  return h("div", { class: `scroll ${extra}`, tabindex: 0, role: "region", "aria-label": label }, table);
}
