// The levels of a head's picture as bytes, each read when it is first asked for.
import { bytes } from "../numbers";
import type { Details } from "../mount";
import type { Head, Level } from "../payload";

/** One level: bytes row by row. */
export interface Picture extends Level {
  bytes: Uint8Array;
}

/** The bytes of a grayscale PNG. A canvas takes it in strips: a whole one would hold four bytes for each of ours. */
async function read(uri: string, level: Level): Promise<Picture> {
  const { rows, columns } = level;
  const file = new Blob([bytes(uri.slice(uri.indexOf(",") + 1))], { type: "image/png" });
  const image = await createImageBitmap(file, { colorSpaceConversion: "none" });
  if (image.width !== columns || image.height !== rows) throw new Error("the picture has another size than its level");
  const strip = Math.max(1, Math.min(rows, Math.floor(2 ** 20 / columns)));
  const canvas = Object.assign(document.createElement("canvas"), { width: columns, height: strip });
  const context = canvas.getContext("2d", { willReadFrequently: true })!;
  context.globalCompositeOperation = "copy";
  const result = new Uint8Array(rows * columns);
  for (let row = 0; row < rows; row += strip) {
    const height = Math.min(strip, rows - row);
    context.drawImage(image, 0, row, columns, height, 0, 0, columns, height);
    const pixels = context.getImageData(0, 0, columns, height).data;
    for (let at = 0; at < height * columns; at++) {
      if (pixels[4 * at + 3] !== 255) throw new Error("the picture is cut off");
      result[row * columns + at] = pixels[4 * at]!;
    }
    // A large picture takes a while: what the reader does comes between.
    await new Promise((rested) => setTimeout(rested));
  }
  image.close();
  return { ...level, bytes: result };
}

export class Pictures {
  private readonly found: (Picture | Promise<void> | "lost" | undefined)[] = [];

  constructor(
    private readonly head: Head,
    readonly levels: Level[],
    private readonly details: Details,
    /** Called when a level has come, or is found to be lost. */
    private readonly arrived: () => void,
  ) {}

  /** Whether a level that was asked for is missing from the file, or damaged. */
  get lost(): boolean {
    return this.found.includes("lost");
  }

  /** A level, or nothing if it isn't there yet (then it is fetched) or is lost. */
  get(index: number): Picture | undefined {
    const found = this.found[index];
    if (found === undefined) this.found[index] = this.fetch(index);
    return found instanceof Promise || found === "lost" ? undefined : found;
  }

  /** Lets go of all but the coarsest level. */
  forget(): void {
    this.found.length = Math.min(1, this.found.length);
  }

  private async fetch(index: number): Promise<void> {
    const here = this.head.pictures[index];
    try {
      const uri = here ?? (await this.details()).find((detail) => detail.id === this.head.id)?.pictures[index];
      this.found[index] = await read(uri!, this.levels[index]!);
    } catch {
      this.found[index] = "lost"; // not there, no base64, no picture, or a part of one
    }
    this.arrived();
  }

  /**
   * The finest level that is there and whose cells are at least a pixel, or else the coarsest.
   *
   * @param pixels how many pixels a query and a key take on the screen.
   */
  best(pixels: { row: number; column: number }): Picture | undefined {
    let wanted = 0;
    this.levels.forEach((level, index) => {
      if (Math.min(level.per_row * pixels.row, level.per_column * pixels.column) >= 1) wanted = index;
    });
    for (let index = wanted; index >= 0; index--) {
      const picture = this.get(index);
      if (picture) return picture;
    }
    return undefined;
  }
}
