// One head's numbers: exact where Python sent them, read from the picture elsewhere, and which of the two a number is.
import { floats, integers, largest } from "../numbers";
import type { Details } from "../mount";
import type { AttentionPayload, Head } from "../payload";
import { byteOf, weightOf, type Range } from "./colours";
import { Pictures, type Picture } from "./pictures";

/** How a weight is known; what a filter leaves out is neither shown nor told. */
export type Known = "masked" | "exact" | "about" | "unknown" | "left out";

/** Weights along a row or a column, and how each is known. */
export interface Line {
  weights: Float32Array;
  known: Known[];
}

/** A weight in its line. */
export interface Entry {
  at: number;
  weight: number;
  known: Known;
}

export interface Filter {
  /** Only the largest of each row; 0 for all. */
  top: number;
  /** Only weights from it on. */
  least: number;
  sinkHidden: boolean;
}

export const UNFILTERED: Filter = { top: 0, least: 0, sinkHidden: false };

const NO_KEY = 2 ** 32 - 1;

export class HeadNumbers {
  readonly rows: number;
  readonly columns: number;
  readonly pictures: Pictures;
  readonly exact: Float32Array | null;
  readonly statistics: { entropy: Float32Array; distance: Float32Array; first: Float32Array };
  readonly sums: Float32Array;
  readonly received: Float32Array;
  readonly value: { dim: number; numbers: Float32Array } | null;
  readonly stages: { name: string; title: string; numbers: Float32Array }[];
  private readonly top: { count: number; keys: Uint32Array; weights: Float32Array } | null;
  private filtered: { picture: Picture; filter: Filter; result: Uint8Array } | undefined;
  private ranked: { filter: Filter; rows: Map<number, Set<number>> } | undefined;

  constructor(private readonly payload: AttentionPayload, readonly head: Head, details: Details, arrived: () => void) {
    this.columns = payload.key_len;
    this.pictures = new Pictures(head, payload.levels, details, arrived);
    this.exact = head.exact === null ? null : floats(head.exact);
    this.statistics = { entropy: floats(head.entropy), distance: floats(head.distance), first: floats(head.first) };
    this.sums = floats(head.sums);
    this.rows = this.sums.length;
    this.received = floats(head.received);
    this.value = head.value && { dim: head.value.dim, numbers: floats(head.value.numbers) };
    this.stages = head.stages.map((stage) => ({ ...stage, numbers: floats(stage.numbers) }));
    this.top = head.top && { count: head.top.count, keys: integers(head.top.keys), weights: floats(head.top.weights) };
  }

  /** The place of the head that this one should equal, where both are known exactly. */
  comparedWith<T extends { numbers: HeadNumbers }>(places: T[]): T | undefined {
    if (!this.exact || !this.head.against) return undefined;
    return places.find(({ numbers }) => numbers.head.id === this.head.against && numbers.exact);
  }

  /** How many of a row's largest weights can be told, even where the first token is hidden: Python sends one more. */
  get mostTop(): number {
    return this.exact ? this.columns : Math.max(0, (this.top?.count ?? 0) - 1);
  }

  /** The picture in which a cell is one query and one key, if there is one. */
  private get finest(): Picture | undefined {
    const index = this.pictures.levels.findIndex((level) => level.per_row === 1 && level.per_column === 1);
    return index < 0 ? undefined : this.pictures.get(index);
  }

  at(row: number, key: number, filter: Filter, finest = this.finest): Entry {
    const entry = this.told(row, key, finest);
    return entry.known === "masked" || this.passes(row, entry, filter) ? entry : { ...entry, known: "left out" };
  }

  private passes(row: number, { at, weight }: Entry, filter: Filter): boolean {
    if (filter.sinkHidden && at === 0) return false;
    return !(weight < filter.least) && (!filter.top || this.rank(row, filter).has(at));
  }

  /** The keys of the largest weights of a row. */
  private rank(row: number, filter: Filter): Set<number> {
    if (this.ranked?.filter !== filter) this.ranked = { filter, rows: new Map() };
    const { rows } = this.ranked;
    let keys = rows.get(row);
    if (!keys) rows.set(row, (keys = new Set(this.largest(row, filter).map(({ at }) => at))));
    return keys;
  }

  private told(row: number, key: number, finest: Picture | undefined): Entry {
    const cell = row * this.columns + key;
    if (this.exact) {
      const weight = this.exact[cell]!;
      return { at: key, weight, known: Number.isNaN(weight) ? "masked" : "exact" };
    }
    let most = Infinity;
    if (this.top) {
      const { count, keys, weights } = this.top;
      for (let place = row * count; place < (row + 1) * count; place++) {
        if (keys[place] === key) return { at: key, weight: weights[place]!, known: "exact" };
      }
      // What isn't among the largest is no larger than the least of them, whatever the picture says.
      most = weights[(row + 1) * count - 1]!;
    }
    if (!finest) return { at: key, weight: NaN, known: "unknown" };
    const weight = weightOf(finest.bytes[cell]!, this.payload.low);
    return Number.isNaN(weight) ? { at: key, weight, known: "masked" } : { at: key, weight: Math.min(weight, most), known: "about" };
  }

