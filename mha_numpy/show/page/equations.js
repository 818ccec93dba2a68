// The equations of a trace: each is a tree, ["@", ["array", 3], ["array", 5]]. For each operation
// one entry says how it computes whole arrays, and how one cell of its result came about.
//
// A cell's story is a tree as well: {op, args, value}, whose leaves {array, index, value} are cells
// of recorded arrays and {value} plain numbers. It is what the page lights and writes.

const number = (value) => ({ value: Number(value) });
const story = (op, value, ...args) => ({ op, args, value });
const total = (terms) => story("sum", terms.reduce((sum, term) => sum + term.value, 0), ...terms);
const times = (a, b) => story("*", a.value * b.value, a, b);

// What an operation works out once for each tree, because shapes stay the same.
const once = (tree, n, make) => ((tree.known ??= [])[n] ??= make());

// An operation on cells that stand at the same place.
const atPlace = (tree, compute, arrays) => cellwise(compute, arrays, ({ shape: own, data }, shape, n) =>
  pick(data, once(tree, n, () => placesIn(own, shape, (index) => unstretched(index, own)))));
const onCells = (op, compute) => ({
  run: (tree, ...arrays) => atPlace(tree, compute, arrays),
  cell: (index, at, ...parts) => {
    const args = parts.map((part) => at(part, unstretched(index, part.shape)));
    return story(op, compute(...args.map((arg) => arg.value)), ...args);
  },
});

// An operation that puts the numbers along some axes together.
const along = (op, first, combine) => ({
  run: (tree, { shape: given, data }, axes, keepdims) => {
    const shape = summedShape(given, axes, keepdims);
    const found = new Float64Array(sizeOf(shape)).fill(first);
    const places = once(tree, 0, () => Int32Array.from([...found.keys()].flatMap((to) =>
      alongAxes(unflatten(to, shape), given, axes, keepdims).map((index) => flatten(index, given)))));
    const length = places.length / found.length;
    for (let n = 0; n < places.length; n++) {
      const to = Math.floor(n / length);
      found[to] = combine(found[to], data[places[n]]);
    }
    return { shape, data: found };
  },
  cell: (index, at, part, axes, keepdims) => {
    const terms = alongAxes(index, part.shape, axes, keepdims).map((source) => at(part, source));
    return story(op, terms.map(({ value }) => value).reduce(combine, first), ...terms);
  },
});

// An operation that moves numbers: the shape that it makes, and `from` where a cell stood before.
const moving = (shapeOf, from) => ({
  run: (tree, { shape: given, data }, ...options) => {
    const shape = shapeOf(given, ...options);
    return { shape, data: pick(data, once(tree, 0, () => placesIn(given, shape, (index) => from(index, given, ...options)))) };
  },
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
const keeping = (shapeOf) => ({  // numbers stay in order
  run: (tree, { shape, data }, ...options) => ({ shape: shapeOf(shape, ...options), data }),
  cell: (index, at, part, ...options) => at(part, unflatten(flatten(index, shapeOf(part.shape, ...options)), part.shape)),
});

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
    run: (tree, ...arrays) => atPlace(tree, (isTrue, a, b) => (isTrue ? a : b), arrays),
    cell: (index, at, condition, ...choices) => {
      const is = at(condition, unstretched(index, condition.shape));
      const chosen = choices[is.value ? 0 : 1];
      const found = at(chosen, unstretched(index, chosen.shape));
      return story(is.value ? "where" : "hidden", found.value, found, is);
    },
  },

  "@": {
    run: (tree, a, b) => matmul(a, b),
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
  mean: {
    run: (tree, x, ...options) => {
      const { shape, data } = OPERATIONS.sum.run(tree, x, ...options);
      return { shape, data: data.map((sum) => sum * data.length / x.data.length) };
    },
    cell: (index, at, ...options) => {
      const sum = OPERATIONS.sum.cell(index, at, ...options);
      return story("/", sum.value / sum.args.length, sum, number(sum.args.length));
    },
  },
  max: along("max", -Infinity, (a, b) => Math.max(a, b)),

  softmax: {
    run: (tree, x) => softmax(x),
    cell: (index, at, part) => {
      const scores = Array.from({ length: part.shape.at(-1) }, (_, j) =>
        at(part, [...index.slice(0, -1), j]));
      const powers = scores.map((score) => story("exp", Math.exp(score.value), score));
      const row = softmax(filled([scores.length], scores.map(({ value }) => value)));
      return story("/", row.data[index.at(-1)], powers[index.at(-1)], total(powers));
    },
  },

  reshape: keeping((given, shape) => shape),
  transpose: moving((given, order) => order.map((axis) => given[axis]), (index, given, order) => inOrder(index, order)),
  swapaxes: moving((given, a, b) => newOrder(given.length, a, b).map((axis) => given[axis]),
    (index, given, a, b) => inOrder(index, newOrder(given.length, a, b))),
  repeat: moving((given, count, axis) => given.map((n, i, { length }) => (i === (axis + length) % length ? n * count : n)),
    (index, given, count, axis) => index.map((i, k, { length }) => (k === (axis + length) % length ? Math.floor(i / count) : i))),
  newaxes: keeping(withNewAxes),
  take: {  // x[..., places]: numbers of the last axis, in another order
    run: (tree, { shape: given, data }, places) => {
      const shape = [...given.slice(0, -1), places.data.length];
      return { shape, data: pick(data, once(tree, 0, () => placesIn(given, shape, (index) => index.with(-1, places.data[index.at(-1)])))) };
    },
    cell: (index, at, part, places) => at(part, index.with(-1, at(places, [index.at(-1)]).value)),
  },
  given: { run: (tree, shape, packed) => ({ shape, data: numbersOf(packed) }) },
  arange: {
    run: (tree, length) => filled([length], Array(length).keys()),
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
      : OPERATIONS[op].run(tree, ...args.map((arg) => (isTree(arg) ? evaluate(arg, arrayOf) : arg)));
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
