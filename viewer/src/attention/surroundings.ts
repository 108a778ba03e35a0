// What stands round the large matrix: tokens, a bar for each key above it, and the statistics of each row beside it.
import { largest } from "../numbers";
import { css, mix, type Palette } from "./colours";
import type { Cell } from "./drawing";
import type { Frame, Margins } from "./frame";
import type { Tokens } from "./tokens";

const FONT = "11px system-ui, sans-serif";
const BARS = 26;
const GAP = 4;
/** Between the matrix and the strips. */
const EDGE = 6;
/** Labels of columns lean by this angle where they don't fit side by side. */
const LEAN = -Math.PI / 3;
/** Pixels that such a label needs. */
const LEANING = 14;

export interface Strip {
  title: string;
  values: Float32Array;
  /** What a full bar stands for. */
  most: number;
}

export interface Surroundings {
  frame: Frame;
  palette: Palette;
  queries: (row: number) => string;
  keys: Tokens;
  cell: Cell;
  /** A bar for each key: the weights of the row that is pointed at, or what keys are given in the mean. */
  bars: { title: string; values: Float32Array };
  strips: Strip[];
  /** Keys that the row draws most from: their labels are always there. */
  lit: number[];
}

export function marginsFor(room: number, labels: { left: number; top: number }, strips: number): Margins {
  const narrow = room < 520;
  const strip = narrow ? 18 : 44;
  return {
    left: Math.min(narrow ? 64 : 110, labels.left + 10),
    top: Math.min(76, labels.top + 14) + BARS + GAP,
    // The leaning title of the last strip takes some room too.
    right: EDGE + strips * (strip + GAP) + (narrow ? 12 : 0),
    bottom: 20,
    strip,
  };
}

/** How wide the widest of some labels is. */
export function labelWidth(labels: string[]): number {
  const context = document.createElement("canvas").getContext("2d")!;
  context.font = FONT;
  return largest(labels.map((label) => context.measureText(label).width));
}

export function drawSurroundings(context: CanvasRenderingContext2D, scene: Surroundings): void {
  context.font = FONT;
  rowLabels(context, scene);
  columnLabels(context, scene);
  bars(context, scene);
  strips(context, scene);
  axisNames(context, scene);
}

/** The indices whose labels fit, with `room` pixels for each. */
function thinned([from, to]: [number, number], pixels: number, room: number): number[] {
  // 1, 2, 5, 10, 20, …
  let step = 1;
  for (let turn = 0; step * pixels < room; turn++) step *= [2, 2.5, 2][turn % 3]!;
  const result = [];
  for (let at = Math.ceil(from / step) * step; at < to; at += step) result.push(at);
  return result;
}

function rowLabels(context: CanvasRenderingContext2D, { frame, palette, queries, cell }: Surroundings): void {
  const { left, top } = frame.margins;
  context.textAlign = "right";
  context.textBaseline = "middle";
  const label = (row: number) => {
    const y = frame.y(row + 0.5);
    if (y >= top && y <= top + frame.height) context.fillText(queries(row), left - 6, y, left - 8);
  };
  context.fillStyle = css(palette.faint);
  const near = (row: number) => cell.row !== null && Math.abs(row - cell.row) * frame.cell.row < 13;
  thinned(frame.seen.rows, frame.cell.row, 13).filter((row) => !near(row)).forEach(label);
  if (cell.row === null) return;
  context.fillStyle = css(palette.accent);
  context.font = `600 ${FONT}`;
  label(cell.row);
  context.font = FONT;
}

