// The stepper: shows one recorded array after another, and where each of its cells came from.
//
// The page holds every buffer once. A step is a view of one: an offset and strides, as in NumPy.
// Which cells a cell was computed from, and the words for it, follow the same rules as
// mha_numpy/tracing/words.py.
(() => {
  "use strict";

  const data = JSON.parse(document.getElementById("data").textContent);
  const element = (id) => document.getElementById(id);

  // ---- Numbers: three characters each; see packing.py ----------------------------------------

  const CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const SIX_BITS = new Map([...CHARACTERS].map((character, bits) => [character, bits]));
  const LARGEST_EXPONENT = 31;
  const TINY = Number.MIN_VALUE; // not 0, but too small to be kept
  const SPECIAL = [0, Infinity, NaN, TINY];

  function unpack({ codes, exponent }) {
    const numbers = new Float64Array(codes.length / 3);
    for (let i = 0; i < numbers.length; i++) {
      const [a, b, c] = [0, 1, 2].map((k) => SIX_BITS.get(codes[3 * i + k]));
      const code = (a << 12) | (b << 6) | c;
      const field = (code >> 12) & 31;
      const mantissa = code & 4095;
      const size = field
        ? (1 + mantissa / 4096) * 2 ** (field - LARGEST_EXPONENT + exponent)
        : SPECIAL[mantissa];
      numbers[i] = code >> 17 ? -size : size;
    }
    return numbers;
  }

  function format(number) {
    if (Number.isNaN(number)) return "nan";
    if (!Number.isFinite(number)) return number > 0 ? "inf" : "-inf";
    if (number === 0) return "0";
    if (Math.abs(number) === TINY) return "almost 0";
    return number.toPrecision(4);
  }

  const buffers = data.buffers.map(unpack);

  // ---- Arrays: the steps, and behind them the params, whose numbers are not on record ---------

  const arrays = [...data.steps, ...data.params];
  const steps = data.steps;

  const isRecorded = (array) => array.buffer !== undefined;
  const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

  // The cell at an index lies at offset + sum of index * stride.
  function valueAt(array, index) {
    let place = array.offset;
    for (let axis = 0; axis < index.length; axis++) place += index[axis] * array.strides[axis];
    return buffers[array.buffer][place];
  }

  const batchAxis = (array) => (isRecorded(array) ? array.axes.indexOf("B") : -1);

  // All indices of an array in C order; of the axis B only the sequence that is drawn.
  function* indicesOf(array) {
    const batch = batchAxis(array);
    yield* combinations(
      array.shape.map((size, axis) =>
        axis === batch ? [data.sequence, data.sequence + 1] : [0, size]),
    );
  }

  // All combinations of one number from each span [first, past the last].
  function* combinations(spans) {
    if (spans.some(([first, past]) => first >= past)) return;
    const index = spans.map(([first]) => first);
    for (;;) {
      yield index.slice();
      let axis = spans.length - 1;
      while (axis >= 0 && ++index[axis] === spans[axis][1]) {
        index[axis] = spans[axis][0];
        axis--;
      }
      if (axis < 0) return;
    }
  }

  const layoutOf = (array) => data.layouts[array.layout];

  // A cell's block, row and column are sums of look-ups, one for each axis.
  function placeOf(array, index) {
    const place = [0, 0, 0];
    index.forEach((i, axis) => {
      layoutOf(array).places[axis].forEach((table, part) => {
        place[part] += data.tables[table][i];
      });
    });
    return place;
  }

  // Which cell stands at a block, row and column: the reverse of placeOf, made once for an array.
  function indexAt(array, [block, row, column]) {
    const [, rows, columns] = layoutOf(array).shape;
    array.standing ??= new Map(
      [...indicesOf(array)].map((index) => {
        const [b, r, c] = placeOf(array, index);
        return [(b * rows + r) * columns + c, index];
      }),
    );
    return array.standing.get((block * rows + row) * columns + column);
  }

  // ---- Where a cell came from -----------------------------------------------------------------

  // The indices along each axis that a cell reads: [first, past the last].
  function spansOf(source, index) {
    return source.reads.map((read) => {
      const { starts, length } = data.reads[read];
      const first = sum(starts.map(([axis, table]) => data.tables[table][index[axis]]));
      return [first, first + length];
    });
  }

  const COPIED = "copied";

  function howMoved(array, soFar) {
    const [kind] = array.memory.split(" ");
    if (soFar === COPIED || (kind !== "view" && kind !== "is")) return COPIED;
    return kind === "is" ? "under another name" : soFar;
  }

  // The array where a cell's number was computed: the first one, before it was only moved.
  function computedAt(array, index) {
    let how = "moved without copying";
    while (array.origin.form === "moved") {
      how = howMoved(array, how);
      const [source] = array.origin.sources;
      index = index && spansOf(source, index).map(([first]) => first);
      array = arrays[source.array];
    }
    return { array, index, how };
  }

  function isHiddenHere(array, index) {
    const { condition } = array.origin;
    if (!condition) return false;
    const at = spansOf(condition, index).map(([first]) => first);
    return valueAt(arrays[condition.array], at) === 0;
  }

  // What to light for a cell: spans of cells for each array that it came from.
  function litBy(array, index) {
    const computed = computedAt(array, index);
    const lit = computed.array === array ? [] : [{ array: computed.array,
      spans: computed.index.map((i) => [i, i + 1]) }];
    if (isHiddenHere(computed.array, computed.index)) return lit;
    return lit.concat(computed.array.origin.sources.map((source) => ({
      array: arrays[source.array], spans: spansOf(source, computed.index) })));
  }

  // The arrays whose cells litBy may light, each once.
  function sourcesOf(array) {
    const computed = computedAt(array).array;
    const sources = computed.origin.sources.map((source) => arrays[source.array]);
    return [...new Set(computed === array ? sources : [computed, ...sources])];
  }

  // ---- In words -------------------------------------------------------------------------------

  const cellName = (array, index) => `${array.name}[${index.join(",")}]`;

  function spanName(source, index) {
    const array = arrays[source.array];
    const texts = spansOf(source, index).map(([first, past], axis) => {
      const length = past - first;
      if (length === array.shape[axis] && length > 1) return ":";
      return length === 1 ? `${first}` : `${first}:${past}`;
    });
    if (isRecorded(array)) return `${array.name}[${texts.join(",")}]`;
    if (texts.length === 1) return `entry ${texts[0]} of ${array.name}`;
    const [row, column] = texts;
    if (row === ":") return `column ${column} of ${array.name}`;
    return column === ":" ? `row ${row} of ${array.name}` : `${array.name}[${texts.join(",")}]`;
  }

  function explain(array, index) {
    const computed = computedAt(array, index);
    const told = `${cellName(array, index)} ${tell(computed.array, computed.index)}`;
    if (computed.array === array) return told;
    const same = cellName(computed.array, computed.index);
    return `${told}; it is the same number as ${same}, ${computed.how}`;
  }

  function tell(array, index) {
    const { form, sources } = array.origin;
    if (form === "input") return "is an input";
    if (form === "unknown") return tellUnknown(array);
    if (isHiddenHere(array, index)) {
      const value = valueAt(array, index) === 0 ? "0" : "-inf";
      return `is hidden: the mask puts ${value} in its place`;
    }
    const spans = [...new Set(sources.map((source) => spanName(source, index)))];
    let told = `came from ${spans.join(" and ")}`;
    if (form === "rows") told += spans.length === 1 ? ", the whole row" : ", whole rows";
    const turned = sources.filter(({ array: number }) => isRecorded(arrays[number]));
    if (form === "turned" && new Set(turned.map((source) => spanName(source, index))).size === 2) {
      told += ", two features that turn together";
    }
    return told;
  }

  function tellUnknown(array) {
    if (!array.equation) {
      return `is of a ${array.memory}; how it lies there is not on record`;
    }
    const { names } = array.origin;
    const computed = names.length ? `from ${names.join(" and ")}, ` : "";
    return `was computed ${computed}by \`${array.equation}\`; from which cells is not on record`;
  }

  // ---- Pictures: where the cells of an array lie, and painting them ---------------------------

  const INK = "#1a1a1a";
  const MUTED = "#5c5c5c";
  const GREY = "#8a8a8a";
  const LABEL_ROOM = 14; // above a block, for its head's number
  const AXIS_ROOM = 17; // beside and below, for the names of axes
  const GAPS = { "touching": [0, 0], "in row": [0.6, 4], "apart": [0.8, 8] }; // cells; pixels

  // Where everything lies if a cell is that large, in pixels.
  function layOut(array, cell) {
    const { shape: [blocks, rows, columns], across, spread, labels, rowAxis, columnAxis } =
      layoutOf(array);
    const [share, least] = GAPS[spread];
    const gap = Math.max(Math.round(share * cell), least);
    const pitch = spread === "in row" && cell >= 5 ? Math.round(1.5 * cell) : cell;
    const width = columns * cell;
    const height = (rows - 1) * pitch + cell;
    const digits = 7 * Math.max(0, ...labels.map((label) => label.length));
    const isStack = across === 1 && spread === "touching";
    const isLabelled = digits > 0 && (isStack ? height >= 11 : width + gap >= digits + 2);
    const above = isLabelled && !isStack ? LABEL_ROOM : 0;
    const left = rowAxis ? AXIS_ROOM : 1;
    const gapDown = spread === "apart" ? gap + above : 0;
    const down = Math.ceil(blocks / across);
    const beside = isLabelled && isStack ? digits + 5 : 0;
    const right = left + Math.min(across, blocks) * (width + gap) - gap;
    const bottom = above + down * (height + gapDown) - gapDown;
    return {
      cell, pitch, width, height, isStack, isLabelled, left, top: above, right, bottom,
      fullWidth: Math.max(right + beside, left + 7 * columnAxis.length) + 2,
      fullHeight: Math.max(bottom, 7 * rowAxis.length) + (columnAxis ? AXIS_ROOM : 0) + 2,
      corner: (block) => [
        left + (block % across) * (width + gap),
        above + Math.floor(block / across) * (height + gapDown),
      ],
    };
  }

  // The largest cells that keep to a width and a height.
  function fit(array, { most, least, width, height }) {
    let cell = most;
    let geometry = layOut(array, cell);
    while (cell > least && (geometry.fullWidth > width || geometry.fullHeight > height)) {
      cell -= cell > 4 ? 1 : 0.5;
      geometry = layOut(array, cell);
    }
    return geometry;
  }

  function mix(color, strength) {
    const part = (at) => parseInt(color.slice(at, at + 2), 16);
    return `rgb(${[1, 3, 5].map((at) => Math.round(255 + (part(at) - 255) * strength))})`;
  }

  // A canvas that is sharp on any screen.
  function prepare(canvas, width, height) {
    const scale = window.devicePixelRatio || 1;
    canvas.width = Math.ceil(width * scale);
    canvas.height = Math.ceil(height * scale);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    return pen;
  }

  function hatch(pen, x, y, size, isCrossed) {
    pen.save();
    pen.beginPath();
    pen.rect(x, y, size, size);
    pen.clip();
    pen.beginPath();
    for (let at = -size; at < size; at += Math.max(4, size / 4)) {
      pen.moveTo(x + at, y + size);
      pen.lineTo(x + at + size, y);
      if (!isCrossed) continue;
      pen.moveTo(x + at, y);
      pen.lineTo(x + at + size, y + size);
    }
    pen.strokeStyle = GREY;
    pen.lineWidth = 1;
    pen.stroke();
    pen.restore();
  }

  function largestOf(array) {
    if (array.largest === undefined) {
      array.largest = 0;
      for (const index of indicesOf(array)) {
        const size = Math.abs(valueAt(array, index));
        if (Number.isFinite(size) && size > array.largest) array.largest = size;
      }
    }
    return array.largest;
  }

  // Paint all cells: white is 0, full colour the largest |value|; a param has no values.
  function paintCells(pen, array, geometry) {
    const { cell, pitch } = geometry;
    const { colors } = layoutOf(array);
    const inset = cell >= 5 ? 0.5 : 0;
    for (const index of indicesOf(array)) {
      const [block, row, column] = placeOf(array, index);
      const [left, top] = geometry.corner(block);
      const x = left + column * cell;
      const y = top + row * pitch;
      const value = isRecorded(array) ? valueAt(array, index) : null;
      if (value === null) {
        pen.fillStyle = mix(colors[block], 0.12);
        pen.fillRect(x, y, cell, cell);
      } else if (Number.isFinite(value)) {
        const share = Math.abs(value) / (largestOf(array) || 1);
        pen.fillStyle = mix(colors[block], share > 0 ? 0.1 + 0.9 * share : 0);
        pen.fillRect(x, y, cell, cell);
      } else {
        hatch(pen, x, y, cell, value !== -Infinity);
      }
      if (inset) {
        pen.strokeStyle = mix(colors[block], 0.4);
        pen.lineWidth = 1;
        pen.strokeRect(x + inset, y + inset, cell - 1, cell - 1);
      }
    }
  }

  function paintTexts(pen, array, geometry) {
    const { labels, rowAxis, columnAxis, shape: [blocks] } = layoutOf(array);
    pen.fillStyle = MUTED;
    pen.font = "11px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace";
    if (geometry.isLabelled) {
      for (let block = 0; block < blocks; block++) {
        const [left, top] = geometry.corner(block);
        pen.textAlign = geometry.isStack ? "left" : "center";
        pen.textBaseline = geometry.isStack ? "middle" : "bottom";
        const x = left + (geometry.isStack ? geometry.width + 4 : geometry.width / 2);
        const y = geometry.isStack ? top + geometry.height / 2 : top - 1;
        pen.fillText(labels[block], x, y);
      }
    }
    pen.textAlign = "center";
    pen.textBaseline = "top";
    const across = Math.max((geometry.left + geometry.right) / 2,
      geometry.left + 3.4 * columnAxis.length);
    pen.fillText(columnAxis, across, geometry.bottom + 4);
    pen.save();
    pen.translate(2, Math.max((geometry.top + geometry.bottom) / 2, 3.4 * rowAxis.length));
    pen.rotate(-Math.PI / 2);
    pen.fillText(rowAxis, 0, 0);
    pen.restore();
  }

  // A picture keeps its cells as an image, so that lighting some is quick.
  class Picture {
    constructor(canvas, array, room) {
      this.canvas = canvas;
      this.array = array;
      this.geometry = fit(array, room);
      const { fullWidth, fullHeight } = this.geometry;
      this.pen = prepare(canvas, fullWidth, fullHeight);
      this.cells = document.createElement("canvas");
      paintCells(prepare(this.cells, fullWidth, fullHeight), array, this.geometry);
      this.show([]);
    }

    // Show the cells, those of the given indices framed; the others fade on request.
    show(indices, { fades = false } = {}) {
      const { pen, array, geometry, geometry: { cell, pitch, corner } } = this;
      const { fullWidth, fullHeight } = geometry;
      pen.clearRect(0, 0, fullWidth, fullHeight);
      pen.globalAlpha = fades && indices.length ? 0.3 : 1;
      pen.drawImage(this.cells, 0, 0, fullWidth, fullHeight);
      pen.globalAlpha = 1;
      paintTexts(pen, array, geometry);

      const places = indices.map((index) => placeOf(array, index));
      const lit = new Set(places.map(String));
      const scale = window.devicePixelRatio || 1;
      const frame = new Path2D(); // around what is lit together: not colour alone
      for (const [block, row, column] of places) {
        const [left, top] = corner(block);
        const x = left + column * cell;
        const y = top + row * pitch;
        const from = [x, y, cell, cell].map((length) => length * scale);
        pen.drawImage(this.cells, ...from, x, y, cell, cell);
        const isEdge = (down, right) =>
          (down && pitch !== cell) || !lit.has(String([block, row + down, column + right]));
        const [near, far] = [0.5, cell - 0.5];
        for (const [down, right, x1, y1, x2, y2] of [
          [-1, 0, near, near, far, near], [1, 0, near, far, far, far],
          [0, -1, near, near, near, far], [0, 1, far, near, far, far],
        ]) {
          if (!isEdge(down, right)) continue;
          frame.moveTo(x + x1, y + y1);
          frame.lineTo(x + x2, y + y2);
        }
      }
      pen.strokeStyle = INK;
      pen.lineWidth = cell >= 8 ? 2 : 1.5;
      pen.lineCap = "square";
      pen.stroke(frame);
    }

    // The index of the cell at a point of the canvas, if there is one.
    indexAtPoint(x, y) {
      const { cell, pitch, corner, width, height } = this.geometry;
      const { shape: [blocks, rows, columns] } = layoutOf(this.array);
      for (let block = 0; block < blocks; block++) {
        const [left, top] = corner(block);
        if (x < left || x >= left + width || y < top || y >= top + height) continue;
        const row = Math.min(Math.floor((y - top) / pitch), rows - 1);
        const column = Math.min(Math.floor((x - left) / cell), columns - 1);
        return y - top - row * pitch < cell ? indexAt(this.array, [block, row, column]) : undefined;
      }
      return undefined;
    }

    // The middle of a cell, from the canvas' upper left corner.
    middleOf(index) {
      const { cell, pitch, corner } = this.geometry;
      const [block, row, column] = placeOf(this.array, index);
      const [left, top] = corner(block);
      return [left + (column + 0.5) * cell, top + row * pitch + cell / 2];
    }
  }

  // ---- The page -------------------------------------------------------------------------------

  const state = { step: 0, cell: null, isPinned: false };
  const page = { main: null, sources: [], width: 0 };

  function fillRow(id, texts) {
    const row = element(id);
    while (row.cells.length > 1) row.deleteCell(-1);
    for (const text of texts) row.insertCell().textContent = text;
  }

  function legendOf(array) {
    const told = ["One cell is one number: white is 0, full colour the largest |value|",
      largestOf(array) ? ` (${format(largestOf(array))}).` : "."];
    const { labels } = layoutOf(array);
    if (labels.length) told.push(" The number at a block is its head's.");
    if (labels.some((label) => label.includes("-"))) {
      told.push(" A key/value head that serves several query heads has the colour of the first.");
    }
    const odd = [...indicesOf(array)].map((index) => valueAt(array, index))
      .filter((value) => !Number.isFinite(value));
    if (odd.includes(-Infinity)) told.push(" Hatched: \u2011inf.");
    if (odd.some((value) => value !== -Infinity)) told.push(" Cross-hatched: nan or inf.");
    if (array.axes.includes("B") && array.shape[batchAxis(array)] > 1) {
      told.push(` Sequence ${data.sequence} of ${array.shape[batchAxis(array)]} is drawn.`);
    }
    return told.join("");
  }

  function showStep() {
    const array = steps[state.step];
    element("slider").value = state.step + 1;
    element("slider").setAttribute("aria-valuetext", `${array.number} ${array.name}`);
    element("position").textContent = `${state.step + 1} of ${steps.length}`;
    element("previous").disabled = state.step === 0;
    element("next").disabled = state.step === steps.length - 1;
    element("name").textContent = array.name;
    element("pass").textContent = array.pass;
    element("pass").className = `badge ${array.pass}`;
    element("memory").textContent = array.memory;
    element("dtype").textContent = array.dtype;
    element("equation").textContent = array.equation ? `= ${array.equation}` : "";
    fillRow("axes", array.axes);
    fillRow("shape", array.shape);
    fillRow("strides", array.bytes);
    showPictures();
    showCell();
  }

  function showPictures() {
    const array = steps[state.step];
    const stage = document.querySelector(".stage");
    if (stage.clientWidth !== page.width) {
      page.width = stage.clientWidth;
      for (const part of document.querySelectorAll(".stage, .words")) part.style.minHeight = "";
    }
    const sources = sourcesOf(array);
    const isWide = page.width >= 720;
    stage.classList.toggle("wide", isWide);
    const canvas = element("array");
    const count = array.shape.reduce((product, size) => product * size, 1);
    canvas.setAttribute("aria-label",
      `${array.name}, ${count} cells; Shift and arrow keys move a cell cursor`);
    page.main = new Picture(canvas, array, {
      most: 26, least: 5, height: 430,
      width: isWide ? Math.floor(page.width * 0.54) : page.width, // as in stepper.css
    });
    element("legend").textContent = count ? legendOf(array) : "No cells.";

    const room = isWide ? Math.floor(page.width * 0.46) - 28 : page.width;
    page.sources = sources.map((source) => newSource(source, room));
    element("sources").replaceChildren(...page.sources.map(({ figure }) => figure));
    keepHeight(stage);
  }

  // What was once needed stays reserved: the page does not jump from step to step.
  function keepHeight(part) {
    part.style.minHeight = `${part.offsetHeight}px`;
  }

  // A small panel of an array that the step was computed from; its name leads there.
  function newSource(array, room) {
    const figure = document.createElement("figure");
    figure.className = "source";
    const caption = document.createElement("figcaption");
    const name = document.createElement(isRecorded(array) ? "button" : "span");
    name.textContent = array.name;
    if (isRecorded(array)) {
      name.type = "button";
      name.title = `Go to step ${array.number}`;
      name.addEventListener("click", () => goTo(steps.indexOf(array)));
    } else {
      name.className = "param";
      figure.title = "A param: its numbers are not on record";
    }
    const told = document.createElement("span");
    caption.append(name, told);
    const scroll = document.createElement("div");
    scroll.className = "scroll";
    const canvas = document.createElement("canvas");
    canvas.setAttribute("role", "img");
    scroll.append(canvas);
    figure.append(caption, scroll);
    const picture = new Picture(canvas, array, { most: 12, least: 3, width: room, height: 230 });
    return { array, figure, told, canvas, picture };
  }

  function showCell() {
    const array = steps[state.step];
    const { cell } = state;
    const region = document.querySelector(".words");
    region.classList.toggle("pinned", state.isPinned);
    fillRow("index", cell || array.shape.map(() => ""));
    page.main.show(cell ? [cell] : []);
    const lit = cell ? litBy(array, cell) : [];
    for (const source of page.sources) showLit(source, lit);
    if (!cell) {
      element("value").textContent = "";
      element("words").textContent = "Point at a cell: where did its number come from?";
      element("reading").textContent = "";
      return;
    }
    element("value").textContent = `${cellName(array, cell)} = ${format(valueAt(array, cell))}`;
    element("words").textContent = explain(array, cell);
    element("reading").textContent = readingOf(array, cell) + (state.isPinned ? " Pinned." : "");
    keepHeight(region);
  }

  // How the cell is found in memory: the sum of index times stride.
  function readingOf(array, cell) {
    if (!cell.length) return "";
    const terms = cell.map((i, axis) => `${i}·${array.bytes[axis]}`);
    const bytes = sum(cell.map((i, axis) => i * array.bytes[axis]));
    return `It lies ${terms.join(" + ")} = ${bytes} bytes from the array's first cell.`;
  }

  function showLit({ array, told, canvas, picture }, lit) {
    const batch = batchAxis(array);
    const seen = new Map(); // two sources may be one array
    for (const { array: source, spans } of lit) {
      if (source !== array) continue;
      const drawn = spans.map(([first, past], axis) => {
        if (axis !== batch) return [first, past];
        const isDrawn = first <= data.sequence && data.sequence < past;
        return isDrawn ? [data.sequence, data.sequence + 1] : [0, 0];
      });
      for (const index of combinations(drawn)) seen.set(index.join(), index);
    }
    picture.show([...seen.values()], { fades: true });
    canvas.dataset.lit = seen.size;
    const kind = isRecorded(array) ? "" : " param";
    const count = seen.size ? ` ${seen.size} ${seen.size === 1 ? "cell" : "cells"}` : "";
    told.textContent = kind + count;
    canvas.setAttribute("aria-label", `${array.name}: ${seen.size} cells lit`);
  }

  // ---- What the reader does -------------------------------------------------------------------

  function goTo(step) {
    const next = Math.min(Math.max(step, 0), steps.length - 1);
    if (next === state.step) return;
    Object.assign(state, { step: next, cell: null, isPinned: false });
    showStep();
  }

  function pointAt(cell) {
    const isSame = cell === state.cell || (cell && state.cell && `${cell}` === `${state.cell}`);
    if (isSame) return;
    state.cell = cell || null;
    showCell();
  }

  function letGo() {
    Object.assign(state, { cell: null, isPinned: false });
    showCell();
  }

  function pin() {
    state.isPinned = state.cell !== null;
    showCell();
  }

  // Move the cell cursor across the blocks as they lie on the grid.
  function moveCursor(right, down) {
    const array = steps[state.step];
    const { shape: [blocks, rows, columns], across } = layoutOf(array);
    if (blocks * rows * columns === 0) return;
    if (state.cell === null) {
      pointAt(indexAt(array, [0, 0, 0]));
    } else {
      const [block, row, column] = placeOf(array, state.cell);
      const x = (block % across) * columns + column + right;
      const y = Math.floor(block / across) * rows + row + down;
      if (x < 0 || y < 0 || x >= across * columns) return;
      const next = Math.floor(y / rows) * across + Math.floor(x / columns);
      if (next >= blocks) return;
      pointAt(indexAt(array, [next, y % rows, x % columns]));
    }
    scrollTo(page.main.middleOf(state.cell));
  }

  // Keep the cursor in view where the array is larger than its room.
  function scrollTo([x, y]) {
    const box = element("array").parentElement;
    const margin = 40;
    box.scrollLeft = Math.min(Math.max(box.scrollLeft, x + margin - box.clientWidth), x - margin);
    box.scrollTop = Math.min(Math.max(box.scrollTop, y + margin - box.clientHeight), y - margin);
  }

  const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const JUMPS = {
    ArrowLeft: () => goTo(state.step - 1),
    ArrowRight: () => goTo(state.step + 1),
    Home: () => goTo(0),
    End: () => goTo(steps.length - 1),
    Escape: letGo,
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.shiftKey && ARROWS[event.key]) moveCursor(...ARROWS[event.key]);
    else if (!event.shiftKey && JUMPS[event.key]) JUMPS[event.key]();
    else if (event.key === "Enter" && event.target.tagName !== "BUTTON") pin();
    else return;
    event.preventDefault();
  });

  const cellUnder = (event) => page.main.indexAtPoint(event.offsetX, event.offsetY);
  const canvas = element("array");
  canvas.addEventListener("pointermove", (event) => {
    if (!state.isPinned) pointAt(cellUnder(event));
  });
  canvas.addEventListener("pointerleave", () => {
    if (!state.isPinned) pointAt(null);
  });
  canvas.addEventListener("click", (event) => {
    const cell = cellUnder(event);
    if (!cell) return;
    state.cell = cell;
    pin();
  });
  element("slider").addEventListener("input", (event) => goTo(Number(event.target.value) - 1));
  element("previous").addEventListener("click", () => goTo(state.step - 1));
  element("next").addEventListener("click", () => goTo(state.step + 1));

  // In a notebook the page is in a frame, which becomes as high as the page says.
  function tellHeight() {
    const height = Math.ceil(document.documentElement.getBoundingClientRect().height);
    if (window.parent !== window) window.parent.postMessage({ mhaStepperHeight: height }, "*");
  }

  let width = 0;
  new ResizeObserver(() => {
    if (document.documentElement.clientWidth !== width) {
      width = document.documentElement.clientWidth;
      showPictures();
      showCell();
    }
    tellHeight();
  }).observe(document.body);

  element("slider").max = steps.length;
  for (const pass of ["forward", "backward"]) {
    const own = steps.filter((step) => step.pass === pass);
    if (!own.length) continue;
    const part = document.createElement("span");
    part.className = pass;
    part.textContent = pass;
    part.style.flex = `${own.length} 1 0`;
    element("passes").append(part);
  }
  showStep();
  tellHeight(); // at once: out of sight nothing is observed
})();
