// The large matrix of an attention view, as a reader's hand and eye reach it.

export class Matrix {
  /** The matrix of some rows and columns, or that of several whose name is so. */
  constructor(page, rows, columns, name = undefined) {
    Object.assign(this, { page, rows, columns, canvas: page.getByRole("application", name && { name, exact: true }) });
  }

  /** The box of all cells on the canvas. */
  async box() {
    const [left, top, width, height] = (await this.canvas.getAttribute("data-box")).split(" ").map(Number);
    return { left, top, width, height };
  }

  /** The middle of a cell of the whole, on the canvas. */
  async middle(row, column) {
    const { left, top, width, height } = await this.box();
    return { x: left + ((column + 0.5) / this.columns) * width, y: top + ((row + 0.5) / this.rows) * height };
  }

  async hover(row, column) {
    await this.canvas.hover({ position: await this.middle(row, column) });
  }

  async click(row, column) {
    await this.canvas.click({ position: await this.middle(row, column) });
  }

  /** The colours, [red, green, blue], of a part of a cell that no number, edge or mark of it reaches. */
  async colours(row, column) {
    const { width, height } = await this.box();
    const { x, y } = await this.middle(row, column);
    const size = [width / this.columns, height / this.rows].map((length) => Math.max(1, Math.floor(length * 0.15)));
    return this.canvas.evaluate((canvas, [left, top, wide, high]) => {
      const copy = new OffscreenCanvas(wide, high).getContext("2d", { willReadFrequently: true });
      copy.drawImage(canvas, -left, -top);
      const { data } = copy.getImageData(0, 0, wide, high);
      const points = new Set();
      for (let at = 0; at < data.length; at += 4) points.add(data.slice(at, at + 3).join(" "));
      return [...points].map((point) => point.split(" ").map(Number));
    }, [Math.round(x - 0.3 * (width / this.columns)), Math.round(y - 0.3 * (height / this.rows)), ...size]);
  }

  /** The numbers that are written into cells when all is drawn again: text, middle and width of each. */
  async numbers() {
    await this.hover(3, 1);
    await this.page.evaluate(() => {
      const { prototype } = CanvasRenderingContext2D;
      const { fillText } = prototype;
      Object.assign(window, { written: [] });
      prototype.fillText = function (text, x, y, ...more) {
        if (this.textAlign === "center") window.written.push({ text, x, y, wide: this.measureText(text).width });
        return fillText.call(this, text, x, y, ...more);
      };
    });
    await this.hover(4, 1);
    await this.page.evaluate(() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50))));
    const { top } = await this.box();
    const written = await this.page.evaluate(() => window.written);
    // All may be drawn more than once.
    const places = new Map(written.map((one) => [`${one.x} ${one.y}`, one]));
    return [...places.values()].filter(({ y }) => y > top);
  }

  /** The one colour of a cell. */
  async colour(row, column) {
    const colours = await this.colours(row, column);
    if (colours.length !== 1) throw new Error(`cell ${row}, ${column} has ${colours.length} colours`);
    return colours[0];
  }
}

/** A table's rows as texts, without the marks that keep right-to-left texts apart. */
export async function rowsOf(table) {
  const rows = await table.locator("tbody tr, tfoot tr").evaluateAll((found) =>
    found.map((row) => [...row.children].map((cell) => cell.textContent)));
  return rows.map((row) => row.map((text) => text.replace(/[\u2068\u2069]/g, "")));
}
