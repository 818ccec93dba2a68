// The stage: the current array with what it is computed from, on one canvas.

const HEADING = 300;  // what is above the canvas, in pixels

const keyOf = (id, place) => `${id}:${place}`;  // of a cell

function openStage({ canvas, trace, names, sequence, clock, onPick }) {
  const ctx = canvas.getContext("2d");
  const state = {
    array: null, layout: null, head: null, colors: readColors(), cells: [], cell: null, lit: new Set(), led: new Set(), extra: [],  // of the last four, keys
  };

  function arrange() {
    const width = canvas.clientWidth || 300;  // none, where it is hidden
    const height = innerWidth <= 900 ? 1200 : Math.max(400, innerHeight - HEADING);
    const fit = (head) => {
      state.shown = head;
      return fitted(layoutsOf(state.array, trace, names, sequence, head), width - 4, height);
    };
    let found = fit(state.isAll === false ? state.head : null);
    if (state.isAll === undefined && (!isReadable(found) || found.height > height)) found = fit(state.head);
    const dx = Math.max(0, Math.floor((width - found.width) / 2));
    for (const each of found.boxes) each.x += dx;
    state.layout = found;
    state.cells = found.boxes.flatMap((each) => Array.from(each.block.cells, (place, k) => ({
      key: keyOf(each.block.array.id, place), role: each.role, at: placeIn(each, Math.floor(k / each.block.cols), k % each.block.cols),
    })));
    const scale = devicePixelRatio || 1;
    canvas.width = width * scale;
    ctx.lastFont = null;
    canvas.height = Math.ceil(found.height + 4) * scale;
    canvas.style.height = `${Math.ceil(found.height + 4)}px`;
  }

  // Return the head that is shown, or null for all. `isAll` undefined: all, if their numbers have room.
  function show(array, head, isAll, isMoving) {
    Object.assign(state, { array, head, isAll, lit: new Set(), led: new Set(), extra: [] });
    arrange();
    if (isMoving && array.tree && onlyMoves(array.tree)) clock.play(); else clock.stop();
    return state.shown;
  }

  const placeIn = ({ block, x, y, cell }, i, j) =>
    [x + columnLeft(block, j, cell), y + rowTop(block, i, cell), cell];

  // Where cells stand, [x, y, size], by the cell of the array that they show.
  const positions = (role) => new Map(state.cells.filter((each) => each.role === role).map(({ key, at }) => [key, at]));

  function paint(share) {
    if (!state.layout) return;
    const { colors, layout } = state;
    const scale = devicePixelRatio || 1;
    ctx.setTransform(scale, 0, 0, scale, 0, 0);
    ctx.clearRect(0, 0, canvas.width, canvas.height);
    const sources = share < 1 ? positions("source") : null;
    for (const each of layout.boxes) paintFrame(ctx, colors, each);
    for (const each of layout.boxes) paintBox(each, share, sources);
    if (!sources) paintMarks();
  }

  // The cells of a box. Those of the result may be on their way from their sources.
  function paintBox(each, share, sources) {
    const { block, cell } = each;
    const { array, cols, group, head, number } = block;
    const isComing = sources && each.role === "result";
    const pieces = group ? cols / group : state.layout.boxes.filter(({ role }) => role === "result").length;
    ctx.globalAlpha = sources && !isComing ? 0.3 : 1;
    paintCells(ctx, state.colors, block, cell, lookOf(block, trace), (i, j, k, place) => {
      const to = placeIn(each, i, j);
      const from = isComing && sources.get(sourceKey(array, place));
      const piece = group ? Math.floor(j / group) : head === null ? null : number;
      return from ? to.map((end, axis) => between(from[axis], end, shareOf(share, pieces, piece))) : to;
    });
    ctx.globalAlpha = 1;
  }

  function sourceKey(array, place) {
    const arrayOf = (id) => trace.arrays[id];
    const { array: id, index } = storyOf(array.tree, unflatten(place, array.shape), arrayOf);
    return keyOf(trace.plain(id), flatten(index, trace.arrays[id].shape));
  }

  function paintMarks() {
    const { ink } = state.colors;
    const { cell, lit, led, extra } = state;
    for (const { key, at } of state.cells) {
      if (led.has(key)) outline(ctx, at, ink, 1);
      if (lit.has(key)) outline(ctx, at, ink, 1.5, [3, 3]);
      if (extra.includes(key)) outline(ctx, at, ink, 2.5);
      if (key === cell) outline(ctx, at, ink, 3);
    }
  }

  function cellAt({ offsetX, offsetY }) {
    const isInside = ({ at: [x, y, size] }) => offsetX >= x && offsetX < x + size && offsetY >= y && offsetY < y + size;
    const [id, place] = state.cells.find(isInside)?.key.split(":").map(Number) ?? [];
    return id === undefined ? null : { id, place };
  }

  canvas.addEventListener("click", (event) => onPick(cellAt(event), false));
  canvas.addEventListener("dblclick", (event) => onPick(cellAt(event), true));

  return {
    show, paint,
    mark(cell, lit, led) { Object.assign(state, { cell, lit, led }); clock.paint(); },
    light(keys) { state.extra = keys; clock.paint(); },
    recolor() { state.colors = readColors(); },
    where: positions,
    scrollTo({ id, place }) {  // into what the sheets at the bottom of a phone leave free
      const at = positions("result").get(keyOf(id, place)) ?? positions("source").get(keyOf(id, place));
      const y = canvas.getBoundingClientRect().top + (at?.[1] ?? 0);
      const least = innerHeight - 60 - document.getElementById("panel").offsetHeight;
      const most = parseFloat(getComputedStyle(canvas).scrollMarginTop);  // below what sticks there
      scrollBy({ top: y > least ? y - least : Math.min(0, y - most) });
    },
  };
}
