// All heads at a glance: layers down, heads across, or in the order of one of their statistics.
import { Fragment } from "preact";
import { useMemo, useState } from "preact/hooks";
import { mean, short } from "../numbers";
import { weightScale, type Palette, type Shading } from "./colours";
import type { Filter, HeadNumbers } from "./head";
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
  palette: Palette;
  choose: (at: number) => void;
}

/** Each head by its own largest weight, small ones well seen. */
const SHADING: Shading = { curve: "root", threshold: 0 };
const UNFILTERED: Filter = { top: 0, sinkHidden: false };

const ORDERS = { place: "layer and head", entropy: "entropy", distance: "distance", first: "weight on first token" };
type Order = keyof typeof ORDERS;

export function Overview({ places, across, chosen, palette, choose }: Props) {
  const [order, setOrder] = useState<Order>("place");
  const means = useMemo(() => (order === "place" ? null : places.map((place) => mean(place.numbers.statistics[order]))), [order]);
  const sequence = useMemo(() => {
    const all = places.map((_, at) => at);
    return means ? all.sort((one, other) => (means[other] || 0) - (means[one] || 0)) : all;
  }, [means]);
  // Several layers of several heads are a line each, which has the layer's name; else heads follow with their names.
  const lines = order === "place" && across > 1 && across < places.length;
  const columns = lines ? across : Math.min(6, places.length);

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
    <div class="overview">
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
        style={{ gridTemplateColumns: `${lines ? "max-content " : ""}repeat(${columns}, minmax(0.875rem, 4.5rem))` }}>
        {sequence.map((at, turn) => {
          const { layer, numbers } = places[at]!;
          const name = `${layer}, ${numbers.head.name}`;
          return (
            <Fragment key={at}>
              {lines && turn % columns === 0 && <small aria-hidden="true">{layer}</small>}
              <button data-at={at} type="button" role="radio" aria-checked={at === chosen} aria-label={name}
                title={name} tabIndex={at === chosen ? 0 : -1} onClick={() => choose(at)}>
                <HeadThumb numbers={numbers} palette={palette} />
                {!lines && <small>{means ? short(Number(means[at]!.toPrecision(2))) : across > 1 ? numbers.head.name : layer}</small>}
              </button>
            </Fragment>
          );
        })}
      </div>
    </div>
  );
}

function HeadThumb({ numbers, palette }: { numbers: HeadNumbers; palette: Palette }) {
  const picture = numbers.pictures.get(0);
  const scale = useMemo(() => weightScale(palette, numbers.range(UNFILTERED), SHADING), [palette, numbers, picture]);
  return picture ? <Thumb {...picture} colours={scale.colours} /> : null;
}
