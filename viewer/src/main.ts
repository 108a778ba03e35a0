// Finds what Python has put into the page, and shows it in its place.
import { pageAddress } from "./address";
import { mount } from "./mount";
import type { Detail, Payload } from "./payload";
import { guarded } from "./trouble";

/** What comes behind the script is there once the whole page is read. */
async function details(): Promise<Detail[]> {
  if (document.readyState === "loading") {
    await new Promise((read) => document.addEventListener("DOMContentLoaded", read, { once: true }));
  }
  return [...document.querySelectorAll("script.qkv-detail")].flatMap((script) => {
    try {
      return [JSON.parse(script.textContent ?? "") as Detail];
    } catch {
      return []; // cut off: its pictures are told to be missing
    }
  });
}

for (const script of document.querySelectorAll<HTMLScriptElement>("script.qkv-data")) {
  const place = document.getElementById(script.dataset["place"] ?? "");
  if (place) guarded(place, () => mount(place, JSON.parse(script.textContent ?? "") as Payload, details, pageAddress()));
}
