// The walk: Python has written all steps and answers into the page. This shows one step at a time for one token, and
// an answer once it was found, or tried and asked for. The page's address names the step and the token: #softmax/2
import type { WalkPayload } from "./payload";
import { judge } from "./walk-answers";

export function showWalk(walk: HTMLElement, payload: WalkPayload): () => void {
  const end = new AbortController();
  const all = <E extends HTMLElement>(selector: string) => [...walk.querySelectorAll<E>(selector)];
  const steps = all("section.step");
  const links = all<HTMLAnchorElement>("nav a");
  const choices = all<HTMLInputElement>('input[name="query"]');
  const [previous, next] = [".previous", ".next"].map((name) => walk.querySelector<HTMLButtonElement>(name)!);
  const shown = new Set<string>();
  const standard = walk.dataset["query"]!;
  let step = steps[0]!;
  let query = standard;

  function draw(): void {
    for (const each of steps) each.hidden = each !== step;
    for (const part of all(".of-query")) part.hidden = part.dataset["query"] !== query;
    for (const row of all("tr[data-row]")) row.classList.toggle("chosen", row.dataset["row"] === query);
    for (const choice of choices) choice.checked = choice.value === query;
    const asked = (of: HTMLElement) =>
      (of.querySelector<HTMLElement>(`form[data-question="${of.id}-${query}"]`) ?? of.querySelector<HTMLElement>("form"))!
        .dataset["question"]!;
    for (const part of all(".after")) {
      part.hidden = !shown.has(part.dataset["question"] ?? asked(part.closest<HTMLElement>("section")!));
    }
    links.forEach((link, place) => {
      link.toggleAttribute("aria-current", false);
      if (steps[place] === step) link.setAttribute("aria-current", "step");
      link.classList.toggle("done", shown.has(asked(steps[place]!)));
    });
    const place = steps.indexOf(step);
    previous!.disabled = place === 0;
    next!.disabled = place === steps.length - 1;
    for (const box of all(".scroll, pre")) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  }

  function readAddress(): void {
    const [id, token] = location.hash.slice(1).split("/");
    step = steps.find((each) => each.id === id) ?? step;
    query = choices.some((choice) => choice.value === token) ? token! : id ? standard : query;
    draw();
  }

  function go(to: HTMLElement | undefined, token = query): void {
    if (!to) return;
    const moved = to !== step;
    [step, query] = [to, token];
    history.replaceState(null, "", `#${step.id}${query === standard ? "" : `/${query}`}`);
    draw();
    if (!moved) return;
    scrollTo({ top: 0 });
    step.querySelector("h2")!.focus({ preventScroll: true });
  }
  const turn = (by: number) => go(steps[steps.indexOf(step) + by]);

  function check(form: HTMLFormElement): void {
    const name = form.dataset["question"]!;
    const field = form.querySelector<HTMLInputElement>('input[type="text"], input:checked');
    const verdict = judge(payload.questions[name]!, field?.value ?? "");
    if (verdict.right) shown.add(name);
    if (verdict.right !== null) form.querySelector<HTMLElement>(".reveal")!.hidden = shown.has(name);
    tell(form, verdict.text, verdict.right === null ? "" : verdict.right ? "right" : "wrong");
    draw();
  }

  function tell(form: HTMLFormElement, text: string, kind: string): void {
    const place = form.querySelector<HTMLElement>(".verdict")!;
    place.className = `verdict ${kind}`;
    place.textContent = text;
  }

  const listen = { signal: end.signal };
  for (const form of all<HTMLFormElement>("form.question")) {
    form.addEventListener("submit", (event) => (event.preventDefault(), check(form)), listen);
    form.querySelector(".reveal")!.addEventListener("click", () => {
      shown.add(form.dataset["question"]!);
      form.querySelector<HTMLElement>(".reveal")!.hidden = true;
      tell(form, "", "");
      form.querySelector("input")!.focus();
      draw();
    }, listen);
  }
  links.forEach((link, place) =>
    link.addEventListener("click", (event) => (event.preventDefault(), go(steps[place])), listen));
  for (const choice of choices) choice.addEventListener("change", () => go(step, choice.value), listen);
  previous!.addEventListener("click", () => turn(-1), listen);
  next!.addEventListener("click", () => turn(1), listen);
  addEventListener("hashchange", readAddress, listen);
  addEventListener("resize", draw, listen);
  addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const used = event.altKey || event.ctrlKey || event.metaKey || event.shiftKey;
    if (by && !used && !(event.target as Element).closest?.("input, [tabindex='0']")) turn(by);
  }, listen);

  walk.classList.add("live");
  readAddress();
  return () => (end.abort(), walk.classList.remove("live"));
}
