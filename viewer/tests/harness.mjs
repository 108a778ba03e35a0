// Opens pages in Chromium for a test file, and holds every one of them to being quiet: no error, no request.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, before } from "node:test";
import { pathToFileURL } from "node:url";
import { AxeBuilder } from "@axe-core/playwright";
import { chromium } from "playwright-core";

const here = import.meta.dirname;
const python = process.env.PYTHON ?? join(here, "../../.venv/bin/python");
const executablePath = process.env.CHROMIUM ?? ["chromium", "chromium-browser", "google-chrome"]
  .map((name) => `/usr/bin/${name}`).find(existsSync);

/** Runs a Python script beside the tests with a new folder and `words`; gives the folder, which goes when the tests end. */
export function made(script, ...words) {
  const folder = mkdtempSync(join(tmpdir(), "qkv-pages-"));
  after(() => rmSync(folder, { recursive: true }));
  execFileSync(python, [join(here, script), folder, ...words], { stdio: "inherit" });
  return folder;
}

/** The payload of a page's first view. */
export function payloadOf(path) {
  const [, json] = readFileSync(path, "utf8").match(/class="qkv-data"[^>]*>(.*?)<\/script>/s);
  return JSON.parse(json);
}

export const floats = (base64) => new Float32Array(new Uint8Array(Buffer.from(base64, "base64")).buffer);

/**
 * A function that opens a file in a page: `open(path, { width, colorScheme, … })`. After each test its pages are closed,
 * and the test fails if one of them said something or asked anybody for anything.
 */
export function browser() {
  let running;
  let opened = [];
  before(async () => {
    assert.ok(executablePath, "there is no Chromium: install it (apt-get install chromium), or say where: CHROMIUM=/path");
    running = await chromium.launch({
      executablePath,
      args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync"],
    });
  });
  after(() => running.close());
  afterEach(async () => {
    const problems = opened.flatMap((page) => page.problems);
    await Promise.all(opened.map((page) => page.context().close()));
    opened = [];
    assert.deepEqual(problems, []);
  });
  return async function open(path, { width = 1280, height = 900, ...options } = {}) {
    const context = await running.newContext({ viewport: { width, height }, ...options });
    context.setDefaultTimeout(8000);
    const page = await context.newPage();
    const address = pathToFileURL(path).href;
    page.problems = [];
    opened.push(page);
    page.on("console", (message) => page.problems.push(`console: ${message.text()}`));
    page.on("pageerror", (error) => page.problems.push(`error: ${error.stack}`));
    page.on("dialog", (dialog) => page.problems.push(`dialog: ${dialog.message()}`));
    page.on("request", (request) => {
      const url = request.url();
      if (url.split("#")[0] !== address && !url.startsWith("data:")) page.problems.push(`request: ${url}`);
    });
    await page.goto(address);
    return page;
  };
}

/**
 * Keeps what a test saw, for people to look at: tests/shots/NAME.png, which git ignores. Nothing is held to it, and a
 * busy browser now and then can't take it ("Unable to capture screenshot"): then it is said, and is no failure.
 */
export async function keep(page, name) {
  mkdirSync(join(here, "shots"), { recursive: true });
  await page.screenshot({ path: join(here, "shots", `${name}.png`), fullPage: true })
    .catch((error) => console.warn(`no picture of ${name}: ${error.message.split("\n")[0]}`));
}

/** Fails on what an accessibility check calls serious or critical. */
export async function accessible(page) {
  // The mode without a page of its own is for pages without foreign frames, as ours are, and takes half the time.
  const { violations } = await new AxeBuilder({ page }).setLegacyMode(true).options({ resultTypes: ["violations"] }).analyze();
  const grave = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  assert.deepEqual(grave.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(" ")}`), []);
}
