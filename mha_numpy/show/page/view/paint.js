// Numbers as cells: filled is more than zero, a ring is less, strength is size, and the colour is
// the head's. Hidden cells are hatched; a folded corner means that a number has changed.

const SHADES = 48;
const SHAPES = "●■▲◆";  // of heads 0 to 3
const [LEAST_TEXT, LEAST_NUMBER] = [13, 11];  // pixels; a number in a narrow cell

const digitsFor = (size) => (size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
function fixed(value, digits) {
  const text = Math.abs(value).toFixed(digits);
  return (value < 0 && Number(text) ? "−" : "") + text;
}
// "0" is exactly zero, "0.00" is tiny; where nothing is asked for, 3 and 0.5 have no more decimals.
function written(value, digits) {
  if (!Number.isFinite(value)) return String(value).replace("Infinity", "∞").replace("-", "−");
  if (digits !== undefined) return fixed(value, digits);
  for (const [few, unit] of [[0, 1], [1, 10]]) {
    const round = Math.round(value * unit) / unit;
    if (Math.abs(value - round) < 1e-6 && (round || Math.abs(value) < 1e-12)) return fixed(round, few);
  }
  return fixed(value, Math.abs(value) >= 10 ? 1 : 2);
}
function signed(slope) {
  const text = fixed(slope, Math.abs(slope - Math.round(slope)) < 1e-6 ? 0 : 3);
  return slope > 0 && /[1-9]/.test(text) ? `+${text}` : text;
}

// The colours of the page, as its style sheet has them at this moment.
function readColors() {
  const style = getComputedStyle(document.documentElement);
  const { theme } = document.documentElement.dataset;
  const isDark = theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const of = (name) => {
    const value = style.getPropertyValue(`--${name}`).trim();
    const pair = /^light-dark\((.*), (.*)\)$/.exec(value);
    return pair ? pair[isDark ? 2 : 1] : value;
  };
  const parse = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const card = parse(of("card"));
  const ramp = (name) => Array.from({ length: SHADES + 1 }, (_, i) =>
    `rgb(${parse(of(name)).map((to, k) => Math.round(card[k] + (to - card[k]) * (0.15 + 0.85 * i / SHADES)))})`);
  const eight = (name) => Array.from({ length: 8 }, (_, i) => name(i));
  const [fills, marks] = [eight((i) => ramp(`fill-${i}`)), eight((i) => ramp(`head-${i}`))];
  const [fill, mark] = [ramp("fill-x"), ramp("plain")];
  const inks = eight((i) => of(`head-${i}-ink`));
  const at = (head) => Math.floor(head) % 8;
  return {
    ...Object.fromEntries(["card", "sunk", "ink", "soft", "dim", "edge", "line"].map((name) => [name, of(name)])),
    sans: of("sans"), serif: of("serif"), mono: of("mono"),
    inkOf: (head) => (head === null ? of("soft") : inks[at(head)]),
    // A number's colour: below numbers that are written it leaves room for ink, else it is stronger.
    shade(strength, head, isStrong) {
      const ramps = isStrong ? [marks, mark] : [fills, fill];
      return (head === null ? ramps[1] : ramps[0][at(head)])[Math.round(SHADES * Math.min(1, strength || 0))];
    },
  };
}

// The number that has full colour: the largest one at the start, so that colours do not jump, and 1
// among shares.
const isShares = (tree) => tree && (tree[0] === "softmax" || (tree[0] === "where" && isShares(tree[2])));
const largest = ({ first, tree }) => (isShares(tree) ? 1 : first.reduce(
  (most, value) => (Number.isFinite(value) ? Math.max(most, Math.abs(value)) : most), 0) || 1);

const hasChanged = ({ first, isBool }, place, value) =>
  value !== first[place] && !(Math.abs(value - first[place]) <= (isBool ? 0 : 1e-9)) && !(Number.isNaN(value) && Number.isNaN(first[place]));

const widths = new Map();  // of words, in pixels: each is measured once
const ruler = new OffscreenCanvas(1, 1).getContext("2d");
function textWidth(text) {
  if (!widths.has(text)) {
    ruler.font = `${LEAST_TEXT}px ${getComputedStyle(document.body).fontFamily}`;
    widths.set(text, ruler.measureText(text).width);
  }
  return widths.get(text);
}

// All fractions of a block have the same decimals, and all its numbers the same size of digits.
const looks = new WeakMap();  // by the numbers of an array, of which each change makes new ones
function lookOf({ array, cells, key }, trace) {
  const { isBool, data } = array;
  const known = looks.get(data) ?? looks.set(data, new Map()).get(data);
  const own = () => writingOf(array, Array.from(cells, (place) => data[place]));
  if (!known.has(key)) known.set(key, { isBool, most: largest(array), numbers: own() });
  return { ...known.get(key), isHidden: hiddenIn(array, trace) };
}

// How numbers are written in cells of some width: {write, size}; undefined where there is no room. A
// narrow cell takes the zero before the point away, then a decimal.
const isWhole = (value) => value === 0 || (Math.abs(value) > 0.5 && Math.abs(value - Math.round(value)) < 1e-6);
function writingOf({ isBool }, numbers) {
  const digits = digitsFor(numbers.reduce((most, value) =>
    (isWhole(value) || !Number.isFinite(value) ? most : Math.max(most, Math.abs(value))), 0));
  const ways = digits === 2 ? [[2, "0."], [2, "."], [1, "."]] : [[digits, "0."]];
  const known = ways.map(([n, point]) => {
    const write = (value) => (isBool ? (value ? "True" : "False")
      : isWhole(value) ? written(Math.round(value)) : written(value, n).replace(/\b0\./, point));
    const words = Array.from(numbers, (value) => write(value).replace(/\d/g, "0"));
    return { write, width: 1.08 * Math.max(0, ...[...new Set(words)].map(textWidth)) };  // in bold
  });
  const find = (width) => {
    const fits = (size) => known.find((each) => each.width * size / LEAST_TEXT <= width);
    const found = fits(LEAST_TEXT) ?? fits(LEAST_NUMBER);
    return found && { write: found.write, size: Math.min(LEAST_TEXT * width / found.width, Math.max(LEAST_TEXT, 0.32 * width)) };
  };
  find.widths = isBool ? [0] : known.map(({ width }) => width);
  return find;
}

// Whether an equation hides a cell: where a mask is False, a score is -inf, or a weight left out.
function hiddenIn(array, trace) {
  const { tree, data } = array;
  if (array.isBool) return (place) => data[place] === 0;
  if (tree?.[0] === "softmax" && tree[1][0] === "array") {
    const scores = trace.arrays[tree[1][1]].data;
    return (place) => scores[place] === -Infinity;
  }
  if (tree?.[0] === "where" && tree[1][0] === "array") {
    const condition = trace.arrays[tree[1][1]];
    return (place) => {
      const at = unstretched(unflatten(place, array.shape), condition.shape);
      return condition.data[flatten(at, condition.shape)] === 0;
    };
  }
  const { numbers, asGiven } = array;  // a switch took the number away
  const isGone = (place) => numbers !== asGiven && numbers[place] === 0 && asGiven[place] !== 0;
  return (place) => data[place] === -Infinity || isGone(place);
}

function hatch(ctx, x, y, size, color) {
  ctx.save();
  ctx.beginPath();
  ctx.rect(x, y, size, size);
  ctx.clip();
  ctx.strokeStyle = color;
  ctx.lineWidth = 1;
  ctx.beginPath();
  for (let d = 4; d < 2 * size; d += 5) {
    ctx.moveTo(x + d, y);
    ctx.lineTo(x + d - size, y + size);
  }
  ctx.stroke();
  ctx.restore();
}

function text(ctx, words, x, y, style) {
  const { size = LEAST_TEXT, width = Infinity, color, font, align = "center", bold = false } = style;
  ctx.fillStyle = color;
  ctx.textAlign = align;
  ctx.textBaseline = "middle";
  const wanted = `${bold ? "600 " : ""}${size}px ${font}`;  // a font costs more than a word
  if (ctx.lastFont !== wanted) ctx.font = ctx.lastFont = wanted;
  while (words.length > 1 && ctx.measureText(words).width > width + 1) {
    words = `${words.replace(/…$/, "").slice(0, -1)}…`;
  }
  ctx.fillText(words, x, y);
}

function fillBox(ctx, x, y, size, color) {
  ctx.fillStyle = color;
  if (size < 7) return ctx.fillRect(x, y, size, size);
  ctx.beginPath();
  ctx.roundRect(x, y, size, size, Math.min(9, size / 6));
  ctx.fill();
}
const gapIn = (size) => (size >= 24 ? 3 : size > 8 ? 2 : size > 3 ? 1 : 0);

function paintCell(ctx, colors, x, y, size, value, look) {
  const { isHidden, isBool, head, most, hasCorner } = look;
  const inner = size - gapIn(size);
  const numbers = look.numbers(inner - 6);
  const strength = isBool ? 0.3 : Math.abs(value) / most;
  const isNone = isHidden || value === 0 || strength < NONE;
  if (isNone) fillBox(ctx, x, y, inner, colors.sunk);
  else fillBox(ctx, x, y, inner, colors.shade(value < 0 ? 0.25 + 0.75 * strength : strength, head, !numbers));
  const ring = Math.min(3, Math.max(1, Math.round(inner / 9)));
  if (value < 0 && !isNone && inner > 2) fillBox(ctx, x + ring, y + ring, inner - 2 * ring, colors.card);
  if (isHidden) hatch(ctx, x, y, inner, colors.edge);
  if (hasCorner && inner > 7) {  // folded, as that of a page
    const fold = Math.min(10, inner / 3);
    ctx.fillStyle = colors.ink;
    ctx.beginPath();
    for (const [dx, dy] of [[0, 0], [fold, 0], [0, fold]]) ctx.lineTo(x + dx, y + dy);
    ctx.fill();
  }
  if (!numbers || (isHidden && !isBool)) return;
  text(ctx, numbers.write(value), x + inner / 2, y + inner / 2 + 0.5, {
    size: numbers.size, font: colors.sans, color: isNone ? colors.dim : colors.ink, bold: strength >= 0.1,
  });
}

// The cells of a block, `at(i, j)` in pixels.
function paintCells(ctx, colors, block, size, look, at) {
  const { array, cells, cols, head, rowHeads, colHeads } = block;
  cells.forEach((place, k) => {
    const [i, j] = [Math.floor(k / cols), k % cols];
    const value = array.data[place];
    paintCell(ctx, colors, ...at(i, j, k, place), value, {
      ...look, head: head ?? colHeads[j] ?? rowHeads[i], isHidden: look.isHidden(place),
      hasCorner: hasChanged(array, place, value),
    });
  });
}

// A block by itself on a canvas, sharp where a screen has more pixels than it says.
function canvasOf(block, cell) {
  const canvas = element("canvas");
  const [scale, width, height] = [devicePixelRatio || 1, boxWidth(block, cell), boxHeight(block, cell)];
  Object.assign(canvas, { width: Math.ceil(width * scale), height: Math.ceil(height * scale) });
  Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
  return canvas;
}
function paintBlock(canvas, block, cell, colors, look) {
  const ctx = canvas.getContext("2d");
  const scale = canvas.width / boxWidth(block, cell);
  ctx.setTransform(scale, 0, 0, scale, 0, 0);
  ctx.clearRect(0, 0, canvas.width, canvas.height);
  paintCells(ctx, colors, block, cell, look,
    (i, j) => [columnLeft(block, j, cell), rowTop(block, i, cell), cell]);
}

// A block's labels and name. Its cells are painted apart, for they may be on their way.
function paintFrame(ctx, colors, each) {
  const { block, cell, x, y } = each;
  const [width, height] = [boxWidth(block, cell), boxHeight(block, cell)];
  const words = { font: colors.sans, color: colors.soft };
  const labelled = (axis, label) => (isWord(axis, label)
    ? { font: colors.serif, color: colors.ink, size: WORD } : words);
  const columnsHeight = each.labelsColumns ? labelHeight(block, cell) : 0;
  if (columnsHeight) block.colLabels.forEach((label, j) => {
    const middle = x + columnLeft(block, j, cell) + cell / 2;
    const style = labelled(block.colName, label);
    if (columnsHeight === LINE) return text(ctx, label, middle, y - 12, { ...style, width: cell - 1 });
    ctx.translate(middle, y - 6);  // a word that is longer than its cell is wide stands upright
    ctx.rotate(-Math.PI / 2);
    text(ctx, label, 0, 0, { ...style, align: "left", width: columnsHeight });
    ctx.rotate(Math.PI / 2);
    ctx.translate(-middle, 6 - y);
  });
  if (each.labelsRows && labelWidth(block, cell)) block.rowLabels.forEach((label, i) =>
    text(ctx, label, x - 8, y + rowTop(block, i, cell) + cell / 2,
      { ...labelled(block.rowName, label), align: "right", width: LONGEST }));

  const isResult = each.role === "result";
  const name = { ...words, font: colors.mono, bold: isResult, align: "left", size: 14 };
  if (isResult) name.color = colors.ink;
  const top = y - 12 - columnsHeight;
  const headColor = { ...words, color: colors.inkOf(block.head), bold: true, align: "right" };
  let noteTop = y + height + 12;
  if (each.title === "left") text(ctx, block.title, x - 8, y + cell / 2, { ...name, align: "right" });
  else if (each.title === "below") {
    text(ctx, block.title, x, noteTop, name);
    noteTop += TITLE - 2;
  } else text(ctx, block.title, x - each.over, top, name);
  if (block.head !== null && each.hasHead && each.title === "above" && cell >= 9) {
    text(ctx, headName(block.number), x - each.over + wide(block, cell), top, headColor);
  }
  if (cell >= 9) for (const note of notesBelow(block)) {
    text(ctx, note, Math.max(0, x - 1 - Math.max(0, textWidth(note) - width)), noteTop, { ...words, align: "left" });
    noteTop += NOTE;
  }
}
const headName = (number) => `${SHAPES[number] ?? ""} head ${number}`.trim();

// A head's mark in its colour, as on all pages; its colour is that of a query head.
function headMark(number, head = number) {
  const mark = element("i", "mark", SHAPES[number] ?? String(number));
  mark.style.color = `var(--head-${Math.floor(head) % 8})`;
  return mark;
}
const headKey = (number) => (SHAPES[number] ? [headMark(number), ` head ${number}`] : [`head ${number}`]);

function outline(ctx, [x, y, size], color, thick, dash = []) {
  const side = size - gapIn(size);
  ctx.strokeStyle = color;
  ctx.lineWidth = thick;
  ctx.setLineDash(dash);
  ctx.beginPath();
  ctx.roundRect(x - 0.5, y - 0.5, side + 1, side + 1, Math.min(9, side / 6));
  ctx.stroke();
  ctx.setLineDash([]);
}
