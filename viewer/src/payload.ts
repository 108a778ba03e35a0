// What Python hands to the page. The same shapes are built by qkv.pictures.payload and qkv.lesson; change both sides.

/** Little-endian float32 numbers, or uint32 where said, in base64. */
export type Numbers = string;

export type Payload = AttentionPayload | WalkPayload;

/** Attention weights of any number of layers and heads, all of the same size. */
export interface AttentionPayload {
  schema: 1;
  kind: "attention";
  title: string;
  /** Sentences on what is shown, and on what was left out: "rows are sampled: 1 of 16". */
  notes: string[];
  query_len: number;
  key_len: number;
  /** The position of the first query among the keys. */
  query_offset: number;
  /** Texts of the queries' tokens; null for those of the keys at their positions. */
  query_tokens: string[] | null;
  /** Texts of the keys' tokens, or null where there are none and numbers stand for them. */
  key_tokens: string[] | null;
  /** Queries that were computed, as uint32; null for all of them. Rows of every picture and statistic are these. */
  sampled: Numbers | null;
  /** Sizes of the pictures from coarse to fine, the same for all heads. A cell is the largest weight that it covers. */
  levels: Level[];
  /** Byte 0: may not attend. Byte 1: a weight below 2^low, 0 too. Byte b: 2^(low * (255 - b) / 253). */
  low: number;
  /** What is looked at first; null for the first head. */
  focus: Focus | null;
  layers: { name: string; heads: Head[] }[];
}

/** What there is to see, and where. Heads are named by their ids. */
export interface Focus {
  head: string;
  /** A query and a key; null for none. */
  cell: [number, number] | null;
  /** A sentence, or "". */
  said: string;
  /** Heads that differ from those that they should equal, and the first cell in which each does. */
  wrong: { [head: string]: [number, number] };
}

export interface Level {
  rows: number;
  columns: number;
  /** Queries and keys that a cell covers; the last cell may cover fewer. */
  per_row: number;
  per_column: number;
}

export interface Head {
  name: string;
  /** Names the head among all: "0.3". Details that come behind the first view are found by it. */
  id: string;
  /** The id of the head that this one should equal; the page then shows both and the difference. Both need `exact`. */
  against?: string | null;
  /** The share of its attention that follows each pattern ("induction"), where that was looked at. */
  patterns: { [name: string]: number };
  /** One grayscale PNG a level, as a data URI; null for what stands in a detail block, or was left out. */
  pictures: (string | null)[];
  /** Of each computed query. Entropy in bits; distance to the keys in tokens, weighted; weight on the first token. */
  entropy: Numbers;
  distance: Numbers;
  first: Numbers;
  /** Sum of each computed row: 1, less with sinks. */
  sums: Numbers;
  /** Mean weight that each key is given by the computed queries that may attend to it. */
  received: Numbers;
  /** All weights, row by row, where there are few; NaN where a query may not attend. */
  exact: Numbers | null;
  /** The `count` largest weights of each computed row, falling, one more than are told by a filter: keys as uint32 (2^32 - 1 for none), exact weights. */
  top: { count: number; keys: Numbers; weights: Numbers } | null;
  /** The values that the weights mix, (key_len, dim), where there are few. */
  value: { dim: number; numbers: Numbers } | null;
  /**
   * Every stage on the way to the weights, (query_len, key_len) each, where there are few: "attn_scores", …; in their
   * order, without the weights themselves (those are `exact`). -Infinity or NaN where a mask hides.
   */
  stages: { name: string; title: string; numbers: Numbers }[];
}

/** What comes behind the first view in `<script type="application/json" class="qkv-detail">`. */
export interface Detail {
  id: string;
  pictures: (string | null)[];
}

/** The article as a page; see qkv.lesson. Its steps are in the page as HTML already; this is what answers are judged by. */
export interface WalkPayload {
  schema: 1;
  kind: "walk";
  title: string;
  /** By the `data-question` of their forms: the step and the token, "softmax-1". */
  questions: { [name: string]: WalkQuestion };
}

export interface WalkQuestion {
  kind: "number" | "shape" | "choice";
  /** A number, the sizes of a shape, or the place of the right choice. */
  answer: number | number[];
  /** How far off a number may be and still be right. */
  tolerance: number;
  /** Wrong answers, and what leads to each. */
  slips: { answer: number | number[]; hint: string }[];
  /** The hint for any other wrong answer. */
  otherwise: string;
}
