// The page: which array and which cell are shown, and what happens when a reader asks for another.

function startPage(data) {
  const trace = openTrace(data);
  for (const array of trace.arrays) array.asGiven = array.numbers;  // whatever a switch does to it
  const names = nameAxes(data, trace);
  const sequence = data.sequence ?? 0;
  const byId = (id) => document.getElementById(id);
  const isNarrow = () => innerWidth <= 900;
  const isHidden = () => byId("page").offsetWidth === 0;  // behind the story
  const indexOf = ({ id, place }) => unflatten(place, trace.arrays[id].shape);
  const placeOf = (id, index) => flatten(index, trace.arrays[id].shape);
  const blocksOfArray = (array) => blocksOf(operandOf(["array", array.id], trace), names, sequence);
  const subscribers = [];  // called after every change, with the arrays that differ

  let current = null;  // the array on the stage
  let cursor = null;  // {id, place} on the stage, of `current` or of what it is computed from
  let isChosen = true;  // whether the reader looks at that cell
  let head = 0;  // that of the cell
  let isAll;  // whether all heads are shown: undefined until the reader says so
  let colors = readColors();

  const stale = new Set();  // arrays whose thumbnails are to be painted again
  const clock = startClock((share) => {
    if (isHidden()) return;
    stage.paint(share);
    if (stale.size) map.paint(colors, stale);
    stale.clear();
  });
  const stage = openStage({ canvas: byId("cells"), trace, names, sequence, clock, onPick });
  const map = drawMap({
    root: byId("map"), trace, names, sequence, go: (...where) => go(...where),
  });
  const panel = openPanel({ root: byId("number"), trace, edit, undo });
  const view = { root: byId("panel"), hasCurve: true, go, close: letGo, light: (keys) => stage.light(keys),
    inWords: (...at) => element("i", "", ...names.inWords(...at)).textContent };
  const controls = openControls({
    root: byId("controls"), data, trace, setSwitch, reset: () => undo(),
    change: (id, pairs) => changed(() => trace.setMany(id, pairs)),
  });

  // --- where the reader is

  // The cell that L depends on most; the largest one where no gradient is known.
  function strongest(array) {
    const { data: sizes } = trace.gradientOf(array) ?? array;
    const size = (place) => (Number.isFinite(sizes[place]) ? Math.abs(sizes[place]) : -1);
    const shown = blocksOfArray(array).flatMap(({ cells }) => [...cells]);
    return shown.reduce((best, place) => (size(place) > size(best) ? place : best), shown[0] ?? 0);
  }

  const isAlike = (a, b) => String([a.axes, a.shape]) === String([b.axes, b.shape]);
  const twinOf = (array) => trace.gradientOf(array) ?? trace.forwardOf(array);

  function go(id, place, { isMoving = true, isFocused = false } = {}) {
    const array = trace.arrays[id];
    const isSame = cursor && isAlike(trace.arrays[cursor.id], array);
    cursor = { id, place: place ?? (isSame ? cursor.place : strongest(array)) };
    isChosen = place !== undefined || !isNarrow();  // a sheet would cover numbers that nobody asked for
    const isNew = current !== array;
    current = array;
    if (isNew) showHeading();
    showStage(isMoving && isNew);
    showCell();
    showTable();
    if (isFocused) byId("cells").focus({ preventScroll: true });
    if (!isNarrow() || !isMoving || isFocused) return;
    if (isChosen) stage.scrollTo(cursor);
    else byId("work").scrollIntoView();
  }

  function setAddress(name) {
    if (isHidden()) return;  // it is the story's
    try { history.replaceState(null, "", `#${name}`); } catch { /* a frame has no address */ }
  }

  function showHeading() {
    const { id, name, shape, axes, says, tree, reads } = current;
    const equation = trace.equationOf(current);
    byId("name").textContent = name;
    byId("shape").textContent = axes.map((axis, i) => `${axis} = ${shape[i]}`).join(", ") || "one number";
    byId("equation").textContent = equation ? `= ${equation}` : "";
    byId("says").textContent = says ?? "";
    byId("again").hidden = !tree || !onlyMoves(tree);
    map.mark(id, reads.map(trace.plain));
    setAddress(name);
  }

  // All heads, or that of the cell: where all have no room for their numbers, and where the reader chose one.
  function showStage(isMoving = false) {
    const blocks = blocksOfArray(current);
    const own = blocks.findIndex(({ cells }) => cells.includes(cursor.place));
    if (cursor.id === current.id && blocks.length > 1) head = Math.floor(own * names.heads / blocks.length);
    const shown = stage.show(current, head, isNarrow() ? false : isAll, isMoving);
    const choices = blocks.length > 1 ? [...(isNarrow() ? [] : [null]), ...Array(names.heads).keys()] : [];
    byId("tabs").replaceChildren(...choices.map((choice) => {
      const tab = element("button", "", ...(choice === null ? ["all heads"] : headKey(choice)));
      tab.type = "button";
      tab.setAttribute("aria-pressed", String(choice === shown));
      tab.addEventListener("click", () => showHead(choice));
      return tab;
    }));
    stopAtTab(byId("tabs").querySelector("[aria-pressed=true]") ?? undefined);
  }

  function showHead(chosen) {
    isAll = chosen === null;
    head = chosen ?? head;
    const blocks = blocksOfArray(current);
    const block = blocks[Math.floor(head * blocks.length / names.heads)];
    if (!isAll && cursor.id === current.id && !block.cells.includes(cursor.place)) {
      const own = blocks.find(({ cells }) => cells.includes(cursor.place));
      cursor = { id: cursor.id, place: block.cells[own ? own.cells.indexOf(cursor.place) : 0] };
    }
    showStage();
    showCell();
  }

  function showCell(isSpoken = true) {
    if (isHidden()) return;  // the panel is the story's
    const { id, place } = cursor;
    const array = trace.arrays[id];
    const lit = leavesOf(trace.story(array, indexOf(cursor))).map((leaf) => keyOf(trace.plain(leaf.array), placeOf(leaf.array, leaf.index)));
    const led = trace.readersOf(current, id, place).map((to) => keyOf(current.id, to));
    stage.mark(...(isChosen ? [keyOf(id, place), new Set(lit), new Set(led)] : [null, new Set(), new Set()]));
    panel.show(view, isChosen ? cursor : null, { words: names.inWords(array, indexOf(cursor)) });
    if (isSpoken && isChosen) byId("spoken").textContent = `${panel.words()}: ${written(array.data[place])}`;
  }

  function showTable() {
    if (byId("table").open) tabulate(byId("numbers"), current, blocksOfArray(current));
  }

  function onPick(found, isEdit = false) {
    clock.stop();
    isChosen = Boolean(found);
    cursor = found ?? cursor;
    showCell();
    if (isNarrow() && found) {
      if (byId("work").getBoundingClientRect().top > 0) byId("work").scrollIntoView();  // room for what changes
      stage.scrollTo(cursor);
    }
    if (isEdit && found) panel.startEditing();
  }

  // --- what the reader changes

  function changed(change) {
    const before = trace.arrays.map((array) => array.data);
    change();
    const differing = new Set(trace.arrays.filter(({ id, data: now }) =>
      now !== before[id] && now.some((value, place) => !Object.is(value, before[id][place]))).map(({ id }) => id));
    for (const id of differing) stale.add(id);
    clock.stop();
    clock.paint();
    controls.show();
    showCell(false);
    showTable();
    byId("spoken").textContent =
      `${differing.size} arrays changed. ${byId("loss")?.textContent ?? ""}`;
    for (const call of subscribers) call(differing);
  }

  function edit(id, place, value) {
    changed(() => trace.set(id, place, value));
  }

  function undo(id, place) {
    changed(() => trace.reset(id, place));
    if (id === undefined && controls.chosen()) setSwitch(null);
  }

  function setSwitch(id) {
    changed(() => { trace.setSwitch(id); controls.choose(id); });
    showHeading();
    showStage();
    showCell(false);
  }

  // --- the keys

  function step(by) {
    const shown = map.shown();
    const next = shown[shown.indexOf(current.id) + by];
    if (next !== undefined) go(next);
  }

  function walk(direction) {
    onPick((isChosen && nextCell(stage.where("result"), cursor, direction)) || cursor);
  }

  function toTwin() {
    const twin = twinOf(current);
    if (twin) go(twin.id, cursor.id === current.id ? cursor.place : undefined);
  }

  const replay = () => { if (onlyMoves(current.tree ?? [])) clock.play(); };

  function letGo() {
    if (clock.isMoving()) return clock.stop();
    (isChosen ? byId("cells") : map.linkOf(current.id)).focus({ preventScroll: true });
    onPick(null);
  }

  const stopAtTab = roving(byId("tabs"), "button");
  listenToKeys(byId("page"), byId("cells"), {
    ",": () => step(-1), ".": () => step(1), r: replay, g: toTwin, Escape: letGo,
    Enter: () => onPick(cursor, true), Backspace: panel.undo, "-": () => panel.turn(-0.1),
    "+": () => panel.turn(0.1), "=": () => panel.turn(0.1),
  }, walk);

  // --- the start

  byId("previous").addEventListener("click", () => step(-1));
  byId("next").addEventListener("click", () => step(1));
  byId("again").addEventListener("click", replay);
  byId("table").addEventListener("toggle", showTable);
  byId("for-gradients").hidden = !Object.keys(data.gradients).length;
  for (const name of ["gradients", "steps"]) {
    byId(name).addEventListener("change", ({ target }) => { map.view[name] = target.checked; map.arrange(); });
  }
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault();
    byId("cells").focus();
  });
  byId("note").textContent = data.note ?? "";

  const named = () => trace.byName.get(decodeURIComponent(location.hash.slice(1)));
  addEventListener("hashchange", () => {
    if (named() !== undefined && named() !== current.id) go(named());
  });
  new ResizeObserver(() => {  // also where the page comes out of hiding
    if (isHidden()) return;
    map.follow(current.id);
    showStage();
    showCell(false);
  }).observe(byId("work"));

  function recolor() {
    colors = readColors();
    stage.recolor();
    map.paint(colors);
    showCell(false);
  }
  onTheme(recolor);

  map.paint(colors);
  controls.show();
  go(named() ?? trace.byName.get(data.start) ?? 0, undefined, { isMoving: false });

  return {
    trace, panel, changed, edit, undo, setSwitch, controls,
    open: go,
    change: (call) => subscribers.push(call),
    reset: () => undo(),
  };
}
