// Colours, for both schemes. Hues stay apart under the common colour-vision deficiencies; what matters most in a
// chart (translation, the winner) has the strongest colour.

export type Palette = {
  text: string;
  muted: string;
  line: string;
  surface: string;
  accent: string;
  soft: string;
  neutral: string;
  components: Record<string, string>;
  others: string[];
  tiers: [string, string][];
  pages: Record<string, string>;
  ramp: string[];
};

const LIGHT: Palette = {
  text: "#17212b",
  muted: "#5a6875",
  line: "#dde3e8",
  surface: "#ffffff",
  accent: "#0f766e",
  soft: "#8cc4bb",
  neutral: "#a9b4be",
  components: { base: "#b4bec8", translation: "#d9532c", cache: "#e3a722", memory: "#2d6fb3", os: "#7b559c" },
  others: ["#4b8a5f", "#b8577f", "#8a6d3b"],
  tiers: [["#2d6fb3", "#9dc1e6"], ["#c4682c", "#efbf98"], ["#7b559c", "#c9b3dc"], ["#4b8a5f", "#aed1ba"]],
  pages: { "4k": "#b9dcd5", "2m": "#3d9c94", "1g": "#14505f" },
  ramp: ["#d3e9e3", "#86c5b8", "#33938f", "#1a5a76", "#18264d"],
};

const DARK: Palette = {
  text: "#e6ebef",
  muted: "#9aa8b4",
  line: "#2b3742",
  surface: "#18212a",
  accent: "#3fc1b0",
  soft: "#2b6f69",
  neutral: "#5d6b78",
  components: { base: "#697784", translation: "#f0754c", cache: "#efbe4d", memory: "#5b9de2", os: "#ab86cb" },
  others: ["#77b98c", "#df86ab", "#c4a46a"],
  tiers: [["#5b9de2", "#2f5278"], ["#e5935a", "#774a2b"], ["#ab86cb", "#594470"], ["#77b98c", "#3c6047"]],
  pages: { "4k": "#2c5a57", "2m": "#3ba79b", "1g": "#b5efe4" },
  ramp: ["#1d3540", "#20606b", "#2f988b", "#8fd08c", "#f8eb93"],
};

export type Scheme = "light" | "dark";

const system = window.matchMedia("(prefers-color-scheme: dark)");
const KEY = "terrace-scheme";
const listeners: (() => void)[] = [];
let chosen: Scheme | null = stored();

/** A page opened from a file may have no storage. */
function stored(): Scheme | null {
  try {
    const value = localStorage.getItem(KEY);
    return value === "light" || value === "dark" ? value : null;
  } catch {
    return null;
  }
}

export function scheme(): Scheme {
  return chosen ?? (system.matches ? "dark" : "light");
}

export function palette(): Palette {
  return scheme() === "dark" ? DARK : LIGHT;
}

export function toggleScheme(): void {
  chosen = scheme() === "dark" ? "light" : "dark";
  try {
    localStorage.setItem(KEY, chosen);
  } catch {
    // The choice then lasts as long as the page.
  }
  apply();
}

export function onSchemeChange(listener: () => void): void {
  listeners.push(listener);
}

/** What is called to forget all listeners that were added since: with the part of a page that they belong to. */
export function listenersSince(): () => void {
  const kept = listeners.length;
  return () => void listeners.splice(kept);
}

export function apply(): void {
  document.documentElement.dataset.scheme = scheme();
  for (const listener of listeners) listener();
}

system.addEventListener("change", () => {
  if (chosen === null) apply();
});
