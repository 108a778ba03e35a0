// Bundles the viewer into the package's assets: one script and one style sheet, which every page carries in itself.
import { build } from "esbuild";

const assets = new URL("../src/qkv/pictures/assets/", import.meta.url).pathname;

await build({
  entryPoints: { viewer: "src/main.ts" },
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  charset: "utf8",
  legalComments: "inline",
  outdir: assets,
});

await build({
  entryPoints: { viewer: "styles/main.css" },
  bundle: true,
  minify: true,
  charset: "utf8",
  outdir: assets,
});
