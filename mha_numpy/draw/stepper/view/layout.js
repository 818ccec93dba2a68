// Where the blocks of an equation stand on the stage: a product as a product (a row meets a
// column), numbers that only move below or beside their source, everything else side by side.
//
// A layout is a function of the size of a cell; `fitted` takes the one with the largest cells.

const LARGEST_CELL = 34;
const READABLE_CELL = 26;  // from here on, cells hold their numbers
const TITLE = 20;

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
  ...(isPair(block) ? [ROLES[block.rowName]] : []),
  ...(block.array.isBool ? ["True = may attend"] : []),
];
const textWidth = (text) => 6.6 * text.length;
const nameWidth = ({ title, head, number }) =>
  7.6 * title.length + 8 + (head === null ? 0 : textWidth(`head ${number}`) + 6);
const labelWidth = ({ rowLabels }, cell) =>
  (cell < 9 ? 0 : Math.min(72, 8 + Math.max(...rowLabels.map(textWidth))));
const labelHeight = (cell) => (cell < 14 ? 0 : 17);
const wide = (block, cell) => Math.max(boxWidth(block, cell), cell > 9 ? nameWidth(block) : 0);

const box = (block, cell, x, y, more) =>
  ({ block, cell, x, y, labelsRows: true, labelsColumns: true, title: "above", ...more });

const single = (block, role) => (cell) => {
  const [left, top] = [labelWidth(block, cell), TITLE + labelHeight(cell) + 5];
  const notes = notesBelow(block);
  const noted = notes.length && cell >= 9 ? Math.max(...notes.map((text) => 5.4 * text.length)) : 0;
  return {
    boxes: [box(block, cell, left, top, { role })],
    width: left + Math.max(wide(block, cell), noted),
    height: top + boxHeight(block, cell) + 14 * notes.length + 4,
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
function grid(units, columns) {
  const rows = Math.ceil(units.length / columns);
  return below(Array.from({ length: rows }, (_, i) =>
    beside(units.slice(i * columns, (i + 1) * columns))));
}
const grids = (units) => units.map((_, i) => grid(units, units.length - i));

const product = ([left, above, bias, result]) => (cell) => {
  const [labels, top] = [labelWidth(left, cell), TITLE + labelHeight(cell)];
  const gap = Math.max(6, cell / 3);
  const corner = Math.max(wide(left, cell) + gap, labelWidth(above, cell) - labels + gap);
  const x = labels + corner;
  const biasTop = top + boxHeight(above, cell) + gap;
  const y = Math.max(biasTop + (bias ? cell + gap : 0), top + TITLE);
  const notes = notesBelow(result).length;
  const bare = { labelsRows: false, labelsColumns: false };
  const hasWords = above.rowLabels.some(isNaN) && cell >= 14;  // numbers along it would say little
  return {
    boxes: [
      box(left, cell, labels, y, { role: "source", labelsColumns: false }),
      box(above, cell, x, top, { role: "source", labelsRows: hasWords }),
      ...(bias ? [box(bias, cell, x, biasTop, { ...bare, role: "source", title: "left" })] : []),
      box(result, cell, x, y, { ...bare, role: "result", title: "below" }),
    ],
    width: x + Math.max(wide(above, cell), notes && cell >= 9 ? 140 : 0),
    height: y + boxHeight(result, cell) + TITLE + 14 * notes + 6,
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

// Everything that the stage shows of an array: {kind, candidates}, the layouts to be preferred first.
function sceneOf(array, trace, names, sequence, head) {
  const blocks = (operand) => blocksOf(operand, names, sequence);
  const whole = (id) => blocks(operandOf(["array", id], trace));
  const ofHead = (list) => (head === null || list.length < 2 ? list
    : [list[Math.floor(head * list.length / names.heads)]]);
  const results = whole(array.id);
  if (!array.tree) {
    const units = ofHead(results).map((block) => single(block, "result"));
    return { kind: "given", candidates: grids(units) };
  }

  if (onlyMoves(array.tree)) {
    const from = whole(array.reads[0]).map((block) => single(block, "source"));
    const to = results.map((block) => single(block, "result"));
    const [down, across] = [(list) => below(list), (list) => beside(list)];
    const isTurned = array.tree[0] === "transpose";
    const options = [[across, down, down], [down, across, across], [across, across, across]];
    return {
      kind: "moves",
      candidates: (isTurned ? options : options.slice(1))
        .map(([all, one, two]) => all([one(from), two(to)])),
    };
  }

  // The blocks of an operand that belong to one of the result's.
  const partFor = (list, number) => list.filter((block) => (list.length >= results.length
    ? Math.floor(block.number * results.length / list.length) === number
    : Math.floor(number * list.length / results.length) === block.number));
  const found = productIn(array.tree, array.shape);
  const operands = found && [...found.factors, ...(found.bias ? [found.bias] : [])]
    .map((tree) => operandOf(tree, trace));
  if (operands?.every(Boolean)) {
    const [left, above, bias] = operands.map(blocks);
    const units = ofHead(results).map((result) => product([
      ...[left, above, bias].map((list) => list && partFor(list, result.number)[0]), result,
    ]));
    return { kind: "product", candidates: grids(units) };
  }

  const sources = array.reads.filter((id) => trace.arrays[id].shape.length).slice(0, 4).map(whole);
  const units = (all) => ofHead(results).map((result) => all([
    ...sources.flatMap((list) => partFor(list, result.number).map((block) => single(block, "source"))),
    single(result, "result"),
  ]));
  const options = [...grids(units(beside)).reverse(), ...grids(units(below))];
  return { kind: "cells", candidates: results[0].rows === 1 ? options.reverse() : options };
}

// The first candidate whose cells can be read, if need be on a longer page; otherwise the one with
// the largest cells.
function fitted(candidates, width, height) {
  const inView = largestCells(candidates, width, height);
  const longer = largestCells(candidates, width, 1.8 * height);
  const isReadable = ({ boxes: [{ cell }] }) => cell >= READABLE_CELL;
  return !isReadable(inView) && isReadable(longer) ? longer : inView;
}

function largestCells(candidates, width, height) {
  const fits = (candidate, cell) => {
    const found = candidate(cell);
    return found.width <= width && found.height <= height ? found : null;
  };
  let best = null;
  for (const candidate of candidates) {
    for (let cell = LARGEST_CELL; cell > (best?.boxes[0].cell ?? 1); cell--) {
      const found = fits(candidate, cell);
      if (!found) continue;
      if (cell >= READABLE_CELL) return found;
      best = found;
    }
  }
  return best ?? candidates[0](2);
}
