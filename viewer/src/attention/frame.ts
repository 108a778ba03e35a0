// Where rows and columns lie on the canvas, zoomed and moved.
import type { Point, Zoom } from "./zooming";

/** Room round the matrix for labels, bars and strips. */
export interface Margins {
  left: number;
  top: number;
  right: number;
  bottom: number;
  /** How wide each strip is. */
  strip: number;
}

const MOST_CELL = 72;

export class Frame {
  readonly width: number;
  readonly height: number;

  /**
   * @param room the width of the whole figure; the height follows from it.
   * @param queries how many there are; rows are fewer where they are sampled.
   */
  constructor(
    room: number,
    readonly margins: Margins,
    readonly rows: number,
    readonly columns: number,
    queries: number,
    readonly zoom: Zoom,
  ) {
    this.width = Math.max(60, Math.min(room - margins.left - margins.right, columns * MOST_CELL));
    // Cells are square where that gives a matrix of some height that fits on a screen.
    const square = (this.width / columns) * queries;
    this.height = Math.min(rows * MOST_CELL, Math.max(Math.min(square, 640), Math.min(120, rows * 28)));
  }

  get extent(): [Point, Point] {
    const { left, top } = this.margins;
    return [[left, top], [left + this.width, top + this.height]];
  }

  get fullWidth(): number {
    return this.margins.left + this.width + this.margins.right;
  }

  get fullHeight(): number {
    return this.margins.top + this.height + this.margins.bottom;
  }

  /** How large a cell is on the screen. */
  get cell(): { row: number; column: number } {
    return { row: (this.height / this.rows) * this.zoom.k, column: (this.width / this.columns) * this.zoom.k };
  }

  /** How far one can zoom: until cells are large enough for numbers. */
  get mostZoom(): number {
    return Math.max(1, 64 / Math.min(this.width / this.columns, this.height / this.rows));
  }

  x(column: number): number {
    return this.margins.left + (column / this.columns - this.zoom.u) * this.width * this.zoom.k;
  }

  y(row: number): number {
    return this.margins.top + (row / this.rows - this.zoom.v) * this.height * this.zoom.k;
  }

  /** The column under a place, or null beside the matrix. */
  column(x: number): number | null {
    const share = (x - this.margins.left) / this.width;
    return share < 0 || share >= 1 ? null : Math.min(this.columns - 1, Math.floor((share / this.zoom.k + this.zoom.u) * this.columns));
  }

  row(y: number): number | null {
    const share = (y - this.margins.top) / this.height;
    return share < 0 || share >= 1 ? null : Math.min(this.rows - 1, Math.floor((share / this.zoom.k + this.zoom.v) * this.rows));
  }

  /** The columns and rows that can be seen: from, to (without it). */
  get seen(): { columns: [number, number]; rows: [number, number] } {
    const [[left, top], [right, bottom]] = this.extent;
    return {
      columns: [this.column(left)!, this.column(right - 0.01)! + 1],
      rows: [this.row(top)!, this.row(bottom - 0.01)! + 1],
    };
  }
}
