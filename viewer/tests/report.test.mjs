// Reports as pages: read at a glance, by screen readers, on a phone and on paper; without any script.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { accessible, browser, keep, made } from "./harness.mjs";

const NAMES = ["wrong", "right", "undecided", "failed", "several", "explain", "identify"];
const folder = made("reports.py", ...NAMES);
const open = browser();
const path = (name) => join(folder, `${name}.html`);

const LOOKS = [
  ["light", { colorScheme: "light" }],
  ["dark", { colorScheme: "dark" }],
  ["phone", { width: 390, height: 844 }],
  ["offline and without scripts", { javaScriptEnabled: false, offline: true }],
];

for (const name of NAMES) {
  for (const [look, options] of LOOKS) {
    test(`${name}, ${look}: nothing stands out of the page, and all is accessible`, async () => {
      const page = await open(path(name), options);
      await keep(page, `report-${name}-${look.split(" ")[0]}`);
      if (options.javaScriptEnabled === false) {
        assert.equal(await page.locator("h1").count(), 1);
        return;
      }
      const { wide, room } = await page.evaluate(() => ({
        wide: document.documentElement.scrollWidth, room: document.documentElement.clientWidth,
      }));
      assert.ok(wide <= room, `${wide} pixels in ${room}`);
      await accessible(page);
    });
  }

  test(`${name}: headings stand in order, and ids are one each`, async () => {
    const page = await open(path(name));
    const levels = await page.locator("h1, h2, h3").evaluateAll((all) => all.map(({ tagName }) => Number(tagName[1])));
    assert.equal(levels.filter((level) => level === 1).length, 1);
    levels.forEach((level, at) => assert.ok(level <= (levels[at - 1] ?? 0) + 1, `h${level} after h${levels[at - 1]}`));
    const ids = await page.locator("[id]").evaluateAll((all) => all.map(({ id }) => id));
    assert.equal(new Set(ids).size, ids.length);
    assert.equal(await page.locator("main").count(), 1);
  });

  test(`${name}: on paper nothing is cut off`, async () => {
    const page = await open(path(name), { width: 718 }); // A4 with margins of one centimetre
    await page.emulateMedia({ media: "print", colorScheme: "dark" });
    const cut = await page.locator(".wide").evaluateAll((all) => all.filter((one) => one.scrollWidth > one.clientWidth + 1)
      .map((one) => `${one.getAttribute("aria-label")}: ${one.scrollWidth} in ${one.clientWidth}`));
    assert.deepEqual(cut, []);
    assert.equal(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), "rgb(255, 255, 255)");
    assert.ok((await page.pdf({ format: "A4" })).length > 10_000);
  });
}

test("what is wrong stands on the first screen: the fault, the line, what to write, and where it shows", async () => {
  const page = await open(path("wrong"));
  assert.match(await page.title(), /^✗ wrong · causal_attention · causal-one-ahead · qkv$/);
  const shown = (locator) => locator.boundingBox().then(({ y, height }) => y + height < 900);
  assert.ok(await shown(page.getByText("the causal mask lets each token see the next one").first()));
  assert.ok(await shown(page.locator(".facts").getByText("2 + keys - queries")));
  assert.ok(await shown(page.locator(".facts").getByText("1 + keys - queries")));
  const cells = await page.getByRole("group", { name: /^attn_weights, head 0/ }).first().locator("td.first").all();
  assert.deepEqual(await Promise.all(cells.map(shown)), [true, true, true], "the cell as it should be, as it is, the difference");
  assert.match(await page.locator("ol.code .marked").innerText(), /hidden = np\.triu/);
});

test("the weights are tables with names, and the first wrong cell is outlined in each", async () => {
  const page = await open(path("wrong"));
  const triple = page.getByRole("group", { name: /^attn_weights, head 0/ }).first();
  for (const name of ["expected", "got", "difference"]) {
    const table = triple.getByRole("table", { name });
    assert.equal(await table.locator("td.first").count(), 1);
    assert.equal(await table.locator("td.first").evaluate((cell) => getComputedStyle(cell).outlineWidth), "2px");
    assert.match(await table.getByRole("rowheader").first().textContent(), /^query\s+0$/);
    assert.match(await table.getByRole("columnheader").first().textContent(), /^key\s+0$/);
  }
  const [expected, got] = ["expected", "got"].map((name) => triple.getByRole("table", { name }).getByRole("row").nth(1));
  assert.match(await expected.getByRole("cell").nth(1).innerText(), /may not attend/);
  assert.match(await got.getByRole("cell").nth(1).innerText(), /^0\.\d\d$/);
});

