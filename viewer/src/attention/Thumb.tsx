// A matrix at the size of a thumb.
import { useLayoutEffect, useRef } from "preact/hooks";
import type { Rgb } from "./colours";

interface Props {
  rows: number;
  columns: number;
  bytes: Uint8Array;
  colours: Rgb[];
}

export function Thumb({ rows, columns, bytes, colours }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useLayoutEffect(() => {
    const image = new ImageData(columns, rows);
    bytes.forEach((byte, at) => image.data.set([...colours[byte]!, 255], 4 * at));
    canvas.current!.getContext("2d")!.putImageData(image, 0, 0);
  }, [rows, columns, bytes, colours]);
  return <canvas ref={canvas} class="thumb" width={columns} height={rows} aria-hidden="true" />;
}
