// A table of text and links. Every string from outside becomes a text node (textContent) or a title; nothing is ever parsed as HTML.

const text = (parent, tag, cls, value) => {
  const node = document.createElement(tag);
  if (cls) node.className = cls;
  node.textContent = value;
  parent.appendChild(node);
  return node;
};

const fill = (box, cell, href, go) => {
  let inner = box;
  if (href) {
    inner = text(box, "a", "", "");
    inner.setAttribute("href", href); // made by dashboard/links.py from a fixed page name and encoded parameters
    inner.tabIndex = -1;
    if (href.startsWith("https://github.com/")) {
      inner.target = "_blank";
      inner.rel = "noopener noreferrer nofollow";
    }
    inner.addEventListener("click", (event) => {
      if (inner.target) return;
      if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
      event.preventDefault();
      go(href);
    });
  }
  const words = text(inner, "span", cell.m ? "t mono" : "t", cell.at === undefined ? cell.t : cell.t.slice(0, cell.at));
  if (cell.at !== undefined) text(words, "mark", "", cell.t.slice(cell.at) || "\u2205");
  if (cell.s) text(inner, "span", "s", cell.s);
  if (cell.tip || cell.t.length > 40) box.title = cell.tip || cell.t;
  if (cell.k) box.dataset.kind = cell.k;
};

// One tab stop for the whole table; the arrow keys walk over its links.
const roam = (table) => {
  const rows = [...table.querySelectorAll("tr")].map((row) => [...row.children].map((cell) => cell.querySelector("a")));
  const links = rows.flat().filter(Boolean);
  if (links.length) links[0].tabIndex = 0;
  const place = (link) => {
    for (let y = 0; y < rows.length; y++) {
      const x = rows[y].indexOf(link);
      if (x >= 0) return [y, x];
    }
    return null;
  };
  table.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    const at = step && place(table.getRootNode().activeElement);
    if (!at) return;
    event.preventDefault();
    let [y, x] = at;
    for (;;) {
      y += step[0];
      x += step[1];
      if (y < 0 || y >= rows.length || x < 0 || x >= rows[y].length) return;
      const next = rows[y][x];
      if (next) {
        links.forEach((link) => (link.tabIndex = -1));
        next.tabIndex = 0;
        next.focus();
        return;
      }
    }
  });
};

export default function ({ data, parentElement, setTriggerValue }) {
  const frame = parentElement.querySelector(".frame");
  const go = (href) => setTriggerValue("go", href);
  const [top, left] = [frame.scrollTop, frame.scrollLeft];
  const table = document.createElement("table");
  table.className = data.style;
  const wraps = table.classList.contains("lines") && !table.classList.contains("plain");
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
    fill(box, column, column.h, go);
  });
  const body = text(table, "tbody", "", "");
  data.rows.forEach((cells) => {
    const row = text(body, "tr", "", "");
    cells.forEach((cell, x) => {
      const heading = x < data.frozen;
      const box = text(row, heading ? "th" : "td", heading ? "frozen" : "", "");
      if (heading) box.scope = "row";
      if (data.columns[x] && data.columns[x].right) box.classList.add("right");
      fill(box, cell, cell.h === 0 ? cells[0].h : cell.h, go);
    });
  });
  frame.replaceChildren(table);
  roam(table);
  let offset = 0;
  [...head.children].slice(0, data.frozen).forEach((box, x) => {
    table.querySelectorAll(`tr > :nth-child(${x + 1})`).forEach((cell) => (cell.style.left = `${offset}px`));
    offset += box.getBoundingClientRect().width;
  });
  frame.scrollTop = top;
  frame.scrollLeft = left;
}
