// The stage: the current array with what it is computed from, on one canvas.

function openStage({ canvas, trace, names, sequence, clock, onHover, onPick }) {
  const ctx = canvas.getContext("2d");
  const state = {
    array: null, scene: null, layout: null, before: new Map(), head: null, colors: readColors(),
    cell: null, lit: [], led: [], extra: [], changed: new Map(),
  };
  const keyOf = (id, place) => `${id}:${place}`;

  function arrange() {
    const width = canvas.parentElement.clientWidth;
    const top = canvas.getBoundingClientRect().top + scrollY;
    const height = innerWidth < 640 ? 1200 : Math.max(400, innerHeight - top);
    state.scene = sceneOf(state.array, trace, names, sequence, state.head);
    const found = fitted(state.scene.candidates, width - 4, height);
    const dx = Math.max(0, Math.floor((width - found.width) / 2));
    for (const each of found.boxes) each.x += dx;
    state.layout = { ...found, boxes: found.boxes };
    state.readers = null;
    const scale = devicePixelRatio || 1;
    canvas.width = width * scale;
    ctx.lastFont = null;
    canvas.height = Math.ceil(found.height + 4) * scale;
    canvas.style.height = `${Math.ceil(found.height + 4)}px`;
  }

  function show(array, head, isMoving) {
    state.before = new Map((state.layout?.boxes ?? []).map((each) => [each.block.key, each]));
    const isNew = state.array !== array;
    Object.assign(state, { array, head, lit: [], led: [], extra: [] });
    arrange();
    if (isNew && isMoving) replay(); else clock.stop("stage");
  }

  function replay() {
    if (wantsLessMotion()) return clock.paint();
    clock.play("stage", PANELS + CELLS[state.scene.kind]);
  }

  // Cells of a layout, by the cell of the array that they show.
  function positions(role) {
    const found = new Map();
    for (const each of state.layout.boxes) if ((each.role === "result") === (role === "result")) {
      each.block.cells.forEach((place, k) => found.set(keyOf(each.block.array.id, place), {
        x: each.x + columnLeft(each.block, k % each.block.cols, each.cell),
        y: each.y + rowTop(each.block, Math.floor(k / each.block.cols), each.cell), size: each.cell,
      }));
    }
    return found;
  }

  function paint() {
    if (!state.layout) return;
    const { colors, layout, scene } = state;
    const time = clock.time("stage");
    const scale = devicePixelRatio || 1;
    ctx.setTransform(scale, 0, 0, scale, 0, 0);
    ctx.clearRect(0, 0, canvas.width, canvas.height);
    const panels = eased(within(time / PANELS));
    const isMove = scene.kind === "moves" && time !== Infinity;
    const sources = isMove ? positions("source") : null;
    const looks = new Map();
    const lookOf = (array) => {
      if (!looks.has(array)) looks.set(array, { most: largest(array.data), isHidden: hiddenIn(array, trace) });
      return looks.get(array);
    };

    const boxes = layout.boxes.map((each) => {
      const old = time < PANELS && state.before.get(each.block.key);
      if (!old) return { ...each, alpha: time < PANELS ? panels : 1 };
      const blend = (name) => between(old[name], each[name], panels);
      return { ...each, alpha: 1, x: blend("x"), y: blend("y"), cell: blend("cell") };
    });
    for (const each of boxes) {
      ctx.globalAlpha = each.alpha;
      paintFrame(ctx, colors, each);
    }
    for (const each of boxes) paintCells(each, each.role === "result", time, { isMove, sources, lookOf, scene });
    ctx.globalAlpha = 1;
    if (time === Infinity) paintMarks(boxes);
  }

  function paintCells(each, isResult, time, { isMove, sources, lookOf, scene }) {
    const { block, cell } = each;
    const { array, cells, cols } = block;
    const { most, isHidden } = lookOf(array);
    const dimmed = isMove && !isResult && time > PANELS ? 0.3 : 1;
    const heads = state.layout.boxes.reduce((n, { block: { number } }) => Math.max(n, number + 1), 1);
    const pieces = block.group ? block.cols / block.group : 1;
    cells.forEach((place, k) => {
      const [i, j] = [Math.floor(k / cols), k % cols];
      let [x, y, size] = [each.x + columnLeft(block, j, cell), each.y + rowTop(block, i, cell), cell];
      const isEmpty = isResult && scene.kind !== "given";
      const piece = block.group ? Math.floor(j / block.group) : block.head === null ? null : block.number;
      const share = isEmpty ? shareOf(time, scene.kind, k / cells.length, Math.max(heads, pieces), piece) : 1;
      if (isMove && isResult && share < 1) {
        const from = sources.get(sourceKey(array, place));
        if (!from || time < PANELS) return;
        [x, y, size] = [between(from.x, x, share), between(from.y, y, share), between(from.size, size, share)];
      } else ctx.globalAlpha = each.alpha * dimmed * share;
      if (isMove && isResult) ctx.globalAlpha = 1;
      if (ctx.globalAlpha === 0) return;
      paintCell(ctx, state.colors, x, y, size, array.data[place], { most, isBool: array.isBool, isHidden: isHidden(place) });
    });
  }

  function sourceKey(array, place) {
    const { array: id, index } = storyOf(array.tree, unflatten(place, array.shape), (each) => trace.arrays[each]);
    return keyOf(id, flatten(index, trace.arrays[id].shape));
  }

  function paintMarks(boxes) {
    const { colors } = state;
    const flash = clock.isPlaying("flash") ? 1 - clock.time("flash") / FLASH : 0;
    const sets = [state.lit, state.led, state.extra].map((list) =>
      new Set(list.map(({ array, place }) => keyOf(array, place))));
    const own = state.cell && keyOf(state.cell.id, state.cell.place);
    for (const each of boxes) {
      const { block: { array, cells, cols, head, colHeads } } = each;
      const changed = flash > 0 ? state.changed.get(array.id) : undefined;
      cells.forEach((place, k) => {
        const key = keyOf(array.id, place);
        const mark = (color, thick, dash) => outline(ctx, each, Math.floor(k / cols), k % cols, color, thick, dash);
        if (changed?.has(place)) {
          ctx.globalAlpha = flash;
          mark(colors.flash, 3);
          ctx.globalAlpha = 1;
        }
        if (sets[1].has(key)) mark(colors.ink, 1.5, [2, 2]);
        if (sets[0].has(key)) mark(colors.ofHead(head ?? colHeads[k % cols]), 2);
        if (sets[2].has(key)) mark(colors.flash, 2.5);
        if (key === own) mark(colors.ink, 3);
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
          if (x >= left && x < left + cell) return { id: block.array.id, place: block.cells[i * block.cols + j] };
        }
      }
    }
    return null;
  }

  // The cells of the current array that read a cell; the stories are walked once for a scene.
  function readersOf(id, place) {
    const { array } = state;
    if (!array.tree || !array.reads.includes(id) || array.data.length > 3000) return [];
    if (!state.readers) {
      state.readers = new Map();
      for (let to = 0; to < array.data.length; to++) {
        for (const leaf of leavesOf(trace.story(array, unflatten(to, array.shape)))) {
          const key = keyOf(leaf.array, flatten(leaf.index, trace.arrays[leaf.array].shape));
          if (!state.readers.has(key)) state.readers.set(key, new Set());
          state.readers.get(key).add(to);
        }
      }
    }
    return [...state.readers.get(keyOf(id, place)) ?? []].map((to) => ({ array: array.id, place: to }));
  }

  canvas.addEventListener("pointermove", (event) => {
    if (event.pointerType === "touch") return;
    onHover(cellAt(event));
  });
  canvas.addEventListener("click", (event) => onPick(cellAt(event), false));
  canvas.addEventListener("dblclick", (event) => onPick(cellAt(event), true));

  return {
    show, replay, paint, arrange, readersOf,
    mark(cell, lit, led) { Object.assign(state, { cell, lit, led }); clock.paint(); },
    light(cells) { state.extra = cells; clock.paint(); },
    flash(changed) { state.changed = changed; },
    recolor() { state.colors = readColors(); },
    rowsOf: () => state.layout.boxes.filter(({ role }) => role === "result").map(({ block }) => block),
    cellSize: () => state.layout.boxes[0].cell,
    where: positions,
    scrollTo({ id, place }) {  // above the sheet that covers the lower part of a phone
      const y = positions("result").get(keyOf(id, place))?.y ?? 0;
      const over = canvas.getBoundingClientRect().top + y + 60 - 0.56 * innerHeight;
      if (over > 0) scrollBy({ top: over });
    },
    isMoving: () => clock.isPlaying("stage"),
  };
}
