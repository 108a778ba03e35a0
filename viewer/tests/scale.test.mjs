// Large attention: 4,096 tokens are zoomed smoothly, and what pictures can't tell is said not to be known.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { browser, keep, made, payloadOf } from "./harness.mjs";
import { Matrix, rowsOf } from "./matrix.mjs";

const folder = made("pages.py", "long", "sampled", "sink");
const open = browser();
const LENGTH = 4096;

test("4,096 tokens: what is pointed at is told, and finer pictures come as one zooms in", async () => {
  const page = await open(join(folder, "long.html"));
  const matrix = new Matrix(page, LENGTH, LENGTH);
  await page.getByText(/a cell is \d+ × \d+ and shows its largest weight/).waitFor();
  await matrix.hover(3000, 1000);
  const rows = await rowsOf(page.getByRole("table", { name: /draws from/ }));
  assert.ok(!rows[0][1].includes("≈"), "the largest weight of a row is exact");
  assert.ok(rows.some(([name]) => /^\d{4} other keys$/.test(name)));
  for (let turn = 0; turn < 10; turn++) await page.mouse.wheel(0, -400);
  await page.getByText(/a cell is/).waitFor({ state: "detached" });
  await matrix.hover(3000, 1000);
  // The picture tells how near a number of another weight lies.
  await page.getByText(/^≈ read from the picture: not exact/).first().waitFor();
  // Weights that are known exactly are the largest: none that the picture makes larger by rounding comes before them.
  const told = (await rowsOf(page.getByRole("table", { name: /draws from/ }))).slice(0, 8).map(([, weight]) => weight);
  const exact = payloadOf(join(folder, "long.html")).layers[0].heads[0].top.count;
  assert.deepEqual(told.map((weight) => weight.includes("≈")), told.map((_, place) => place >= exact), String(told));
  await keep(page, "long-zoomed");
});

test("4,096 tokens: a step of the wheel and a step of the pointer are drawn in time", async () => {
  const page = await open(join(folder, "long.html"));
  const matrix = new Matrix(page, LENGTH, LENGTH);
  await matrix.hover(2000, 500);
  await page.getByText(/≈/).first().waitFor();
  const times = await matrix.canvas.evaluate(async (canvas) => {
    const { left, top } = canvas.getBoundingClientRect();
    const frame = () => new Promise(requestAnimationFrame);
    const times = [];
    for (let step = 0; step < 30; step++) {
      const at = { clientX: left + 250 + step, clientY: top + 350 + step, bubbles: true };
      const begin = performance.now();
      if (step % 2) canvas.dispatchEvent(new WheelEvent("wheel", { ...at, deltaY: step < 20 ? -120 : 120, cancelable: true }));
      else canvas.dispatchEvent(new PointerEvent("pointermove", at));
      // Preact draws in a microtask after the event.
      await Promise.resolve();
      await new Promise((done) => setTimeout(done));
      times.push(performance.now() - begin);
      await frame();
    }
    return times.sort((one, other) => one - other);
  });
  const median = times[15];
  console.log(`4,096 tokens: ${median.toFixed(1)} ms for a step in the median, ${times.at(-1).toFixed(1)} ms at most`);
  // Ten a second is still smooth to the hand; what else runs on a machine makes single steps late.
  assert.ok(median < 100, `${median} ms in the median`);
});

test("sampled rows keep their numbers, and weights that no picture tells are not known", async () => {
  const page = await open(join(folder, "sampled.html"));
  await page.getByText("rows are sampled: 1 of 4 queries was computed").waitFor();
  const matrix = new Matrix(page, 150, 600);
  await matrix.click(149, 100);
  const name = await page.getByRole("table", { name: /draws from/ }).locator("caption").textContent();
  assert.ok(Number(name.match(/query (\d+)/)[1]) >= 596, name);
  assert.match(await page.locator("[aria-live=polite]").textContent(), /: (not known|0\.\d+)$/);
  await page.getByText("only queries that have it among their largest weights are told").waitFor();
});

test("where the first token is the largest of each row and hidden, the largest of the others is left", async () => {
  const page = await open(join(folder, "sink.html"));
  const matrix = new Matrix(page, 8200, 4);
  const top = page.getByLabel("keys of a row");
  assert.deepEqual(await top.locator("option").allTextContents(), ["all", "largest 1"]);
  await top.selectOption("1");
  const drawn = async (row) => {
    const paper = String([255, 255, 255]);
    const colours = await Promise.all([0, 1, 2, 3].map((key) => matrix.colour(row, key)));
    return colours.flatMap((colour, key) => (String(colour) === paper ? [] : [key]));
  };
  assert.deepEqual([await drawn(2000), await drawn(6000)], [[0], [0]]);
  await page.getByLabel("hide the first token").check();
  assert.deepEqual([await drawn(2000), await drawn(6000)], [[1], [2]]);
  await matrix.click(6000, 2);
  const rows = await rowsOf(page.getByRole("table", { name: /draws from/ }));
  assert.deepEqual(rows[0], ["2", "0.2000"]);
  assert.match(rows[1][0], /^3 filtered out$/);
});
