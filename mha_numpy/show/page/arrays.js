// A small NumPy: what the equations of a trace compute with. An array is a shape and its numbers
// in C order; True and False are 1 and 0. Nothing here knows of attention or of the page.

const sizeOf = (shape) => shape.reduce((product, n) => product * n, 1);

function stridesOf(shape) {
  const strides = shape.map(() => 1);
  for (let axis = shape.length - 2; axis >= 0; axis--) {
    strides[axis] = strides[axis + 1] * shape[axis + 1];
  }
  return strides;
}

const flatten = (index, shape) => index.reduce((place, i, axis) => place * shape[axis] + i, 0);

function unflatten(place, shape) {
  const index = shape.map(() => 0);
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    index[axis] = place % shape[axis];
    place = Math.floor(place / shape[axis]);
  }
  return index;
}

const filled = (shape, numbers) => ({ shape, data: Float64Array.from(numbers) });

// The places of an array's numbers in another one, where `from` says for each index where it was.
const placesIn = (given, shape, from) =>
  Int32Array.from({ length: sizeOf(shape) }, (_, place) => flatten(from(unflatten(place, shape)), given));

function pick(data, places) {
  const found = new Float64Array(places.length);
  for (let n = 0; n < places.length; n++) found[n] = data[places[n]];
  return found;
}

// Where a cell of a stretched array stands in the array: axes of size 1 repeat, the right ends meet.
const unstretched = (index, shape) =>
  shape.map((n, axis) => (n === 1 ? 0 : index[axis + index.length - shape.length]));

function commonShape(a, b) {
  const rank = Math.max(a.length, b.length);
  return Array.from({ length: rank }, (_, axis) => {
    const [n, m] = [a, b].map((shape) => shape[axis - rank + shape.length] ?? 1);
    return n === 1 ? m : n;
  });
}

// Numbers computed from those at the same place; `stretched` gives an array that is smaller the size of the others.
function cellwise(compute, arrays, stretched) {
  const shape = arrays.map((x) => x.shape).reduce(commonShape);
  const data = new Float64Array(sizeOf(shape));
  const [a, b = a, c = a] = arrays.map((x, n) =>
    (x.data.length === 1 || x.data.length === data.length ? x.data : stretched(x, shape, n)));
  const [i, j, k] = [a, b, c].map((numbers) => (numbers.length === 1 ? 0 : 1));  // one serves all
  for (let n = 0; n < data.length; n++) data[n] = compute(a[n * i], b[n * j], c[n * k]);
  return { shape, data };
}

function matmul(x, y) {
  const [n, inner, m] = [x.shape.at(-2), x.shape.at(-1), y.shape.at(-1)];
  const leading = commonShape(x.shape.slice(0, -2), y.shape.slice(0, -2));
  const [ofX, ofY] = [x, y].map(({ shape }) => {  // which matrix meets which: some serve many
    const own = shape.slice(0, -2);
    return placesIn(own, leading, (index) => unstretched(index, own));
  });
  const [a, b, data] = [x.data, y.data, new Float64Array(sizeOf(leading) * n * m)];
  for (let matrix = 0; matrix < ofX.length; matrix++) {
    for (let i = 0; i < n; i++) {
      const [row, left] = [(matrix * n + i) * m, (ofX[matrix] * n + i) * inner];
      for (let k = 0; k < inner; k++) {
        const [number, right] = [a[left + k], (ofY[matrix] * inner + k) * m];
        for (let j = 0; j < m; j++) data[row + j] += number * b[right + j];
      }
    }
  }
  return { shape: [...leading, n, m], data };
}

// The axes that remain, then those that a sum runs over; null stands for all.
function splitAxes(rank, axes) {
  const all = [...Array(rank).keys()];
  const summed = axes === null ? all : axes.map((axis) => (axis + rank) % rank);
  return [all.filter((axis) => !summed.includes(axis)), summed];
}

function summedShape(shape, axes, keepdims) {
  const [, summed] = splitAxes(shape.length, axes);
  return shape.flatMap((n, axis) => (summed.includes(axis) ? (keepdims ? [1] : []) : [n]));
}

// The cells that a sum over some axes puts together, for one of its own.
function alongAxes(index, shape, axes, keepdims) {
  const [kept, summed] = splitAxes(shape.length, axes);
  const lengths = summed.map((axis) => shape[axis]);
  return Array.from({ length: sizeOf(lengths) }, (_, place) => {
    const source = [];
    kept.forEach((axis, i) => { source[axis] = index[keepdims ? axis : i]; });
    unflatten(place, lengths).forEach((i, k) => { source[summed[k]] = i; });
    return source;
  });
}

// Rows of shares that sum to 1; the largest is taken away first, so that no power overflows.
// A row of nothing but -Infinity is a row of zeros.
function softmax(x) {
  const width = x.shape.at(-1);
  const data = new Float64Array(x.data.length);
  for (let start = 0; start < data.length; start += width) {
    const row = x.data.subarray(start, start + width);
    const largest = Math.max(...row);
    if (largest === -Infinity) continue;
    let total = 0;
    for (let j = 0; j < width; j++) total += data[start + j] = Math.exp(row[j] - largest);
    for (let j = 0; j < width; j++) data[start + j] /= total;
  }
  return { shape: x.shape, data };
}

// x[..., None], x[:, None]: `spec` holds null for a new axis, ":" for an axis, "..." for the rest.
function withNewAxes(shape, spec) {
  const named = spec.filter((part) => part === ":").length;
  const rest = shape.length - named;
  let axis = 0;
  const found = spec.flatMap((part) => {
    if (part === null) return [1];
    const many = part === "..." ? rest : 1;
    axis += many;
    return shape.slice(axis - many, axis);
  });
  return [...found, ...shape.slice(axis)];
}
