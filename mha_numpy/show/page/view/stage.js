// The stage: the current array with what it is computed from, on one canvas.

const HEADING = 300;  // what is above the canvas, in pixels

function openStage({ canvas, trace, names, sequence, clock, onPick }) {
  const ctx = canvas.getContext("2d");
  const state = {
    array: null, layout: null, head: null, colors: readColors(), cell: null, lit: [], led: [], extra: [],
  };
  const keyOf = (id, place) => `${id}:${place}`;

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
    state.readers = null;
    const scale = devicePixelRatio || 1;
    canvas.width = width * scale;
    ctx.lastFont = null;
    canvas.height = Math.ceil(found.height + 4) * scale;
    canvas.style.height = `${Math.ceil(found.height + 4)}px`;
  }

  // Return the head that is shown, or null for all. `isAll` undefined: all, if their numbers have room.
  function show(array, head, isAll, isMoving) {
    Object.assign(state, { array, head, isAll, lit: [], led: [], extra: [] });
    arrange();
    if (isMoving && array.tree && onlyMoves(array.tree)) clock.play(); else clock.stop();
    return state.shown;
  }

  const placeIn = ({ block, x, y, cell }, i, j) =>
    [x + columnLeft(block, j, cell), y + rowTop(block, i, cell), cell];

  // Where cells stand, [x, y, size], by the cell of the array that they show.
  function positions(role) {
    const found = new Map();
    for (const each of state.layout.boxes) if (each.role === role) {
      const { array: { id }, cells, cols } = each.block;
      cells.forEach((place, k) =>
        found.set(keyOf(id, place), placeIn(each, Math.floor(k / cols), k % cols)));
    }
    return found;
  }

  function paint(share) {
    if (!state.layout) return;
    const { colors, layout } = state;
    const scale = devicePixelRatio || 1;
    ctx.setTransform(scale, 0, 0, scale, 0, 0);
    ctx.clearRect(0, 0, canvas.width, canvas.height);
    const sources = share < 1 ? positions("source") : null;
    for (const each of layout.boxes) paintFrame(ctx, colors, each);
    for (const each of layout.boxes) paintBox(each, share, sources);
    if (!sources) paintMarks(layout.boxes);
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

  function paintMarks(boxes) {
    const { ink } = state.colors;
    const sets = [state.lit, state.led, state.extra].map((list) =>
      new Set(list.map(({ array, place }) => keyOf(array, place))));
    const own = state.cell && keyOf(state.cell.id, state.cell.place);
    for (const each of boxes) {
      const { block: { array, cells, cols } } = each;
      cells.forEach((place, k) => {
        const key = keyOf(array.id, place);
        const mark = (...style) => outline(ctx, each, Math.floor(k / cols), k % cols, ink, ...style);
        if (sets[1].has(key)) mark(1);
        if (sets[0].has(key)) mark(1.5, [3, 3]);
        if (sets[2].has(key)) mark(2.5);
        if (key === own) mark(3);
      });
    }
  }

  function cellAt({ offsetX, offsetY }) {
    for (const each of state.layout?.boxes ?? []) {
      const { block, cell } = each;
      const [x, y] = [offsetX - each.x, offsetY - each.y];
      for (let i = 0; i < block.rows; i++) {
        const top = rowTop(block, i, cell);
        if (y < top || y >= top + cell) continue;
        for (let j = 0; j < block.cols; j++) {
          const left = columnLeft(block, j, cell);
          const place = block.cells[i * block.cols + j];
          if (x >= left && x < left + cell) return { id: block.array.id, place };
        }
      }
    }
    return null;
  }

  // The cells of the current array that read a cell; the stories are walked once for a scene.
  function readersOf(id, place) {
    const { array } = state;
    if (!array.tree || !array.reads.map(trace.plain).includes(id) || array.data.length > 3000) return [];
    if (!state.readers) {
      state.readers = new Map();
      for (let to = 0; to < array.data.length; to++) {
        for (const leaf of leavesOf(trace.story(array, unflatten(to, array.shape)))) {
          const key = keyOf(trace.plain(leaf.array), flatten(leaf.index, trace.arrays[leaf.array].shape));
          if (!state.readers.has(key)) state.readers.set(key, new Set());
          state.readers.get(key).add(to);
        }
      }
    }
    return [...state.readers.get(keyOf(id, place)) ?? []].map((to) => ({ array: array.id, place: to }));
  }

  canvas.addEventListener("click", (event) => onPick(cellAt(event), false));
  canvas.addEventListener("dblclick", (event) => onPick(cellAt(event), true));

  return {
    show, paint, readersOf,
    mark(cell, lit, led) { Object.assign(state, { cell, lit, led }); clock.paint(); },
    light(cells) { state.extra = cells; clock.paint(); },
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
