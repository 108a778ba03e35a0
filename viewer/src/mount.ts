// Shows a payload in an element: the same in a page and in a notebook.
import { NOWHERE, type Address } from "./address";
import { showAttention } from "./attention/AttentionView";
import type { Detail, Payload } from "./payload";
import { showWalk } from "./walk";

/** Gives what comes behind the first view; asked for only when it is needed. */
export type Details = () => Promise<Detail[]>;

type Show = (element: HTMLElement, payload: any, details: Details, address: Address) => () => void;

const views: { [kind in Payload["kind"]]: Show } = {
  attention: showAttention,
  walk: showWalk,
};

/** Returns what takes the view away again. */
export function mount(
  element: HTMLElement, payload: Payload, details: Details = async () => [], address: Address = NOWHERE,
): () => void {
  return views[payload.kind](element, payload, details, address);
}
