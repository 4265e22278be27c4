// A table of text and links. Every string from outside becomes a text node (textContent) or a title; nothing is ever parsed as HTML.

const utf8 = new TextDecoder();
const AT_ONCE = 24; // rows: as many as a screen shows

const idle = (then) => (window.requestIdleCallback ? requestIdleCallback(then, { timeout: 1000 }) : setTimeout(then, 50));

const text = (parent, tag, cls, value) => {
  const node = document.createElement(tag);
  if (cls) node.className = cls;
  if (value) node.textContent = value;
  parent.appendChild(node);
  return node;
};

const fill = (box, cell, href) => {
  let inner = box;
  if (href) {
    inner = text(box, "a", "", "");
    inner.setAttribute("href", href); // made by dashboard/links.py from a fixed page name and encoded parameters
    inner.tabIndex = -1;
    if (href.startsWith("https://github.com/")) {
      inner.target = "_blank";
      inner.rel = "noopener noreferrer nofollow";
    }
  }
  const words = text(inner, "span", cell.m ? "t mono" : "t", cell.at === undefined ? cell.t : cell.t.slice(0, cell.at));
  if (cell.at !== undefined) text(words, "mark", "", cell.t.slice(cell.at) || "\u2205");
  if (cell.s) text(inner, "span", "s", cell.s);
  if (cell.tip || cell.t.length > 40) box.title = cell.tip || cell.t;
  if (cell.k) box.dataset.kind = cell.k;
};

// One tab stop for the whole table; the arrow keys walk over its links.
const roam = (table) => {
  const first = table.querySelector("a");
  if (first) first.tabIndex = 0;
  table.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    const box = step && event.target.closest("a")?.parentElement;
    if (!box) return;
    event.preventDefault();
    let [y, x] = [box.parentElement.rowIndex, box.cellIndex];
    for (;;) {
      y += step[0];
      x += step[1];
      const next = table.rows[y]?.cells[x];
      if (!next) return;
      const link = next.querySelector("a");
      if (!link) continue;
      table.querySelector("a[tabindex='0']").tabIndex = -1;
      link.tabIndex = 0;
      link.focus();
      return;
    }
  });
};

// Widths from the texts alone: a browser that has to weigh thousands of cells for them takes longer than for everything else, and columns
// would move when the later rows come.
const size = (table, data, most) => {
  const group = document.createElement("colgroup");
  const widths = data.columns.map((column, x) => {
    const longest = data.rows.reduce((most, cells) => Math.max(most, cells[x].t.length, 0.9 * (cells[x].s || "").length), column.t.length);
    const width = `${Math.ceil(1.05 * Math.min(longest, most)) + 3}ch`;
    return x < data.frozen ? `min(${width}, 36vw)` : width;
  });
  // The last column takes what is left of the page's width.
  widths.forEach((width, x) => (text(group, "col", "", "").style.width = x < widths.length - 1 ? width : ""));
  table.prepend(group);
  table.style.tableLayout = "fixed";
  table.style.width = `max(100%, ${widths.join(" + ")})`;
  return widths.slice(0, Math.max(0, data.frozen - 1));
};

const addRows = (body, data, from, until, lefts) => {
  for (const cells of data.rows.slice(from, until)) {
    const row = text(body, "tr", "", "");
    cells.forEach((cell, x) => {
      const heading = x < data.frozen;
      const box = text(row, heading ? "th" : "td", heading ? "frozen" : "", "");
      if (heading) box.scope = "row";
      if (lefts[x]) box.style.left = lefts[x];
      if (data.columns[x] && data.columns[x].right) box.classList.add("right");
      fill(box, cell, cell.h === 0 ? cells[0].h : cell.h);
    });
  }
};

const draw = (frame, data) => {
  const [top, left] = [frame.scrollTop, frame.scrollLeft];
  const table = document.createElement("table");
  table.className = data.style;
  const wraps = table.classList.contains("lines") && !table.classList.contains("plain");
  const long = data.rows.length > AT_ONCE;
  text(table, "caption", "", data.caption);
  const head = text(text(table, "thead", "", ""), "tr", "", "");
  data.columns.forEach((column, x) => {
    const box = text(head, "th", x < data.frozen ? "frozen" : "", "");
    box.scope = "col";
    if (column.right) box.classList.add("right");
    // A long column must not press the others down to a syllable a line.
    if (wraps) {
      const longest = Math.max(0, ...data.rows.map((cells) => (cells[x] ? cells[x].t.length : 0)));
      box.style.minWidth = `${longest > 60 ? 28 : Math.min(16, longest)}ch`;
    }
    fill(box, column, column.h);
  });
  const lefts = [];
  if (long) {
    const frozen = size(table, data, wraps ? 28 : 44);
    frozen.forEach((_, x) => (lefts[x + 1] = `calc(${frozen.slice(0, x + 1).join(" + ")})`));
    lefts.forEach((own, x) => (head.children[x].style.left = own));
  }
  const body = text(table, "tbody", "", "");
  addRows(body, data, 0, long ? AT_ONCE : undefined, lefts);
  table.addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (!link || link.target || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    history.pushState({}, "", link.getAttribute("href")); // as Streamlit itself goes Back: the server is asked once
    window.dispatchEvent(new PopStateEvent("popstate"));
  });
  frame.replaceChildren(table);
  roam(table);
  if (!long && data.frozen > 1) {
    let offset = 0;
    for (let x = 1; x < data.frozen; x++) {
      offset += head.children[x - 1].getBoundingClientRect().width;
      for (const row of table.rows) row.children[x].style.left = `${offset}px`;
    }
  }
  if (long && top) addRows(body, data, AT_ONCE, undefined, lefts);
  else if (long) more(body, data, lefts);
  if (top) frame.scrollTop = top;
  if (left) frame.scrollLeft = left;
};

// What lies below the screen follows when the browser has nothing else to do, a few rows at a time so that nobody's click waits.
const more = (body, data, lefts) => {
  if (!body.isConnected || body.rows.length >= data.rows.length) return;
  idle(() => {
    addRows(body, data, body.rows.length, body.rows.length + AT_ONCE / 2, lefts);
    more(body, data, lefts);
  });
};

// What draws charts and data frames is loaded while somebody looks at the first page, so that nobody waits for it after a click.
const LATER = []; // names of modules of Streamlit's own, filled in by the server
const loadLater = () => {
  if (document.querySelector("[data-testid=stApp]")?.dataset.testScriptState !== "notRunning") return setTimeout(loadLater, 200);
  const name = LATER.shift();
  if (!name) return;
  import(new URL(`static/js/${name}`, document.baseURI).href).then(() => idle(loadLater), () => {});
};
setTimeout(loadLater, 200);

// Called anew whenever anything around the table changes, too: then nothing is to be drawn.
export default function ({ data, parentElement }) {
  const frame = parentElement.querySelector(".frame");
  const said = utf8.decode(data);
  if (frame.said === said) return;
  frame.said = said;
  draw(frame, JSON.parse(said));
}
