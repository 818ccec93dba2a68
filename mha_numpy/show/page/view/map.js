// The map: a card for every array that does something, in the order of the computation, and on it the array's
// gradient. One of them is on stage.

const [THUMB_WIDTH, THUMB_HEIGHT, THUMB_CELL] = [92, 64, 10];  // in pixels

// Which arrays do nothing to the numbers they get; and, of all that hold the same numbers in one
// shape or another, the one that is shown: that of each head, or the first.
function rolesOf({ arrays, repeated: repeatedBy }, isHead) {
  const groups = [...arrays.keys()];
  const isIdle = arrays.map((array) => {
    const { id, tree, edits, isBool, data, reads } = array;
    const repeated = repeatedBy(array);
    if (repeated) groups[id] = groups[repeated.id];
    else if (tree && onlyMoves(tree) && !edits.size) groups[id] = groups[reads[0]];
    return Boolean(repeated) || (isBool && data.every(Boolean));
  });
  for (const { id, tree } of arrays) if (!tree) {  // gates that are all 1, a bias of zeros
    const readers = arrays.filter(({ pass, reads }) => pass !== "backward" && reads.includes(id));
    isIdle[id] ||= readers.length > 0 && readers.every((each) => isIdle[each.id] && groups[each.id] !== id);
  }
  const shown = new Map();
  const isOfHeads = (id) => isHead(arrays[id].axes.at(-3) ?? "");
  for (const { id } of arrays) {
    const chosen = shown.get(groups[id]);
    if (chosen === undefined || (isOfHeads(id) && !isOfHeads(chosen))) shown.set(groups[id], id);
  }
  return { isIdle, shownFor: (id) => shown.get(groups[id]) };
}

function drawMap({ root, trace, names, sequence, go }) {
  const { arrays } = trace;
  const view = { gradients: true, steps: false };
  let current = null;
  const twins = new Map();  // of a gradient, the array that it belongs to
  for (const array of arrays) if (array.pass === "backward") {
    const twin = trace.forwardOf(array)?.id ?? (array.name.startsWith("d_") ? trace.byName.get(array.name.slice(2)) : undefined);
    if (twin !== undefined) twins.set(array.id, twin);
  }

  const cards = arrays.map(({ id }) => (twins.has(id) ? null : root.appendChild(element("div", "card"))));
  const thumbs = arrays.map((array) => {
    const { id, name, data, says } = array;
    const blocks = blocksOf(operandOf(["array", id], trace), names, sequence);
    const wide = blocks.reduce((sum, { cols }) => sum + cols, 0);
    const cell = data.length === 1 ? 36 : Math.max(1, Math.min(THUMB_CELL,
      Math.floor((THUMB_WIDTH - 4 * (blocks.length - 1)) / wide), Math.floor(THUMB_HEIGHT / blocks[0].rows)));
    const pictures = blocks.map((block) => canvasOf(block, cell));
    const link = Object.assign(element("a", "", element("span", "thumbs", ...pictures), element("b", "", name)),
      { href: `#${name}`, title: says || name });
    link.dataset.name = name;
    link.addEventListener("click", (event) => { event.preventDefault(); go(id, undefined, { isFocused: true }); });
    cards[twins.get(id) ?? id].append(link);
    return { link, array, blocks, pictures, cell };
  });
  const stop = roving(root, "a");

  function arrange() {
    const { isIdle, shownFor } = rolesOf(trace, names.isHead);
    const isShown = ({ id, pass }) => {
      if (id === current) return true;
      if (pass === "backward" && !view.gradients) return false;
      if (view.steps) return true;
      const twin = twins.get(id);
      if (twin === undefined) return !isIdle[id] && shownFor(id) === id;
      return trace.gradientOf(arrays[twin])?.id === id && shownFor(twin) === twin && !isIdle[twin];
    };
    for (const { link, array } of thumbs) {
      link.hidden = !isShown(array);
      const isChanged = array.data.some((value, i) => hasChanged(array, i, value));
      link.classList.toggle("changed", isChanged);
      link.ariaLabel = `${array.name}, ${array.shape.join(" by ") || "one number"}${isChanged ? ", changed" : ""}`;
    }
    for (const card of cards) if (card) card.hidden = !card.querySelector("a:not([hidden])");
  }

  function follow(id) {  // in the map alone; it is hidden behind a story at first
    const { offsetLeft, offsetTop } = thumbs[id].link.parentElement;
    root.scrollTo(offsetLeft - root.clientWidth / 3, offsetTop - root.clientHeight / 3);
  }

  return {
    view, arrange,
    paint(colors, ids = null) {
      for (const { array, blocks, pictures, cell } of thumbs) if (!ids || ids.has(array.id)) {
        pictures.forEach((canvas, i) => paintBlock(canvas, blocks[i], cell, colors, lookOf(blocks[i], trace)));
      }
      arrange();
    },
    mark(id, sources) {
      current = id;
      for (const { link, array } of thumbs) {
        link.classList.toggle("current", array.id === id);
        link.classList.toggle("source", sources.includes(array.id));
        if (array.id === id) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
      }
      arrange();
      stop(thumbs[id].link);
      follow(id);
    },
    follow, linkOf: (id) => thumbs[id].link,
    shown: () => thumbs.filter(({ link }) => !link.hidden).map(({ array }) => array.id),
  };
}
