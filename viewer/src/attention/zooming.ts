// Zoom and movement of a canvas by wheel, pointer and fingers. A wheel that would leave the whole, and one finger on the
// whole, scroll the page.
import { useEffect, useRef, useState } from "preact/hooks";

/** A place p of the whole is seen at k * p + (x, y). */
export interface Zoom {
  k: number;
  x: number;
  y: number;
}

export type Point = [number, number];

export const WHOLE: Zoom = { k: 1, x: 0, y: 0 };

/** What is zoomed: a box that stays filled, and how far. */
export interface Bounds {
  extent: [Point, Point];
  mostZoom: number;
}

export function scaled(zoom: Zoom, by: number, [x, y]: Point, bounds: Bounds): Zoom {
  const k = Math.min(bounds.mostZoom, Math.max(1, zoom.k * by));
  const share = k / zoom.k;
  return filling({ k, x: x - (x - zoom.x) * share, y: y - (y - zoom.y) * share }, bounds);
}

export function shifted({ k, x, y }: Zoom, [right, down]: Point, bounds: Bounds): Zoom {
  return filling({ k, x: x + right, y: y + down }, bounds);
}

/** The nearest zoom under which the whole fills its box. */
function filling({ k, x, y }: Zoom, { extent: [[left, top], [right, bottom]] }: Bounds): Zoom {
  return { k, x: within(x, right - k * right, left - k * left), y: within(y, bottom - k * bottom, top - k * top) };
}

const within = (value: number, least: number, most: number): number => Math.min(most, Math.max(least, value));

/** How far a pointer may move in a click. */
const STILL = 4;

/** The zoom of a canvas and what sets it; `bounds` anew means the whole again. */
export function useZoom(canvas: { current: HTMLCanvasElement | null }, bounds: Bounds) {
  const [zoom, setZoom] = useState(WHOLE);
  const now = useRef({ zoom, bounds });
  now.current = { zoom, bounds };
  useEffect(() => setZoom(WHOLE), [bounds]);
  useEffect(() => {
    const set = (next: Zoom) => {
      now.current.zoom = next;
      setZoom(next);
    };
    return listen(canvas.current!, () => now.current, set);
  }, []);
  return [zoom, setZoom] as const;
}

function listen(element: HTMLElement, now: () => { zoom: Zoom; bounds: Bounds }, set: (zoom: Zoom) => void): () => void {
  const pointers = new Map<number, Point>();
  let path = 0;
  const place = (event: MouseEvent): Point => {
    const box = element.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };

  const listeners: { [name: string]: (event: any) => void } = {
    wheel(event: WheelEvent) {
      const { zoom, bounds } = now();
      if (zoom.k === 1 && event.deltaY >= 0) return;
      event.preventDefault();
      // Lines and pages of a wheel, and fingers on a pad, which come with ctrlKey, count for more than its pixels.
      const unit = [0.002, 0.05, 1][event.deltaMode]! * (event.ctrlKey ? 10 : 1);
      set(scaled(zoom, 2 ** (-event.deltaY * unit), place(event), bounds));
    },
    pointerdown(event: PointerEvent) {
      if (event.button) return;
      if (!pointers.size) path = 0;
      pointers.set(event.pointerId, place(event));
    },
    pointermove(event: PointerEvent) {
      const from = pointers.get(event.pointerId);
      if (!from) return;
      const to = place(event);
      const { zoom, bounds } = now();
      pointers.set(event.pointerId, to);
      path += Math.hypot(to[0] - from[0], to[1] - from[1]);
      const [other] = [...pointers].filter(([id]) => id !== event.pointerId).map(([, point]) => point);
      if (other) set(scaled(zoom, distance(to, other) / (distance(from, other) || 1), other, bounds));
      else if (path > STILL) set(shifted(zoom, [to[0] - from[0], to[1] - from[1]], bounds));
      if (path > STILL) element.setPointerCapture(event.pointerId);
    },
    pointerup: (event: PointerEvent) => void pointers.delete(event.pointerId),
    pointercancel: (event: PointerEvent) => void pointers.delete(event.pointerId),
    click(event: MouseEvent) {
      if (path > STILL) event.stopImmediatePropagation();
    },
  };
  const how = { passive: false, capture: true };
  for (const [name, listener] of Object.entries(listeners)) element.addEventListener(name, listener, how);
  return () => {
    for (const [name, listener] of Object.entries(listeners)) element.removeEventListener(name, listener, how);
  };
}

const distance = (one: Point, other: Point): number => Math.hypot(one[0] - other[0], one[1] - other[1]);