function columnLabels(context: CanvasRenderingContext2D, { frame, palette, keys, cell, lit }: Surroundings): void {
  const { left, top } = frame.margins;
  const bottom = top - BARS - GAP - 4;
  const shown = thinned(frame.seen.columns, frame.cell.column, LEANING);
  const flat = shown.every((at) => context.measureText(keys.label(at)).width < frame.cell.column - 4);
  context.textBaseline = flat ? "alphabetic" : "middle";
  context.textAlign = flat ? "center" : "left";
  const label = (at: number) => {
    const x = frame.x(at + 0.5);
    if (x < left || x > left + frame.width) return;
    context.save();
    context.translate(x, bottom);
    if (!flat) context.rotate(LEAN);
    context.fillText(keys.label(at), 0, 0, flat ? undefined : (bottom - 2) / Math.sin(-LEAN));
    context.restore();
  };
  // The key that is pointed at, then what is drawn from most, as far as labels don't run into each other.
  const chosen: number[] = [];
  const free = (at: number) => chosen.every((other) => Math.abs(at - other) * frame.cell.column >= LEANING + 4);
  for (const at of cell.column === null ? lit : [cell.column, ...lit]) if (free(at)) chosen.push(at);
  context.fillStyle = css(palette.faint);
  shown.filter(free).forEach(label);
  context.font = `600 ${FONT}`;
  for (const at of chosen) {
    context.fillStyle = css(at === cell.column ? palette.accent : palette.ink);
    label(at);
  }
  context.font = FONT;
}

/** The places of bars to draw: of those that begin on one pixel the longest. */
function longest(values: Float32Array, [from, to]: [number, number], begin: (at: number) => number): number[] {
  const result: number[] = [];
  let pixel = NaN;
  for (let at = from; at < to; at++) {
    const here = Math.floor(begin(at));
    const last = result.length - 1;
    if (here !== pixel) result.push(at);
    else if ((values[at] || 0) > (values[result[last]!] || 0)) result[last] = at;
    pixel = here;
  }
  return result;
}

function bars(context: CanvasRenderingContext2D, { frame, palette, bars: { title, values } }: Surroundings): void {
  const { left, top } = frame.margins;
  const bottom = top - GAP;
  const most = largest(values) || 1;
  context.fillStyle = css(palette.heat);
  for (const at of longest(values, frame.seen.columns, (column) => frame.x(column))) {
    const x = Math.max(left, frame.x(at));
    const end = Math.min(left + frame.width, frame.x(at + 1));
    const height = ((values[at] || 0) / most) * BARS;
    context.fillRect(x, bottom - height, Math.max(1, end - x - (frame.cell.column > 6 ? 1 : 0)), height);
  }
  context.fillStyle = css(palette.rule);
  context.fillRect(left, bottom, frame.width, 1);
  context.fillStyle = css(palette.faint);
  context.textAlign = "right";
  context.textBaseline = "middle";
  context.fillText(title, left - 6, bottom - BARS / 2, left - 8);
}

function strips(context: CanvasRenderingContext2D, { frame, palette, strips, cell }: Surroundings): void {
  const { left, top, strip: width } = frame.margins;
  strips.forEach((strip, place) => {
    const x = left + frame.width + EDGE + place * (width + GAP) + GAP;
    context.fillStyle = css(palette.panel);
    context.fillRect(x, top, width, frame.height);
    for (const row of longest(strip.values, frame.seen.rows, (row) => frame.y(row))) {
      const y = Math.max(top, frame.y(row));
      const end = Math.min(top + frame.height, frame.y(row + 1));
      const length = Math.min(1, (strip.values[row] || 0) / strip.most) * width;
      context.fillStyle = css(row === cell.row ? palette.accent : mix(palette.panel, palette.faint, 0.55));
      context.fillRect(x, y, length, Math.max(1, end - y - (frame.cell.row > 6 ? 1 : 0)));
    }
    context.fillStyle = css(palette.faint);
    context.save();
    context.translate(x + width / 2, top - GAP - 2);
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.rotate(LEAN);
    context.fillText(strip.title, 0, 0);
    context.restore();
  });
}

function axisNames(context: CanvasRenderingContext2D, { frame, palette }: Surroundings): void {
  const { left, top } = frame.margins;
  context.fillStyle = css(palette.faint);
  context.textAlign = "left";
  context.textBaseline = "top";
  context.fillText("queries ↓ keys →", left, top + frame.height + 6);
}
