// The attention view under a reader's hand: pointing, keys, zoom, filters, stages, heads.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { browser, floats, made, payloadOf } from "./harness.mjs";
import { Matrix, rowsOf } from "./matrix.mjs";

const folder = made("pages.py", "article", "heads", "hostile", "wrong", "several", "sentence", "step");
const open = browser();
const path = (name) => join(folder, `${name}.html`);

const number = (text) => Number(text.replaceAll("−", "-"));
const near = (text, value, digits = 3) => assert.ok(
  Math.abs(number(text) - value) <= Math.abs(value) * 10 ** (1 - digits) + 0.006, `${text} is not about ${value}`);

test("a row that is pointed at tells its weights, the values it mixes, and the vector that comes of it", async () => {
  const page = await open(path("article"));
  const head = payloadOf(path("article")).layers[0].heads[0];
  const [weights, values] = [floats(head.exact), floats(head.value.numbers)];
  await new Matrix(page, 6, 6).hover(4, 1);

  const table = page.getByRole("table", { name: "query 4 “⁨one⁩” draws from" });
  const rows = await rowsOf(table);
  assert.deepEqual(rows.map(([name]) => name), ["0 Your", "1 journey", "2 starts", "3 with", "4 one", "5 step", "context"]);
  const context = [0, 0, 0];
  for (let key = 0; key < 5; key++) {
    const weight = weights[4 * 6 + key];
    near(rows[key][1], weight);
    for (let at = 0; at < 3; at++) {
      near(rows[key][2 + at], values[3 * key + at]);
      context[at] += weight * values[3 * key + at];
    }
  }
  assert.equal(rows[5][1], "masked");
  context.forEach((value, at) => near(rows[6][2 + at], value));
});

test("a column that is pointed at tells who looks at its token", async () => {
  const page = await open(path("article"));
  const weights = floats(payloadOf(path("article")).layers[0].heads[0].exact);
  await new Matrix(page, 6, 6).hover(4, 1);
  const rows = await rowsOf(page.getByRole("table", { name: "key 1 “⁨journey⁩” is looked at by" }));
  const expected = [1, 2, 3, 4, 5].sort((one, other) => weights[other * 6 + 1] - weights[one * 6 + 1]);
  assert.deepEqual(rows.map(([name]) => Number(name.split(" ")[0])), expected);
  rows.forEach(([, weight], at) => near(weight, weights[expected[at] * 6 + 1]));
});

test("what is masked is hatched, and a small weight is not", async () => {
  const page = await open(path("article"));
  const matrix = new Matrix(page, 6, 6);
  assert.ok((await matrix.colours(0, 3)).length > 1);
  assert.equal((await matrix.colours(5, 0)).length, 1);
  assert.match(await page.locator(".legend").innerText(), /masked: may not attend/);
});

test("arrow keys go from cell to cell, and a screen reader is told", async () => {
  const page = await open(path("article"));
  const matrix = new Matrix(page, 6, 6);
  await matrix.canvas.focus();
  const heard = page.locator("[aria-live=polite]");
  await page.keyboard.press("Home");
  assert.match(await heard.textContent(), /^query 5 “.step.” to key 0 “.Your.”: 0\.0223$/);
  await page.keyboard.press("ArrowUp");
  await page.keyboard.press("ArrowRight");
  assert.match(await heard.textContent(), /^query 4 “.one.” to key 1 “.journey.”: 0\.154$/);
  await page.keyboard.press("End");
  assert.match(await heard.textContent(), /^query 4 “.one.” to key 5 “.step.”: masked$/);
  // A cell that was gone to stays until it is let go.
  await matrix.hover(2, 2);
  await page.getByRole("table", { name: /^query 4/ }).waitFor();
  await matrix.canvas.press("Escape");
  await matrix.hover(2, 1);
  await page.getByRole("table", { name: /^query 2/ }).waitFor();
});

test("a click keeps a cell, and the same click lets it go", async () => {
  const page = await open(path("article"));
  const matrix = new Matrix(page, 6, 6);
  const row = page.getByRole("table", { name: /draws from/ }).locator("caption");
  await matrix.click(3, 1);
  await matrix.hover(1, 0);
  assert.match(await row.textContent(), /^query 3/);
  await matrix.click(3, 1);
  await matrix.hover(1, 0);
  assert.match(await row.textContent(), /^query 1/);
});

