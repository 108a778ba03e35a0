// One head large: a canvas that is zoomed, moved, pointed at, and walked over by keys.
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Palette } from "./colours";
import { drawCells, type Cell } from "./drawing";
import { Frame } from "./frame";
import { Legend } from "./Legend";
import type { Shown } from "./shown";
import { drawSurroundings, labelWidth, marginsFor, type Strip } from "./surroundings";
import type { Tokens } from "./tokens";
import { scaled, shifted, useGestures, WHOLE, type Point, type Zoom } from "./zooming";

interface Props {
  title: string;
  /** What stands above it where several stand beside each other; only the first of these has tools and all of the legend. */
  caption?: { name: string; first: boolean };
  rows: number;
  columns: number;
  /** How many queries there are; rows are fewer where they are sampled. */
  queryCount: number;
  shown: Shown;
  palette: Palette;
  queries: (row: number) => string;
  keys: Tokens;
  bars: { title: string; values: Float32Array };
  strips: Strip[];
  lit: number[];
  cell: Cell;
  marked: [number, number] | null;
  zoom: Zoom;
  setZoom: (zoom: Zoom) => void;
  /** A cell that the pointer is over. */
  point: (cell: Cell) => void;
  /** A cell that was clicked on or gone to by keys. */
  choose: (cell: Cell | null) => void;
}

const SAMPLE = 300;

export function Matrix(props: Props) {
  const { title, rows, columns, queryCount, shown, queries, keys, cell, marked, zoom, setZoom, point, choose } = props;
  const leads = props.caption?.first ?? true;
  const canvas = useRef<HTMLCanvasElement>(null);
  const room = useRoom(canvas);
  const margins = useMemo(() => {
    const some = (count: number) => Array.from({ length: Math.min(count, SAMPLE) }, (_, at) => count - 1 - at);
    const left = labelWidth(some(rows).map(queries));
    const top = labelWidth(some(columns).map((key) => keys.label(key))) * Math.sin(Math.PI / 3);
    return marginsFor(room, { left: Math.max(left, 52), top: Math.max(top, 42) }, props.strips.length);
  }, [room, rows, columns, queries, keys, props.strips.length]);
  const frame = new Frame(room, margins, rows, columns, queryCount, zoom);
  useGestures(canvas, frame, setZoom);
  const density = window.devicePixelRatio;
  const { row, column } = frame.cell;
  const picture = shown.best({ row: row * density, column: column * density });

  useLayoutEffect(() => {
    const { current } = canvas;
    if (!current || !room) return;
    current.width = Math.round(frame.fullWidth * density);
    current.height = Math.round(frame.fullHeight * density);
    current.style.width = `${frame.fullWidth}px`;
    const context = current.getContext("2d")!;
    context.scale(density, density);
    const bytes = picture ? shown.bytes(picture) : new Uint8Array();
    drawCells(context, { ...props, frame, scale: shown.scale, picture, bytes, text: shown.text });
    drawSurroundings(context, { ...props, frame });
  });

  function cellAt(event: MouseEvent): Cell {
    const box = canvas.current!.getBoundingClientRect();
    return { row: frame.row(event.clientY - box.top), column: frame.column(event.clientX - box.left) };
  }

  const scale = (by: number) => setZoom(scaled(zoom, by, centre(frame, cell), frame));

  function onKeyDown(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const next = moved(event, cell, rows, columns);
    if (next) {
      choose(next);
      setZoom(shifted(zoom, away(frame, next), frame));
    } else if (event.key === "+" || event.key === "=") scale(1.5);
    else if (event.key === "-") scale(1 / 1.5);
    else if (event.key === "0") setZoom(WHOLE);
    else if (event.key === "Escape") choose(null);
    else return;
    event.preventDefault();
  }

  return (
    <figure class="matrix">
      {props.caption && <h3>{props.caption.name}</h3>}
      <canvas ref={canvas} data-box={[margins.left, margins.top, frame.width, frame.height].join(" ")} tabIndex={0} role="application" aria-roledescription="heat map" aria-label={title}
        aria-keyshortcuts="ArrowUp ArrowDown ArrowLeft ArrowRight Home End PageUp PageDown + - 0 Escape"
        style={{ touchAction: zoom.k > 1 ? "none" : "pan-x pan-y" }}
        onPointerMove={(event) => point(cellAt(event))} onClick={(event) => choose(cellAt(event))} onKeyDown={onKeyDown} />
      <figcaption>
        <div class="line zoom">
          {leads && frame.mostZoom > 1 && (
            <>
              <button type="button" aria-label="Zoom in" disabled={zoom.k >= frame.mostZoom} onClick={() => scale(2)}>+</button>
              <button type="button" aria-label="Zoom out" disabled={zoom.k === 1} onClick={() => scale(0.5)}>−</button>
              <button type="button" disabled={zoom.k === 1} onClick={() => setZoom(WHOLE)}>whole</button>
            </>
          )}
          <Legend scale={shown.scale} picture={picture} lost={shown.lost} whole={leads}
            marked={marked && `query ${queries(marked[0])}, key ${keys.label(marked[1])}`} />
        </div>
      </figcaption>
    </figure>
  );
}

/** The width that the figure may take. */
function useRoom(canvas: { current: HTMLCanvasElement | null }): number {
  const [room, setRoom] = useState(0);
  useLayoutEffect(() => {
    const parent = canvas.current!.parentElement!;
    const watch = new ResizeObserver(() => setRoom(parent.clientWidth));
    watch.observe(parent);
    setRoom(parent.clientWidth);
    return () => watch.disconnect();
  }, []);
  return room;
}

/** The middle of a cell on the screen, or of the figure. */
function centre(frame: Frame, cell: Cell): Point {
  const [[left, top]] = frame.extent;
  return [
    cell.column === null ? left + frame.width / 2 : frame.x(cell.column + 0.5),
    cell.row === null ? top + frame.height / 2 : frame.y(cell.row + 0.5),
  ];
}

/** How far all has to move for a cell to be seen whole. */
function away(frame: Frame, cell: Cell): Point {
  const { extent: [start, end], cell: size } = frame;
  const half = [size.column / 2, size.row / 2];
  return centre(frame, cell).map((at, axis) => (
    Math.max(0, start[axis]! + half[axis]! - at) + Math.min(0, end[axis]! - half[axis]! - at))) as Point;
}

/** Where a key leads from a cell, or nothing if it is no such key. */
function moved(event: KeyboardEvent, { row, column }: Cell, rows: number, columns: number): Cell | undefined {
  const steps: Record<string, [number, number]> = {
    ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
    PageUp: [-10, 0], PageDown: [10, 0], Home: [0, -columns], End: [0, columns],
  };
  const step = steps[event.key];
  if (!step) return undefined;
  const to = (at: number | null, by: number, count: number) => Math.min(count - 1, Math.max(0, (at ?? 0) + by));
  return { row: to(row, step[0], rows), column: to(column, step[1], columns) };
}
