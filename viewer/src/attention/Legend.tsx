// What colours mean, and that what is masked is not a weight of 0.
import { useMemo } from "preact/hooks";
import type { Scale } from "./colours";
import type { Picture } from "./pictures";
import { Thumb } from "./Thumb";

const BYTES = Uint8Array.from({ length: 255 }, (_, at) => at + 1);

export function Legend({ scale, picture }: { scale: Scale; picture: Picture | undefined }) {
  const pooled = picture && picture.per_row * picture.per_column > 1;
  const colours = useMemo(() => scale.colours, [scale]);
  return (
    <p class="legend">
      <span>{scale.low}</span>
      <Thumb rows={1} columns={BYTES.length} bytes={BYTES} colours={colours} />
      <span>{scale.high}</span>
      <span class="masked"><span class="swatch" aria-hidden="true" /> may not attend</span>
      {pooled && <span>a cell is {picture.per_row} × {picture.per_column} and shows its largest weight</span>}
    </p>
  );
}