  row(row: number, filter: Filter): Line {
    const finest = this.finest;
    const line: Line = { weights: new Float32Array(this.columns), known: [] };
    for (let key = 0; key < this.columns; key++) put(line, key, this.at(row, key, filter, finest));
    return line;
  }

  /** Who looks at a key: by computed row. */
  column(key: number, filter: Filter): Line {
    const finest = this.finest;
    const line: Line = { weights: new Float32Array(this.rows), known: [] };
    for (let row = 0; row < this.rows; row++) put(line, row, this.at(row, key, filter, finest));
    return line;
  }

  /** What a row makes of the values: the sum of each value times its weight. */
  context(row: number): Float32Array | null {
    const { exact, value, columns } = this;
    if (!exact || !value) return null;
    const result = new Float32Array(value.dim);
    for (let key = 0; key < columns; key++) {
      const weight = exact[row * columns + key]!;
      if (Number.isNaN(weight)) continue;
      for (let at = 0; at < value.dim; at++) result[at]! += weight * value.numbers[key * value.dim + at]!;
    }
    return result;
  }

  /** The bytes of a picture with what a filter leaves out as weights of 0; the mask stays. */
  filter(picture: Picture, filter: Filter): Uint8Array {
    if (!filter.top && !filter.least && !filter.sinkHidden) return picture.bytes;
    const last = this.filtered;
    if (last && last.picture === picture && last.filter === filter) return last.result;
    const result = this.exact || filter.top ? this.onlyPassing(picture, filter) : this.byShade(picture, filter);
    this.filtered = { picture, filter, result };
    return result;
  }

  private byShade(picture: Picture, { least, sinkHidden }: Filter): Uint8Array {
    const result = picture.bytes.map((byte) => (weightOf(byte, this.payload.low) < least ? 1 : byte));
    // The first cell of a coarse level covers more keys than the sink: it is left out whole.
    if (sinkHidden) for (let at = 0; at < result.length; at += picture.columns) result[at] = Math.min(1, result[at]!);
    return result;
  }

  private onlyPassing(picture: Picture, filter: Filter): Uint8Array {
    const result = picture.bytes.map((byte) => Math.min(1, byte));
    for (let row = 0; row < this.rows; row++) {
      const start = Math.floor(row / picture.per_row) * picture.columns;
      for (const { at, weight } of this.largest(row, filter)) {
        const cell = start + Math.floor(at / picture.per_column);
        result[cell] = Math.max(result[cell]!, byteOf(weight, this.payload.low));
      }
    }
    return result;
  }

  /** A row's largest weights, as many as can be told exactly. */
  private largest(row: number, { top, least, sinkHidden }: Filter): Entry[] {
    const entries = this.exact
      ? sorted(this.row(row, UNFILTERED), this.columns)
      : Array.from({ length: this.top?.count ?? 0 }, (_, place): Entry => {
          const cell = row * this.top!.count + place;
          return { at: this.top!.keys[cell]!, weight: this.top!.weights[cell]!, known: "exact" };
        });
    const passing = entries.filter(({ at, weight }) => at !== NO_KEY && weight >= least && !(sinkHidden && at === 0));
    return top ? passing.slice(0, top) : passing;
  }

  /** From where to where the weights go that are shown. */
  range({ sinkHidden }: Filter): Range {
    const { low, key_len } = this.payload;
    const coarse = this.pictures.get(0);
    if (!coarse) return { low, key_len, most: 1 };
    const bytes = sinkHidden ? coarse.bytes.filter((_, at) => at % coarse.columns !== 0) : coarse.bytes;
    return { low, key_len, most: weightOf(Math.max(1, largest(bytes)), low) || 1 };
  }
}

function put(line: Line, at: number, entry: Entry): void {
  line.weights[at] = entry.weight;
  line.known[at] = entry.known;
}

/** The largest entries of a line that may be attended to, falling; of equal ones those that are exact, then the first. */
export function sorted({ weights, known }: Line, count: number): Entry[] {
  const result: Entry[] = [];
  for (let at = 0; at < weights.length; at++) {
    const entry: Entry = { at, weight: weights[at]!, known: known[at]! };
    if (entry.known !== "exact" && entry.known !== "about") continue;
    if (result.length === count && !before(entry, result[count - 1]!)) continue;
    let place = result.length;
    while (place > 0 && before(entry, result[place - 1]!)) place -= 1;
    result.splice(place, 0, entry);
    if (result.length > count) result.pop();
  }
  return result;
}

const before = (one: Entry, other: Entry): boolean =>
  one.weight > other.weight || (one.weight === other.weight && one.known === "exact" && other.known === "about");
