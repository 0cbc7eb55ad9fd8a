// Elements without markup in strings: nothing that the data holds can become markup.

type Child = Node | string | null | undefined;

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, string | number | boolean | undefined> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((c): c is Node | string => c !== null && c !== undefined));
  return element;
}

/** A row of buttons of which one is chosen. */
export function segmented(label: string, options: [string, string][], chosen: string, choose: (value: string) => void): HTMLElement {
  const group = h("div", { class: "segmented", role: "group", "aria-label": label });
  for (const [value, text] of options) {
    const button = h("button", { type: "button", "aria-pressed": value === chosen ? "true" : "false", "data-value": value }, text);
    button.addEventListener("click", () => {
      for (const other of group.children) other.setAttribute("aria-pressed", other === button ? "true" : "false");
      choose(value);
    });
    group.append(button);
  }
  return group;
}

/** Colour and name of each series. */
export function legend(entries: { name: string; color: string }[]): HTMLElement {
  const list = h("ul", { class: "legend" });
  for (const { name, color } of entries) {
    const swatch = h("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = color;
    list.append(h("li", {}, swatch, name));
  }
  return list;
}

/** `short` is the section's name in the page's bar. */
export function section(id: string, short: string, title: string, lead: string, ...content: Child[]): HTMLElement {
  return h(
    "section",
    { id, "data-short": short, "aria-labelledby": `${id}-title` },
    h("h2", { id: `${id}-title` }, title),
    h("p", { class: "lead" }, lead),
    ...content,
  );
}
