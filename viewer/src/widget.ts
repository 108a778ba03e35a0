// What anywidget loads in a notebook: `payload` and `stand_in` are traits of the model.
import type { Address } from "./address";
import { mount } from "./mount";
import type { Payload } from "./payload";
import { guarded } from "./trouble";

interface Model {
  get(name: "payload"): Payload;
  get(name: "stand_in"): string;
}

function render({ model, el }: { model: Model; el: HTMLElement }): () => void {
  el.classList.add("qkv");
  // What is typed in here is no command of JupyterLab, which looks for this at what has the focus.
  el.addEventListener("focusin", ({ target }) => ((target as HTMLElement).dataset["lmSuppressShortcuts"] = "true"));
  const address = kept();
  let end = () => {};
  const show = () => {
    // The pictures that stand in for it where it can't be.
    document.getElementById(model.get("stand_in"))?.setAttribute("hidden", "");
    const scheme = isDark(el) ? "dark" : "light";
    if (!el.isConnected || scheme === el.style.colorScheme) return;
    el.style.colorScheme = scheme;
    end();
    end = guarded(el, () => mount(el, model.get("payload"), undefined, address));
  };
  // JupyterLab hands over an element that stands nowhere yet, and has neither colours nor a width.
  const placed = new ResizeObserver(show);
  placed.observe(el);
  // Another theme is another class or attribute of the page.
  const themed = new MutationObserver(show);
  for (const root of [document.documentElement, document.body]) themed.observe(root, { attributes: true });
  return () => {
    placed.disconnect();
    themed.disconnect();
    end();
  };
}

/** What is looked at, kept for as long as the widget is there: another theme begins where the last one was. */
function kept(): Address {
  const texts = new Map<string, string>();
  return {
    get: (name) => texts.get(name) ?? null,
    set: (name, text) => void (text === null ? texts.delete(name) : texts.set(name, text)),
  };
}

/** Whether what stands behind an element is dark: few notebooks say `color-scheme`. */
function isDark(element: Element): boolean {
  const behind: string[] = [];
  for (let at: Element | null = element; at; at = at.parentElement ?? hostOf(at)) behind.unshift(getComputedStyle(at).backgroundColor);
  // Painted over each other: colours are written in many ways, and may let through what lies under them.
  const context = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d")!;
  for (const colour of ["white", ...behind]) {
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
  }
  const [red, green, blue] = context.getImageData(0, 0, 1, 1).data;
  return 0.299 * red! + 0.587 * green! + 0.114 * blue! < 128;
}

/** The element that holds the shadow tree in which another stands, if any does. */
function hostOf(element: Element): Element | null {
  const root = element.getRootNode();
  return root instanceof ShadowRoot ? root.host : null;
}

export default { render };
