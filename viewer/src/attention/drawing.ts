// The large matrix on its canvas: cells, numbers, and marks. What stands round it is in surroundings.ts.
import { css, inkOn, type Palette, type Scale } from "./colours";
import type { Frame } from "./frame";
import type { Picture } from "./pictures";

/** A row and a column; either may be missing: beside the matrix only one is pointed at. */
export interface Cell {
  row: number | null;
  column: number | null;
}

export interface Scene {
  frame: Frame;
  palette: Palette;
  scale: Scale;
  picture: Picture | undefined;
  /** The picture's bytes, filtered. */
  bytes: Uint8Array;
  /** What stands in a cell that is large enough. */
  text: (row: number, column: number) => string;
  cell: Cell;
  /** The first wrong cell. */
  marked: [number, number] | null;
}

export function drawCells(context: CanvasRenderingContext2D, scene: Scene): void {
  const { frame } = scene;
  const [[left, top]] = frame.extent;
  context.save();
  context.beginPath();
  context.rect(left, top, frame.width, frame.height);
  context.clip();
  if (scene.picture) {
    hatch(context, scene);
    pixels(context, scene, scene.picture);
    lines(context, scene);
    numbers(context, scene, scene.picture);
  } else {
    context.fillStyle = css(scene.palette.panel); // not known: neither masked nor a weight
    context.fillRect(left, top, frame.width, frame.height);
  }
  marks(context, scene);
  outline(context, scene);
  context.restore();
  context.strokeStyle = css(scene.palette.rule);
  context.strokeRect(left - 0.5, top - 0.5, frame.width + 1, frame.height + 1);
}

/** Lies under all cells and is seen where one may not be attended to. */
function hatch(context: CanvasRenderingContext2D, { frame, palette }: Scene): void {
  const [[left, top], [right, bottom]] = frame.extent;
  context.fillStyle = css(palette.masked);
  context.fillRect(left, top, frame.width, frame.height);
  context.strokeStyle = css(palette.hatch);
  context.lineWidth = 1;
  context.beginPath();
  for (let x = left - frame.height; x < right; x += 6) {
    context.moveTo(x, bottom);
    context.lineTo(x + frame.height, top);
  }
  context.stroke();
}

/** What can be seen of the picture: a pixel for each of its cells, then stretched. */
function pixels(context: CanvasRenderingContext2D, { frame, bytes, scale }: Scene, picture: Picture): void {
  const { columns, rows } = frame.seen;
  const fromColumn = Math.floor(columns[0] / picture.per_column);
  const fromRow = Math.floor(rows[0] / picture.per_row);
  const width = Math.ceil(columns[1] / picture.per_column) - fromColumn;
  const height = Math.ceil(rows[1] / picture.per_row) - fromRow;
  const image = new ImageData(width, height);
  const packed = new Uint32Array(image.data.buffer);
  for (let row = 0; row < height; row++) {
    const from = (fromRow + row) * picture.columns + fromColumn;
    for (let column = 0; column < width; column++) packed[row * width + column] = scale.table[bytes[from + column]!]!;
  }
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  canvas.getContext("2d")!.putImageData(image, 0, 0);
  const x = frame.x(fromColumn * picture.per_column);
  const y = frame.y(fromRow * picture.per_row);
  context.imageSmoothingEnabled = false;
  context.drawImage(canvas, x, y, width * picture.per_column * frame.cell.column, height * picture.per_row * frame.cell.row);
}

function lines(context: CanvasRenderingContext2D, { frame, palette }: Scene): void {
  const { cell, seen, extent: [[left, top], [right, bottom]] } = frame;
  if (Math.min(cell.row, cell.column) < 14) return;
  context.strokeStyle = css(palette.paper);
  context.lineWidth = 1;
  context.beginPath();
  for (let column = seen.columns[0]; column <= seen.columns[1]; column++) {
    context.moveTo(Math.round(frame.x(column)) + 0.5, top);
    context.lineTo(Math.round(frame.x(column)) + 0.5, bottom);
  }
  for (let row = seen.rows[0]; row <= seen.rows[1]; row++) {
    context.moveTo(left, Math.round(frame.y(row)) + 0.5);
    context.lineTo(right, Math.round(frame.y(row)) + 0.5);
  }
  context.stroke();
}

function numbers(context: CanvasRenderingContext2D, scene: Scene, picture: Picture): void {
  const { frame, bytes, scale } = scene;
  if (frame.cell.column < 18 || frame.cell.row < 16 || picture.per_row * picture.per_column > 1) return;
  context.font = `${frame.cell.column < 46 ? 10 : 12}px system-ui, sans-serif`;
  context.textAlign = "center";
  context.textBaseline = "alphabetic";
  const down = context.measureText("0").actualBoundingBoxAscent / 2;
  const found = [];
  const { rows, columns } = frame.seen;
  for (let row = rows[0]; row < rows[1]; row++) {
    for (let column = columns[0]; column < columns[1]; column++) {
      const byte = bytes[row * picture.columns + column]!;
      if (byte === 0) continue;
      const text = scene.text(row, column);
      if (!text) continue;
      // Numbers that don't all fit would be some here and none there.
      if (context.measureText(text).width > frame.cell.column - 4) return;
      found.push({ row, column, text, ink: inkOn(scale.colours[byte]!) });
    }
  }
  for (const { row, column, text, ink } of found) {
    context.fillStyle = ink;
    context.fillText(text, frame.x(column + 0.5), frame.y(row + 0.5) + down);
  }
}

/** The first wrong cell, to be seen on every shade. */
function outline(context: CanvasRenderingContext2D, { frame, palette, marked }: Scene): void {
  if (!marked) return;
  const [row, column] = marked;
  for (const [colour, width] of [[palette.paper, 6], [palette.ink, 2.5]] as const) {
    context.strokeStyle = css(colour);
    context.lineWidth = width;
    context.strokeRect(frame.x(column) + 2, frame.y(row) + 2, Math.max(2, frame.cell.column - 4), Math.max(2, frame.cell.row - 4));
  }
}

/** The row and the column that are pointed at, as bands, and their cell. */
function marks(context: CanvasRenderingContext2D, { frame, palette, cell: { row, column } }: Scene): void {
  const [[left, top]] = frame.extent;
  const { cell } = frame;
  context.strokeStyle = css(palette.accent);
  context.lineWidth = 1.5;
  const high = Math.max(cell.row, 2);
  const wide = Math.max(cell.column, 2);
  if (row !== null) context.strokeRect(left - 2, frame.y(row), frame.width + 4, high);
  context.setLineDash([3, 3]);
  if (column !== null) context.strokeRect(frame.x(column), top - 2, wide, frame.height + 4);
  context.setLineDash([]);
  if (row === null || column === null) return;
  context.lineWidth = 3;
  context.strokeRect(frame.x(column), frame.y(row), wide, high);
}
