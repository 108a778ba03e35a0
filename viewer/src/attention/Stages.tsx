// The way to the weights, stage by stage; the one that is chosen is shown large.
import type { Shown } from "./shown";
import { Thumb } from "./Thumb";

export interface Stage {
  name: string;
  title: string;
  shown: Shown;
}

interface Props {
  stages: Stage[];
  weights: Shown;
  stage: string;
  choose: (name: string) => void;
}

export function Stages({ stages, weights, stage, choose }: Props) {
  const last = stages.findIndex(({ name }) => name === "difference");
  const before = last < 0 ? stages : stages.slice(0, last);
  const all = [...before, { name: "weights", title: "weights", shown: weights }, ...stages.slice(before.length)];
  return (
    <fieldset class="stages">
      <legend class="only-heard">Stage</legend>
      {all.map(({ name, title, shown }) => {
        const picture = shown.best({ row: 1, column: 1 });
        return (
          <label class={name === stage ? "chosen" : ""}>
            {picture && <Thumb {...picture} bytes={shown.bytes(picture)} colours={shown.scale.colours} />}
            <span>
              <input type="radio" name="stage" checked={name === stage} onChange={() => choose(name)} /> {title}
            </span>
          </label>
        );
      })}
    </fieldset>
  );
}
