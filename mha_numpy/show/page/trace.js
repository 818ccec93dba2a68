// A trace that can be changed: its arrays, computed again after every edit, and the loss that its
// gradients are of. Nothing here knows of the page.
//
// An array is {id, name, axes, shape, pass, equation, tree, reads, data, edits}. One with a tree is
// computed here, from what it reads; one without is an input or a param, or is shown as recorded.

// Numbers from text; a float48 is a float64 without its last two bytes.
function numbersOf({ type, base64 }) {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  if (type === "uint8") return Float64Array.from(bytes);
  if (type === "float32") return Float64Array.from(new Float32Array(bytes.buffer));
  const wide = new Uint8Array(bytes.length / 6 * 8);
  bytes.forEach((byte, i) => { wide[Math.floor(i / 6) * 8 + 2 + i % 6] = byte; });
  return new Float64Array(wide.buffer);
}

const arraysIn = (tree) => (tree[0] === "array" ? [tree[1]] : tree.filter(isTree).flatMap(arraysIn));

// What can be reached from `start` by going on and on; with itself.
function reach(start, next) {
  const found = new Set([start]);
  for (const each of found) for (const other of next(each)) found.add(other);
  return found;
}

// The cells of recorded arrays that a story names.
function leavesOf(told) {
  if (told?.array !== undefined) return [told];
  return (told?.args ?? []).flatMap(leavesOf);
}

