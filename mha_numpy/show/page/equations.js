// The equations of a trace: each is a tree, ["@", ["array", 3], ["array", 5]]. For each operation
// one entry says how it computes whole arrays, and how one cell of its result came about.
//
// A cell's story is a tree as well: {op, args, value}, whose leaves {array, index, value} are cells
// of recorded arrays and {value} plain numbers. It is what the page lights and writes.

const number = (value) => ({ value: Number(value) });
const story = (op, value, ...args) => ({ op, args, value });
const total = (terms) => story("sum", terms.reduce((sum, term) => sum + term.value, 0), ...terms);
const times = (a, b) => story("*", a.value * b.value, a, b);

// An operation on cells that stand at the same place.
const onCells = (op, compute) => ({
  run: (...arrays) => cellwise(compute, ...arrays),
  cell: (index, at, ...parts) => {
    const args = parts.map((part) => at(part, unstretched(index, part.shape)));
    return story(op, compute(...args.map((arg) => arg.value)), ...args);
  },
});

// An operation that puts the numbers along some axes together.
const along = (op, first, combine) => ({
  run: (x, axes, keepdims) => reduce(x, axes, keepdims, combine, first),
  cell: (index, at, part, axes, keepdims) => {
    const [kept, reduced] = splitAxes(part.shape.length, axes);
    const lengths = reduced.map((axis) => part.shape[axis]);
    const terms = Array.from({ length: sizeOf(lengths) }, (_, place) => {
      const source = [];
      kept.forEach((axis, i) => { source[axis] = index[keepdims ? axis : i]; });
      unflatten(place, lengths).forEach((i, k) => { source[reduced[k]] = i; });
      return at(part, source);
    });
    return story(op, terms.map(({ value }) => value).reduce(combine, first), ...terms);
  },
});

// An operation that moves numbers: `run` gives the new array, `from` where a cell stood before.
const moving = (run, from) => ({
  run,
  cell: (index, at, part, ...options) => at(part, from(index, part.shape, ...options)),
});

const newOrder = (rank, a, b) => {
  const order = [...Array(rank).keys()];
  [order[(a + rank) % rank], order[(b + rank) % rank]] =
    [order[(b + rank) % rank], order[(a + rank) % rank]];
  return order;
};
const inOrder = (index, order) => {
  const found = [];
  order.forEach((axis, i) => { found[axis] = index[i]; });
  return found;
};
const reshaped = (index, shape, given) => unflatten(flatten(index, given), shape);

const OPERATIONS = {
  "+": onCells("+", (a, b) => a + b),
  "-": onCells("-", (a, b) => a - b),
  "*": onCells("*", (a, b) => a * b),
  "/": onCells("/", (a, b) => a / b),
  "**": onCells("**", (a, b) => a ** b),
  "<=": onCells("<=", (a, b) => Number(a <= b)),
  ">=": onCells(">=", (a, b) => Number(a >= b)),
  "==": onCells("==", (a, b) => Number(a === b)),
  "&": onCells("&", (a, b) => a * b),
  "~": onCells("~", (a) => 1 - a),
  negative: onCells("negative", (a) => -a),
  isneginf: onCells("isneginf", (a) => Number(a === -Infinity)),
  exp: onCells("exp", Math.exp),
  tanh: onCells("tanh", Math.tanh),
  sqrt: onCells("sqrt", Math.sqrt),
  log: onCells("log", Math.log),

  where: {
    run: (...arrays) => cellwise((isTrue, a, b) => (isTrue ? a : b), ...arrays),
    cell: (index, at, condition, ...choices) => {
      const is = at(condition, unstretched(index, condition.shape));
      const chosen = choices[is.value ? 0 : 1];
      const found = at(chosen, unstretched(index, chosen.shape));
      return story(is.value ? "where" : "hidden", found.value, found, is);
    },
  },

  "@": {
    run: matmul,
    cell: (index, at, a, b) => {
      const [i, j] = index.slice(-2);
      const before = index.slice(0, -2);
      const [left, right] = [a, b].map(({ shape }) => unstretched(before, shape.slice(0, -2)));
      const length = a.shape.at(-1);
      return total(Array.from({ length }, (_, k) =>
        times(at(a, [...left, i, k]), at(b, [...right, k, j]))));
    },
  },

  sum: along("sum", 0, (a, b) => a + b),
  max: along("max", -Infinity, (a, b) => Math.max(a, b)),

  softmax: {
    run: softmax,
    cell: (index, at, part) => {
      const scores = Array.from({ length: part.shape.at(-1) }, (_, j) =>
        at(part, [...index.slice(0, -1), j]));
      const powers = scores.map((score) => story("exp", Math.exp(score.value), score));
      const row = softmax(filled([scores.length], scores.map(({ value }) => value)));
      return story("/", row.data[index.at(-1)], powers[index.at(-1)], total(powers));
    },
  },

  reshape: moving((x, shape) => ({ shape, data: x.data }),
    (index, shape, given) => reshaped(index, shape, given)),
  transpose: moving(transpose, (index, shape, order) => inOrder(index, order)),
  swapaxes: moving((x, a, b) => transpose(x, newOrder(x.shape.length, a, b)),
    (index, shape, a, b) => inOrder(index, newOrder(shape.length, a, b))),
  repeat: moving(repeat, (index, shape, count, axis) =>
    index.map((i, k) => (k === axis ? Math.floor(i / count) : i))),
  newaxes: moving((x, spec) => ({ shape: withNewAxes(x.shape, spec), data: x.data }),
    (index, shape, spec) => reshaped(index, shape, withNewAxes(shape, spec))),
  take: {
    run: take,
    cell: (index, at, part, places) =>
      at(part, [...index.slice(0, -1), at(places, [index.at(-1)]).value]),
  },
  arange: {
    run: (length) => filled([length], Array(length).keys()),
    cell: (index) => number(index[0]),
  },
};

const isTree = (part) =>
  Array.isArray(part) && (part[0] === "array" || part[0] === "number" || part[0] in OPERATIONS);

// Compute a tree; `arrayOf` gives the recorded arrays. Each tree keeps its shape, for its cells.
function evaluate(tree, arrayOf) {
  const [op, ...args] = tree;
  const found = op === "array" ? arrayOf(args[0])
    : op === "number" ? filled([], args.map(Number))
      : OPERATIONS[op].run(...args.map((arg) => (isTree(arg) ? evaluate(arg, arrayOf) : arg)));
  tree.shape = found.shape;
  return found;
}

// How the cell of a tree came about, once the tree has been computed.
function storyOf(tree, index, arrayOf) {
  const [op, ...args] = tree;
  if (op === "number") return number(args[0]);
  if (op === "array") {
    const { shape, data } = arrayOf(args[0]);
    return { array: args[0], index, value: data[flatten(index, shape)] };
  }
  return OPERATIONS[op].cell(index, (part, at) => storyOf(part, at, arrayOf), ...args);
}
