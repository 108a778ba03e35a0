// What the package carries is what the sources build, and it is small.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

const viewer = join(import.meta.dirname, "..");
const assets = join(viewer, "../src/qkv/pictures/assets");

test("the committed bundles are what the sources build, byte for byte", (t) => {
  const built = mkdtempSync(join(tmpdir(), "qkv-bundle-"));
  t.after(() => rmSync(built, { recursive: true }));
  execFileSync(process.execPath, [join(viewer, "build.mjs"), built]);
  assert.deepEqual(readdirSync(assets), readdirSync(built));
  for (const name of readdirSync(built)) {
    const same = readFileSync(join(built, name)).equals(readFileSync(join(assets, name)));
    assert.ok(same, `${name} is older than its sources: make viewer`);
  }
});

test("a page carries less than 60 KB of script", () => {
  assert.ok(statSync(join(assets, "viewer.js")).size < 60_000);
});
