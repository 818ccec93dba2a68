// The keyboard: every key that the page listens to, and from cell to cell as they lie.

// The cell nearest to another one in a direction; `places` are [x, y] by "id:place".
function nextCell(places, { id, place }, [dx, dy]) {
  const [left, top] = places.get(`${id}:${place}`) ?? places.values().next().value;
  let [nearest, best] = [Infinity, null];
  for (const [key, [x, y]] of places) {
    const along = (x - left) * dx + (y - top) * dy;
    const across = Math.abs((x - left) * dy) + Math.abs((y - top) * dx);
    if (along > 1 && along + 3 * across < nearest) [nearest, best] = [along + 3 * across, key];
  }
  if (!best) return null;
  const [nextId, nextPlace] = best.split(":").map(Number);
  return { id: nextId, place: nextPlace };
}

// Keys mean something on the page, not in a field; arrows only where they would not scroll or turn.
function listenToKeys(root, canvas, keys, walk) {
  document.addEventListener("keydown", (event) => {
    const { target, key } = event;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const isField = target.closest?.("input, select, textarea");
    const isOurs = target === document.body || root.contains(target);
    if (!isOurs || root.hidden || (isField && key !== "Escape")) return;
    const isFree = target === document.body || target === canvas;
    if (key in ARROWS && isFree) walk(ARROWS[key]);
    else if (key in keys && (isFree || key !== "Enter")) keys[key]();
    else return;
    event.preventDefault();
  });
}
