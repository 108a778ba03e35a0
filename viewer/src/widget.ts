// What anywidget loads in a notebook: `payload` is a trait of the model, and `details` where there are any.
import { mount } from "./mount";
import type { Detail, Payload } from "./payload";
import { guarded } from "./trouble";

interface Model {
  get(name: "payload"): Payload;
  get(name: "details"): Detail[] | undefined;
}

function render({ model, el }: { model: Model; el: HTMLElement }): () => void {
  // A notebook's theme is known by what stands behind the cell: few of them say `color-scheme`.
  el.style.colorScheme = isDark(el) ? "dark" : "light";
  return guarded(el, () => mount(el, model.get("payload"), async () => model.get("details") ?? []));
}

function isDark(element: Element): boolean {
  for (let at: Element | null = element; at; at = at.parentElement) {
    const [red = 0, green = 0, blue = 0, alpha = 1] = getComputedStyle(at).backgroundColor.match(/[\d.]+/g)?.map(Number) ?? [];
    if (alpha > 0) return 0.299 * red + 0.587 * green + 0.114 * blue < 128;
  }
  return false;
}

export default { render };
