// The view in a notebook: a cell's element and a model are all that the widget is given.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { accessible, browser, keep, made, payloadOf } from "./harness.mjs";
import { Matrix, rowsOf } from "./matrix.mjs";

const folder = made("pages.py", "article", "hostile");
const open = browser();
const asset = (name) => readFileSync(new URL(`../../src/qkv/pictures/assets/${name}`, import.meta.url));

/** A notebook of two cells with widgets of these views, which does with a widget what anywidget does. */
function notebook(names, background = "#fff") {
  const file = join(folder, "notebook.html");
  const payloads = JSON.stringify(names.map((name) => payloadOf(join(folder, `${name}.html`)))).replaceAll("<", "\\u003c");
  writeFileSync(file, `<!doctype html><html lang="en"><meta charset="utf-8"><title>A notebook</title>
    <style>body { background: ${background}; margin: 0; } .cell { padding: 1rem; }</style>
    <main>${names.map(() => '<div class="cell"></div>').join("")}</main>
    <script type="module">
      import widget from "data:text/javascript;base64,${asset("widget.js").toString("base64")}";
      const style = document.createElement("style");
      style.textContent = atob("${asset("widget.css").toString("base64")}");
      document.head.append(style);
      const cells = [...document.querySelectorAll(".cell")];
      window.removals = ${payloads}.map((payload, at) =>
        widget.render({ model: { get: (name) => ({ payload })[name] }, el: cells[at] }));
    </script>`);
  return file;
}

test("a widget shows what its model holds, and tells of what is pointed at", async () => {
  const page = await open(notebook(["article"]));
  await new Matrix(page, 6, 6).hover(4, 1);
  const rows = await rowsOf(page.getByRole("table", { name: /^query 4/ }));
  assert.deepEqual(rows.map(([name]) => name), ["0 Your", "1 journey", "2 starts", "3 with", "4 one", "5 step", "context"]);
  await accessible(page);
  await keep(page, "widget");
});

test("two widgets of a notebook leave each other alone, and each goes when it is taken away", async () => {
  const page = await open(notebook(["article", "hostile"]));
  const cells = page.locator(".cell");
  assert.match(await cells.nth(0).innerText(), /journey/);
  assert.equal(await cells.nth(1).locator("script, img, b, i, u").count(), 0);
  await page.evaluate(() => window.removals[0]());
  assert.equal(await cells.nth(0).locator("canvas").count(), 0);
  assert.ok(await cells.nth(1).locator("canvas").count() > 0);
});

test("a widget follows the notebook's theme, whatever the system's is", async () => {
  for (const [background, scheme] of [["#111", "dark"], ["#fff", "light"]]) {
    const page = await open(notebook(["article"], background), { colorScheme: scheme === "dark" ? "light" : "dark" });
    assert.equal(await page.locator(".cell").evaluate((cell) => getComputedStyle(cell).colorScheme), scheme);
    await accessible(page);
    await keep(page, `widget-${scheme}`);
  }
});
