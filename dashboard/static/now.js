"use strict";

// The page comes whole from the server; this only fetches it again. An answer that stays
// out for three turns marks the page as old: what cannot be measured must not look green.
(() => {
  const seconds = Number(document.getElementById("now").dataset.refreshS);
  let lastGood = Date.now();

  function show(html) {
    const fresh = new DOMParser().parseFromString(html, "text/html");
    const main = fresh.getElementById("now");
    if (main === null) {
      throw new Error("not the Now page");
    }
    document.getElementById("now").replaceWith(document.adoptNode(main));
    document.title = fresh.title;
    const icon = document.querySelector("link[rel=icon]");
    const freshIcon = fresh.querySelector("link[rel=icon]").getAttribute("href");
    if (icon.getAttribute("href") !== freshIcon) {
      icon.setAttribute("href", freshIcon);
    }
  }

  async function refresh() {
    try {
      const signal = AbortSignal.timeout(seconds * 1000);
      const reply = await fetch("/", { cache: "no-store", signal });
      if (!reply.ok) {
        throw new Error(`HTTP ${reply.status}`);
      }
      show(await reply.text());
      lastGood = Date.now();
    } catch {
      // Told below, by the age of the last good answer.
    }
    const isOld = Date.now() - lastGood > 3 * seconds * 1000;
    document.getElementById("stale").hidden = !isOld;
    document.body.classList.toggle("old", isOld);
  }

  async function loop() {
    if (!document.hidden) {
      await refresh();
    }
    setTimeout(loop, seconds * 1000);
  }

  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) {
      refresh();
    }
  });
  setTimeout(loop, seconds * 1000);
})();
