// An array as rows and columns to draw: one block for each head, or a single one.
//
// What stands in an equation may be an array that was turned or repeated (`k.swapaxes(-1, -2)`): it
// is drawn as it stands there, and each of its cells is still a cell of the recorded array.

const mainCell = (told) => (told.index?.length ? told : told.args?.map(mainCell).find(Boolean));

// {array, shape, places, axes}: for each cell its place in the array; for each axis the array's own.
function operandOf(tree, trace) {
  const arrayOf = (id) => trace.arrays[id];
  if (tree[0] === "array") {
    const array = arrayOf(tree[1]);
    return { array, shape: array.shape, places: null, axes: [...array.shape.keys()], title: array.name };
  }
  const { shape } = tree;
  const cells = Array.from({ length: sizeOf(shape) }, (_, place) =>
    mainCell(storyOf(tree, unflatten(place, shape), arrayOf)));
  if (!cells.length || cells.some((cell) => cell?.array !== cells[0]?.array)) return null;
  const array = arrayOf(trace.plain(cells[0].array));
  const strides = stridesOf(shape);
  const axes = shape.map((n, axis) => {
    const last = cells[(n - 1) * strides[axis]].index;
    return last.findLastIndex((i, at) => i !== cells[0].index[at]);  // -1: it only repeats
  });
  const isTurned = axes.at(-1) < axes.at(-2) && axes.at(-1) >= 0;
  return {
    array, shape, axes, places: cells.map(({ index }) => flatten(index, array.shape)),
    title: array.name + (isTurned ? "ᵀ" : ""),
  };
}

function blocksOf({ array, shape, places, axes, title }, names, sequence) {
  const nameOf = (axis) => array.axes[axes[axis]] ?? "1";
  const rank = shape.length;
  const base = shape.map((n, axis) => (nameOf(axis) === "B" ? Math.min(sequence, n - 1) : 0));
  const kept = [...shape.keys()].filter((axis) =>
    nameOf(axis) !== "B" && (shape[axis] > 1 || axis >= rank - 2));
  const columns = kept.length ? [kept.pop()] : [];
  let row = kept.pop();
  let group = 0;  // columns in each piece, where heads lie within a row
  if (row !== undefined && kept.length && names.isHead(nameOf(row))) {
    group = shape[columns[0]];
    columns.unshift(row);
    row = kept.pop();
  } else if (row === undefined && columns.length && names.isHead(nameOf(columns[0]))) group = 1;

  const strides = stridesOf(shape);
  const sizes = (list) => list.map((axis) => shape[axis]);
  const [rows, cols] = [row === undefined ? 1 : shape[row], sizeOf(sizes(columns))];
  const start = flatten(base, shape);
  const stepTo = (list, place) =>
    unflatten(place, sizes(list)).reduce((sum, i, k) => sum + i * strides[list[k]], 0);
  const rowAxis = row === undefined ? [] : [row];

  return Array.from({ length: sizeOf(sizes(kept)) }, (_, number) => {
    const cells = Int32Array.from({ length: rows * cols }, (__, k) => {
      const place = start + stepTo(kept, number) + stepTo(rowAxis, Math.floor(k / cols))
        + stepTo(columns, k % cols);
      return places ? places[place] : place;
    });
    // Along an axis: what each place is called, and the head that it belongs to.
    const along = (list, count, apart, ask) => Array.from({ length: count }, (__, k) => {
      const axis = list.length ? axes[list.at(ask === "headAt" ? 0 : -1)] : -1;
      if (axis < 0) return ask === "headAt" ? null : "";
      const index = unflatten(cells[k * apart], array.shape);
      const head = index[array.axes.findIndex(names.isHead)];
      return names[ask](array.axes[axis], index[axis], array.shape[axis], head);
    });
    const blocks = sizeOf(sizes(kept));
    const headAxis = kept.find((axis) => names.isHead(nameOf(axis)));
    const head = kept.length === 0 ? null : headAxis === undefined ? number : names.headAt(
      nameOf(headAxis), unflatten(cells[0], array.shape)[axes[headAxis]], array.shape[axes[headAxis]]);
    return {
      array, title, rows, cols, group, cells, number, head: blocks > 1 ? head : null,
      rowName: row === undefined ? "" : nameOf(row), colName: columns.length ? nameOf(columns.at(-1)) : "",
      rowLabels: along(rowAxis, rows, cols, "label"), colLabels: along(columns, cols, 1, "label"),
      rowHeads: along(rowAxis, rows, cols, "headAt"), colHeads: along(columns, cols, 1, "headAt"),
      key: `${title} ${array.id} ${number}`,
    };
  });
}
