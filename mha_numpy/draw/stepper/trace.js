// A trace that can be changed: its arrays, computed anew after every edit, and the loss that its
// gradients are of. Nothing here knows of the page.
//
// An array is {id, name, axes, shape, pass, equation, tree, data}. One with a tree is computed here;
// one without is an input or a param, or is shown as it was recorded.

const TYPES = { uint8: Uint8Array, float32: Float32Array, float64: Float64Array };

const numbersOf = ({ type, base64 }) => Float64Array.from(new TYPES[type](
  Uint8Array.from(atob(base64), (character) => character.charCodeAt(0)).buffer));

function openTrace(given) {
  const arrays = given.arrays.map((array, id) => ({
    ...array, id, edits: new Map(),
    data: array.numbers === undefined ? null : numbersOf(array.numbers),
  }));
  for (const array of arrays) array.asGiven = array.data;
  const byName = new Map(arrays.map((array) => [array.name, array.id]));  // the last of each name

  const arrayOf = (id) => arrays[id];
  const namesIn = (tree) => (tree[0] === "array" ? [tree[1]] : tree.filter(isTree).flatMap(namesIn));
  for (const array of arrays) array.reads = array.tree ? [...new Set(namesIn(array.tree))] : [];

  // All arrays that an array is computed from, or that are computed from it; with itself.
  const reach = (id, next) => {
    const found = new Set([id]);
    for (const each of found) for (const other of next(each)) found.add(other);
    return found;
  };
  const readers = arrays.map(() => []);
  for (const { id, reads } of arrays) for (const source of reads) readers[source].push(id);
  const before = (id) => reach(id, (each) => arrays[each].reads);
  const after = (id) => reach(id, (each) => readers[each]);

  // An edit sets a number that nothing computes; to a computed one it adds, so that what is before
  // still matters. A truth is set in either case.
  function computeOne(array) {
    const computed = array.tree ? evaluate(array.tree, arrayOf).data : array.asGiven;
    array.data = array.edits.size ? computed.slice() : computed;
    for (const [place, change] of array.edits) {
      array.data[place] = array.tree && !array.isBool ? computed[place] + change : change;
    }
  }

  // Compute anew what an edit of one array reaches; everything, if none is given.
  function compute(id, within = null) {
    const reached = id === undefined ? null : after(id);
    for (const array of arrays) {
      if (reached && !reached.has(array.id)) continue;
      if (within && !within.has(array.id)) continue;
      computeOne(array);
    }
  }

  compute();

  // L = the sum of d_out * out, for the gradient that backward starts with.
  const upstream = arrays.find(({ name, tree }) => name.startsWith("d_") && !tree);
  const output = upstream && arrays[byName.get(upstream.name.slice(2))];
  const forLoss = output && before(output.id);
  const loss = () => upstream.data.reduce((sum, d, i) => sum + d * output.data[i], 0);

  const isEditable = (array) =>
    array !== undefined && array.pass !== "backward" && (!output || forLoss.has(array.id));

  function set(id, place, value) {
    const array = arrays[id];
    array.edits.delete(place);
    if (array.tree && !array.isBool) {
      computeOne(array);
      value -= array.data[place];
    }
    array.edits.set(place, value);
    compute(id);
  }

  function reset(id, place) {
    const changed = id === undefined ? arrays : [arrays[id]];
    for (const { edits } of changed) place === undefined ? edits.clear() : edits.delete(place);
    compute(id);
  }

  // The loss if a number were another one; everything is as before afterwards.
  function lossAt(id, place, values) {
    const array = arrays[id];
    const edits = new Map(array.edits);
    const found = values.map((value) => {
      array.edits.delete(place);
      if (array.tree && !array.isBool) {
        computeOne(array);
        value -= array.data[place];
      }
      array.edits.set(place, value);
      compute(id, forLoss);
      return loss();
    });
    array.edits = edits;
    compute(id, forLoss);
    return found;
  }

  return {
    arrays, byName, compute, set, reset, loss, lossAt, isEditable,
    hasLoss: Boolean(output),
    isLive: arrays.every(({ equation, tree }) => tree || !equation),
    setSwitch: () => {},
    isEdited: () => arrays.some(({ edits }) => edits.size),
    gradientOf: ({ name }) => arrays[byName.get(given.gradients[name])],
    reachedBy: after,
    story: (array, index) => (array.tree ? storyOf(array.tree, index, arrayOf) : null),
  };
}
