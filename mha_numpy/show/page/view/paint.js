// Numbers as cells: sign by colour, strength by size, hidden cells hatched, heads by frame alone.

const SHADES = 48;

const digitsFor = (size) => (size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
// "0" is exactly zero, "0.00" is tiny; a whole number has decimals only if they are asked for.
function written(value, digits = Number.isInteger(value) ? 0 : digitsFor(Math.abs(value))) {
  if (value === 0) return "0";
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "∞" : "−∞";
  const words = Math.abs(value).toFixed(digits);
  return (value < 0 && Number(words) ? "−" : "") + words;
}
const inDecimals = (value) => written(value, digitsFor(Math.abs(value)));
const signed = (value, digits = 3) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(digits);

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
  const pixelOf = ([r, g, b]) => (255 << 24 | b << 16 | g << 8 | r) >>> 0;
  const paper = parse(of("paper"));
  const ramp = (name) => Array.from({ length: SHADES + 1 }, (_, i) => {
    const share = i && 0.1 + 0.9 * (i / SHADES);
    const rgb = parse(of(name)).map((to, k) => Math.round(paper[k] + (to - paper[k]) * share));
    const light = (0.3 * rgb[0] + 0.59 * rgb[1] + 0.11 * rgb[2]) / 255;
    return { pixel: pixelOf(rgb), css: `rgb(${rgb})`, ink: light > 0.52 ? "#16161a" : "#ffffff" };
  });
  return {
    paper: of("paper"), ink: of("ink"), muted: of("muted"), line: of("line"), hatch: of("hatch"),
    flash: of("flash"), font: of("mono"), words: of("sans"),
    heads: Array.from({ length: 8 }, (_, i) => of(`head-${i}`)),
    more: ramp("gold"), less: ramp("violet"), truth: [pixelOf(parse(of("hatch"))), pixelOf(paper)],
    ofHead(head) { return head === null ? this.muted : this.heads[Math.floor(head) % 8]; },
    shade(value, most) {
      const strength = Math.abs(value) / most;
      const at = !(strength > 0) ? 0 : Math.max(1, Math.round(SHADES * Math.min(1, strength)));
      return (value < 0 ? this.less : this.more)[at];
    },
  };
}

// The number that has full colour: the largest one, and 1 among shares.
const isShares = (tree) => tree && (tree[0] === "softmax" || (tree[0] === "where" && isShares(tree[2])));
const largest = ({ data, tree }) => (isShares(tree) ? 1 : data.reduce(
  (most, value) => (Number.isFinite(value) ? Math.max(most, Math.abs(value)) : most), 0) || 1);

