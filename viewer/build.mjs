// Bundles the viewer into the package's assets: a script and a style sheet, which every page carries in itself, with one
// more sheet for each kind of page; and the same as a module for notebooks. `node build.mjs FOLDER` writes them elsewhere.
import { build } from "esbuild";
import { fileURLToPath } from "node:url";

const outdir = process.argv[2] ?? fileURLToPath(new URL("../src/qkv/pictures/assets/", import.meta.url));
const common = { absWorkingDir: import.meta.dirname, bundle: true, minify: true, charset: "utf8", outdir };
const script = { ...common, target: "es2022", legalComments: "inline" };

await build({ ...script, entryPoints: { viewer: "src/main.ts" }, format: "iife" });
await build({ ...script, entryPoints: { widget: "src/widget.ts" }, format: "esm" });
const sheets = ["viewer", "attention", "report", "walk", "widget"];
await build({ ...common, entryPoints: Object.fromEntries(sheets.map((name) => [name, `styles/${name}.css`])) });
