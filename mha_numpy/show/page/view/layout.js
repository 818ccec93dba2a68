// Where the blocks of an equation stand on the stage: a product as a product (a row meets a
// column), numbers that only move below or beside their source, everything else side by side.
//
// A layout is a function of the size of a cell; `fitted` takes the one with the largest cells.

const CELLS = Array.from({ length: 55 }, (_, n) => 56 - n);  // pixels
const SMALL_CELLS = [2, 1, 1 / 2, 1 / 4];  // where the page is longer than the view, but no wider
const [LONGER, LONGEST_PAGE] = [1.4, 2.5];  // than the view may a page be, for numbers and for words
const TITLE = 22;
const [LINE, NOTE] = [20, 18];  // of labels above columns, of notes below
const LABELLED = 14;  // from here on, cells have words beside them
const LONGEST = 96;  // a label, in pixels
const WORD = 16;  // the size of a token, where other labels have 13

const pieceGap = (cell) => Math.max(2, Math.round(cell * 0.3));
const columnLeft = ({ group }, j, cell) =>
  j * cell + (group ? Math.floor(j / group) * pieceGap(cell) : 0);
const rowTop = ({ group, rows }, i, cell) =>
  i * cell + (group && rows > 1 ? i * Math.ceil(pieceGap(cell) / 2) : 0);
const boxWidth = (block, cell) => columnLeft(block, block.cols - 1, cell) + cell;
const boxHeight = (block, cell) => rowTop(block, block.rows - 1, cell) + cell;

const isPair = ({ rowName, colName }) =>
  ["T_q T_k", "T_k T_q"].includes(`${rowName} ${colName}`);
const ROLES = { T_q: "row = query, column = key", T_k: "row = key, column = query" };
const notesBelow = (block) => [
  ...(isPair(block) && block.isFirst ? [ROLES[block.rowName]] : []),
  ...(block.array.isBool ? ["True = may attend"] : []),
];
const isWord = (axis, label) => /^T/.test(axis) && isNaN(label);
const nameWidth = ({ title, head, number }, hasHead) =>
  8.5 * title.length + 8 + (head === null || !hasHead ? 0 : 1.1 * textWidth(headName(number)) + 6);
const longestOf = (labels, axis) => Math.min(LONGEST, Math.max(...labels.map((label) =>
  textWidth(label) * (isWord(axis, label) ? WORD / LEAST_TEXT : 1))));
const labelWidth = ({ rowLabels, rowName }, cell) =>
  (cell < LABELLED ? 0 : 12 + longestOf(rowLabels, rowName));
function labelHeight({ colLabels, colName }, cell) {
  if (cell < LABELLED) return 0;
  const longest = longestOf(colLabels, colName);
  return longest + 6 <= cell ? LINE : longest + 4;
}
const wide = (block, cell, hasHead = true) =>
  Math.max(boxWidth(block, cell), cell >= 9 ? nameWidth(block, hasHead) : 0);

const box = (block, cell, x, y, more) => ({
  block, cell, x, y, labelsRows: true, labelsColumns: true, title: "above", hasHead: true, over: 0,
  ...more,
});

const single = (block, role) => (cell) => {
  const [left, top] = [labelWidth(block, cell), TITLE + labelHeight(block, cell) + 5];
  const notes = cell >= 9 ? notesBelow(block) : [];
  return {
    boxes: [box(block, cell, left, top, { role })],
    width: Math.max(left + wide(block, cell), ...notes.map(textWidth)),
    height: top + boxHeight(block, cell) + NOTE * notes.length + 4,
  };
};

function placed(units, isBeside, gap) {
  return (cell) => {
    let at = 0;
    let across = 0;
    const boxes = units.map((unit) => unit(cell)).flatMap((part) => {
      const [dx, dy] = isBeside ? [at, 0] : [0, at];
      at += (isBeside ? part.width : part.height) + gap;
      across = Math.max(across, isBeside ? part.height : part.width);
      return part.boxes.map((each) => ({ ...each, x: each.x + dx, y: each.y + dy }));
    });
    const along = Math.max(0, at - gap);
    return { boxes, width: isBeside ? along : across, height: isBeside ? across : along };
  };
}
const beside = (units, gap = 22) => placed(units, true, gap);
const below = (units, gap = 8) => placed(units, false, gap);
const rowsOf = (count, columns) => Math.ceil(count / columns);
function grid(units, columns) {
  return below(Array.from({ length: rowsOf(units.length, columns) }, (_, i) =>
    beside(units.slice(i * columns, (i + 1) * columns))));
}
const grids = (units) => units.map((_, i) => units.length - i)
  .filter((columns) => columns === rowsOf(units.length, rowsOf(units.length, columns)))  // even rows
  .map((columns) => grid(units, columns));

const product = ([left, above, bias, result]) => (cell) => {
  const [labels, top] = [labelWidth(left, cell), TITLE + labelHeight(above, cell)];
  const gap = Math.max(6, cell / 3);
  const hasHead = above.head === null;  // a head's name stands once, above the upper factor
  const over = wide(above, cell) - boxWidth(above, cell);  // its name begins left of it
  const outside = Math.max(labelWidth(above, cell), over) - labels;
  const corner = Math.max(wide(left, cell, hasHead), outside) + gap;
  const x = labels + corner;
  const biasTop = top + boxHeight(above, cell) + gap;
  const y = Math.max(biasTop + (bias ? cell + gap : 0), top + TITLE);
  const notes = cell >= 9 ? notesBelow(result) : [];
  const bare = { labelsRows: false, labelsColumns: false };
  const hasWords = above.rowLabels.some(isNaN) && cell >= 14;  // numbers along it would say little
  return {
    boxes: [
      box(left, cell, labels, y, { role: "source", labelsColumns: false, hasHead }),
      box(above, cell, x, top, { role: "source", labelsRows: hasWords, over }),
      ...(bias ? [box(bias, cell, x, biasTop, { ...bare, role: "source", title: "left" })] : []),
      box(result, cell, x, y, { ...bare, role: "result", title: "below" }),
    ],
    width: Math.max(x + boxWidth(above, cell), ...notes.map(textWidth)),
    height: y + boxHeight(result, cell) + TITLE + NOTE * notes.length + 6,
  };
};

