// From bytes to colours: a table of 256, made from the page's own colours, so that a theme is a new table.

import { short } from "../numbers";

export type Rgb = [number, number, number];

const NAMES = ["paper", "panel", "ink", "faint", "rule", "accent", "heat", "more", "less", "masked", "hatch"] as const;

export type Palette = Record<(typeof NAMES)[number], Rgb>;

/** The colours that hold at an element now: light or dark, on a screen or on paper. */
export function paletteAt(element: Element): Palette {
  const probe = document.createElement("span");
  element.append(probe);
  const read = (name: string): Rgb => {
    probe.style.color = `var(--${name})`;
    const [red = 0, green = 0, blue = 0] = getComputedStyle(probe).color.match(/[\d.]+/g)?.map(Number) ?? [];
    return [red, green, blue];
  };
  const palette = Object.fromEntries(NAMES.map((name) => [name, read(name)])) as Palette;
  probe.remove();
  return palette;
}

export const css = ([red, green, blue]: Rgb, alpha = 1): string => `rgb(${red} ${green} ${blue} / ${alpha})`;

export const mix = (from: Rgb, to: Rgb, share: number): Rgb =>
  from.map((part, at) => Math.round(part + (to[at]! - part) * share)) as Rgb;

/** Black or white ink, whichever is read better on a shade. */
export function inkOn([red, green, blue]: Rgb): string {
  const linear = (part: number) => ((part / 255 + 0.055) / 1.055) ** 2.4;
  const light = 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
  return light > 0.18 ? "#000" : "#fff";
}

/** The weight that a byte of a picture stands for: see `low` in payload.ts. NaN for byte 0, what may not be attended to. */
export function weightOf(byte: number, low: number): number {
  if (byte === 0) return NaN;
  return byte === 1 ? 0 : 2 ** ((low * (255 - byte)) / 253);
}

export function byteOf(weight: number, low: number): number {
  if (Number.isNaN(weight)) return 0;
  if (weight < 2 ** low) return 1;
  return Math.min(255, Math.max(2, Math.round(255 - (253 * Math.log2(weight)) / low)));
}

/** How bytes look: a colour each, and what stands at the ends of the legend. */
export interface Scale {
  colours: Rgb[];
  /** The same, little-endian RGBA, for pixels; byte 0 is see-through, so that what lies under it tells the mask. */
  table: Uint32Array;
  /** Bytes from one end of the legend to the other, evenly. */
  legend: Uint8Array;
  low: string;
  high: string;
}

/** How many steps a legend has. */
const STEPS = 128;

function scale(
  colourOf: (byte: number) => Rgb, masked: Rgb, ends: [string, string], byteAt: (share: number) => number,
): Scale {
  const colours = Array.from({ length: 256 }, (_, byte) => (byte === 0 ? masked : colourOf(byte)));
  const pack = ([red, green, blue]: Rgb) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  const table = Uint32Array.from(colours, (colour, byte) => (byte === 0 ? 0 : pack(colour)));
  const legend = Uint8Array.from({ length: STEPS }, (_, step) => byteAt(step / (STEPS - 1)));
  return { colours, table, legend, low: ends[0], high: ends[1] };
}

/** How a weight becomes a shade: in proportion, by its square root, or by its logarithm. */
export type Curve = "linear" | "root" | "log";

export interface Range {
  low: number;
  /** The largest weight that is shown. */
  most: number;
  key_len: number;
}

/** Weights: from paper to the deepest shade. */
export function weightScale(palette: Palette, { low, most, key_len }: Range, curve: Curve): Scale {
  // The logarithm begins well below what a key gets of a row that is spread evenly.
  const least = Math.max(2 ** low, Math.min(most, 1) / (32 * key_len));
  const shares: Record<Curve, (weight: number) => number> = {
    linear: (weight) => weight / most,
    root: (weight) => Math.sqrt(weight / most),
    log: (weight) => Math.log(weight / least) / Math.log(most / least),
  };
  const colour = (byte: number) => {
    const weight = weightOf(byte, low);
    return mix(palette.paper, palette.heat, Math.min(1, Math.max(0, shares[curve](weight))));
  };
  const isLog = curve === "log";
  const byteAt = (share: number) => byteOf(isLog ? least * (most / least) ** share : most * share, low);
  return scale(colour, palette.masked, [isLog ? `≤ ${short(least)}` : "0", short(most)], byteAt);
}

/** Numbers of either sign, from -limit at byte 1 to limit at byte 255. */
export function signedScale(palette: Palette, limit: number): Scale {
  const colour = (byte: number): Rgb => {
    const share = (byte - 128) / 127;
    return mix(palette.paper, share < 0 ? palette.less : palette.more, Math.abs(share));
  };
  const ends: [string, string] = limit ? [short(-limit), short(limit)] : ["", "0 everywhere"];
  return scale(colour, palette.masked, ends, (share) => 1 + Math.round(254 * share));
}

export function signedByte(value: number, limit: number): number {
  if (Number.isNaN(value) || value === -Infinity) return 0;
  return Math.round(128 + 127 * Math.min(1, Math.max(-1, limit ? value / limit : 0)));
}
