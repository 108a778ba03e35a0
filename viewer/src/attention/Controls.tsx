// What is shown of the weights, and in which colours.
import type { ComponentChildren } from "preact";
import type { Curve, Shading } from "./colours";
import type { Filter } from "./head";

interface Props {
  filter: Filter;
  shading: Shading;
  /** How many of a row's largest weights can be told. */
  mostTop: number;
  setFilter: (filter: Filter) => void;
  setShading: (shading: Shading) => void;
}

const THRESHOLDS = [0, 0.001, 0.01, 0.05, 0.1, 0.5];

export function Controls({ filter, shading, mostTop, setFilter, setShading }: Props) {
  const tops = [1, 2, 4, 8, 16].filter((count) => count <= mostTop);
  return (
    <div class="line controls">
      <Choice name="keys of a row" value={filter.top} onChange={(top) => setFilter({ ...filter, top: Number(top) })}>
        <option value={0}>all</option>
        {tops.map((count) => <option value={count}>largest {count}</option>)}
      </Choice>
      <Choice name="weights" value={shading.threshold} onChange={(least) => setShading({ ...shading, threshold: Number(least) })}>
        {THRESHOLDS.map((value) => <option value={value}>{value ? `from ${value}` : "all"}</option>)}
      </Choice>
      <Choice name="shades" value={shading.curve} onChange={(curve) => setShading({ ...shading, curve: curve as Curve })}>
        <option value="linear">linear</option>
        <option value="root">square root</option>
        <option value="log">logarithmic</option>
      </Choice>
      <label>
        <input type="checkbox" checked={filter.sinkHidden}
          onChange={(event) => setFilter({ ...filter, sinkHidden: event.currentTarget.checked })} />
        {" "}hide the first token
      </label>
    </div>
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
