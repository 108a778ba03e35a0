// Numbers as Python hands them over, and as a reader sees them.
import type { Numbers } from "./payload";

export function bytes(base64: string): Uint8Array<ArrayBuffer> {
  const text = atob(base64);
  const result = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) result[at] = text.charCodeAt(at);
  return result;
}

export const floats = (numbers: Numbers): Float32Array => new Float32Array(bytes(numbers).buffer);
export const integers = (numbers: Numbers): Uint32Array => new Uint32Array(bytes(numbers).buffer);

/** Up to three digits that count: "0.25", "0.00312", "−1.2e−7", "−∞" for what a mask hides. */
export function short(value: number): string {
  if (Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e5)) return value.toExponential(1).replace("-", "−").replace("e-", "e−");
  return String(Number(value.toPrecision(3))).replace("-", "−");
}

/** As it stands in a cell: two digits of the largest number, "·" for what they don't tell from 0. */
export function inCell(value: number, most: number): string {
  if (value === 0 || !Number.isFinite(value)) return short(value);
  if (most < 1e-3 || most >= 1e5) return Math.abs(value) < most / 200 ? "·" : value.toExponential(0).replaceAll("-", "−");
  const text = value.toFixed(Math.max(0, 1 - Math.floor(Math.log10(most))));
  return Number(text) === 0 ? "·" : text.replace("-", "−");
}

/** The same of a difference: with its sign, whichever it is. */
export function signedInCell(value: number, most: number): string {
  const text = inCell(value, most);
  return value > 0 && /^\d/.test(text) ? `+${text}` : text;
}

/** A weight in a column of weights. */
export const aligned = (weight: number): string =>
  weight === 0 ? "0" : Math.abs(weight) < 5e-5 ? "<0.0001" : weight.toFixed(4);

/** Two digits behind the point, for columns of numbers. */
export const fixed = (value: number): string =>
  Math.abs(value) < 1000 ? value.toFixed(2).replace(/^-0\.00$/, "0.00").replace("-", "−") : short(value);

export function mean(values: Float32Array): number {
  let sum = 0;
  let count = 0;
  for (const value of values) {
    if (Number.isFinite(value)) {
      sum += value;
      count += 1;
    }
  }
  return count ? sum / count : NaN;
}

/** The largest of finite values, at least `floor`. */
export function largest(values: ArrayLike<number>, floor = 0): number {
  let result = floor;
  for (let at = 0; at < values.length; at++) {
    const value = values[at]!;
    if (value > result && Number.isFinite(value)) result = value;
  }
  return result;
}