test("a wheel zooms towards the pointer; dragging moves; on the whole the page scrolls", async () => {
  const page = await open(path("heads"));
  const matrix = new Matrix(page, 40, 40);
  const row = page.getByRole("table", { name: /draws from/ }).locator("caption");
  await matrix.hover(30, 12);
  const before = await matrix.colour(30, 12);
  for (let turn = 0; turn < 3; turn++) await page.mouse.wheel(0, -300);
  await page.waitForFunction(() => !document.querySelector(".zoom button[disabled]"));
  // What lay under the pointer still does: a step to the side and back finds the same cell.
  await page.mouse.move(10, 10);
  await matrix.hover(30, 12);
  assert.equal(await row.textContent(), "query 30 draws from");
  assert.deepEqual((await matrix.colours(30, 12)).some((colour) => String(colour) === String(before)), true);

  await page.mouse.down();
  const { x, y } = await matrix.middle(30, 12);
  const { x: left, y: top } = await matrix.canvas.boundingBox();
  await page.mouse.move(left + x - 60, top + y - 150, { steps: 5 });
  await page.mouse.up();
  await matrix.hover(30, 12);
  assert.notEqual(await row.textContent(), "query 30 draws from");

  await page.getByRole("button", { name: "whole" }).click();
  await matrix.hover(30, 12);
  assert.equal(await row.textContent(), "query 30 draws from");
  await page.mouse.wheel(0, 100);
  await page.waitForFunction(() => scrollY > 0);
});

test("+ and − zoom, 0 shows the whole, and a cell that is gone to comes into view", async () => {
  const page = await open(path("heads"));
  const matrix = new Matrix(page, 40, 40);
  const whole = page.getByRole("button", { name: "whole" });
  await matrix.canvas.focus();
  await page.keyboard.press("Home");
  for (let turn = 0; turn < 9; turn++) await page.keyboard.press("+");
  assert.equal(await whole.isDisabled(), false);
  await page.keyboard.press("End");
  // Its row and column lie under the pointer at the far corner.
  const { left, top, width, height } = await matrix.box();
  await page.keyboard.press("Escape");
  await matrix.canvas.hover({ position: { x: left + width - 5, y: top + height - 5 } });
  assert.equal(await page.getByRole("table", { name: "key 39 is looked at by" }).count(), 1);
  await page.keyboard.press("0");
  assert.equal(await whole.isDisabled(), true);
});

test("a button that can do nothing is off, and where nothing can be zoomed there is none", async () => {
  const page = await open(path("heads"));
  const [more, less] = ["Zoom in", "Zoom out"].map((name) => page.getByRole("button", { name }));
  assert.deepEqual([await more.isDisabled(), await less.isDisabled()], [false, true]);
  for (let turn = 0; turn < 9 && !(await more.isDisabled()); turn++) await more.click();
  assert.deepEqual([await more.isDisabled(), await less.isDisabled()], [true, false]);
  const small = await open(path("article"));
  await small.getByRole("application").waitFor();
  assert.equal(await small.locator(".zoom button").count(), 0);
});

test("two fingers zoom", async () => {
  const page = await open(path("heads"), { hasTouch: true });
  const matrix = new Matrix(page, 40, 40);
  const { x, y } = await matrix.canvas.boundingBox();
  const middle = await matrix.middle(20, 8);
  const session = await page.context().newCDPSession(page);
  const touch = (type, apart) => session.send("Input.dispatchTouchEvent", {
    type, touchPoints: apart === null ? [] : [-apart, apart].map((by, id) => ({ x: x + middle.x + by, y: y + middle.y, id })),
  });
  await touch("touchStart", 20);
  for (const apart of [30, 40, 50, 60]) await touch("touchMove", apart);
  await touch("touchEnd", null);
  await page.waitForFunction(() => !document.querySelector(".zoom button[disabled]"));
});