test("what to write stands below what it replaces, and what differs is marked in both", async () => {
  const page = await open(path("wrong"));
  const marked = (tag) => page.locator(`.facts ${tag} mark`).allInnerTexts();
  assert.deepEqual([await marked("del"), await marked("ins")], [["2"], ["1"]]);
  const numbers = await page.locator(".diff > div").evaluateAll((all) => all.map((line) => [line.className, line.firstChild.textContent]));
  const removed = numbers.filter(([role]) => role === "removed").map(([, number]) => number);
  const line = await page.locator(".facts .place").first().innerText();
  assert.deepEqual(removed, [line.split(":")[1]]);
});

test("a phone shows code whole, the rest of a long line further in", async () => {
  const page = await open(path("wrong"), { width: 390, height: 844 });
  const cut = await page.locator(".folded").evaluateAll((all) => all.filter((one) => one.getBoundingClientRect().right > innerWidth));
  assert.deepEqual(cut, []);
  const folded = page.locator("ol.code .folded", { hasText: "np.triu" });
  const [height, line] = await folded.evaluate((one) => [one.clientHeight, Number.parseFloat(getComputedStyle(one).lineHeight)]);
  assert.ok(height > 1.5 * line, `${height} pixels of lines of ${line}`);
});

test("what is, what should be and the difference stand in a line, on paper too", async () => {
  const page = await open(path("wrong"), { width: 718 });
  await page.emulateMedia({ media: "print" });
  const tables = page.getByRole("group", { name: /^attn_weights, head 0/ }).first().getByRole("table");
  const tops = await tables.evaluateAll((all) => all.map((table) => table.getBoundingClientRect().top));
  assert.equal(new Set(tops).size, 1, String(tops));
});

test("a cell is darker the larger its weight", async () => {
  const page = await open(path("wrong"));
  const cells = page.getByRole("group", { name: /^attn_weights, head 0/ }).first().locator("td.plain");
  const seen = await cells.evaluateAll((all) => all.map((cell) => {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d");
    canvas.fillStyle = getComputedStyle(cell).backgroundColor;
    canvas.fillRect(0, 0, 1, 1);
    return [Number.parseFloat(cell.textContent), canvas.getImageData(0, 0, 1, 1).data[0]];
  }));
  seen.sort(([one], [other]) => one - other);
  assert.ok(seen.at(-1)[1] < seen[0][1] - 40, `${seen}`);
  seen.forEach(([weight, red], at) => assert.ok(at === 0 || weight === seen[at - 1][0] || red <= seen[at - 1][1]));
});

test("what a candidate says is text, and shows what it hides", async () => {
  const page = await open(path("failed"));
  assert.equal(await page.locator("script").count(), 0);
  assert.match(await page.locator("main").innerText(), /<script>alert\(1\)<\/script> ⟨U\+202E⟩/);
});

test("of several reports an index says what each is, and leads to it", async () => {
  const page = await open(path("several"));
  const links = page.getByRole("navigation").getByRole("link");
  assert.deepEqual(await links.allInnerTexts(), ["✗ wrong causal_attention", "✓ right causal_attention", "! failed attention"]);
  await links.nth(2).click();
  assert.match(page.url(), /#r3$/);
});

test("a script is told line by line, and the wrong line is marked", async () => {
  const page = await open(path("explain"));
  const wrong = page.locator(".anatomy tr.wrong");
  assert.match(await wrong.innerText(), /attn_weights = np\.exp/);
  assert.match(await wrong.innerText(), /wrong:/);
  assert.match(await page.locator(".anatomy").innerText(), /attn_scores \(query 3, key 3\)/);
});