function openTrace(given) {
  const arrays = given.arrays.map((array, id) => ({
    ...array, id, edits: new Map(), numbers: array.numbers ? numbersOf(array.numbers) : null,
  }));
  const recorded = arrays.map((array) => ({ ...array, data: array.numbers }));
  const byName = new Map(arrays.map(({ name, id }) => [name, id]));  // the last of each name
  const arrayOf = (id) => arrays[id];
  const isLive = arrays.every(({ equation, tree }) => tree || !equation);

  // L = the sum of d_out * out, for the gradient that backward starts with.
  const upstream = arrays.find(({ pass, equation }) => pass === "backward" && !equation);
  const output = upstream && arrays[byName.get(upstream.name.slice(2))];
  const loss = () => (output ? upstream.data.reduce((sum, d, i) => sum + d * output.data[i], 0) : NaN);

  let readers, forLoss;  // for each array those that read it; all that the loss is computed from
  function connect() {
    readers = arrays.map(() => []);
    for (const array of arrays) {
      array.reads = array.tree ? [...new Set(arraysIn(array.tree))] : [];
      for (const source of array.reads) readers[source].push(array.id);
    }
    const before = ({ reads }) => reads.map(arrayOf);
    forLoss = output ? new Set([upstream, ...reach(output, before)]) : new Set(arrays);
  }
  // The forward array that another one repeats, number by number: x_k is x_q, a mask hides nothing.
  const PASSING = ["where", "*", "+", "-"];
  let known = new Map();  // until something changes
  function repeated({ id, tree, shape, data }) {
    if (!known.has(id)) {
      const parts = tree?.[0] === "array" ? [tree] : PASSING.includes(tree?.[0]) ? tree.slice(1) : [];
      known.set(id, parts.filter(([op]) => op === "array").map(([, source]) => arrays[source]).find((source) =>
        String(source.shape) === String(shape) && data.every((value, i) => value === source.data[i])));
    }
    return known.get(id);
  }
  // What a reader is shown in an array's place: the first that has its numbers.
  function plain(id) {
    const before = arrays[id].pass === "backward" ? null : repeated(arrays[id]);
    return before ? plain(before.id) : id;
  }
  const equationOf = ({ equation }) => equation?.replace(/\w+/g, (word) =>
    (byName.has(word) ? arrays[plain(byName.get(word))].name : word));
  const reachedBy = (id) => reach(id, (each) => readers[each]);

  // An edit sets a number that nothing computes; to a computed one it adds, so that what is before
  // still matters. A truth is set in either case.
  const adds = ({ tree, isBool }) => tree && !isBool;
  const unedited = ({ tree, numbers }) => (tree ? evaluate(tree, arrayOf).data : numbers);

  function computeOne(array) {
    const before = unedited(array);
    array.data = array.edits.size ? before.slice() : before;
    for (const [place, change] of array.edits) {
      array.data[place] = adds(array) ? before[place] + change : change;
    }
  }

  // Compute what an edit of one array reaches, in order; everything, if none is given.
  function compute(id) {
    known = new Map();
    const reached = id === undefined ? null : reachedBy(id);
    for (const array of arrays) if (!reached || reached.has(array.id)) computeOne(array);
  }

  // Note that some places of an array are to have these values: [[place, value], ...].
  function note(array, changes) {
    const before = adds(array) ? unedited(array) : null;
    for (const [place, value] of changes) array.edits.set(place, before ? value - before[place] : value);
  }

  function setMany(id, changes) {
    note(arrays[id], changes);
    compute(id);
  }

  function reset(id, place) {
    for (const { edits } of id === undefined ? arrays : [arrays[id]]) {
      if (place === undefined) edits.clear();
      else edits.delete(place);
    }
    compute(id);
  }

  // What something were if one number were another; everything is as it was afterwards.
  function ifItWere(id, place, values, isOfInterest, read) {
    const array = arrays[id];
    const edits = new Map(array.edits);
    const after = reachedBy(id);
    const reached = arrays.filter((each) => after.has(each.id) && isOfInterest(each));
    const before = reached.map(({ data }) => data);
    const found = values.map((value) => {
      note(array, [[place, value]]);
      reached.forEach(computeOne);
      return read();
    });
    array.edits = edits;
    reached.forEach((each, i) => { each.data = before[i]; });
    return found;
  }
  const lossAt = (id, place, values) => ifItWere(id, place, values, (each) => forLoss.has(each), loss);

  // How fast a number moves while another one does: its tangent. NaN where no change gets there.
  function tangentAt(mover, { id, place }) {
    const at = arrays[mover.id].data[mover.place];
    if (!reachedBy(mover.id).has(id) || arrays[id].isBool || !Number.isFinite(at)) return NaN;
    const reach = 1e-5 * Math.max(1, Math.abs(at));
    const [ahead, behind] = ifItWere(mover.id, mover.place, [at + reach, at - reach], () => true, () => arrays[id].data[place]);
    return (ahead - behind) / (2 * reach);
  }

  // A switch gives arrays other equations. What nothing computes gets other numbers by it, once,
  // from those on record. Edits of these arrays go.
  function setSwitch(name) {
    const changes = name === null ? [] : given.switches.find(({ id }) => id === name).changes;
    recorded.forEach(({ tree, equation, numbers }, id) => {
      Object.assign(arrays[id], { tree, equation, numbers });
    });
    for (const { array: id, equation, tree } of changes) {
      const array = arrays[id];
      array.edits.clear();
      if (array.tree) Object.assign(array, { tree, equation });
      else array.numbers = evaluate(tree, (each) => recorded[each]).data;
    }
    connect();
    compute();
  }

  function storyAt(array, index) {
    if (!array.tree) return null;
    const told = storyOf(array.tree, index, arrayOf);
    const place = flatten(index, array.shape);
    if (!array.edits.has(place)) return told;
    return story("edited", array.data[place], told, number(array.edits.get(place)));
  }

  const gradientOf = ({ name }) => arrays[byName.get(given.gradients[name])];
  const forwardOf = (gradient) => arrays.find((each) => each.pass !== "backward" && gradientOf(each) === gradient);

  // The places of an array that are computed from a cell of another one; none of a large array.
  function readersOf(array, id, place) {
    if (array.data.length > 1000 || !array.reads.some((each) => plain(each) === id)) return [];
    const isIt = (leaf) => plain(leaf.array) === id && flatten(leaf.index, arrays[id].shape) === place;
    return [...array.data.keys()].filter((to) => leavesOf(storyAt(array, unflatten(to, array.shape))).some(isIt));
  }

  // Where the arithmetic puts a constant in the place of a hidden cell, no edit has an effect that
  // the gradient would tell. Integers are places and counts, gradients follow from the rest.
  function isEditable(array, place) {
    if (!isLive || !array || array.pass === "backward" || array.isInteger || !forLoss.has(array)) {
      return false;
    }
    if (place === undefined) return true;
    return [array, gradientOf(array)].every((each) =>
      !each?.tree || storyOf(each.tree, unflatten(place, each.shape), arrayOf).op !== "hidden");
  }

  connect();
  compute();
  for (const array of arrays) array.first = array.data.slice();  // what it was at the start

  return {
    arrays, byName, compute, setMany, reset, loss, lossAt, tangentAt, setSwitch, isEditable, isLive, gradientOf, forwardOf, readersOf,
    set: (id, place, value) => setMany(id, [[place, value]]),
    hasLoss: Boolean(output),
    isEdited: () => arrays.some(({ edits }) => edits.size),
    reachedBy, repeated, plain, equationOf,
    story: storyAt,
  };
}
