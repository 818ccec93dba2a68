// The page: which array and which cell are shown, and what happens when a reader asks for another.

function startPage(data) {
  const trace = openTrace(data);
  for (const array of trace.arrays) array.asGiven = array.numbers;  // whatever a switch does to it
  const names = nameAxes(data, trace);
  const byId = (id) => document.getElementById(id);
  const isPhone = () => innerWidth < 640;
  const listeners = { go: [], edit: [], option: [], switch: [] };
  const tell = (event, told) => listeners[event].forEach((call) => call(told));
  const blocksOfArray = (array) => blocksOf(operandOf(["array", array.id], trace), names, data.sequence ?? 0);

  let current = null;  // the array on the stage
  let cell = null;  // {id, place}: what the panel tells of; on the stage, but not always of `current`
  let isHeld = false;  // the cell stays, though the pointer moves on
  let head = null;  // the only head that is shown; null for all
  let colors = readColors();

  const stale = new Set();  // arrays whose thumbnails are to be painted anew
  const clock = startClock(() => {
    stage.paint();
    if (stale.size) map.paint(colors, stale);
    stale.clear();
  });
  const stage = openStage({ canvas: byId("cells"), trace, names, sequence: data.sequence ?? 0, clock, onHover, onPick });
  const map = drawMap({ root: byId("map"), trace, names, sequence: data.sequence ?? 0, gradientNames: data.gradients, go: (id) => go(id) });
  const panel = openPanel({
    root: byId("panel"), trace, names, colors: () => colors, edit, undo: (id, place) => undo(id, place),
    light: (cells) => stage.light(cells), go, hold: () => { isHeld = true; },
  });
  const controls = openControls({
    root: byId("controls"), data, trace, setSwitch, reset: () => undo(),
    change: (id, pairs) => changed(() => {
      trace.setMany(id, pairs);
      const name = Object.keys(data.options).find((each) => [data.options[each], data.options[each].mask].includes(trace.arrays[id].name));
      tell("option", { name, value: controls.get(name) });
    }),
  });

  // --- where the reader is

  function strongest(array) {
    const shown = blocksOfArray(array).flatMap(({ cells }) => [...cells]);
    const sizes = (trace.gradientOf(array) ?? array).data;
    const size = (place) => (Number.isFinite(sizes[place]) ? Math.abs(sizes[place]) : -1);
    return shown.reduce((best, place) => (size(place) > size(best) ? place : best), shown[0] ?? 0);
  }

  function go(id, place, { isMoving = true } = {}) {
    const array = trace.arrays[id];
    const isSame = cell && String(trace.arrays[cell.id].axes) === String(array.axes) && String(trace.arrays[cell.id].shape) === String(array.shape);
    cell = { id, place: place ?? (isSame ? cell.place : strongest(array)) };
    isHeld = place !== undefined;
    const isNew = current !== array;
    current = array;
    if (isNew) {
      byId("name").textContent = array.name;
      byId("shape").textContent = `(${array.shape.join(", ")})  ${array.axes.join(" ")}`;
      byId("equation").textContent = array.equation ? `= ${array.equation}` : "";
      byId("says").textContent = array.says ?? "";
      const twin = trace.gradientOf(array) ?? (panel.forward(array) !== array ? panel.forward(array) : null);
      byId("twin").hidden = !twin;
      byId("twin").textContent = twin ? twin.name : "";
      byId("again").disabled = !array.tree;
      map.mark(id, array.reads);
      map.reveal(id);
      try { history.replaceState(null, "", `#${array.name}`); } catch { /* a frame has no address */ }
    }
    showStage(isMoving && isNew);
    showCell();
    if (byId("table").open) showTable();
    if (isPhone() && isMoving) stage.scrollTo(cell);
    tell("go", here());
  }

  function showStage(isMoving = false) {
    const blocks = blocksOfArray(current);
    const own = blocks.findIndex(({ cells }) => cells.includes(cell.place));
    if (isPhone() && blocks.length > 1 && cell.id === current.id) head = Math.floor(own * names.heads / blocks.length);
    stage.show(current, head, isMoving);
    const tabs = byId("heads");
    const isUseful = blocks.length > 1 && (head !== null || stage.cellSize() < READABLE_CELL);
    tabs.replaceChildren(...(!isUseful ? [] : [...(isPhone() ? [] : [null]), ...Array(names.heads).keys()].map((each) => {
      const tab = Object.assign(element("button", "", each === null ? "all heads" : `head ${each}`), { type: "button" });
      tab.setAttribute("aria-pressed", String(each === head));
      tab.addEventListener("click", () => showHead(each));
      return tab;
    })));
  }

  function showHead(chosen) {
    head = chosen;
    const blocks = blocksOfArray(current);
    const block = blocks[Math.floor((chosen ?? 0) * blocks.length / names.heads)];
    if (chosen !== null && cell.id === current.id && !block.cells.includes(cell.place)) {
      const own = blocks.find(({ cells }) => cells.includes(cell.place));
      cell = { id: cell.id, place: block.cells[own ? own.cells.indexOf(cell.place) : 0] };
    }
    showStage();
    showCell();
  }

  function showCell(isSpoken = true) {
    const array = trace.arrays[cell.id];
    const told = trace.story(array, unflatten(cell.place, array.shape));
    const lit = leavesOf(told).map(({ array: id, index }) => ({ array: id, place: flatten(index, trace.arrays[id].shape) }));
    stage.mark(cell, lit, stage.readersOf(cell.id, cell.place));
    panel.show(cell.id, cell.place);
    byId("panel").classList.toggle("held", isHeld);
    if (isSpoken) byId("spoken").textContent = `${panel.labelOf(array, unflatten(cell.place, array.shape))}, ${names.inWords(array, unflatten(cell.place, array.shape))}: ${written(array.data[cell.place])}`;
  }

  function here() {
    const { shape } = current;
    return { array: current.name, index: cell.id === current.id ? unflatten(cell.place, shape) : null };
  }

  function onHover(found) {
    byId("cells").style.cursor = found ? "pointer" : "";
    if (!found || isHeld || stage.isMoving() || (found.id === cell.id && found.place === cell.place)) return;
    cell = found;
    showCell(false);
  }

  function onPick(found, isEdit) {
    clock.stop("stage");
    if (!found) { isHeld = false; return showCell(); }
    const isSame = isHeld && found.id === cell.id && found.place === cell.place;
    cell = found;
    isHeld = isEdit || !isSame;
    showCell();
    tell("go", here());
    if (isEdit) panel.startEditing();
  }

  // --- what the reader changes

  function changed(change) {
    const before = trace.arrays.map((array) => array.data);
    change();
    const differing = new Map();
    for (const { id, data: now } of trace.arrays) if (now !== before[id]) {
      const places = new Set();
      now.forEach((value, place) => { if (!Object.is(value, before[id][place])) places.add(place); });
      if (places.size) differing.set(id, places);
    }
    clock.stop("stage");
    const ids = new Set(differing.keys());
    for (const id of ids) stale.add(id);
    stage.flash(differing);
    if (!wantsLessMotion() && ids.size) {
      map.flash(ids, colors.flash);
      clock.play("flash", FLASH);
    }
    controls.show();
    showCell(false);
    if (byId("table").open) showTable();
    byId("spoken").textContent = `${ids.size} arrays changed. ${byId("loss")?.textContent ?? ""}`;
  }

  function edit(id, place, value) {
    changed(() => trace.set(id, place, value));
    tell("edit", { array: trace.arrays[id].name, index: unflatten(place, trace.arrays[id].shape), value });
  }

  function undo(id, place) {
    changed(() => trace.reset(id, place));
    if (id === undefined && controls.chosen()) setSwitch(null);
    tell("edit", { array: id === undefined ? null : trace.arrays[id].name, index: null, value: null });
  }

  function setSwitch(id) {
    changed(() => { trace.setSwitch(id); controls.choose(id); });
    map.mark(current.id, current.reads);
    byId("equation").textContent = current.equation ? `= ${current.equation}` : "";
    showStage();
    showCell(false);
    tell("switch", id);
  }

  // --- the numbers as a table, and all arrays as a list

  function showTable() {
    const table = byId("numbers");
    table.replaceChildren(...blocksOfArray(current).map((block) => {
      const rows = Array.from({ length: block.rows }, (_, i) => element("tr", "", element("th", "", block.rowLabels[i] ?? ""),
        ...Array.from({ length: block.cols }, (__, j) => element("td", "", written(current.data[block.cells[i * block.cols + j]])))));
      const caption = current.name + (block.head === null ? "" : `, head ${block.number}`);
      return element("table", "", element("caption", "", caption),
        element("thead", "", element("tr", "", element("th"), ...block.colLabels.map((label) => element("th", "", label)))),
        element("tbody", "", ...rows));
    }));
  }

  function showList() {
    byId("list").append(...trace.arrays.filter(({ says }) => says).map((array) => {
      const link = element("a", "", array.name);
      link.href = `#${array.name}`;
      link.addEventListener("click", (event) => { event.preventDefault(); go(array.id); byId("work").scrollIntoView(); });
      return element("li", array.pass, link, element("code", "", ` (${array.axes.join(", ")})${array.equation ? ` = ${array.equation}` : ""} `), array.says);
    }));
  }

  // --- keys

  function step(by) {
    const next = current.id + by;
    if (next >= 0 && next < trace.arrays.length) go(next);
  }

  // From cell to cell as they stand on the stage: the nearest in that direction.
  function walk(dx, dy) {
    const places = stage.where("result");
    const at = places.get(`${cell.id}:${cell.place}`) ?? places.values().next().value;
    let best = null;
    for (const [key, { x, y }] of places) {
      const [along, across] = dx ? [(x - at.x) * dx, Math.abs(y - at.y)] : [(y - at.y) * dy, Math.abs(x - at.x)];
      if (along <= 1) continue;
      const far = along + 3 * across;
      if (!best || far < best.far) best = { far, key };
    }
    if (!best) return;
    const [id, place] = best.key.split(":").map(Number);
    cell = { id, place };
    isHeld = true;
    showCell();
    tell("go", here());
  }

  function toTwin() {
    const twin = trace.gradientOf(current) ?? panel.forward(current);
    if (twin && twin !== current) go(twin.id, cell.id === current.id ? cell.place : undefined);
  }

  const keys = {
    ArrowLeft: () => walk(-1, 0), ArrowRight: () => walk(1, 0), ArrowUp: () => walk(0, -1), ArrowDown: () => walk(0, 1),
    ",": () => step(-1), ".": () => step(1), r: () => stage.replay(), g: toTwin,
    Enter: () => panel.startEditing(), "+": () => panel.turn(0.1), "=": () => panel.turn(0.1), "-": () => panel.turn(-0.1),
    Escape: () => { isHeld = false; clock.stop("stage"); byId("cells").focus(); showCell(); },
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { target, key } = event;
    const isField = target.closest?.("input, select, textarea, dialog");
    const isControl = target.closest?.("a, button, summary, [tabindex]:not(canvas)");
    if (!(key in keys) || (isField && key !== "Escape") || (key === "Enter" && isControl)) return;
    if (isField && !byId("page").contains(target)) return;
    if (key.startsWith("Arrow") && target !== document.body && target !== byId("cells") && !byId("map").contains(target)) return;
    event.preventDefault();
    keys[key]();
  });

  // --- the start

  byId("previous").addEventListener("click", () => step(-1));
  byId("next").addEventListener("click", () => step(1));
  byId("again").addEventListener("click", () => stage.replay());
  byId("twin").addEventListener("click", toTwin);
  byId("table").addEventListener("toggle", () => { if (byId("table").open) showTable(); });
  byId("note").textContent = data.note ?? "";
  const named = () => trace.byName.get(decodeURIComponent(location.hash.slice(1)));
  addEventListener("hashchange", () => { if (named() !== undefined && named() !== current.id) go(named()); });
  addEventListener("resize", () => { if (isPhone() !== (head !== null)) head = isPhone() ? 0 : null; showStage(); showCell(false); });
  function recolor() {
    colors = readColors();
    stage.recolor();
    map.paint(colors);
    showCell(false);
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolor);
  if (parent !== window) {  // in a notebook: the frame asks how high to be, and says its theme
    addEventListener("message", ({ data: told }) => {
      if (!["dark", "light"].includes(told?.mhaStepperTheme)) return;
      document.documentElement.dataset.theme = told.mhaStepperTheme;
      recolor();
    });
    parent.postMessage({ mhaStepperHeight: 960 }, "*");
  }

  map.paint(colors);
  controls.show();
  showList();
  const start = data.start ?? { array: trace.arrays[0].name };
  const first = named() ?? trace.byName.get(start.array);
  const place = start.index && first === trace.byName.get(start.array) ? flatten(start.index, trace.arrays[first].shape) : undefined;
  if (isPhone()) head = 0;
  go(first, place, { isMoving: false });
  isHeld = false;

  return {
    trace, here,
    reset: () => undo(),
    goTo: (name, index) => go(trace.byName.get(name), index && flatten(index, trace.arrays[trace.byName.get(name)].shape)),
    setOption: (name, value) => (name === "switch" ? setSwitch(value) : controls.set(name, value)),
    option: (name) => (name === "switch" ? controls.chosen() : controls.get(name)),
    on: (event, call) => listeners[event].push(call),
    light(what, isOn = true) {
      if (what instanceof Element) what.classList.toggle("lit", isOn);
      else stage.light(isOn ? what.map(({ array, index }) => ({
        array: trace.byName.get(array), place: flatten(index, trace.arrays[trace.byName.get(array)].shape),
      })) : []);
    },
  };
}
