// The map: a thumbnail of every array, in the order of the computation, d_X below X.

function drawMap({ root, trace, names, sequence, gradientNames, go }) {
  const twin = new Map(trace.arrays.map((array) => [gradientNames[array.name], array.id]));
  const isDerived = ({ tree }) => tree && tree[0] !== "array";
  // A param stands between what it is applied to and what comes out: it takes a column of its own.
  const columns = [];
  for (const array of trace.arrays) if (array.pass !== "backward") {
    const reads = array.reads.map((id) => trace.arrays[id]);
    const depths = reads.map((each) => (isDerived(each) ? columns[each.id] : each.pass === "param" || each.isBool ? 1 : columns[each.id] + (each.tree ? 0 : 0)));
    const hasParam = reads.some(({ pass, shape }) => pass === "param" && shape.length > 1);
    columns[array.id] = !isDerived(array) ? 0 : Math.max(...depths, hasParam ? 1 : 0) + 1;
  }
  // Inputs and params that are read late stand just before their first reader.
  for (const array of trace.arrays) if (array.pass !== "backward" && !array.tree) {
    const readers = trace.arrays.filter(({ reads, pass }) => pass !== "backward" && reads.includes(array.id) && columns[0] !== undefined);
    const first = Math.min(...readers.filter(isDerived).map(({ id }) => columns[id]));
    if (array.pass === "param" || first > 3) columns[array.id] = Number.isFinite(first) ? first - 1 : 0;
  }
  const paired = (array) => twin.get(array.name);
  for (const array of trace.arrays) if (array.pass === "backward") {
    const known = array.reads.map((id) => columns[id]).filter((n) => n !== undefined);
    columns[array.id] = columns[paired(array)] ?? (known.length ? Math.min(...known) : Math.max(...columns));
  }
  const used = [...new Set(columns)].sort((a, b) => a - b);

  const thumbs = trace.arrays.map((array) => {
    const link = document.createElement("a");
    link.href = `#${array.name}`;
    link.title = array.name;
    link.setAttribute("aria-label", `${array.name}, ${array.shape.join(" by ") || "one number"}`);
    link.addEventListener("click", (event) => { event.preventDefault(); go(array.id); });
    const canvas = link.appendChild(document.createElement("canvas"));
    return { link, canvas, array, blocks: blocksOf(operandOf(["array", array.id], trace), names, sequence) };
  });
  for (const pass of ["forward", "backward"]) {
    for (const column of used) {
      const cell = root.appendChild(document.createElement("div"));
      cell.className = `lane ${pass}`;
      for (const { array, link } of thumbs) {
        if (columns[array.id] === column && (array.pass === "backward") === (pass === "backward")) cell.append(link);
      }
    }
  }
  root.style.gridTemplateColumns = `repeat(${used.length}, auto)`;

  function paintOne({ canvas, array, blocks }, colors) {
    const wide = blocks.reduce((n, { cols }) => n + cols, 0);
    const tall = blocks[0].rows;
    const size = Math.min(4, 34 / wide, 30 / Math.max(tall, 8));
    const gap = 3;
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
        const { rgb } = colors.shade(array.data[place], most);
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
