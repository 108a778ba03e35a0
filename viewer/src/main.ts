// Finds what Python has put into the page, and shows it in its place.
import type { Payload } from "./payload";

for (const element of document.querySelectorAll<HTMLScriptElement>("script.qkv-data")) {
  const payload = JSON.parse(element.textContent ?? "") as Payload;
  const place = document.getElementById(element.dataset["place"] ?? "");
  if (place) place.textContent = payload.title;
}