test("filters leave out weights and never the mask", async () => {
  const page = await open(path("heads"));
  const matrix = new Matrix(page, 40, 40);
  const weights = floats(payloadOf(path("heads")).layers[0].heads[0].exact);
  const row = Array.from(weights.subarray(30 * 40, 30 * 40 + 31));
  const place = (rank) => row.indexOf([...row].sort((one, other) => other - one)[rank]);
  const [first, second] = [place(0), place(1)];
  const paper = [255, 255, 255];
  const least = page.locator("label", { hasText: /^weights/ }).locator("select");
  assert.notDeepEqual(await matrix.colour(30, second), paper);
  const masked = await matrix.colours(5, 30);

  await page.getByLabel("keys of a row").selectOption("1");
  assert.notDeepEqual(await matrix.colour(30, first), paper);
  assert.deepEqual(await matrix.colour(30, second), paper);
  assert.deepEqual(await matrix.colours(5, 30), masked);

  await page.getByLabel("keys of a row").selectOption("0");
  await least.selectOption("0.5");
  assert.deepEqual(await matrix.colour(30, second), paper);

  await least.selectOption("0");
  assert.notDeepEqual(await matrix.colour(1, 0), paper);
  await page.getByLabel("hide the first token").check();
  assert.deepEqual(await matrix.colour(1, 0), paper);
});

test("what filters leave out has no number and is not listed, and how much that is, is said", async () => {
  const page = await open(path("sentence"));
  const matrix = new Matrix(page, 14, 14);
  await page.getByLabel("keys of a row").selectOption("1");
  const numbers = await matrix.numbers();
  assert.equal(numbers.length, 14, "one number in each row");
  await matrix.hover(12, 3);
  const table = page.getByRole("table", { name: /^query 12/ });
  let rows = await rowsOf(table);
  assert.deepEqual(rows.map(([name]) => name).slice(1), ["12 filtered out", "1 masked", "context"]);
  near(String(number(rows[0][1]) + number(rows[1][1])), 1);
  await page.getByRole("table", { name: /^key 3/ }).getByText("filtered out").waitFor();

  await page.getByLabel("keys of a row").selectOption("0");
  await page.locator("label", { hasText: /^weights/ }).locator("select").selectOption("0.1");
  await page.getByLabel("hide the first token").check();
  rows = await rowsOf(table);
  assert.ok(rows.slice(0, -3).every(([name, weight]) => number(weight) >= 0.1 && !name.startsWith("0 ")), String(rows));
});

for (const width of [1280, 1000, 390]) {
  test(`numbers never run into each other, ${width} pixels wide`, async () => {
    const page = await open(path("sentence"), { width });
    const matrix = new Matrix(page, 14, 14);
    for (const stage of ["weights", "attn_scores", "masked"]) {
      await page.locator(".stages").getByText(stage, { exact: true }).click();
      const numbers = await matrix.numbers();
      for (const [at, { text, x, y, wide }] of numbers.entries()) {
        const next = numbers[at + 1];
        if (next?.y === y) assert.ok(next.x - x >= (wide + next.wide) / 2 + 2, `${stage}: ${text} and ${next.text}`);
        assert.ok(text.replace(/[^0-9]/g, "").replace(/^0+/, "").length <= 3, text);
      }
      assert.equal(numbers.length > 0, width > 390, `${stage} at ${width}`);
    }
  });
}

test("the logarithm shows small weights", async () => {
  const page = await open(path("heads"));
  const matrix = new Matrix(page, 40, 40);
  const row = floats(payloadOf(path("heads")).layers[0].heads[0].exact).subarray(30 * 40, 30 * 40 + 31);
  const small = row.findIndex((weight) => weight > 0.001 && weight < 0.004);
  const linear = await matrix.colour(30, small);
  await page.getByLabel("shades").selectOption("log");
  const log = await matrix.colour(30, small);
  assert.ok(log[0] < linear[0], `${log} is not deeper than ${linear}`);
});

