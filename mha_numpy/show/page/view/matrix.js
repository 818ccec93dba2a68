// One head, large: a table with a cell for each query and key.

const LARGEST = 48, SMALLEST = 13, READABLE = 30;  // of a cell, in pixels

const brief = (value) => (Number.isInteger(value) ? String(value) : value.toFixed(2).replace(/^0/, ""));

// Rows and columns to go on by an arrow key.
const stepOf = ({ key, ctrlKey, metaKey, altKey }) => (ctrlKey || metaKey || altKey ? undefined : ARROWS[key]?.toReversed());

// `show` gives the cells their numbers; `point` is called with a query and a key. `last` is what a column
// at the right has above it: `end` fills that.
function openMatrix(root, point, last = "") {
  let [labels, cells, headings, ends, chosen] = [[], [], [], [], [0, 0]];
  root.classList.add("matrix");

  // Columns that are `isAside` are grey; rows have the names of the columns, if none of their own.
  function build(names, isAside = () => false, rows = names) {
    labels = names;
    chosen = [0, 0];
    const heading = (words, scope) => {
      const made = element("th", "", element("span", "", words));
      made.scope = scope;
      return made;
    };
    const above = labels.map((words) => heading(words, "col"));
    const beside = rows.map((words) => heading(words, "row"));
    headings = [beside, above];
    root.classList.toggle("upright", labels.some((words) => words.length > 2));
    cells = labels.map(() => labels.map((_, j) => Object.assign(element("td", isAside(j) ? "aside" : ""), { tabIndex: -1 })));
    ends = last ? labels.map(() => element("th", "end")) : [];
    root.replaceChildren(element("table", "",
      element("thead", "", element("tr", "", element("td"), ...above, last ? element("th", "end", last) : "")),
      element("tbody", "", ...cells.map((row, i) => element("tr", "", beside[i], ...row, ends[i] ?? ""))),
    ));
    root.querySelector("thead td").className = "corner";
    fit();
  }

  function fit() {
    if (!labels.length) return;
    const widest = Math.max(...headings[0].map((heading) => heading.firstChild.offsetWidth)) + 10;
    const room = (root.clientWidth - widest - (last ? 60 : 0)) / labels.length - 2.2;
    const cell = Math.max(SMALLEST, Math.min(LARGEST, Math.floor(room)));
    root.style.setProperty("--cell", `${cell}px`);
    root.classList.toggle("small", cell < READABLE);
  }

  function choose(i, j) {
    const [was, is] = [cells[chosen[0]]?.[chosen[1]], cells[i][j]];
    was?.classList.remove("chosen");
    if (was) was.tabIndex = -1;
    chosen = [i, j];
    is.classList.add("chosen");
    is.tabIndex = 0;
    headings.forEach((group, axis) => group.forEach((each, at) =>
      each.classList.toggle("lit", at === chosen[axis])));
  }

  const placeOf = (target) => {
    const cell = target.closest?.("tbody td");
    return cell ? [cell.parentNode.rowIndex - 1, cell.cellIndex - 1] : null;
  };
  for (const event of ["pointerover", "focusin", "click"]) {
    root.addEventListener(event, ({ target }) => {
      const place = placeOf(target);
      if (place) point(...place);
    });
  }
  root.addEventListener("keydown", (event) => {
    const step = stepOf(event);
    if (!step || !placeOf(event.target)) return;
    event.preventDefault();
    cells[chosen[0] + step[0]]?.[chosen[1] + step[1]]?.focus();
  });
  new ResizeObserver(fit).observe(root);

  return {
    build,
    // Numbers by `value(i, j)`, whose share of the full colour is `shade(i, j)`; hidden cells are hatched.
    show(value, shade, isHidden, name, color) {
      root.firstChild.setAttribute("aria-label", name);
      cells.forEach((row, i) => row.forEach((cell, j) => {
        cell.classList.toggle("hatched", isHidden(i, j));
        cell.textContent = isHidden(i, j) ? "" : brief(value(i, j));
        tint(cell, shade(i, j), color);
      }));
    },
    choose,
    end(i, words) { ends[i].textContent = words; },
  };
}

// A share of the full colour, which is that of a head or plain, over that of zeros: filled is more than zero, a
// ring less.
function tint(cell, share, name) {
  const color = `color-mix(in oklab, var(--${name}) ${(100 * Math.min(1, Math.abs(share))).toFixed(1)}%, var(--sunk))`;
  cell.style.background = share < 0 ? "var(--card)" : color;
  cell.style.boxShadow = share < 0 ? `inset 0 0 0 3px ${color}` : "";
  cell.classList.toggle("zero", Math.abs(share) < NONE);
}
