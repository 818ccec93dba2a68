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

// The numbers that stand `strides` apart, in C order of a shape; a stride of 0 repeats.
function gather({ data }, shape, strides) {
  const found = new Float64Array(sizeOf(shape));
  const [width, step] = [shape.at(-1) ?? 1, strides.at(-1) ?? 0];
  const index = shape.map(() => 0);
  let place = 0;
  for (let row = 0; row < found.length; row += width) {
    for (let j = 0; j < width; j++) found[row + j] = data[place + j * step];
    for (let axis = shape.length - 2; axis >= 0; axis--) {
      place += strides[axis];
      if (++index[axis] < shape[axis]) break;
      place -= strides[axis] * shape[axis];
      index[axis] = 0;
    }
  }
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

function stretch(x, shape) {
  if (sizeOf(shape) === x.data.length) return x.data;
  const strides = stridesOf(x.shape);
  const left = shape.length - x.shape.length;
  return gather(x, shape, shape.map((_, axis) =>
    (axis < left || x.shape[axis - left] === 1 ? 0 : strides[axis - left])));
}

function cellwise(compute, ...arrays) {
  const shape = arrays.map((x) => x.shape).reduce(commonShape);
  const [a, b = a, c = a] = arrays.map((x) => (x.data.length === 1 ? x.data : stretch(x, shape)));
  const [i, j, k] = [a, b, c].map((numbers) => (numbers.length === 1 ? 0 : 1));  // one serves all
  const data = new Float64Array(sizeOf(shape));
  for (let n = 0; n < data.length; n++) data[n] = compute(a[n * i], b[n * j], c[n * k]);
  return { shape, data };
}

function transpose(x, order) {
  if (order.every((axis, i) => axis === i)) return x;
  const strides = stridesOf(x.shape);
  const shape = order.map((axis) => x.shape[axis]);
  return { shape, data: gather(x, shape, order.map((axis) => strides[axis])) };
}

function matmul(x, y) {
  const [n, inner, m] = [x.shape.at(-2), x.shape.at(-1), y.shape.at(-1)];
  const leading = commonShape(x.shape.slice(0, -2), y.shape.slice(0, -2));
  const [ofX, ofY] = [x, y].map(({ shape }) => {  // which matrix meets which: some serve many
    const own = shape.slice(0, -2);
    return stretch(filled(own, Array(sizeOf(own)).keys()), leading);
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

const keptShape = (shape, summed, keepdims) =>
  shape.flatMap((n, axis) => (summed.includes(axis) ? (keepdims ? [1] : []) : [n]));

// The numbers that stand along some axes put together, from a first one on.
function reduce(x, axes, keepdims, combine, first) {
  const [kept, reduced] = splitAxes(x.shape.length, axes);
  const { data: moved } = transpose(x, [...kept, ...reduced]);
  const shape = keptShape(x.shape, reduced, keepdims);
  const data = new Float64Array(sizeOf(shape)).fill(first);
  const length = moved.length / data.length;
  for (let i = 0; i < data.length; i++) {
    for (let j = i * length; j < (i + 1) * length; j++) data[i] = combine(data[i], moved[j]);
  }
  return { shape, data };
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

function repeat(x, times, axis) {
  const strides = stridesOf(x.shape);
  const apart = (list, number) => [...list.slice(0, axis + 1), number, ...list.slice(axis + 1)];
  const shape = x.shape.map((n, i) => (i === axis ? n * times : n));
  return { shape, data: gather(x, apart(x.shape, times), apart(strides, 0)) };
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

// x[..., places]: numbers of the last axis, in another order.
function take(x, places) {
  const width = x.shape.at(-1);
  const data = new Float64Array((x.data.length / width) * places.data.length);
  for (let i = 0; i < data.length; i++) {
    const [row, j] = [Math.floor(i / places.data.length), i % places.data.length];
    data[i] = x.data[row * width + places.data[j]];
  }
  return { shape: [...x.shape.slice(0, -1), places.data.length], data };
}
