// The map: a thumbnail of every array, in the order of the computation, d_X below X.

// The column of each array. What comes of the inputs goes from left to right; a param or a mask
// stands just before what reads it first; a gradient stands where its array does.
function columnsOf(trace, gradientNames) {
  const columns = [];
  const forward = trace.arrays.filter((array) => array.pass !== "backward");
  const isInput = ({ id, tree, pass, isBool, shape }) =>
    !tree && pass === "forward" && !isBool && (id === 0 || shape.length > 2);
  const stream = new Set(forward.filter(isInput).flatMap(({ id }) => [...trace.reachedBy(id)]));
  for (const { id, tree } of forward) if (stream.has(id)) {
    const reads = trace.arrays[id].reads;
    const before = reads.filter((each) => stream.has(each)).map((each) => columns[each]);
    const hasParam = reads.some((each) => !stream.has(each) && trace.arrays[each].shape.length > 1);
    const isCopy = !tree || tree[0] === "array";
    columns[id] = isCopy ? Math.max(0, ...before) : Math.max(...before, hasParam ? 1 : 0) + 1;
  }
  for (const { id } of forward.toReversed()) if (!stream.has(id)) {
    const readers = forward.filter(({ reads }) => reads.includes(id)).map((each) => columns[each.id]);
    columns[id] = readers.length ? Math.max(0, Math.min(...readers) - 1) : 0;
  }
  const twins = new Map(forward.map(({ id, name }) => [gradientNames[name], id]));
  for (const { id, name, pass } of trace.arrays) if (pass === "backward") {
    const known = trace.arrays[id].reads.map((each) => columns[each]).filter(Number.isFinite);
    columns[id] = columns[twins.get(name) ?? trace.byName.get(name.slice(2))] ?? Math.min(...known, 99);
  }
  return columns;
}

function drawMap({ root, trace, names, sequence, gradientNames, go }) {
  const columns = columnsOf(trace, gradientNames);
  const used = [...new Set(columns)].sort((a, b) => a - b);

  const thumbs = trace.arrays.map((array) => {
    const link = element("a");
    link.href = `#${array.name}`;
    link.title = array.name;
    link.setAttribute("aria-label", `${array.name}, ${array.shape.join(" by ") || "one number"}`);
    link.addEventListener("click", (event) => { event.preventDefault(); go(array.id); });
    const blocks = blocksOf(operandOf(["array", array.id], trace), names, sequence);
    const wide = blocks.reduce((n, { cols }) => n + cols, 0);
    const size = Math.min(3, 34 / wide, 21 / blocks[0].rows);
    const pictures = blocks.map(({ rows, cols, head }) => {  // a pixel for each cell, enlarged by style
      const canvas = Object.assign(document.createElement("canvas"), { width: cols, height: rows });
      canvas.style.width = `${cols * size}px`;
      canvas.style.height = `${Math.max(3, rows * size)}px`;
      if (head !== null) canvas.style.borderColor = `var(--head-${head % 8})`;
      return canvas.getContext("2d");
    });
    link.append(...pictures.map((ctx) => ctx.canvas));
    return { link, array, blocks, pictures };
  });
  for (const column of used) {
    const first = thumbs.find(({ array: { id, pass } }) => columns[id] === column && pass !== "backward");
    root.append(element("span", "column", first?.array.name ?? ""));
  }
  for (const pass of ["forward", "backward"]) {
    for (const column of used) {
      const lane = root.appendChild(element("div", `lane ${pass}`));
      const here = thumbs.filter(({ array }) =>
        columns[array.id] === column && (array.pass === "backward") === (pass === "backward"));
      lane.append(...here.map(({ link }) => link));
    }
  }
  root.style.gridTemplateColumns = `repeat(${used.length}, auto)`;

  function paintOne({ array, blocks, pictures }, colors) {
    const [most, isHidden] = [largest(array), hiddenIn(array, trace)];
    pictures.forEach((ctx, i) => ctx.putImageData(pixelsOf(blocks[i], colors, most, isHidden), 0, 0));
  }

  return {
    paint(colors, ids = null) {
      for (const thumb of thumbs) if (!ids || ids.has(thumb.array.id)) paintOne(thumb, colors);
    },
    mark(current, sources) {
      for (const { link, array } of thumbs) {
        link.classList.toggle("current", array.id === current);
        link.classList.toggle("source", sources.includes(array.id));
        if (array.id === current) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
      }
    },
    flash(changed, color) {
      for (const { link, array } of thumbs) if (changed.has(array.id)) {
        link.animate({ background: [color, "transparent"] }, { duration: FLASH, easing: "ease-out" });
      }
    },
    reveal(id) {
      const { link } = thumbs[id];
      const [at, scroll] = [link.offsetLeft, root.parentElement];
      if (at < scroll.scrollLeft || at + link.offsetWidth > scroll.scrollLeft + scroll.clientWidth) {
        scroll.scrollLeft = at - scroll.clientWidth / 2;
      }
    },
    linkOf: (id) => thumbs[id].link,
  };
}
