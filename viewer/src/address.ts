// What is looked at, in the page's address: a reload and a link show the same. A notebook's address is not ours.
import { useState } from "preact/hooks";

export interface Address {
  get(name: string): string | null;
  /** Keeps a text under a name, or nothing. */
  set(name: string, text: string | null): void;
}

export const NOWHERE: Address = { get: () => null, set: () => {} };

/** Browsers allow few changes of an address in a time. */
const REST = 200;

export function pageAddress(): Address {
  // A page in a frame of a notebook has no address of its own.
  if (location.protocol === "about:") return NOWHERE;
  const read = () => new URLSearchParams(location.hash.slice(1));
  let all = read();
  let waiting: number | undefined;
  addEventListener("hashchange", () => (all = read()));
  return {
    get: (name) => all.get(name),
    set(name, text) {
      if (text === null) all.delete(name);
      else all.set(name, text);
      clearTimeout(waiting);
      waiting = setTimeout(() => history.replaceState(null, "", all.size ? `#${all}` : location.pathname + location.search), REST);
    },
  };
}

/** How a state is written, and read from what anybody may have written. */
export interface Form<T> {
  from(text: string): T | undefined;
  to(value: T): string;
}

export const oneOf = <T extends string | number>(values: readonly T[]): Form<T> => ({
  from: (text) => values.find((value) => String(value) === text),
  to: String,
});

/** A state that the address keeps; what it begins with isn't written. */
export function useKept<T>(address: Address, name: string, initial: T, { from, to }: Form<T>): [T, (value: T) => void] {
  const [value, setValue] = useState<T>(() => {
    const text = address.get(name);
    return (text === null ? undefined : from(text)) ?? initial;
  });
  const set = (next: T) => {
    setValue(() => next);
    const text = to(next);
    address.set(name, text === to(initial) ? null : text);
  };
  return [value, set];
}
