// What is shown of the weights, and in which colours.
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { oneOf, useKept, type Address } from "../address";
import type { Curve } from "./colours";
import type { Filter } from "./head";

interface Props {
  filter: Filter;
  curve: Curve;
  /** How many of a row's largest weights can be told. */
  mostTop: number;
  /** Scores are shown whole; the controls stay in their place, so that nothing jumps. */
  disabled: boolean;
  setFilter: (filter: Filter) => void;
  setCurve: (curve: Curve) => void;
}

const TOPS = [0, 1, 2, 4, 8, 16];
const THRESHOLDS = [0, 0.001, 0.01, 0.05, 0.1, 0.5];
const CURVES: { [curve in Curve]: string } = { linear: "linear", root: "square root", log: "logarithmic" };

/** What is left out and how weights are shaded, as the address keeps them. */
export function useFilters(address: Address, usual: Curve) {
  const [top, setTop] = useKept(address, "top", 0, oneOf(TOPS));
  const [least, setLeast] = useKept(address, "least", 0, oneOf(THRESHOLDS));
  const [first, setFirst] = useKept<string>(address, "first", "shown", oneOf(["shown", "hidden"]));
  const [curve, setCurve] = useKept(address, "shades", usual, oneOf(Object.keys(CURVES) as Curve[]));
  const filter = useMemo(() => ({ top, least, sinkHidden: first === "hidden" }), [top, least, first]);
  const setFilter = (next: Filter) => (setTop(next.top), setLeast(next.least), setFirst(next.sinkHidden ? "hidden" : "shown"));
  return { filter, setFilter, curve, setCurve };
}

export function Controls({ filter, curve, mostTop, disabled, setFilter, setCurve }: Props) {
  const tops = TOPS.filter((count) => count && count <= mostTop);
  return (
    <fieldset class="line controls" disabled={disabled}>
      <legend class="only-heard">Filters</legend>
      <Choice name="keys of a row" value={filter.top} onChange={(top) => setFilter({ ...filter, top: Number(top) })}>
        <option value={0}>all</option>
        {tops.map((count) => <option value={count}>largest {count}</option>)}
      </Choice>
      <Choice name="weights" value={filter.least} onChange={(least) => setFilter({ ...filter, least: Number(least) })}>
        {THRESHOLDS.map((value) => <option value={value}>{value ? `from ${value}` : "all"}</option>)}
      </Choice>
      <Choice name="shades" value={curve} onChange={(curve) => setCurve(curve as Curve)}>
        {Object.entries(CURVES).map(([value, name]) => <option value={value}>{name}</option>)}
      </Choice>
      <label>
        <input type="checkbox" checked={filter.sinkHidden}
          onChange={(event) => setFilter({ ...filter, sinkHidden: event.currentTarget.checked })} />
        {" "}hide the first token
      </label>
    </fieldset>
  );
}

interface ChoiceProps {
  name: string;
  value: number | string;
  onChange: (value: string) => void;
  children: ComponentChildren;
}

function Choice({ name, value, onChange, children }: ChoiceProps) {
  return (
    <label>
      {name}{" "}
      <select value={value} onChange={(event) => onChange(event.currentTarget.value)}>{children}</select>
    </label>
  );
}
