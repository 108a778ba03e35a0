// All heads at a glance: layers down, heads across, or in the order of one of their statistics.
import { useMemo, useState } from "preact/hooks";
import { mean, short } from "../numbers";
import { weightScale, type Palette } from "./colours";
import type { HeadNumbers } from "./head";
import { Thumb } from "./Thumb";

export interface Place {
  layer: string;
  numbers: HeadNumbers;
}

interface Props {
  places: Place[];
  /** Heads of a layer; what a line of the overview holds. */
  across: number;
  chosen: number;
  low: number;
  palette: Palette;
  choose: (at: number) => void;
}

const ORDERS = { place: "layer and head", entropy: "entropy", distance: "distance", first: "weight on first token" };
type Order = keyof typeof ORDERS;

export function Overview({ places, across, chosen, low, palette, choose }: Props) {
  const [order, setOrder] = useState<Order>("place");
  const means = useMemo(() => (order === "place" ? null : places.map((place) => mean(place.numbers.statistics[order]))), [order]);
  const sequence = useMemo(() => {
    const all = places.map((_, at) => at);
    return means ? all.sort((one, other) => (means[other] || 0) - (means[one] || 0)) : all;
  }, [means]);
  const scale = useMemo(() => weightScale(palette, low, { log: true, threshold: 0 }, 1, "1"), [palette, low]);
  // One layer goes over several lines; several layers are a line each.
  const columns = order === "place" && across < places.length ? across : Math.min(6, places.length);

  function onKeyDown(event: KeyboardEvent): void {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = sequence[sequence.indexOf(chosen) + step];
    if (next === undefined) return;
    choose(next);
    (event.currentTarget as HTMLElement).querySelector<HTMLElement>(`[data-at="${next}"]`)?.focus();
  }

  return (
    <section class="overview">
      <div class="line">
        <h2>{places.length} heads</h2>
        <label>
          in order of{" "}
          <select value={order} onChange={(event) => setOrder(event.currentTarget.value as Order)}>
            {Object.entries(ORDERS).map(([value, name]) => <option value={value}>{name}</option>)}
          </select>
        </label>
      </div>
      <div class="heads" role="radiogroup" aria-label="Heads" onKeyDown={onKeyDown}
        style={{ gridTemplateColumns: `repeat(${columns}, minmax(0.875rem, 4.5rem))` }}>
        {sequence.map((at) => {
          const { layer, numbers } = places[at]!;
          const picture = numbers.pictures.get(0);
          const name = `${layer}, ${numbers.head.name}`;
          return (
            <button key={at} data-at={at} type="button" role="radio" aria-checked={at === chosen} aria-label={name}
              title={name} tabIndex={at === chosen ? 0 : -1} onClick={() => choose(at)}>
              {picture && <Thumb {...picture} colours={scale.colours} />}
              {means && <small>{short(Number(means[at]!.toPrecision(2)))}</small>}
            </button>
          );
        })}
      </div>
    </section>
  );
}