test("the stages on the way to the weights are shown large when they are chosen, and nothing jumps", async () => {
  const page = await open(path("article"));
  const matrix = new Matrix(page, 6, 6);
  const { y } = await matrix.canvas.boundingBox();
  await page.getByText("scaled", { exact: true }).click();
  assert.equal((await matrix.canvas.boundingBox()).y, y);
  assert.equal(await page.getByLabel("shades").isDisabled(), true);
  await matrix.hover(4, 1);
  const table = page.getByRole("table", { name: /^query 4/ });
  assert.deepEqual(await table.locator("thead th").allInnerTexts(), ["key", "weight", "scaled"]);
  const { stages } = payloadOf(path("article")).layers[0].heads[0];
  const scaled = floats(stages.find(({ name }) => name === "scaled").numbers);
  (await rowsOf(table)).slice(0, 6).forEach((row, key) => near(row[2], scaled[4 * 6 + key]));
  assert.equal(await matrix.canvas.getAttribute("aria-label"), "scaled of layer 0, head 0");
  assert.equal((await matrix.colours(0, 3)).length, 1, "nothing is masked yet");
  await page.locator(".stages").getByText("masked", { exact: true }).click();
  assert.ok((await matrix.colours(0, 3)).length > 1);
});

test("a head that should equal another stands beside that one and the difference, which is in two hues", async () => {
  const page = await open(path("wrong"));
  const names = await page.getByRole("application").evaluateAll((all) => all.map((one) => one.getAttribute("aria-label")));
  assert.deepEqual(names, ["right weights", "weights", "difference"].map((said) => `${said} of candidate, head 0`));
  const matrices = names.map((name) => new Matrix(page, 8, 8, name));
  const boxes = await Promise.all(matrices.map(({ canvas }) => canvas.boundingBox()));
  assert.ok(boxes.every(({ y }) => y === boxes[0].y), "all in a line");
  const [got, right] = payloadOf(path("wrong")).layers.map((layer) => floats(layer.heads[0].exact));
  const written = async (matrix) => (await matrix.numbers()).map(({ text }) => text);
  const off = await written(matrices[2]);
  const [more, less] = [await matrices[2].colour(1, 1), await matrices[2].colour(1, 0)];
  assert.ok(more[0] > more[2] && less[2] > less[0], `${more} and ${less}`);
  assert.ok(off.some((text) => text.startsWith("+")) && off.some((text) => text.startsWith("−")), String(off));
  // One that is pointed at leads all.
  await matrices[0].hover(1, 0);
  const rows = await rowsOf(page.getByRole("table", { name: /draws from/ }));
  near(rows[0][1], got[8]);
  near(rows[0][2], right[8]);
});

test("weights that stand beside each other are shaded alike, and zoomed together", async () => {
  const page = await open(path("wrong"));
  const [right, got] = ["right weights", "weights"].map((said) => new Matrix(page, 8, 8, `${said} of candidate, head 0`));
  assert.deepEqual(await right.colour(0, 0), await got.colour(0, 0));
  const ends = await page.locator(".legend span:nth-child(3)").allInnerTexts();
  assert.equal(ends[0], ends[1]);
  const before = await got.colours(6, 1);
  await right.hover(1, 1);
  for (let turn = 0; turn < 3; turn++) await page.mouse.wheel(0, -300);
  await page.waitForFunction(() => !document.querySelector(".zoom button:last-of-type").disabled);
  assert.notDeepEqual(await got.colours(6, 1), before);
});

test("of several heads the page opens on the first wrong one, says what is wrong, and marks it", async () => {
  const page = await open(path("several"));
  assert.equal(await page.getByRole("application").last().getAttribute("aria-label"), "difference of candidate, head 1");
  assert.match(await page.locator(".said").innerText(), /^1 of 2 heads differ.* in head 1: query 1 gives \d\.\d+ to key 0/);
  assert.match(await page.locator(".legend").first().innerText(), /first wrong: query 1, key 0/);
  assert.equal(await page.locator(".overview h2").innerText(), "2 heads, and what they should be");
  await page.getByRole("table", { name: "query 1 draws from" }).waitFor();
  const names = await page.locator(".heads [role=radio]").evaluateAll((all) => all.map((one) => one.getAttribute("aria-label")));
  assert.deepEqual(names.filter((name) => name.includes("differs")), ["candidate, head 1, differs from what it should be"]);
  assert.equal(await page.locator(".heads").getByText("≠").count(), 1);
  await page.getByRole("radio", { name: "candidate, head 0" }).click();
  assert.match(await page.locator(".legend").last().innerText(), /0 everywhere/);
  assert.ok(!(await page.locator(".legend").first().innerText()).includes("first wrong"));
});

