// A page that is cut off or damaged says so in words, wherever the damage is.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { accessible, browser, keep, made } from "./harness.mjs";
import { Matrix } from "./matrix.mjs";

const folder = made("pages.py", "article", "long");
const open = browser();
const text = (name) => readFileSync(join(folder, `${name}.html`), "utf8");
const said = (page) => page.getByRole("alert").innerText();

/** A page of its own that holds this. */
function written(html) {
  const file = join(folder, "damaged.html");
  writeFileSync(file, html);
  return file;
}

/** The page with something else in place of what is found; as much has to be there. */
function changed(name, found, by) {
  const html = text(name);
  assert.match(html, found);
  return written(html.replace(found, by));
}

test("a page that is cut off before its script ends says that nothing is drawn", async () => {
  const html = text("article");
  const places = { data: html.indexOf('class="qkv-data"') + 500, script: html.lastIndexOf("<script>") + 500 };
  for (const [name, place] of Object.entries(places)) {
    const page = await open(written(html.slice(0, place)));
    assert.match(await page.locator("#attention").innerText(), /^Nothing is drawn here yet\..*the file is incomplete/, name);
  }
});

test("a whole page has no word of it", async () => {
  const page = await open(join(folder, "article.html"));
  await page.getByRole("application").waitFor();
  assert.equal(await page.locator(".not-yet, [role=alert]").count(), 0);
});

const DAMAGES = {
  "JSON that is none": [/("kind":"attention")/, "$1,,", /can't be read: SyntaxError/],
  "another kind": [/"kind":"attention"/, '"kind":"weather"', /a kind that its script doesn't know: weather/],
  "a newer schema": [/"schema":1/, '"schema":2', /a newer qkv than the script/],
  "numbers that are no base64": [/"exact":"/, '"exact":"%', /can't be read: InvalidCharacterError/],
  "numbers that are cut": [/"entropy":"..../, '"entropy":"', /can't be read: RangeError/],
  "no list of layers": [/"layers":/, '"layer":', /can't be read: TypeError/],
};

for (const [name, [found, by, words]] of Object.entries(DAMAGES)) {
  test(`${name}: the place says what is wrong and what to do`, async () => {
    const page = await open(changed("article", found, by));
    assert.match(await said(page), words);
    assert.match(await said(page), /Write the page again\.$/);
    assert.equal(await page.locator(".not-yet").count(), 0);
    await accessible(page);
    await keep(page, "damaged");
  });
}

test("a walk whose data can't be read stays, and says it", async () => {
  const page = await open(changed("article", /"kind":"attention"/, '"kind":"walk"'));
  assert.match(await said(page), /can't be read/);
});

test("without its finer pictures a page shows the coarse one and says it", async () => {
  const html = text("long");
  const place = html.indexOf('class="qkv-detail"');
  assert.ok(place > 0);
  for (const cut of [place + 500, html.lastIndexOf("</script>", place) + 9]) {
    const page = await open(written(html.slice(0, cut)));
    assert.match(await said(page), /^a finer picture of this head is missing.*only a coarse one is shown/);
    await keep(page, "damaged-details");
  }
});

test("a head without a picture is plain, not hatched as what is masked is", async () => {
  for (const [found, by] of [[/"pictures":\["data:image\/png;base64,.{40}/, '"pictures":["data:image/png;base64,'],
    [/"pictures":\["data:image\/png;base64,[^"]*"/, '"pictures":["data:image/png;base64,AAAA"']]) {
    const page = await open(changed("article", found, by));
    assert.match(await said(page), /^the picture of this head is missing from the file or damaged: its cells are not known/);
    assert.equal((await new Matrix(page, 6, 6).colours(0, 3)).length, 1);
    await keep(page, "damaged-picture");
  }
});
