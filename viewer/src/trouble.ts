// What is said in the place of a view that can't be drawn.

/** What is wrong with a payload, in a sentence. */
export class Unreadable extends Error {}

/** A sentence on what is wrong, and one on what to do. */
export function wordsFor(error: unknown): string {
  const said = error instanceof Unreadable ? error.message : `What this page should show can't be read: ${error}.`;
  return `${said} Write the page again.`;
}

/** Returns what takes away what `show` shows in an element, or, where it fails, the words for why. */
export function guarded(element: HTMLElement, show: () => () => void): () => void {
  try {
    return show();
  } catch (error) {
    const words = Object.assign(document.createElement("p"), { className: "trouble", textContent: wordsFor(error) });
    words.setAttribute("role", "alert");
    element.querySelector(":scope > .not-yet")?.remove();
    element.prepend(words);
    return () => words.remove();
  }
}
