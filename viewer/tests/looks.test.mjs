// How the attention view looks: light and dark, on a phone, on paper, to a screen reader, and beside what it looked like.
import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import pixelmatch from "pixelmatch";
import { PNG } from "pngjs";
import { accessible, browser, keep, made } from "./harness.mjs";
import { Matrix } from "./matrix.mjs";

const folder = made("pages.py", "article", "heads", "wrong");
const open = browser();
const path = (name) => join(folder, `${name}.html`);

for (const [name, colorScheme] of [["article", "light"], ["wrong", "dark"], ["heads", "light"]]) {
  test(`${name} has no serious accessibility finding in ${colorScheme}`, async () => {
    const page = await open(path(name), { colorScheme });
    await new Matrix(page, 4, 4, /^weights/).hover(3, 1);
    await accessible(page);
    await keep(page, `${name}-${colorScheme}`);
  });
}

test("a phone shows everything without scrolling to the side", async () => {
  for (const name of ["article", "heads", "wrong"]) {
    const page = await open(path(name), { width: 390, height: 800 });
    await new Matrix(page, 4, 4, /^weights/).hover(3, 1);
    assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 390, name);
    await keep(page, `${name}-390`);
  }
});

test("a change of theme is a change of colours, and paper is white", async () => {
  const page = await open(path("heads"), { colorScheme: "light" });
  const matrix = new Matrix(page, 40, 40);
  const light = await matrix.colour(39, 0);
  await page.emulateMedia({ colorScheme: "dark" });
  const dark = await matrix.colour(39, 0);
  assert.ok(light[0] > 200 && dark[0] < 60, `${light} and ${dark}`);
  await page.emulateMedia({ colorScheme: "dark", media: "print" });
  assert.deepEqual(await matrix.colour(39, 0), light);
  for (const part of [".controls", ".zoom button", ".hint"]) assert.equal(await page.locator(part).first().isVisible(), false, part);
  await keep(page, "heads-print");
});

test("nothing moves by itself", async () => {
  const page = await open(path("heads"), { reducedMotion: "reduce" });
  assert.equal(await page.evaluate(() => document.getAnimations().length), 0);
});

// Pictures without text: fonts differ from machine to machine, and what is drawn between them doesn't. The page's tokens
// are numbers, so that labels don't decide how wide the matrix is. Edges of cells may be rounded another way elsewhere.
const MOST_DIFFERENT = 0.02;

/** Holds the middle of the matrix against a picture in snapshots/; UPDATE_SNAPSHOTS=1 accepts what is seen. */
async function assertLooks(page, name) {
  const { left, top, width, height } = await new Matrix(page, 40, 40).box();
  const canvas = await page.getByRole("application").boundingBox();
  const clip = { x: canvas.x + left + 1, y: canvas.y + top + 1, width: Math.floor(width - 2), height: Math.floor(height - 2) };
  const seen = await page.screenshot({ clip });
  const file = join(import.meta.dirname, "snapshots", `${name}.png`);
  if (process.env.UPDATE_SNAPSHOTS) writeFileSync(file, seen);
  assert.ok(existsSync(file), `${file} is missing: UPDATE_SNAPSHOTS=1 makes it`);
  const [got, expected] = [PNG.sync.read(seen), PNG.sync.read(readFileSync(file))];
  assert.deepEqual([got.width, got.height], [expected.width, expected.height]);
  const different = pixelmatch(got.data, expected.data, undefined, got.width, got.height, { threshold: 0.1 });
  await keep(page, name);
  assert.ok(different <= MOST_DIFFERENT * got.width * got.height, `${different} pixels of ${name} differ`);
}

test("weights look as they did", async () => {
  const page = await open(path("heads"));
  await assertLooks(page, "weights-light");
  await page.emulateMedia({ colorScheme: "dark" });
  await assertLooks(page, "weights-dark");
});

test("masked scores look as they did", async () => {
  const page = await open(path("heads"), { height: 1000 });
  await page.getByText("masked", { exact: true }).click();
  await assertLooks(page, "masked-light");
});
