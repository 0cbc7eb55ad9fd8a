// Numbers as people read them. The same rules as the terminal tables.

export function significant(value: number): string {
  const m = Math.abs(value);
  if (!Number.isFinite(value)) return "–";
  if (m === 0) return "0";
  if (m < 0.001) return "<0.001";
  if (m < 0.1) return value.toFixed(3);
  if (m < 9.995) return value.toFixed(2);
  if (m < 99.95) return value.toFixed(1);
  if (m < 999999.5) return Math.round(value).toLocaleString("en-US");
  return value.toExponential(1);
}

function scaled(value: number, units: [number, string][], base: string): string {
  for (const [size, unit] of units) if (value >= size * 0.9995) return `${significant(value / size)} ${unit}`;
  return `${Number.isInteger(value) ? value : significant(value)}${base}`;
}

export const count = (value: number): string =>
  scaled(value, [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]], "");

export const bytes = (value: number): string =>
  scaled(value, [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]], " B");

export const seconds = (value: number): string =>
  value < 1e-9
    ? `${significant(value * 1e9)} ns`
    : scaled(value, [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]], " s");

export const joules = (value: number): string =>
  value === 0 ? "0 J" : scaled(value, [[1, "J"], [1e-3, "mJ"], [1e-6, "µJ"], [1e-9, "nJ"], [1e-12, "pJ"]], " J");

export function percent(share: number): string {
  const p = share * 100;
  if (p > 0 && p < 0.5) return "<1%";
  return `${p.toFixed(0)}%`;
}

/** `3.1%`, `12%`: for an axis, whose values next to each other must not read the same. */
export const tenths = (share: number): string => `${(share * 100).toFixed(1)}%`;

/** `+3.1%`: a tenth of a percent is what targets are stated in. */
export function slowdown(share: number): string {
  const tenths = Math.round(share * 1000);
  return tenths === 0 ? "0.0%" : `${tenths > 0 ? "+" : "−"}${(Math.abs(tenths) / 10).toFixed(1)}%`;
}

/** `+60%`, `−2.3%`: tenths where they can be read. */
export function difference(share: number): string {
  const p = share * 100;
  const text = Math.abs(p) < 99.95 ? Math.abs(p).toFixed(1) : significant(Math.abs(p));
  return `${p < -0.05 ? "−" : p > 0.05 ? "+" : ""}${text}%`;
}

export const times = (value: number): string =>
  `${value >= 0.005 && value < 999.5 ? value.toFixed(2) : significant(value)}×`;

/** The same text without zeros that say nothing: for the round numbers of an axis. */
export const round = (text: string): string => text.replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "");

/** Every digit of an integer, grouped. */
export const exact = (value: number): string => value.toLocaleString("en-US", { maximumFractionDigits: 6 });

/** `1.84x` in a sentence, with the proper sign. */
export const withTimesSign = (text: string): string => text.replace(/(\d)x(?=[ .,]|$)/g, "$1×");

/** The last part of a path, since a mapping's file is better known by its name. */
export const basename = (name: string): string => (name.startsWith("/") ? name.slice(name.lastIndexOf("/") + 1) : name);
