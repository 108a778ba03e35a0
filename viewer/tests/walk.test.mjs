// The walk as a learner takes it: from the first step to the last, with slips, by keyboard, on paper, without a script.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { accessible, browser, keep, made } from "./harness.mjs";

const folder = made("walks.py");
const open = browser();
const path = (name) => join(folder, `${name}.html`);

const STEPS = ["inputs", "scores", "softmax", "context", "together", "shape", "comparison", "projections", "scale", "causal",
  "dropout", "heads", "check"];
const e = Math.E;
/** What a pencil gives for the token "journey" of the default; of a choice, its place. */
const ANSWERS = ["(3, 2)", "2", String(1 / (1 + e + e ** 2)), String((1 + e ** 2) / (1 + e + e ** 2)), 0, "3 x 2", 1, "-1/2",
  String(-0.5 / Math.SQRT2), "0,54", "1.09", "[2, 3, 2]", 2];
/** Slips at some of the steps, and what has to be told of them. */
const SLIPS = {
  inputs: ["(2, 3)", /transpose/],
  scores: ["5", /other token's dot product with itself/],
  softmax: ["0.155", /softmax runs over the queries instead of the keys \(softmax-over-queries\)/],
  context: ["2", /plain sum/],
  together: [1, /softmax-over-queries/],
  shape: ["(3, 3)", /shape of the weights/],
  comparison: [2, /every row of the weights/],
  projections: [".5", /a row of W_query/],
  scale: ["−0.5", /the scores are not scaled \(scale-missing\)/],
  causal: ["0.458", /the causal mask is missing .* or when the mask comes after softmax/],
  heads: ["torch.Size([3, 2, 2])", /transpose then puts the heads first/],
  check: [0, /first token would see the others/],
};

const shown = (page) => page.locator("section.step:visible");
const verdict = (page) => shown(page).locator(".verdict:visible");
const answers = (page) => shown(page).locator(".after:visible");

/** Opens a page at a step. */
async function openAt(name, address, options) {
  const page = await open(path(name), options);
  await page.evaluate((hash) => { location.hash = hash; }, address);
  await page.locator(`section#${address.split("/")[0]}:visible`).waitFor();
  return page;
}

async function answer(page, given) {
  const form = shown(page).locator("form:visible");
  if (typeof given === "number") {
    await form.getByRole("radio").nth(given).check();
    await form.getByRole("button", { name: "Check" }).click();
  } else {
    await form.getByRole("textbox").fill(given);
    await form.getByRole("textbox").press("Enter");
  }
}

test("a learner goes from the first step to the last, and sees no answer before giving one", async () => {
  const page = await open(path("default"));
  for (const [at, step] of STEPS.entries()) {
    assert.equal(await shown(page).count(), 1);
    assert.equal(await shown(page).getAttribute("id"), step);
    assert.equal(await answers(page).count(), 0, step);
    if (SLIPS[step]) {
      await answer(page, SLIPS[step][0]);
      assert.match(await verdict(page).innerText(), SLIPS[step][1], step);
      assert.equal(await answers(page).count(), 0, step);
    }
    await answer(page, ANSWERS[at]);
    assert.equal(await verdict(page).innerText(), "Right.", step);
    assert.ok(await answers(page).count() >= 1, step);
    assert.equal(await shown(page).getByRole("button", { name: "Show the answer" }).count(), 0);
    await keep(page, `walk-${step}`);
    await page.getByRole("button", { name: "Next" }).click({ timeout: 1000 }).catch((error) => {
      assert.equal(step, "check", String(error));
    });
  }
  assert.equal(await page.locator("nav a.done").count(), STEPS.length);
});

test("an answer is shown to who has tried, and what can't be read is no try", async () => {
  const page = await openAt("default", "softmax");
  const reveal = shown(page).getByRole("button", { name: "Show the answer" });
  for (const typed of ["", "much", "1/0"]) {
    await answer(page, typed);
    assert.match(await verdict(page).innerText(), /^Type a number/);
    assert.equal(await reveal.count(), 0);
  }
  await answer(page, "7");
  assert.match(await verdict(page).innerText(), /^Not yet\. Divide the share/);
  await reveal.click();
  assert.match(await answers(page).first().innerText(), /Answer: 0\.090/);
  assert.equal(await page.locator("form:visible input").evaluate((input) => input === document.activeElement), true);
});

test("a number of another place, and one with another sign, are told", async () => {
  const page = await openAt("default", "projections");
  await answer(page, "1/2");
  assert.match(await verdict(page).innerText(), /right but for its sign|a row of W_query/);
  await page.evaluate(() => { location.hash = "scale"; });
  await page.locator("section#scale:visible").waitFor();
  await answer(page, String(0.5 / Math.SQRT2));
  assert.match(await verdict(page).innerText(), /right but for its sign|score of key \d; the score of key \d is asked for/);
});

test("another token is chosen, and everything follows it; the address keeps step and token", async () => {
  const page = await openAt("default", "softmax");
  await page.getByRole("radio", { name: "starts 2" }).check();
  assert.match(await page.evaluate(() => location.hash), /^#softmax\/2$/);
  assert.match(await shown(page).locator("label:visible").innerText(), /for the query starts/);
  const scores = await shown(page).locator("tbody:visible td:nth-child(2)").allInnerTexts();
  assert.deepEqual(scores, ["1", "2", "5"]);
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Next" }).click();
  assert.match(await page.evaluate(() => location.hash), /^#context\/2$/);
  await page.reload();
  assert.equal(await shown(page).getAttribute("id"), "context");
  assert.equal(await page.getByRole("radio", { name: "starts 2" }).isChecked(), true);
  await page.evaluate(() => { location.hash = "nowhere/9"; });
  assert.equal(await shown(page).getAttribute("id"), "context");
});

test("arrow keys turn the steps, but not while a number is typed; the heading is read out", async () => {
  const page = await open(path("default"));
  await page.keyboard.press("ArrowRight");
  assert.equal(await shown(page).getAttribute("id"), "scores");
  assert.equal(await page.evaluate(() => document.activeElement.id), "scores-title");
  await shown(page).getByRole("textbox").press("ArrowRight");
  assert.equal(await shown(page).getAttribute("id"), "scores");
  await page.locator("#scores-title").focus();
  await page.keyboard.press("ArrowLeft");
  await page.keyboard.press("ArrowLeft");
  assert.equal(await shown(page).getAttribute("id"), "inputs");
  assert.equal(await page.getByRole("status").count(), 1);
  assert.match(await page.locator("nav [aria-current=step]").innerText(), /Step 1: Inputs/);
});

test("without a script every step stands there with its answer, and with nothing to press", async () => {
  const page = await open(path("default"), { javaScriptEnabled: false });
  assert.equal(await shown(page).count(), STEPS.length);
  assert.equal(await page.locator(".answer:visible").count(), STEPS.length);
  assert.equal(await page.locator("button:visible, input[type=text]:visible, .tokens:visible").count(), 0);
});

test("on paper all steps stand one after another with their answers, for the chosen token", async () => {
  const page = await openAt("default", "causal/2");
  await page.emulateMedia({ media: "print" });
  assert.equal(await shown(page).count(), STEPS.length);
  assert.equal(await page.locator(".answer:visible").count(), STEPS.length);
  assert.equal(await page.locator("button:visible, input[type=text]:visible, nav:visible").count(), 0);
  assert.match(await page.locator("#scores label:visible").innerText(), /for the query starts/);
  await keep(page, "walk-print");
});

test("words are text, whatever they are", async () => {
  const page = await open(path("hostile"), { width: 390 });
  const tokens = await page.locator(".tokens label bdi").allTextContents();
  assert.equal(tokens[0], "<script>alert(1…");
  assert.equal(tokens[2], "\u202egnp.exe");
  assert.equal(await page.locator("main img, main script").count(), 0);
  await keep(page, "walk-hostile-390");
});

test("twelve tokens on a phone: matrices scroll by themselves, the page doesn't", async () => {
  const page = await open(path("long"), { width: 390, height: 800 });
  for (const step of STEPS) {
    await page.evaluate((hash) => { location.hash = hash; }, step);
    await page.locator(`section#${step}:visible`).waitFor();
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 390, step);
  }
  await page.evaluate(() => { location.hash = "causal"; });
  await page.locator("#causal .scroll[tabindex='0']:visible").first().waitFor();
  await keep(page, "walk-long-390");
});

for (const [colorScheme, step, width] of [["light", "softmax", 1280], ["dark", "causal", 390]]) {
  test(`nothing is in the way of who can't see or point, ${colorScheme}`, async () => {
    const page = await open(path("default"), { colorScheme, width });
    for (const asked of [step, "together"]) {
      await page.evaluate((hash) => { location.hash = hash; }, asked);
      await page.locator(`section#${asked}:visible`).waitFor();
      await answer(page, SLIPS[asked][0]);
      await accessible(page);
      await answer(page, ANSWERS[STEPS.indexOf(asked)]);
    }
    await accessible(page);
    await keep(page, `walk-${colorScheme}`);
  });
}
