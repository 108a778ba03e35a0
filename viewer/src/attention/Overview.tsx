// All heads at a glance: layers down, heads across, or in the order of one of their statistics.
import { Fragment } from "preact";
import { useMemo } from "preact/hooks";
import { fixed, mean } from "../numbers";
import { oneOf, useKept, type Address } from "../address";
import { weightScale, type Palette } from "./colours";
import { UNFILTERED, type HeadNumbers } from "./head";
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
  /** Ids of heads that differ from those that they should equal. */
  wrong: { [head: string]: unknown };
  address: Address;
  choose: (at: number) => void;
}

const PLACE = "layer and head";
/** What heads can be put in the order of. */
const STATISTICS: { [order: string]: (numbers: HeadNumbers) => number } = {
  entropy: ({ statistics }) => mean(statistics.entropy),
  distance: ({ statistics }) => mean(statistics.distance),
  "weight on first token": ({ statistics }) => mean(statistics.first),
};
/** Patterns that are one of the statistics already. */
const KNOWN = ["first token"];

export function Overview({ places, across, chosen, palette, wrong, address, choose }: Props) {
  const orders = useMemo(() => {
    const patterns = new Set(places.flatMap(({ numbers }) => Object.keys(numbers.head.patterns)));
    return [PLACE, ...Object.keys(STATISTICS), ...[...patterns].filter((name) => !KNOWN.includes(name))];
  }, [places]);
  const [order, setOrder] = useKept(address, "order", PLACE, oneOf(orders));
  const means = useMemo(() => {
    if (order === PLACE) return null;
    return places.map(({ numbers }) => STATISTICS[order]?.(numbers) ?? numbers.head.patterns[order] ?? NaN);
  }, [order, places]);
  const sequence = useMemo(() => {
    const all = places.map((_, at) => at);
    return means ? all.sort((one, other) => (means[other] || 0) - (means[one] || 0)) : all;
  }, [means]);
  // Several layers of several heads are a line each, which has the layer's name; else heads follow with their names.
  const lines = order === PLACE && across > 1 && across < places.length;
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
        <h2>{counted(places)}</h2>
        <label>
          in order of{" "}
          <select value={order} onChange={(event) => setOrder(event.currentTarget.value)}>
            {orders.map((name) => <option>{name}</option>)}
          </select>
        </label>
      </div>
      <div class="heads" role="radiogroup" aria-label="Heads" onKeyDown={onKeyDown}
        style={{ gridTemplateColumns: `${lines ? "max-content " : ""}repeat(${columns}, minmax(0.875rem, 4.5rem))` }}>
        {sequence.map((at, turn) => {
          const { layer, numbers } = places[at]!;
          const differs = numbers.head.id in wrong;
          const name = `${layer}, ${numbers.head.name}${differs ? ", differs from what it should be" : ""}`;
          return (
            <Fragment key={at}>
              {lines && turn % columns === 0 && <small aria-hidden="true">{layer}</small>}
              <button data-at={at} type="button" role="radio" aria-checked={at === chosen} aria-label={name}
                title={name} tabIndex={at === chosen ? 0 : -1} onClick={() => choose(at)}>
                <HeadThumb numbers={numbers} palette={palette} />
                {differs && <span class="differs" aria-hidden="true">≠</span>}
                {!lines && across < places.length && <small>{layer}</small>}
                {!lines && across > 1 && <small>{numbers.head.name}</small>}
                {means && <small>{fixed(means[at]!)}</small>}
              </button>
            </Fragment>
          );
        })}
      </div>
    </div>
  );
}

/** How many heads there are; right ones that stand beside others are no more heads. */
function counted(places: Place[]): string {
  const own = places.filter(({ numbers: { head } }) => head.against).length;
  const count = own || places.length;
  return `${count} ${count === 1 ? "head" : "heads"}${own ? ", and what they should be" : ""}`;
}

/** A head by its own largest weight, small ones well seen. */
function HeadThumb({ numbers, palette }: { numbers: HeadNumbers; palette: Palette }) {
  const picture = numbers.pictures.get(0);
  const scale = useMemo(() => weightScale(palette, numbers.range(UNFILTERED), "root"), [palette, numbers, picture]);
  return picture ? <Thumb {...picture} colours={scale.colours} /> : null;
}
