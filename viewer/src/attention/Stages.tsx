// The way to the weights, stage by stage; the one that is chosen is shown large.
import { useId } from "preact/hooks";
import type { Shown } from "./shown";
import { Thumb } from "./Thumb";

export interface Stage {
  name: string;
  title: string;
  numbers: Float32Array;
  shown: Shown;
}

interface Props {
  stages: Stage[];
  weights: Shown;
  stage: string;
  choose: (name: string) => void;
}

export function Stages({ stages, weights, stage, choose }: Props) {
  const group = useId();
  const all = [...stages, { name: "weights", title: "what softmax makes of them", shown: weights }];
  const title = all.find(({ name }) => name === stage)?.title;
  return (
    <fieldset class="stages">
      <legend class="only-heard">Stage</legend>
      {all.map(({ name, title, shown }) => {
        const picture = shown.best({ row: 1, column: 1 });
        return (
          <label class={name === stage ? "chosen" : ""} title={title}>
            <input class="only-heard" type="radio" name={group} checked={name === stage} onChange={() => choose(name)} />
            {picture && <Thumb {...picture} bytes={shown.bytes(picture)} colours={shown.scale.colours} />}
            <span>{name}</span>
          </label>
        );
      })}
      <p class="aside">{stage}: {title}</p>
    </fieldset>
  );
}
