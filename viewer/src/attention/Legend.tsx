// What colours mean, and that what is masked is not a weight of 0.
import type { Scale } from "./colours";
import type { Picture } from "./pictures";
import { Thumb } from "./Thumb";

interface Props {
  scale: Scale;
  picture: Picture | undefined;
  /** Whether a picture is missing, or can't be read. */
  lost: boolean;
  /** What the outlined cell is called; null for none. */
  marked: string | null;
  /** Whether what holds for all of several matrices is said here. */
  whole: boolean;
}

export function Legend({ scale, picture, lost, marked, whole }: Props) {
  const pooled = picture && picture.per_row * picture.per_column > 1;
  return (
    <p class="legend">
      <span>{scale.low}</span>
      <Thumb rows={1} columns={scale.legend.length} bytes={scale.legend} colours={scale.colours} />
      <span>{scale.high}</span>
      {whole && <span class="masked"><span class="swatch" aria-hidden="true" /> masked: may not attend</span>}
      {whole && marked && <span class="marked"><span class="swatch" aria-hidden="true" /> first wrong: {marked}</span>}
      {pooled && <span>a cell is {picture.per_row} × {picture.per_column} and shows its largest weight</span>}
      {lost && <span class="trouble" role="alert">{picture ? "a finer picture" : "the picture"} of this head is missing from the file or damaged: {picture ? "only a coarse one is shown" : "its cells are not known"}. Write the page again.</span>}
    </p>
  );
}
