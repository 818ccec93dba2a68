// The map: a thumbnail of every array, in the order of the computation, d_X below X.

// The column of each array. What comes of the inputs goes from left to right; a param or a mask
// stands just before what reads it first; a gradient stands where its array does.
function columnsOf(trace, gradientNames) {
  const columns = [];
  const forward = trace.arrays.filter((array) => array.pass !== "backward");
  const isInput = ({ id, tree, pass, isBool, shape }) =>
    !tree && pass === "forward" && !isBool && (id === 0 || shape.length > 2);
  const stream = new Set(forward.filter(isInput).flatMap(({ id }) => [...trace.reachedBy(id)]));
  for (const { id, tree, reads } of forward) if (stream.has(id)) {
    const before = reads.filter((each) => stream.has(each)).map((each) => columns[each]);
    const hasParam = reads.some((each) => !stream.has(each) && trace.arrays[each].shape.length > 1);
    columns[id] = tree && tree[0] !== "array" ? Math.max(...before, hasParam ? 1 : 0) + 1 : Math.max(0, ...before);
  }
  for (const { id } of forward.toReversed()) if (!stream.has(id)) {
    const readers = forward.filter(({ reads }) => reads.includes(id)).map((each) => columns[each.id]);
    columns[id] = readers.length ? Math.max(0, Math.min(...readers) - 1) : 0;
  }
  for (const { id, name } of forward) {  // a constant that backward reads again
    const first = trace.arrays.find((each) => each.name === name).id;
    if (!forward.some(({ reads }) => reads.includes(id))) columns[id] = columns[first];
  }
  const twins = new Map(forward.map(({ id, name }) => [gradientNames[name], id]));
  for (const { id, name, pass, reads } of trace.arrays) if (pass === "backward") {
    const known = reads.map((each) => columns[each]).filter(Number.isFinite);
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
    const canvas = link.appendChild(document.createElement("canvas"));
    return { link, canvas, array, blocks: blocksOf(operandOf(["array", array.id], trace), names, sequence) };
  });
  for (const pass of ["forward", "backward"]) {
    for (const column of used) {
      const lane = root.appendChild(element("div", `lane ${pass}`));
      const here = thumbs.filter(({ array }) =>
        columns[array.id] === column && (array.pass === "backward") === (pass === "backward"));
      if (pass === "forward") root.insertBefore(element("span", "column", here[0]?.array.name ?? ""), root.children[used.indexOf(column)]);
      lane.append(...here.map(({ link }) => link));
    }
  }
  root.style.gridTemplateColumns = `repeat(${used.length}, auto)`;

  function paintOne({ canvas, array, blocks }, colors) {
    const wide = blocks.reduce((n, { cols }) => n + cols, 0);
    const tall = blocks[0].rows;
    const size = Math.min(3, 34 / wide, 21 / tall);
    const gap = 2;
    const width = wide * size + (blocks.length + 1) * gap;
    const height = Math.max(3, tall * size) + 2 * gap;
    const scale = devicePixelRatio || 1;
    canvas.width = width * scale;
    canvas.height = height * scale;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const ctx = canvas.getContext("2d");
    ctx.scale(scale, scale);
    ctx.imageSmoothingEnabled = false;
    const most = largest(array.data);
    let x = gap;
    for (const block of blocks) {
      const image = new ImageData(block.cols, block.rows);
      block.cells.forEach((place, k) => {
        const { rgb } = array.isBool ? colors.truth[array.data[place]] : colors.shade(array.data[place], most);
        image.data.set([...rgb, 255], 4 * k);
      });
      const small = new OffscreenCanvas(block.cols, block.rows);
      small.getContext("2d").putImageData(image, 0, 0);
      const [w, h] = [block.cols * size, Math.max(3, block.rows * size)];
      ctx.drawImage(small, x, gap, w, h);
      ctx.strokeStyle = block.head === null ? colors.line : colors.ofHead(block.head);
      ctx.lineWidth = 1;
      ctx.strokeRect(x - 0.5, gap - 0.5, w + 1, h + 1);
      x += w + gap;
    }
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
    flash(ids) {
      for (const { link, array } of thumbs) if (ids.has(array.id)) {
        link.classList.remove("changed");
        void link.offsetWidth;  // so that the animation begins anew
        link.classList.add("changed");
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
