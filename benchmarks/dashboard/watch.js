// Runs in every page before anything else: says when the page is drawn, by its own clock, frame by frame.
window.__watch = { asked: true, acted: 0, content: null, drawn: null, moves: false, from: "" };
(() => {
  const watch = window.__watch;
  const state = () => document.querySelector("[data-testid=stApp]")?.dataset.testScriptState;
  // What a person did last. The answer counts only after the page has asked the server something and, if it moves, has another address:
  // a click that leads to another page asks twice.
  const act = (event) =>
    event.isTrusted && Object.assign(watch, { acted: performance.now(), asked: false, drawn: null, from: event.type === "popstate" ? "" : location.href });
  for (const kind of ["pointerdown", "keydown", "input", "popstate"]) addEventListener(kind, act, true);
  // An answer of a few lines comes and goes between two states of the page: any word of the server is an answer, the last one counts.
  const Socket = window.WebSocket;
  window.WebSocket = class extends Socket {
    constructor(...where) {
      super(...where);
      this.addEventListener("message", () => watch.acted && Object.assign(watch, { asked: true, drawn: null }));
    }
  };
  const isDrawn = () => {
    if (state() !== "notRunning" || !document.querySelector("h1") || (watch.moves && location.href === watch.from)) return false;
    if (document.querySelector("[data-testid=stSkeleton], [data-stale=true]")) return false;
    for (const own of document.querySelectorAll("[data-testid^=stBidiComponent]")) {
      const root = [own, ...own.querySelectorAll("*")].map((one) => one.shadowRoot).find(Boolean);
      if (root && root.querySelector(".frame") && !root.querySelector("td, th")) return false;
    }
    return [...document.querySelectorAll("[data-testid=stVegaLiteChart]")].every((own) => own.querySelector("svg, canvas"));
  };
  const look = () => {
    if (watch.content === null && document.querySelector("h1")) watch.content = performance.now();
    const now = state();
    if (now && now !== "notRunning") Object.assign(watch, { asked: true, drawn: null });
    else if (watch.drawn === null && watch.asked && isDrawn()) watch.drawn = performance.now();
  };
  const begin = () => {
    // Between two frames the state may come and go: an observer sees each change.
    new MutationObserver(look).observe(document.documentElement, { subtree: true, attributeFilter: ["data-test-script-state"] });
    const frame = () => (look(), requestAnimationFrame(frame));
    requestAnimationFrame(frame);
  };
  document.documentElement ? begin() : addEventListener("DOMContentLoaded", begin);
})();
