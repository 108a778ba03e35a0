// The numbers of what is pointed at: a row and what it makes, and a column.
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { aligned, fixed, short } from "../numbers";
import type { Entry, HeadNumbers, Line } from "./head";
import { sorted } from "./head";
import { said } from "./shown";
import type { Tokens } from "./tokens";

const LISTED = 8;
/** Numbers of a value for which there is room; of more, the last place has dots. */
const DIMENSIONS = 3;

interface RowProps {
  numbers: HeadNumbers;
  row: number;
  line: Line;
  /** The same row of the head that this one should equal. */
  expected: Line | null;
  /** What is shown large in place of the weights, and its number for a key. */
  stage?: { name: string; number: (key: number) => string } | undefined;
  name: string;
  keys: Tokens;
}

/** The article's figure: the weights of one row, the values they mix, and the one vector that comes of it. */
export function RowPanel({ numbers, row, line, expected, stage, name, keys }: RowProps) {
  const alone = !expected && !stage;
  const context = useMemo(() => (alone ? numbers.context(row) : null), [numbers, row, alone]);
  const entries = useMemo(() => listed(line), [line]);
  const { statistics } = numbers;
  // There is room for values, or for what the weights should be, or come from.
  const value = alone ? numbers.value : null;
  const besides = [
    ...(stage ? [stage] : []),
    ...(expected ? [{ name: "should be", number: (key: number) => told(entryOf(expected, key)) }] : []),
  ];
  const rests = useMemo(() => restsOf(line, entries, { sum: numbers.sums[row]!, exact: numbers.exact !== null }), [line, entries]);
  return (
    <div class="numbers">
      <table>
        <caption>{name} draws from</caption>
        <thead>
          <tr>
            <th scope="col">key</th>
            <th scope="col" class="amount">weight</th>
            {besides.map(({ name }) => <th scope="col" class="amount">{name}</th>)}
            {value && <th scope="col" class="amount" colSpan={columnsOf(value.dim)}>value</th>}
          </tr>
        </thead>
        <tbody>
          {entries.map((entry) => (
            <WeightRow entry={entry} label={keys.entry(entry.at)}>
              {besides.map(({ number }) => <td class="amount">{number(entry.at)}</td>)}
              {value && <Vector numbers={value.numbers.subarray(entry.at * value.dim, (entry.at + 1) * value.dim)} />}
            </WeightRow>
          ))}
          {rests.map(({ name, amount }) => (
            <tr>
              <th scope="row" class="rest">{name}</th>
              <td class="amount">{amount}</td>
              {besides.map(() => <td />)}
              {value && <td colSpan={columnsOf(value.dim)} />}
            </tr>
          ))}
        </tbody>
        <tfoot>
          <tr>
            <th scope="row">{context ? "context" : "sum"}</th>
            <td class="amount">{aligned(numbers.sums[row]!)}</td>
            {besides.map(() => <td />)}
            {context ? <Vector numbers={context} /> : value && <td colSpan={columnsOf(value.dim)} />}
          </tr>
        </tfoot>
      </table>
      {context && <p class="aside">context: the sum of weight × value</p>}
      <p class="aside">
        entropy {short(statistics.entropy[row]!)} bits · mean distance {short(statistics.distance[row]!)} · weight on the
        first token {short(statistics.first[row]!)}
      </p>
      <About entries={entries} />
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
  const leftOut = line.known.filter((known) => known === "left out").length;
  return (
    <div class="numbers">
      <table>
        <caption>{name} is looked at by</caption>
        <thead><tr><th scope="col">query</th><th scope="col" class="amount">weight</th></tr></thead>
        <tbody>
          {entries.map((entry) => <WeightRow entry={entry} label={query(entry.at)} />)}
          {leftOut > 0 && <tr><th scope="row" class="rest">{leftOut} filtered out</th><td /></tr>}
          {entries.length === 0 && !leftOut && <tr><th scope="row">{unknown ? "not known" : "no query"}</th><td class="amount">–</td></tr>}
        </tbody>
      </table>
      <p class="aside">in the mean it is given {short(numbers.received[column]!)}</p>
      <About entries={entries} />
      {unknown && <p class="aside">only queries that have it among their largest weights are told</p>}
    </div>
  );
}

/** What is to be said of numbers that aren't exact. */
function About({ entries }: { entries: Entry[] }) {
  if (entries.every((entry) => entry.known !== "about")) return null;
  return <p class="aside">≈ read from the picture: not exact, and one that isn't listed may be as large</p>;
}

const entryOf = ({ weights, known }: Line, at: number): Entry => ({ at, weight: weights[at]!, known: known[at]! });

/** All of a few keys in their order, as one reads a row; of many the largest. */
function listed(line: Line): Entry[] {
  if (line.weights.length > LISTED) return sorted(line, LISTED);
  return line.known.map((_, at) => entryOf(line, at)).filter(({ known }) => known !== "left out");
}

/**
 * What isn't listed: the other keys, those that are masked, and those that filters leave out; how many, and their sum,
 * which is what is left of the row's. With both, the picture says what of it filters leave out where nothing else does.
 */
function restsOf({ weights, known }: Line, entries: Entry[], { sum, exact }: { sum: number; exact: boolean }): { name: string; amount: string }[] {
  const shown = new Set(entries.map(({ at }) => at));
  const counts = { masked: 0, "left out": 0, other: 0 };
  let filtered = 0;
  weights.forEach((weight, at) => {
    if (shown.has(at)) return;
    const how = known[at]!;
    counts[how === "masked" || how === "left out" ? how : "other"] += 1;
    if (how === "left out") filtered += weight || 0;
  });
  const rest = Math.max(0, entries.reduce((left, { weight }) => left - (weight || 0), sum));
  const leftOut = counts.other ? Math.min(filtered, rest) : rest;
  const about = (exact || !counts.other || !counts["left out"]) && entries.every((entry) => entry.known === "exact") ? "" : "≈ ";
  return [
    { count: counts.other, name: `other ${counts.other === 1 ? "key" : "keys"}`, amount: about + aligned(counts["left out"] ? rest - leftOut : rest) },
    { count: counts["left out"], name: "filtered out", amount: about + aligned(leftOut) },
    { count: counts.masked, name: "masked", amount: "–" },
  ].filter(({ count }) => count).map(({ count, name, amount }) => ({ name: `${count} ${name}`, amount }));
}

/** An exact weight with the digits of its column. */
const told = (entry: Entry): string => (entry.known === "exact" ? aligned(entry.weight) : said(entry));

function WeightRow({ entry, label, children }: { entry: Entry; label: string; children?: ComponentChildren }) {
  return (
    <tr>
      <th scope="row">{label}</th>
      <td class="amount weight">
        <span class="bar" aria-hidden="true" style={{ inlineSize: `${100 * Math.min(1, Math.max(0, entry.weight || 0))}%` }} />
        <span>{told(entry)}</span>
      </td>
      {children}
    </tr>
  );
}

/** Columns of a vector: what doesn't fit is a last one with dots. */
const columnsOf = (dim: number): number => Math.min(dim, DIMENSIONS);

function Vector({ numbers }: { numbers: Float32Array }) {
  const whole = numbers.length <= DIMENSIONS;
  return (
    <>
      {Array.from(whole ? numbers : numbers.subarray(0, DIMENSIONS - 1), (number) => <td class="amount">{fixed(number)}</td>)}
      {!whole && <td class="amount">…</td>}
    </>
  );
}
