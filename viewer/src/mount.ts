// Shows a payload in an element: the same in a page and in a notebook.
import { NOWHERE, type Address } from "./address";
import { showAttention } from "./attention/AttentionView";
import type { Detail, Payload } from "./payload";
import { Unreadable } from "./trouble";
import { showWalk } from "./walk";

/** Gives what comes behind the first view; asked for only when it is needed. */
export type Details = () => Promise<Detail[]>;

type Show = (element: HTMLElement, payload: any, details: Details, address: Address) => () => void;

const views: { [kind in Payload["kind"]]: Show } = {
  attention: showAttention,
  walk: showWalk,
};

/** The newest payload that is understood here. */
const SCHEMA = 1;

/** Returns what takes the view away again. Throws where the payload can't be shown. */
export function mount(
  element: HTMLElement, payload: Payload, details: Details = async () => [], address: Address = NOWHERE,
): () => void {
  if (payload.schema > SCHEMA) {
    throw new Unreadable("This page holds data of a newer qkv than the script in it knows: they don't belong together.");
  }
  const view = views[payload.kind];
  if (!view) throw new Unreadable(`This page holds data of a kind that its script doesn't know: ${payload.kind}.`);
  const end = view(element, payload, details, address);
  element.querySelector(":scope > .not-yet")?.remove();
  return end;
}
