// The view in a notebook: a cell's element and a model are all that the widget is given.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { accessible, browser, keep, made, payloadOf } from "./harness.mjs";
import { Matrix, rowsOf } from "./matrix.mjs";

const folder = made("pages.py", "article", "heads", "hostile");
const open = browser();
const asset = (name) => readFileSync(new URL(`../../src/qkv/pictures/assets/${name}`, import.meta.url));

/**
 * A notebook with a cell for each of these views, which does with a widget what anywidget does: as in JupyterLab, whose
 * elements are drawn into before they are in the document, or as in marimo, within a shadow tree.
 */
function notebook(names, { background = "#fff", shadow = false } = {}) {
  const file = join(folder, "notebook.html");
  const payloads = JSON.stringify(names.map((name) => payloadOf(join(folder, `${name}.html`)))).replaceAll("<", "\\u003c");
  writeFileSync(file, `<!doctype html><html lang="en"><meta charset="utf-8"><title>A notebook</title>
    <style>body { background: ${background}; margin: 0; } .cell { padding: 1rem; }</style>
    <main>${names.map((_, at) => `<p id="still-${at}">a still picture</p><div class="cell"></div>`).join("")}</main>
    <script type="module">
      import widget from "data:text/javascript;base64,${asset("widget.js").toString("base64")}";
      const style = document.createElement("style");
      style.textContent = atob("${asset("widget.css").toString("base64")}");
      document.head.append(style);
      const cells = [...document.querySelectorAll(".cell")];
      window.removals = ${payloads}.map((payload, at) => {
        const el = document.createElement("div");
        const end = widget.render({ model: { get: (name) => ({ payload, stand_in: "still-" + at })[name] }, el });
        const place = ${shadow} ? cells[at].attachShadow({ mode: "open" }) : cells[at];
        place.append(${shadow} ? style : "", el);
        return end;
      });
    </script>`);
  return file;
}

test("a widget shows what its model holds, and tells of what is pointed at", async () => {
  const page = await open(notebook(["article"]));
  const matrix = new Matrix(page, 6, 6);
  await matrix.hover(4, 1);
  assert.ok((await matrix.colour(0, 0))[2] > (await matrix.colour(0, 0))[0], "a weight of 1 is blue");
  const rows = await rowsOf(page.getByRole("table", { name: /^query 4/ }));
  assert.deepEqual(rows.map(([name]) => name), ["0 Your", "1 journey", "2 starts", "3 with", "4 one", "5 step", "context"]);
  assert.equal(await page.getByText("a still picture").isVisible(), false);
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

for (const shadow of [false, true]) {
  test(`a widget follows the notebook's theme, whatever the system's is${shadow ? ", in a shadow tree" : ""}`, async () => {
    for (const [background, scheme] of [["#111", "dark"], ["color(srgb 1 1 0.99)", "light"], ["rgb(0 0 0 / 5%)", "light"]]) {
      const page = await open(notebook(["article"], { background, shadow }), { colorScheme: scheme === "dark" ? "light" : "dark" });
      const view = page.locator(".qkv-attention");
      assert.equal(await view.evaluate((view) => getComputedStyle(view).colorScheme), scheme, background);
      assert.equal(await view.evaluate((view) => getComputedStyle(view).backgroundColor), scheme === "dark" ? "rgb(20, 22, 26)" : "rgb(255, 255, 255)");
      await accessible(page);
      await keep(page, `widget-${scheme}`);
    }
  });
}

test("another theme shows the same head and cell", async () => {
  const page = await open(notebook(["heads"]));
  const rows = page.getByRole("table", { name: /draws from/ }).locator("caption");
  await page.getByRole("radio", { name: "layer 2, head 3" }).click();
  await new Matrix(page, 40, 40).click(30, 12);
  await page.evaluate(() => document.body.setAttribute("style", "background: #111"));
  await page.waitForFunction(() => document.querySelector(".qkv").style.colorScheme === "dark");
  assert.equal(await page.locator(".large > h2").textContent(), "layer 2, head 3");
  assert.match(await rows.textContent(), /^query 30/);
});

test("what is typed in a widget is no command of JupyterLab", async () => {
  const page = await open(notebook(["article"]));
  const { canvas } = new Matrix(page, 6, 6);
  await canvas.focus();
  // Its commands spare what has this attribute and the focus.
  assert.equal(await canvas.getAttribute("data-lm-suppress-shortcuts"), "true");
});
