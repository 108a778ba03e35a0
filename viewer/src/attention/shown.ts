// What the large matrix shows: weights by their pictures, or the numbers of a stage on the way to them.
import { inCell, largest, short } from "../numbers";
import { signedByte, signedScale, weightScale, type Curve, type Palette, type Scale } from "./colours";
import type { Entry, Filter, HeadNumbers } from "./head";
import type { Picture } from "./pictures";

export interface Shown {
  scale: Scale;
  /** The picture that suits the size of cells on the screen, in pixels. */
  best(pixels: { row: number; column: number }): Picture | undefined;
  bytes(picture: Picture): Uint8Array;
  /** Whether a picture is missing, or can't be read. */
  lost: boolean;
  /** What stands in a cell; "" for nothing. */
  text(row: number, column: number): string;
}

/** "0.25" if it is exact, "≈ 0.25" if the picture told it. */
export function said({ weight, known }: Entry): string {
  if (known === "masked") return "masked";
  if (known === "unknown") return "not known";
  if (known === "left out") return "filtered out";
  return (known === "about" ? "≈ " : "") + short(weight);
}

/** Weights; beside those of another head they are shaded alike. */
export function weightsShown(
  numbers: HeadNumbers, palette: Palette, filter: Filter, curve: Curve, beside?: HeadNumbers,
): Shown {
  const own = numbers.range(filter);
  const range = { ...own, most: Math.max(own.most, beside?.range(filter).most ?? 0) };
  const most = Math.min(range.most, 0.99);
  return {
    scale: weightScale(palette, range, curve),
    best: (pixels) => numbers.pictures.best(pixels),
    bytes: (picture) => numbers.filter(picture, filter),
    lost: numbers.pictures.lost,
    text(row, column) {
      const { weight, known } = numbers.at(row, column, filter);
      if (known !== "exact" && known !== "about") return "";
      return (known === "about" ? "≈" : "") + inCell(weight, most);
    },
  };
}

export function stageShown(
  values: Float32Array, rows: number, columns: number, palette: Palette, written: (value: number, most: number) => string = inCell,
): Shown {
  const most = largest(values.map(Math.abs));
  const bytes = Uint8Array.from(values, (value) => signedByte(value, most));
  const picture: Picture = { rows, columns, per_row: 1, per_column: 1, bytes };
  return {
    scale: signedScale(palette, most),
    best: () => picture,
    bytes: () => bytes,
    lost: false,
    text: (row, column) => written(values[row * columns + column]!, most),
  };
}

/** What a head has more or less of than the one it should equal; where one of them may not attend, it has 0. */
export function difference(got: Float32Array, expected: Float32Array): Float32Array {
  return got.map((value, at) => {
    const other = expected[at]!;
    return Number.isNaN(value) && Number.isNaN(other) ? NaN : (value || 0) - (other || 0);
  });
}
