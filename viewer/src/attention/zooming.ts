// Zoom and movement of a canvas by wheel, pointer and fingers. A wheel that would leave the whole, and one finger on the
// whole, scroll the page.
import { useEffect, useRef } from "preact/hooks";

/** How many times as large the whole is shown, and which part of its width and height lies before what is seen. */
export interface Zoom {
  k: number;
  u: number;
  v: number;
}

export type Point = [number, number];

export const WHOLE: Zoom = { k: 1, u: 0, v: 0 };

/** The box, in pixels, that what is seen fills, and how far one may zoom. */
export interface Bounds {
  extent: [Point, Point];
  mostZoom: number;
}

/** Larger by a factor, while what lies at a point stays there. */
export function scaled({ k, u, v }: Zoom, by: number, [x, y]: Point, { extent: [[left, top], [right, bottom]], mostZoom }: Bounds): Zoom {
  const larger = within(k * by, 1, mostZoom);
  const gain = 1 / k - 1 / larger;
  return filling({ k: larger, u: u + ((x - left) / (right - left)) * gain, v: v + ((y - top) / (bottom - top)) * gain });
}

/** Moved by some pixels. */
export function shifted({ k, u, v }: Zoom, [x, y]: Point, { extent: [[left, top], [right, bottom]] }: Bounds): Zoom {
  return filling({ k, u: u - x / (right - left) / k, v: v - y / (bottom - top) / k });
}

/** The nearest zoom that shows nothing beside the whole. */
function filling({ k, u, v }: Zoom): Zoom {
  return { k, u: within(u, 0, 1 - 1 / k), v: within(v, 0, 1 - 1 / k) };
}

const within = (value: number, least: number, most: number): number => Math.min(most, Math.max(least, value));

/** How far a pointer may move in a click. */
const STILL = 4;

/** What is zoomed now. */
type Zoomed = Bounds & { zoom: Zoom };

/** Sets the zoom of a canvas by wheel, pointer and fingers. */
export function useGestures(canvas: { current: HTMLCanvasElement | null }, zoomed: Zoomed, setZoom: (zoom: Zoom) => void): void {
  const now = useRef(zoomed);
  now.current = zoomed;
  useEffect(() => {
    const set = (zoom: Zoom) => {
      // Several events may come before the next drawing.
      now.current = { extent: now.current.extent, mostZoom: now.current.mostZoom, zoom };
      setZoom(zoom);
    };
    return listen(canvas.current!, () => now.current, set);
  }, []);
}

function listen(element: HTMLElement, now: () => Zoomed, set: (zoom: Zoom) => void): () => void {
  const pointers = new Map<number, Point>();
  let path = 0;
  const place = (event: MouseEvent): Point => {
    const box = element.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };

  const listeners: { [name: string]: (event: any) => void } = {
    wheel(event: WheelEvent) {
      const bounds = now();
      const { zoom } = bounds;
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
      const bounds = now();
      const { zoom } = bounds;
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
