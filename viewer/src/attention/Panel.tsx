// The numbers of what is pointed at: a row and what it makes, and a column.
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { fixed, short } from "../numbers";
import type { Entry, HeadNumbers, Line } from "./head";
import { sorted } from "./head";
import { said } from "./shown";
import type { Tokens } from "./tokens";

const LISTED = 8;
const DIMENSIONS = 3;

interface RowProps {
  numbers: HeadNumbers;
  row: number;
  line: Line;
  /** The same row of the head that this one should equal. */
  expected: Line | null;
  name: string;
  keys: Tokens;
}

/** The article's figure: the weights of one row, the values they mix, and the one vector that comes of it. */
export function RowPanel({ numbers, row, line, expected, name, keys }: RowProps) {
  const context = useMemo(() => (expected ? null : numbers.context(row)), [numbers, row, expected]);
  const entries = useMemo(() => listed(line), [line]);
  const { statistics } = numbers;
  // There is room for values, or for what the weights should be.
  const value = expected ? null : numbers.value;
  const others = numbers.sums[row]! - entries.reduce((sum, entry) => sum + (entry.weight || 0), 0);
  const hidden = line.weights.length - entries.length;
  return (
    <div class="numbers">
      <table>
        <caption>{name} draws from</caption>
        <thead>
          <tr>
            <th scope="col">key</th>
            <th scope="col" class="amount">weight</th>
            {expected && <th scope="col" class="amount">should be</th>}
            {value && <th scope="col" class="amount" colSpan={columnsOf(value.dim)}>value</th>}
          </tr>
        </thead>
        <tbody>
          {entries.map((entry) => (
            <WeightRow entry={entry} label={keys.entry(entry.at)}>
              {expected && <td class="amount">{said(entryOf(expected, entry.at))}</td>}
              {value && <Vector numbers={value.numbers.subarray(entry.at * value.dim, (entry.at + 1) * value.dim)} />}
            </WeightRow>
          ))}
          {hidden > 0 && (
            <tr>
              <th scope="row">{hidden} other {hidden === 1 ? "key" : "keys"}</th>
              <td class="amount">{short(Number(Math.max(0, others).toPrecision(2)))}</td>
              {expected && <td />}
              {value && <td colSpan={columnsOf(value.dim)} />}
            </tr>
          )}
        </tbody>
        <tfoot>
          <tr>
            <th scope="row">{context ? "context" : "sum"}</th>
            <td class="amount">{short(numbers.sums[row]!)}</td>
            {expected && <td />}
            {context ? <Vector numbers={context} /> : value && <td colSpan={columnsOf(value.dim)} />}
          </tr>
        </tfoot>
      </table>
      {context && <p class="aside">context: the sum of weight × value</p>}
      <p class="aside">
        entropy {short(statistics.entropy[row]!)} bits · distance looked back {short(statistics.distance[row]!)} · weight on the
        first token {short(statistics.first[row]!)}
      </p>
      {entries.some((entry) => entry.known === "about") && <p class="aside">≈ read from the picture, not exact</p>}
    </div>
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
    <div class="numbers">
      <table>
        <caption>{name} is looked at by</caption>
        <thead><tr><th scope="col">query</th><th scope="col" class="amount">weight</th></tr></thead>
        <tbody>
          {entries.map((entry) => <WeightRow entry={entry} label={query(entry.at)} />)}
          {entries.length === 0 && <tr><th scope="row">{unknown ? "not known" : "no query"}</th><td class="amount">–</td></tr>}
        </tbody>
      </table>
      <p class="aside">in the mean it is given {short(numbers.received[column]!)}</p>
      {unknown && <p class="aside">only queries that have it among their largest weights are told</p>}
    </div>
  );
}

const entryOf = ({ weights, known }: Line, at: number): Entry => ({ at, weight: weights[at]!, known: known[at]! });

/** All of a few keys in their order, as one reads a row; of many the largest. */
function listed(line: Line): Entry[] {
  if (line.weights.length > LISTED) return sorted(line, LISTED);
  return line.known.map((_, at) => entryOf(line, at));
}

function WeightRow({ entry, label, children }: { entry: Entry; label: string; children?: ComponentChildren }) {
  return (
    <tr>
      <th scope="row">{label}</th>
      <td class="amount weight">
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
      {Array.from(numbers.subarray(0, DIMENSIONS), (number) => <td class="amount">{fixed(number)}</td>)}
      {numbers.length > DIMENSIONS && <td class="amount">…</td>}
    </>
  );
}
