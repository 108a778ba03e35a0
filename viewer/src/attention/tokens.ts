// Tokens as text that can be seen: a space has a sign, and nothing turns the text around it.
const SIGNS: Record<string, string> = { " ": "␣", "\n": "↵", "\r": "␍", "\t": "⇥", "\u007f": "␡" };

/** The token with signs for spaces, control characters, and characters that have no looks of their own. */
export function visible(token: string): string {
  if (token === "") return "(empty)";
  return token.replace(/[\s\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}]/gu, (character) => {
    const code = character.codePointAt(0)!;
    if (code < 0x20) return SIGNS[character] ?? String.fromCodePoint(0x2400 + code);
    // What joins the parts of an emoji, or of letters, belongs to their looks.
    if (code === 0x200d || code === 0x200c) return character;
    return SIGNS[character] ?? `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
  });
}

export function clip(text: string, length: number): string {
  const characters = Array.from(text);
  return characters.length <= length ? text : characters.slice(0, length - 1).join("") + "…";
}

/** Written from right to left or not, it leaves the text around it alone. */
const isolated = (text: string): string => `\u2068${text}\u2069`;

/** Names of an axis: "5" where tokens have no text. */
export class Tokens {
  constructor(readonly word: "query" | "key", private readonly texts: string[] | null) {}

  /** What stands on the axis. */
  label(at: number, length = 14): string {
    const text = this.texts?.[at];
    return text === undefined ? String(at) : clip(visible(text), length);
  }

  /** What stands in a table: `5 journey`. */
  entry(at: number): string {
    return this.texts ? `${at} ${isolated(this.label(at, 20))}` : String(at);
  }

  /** What stands in a sentence: `query 5 “journey”`. */
  name(at: number): string {
    const text = this.texts?.[at];
    return `${this.word} ${at}` + (text === undefined ? "" : ` “${isolated(clip(visible(text), 40))}”`);
  }
}
