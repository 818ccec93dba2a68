// The stage of the story: tables of buttons, each a number of the trace that can be chosen and changed.

const MOST_CELLS = 300;  // more would be slow, and too small to read: the map has them all

function openScene({ root, trace, facts, choose, change, undo, unfold }) {
  const first = trace.arrays.map(({ data }) => data.slice());  // as the page was opened
  const ROW = 8;  // numbers of a vector in a line
  const keyOf = ({ id, place }) => `${id}:${place}`;
  const cellAt = (button) => cells.get(button.dataset.key);
  const middle = (box) => [box.x + box.width / 2, box.y + box.height / 2];
  const largest = (numbers) => numbers.reduce((most, v) => Math.max(most, Number.isFinite(v) ? Math.abs(v) : 0), 1e-9);
  let cells = new Map();  // what is on stage, by key
  let tallest = 1;  // rows that a scene of one word has at most: cells are as large in all of them
  let seen = new Map();  // the numbers that were painted last
  const quiet = matchMedia("(prefers-reduced-motion: reduce)");

  const countCells = (tables) => tables.flatMap(({ rows }) => rows).reduce((sum, row) => sum + (row ? row.slices.flat().length : 0), 0);

  // A cell of which no array knows, or a text, as workings have it.
  function writes(working) {
    const isCell = "c" in working;
    const made = element(isCell ? "span" : "td", isCell ? `cell made head-${working.head % 8}` : `how ${working.name}`);
    return Object.assign(made, { working });
  }

  const isSigns = (slice) => typeof slice[0] === "string";
  const namedPiece = ([kind, words]) => ({
    word: () => element("b", "w", words), number: () => element("strong", "", words),
    term: () => element("em", "", words), name: () => element("code", "", words),
  }[kind]?.() ?? words);

  function buttonOf(cell) {
    const head = ["x", "y", "out"].includes(cell.part) ? "plain" : `head-${cell.head % 8}`;
    const button = element("button", `cell ${head}`, element("span", "value"), element("span", "to"));
    Object.assign(button, { type: "button", tabIndex: -1 });
    button.dataset.key = keyOf(cell);
    cells.set(keyOf(cell), cell);
    return button;
  }

  function rowOf(row, tall, columns) {
    const width = columns.flat().length;
    if (!row) {
      const line = element("td");
      line.colSpan = width + 1;
      return element("tr", "line", line);
    }
    const label = element("th", row.isName ? "name" : "", row.word, row.role ? element("small", "", row.role) : "");
    label.scope = "row";
    const made = element("tr", row.isChosen ? "on" : row.isSum ? "sum" : "", label);
    row.slices.forEach((slice, n) => {
      if (slice[0] === "bar") {
        const bar = element("span", "bar");
        bar.dataset.of = keyOf(row.slices[n - 1][0]);
        made.append(element("td", "long", bar));
      } else if (isSigns(slice)) made.append(Object.assign(element("td", "sign", slice[0]), { colSpan: tall ? 1 : columns[n].length }));
      else if (slice[0].name) made.append(...slice.map((each) => ("c" in each ? element("td", "", writes(each)) : writes(each))));
      else if (tall && slice.length > 1) made.append(element("td", "", element("div", "lines", ...slice.map(buttonOf))));
      else made.append(...slice.map((cell) => element("td", "", buttonOf(cell))));
    });
    return made;
  }

  // A table; vectors of more than eight numbers are written in lines of eight.
  function tableOf({ caption, columns, isOfWords, rows }) {
    if (!rows.length) return flowOf(caption);
    const isTall = !isOfWords && columns.some((names) => names.length > ROW);
    const numbers = columns.reduce((sum, names) => sum
      + (isTall ? Math.min(ROW, names.length) : names.length) * (names[0] !== "" && !names[0].name), 0);
    const head = element("tr", "", element("td"));
    for (const names of columns) {
      const shown = isTall && names.length > 1 ? [`numbers 0 to ${names.length - 1}`] : names;
      for (const name of shown) {
        if (name.name) {
          head.append(Object.assign(element("th", `how ${name.name}`, element("span")), { scope: "col", working: name }));
          continue;
        }
        const kind = isOfWords ? "word" : shown === names ? "" : "whole";
        const th = element(name ? "th" : "td", kind, element("span", "", name));
        if (name) th.scope = "col";
        head.append(th);
      }
    }
    const isStrip = isTall && rows.length > 3;  // too many to be read: colours only
    const made = element("table", isStrip ? "strips" : "", element("thead", "", head),
      element("tbody", "", ...rows.map((row) => rowOf(row, isTall, columns))));
    if (caption) made.prepend(element("caption", "", caption));
    Object.assign(made, { numbers: Math.max(numbers, 1), signs: columns.flat().filter((name) => !name).length, works: columns.flat().filter(({ name }) => name).length });
    made.style = `--own: ${made.numbers}; --own-signs: ${made.signs}; --works: ${made.works}`;
    return made;
  }

  // What is between tables; the matrices that it names open there.
  function flowOf(caption) {
    const line = element("p", "flow");
    for (const piece of caption.split(/(w_[qkv])/)) {
      const opens = facts.factors.includes(piece);
      line.append(opens ? Object.assign(element("button", "", element("code", "", piece)), { type: "button", onclick: () => unfold(piece) }) : piece);
      if (opens) line.lastChild.dataset.times = piece;
    }
    if (line.children.length) line.append(element("span", "", ": open one"));
    return line;
  }

  function show(tables, isMoving, times, rows) {
    tallest = rows;
    const before = new Map([...root.querySelectorAll("[data-key]")].map((each) => [each.dataset.key, each.getBoundingClientRect()]));
    [cells, seen] = [new Map(), new Map()];
    const board = element("div", "board", ...tables.map(tableOf));
    const most = (of) => Math.max(0, ...[...board.children].map((each) => each[of] ?? 0));
    const wordsOf = ({ rows }) => String(rows.map((row) => row?.word));
    const isAbreast = tables.length > 1 && most("numbers") * tables.length <= 16
      && tables.every((table) => table.caption && table.rows.length && wordsOf(table) === wordsOf(tables[0]));
    board.classList.toggle("abreast", isAbreast);
    board.style = `--numbers: ${most("numbers") * (isAbreast ? tables.length : 1)}; --signs: ${most("signs")}`;
    root.replaceChildren(board);
    for (const each of root.querySelectorAll("[data-times]")) each.ariaPressed = String(each.dataset.times === times);
    fit();
    if (isMoving && !quiet.matches) arrive(before);
    const button = root.querySelector("[data-key]");
    if (button) button.tabIndex = 0;
  }

  // A number that was on stage before comes from its old place; the rest appears.
  function arrive(before) {
    for (const each of root.querySelectorAll(".cell, th, .sign, .how, span.bar, .flow, caption")) {
      const [from, to] = [before.get(each.dataset.key), each.getBoundingClientRect()];
      if (from) {
        const way = `translate(${from.x - to.x}px, ${from.y - to.y}px) scale(${from.width / to.width})`;
        each.animate({ transform: [way, "none"], zIndex: [2, 2] }, { duration: 550, easing: "cubic-bezier(0.3, 0, 0.1, 1)" });
      } else each.animate({ opacity: [0, 0, 1] }, 550);
    }
  }

  // A dot flies from what was changed to each place that follows from it, where a ring answers.
  let flying = 0;
  function fly(from, targets) {
    if (!from || flying || quiet.matches) return;
    const [x, y] = middle(from.getBoundingClientRect());
    targets.slice(0, 40).forEach((target, n) => {
      const dot = element("i", `dot ${from.className.match(/head-\d/) ?? ""}`);
      const [toX, toY] = middle(target.getBoundingClientRect());
      const delay = Math.min(n * 40, 400);
      root.append(dot);
      flying += 1;
      dot.animate({ transform: [`translate(${x}px, ${y}px)`, `translate(${toX}px, ${toY}px)`] },
        { duration: 450, delay, easing: "ease-in-out", fill: "backwards" }).onfinish = () => { dot.remove(); flying -= 1; };
      target.animate({ filter: ["drop-shadow(0 0 7px var(--c, var(--ink)))", "none"] }, { duration: 600, delay: delay + 400 });
    });
  }

  // Cells as large as in all scenes, or the largest with which all is seen at once. Columns whose names
  // don't fit side by side are written upwards; tiny cells lose their numbers.
  function fit() {
    const board = root.firstChild;
    if (!board) return;
    root.style.contain = "size";
    root.style.minHeight = "";
    const style = getComputedStyle(root);
    const room = root.clientHeight - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom);
    root.style.contain = "";
    if (board.dataset.room === `${room} ${root.clientWidth}`) {
      root.style.minHeight = board.dataset.least;
      return;
    }
    const shapeTo = (high) => {
      board.style.setProperty("--high", `${high}px`);
      for (const table of board.querySelectorAll("table")) {
        table.classList.remove("upright");
        const spans = [...table.querySelectorAll("thead th:not(.whole, .how) span")];
        const width = table.querySelector(".cell")?.offsetWidth ?? 62;
        const isUpright = spans.some((span) => span.offsetWidth > span.parentElement.clientWidth + 6);
        table.classList.toggle("upright", isUpright);
        table.classList.toggle("tight", width < 40 && !table.matches(".strips"));
        table.classList.toggle("mute", width < 24 && !table.matches(".strips"));
      }
      return board.offsetHeight <= room;
    };
    let size = innerWidth > 600 ? Math.min(62, Math.max(36, (room - 48) / tallest - 4)) : 42;
    while (!shapeTo(size) && size > 28) size = Math.max(28, 0.93 * size);
    root.style.minHeight = board.offsetHeight > room ? `${board.offsetHeight + 24}px` : "";
    Object.assign(board.dataset, { room: `${room} ${root.clientWidth}`, least: root.style.minHeight });
  }

  function isMoved({ id, place }) {  // whether it is written otherwise than at first
    const [now, before] = [trace.arrays[id].data[place], first[id][place]];
    return now !== before && facts.number(now) !== facts.number(before);
  }

  // A number as its cell has it: where that is narrow, without a zero, and with less behind the point.
  function written(value, isTight) {
    const text = facts.number(value);
    if (!isTight || !Number.isFinite(value)) return text;
    const short = Math.abs(value) < 1 ? text : Number(value.toFixed(Math.abs(value) < 10 ? 1 : 0));
    return String(short).replace("-", "−").replace(/^(−?)0\./, "$1.");
  }

  // A number in its cell: in how strong a colour, and whether it is less than 0, or 0.
  function fill(made, text, value, most) {
    (made.firstElementChild ?? made).textContent = text;
    made.style.setProperty("--m", Math.min(1, 0.14 + 0.86 * Math.abs(value) / most).toFixed(3));
    for (const [kind, is] of Object.entries({ less: value <= -0.005, nil: Math.abs(value) < 0.005, wide: text.length > 4 })) made.classList.toggle(kind, is);
  }

  function paint({ from, also = [], ...at }) {
    const { cell: chosen, back: isBack } = at;
    const changed = [];
    const sources = chosen ? sourcesOf(chosen) : new Set();
    const scales = new Map();  // of each matrix on stage: its largest number at first, its largest slope
    for (const button of root.querySelectorAll("[data-key]")) {
      const cell = cellAt(button);
      const key = `${cell.part}:${cell.head}`;
      if (!scales.has(key)) {
        const { array, all } = facts.matrix(cell.part, cell.head);
        const slopes = isBack ? facts.matrix(`d_${cell.part}`, cell.head) : null;
        scales.set(key, {
          most: largest(all(first[array.id])),
          slopes, steepest: slopes ? largest(slopes.all()) : 1,
        });
      }
      const { most, slopes, steepest } = scales.get(key);
      const value = trace.arrays[cell.id].data[cell.place];
      const isHidden = ["scores", "weights"].includes(cell.part) && facts.isHidden(cell.head, cell.i, cell.j);
      const slope = slopes && !isHidden ? slopes.at(cell.i, cell.j) : 0;
      const lift = Math.abs(slope) / steepest;
      const hasArrow = lift >= 0.06 && Math.abs(slope) >= facts.EPSILON;
      const old = seen.get(keyOf(cell));
      if (old !== undefined && Math.abs(old - value) > 1e-9) changed.push(button);
      seen.set(keyOf(cell), value);
      button.style.setProperty("--g", hasArrow ? (0.35 + 0.65 * lift).toFixed(2) : 0);
      const kinds = {
        hatched: isHidden, moved: isMoved(cell), mine: trace.arrays[cell.id].edits.has(cell.place),
        source: sources.has(keyOf(cell)), here: chosen && keyOf(chosen) === keyOf(cell),
        pulled: hasArrow, down: slope < 0,
      };
      for (const [kind, is] of Object.entries(kinds)) button.classList.toggle(kind, Boolean(is));
      const isTight = button.closest("table").matches(".tight:not(.mute)");
      fill(button, isHidden ? "" : written(value, isTight), value, most);
      const wish = hasArrow ? (slope > 0 ? ", should rise" : ", should fall") : "";
      const place = facts.place(cell).map(([, text]) => text).join("");
      button.setAttribute("aria-label", `${place}: ${isHidden ? "hidden" : facts.number(value)}${wish}`);
    }
    const told = [...root.querySelectorAll(".how, .made")];
    const workings = told.length ? facts.workings(at, root.clientWidth < 500) : null;
    for (const each of told) {
      const { name, j, c } = each.working;
      const found = each.matches("th") ? workings.names[name] : workings[name](j, c);
      if (each.matches(".made")) fill(each, facts.number(found), found, scales.get(`v:${at.head}`).most);
      else {
        (each.matches("th") ? each.firstChild : each).replaceChildren(...[found].flat());
        each.classList.toggle("zero", found === "0");
        each.classList.toggle("long", found.length > 20);
      }
    }
    for (const bar of root.querySelectorAll("span.bar")) {
      const { id, place, head } = cells.get(bar.dataset.of);
      bar.className = `bar head-${head % 8}`;
      bar.style.setProperty("--v", trace.arrays[id].data[place]);
    }
    const source = from ?? (chosen && root.querySelector(".here"));
    fly(source, [...changed.filter((each) => each !== source), ...also]);
  }

  // The cells on stage that a number was computed from.
  function sourcesOf({ id, place }) {
    const found = new Set();
    const look = (array, index, depth) => {
      for (const leaf of leavesOf(trace.story(array, index))) {
        const source = trace.arrays[leaf.array];
        const key = `${leaf.array}:${flatten(leaf.index, source.shape)}`;
        if (cells.has(key)) found.add(key);
        else if (depth && source.tree) look(source, leaf.index, depth - 1);
      }
    };
    const array = trace.arrays[id];
    look(array, unflatten(place, array.shape), 4);
    return found;
  }

  // --- hands and keys

  let drag = null;
  root.addEventListener("pointerdown", (event) => {
    const button = event.target.closest("[data-key]");
    if (!button || event.pointerType !== "mouse") return;
    const cell = cellAt(button);
    drag = { cell, x: event.clientX, value: trace.arrays[cell.id].data[cell.place], steps: 0 };
  });
  addEventListener("pointermove", ({ clientX }) => {
    const steps = drag ? Math.round((clientX - drag.x) / 5) : 0;
    if (!drag || steps === drag.steps) return;
    drag.steps = steps;
    change(drag.cell, Number((drag.value + steps / 10).toFixed(6)));
  });
  addEventListener("pointerup", () => { drag = null; });
  root.addEventListener("click", ({ target }) => {
    const button = target.closest("[data-key]");
    if (button) choose(cellAt(button));
  });

  function go(from, [dx, dy]) {
    const places = new Map([...root.querySelectorAll("[data-key]")].map((each) => [each.dataset.key, middle(each.getBoundingClientRect())]));
    const next = nextCell(places, cellAt(from), [dx, dy]);
    if (next) focus(`${next.id}:${next.place}`);
  }
  function focus(key, options) {
    root.querySelector(`[data-key="${key}"]`)?.focus(options);
  }
  root.addEventListener("keydown", (event) => {
    const button = event.target.closest("[data-key]");
    if (!button || event.ctrlKey || event.metaKey || event.altKey) return;
    const cell = cellAt(button);
    const by = { "+": 0.1, "=": 0.1, "-": -0.1 }[event.key];
    if (by) change(cell, Number((trace.arrays[cell.id].data[cell.place] + by).toFixed(6)));
    else if (event.key === "Backspace") undo(cell);
    else if (event.key in ARROWS) go(button, ARROWS[event.key]);
    else return;
    event.preventDefault();
  });
  root.addEventListener("focusin", ({ target }) => {
    if (!target.matches?.("[data-key]")) return;
    for (const each of root.querySelectorAll(".cell[tabindex='0']")) each.tabIndex = -1;
    target.tabIndex = 0;
  });

  return {
    show, paint, fit, focus, keyOf, countCells, piece: namedPiece, first, isMoved,
    has: (cell) => cells.has(keyOf(cell)),
    at: (cell) => root.querySelector(`[data-key="${keyOf(cell)}"]`),
    reveal: () => root.querySelector(".here")?.scrollIntoView({ block: "nearest" }),
  };
}
