// The map: a card for every array that does something, in the order of the computation, and on it
// the array's gradient. Where an array is on stage, the cards shrink to their names.

const [THUMB_WIDTH, THUMB_HEIGHT, THUMB_CELL] = [100, 72, 8];  // in pixels

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
  return { isIdle, first: (id) => arrays[groups[id]], shownFor: (id) => shown.get(groups[id]) };
}

function drawMap({ root, trace, names, sequence, go }) {
  const { arrays } = trace;
  const view = { gradients: true, steps: false };
  let current = null;
  const twins = new Map();  // of a gradient, the array that it belongs to
  for (const array of arrays) {
    const known = trace.gradientOf(array);
    if (known && array.pass !== "backward") twins.set(known.id, array.id);
  }
  for (const { id, pass, name } of arrays) {
    const twin = trace.byName.get(name.slice(2));
    if (pass === "backward" && !twins.has(id) && name.startsWith("d_") && twin !== undefined) twins.set(id, twin);
  }

  const cards = arrays.map((array) => (twins.has(array.id) ? null
    : root.appendChild(element("div", "card", element("code", "")))));
  const thumbs = arrays.map((array) => {
    const { id, name, shape } = array;
    const isTwin = twins.has(id);  // of the same shape
    const link = Object.assign(element("a", "", element("span", "", element("b", "", name),
      element("small", "", shape.length && !isTwin ? `(${shape.join(", ")})` : ""))), { href: `#${name}`, title: name });
    link.addEventListener("click", (event) => { event.preventDefault(); go(id, undefined, { isFocused: true }); });
    const blocks = blocksOf(operandOf(["array", id], trace), names, sequence);
    const wide = blocks.reduce((sum, { cols }) => sum + cols, 0);
    const cell = array.data.length === 1 ? THUMB_HEIGHT / 2
      : Math.max(1, Math.min(THUMB_CELL, Math.floor(THUMB_WIDTH / wide), Math.floor(THUMB_HEIGHT / blocks[0].rows)));
    const pictures = blocks.map((block) => canvasOf(block, cell));
    const figures = pictures.map((canvas, i) => {
      const { head, number } = blocks[i];
      return element("figure", "", canvas, element("figcaption", "", head === null ? "" : headMark(number, head)));
    });
    link.append(element("span", "thumbs", ...figures));
    const card = cards[isTwin ? twins.get(id) : id];
    card.insertBefore(link, card.lastChild);
    return { link, array, blocks, pictures, cell };
  });
  const stop = roving(root, "a");

  // The equation of a card: where numbers only got another shape since, that of their first.
  function equationOf({ id, pass }, { first }) {
    const found = trace.equationOf(view.steps ? arrays[id] : first(id));
    return found || (pass === "param" ? "param" : "input");
  }

  function arrange() {
    const roles = rolesOf(trace, names.isHead);
    const { isIdle, shownFor } = roles;
    const isShown = ({ id, pass }) => {
      if (id === current) return true;
      if (pass !== "backward") return !isIdle[id] && (view.steps || shownFor(id) === id);
      const twin = twins.get(id);
      if (!view.gradients) return false;
      if (twin === undefined) return !isIdle[id] && (view.steps || shownFor(id) === id);
      if (trace.gradientOf(arrays[twin])?.id === id && shownFor(twin) === twin) return !isIdle[twin];
      return view.steps && !isIdle[id] && (!isIdle[twin] || Boolean(arrays[twin].tree));
    };
    for (const { link, array } of thumbs) {
      link.hidden = !isShown(array);
      const isChanged = array.data.some((value, i) => hasChanged(array, i, value));
      link.classList.toggle("changed", isChanged);
      link.ariaLabel = `${array.name}, ${array.shape.join(" by ") || "one number"}${isChanged ? ", changed" : ""}`;
    }
    arrays.forEach((array, id) => {
      if (!cards[id]) return;
      cards[id].hidden = ![...cards[id].querySelectorAll("a")].some((link) => !link.hidden);
      cards[id].lastChild.textContent = equationOf(array, roles);
    });
  }

  return {
    view, arrange, stop,
    paint(colors, ids = null) {
      for (const { array, blocks, pictures, cell } of thumbs) if (!ids || ids.has(array.id)) {
        const look = lookOf(array, trace);
        pictures.forEach((canvas, i) => paintBlock(canvas, blocks[i], cell, colors, look));
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
      if (id !== null) stop(thumbs[id].link);
      if (id !== null) root.scrollLeft = thumbs[id].link.offsetLeft - root.clientWidth / 2;
    },
    linkOf: (id) => thumbs[id].link,
    shown: () => thumbs.filter(({ link }) => !link.hidden).map(({ array }) => array.id),
  };
}