// All numbers of an array have the same decimals and the same size of digits.
function lookOf(array, trace) {
  const { isBool, isInteger, data } = array;
  const most = largest(array);
  const digits = isInteger ? 0 : digitsFor(most);
  const letters = isBool ? 5 : written(most, digits).length + Number(data.some((value) => value < 0));
  return { isBool, most, digits, letters, isHidden: hiddenIn(array, trace) };
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

// A block as a picture of a pixel for each cell.
function pixelsOf({ array, cells, rows, cols }, colors, most, isHidden) {
  const image = new ImageData(cols, rows);
  const pixels = new Uint32Array(image.data.buffer);
  cells.forEach((place, k) => {
    const isGrey = array.isBool ? !array.data[place] : isHidden(place);
    const shade = array.isBool ? colors.truth[1] : colors.shade(array.data[place], most).pixel;
    pixels[k] = isGrey ? colors.truth[0] : shade;
  });
  return image;
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
  const { size = 12, least = 7, width = Infinity, color, font, align = "center", bold = false } = style;
  ctx.fillStyle = color;
  ctx.textAlign = align;
  ctx.textBaseline = "middle";
  const set = (pixels) => {  // a font costs more than a word: it is set where it changes
    const wanted = `${bold ? "bold " : ""}${pixels}px ${font}`;
    if (ctx.lastFont !== wanted) ctx.font = ctx.lastFont = wanted;
  };
  set(size);
  if (width < Infinity) {
    const needed = ctx.measureText(words).width;
    if (needed > width) set(Math.max(least, size * width / needed));
    while (words.length > 1 && ctx.measureText(words).width > width + 1) {
      words = `${words.replace(/…$/, "").slice(0, -1)}…`;
    }
  }
  ctx.fillText(words, x, y);
}

function paintCell(ctx, colors, x, y, size, value, look) {
  const shade = colors.shade(value, look.most);
  ctx.fillStyle = look.isHidden || look.isBool ? colors.paper : shade.css;
  const inner = size > 7 ? size - 1 : size;
  ctx.fillRect(x, y, inner, inner);
  if (look.isHidden) hatch(ctx, x, y, inner, colors.hatch);
  if (size < READABLE_CELL || (look.isHidden && !look.isBool && value === 0)) return;
  const words = look.isBool ? (value ? "True" : "False") : written(value, look.digits);
  const fits = Math.floor(2 * (inner - 1) / (0.61 * look.letters)) / 2;  // a mono letter is 0.6 wide
  text(ctx, words, x + inner / 2, y + inner / 2 + 0.5, {
    size: Math.min(12.5, Math.round(size * 0.4), fits), font: colors.font,
    color: look.isHidden || look.isBool ? colors.muted : value === 0 ? colors.muted : shade.ink,
  });
}

// A block's frame, labels and name. Its cells are painted apart, for they may be on their way.
function paintFrame(ctx, colors, each) {
  const { block, cell, x, y } = each;
  const [width, height] = [boxWidth(block, cell), boxHeight(block, cell)];
  const words = { font: colors.words, color: colors.muted };
  ctx.lineWidth = cell > 9 ? 2 : 1.25;
  const frame = (fx, fy, fw, fh, head) => {
    ctx.strokeStyle = head === null ? colors.line : colors.ofHead(head);
    ctx.strokeRect(fx - 2, fy - 2, fw + 3, fh + 3);
  };
  if (block.group) {  // heads within a row: a frame around each piece, or all pieces of a head
    ctx.lineWidth = 1.25;
    const [rows, high] = cell < 6 ? [1, height] : [block.rows, cell];
    for (let i = 0; i < rows; i++) for (let j = 0; j < block.cols; j += block.group) {
      const [left, top] = [x + columnLeft(block, j, cell), y + rowTop(block, i, cell)];
      frame(left, top, block.group * cell, high, block.colHeads[j]);
    }
  } else frame(x, y, width, height, block.head);

  // Bars in the heads' colours, where heads are not cut apart yet.
  const bars = (heads, count, at) => {
    if (block.group || heads[0] === null || heads.at(-1) === heads[0]) return;
    for (let i = 0; i < count; i++) {
      ctx.fillStyle = colors.ofHead(heads[i]);
      ctx.fillRect(...at(i));
    }
  };
  const thick = cell > 9 ? 4 : 3;
  bars(block.colHeads, block.cols, (j) => [x + j * cell, y - 3 - thick, cell, thick]);
  bars(block.rowHeads, block.rows, (i) => [x - 3 - thick, y + i * cell, thick, cell]);

  const columnsHeight = each.labelsColumns ? labelHeight(block, cell) : 0;
  if (columnsHeight) block.colLabels.forEach((label, j) => {
    const middle = x + columnLeft(block, j, cell) + cell / 2;
    if (columnsHeight === LINE) return text(ctx, label, middle, y - 13, { ...words, width: cell - 1 });
    ctx.translate(middle, y - 8);  // a word that is longer than its cell is wide stands upright
    ctx.rotate(-Math.PI / 2);
    text(ctx, label, 0, 0, { ...words, align: "left", width: columnsHeight });
    ctx.rotate(Math.PI / 2);
    ctx.translate(-middle, 8 - y);
  });
  if (each.labelsRows && cell >= 9) block.rowLabels.forEach((label, i) =>
    text(ctx, label, x - 10, y + rowTop(block, i, cell) + cell / 2,
      { ...words, align: "right", size: Math.min(12, cell), width: LONGEST }));

  const isResult = each.role === "result";
  const name = { ...words, font: colors.font, bold: isResult, align: "left", size: 12.5 };
  if (isResult) name.color = colors.ink;
  const top = y - 11 - columnsHeight;
  const head = block.head === null ? "" : `head ${block.number}`;
  const headColor = { ...words, color: colors.ofHead(block.head), bold: true, align: "right" };
  let noteTop = y + height + 12;
  if (each.title === "left") text(ctx, block.title, x - 8, y + cell / 2, { ...name, align: "right" });
  else if (each.title === "below") {
    text(ctx, block.title, x, noteTop, name);
    noteTop += TITLE - 2;
  } else text(ctx, block.title, x - each.over, top, name);
  if (head && each.hasHead && each.title === "above" && cell >= 9) {
    text(ctx, head, x - each.over + wide(block, cell), top, headColor);
  }
  if (cell >= 9) for (const note of notesBelow(block)) {
    const left = Math.max(0, x - 1 - Math.max(0, noteWidth(note) - width));
    text(ctx, note, left, noteTop, { ...words, align: "left", size: 11 });
    noteTop += 14;
  }
}

function outline(ctx, each, row, column, color, thick, dash = []) {
  const x = each.x + columnLeft(each.block, column, each.cell);
  const y = each.y + rowTop(each.block, row, each.cell);
  ctx.strokeStyle = color;
  ctx.lineWidth = thick;
  ctx.setLineDash(dash);
  const inset = thick / 2 - 0.5;
  ctx.strokeRect(x + inset, y + inset, each.cell - 1 - 2 * inset, each.cell - 1 - 2 * inset);
  ctx.setLineDash([]);
}
