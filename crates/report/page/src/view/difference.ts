// What differs between two sets of results, or two runs: the same rules as `terrace diff`.

import { type Run, flatten, isHistogram } from "../data";

export type Pair = { before: number; after: number };
export type Changed = { name: string; pair: Pair };
export type Parameter = { key: string; before: string | null; after: string | null };

export type RunDifference = { seconds: Pair; statistics: Changed[]; parameters: Parameter[] };

/** `after / before - 1`; infinite for what was 0. */
export function change(pair: Pair): number {
  return pair.before === pair.after ? 0 : pair.after / pair.before - 1;
}

/** All numbers of a run; of a histogram how many values it has, their sum and the largest. */
function numbers(run: Run): Map<string, number> {
  const all = new Map<string, number>();
  for (const [name, leaf] of flatten(run.stats)) {
    if (isHistogram(leaf)) {
      for (const part of ["count", "max", "sum"] as const) all.set(`${name}.${part}`, leaf[part]);
    } else if (leaf !== null) {
      all.set(name, leaf);
    }
  }
  for (const key of ["accesses", "instructions", "cycles"] as const) all.set(key, run[key]);
  return all;
}

export function differenceOf(before: Run, after: Run): RunDifference {
  const [first, second] = [numbers(before), numbers(after)];
  const names = [...new Set([...first.keys(), ...second.keys()])].sort();
  const statistics = names
    .map((name) => ({ name, pair: { before: first.get(name) ?? 0, after: second.get(name) ?? 0 } }))
    .filter(({ pair }) => pair.before !== pair.after);
  const size = (value: number) => Math.max(Math.abs(value), 1e-300);
  const factor = ({ pair }: Changed) => Math.abs(Math.log(size(pair.after) / size(pair.before)));
  statistics.sort((a, b) => factor(b) - factor(a));
  const keys = [...new Set([...Object.keys(before.parameters), ...Object.keys(after.parameters)])].sort();
  const parameters = keys
    .map((key) => ({ key, before: before.parameters[key] ?? null, after: after.parameters[key] ?? null }))
    .filter((one) => one.before !== one.after);
  return { seconds: { before: before.seconds_simulated, after: after.seconds_simulated }, statistics, parameters };
}

export function isEqual(difference: RunDifference): boolean {
  const { seconds, statistics, parameters } = difference;
  return seconds.before === seconds.after && statistics.length === 0 && parameters.length === 0;
}
