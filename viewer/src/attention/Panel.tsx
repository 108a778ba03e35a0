// The numbers of what is pointed at: a row and what it makes, and a column.
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { short } from "../numbers";
import type { Entry, HeadNumbers, Line } from "./head";
import { sorted } from "./head";
import { said } from "./shown";
import type { Tokens } from "./tokens";

const LISTED = 8;
const DIMENSIONS = 4;

interface RowProps {
  numbers: HeadNumbers;
  row: number;
  line: Line;
  name: string;
  keys: Tokens;
}

/** The article's figure: the weights of one row, the values they mix, and the one vector that comes of it. */
export function RowPanel({ numbers, row, line, name, keys }: RowProps) {
  const context = useMemo(() => numbers.context(row), [numbers, row]);
  const entries = useMemo(() => listed(line), [line]);
  const { value, statistics } = numbers;
  const others = numbers.sums[row]! - entries.reduce((sum, entry) => sum + (entry.weight || 0), 0);
  const hidden = line.weights.length - entries.length;
  return (
    <section class="numbers">
      <table>
        <caption>{name} draws from</caption>
        <thead>
          <tr>
            <th scope="col">key</th>
            <th scope="col" class="number">weight</th>
            {value && <th scope="col" class="number" colSpan={columnsOf(value.dim)}>value</th>}
          </tr>
        </thead>
        <tbody>
          {entries.map((entry) => (
            <WeightRow entry={entry} label={keys.name(entry.at)}>
              {value && <Vector numbers={value.numbers.subarray(entry.at * value.dim, (entry.at + 1) * value.dim)} />}
            </WeightRow>
          ))}
          {hidden > 0 && (
            <tr>
              <th scope="row">{hidden} other {hidden === 1 ? "key" : "keys"}</th>
              <td class="number">{short(Number(Math.max(0, others).toPrecision(2)))}</td>
              {value && <td colSpan={columnsOf(value.dim)} />}
            </tr>
          )}
        </tbody>
        <tfoot>
          <tr>
            <th scope="row">{context ? "context: weights × values" : "sum"}</th>
            <td class="number">{short(numbers.sums[row]!)}</td>
            {context && <Vector numbers={context} />}
          </tr>
        </tfoot>
      </table>
      <p class="facts">
        entropy {short(statistics.entropy[row]!)} bits · distance looked back {short(statistics.distance[row]!)} · weight on the
        first token {short(statistics.first[row]!)}
      </p>
      {entries.some((entry) => entry.known === "about") && <p class="facts">≈ read from the picture, not exact</p>}
    </section>
  );
}

interface ColumnProps {
  numbers: HeadNumbers;
  column: number;
  line: Line;
  name: string;
  query: (row: number) => string;
}

export function ColumnPanel({ numbers, column, line, name, query }: ColumnProps) {
  const entries = useMemo(() => sorted(line, LISTED), [line]);
  const unknown = line.known.includes("unknown");
  return (
    <section class="numbers">
      <table>
        <caption>{name} is looked at by</caption>
        <thead><tr><th scope="col">query</th><th scope="col" class="number">weight</th></tr></thead>
        <tbody>
          {entries.map((entry) => <WeightRow entry={entry} label={query(entry.at)} />)}
          {entries.length === 0 && <tr><th scope="row">{unknown ? "not known" : "no query"}</th><td class="number">–</td></tr>}
        </tbody>
      </table>
      <p class="facts">in the mean it is given {short(numbers.received[column]!)}</p>
      {unknown && <p class="facts">only queries that have it among their largest weights are told</p>}
    </section>
  );
}

/** All of a few keys in their order, as one reads a row; of many the largest. */
function listed(line: Line): Entry[] {
  if (line.weights.length > LISTED) return sorted(line, LISTED);
  return Array.from(line.weights, (weight, at) => ({ at, weight, known: line.known[at]! }));
}

function WeightRow({ entry, label, children }: { entry: Entry; label: string; children?: ComponentChildren }) {
  return (
    <tr>
      <th scope="row"><bdi>{label}</bdi></th>
      <td class="number weight">
        <span class="bar" aria-hidden="true" style={{ inlineSize: `${100 * Math.min(1, Math.max(0, entry.weight || 0))}%` }} />
        <span>{said(entry)}</span>
      </td>
      {children}
    </tr>
  );
}

/** Columns of a vector: what doesn't fit is a last one with dots. */
const columnsOf = (dim: number): number => Math.min(dim, DIMENSIONS + 1);

function Vector({ numbers }: { numbers: Float32Array }) {
  return (
    <>
      {Array.from(numbers.subarray(0, DIMENSIONS), (number) => <td class="number">{short(Number(number.toFixed(3)))}</td>)}
      {numbers.length > DIMENSIONS && <td class="number">…</td>}
    </>
  );
}