// The product that an equation ends with: a sum with a bias, or a choice, may stand around it.
function productIn(tree, shape) {
  const [op, ...args] = tree;
  if (String(tree.shape) !== String(shape)) return null;
  if (op === "@") return { factors: args, bias: null };
  if (op === "where") return productIn(args[1], shape);
  const found = op === "+" && productIn(args[0], shape);
  return found && (args[1].shape.at(-2) ?? 1) === 1 ? { ...found, bias: args[1] } : null;
}
const MOVES = ["reshape", "transpose", "swapaxes", "newaxes"];
const onlyMoves = ([op, first]) => op === "array" || (MOVES.includes(op) && onlyMoves(first));


function layoutsOf(array, trace, names, sequence, head) {
  const blocks = (operand) => blocksOf(operand, names, sequence);
  const whole = (id) => blocks(operandOf(["array", id], trace));
  const source = (id) => whole(trace.plain(id));
  const ofHead = (list) => (head === null || list.length < 2 ? list
    : [list[Math.floor(head * list.length / names.heads)]]);
  const results = whole(array.id);
  ofHead(results)[0].isFirst = true;  // what is said of all is said once
  if (!array.tree) {
    const units = ofHead(results).map((block) => single(block, "result"));
    return grids(units);
  }

  if (onlyMoves(array.tree)) {
    const sources = source(array.reads[0]);
    const cut = (list, role) => (sources.length === results.length ? ofHead(list) : list).map((block) => single(block, role));
    const [from, to] = [cut(sources, "source"), cut(results, "result")];
    const [down, across] = [(list) => below(list), (list) => beside(list)];
    const isTurned = array.tree[0] === "transpose";
    const options = [[across, down, down], [down, across, across], [across, across, across]];
    const chosen = isTurned ? options : options.slice(1);
    return chosen.map(([all, one, two]) => all([one(from), two(to)]));
  }

  // The blocks of an operand that belong to one of the result's.
  const partFor = (list, number) => list.filter((block) => (list.length >= results.length
    ? Math.floor(block.number * results.length / list.length) === number
    : Math.floor(number * list.length / results.length) === block.number));
  const found = productIn(array.tree, array.shape);
  const operands = found && [...found.factors, ...(found.bias ? [found.bias] : [])]
    .map((tree) => operandOf(tree[0] === "array" ? ["array", trace.plain(tree[1])] : tree, trace));
  if (operands?.every(Boolean)) {
    const [left, above, bias] = operands.map(blocks);
    const units = ofHead(results).map((result) => product([
      ...[left, above, bias].map((list) => list && partFor(list, result.number)[0]), result,
    ]));
    return grids(units);
  }

  const sources = array.reads.filter((id) => trace.arrays[id].shape.length).slice(0, 4).map(source);
  const units = (all) => ofHead(results).map((result) => all([
    ...sources.flatMap((list) => partFor(list, result.number).map((block) => single(block, "source"))),
    single(result, "result"),
  ]));
  const stacked = (list) => beside([below(list.slice(0, -1)), list.at(-1)]);  // sources at the left
  const options = [
    ...grids(units(beside)).reverse(), ...grids(units(below)), ...grids(units(stacked)),
  ];
  return results[0].rows === 1 ? options.reverse() : options;
}

// The size of a cell that its number fits, as numbers were at the start: with two decimals, or with
// one, which says too little of shares.
const rooms = new Map();
function roomOf({ key, array, cells }, isShort) {
  if (!rooms.has(key)) rooms.set(key, writingOf(array, Array.from(cells, (place) => array.first[place])).widths);
  return rooms.get(key).at(isShort && !isShares(array.tree) ? -1 : Math.min(1, rooms.get(key).length - 1)) + 9;
}
const isReadable = ({ boxes }, isShort = true) => boxes.every(({ block, cell }) => cell >= roomOf(block, isShort));

const cellOf = (found) => found.boxes[0].cell;
const isLabelled = (found) => cellOf(found) >= LABELLED;

// The first layout whose cells hold their numbers, if need be with one decimal, or on a longer page;
// else one whose rows and columns have their words; otherwise the one with the largest cells.
function fitted(candidates, width, height) {
  for (const [longer, isGood] of [
    [1, (found) => isReadable(found, false)], [1, isReadable],
    [LONGER, (found) => isReadable(found, false)], [LONGER, isReadable],
    [1, isLabelled], [LONGEST_PAGE, isLabelled],
  ]) {
    const good = candidates.map((each) => largestCells(each, width, longer * height)).find((found) => found && isGood(found));
    if (good) return good;
  }
  for (const high of [height, Infinity]) {
    const found = candidates.map((each) => largestCells(each, width, high)).filter(Boolean);
    if (found.length) return found.toSorted((a, b) => cellOf(b) - cellOf(a))[0];
  }
  return candidates[0](SMALL_CELLS.at(-1));
}

function largestCells(candidate, width, height) {
  for (const cell of height === Infinity ? SMALL_CELLS : CELLS) {
    const found = candidate(cell);
    if (found.width <= width && found.height <= height) return found;
  }
  return null;
}
