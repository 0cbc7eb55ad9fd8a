// Where the page's data comes from: a server that tells of changes, or the page itself.

import { asReport, type Report } from "../data";

export type RunRow = {
  design: string;
  machine: string;
  input: string;
  /** What a sweep varies. */
  values: Record<string, string>;
  fidelity: string;
  seconds: number | null;
  slowdown: number | null;
  accesses: number | null;
};

export type Kind = "results" | "sweep" | "tune" | "advice" | "pages";

export type ResultSet = {
  id: number;
  path: string;
  kind: Kind;
  title: string;
  command: string;
  tool_version: string;
  date: string;
  /** Seconds since 1970. */
  modified: number;
  runs: RunRow[];
};

export type Catalog = { roots: string[]; sets: ResultSet[]; problems: { path: string; message: string }[] };

export type Source = {
  /** A page that was written as one file shows what was there then. */
  isServed: boolean;
  catalog: () => Promise<Catalog>;
  document: (id: number) => Promise<unknown>;
};

export const KINDS: Record<Kind, string> = { results: "Runs", sweep: "Sweep", tune: "Tuning", advice: "Advice", pages: "Advice on pages" };

/** Whether a set's document is one of runs. */
export const hasRuns = (set: ResultSet): boolean => set.kind === "results" || set.kind === "sweep";

/** The page's own data, else the server beside the page. */
export function open(): Source {
  const embedded = document.getElementById("data");
  if (embedded) {
    const data = JSON.parse(embedded.textContent!) as { catalog: Catalog; documents: Record<string, unknown> };
    // A document is handed out as often as it is asked for, and who shows it may change it.
    return { isServed: false, catalog: async () => data.catalog, document: async (id) => structuredClone(data.documents[id]) };
  }
  const get = async (path: string) => {
    const answer = await fetch(path);
    if (!answer.ok) throw new Error((await answer.text()).trim());
    return answer.json();
  };
  return { isServed: true, catalog: () => get("catalog"), document: (id) => get(`set/${id}`) };
}

/** A set's runs as the report shows them. */
export async function report(source: Source, set: ResultSet): Promise<Report> {
  const document = (await source.document(set.id)) as Parameters<typeof asReport>[0];
  return asReport(document);
}

/** A set in a few words: the folder says more than the file that all of them have. */
export function nameOf(set: ResultSet): string {
  return set.path.replace(/\/(results\.json|runs)$/, "") || set.path;
}

export function valuesOf(row: RunRow): string {
  return Object.entries(row.values).map(([key, value]) => `${key}=${value}`).join(", ");
}

/** What the same run is known by in another set. */
export function identity(row: RunRow): string {
  return JSON.stringify([row.design, row.machine, row.input, valuesOf(row)]);
}
