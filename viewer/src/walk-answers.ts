// Judges what a reader answers. What is right, and what each slip leads to, comes from Python.
import type { WalkQuestion } from "./payload";

export interface Verdict {
  /** Null where the answer can't be read, which is no try. */
  right: boolean | null;
  text: string;
}

/** The verdict on an answer as it was typed; of a choice, its place among the choices. */
export function judge(question: WalkQuestion, typed: string): Verdict {
  const answer = question.kind === "shape" ? readShape(typed) : readNumber(typed);
  if (answer === null) return { right: null, text: ASKED_FOR[question.kind] };
  if (same(question, answer, question.answer)) return { right: true, text: "Right." };
  const slip = question.slips.find((each) => same(question, answer, each.answer));
  return { right: false, text: `Not yet. ${slip?.hint ?? question.otherwise}` };
}

const ASKED_FOR = {
  number: "Type a number: 0.25, -1.5 or 1/3. Two decimals are enough.",
  shape: "Type a shape, the number of rows first: (2, 5).",
  choice: "Choose one of the answers.",
};

function same(question: WalkQuestion, given: number | number[], expected: number | number[]): boolean {
  if (typeof given === "number" && typeof expected === "number") return Math.abs(given - expected) <= question.tolerance;
  return String(given) === String(expected);
}

/** A decimal number or a fraction. Signs and decimal points may be those that people type elsewhere. */
function readNumber(typed: string): number | null {
  const plain = typed.trim().replace(/[\u2212\u2013]/g, "-").replace(",", ".");
  const parts = /^([+-]?(?:\d+\.?\d*|\.\d+))(?:\s*\/\s*(\d+\.?\d*))?$/.exec(plain);
  if (!parts) return null;
  const number = Number(parts[1]) / Number(parts[2] ?? 1);
  return Number.isFinite(number) ? number : null;
}

/** The sizes in (2, 5), [2, 5], 2 x 5 or torch.Size([2, 5]). */
function readShape(typed: string): number[] | null {
  const plain = typed.trim().replace(/^torch\.Size/, "");
  if (!/^[\s([]*\d+(?:[\s,x×*]+\d+)*[\s,)\]]*$/.test(plain)) return null;
  return (plain.match(/\d+/g) ?? []).map(Number);
}