test("a reload shows the same head, cell and filters, and an address that says nonsense the beginning", async () => {
  const page = await open(path("sentence"));
  const title = page.locator(".large > h2");
  assert.match(await title.textContent(), /^layer 1, head 3: induction/);
  await page.getByRole("radio", { name: "layer 0, head 1" }).click();
  await page.getByLabel("keys of a row").selectOption("4");
  await page.getByLabel("in order of").selectOption("previous token");
  await new Matrix(page, 14, 14).click(9, 3);
  await page.waitForFunction(() => location.hash.includes("cell=9"));
  await page.reload();
  assert.match(await title.textContent(), /^layer 0, head 1/);
  await page.getByRole("table", { name: /^query 9/ }).waitFor();
  assert.equal(await page.getByLabel("keys of a row").inputValue(), "4");
  assert.equal(await page.getByLabel("in order of").inputValue(), "previous token");
  await page.evaluate(() => { location.hash = "#head=7.7&cell=99,-1&top=1e9&order=__proto__&stage=%3Cb%3E"; });
  await page.getByRole("table", { name: /^query 13/ }).waitFor();
  assert.match(await title.textContent(), /^layer 1, head 3: induction/);
});

test("heads are put in the order of the patterns that they are called by", async () => {
  const page = await open(path("sentence"));
  await page.getByLabel("in order of").selectOption("induction");
  const names = await page.locator(".heads [role=radio]").evaluateAll((all) => all.map((one) => one.getAttribute("aria-label")));
  assert.deepEqual(names.slice(0, 2).map((name) => name.slice(0, 15)), ["layer 1, head 3", "layer 1, head 2"]);
  assert.match(await page.locator(".heads [role=radio]").first().innerText(), /^layer 1\s+head 3.*\s+0\.\d\d$/);
});

test("heads are chosen by click and arrow keys, and put in order", async () => {
  const page = await open(path("heads"));
  const title = page.locator(".large > h2");
  await page.getByRole("radio", { name: "layer 2, head 3" }).click();
  assert.equal(await title.textContent(), "layer 2, head 3");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowLeft");
  assert.equal(await title.textContent(), "layer 3, head 2");
  assert.equal(await page.locator(":focus").getAttribute("aria-label"), "layer 3, head 2");

  await page.getByLabel("in order of").selectOption("entropy");
  const heads = payloadOf(path("heads")).layers.flatMap((layer) =>
    layer.heads.map((head) => ({ name: `${layer.name}, ${head.name}`, entropy: floats(head.entropy).reduce((sum, one) => sum + one) })));
  heads.sort((one, other) => other.entropy - one.entropy);
  const names = await page.locator(".heads [role=radio]").evaluateAll((all) => all.map((one) => one.getAttribute("aria-label")));
  assert.deepEqual(names, heads.map(({ name }) => name));
});

test("tokens that would be markup are text, and what can't be seen has a sign", async () => {
  const page = await open(path("hostile"));
  assert.equal(await page.locator("h1").textContent(), "<i>hostile</i>");
  assert.equal(await page.locator(".notes").innerText(), "<u>note</u>");
  const rows = await rowsOf(page.getByRole("table", { name: /draws from/ }));
  assert.deepEqual(rows.slice(2, 7).map(([name]) => name), ["2 U+202Egnp.exe", "3 ␣↵⇥", "4 (empty)", "5 😀", "6 שלום"]);
  assert.match(rows[0][0], /^0 <script>alert\(1\)<.*…$/);
  assert.match(rows[1][0], /^1 <\/script><img␣src=.*…$/);
  assert.equal(await page.locator("main img").count(), 0);
});

test("one query over many keys is a band that can be pointed at", async () => {
  const page = await open(path("step"));
  await new Matrix(page, 1, 64).hover(0, 37);
  await page.getByRole("table", { name: "key 37 is looked at by" }).waitFor();
});
