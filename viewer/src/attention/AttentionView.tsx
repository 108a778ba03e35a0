// Attention weights to look at: all heads, one of them large, and the numbers of what is pointed at.
import { render } from "preact";
import { useEffect, useErrorBoundary, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { oneOf, useKept, type Address, type Form } from "../address";
import type { Details } from "../mount";
import { integers, largest, short, signedInCell } from "../numbers";
import type { AttentionPayload } from "../payload";
import { wordsFor } from "../trouble";
import { paletteAt, type Curve, type Palette } from "./colours";
import { Controls, useFilters } from "./Controls";
import type { Cell } from "./drawing";
import { HeadNumbers, sorted, UNFILTERED, type Filter, type Line } from "./head";
import { Matrix } from "./Matrix";
import { Overview, type Place } from "./Overview";
import { ColumnPanel, RowPanel } from "./Panel";
import { difference, said, stageShown, weightsShown, type Shown } from "./shown";
import { Stages, type Stage } from "./Stages";
import { WHOLE } from "./zooming";
import type { Strip } from "./surroundings";
import { Tokens } from "./tokens";

interface Props {
  payload: AttentionPayload;
  details: Details;
  address: Address;
}

/** From this many keys on most weights are too small for linear colours. */
const MANY = 64;
/** Of more notes than these the last are folded. */
const NOTES = 3;
/** How many keys of a row are named on the axis while one points at it. */
const LIT = 3;

export function showAttention(element: HTMLElement, payload: AttentionPayload, details: Details, address: Address): () => void {
  // What stands in the element already, such as a heading, stays.
  const place = element.appendChild(document.createElement("div"));
  let turn = 0;
  const show = () => render(<AttentionView key={turn++} {...{ payload, details, address }} />, place);
  show();
  // Another address in the same page is another beginning.
  addEventListener("hashchange", show);
  return () => {
    removeEventListener("hashchange", show);
    render(null, place);
    place.remove();
  };
}

function AttentionView({ payload, details, address }: Props) {
  const root = useRef<HTMLDivElement>(null);
  const palette = usePalette(root);
  const [version, setVersion] = useState(0);
  const [error] = useErrorBoundary();
  const places = useMemo(
    () => payload.layers.flatMap((layer) => layer.heads.map((head): Place => ({
      layer: layer.name,
      numbers: new HeadNumbers(payload, head, details, () => setVersion((last) => last + 1)),
    }))),
    [payload],
  );
  return (
    <div class="qkv-attention" ref={root}>
      {payload.focus?.said && <p class={Object.keys(payload.focus.wrong).length ? "said wrong" : "said"}>{payload.focus.said}.</p>}
      <Notes notes={payload.notes} />
      {error && <p class="trouble" role="alert">{wordsFor(error)}</p>}
      {!error && palette && places.length > 0 && <Heads {...{ payload, places, palette, version, address }} />}
      {places.length === 0 && <p>There are no heads to show.</p>}
    </div>
  );
}

function Notes({ notes }: { notes: string[] }) {
  if (!notes.length) return null;
  const list = (some: string[]) => <ul class="notes">{some.map((note) => <li>{note}</li>)}</ul>;
  if (notes.length <= NOTES) return list(notes);
  const first = NOTES - 1;
  return (
    <>
      {list(notes.slice(0, first))}
      <details class="folded"><summary>{notes.length - first} more notes</summary>{list(notes.slice(first))}</details>
    </>
  );
}

/** The page's colours, read again when its theme changes or it is printed. */
function usePalette(root: { current: HTMLElement | null }): Palette | null {
  const [palette, setPalette] = useState<Palette | null>(null);
  useLayoutEffect(() => {
    const read = () => setPalette(paletteAt(root.current!));
    read();
    const changes = ["(prefers-color-scheme: dark)", "print"].map((query) => matchMedia(query));
    changes.forEach((change) => change.addEventListener("change", read));
    return () => changes.forEach((change) => change.removeEventListener("change", read));
  }, []);
  return palette;
}

interface HeadsProps {
  payload: AttentionPayload;
  places: Place[];
  palette: Palette;
  /** Counts the pictures that have come. */
  version: number;
  address: Address;
}

function Heads({ payload, places, palette, version, address }: HeadsProps) {
  const ids = places.map(({ numbers }) => numbers.head.id);
  const [id, setId] = useKept(address, "head", payload.focus?.head ?? ids[0]!, oneOf(ids));
  const chosen = Math.max(0, ids.indexOf(id));
  const across = payload.layers[0]?.heads.length ?? 0;
  useEffect(() => () => places[chosen]!.numbers.pictures.forget(), [chosen]);
  const compared = places.some(({ numbers }) => numbers.comparedWith(places));
  return (
    <div class={compared ? "compared" : places.length > 1 ? "several" : "single"}>
      {places.length > 1 && (
        <Overview {...{ places, across, chosen, palette, address }} wrong={payload.focus?.wrong ?? {}}
          choose={(at) => setId(ids[at]!)} />
      )}
      <OneHead {...{ payload, places, palette, version, address }} place={places[chosen]!} />
    </div>
  );
}

function OneHead({ payload, places, palette, version, address, place }: HeadsProps & { place: Place }) {
  const { numbers, layer } = place;
  const { rows, columns } = numbers;
  const names = useNames(payload);
  const [stage, setStage] = useKept(address, "stage", "weights", STAGE);
  const { filter, setFilter, curve, setCurve } = useFilters(address, columns > MANY ? "log" : "linear");
  const pointing = usePointing(rows, columns, payload.focus?.cell ?? null, address);
  const { cell } = pointing;
  const [zoom, setZoom] = useState(WHOLE);

  const expected = useMemo(() => numbers.comparedWith(places), [numbers]);
  const stages = useMemo(() => stagesOf(numbers, palette), [numbers, palette]);
  // Another head may lack the stage that was chosen.
  const found = stages.find(({ name }) => name === stage);
  const inForce = found ? UNFILTERED : filter;
  const { row, column, rightRow, lit } = useLines(numbers, expected?.numbers, cell, inForce, version);
  const weights = useMemo(
    () => weightsShown(numbers, palette, filter, curve, expected?.numbers),
    [numbers, palette, filter, curve, version],
  );
  const beside = useMemo(
    () => expected && besideRight(place, expected, weights, palette, filter, curve),
    [expected, weights],
  );
  const bars = { title: row ? "weights" : "mean", values: row ? shownOf(row) : numbers.received };
  const title = `${layer}, ${numbers.head.name}`;
  const whole: Part = { shown: found?.shown ?? weights, said: found?.name ?? "weights", bars, strips: useMemo(() => stripsOf(numbers), [numbers]) };
  const parts = beside && !found ? beside(bars, rightRow && shownOf(rightRow)) : [whole];
  const heard = pointing.said && cell.row !== null && cell.column !== null
    ? `${names.query(cell.row)} to ${names.keys.name(cell.column)}: ${said(numbers.at(cell.row, cell.column, inForce))}` : "";

  return (
    <>
      <div class="large">
        <h2>{title}</h2>
        {stages.length > 0 && <Stages {...{ stages, weights, stage: found?.name ?? "weights", choose: setStage }} />}
        <Controls {...{ filter, curve, setFilter, setCurve, mostTop: numbers.mostTop }} disabled={found !== undefined} />
        <div class="parts">
          {parts.map(({ shown, said, caption, bars, strips }, at) => (
            <Matrix key={at} {...{ rows, columns, shown, palette, bars, strips, lit, cell, zoom, setZoom }} title={`${said} of ${title}`}
              caption={caption === undefined ? undefined : { name: caption, first: at === 0 }} marked={payload.focus?.wrong[numbers.head.id] ?? null}
              queryCount={payload.query_len} queries={names.queryLabel} keys={names.keys} point={pointing.point} choose={pointing.choose} />
          ))}
        </div>
        <p class="only-heard" aria-live="polite">{heard}</p>
      </div>
      <div class="panel">
        {row && <RowPanel {...{ numbers, row: cell.row!, line: row, expected: rightRow, keys: names.keys }}
          stage={found && { name: found.name, number: (key) => short(found.numbers[cell.row! * columns + key]!) }} name={names.query(cell.row!)} />}
        {column && <ColumnPanel {...{ numbers, column: cell.column!, line: column }} query={names.queryEntry}
          name={names.keys.name(cell.column!)} />}
        <p class="aside hint">Point at a cell, or move by the arrow keys; a click keeps it, Escape lets go. Zoom by wheel, + and −.</p>
      </div>
    </>
  );
}

/** One of the matrices that are large. */
interface Part {
  shown: Shown;
  said: string;
  /** What stands above it where there are several. */
  caption?: string;
  bars: { title: string; values: Float32Array };
  strips: Strip[];
}

/** A head, what it should be, and the difference, beside each other; given the bars above the first two. */
function besideRight(place: Place, expected: Place, weights: Shown, palette: Palette, filter: Filter, curve: Curve) {
  const { numbers, layer } = place;
  const right = weightsShown(expected.numbers, palette, filter, curve, numbers);
  const off = stageShown(difference(numbers.exact!, expected.numbers.exact!), numbers.rows, numbers.columns, palette, signedInCell);
  return (bars: Part["bars"], rightRow: Float32Array | null): Part[] => [
    { shown: right, said: "right weights", caption: expected.layer, bars: { ...bars, values: rightRow ?? expected.numbers.received }, strips: [] },
    { shown: weights, said: "weights", caption: layer, bars, strips: [] },
    { shown: off, said: "difference", caption: `${layer} − ${expected.layer}`, bars: { title: "", values: new Float32Array() }, strips: [] },
  ];
}

/** The weights along what is pointed at, those that a row should have, and the keys that it draws most from. */
function useLines(numbers: HeadNumbers, expected: HeadNumbers | undefined, cell: Cell, filter: Filter, version: number) {
  const row = useMemo(() => (cell.row === null ? null : numbers.row(cell.row, filter)), [numbers, cell.row, filter, version]);
  const column = useMemo(() => (cell.column === null ? null : numbers.column(cell.column, filter)), [numbers, cell.column, filter, version]);
  const rightRow = useMemo(() => (row && expected ? expected.row(cell.row!, UNFILTERED) : null), [row, expected]);
  const lit = useMemo(() => (row ? sorted(row, LIT).map(({ at }) => at) : []), [row]);
  return { row, column, rightRow, lit };
}

const shownOf = ({ weights, known }: Line): Float32Array => weights.map((weight, at) => (known[at] === "left out" ? 0 : weight));

/** What a row and a key are called. A row is a computed query: not every one where rows are sampled. */
function useNames(payload: AttentionPayload) {
  return useMemo(() => {
    const sampled = payload.sampled === null ? null : integers(payload.sampled);
    const { query_offset: first, query_len, key_len, key_tokens } = payload;
    const own = first >= 0 && first + query_len <= key_len ? (key_tokens?.slice(first, first + query_len) ?? null) : null;
    const queries = new Tokens("query", payload.query_tokens ?? own);
    const at = (row: number) => sampled?.[row] ?? row;
    return {
      keys: new Tokens("key", payload.key_tokens),
      query: (row: number) => queries.name(at(row)),
      queryEntry: (row: number) => queries.entry(at(row)),
      queryLabel: (row: number) => queries.label(at(row)),
    };
  }, [payload]);
}

/** What is pointed at. The pointer leads until a click or a key chooses a cell; the last row is shown at first, or a cell. */
function usePointing(rows: number, columns: number, first: [number, number] | null, address: Address) {
  const form = useMemo(() => cellForm(rows, columns), [rows, columns]);
  const [chosen, setChosen] = useKept<Cell | null>(address, "cell", null, form);
  const [pointed, setPointed] = useState<Cell>(first ? { row: first[0], column: first[1] } : { row: rows ? rows - 1 : null, column: null });
  const kept = chosen !== null;
  const cell = chosen ?? pointed;
  const point = (next: Cell) => {
    if (kept || (next.row === null && next.column === null)) return;
    if (next.row !== cell.row || next.column !== cell.column) setPointed(next);
  };
  const choose = (next: Cell | null) => {
    const same = kept && next?.row === cell.row && next?.column === cell.column;
    setChosen(same ? null : next);
    if (next) setPointed(next);
  };
  return { cell, said: kept, point, choose };
}

/** Whatever was written: a head without such a stage shows its weights. */
const STAGE: Form<string> = { from: (text) => text, to: (name) => name };

/** "5,3": a row and a column, either of which may be missing. */
const cellForm = (rows: number, columns: number): Form<Cell | null> => ({
  from(text) {
    const found = /^(\d*),(\d*)$/.exec(text);
    if (!found) return undefined;
    const [row, column] = [found[1]!, found[2]!].map((part) => (part ? Number(part) : null)) as [number | null, number | null];
    return (row ?? 0) < rows && (column ?? 0) < columns ? { row, column } : undefined;
  },
  to: (cell) => (cell ? `${cell.row ?? ""},${cell.column ?? ""}` : ""),
});

function stagesOf(numbers: HeadNumbers, palette: Palette): Stage[] {
  const { rows, columns } = numbers;
  return numbers.stages.map((stage) => ({ ...stage, shown: stageShown(stage.numbers, rows, columns, palette) }));
}

function stripsOf({ statistics: { entropy, distance, first } }: HeadNumbers) {
  return [
    { title: "entropy", values: entropy, most: largest(entropy, 1) },
    { title: "distance", values: distance, most: largest(distance, 1) },
    { title: "first", values: first, most: 1 },
  ];
}
