// What stands at the top of every page: the name, and the choice of the colour scheme.

import { h } from "./dom";
import { onSchemeChange, scheme, toggleScheme } from "./theme";

export function brand(): HTMLElement {
  return h("a", { class: "brand", href: "#page" }, logo(), "Terrace");
}

export function schemeToggle(): HTMLElement {
  const toggle = h("button", { type: "button", class: "toggle" });
  const label = () => {
    const other = scheme() === "dark" ? "light" : "dark";
    toggle.textContent = other === "dark" ? "Dark" : "Light";
    toggle.setAttribute("aria-label", `Switch to the ${other} colour scheme`);
  };
  onSchemeChange(label);
  toggle.addEventListener("click", toggleScheme);
  return toggle;
}

/** Three terraces. */
function logo(): SVGElement {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  for (const [at, width] of [[17, 22], [10.5, 15], [4, 8]]) {
    const step = document.createElementNS(space, "rect");
    for (const [name, value] of Object.entries({ x: 1, y: at, width, height: 4.4, rx: 1.4 })) step.setAttribute(name, String(value));
    svg.append(step);
  }
  return svg;
}
