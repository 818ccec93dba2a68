// The panel of a number, one for the story and all arrays: where the number is, how it came about, what
// it could be instead, and what the goal would be then.

const labelOf = ({ name }, index) => (index.length ? `${name}[${index.join(", ")}]` : name);

function openPanel({ root, trace, edit, undo }) {
  const find = (selector) => root.querySelector(selector);
  const [slider, field, truth] = ["range", "number", "checkbox"].map((type) => find(`[type="${type}"]`));
  const stop = roving(find(".sum"), "[role=link]");
  let [view, target, waiting] = [null, null, 0];  // who shows it; the number that can be changed: {array, place}
  let mover = null;  // the number that was changed last: {id, place}

  const inFull = ({ isBool, data }, place) => (isBool ? (data[place] ? "True" : "False") : written(data[place]));

  // What leads to another cell: {id, index}, of what a reader is shown in its place.
  function lead(made, given, index) {
    const id = trace.plain(given);
    const array = trace.arrays[id];
    const place = flatten(index, array.shape);
    made.title = `${labelOf(array, index)}: ${view.inWords(array, index)}`;
    made.role = "link";
    if (array.isBool) made.textContent = inFull(array, place);
    for (const event of ["pointerenter", "focus"]) made.addEventListener(event, () => view.light([keyOf(id, place)]));
    for (const event of ["pointerleave", "blur"]) made.addEventListener(event, () => view.light([]));
    const follow = () => { view.light([]); view.go(id, place); };
    made.addEventListener("click", follow);
    made.addEventListener("keydown", ({ key }) => { if (key === "Enter") follow(); });
    return made;
  }
  const point = (made, { array, index }) => { if (view.go) lead(made, array, index); };

  // How a number came about: where it only moved, how it came about before that.
  function origin(array, index) {
    const made = trace.story(array, index);
    if (!made || made.op || made.array === undefined) return made;
    return origin(trace.arrays[made.array], made.index) ?? made;
  }

  function arithmetic(array, index, place) {
    const value = element("b", "", inFull(array, place));
    const made = origin(array, index);
    if (!made?.op) return [array.equation && !array.tree ? "It was recorded: " : "This number was given: ", value];
    const isEdited = made.op === "edited";
    let [from, by] = isEdited ? [made.args[0], made.args[1].value] : [made, 0];
    if (!from.op) from = origin(trace.arrays[from.array], from.index) ?? from;
    const added = array.isBool ? " (set by you)" : ` ${by < 0 ? "−" : "+"} ${written(Math.abs(by))} added by you`;
    const isChoice = CHOICES.includes(from.op) && [undefined, "negative"].includes(from.args[0].op);  // ends with its result
    return [from.op ? writeStory(from, point) : written(from.value), halves(from),
      ...(isEdited ? [added] : []), ...(isChoice && !isEdited ? [] : [" = ", value])];
  }

  // Where a number was before, if it only moved, and what reads its array next: there the very cell, where it only moves.
  function neighbours(array, index, place) {
    const link = (words, id, to) => {
      const made = Object.assign(element("button", "link", words), { type: "button" });
      made.addEventListener("click", () => view.go(id, to));
      return made;
    };
    const before = array.tree && onlyMoves(array.tree) ? storyOf(array.tree, index, (id) => trace.arrays[id]) : null;
    const source = before && trace.plain(before.array);
    const readers = trace.arrays.filter((each) => !trace.repeated(each)
      && each.reads.map(trace.plain).includes(array.id)).slice(0, 6);
    const links = readers.map((reader) =>
      link(reader.name, reader.id, onlyMoves(reader.tree) ? trace.readersOf(reader, array.id, place)[0] : undefined));
    return [
      ...(before ? ["It only moved here from ", link(trace.arrays[source].name, source, flatten(before.index, trace.arrays[source].shape)), ". "] : []),
      ...(links.length ? ["It goes into ", ...links.flatMap((each, i) => [element("span", "whole", each, i < links.length - 1 ? "," : "."), " "])] : []),
    ];
  }

  function showEditor(array) {
    find(".edit").hidden = !target;
    find(".undo").hidden = !target?.array.edits.has(target.place);
    find(".of").hidden = !target || target.array === array;
    if (!target) return;
    const { array: { name, isBool, data, first }, place } = target;
    find(".of").replaceChildren("Here you change ", element("code", "", name), ", whose slope this is.");
    find(".edit").classList.toggle("truth", Boolean(isBool));
    truth.checked = Boolean(data[place]);
    if (document.activeElement !== slider) {
      const reach = Math.max(2, 1.5 * Math.abs(first[place]), Math.abs(data[place]));
      Object.assign(slider, { min: -reach, max: reach, value: data[place] });
    }
    if (document.activeElement !== field) field.value = Number(data[place].toFixed(3));
  }

  // What the goal depends on the number, in words and as a curve, which waits until the hand rests
  // where a layer is large.
  function slopeOf({ id, place }) {
    const { array } = target ?? { array: trace.arrays[id] };
    const gradient = trace.hasLoss && trace.gradientOf(array);
    find(".slope").hidden = !gradient || !target || !view.hasCurve;
    if (!gradient) return [];
    const [slope, at, loss] = [gradient.data[place], array.data[place], trace.loss()];
    const start = performance.now();
    const truth = target ? trace.lossAt(array.id, place, [at + 0.1])[0] - loss : 0;
    if (!find(".slope").hidden) {
      const cost = performance.now() - start;
      const reach = Math.max(1, Math.abs(at));
      const draw = (values) => drawSlope(find(".slope"), { at, loss, gradient: slope, from: at - reach, to: at + reach,
        curve: trace.lossAt(array.id, place, values) });
      const points = Math.round(Math.min(POINTS, Math.max(9, SLOPE_TIME / cost)));
      const all = Array.from({ length: points }, (_, i) => between(at - reach, at + reach, i / (points - 1)));
      draw(cost < 0.25 ? all : []);
      if (cost >= 0.25) waiting = setTimeout(draw, 150, all);
    }
    if (Math.abs(slope) < 1e-9 && Math.abs(truth) < 1e-9) return ["The goal does not depend on this number."];
    const strong = (number) => element("strong", "", signed(number));
    return ["Slope ", strong(slope), view.go ? ` (${gradient.name})` : "", ": raising it by 0.1 should change the goal by about ", strong(0.1 * slope),
      ...(target ? ["; it really changes by ", strong(truth)] : []), "."];
  }

  // How fast the number moves while the one does that was changed last.
  function tangentOf({ id, place }) {
    if (!mover || (mover.id === id && mover.place === place)) return [];
    const tangent = trace.tangentAt(mover, { id, place });
    if (!Number.isFinite(tangent)) return [];
    const { name, shape } = trace.arrays[mover.id];
    const of = element("code", "", labelOf({ name }, unflatten(mover.place, shape)));
    if (Math.abs(tangent) < 1e-9) return [" It stands still while ", of, " moves."];
    return [" Tangent ", element("strong", "", signed(tangent)), ": how fast it moves while ", of, " grows."];
  }

  // `words` say where it is; `isBack` undefined shows both what it was and its slope, then come more `says`.
  function show(by, cell, { words = [], isHidden = false, isBack, says = [] } = {}) {
    view = by;
    clearTimeout(waiting);
    if (root.parentElement !== view.root) view.root.append(root);
    view.root.classList.toggle("rest", !cell);
    target = null;
    if (!cell) return;
    const array = trace.arrays[cell.id];
    const [{ place }, index, of] = [cell, unflatten(cell.place, array.shape), trace.forwardOf(array) ?? array];
    if (!isHidden && Number.isFinite(of.data[place]) && trace.isEditable(of, place)) target = { array: of, place };
    const label = labelOf(array, index);
    find("h2").replaceChildren(...words, " ", element("code", "", label));
    find(".sum").replaceChildren(...(isHidden ? ["Hidden: this word may not be looked at."] : arithmetic(array, index, place)));
    stop();
    showEditor(array);
    const was = inFull({ ...of, data: of.first }, place);
    const isMoved = hasChanged(of, place, of.data[place]) && was !== inFull(of, place);
    find(".effect span").replaceChildren(...(isMoved && !isBack ? [`It was ${was}. `] : []),
      ...(isBack === false ? [] : slopeOf(cell)), ...(isHidden ? [] : tangentOf(cell)), ...says);
    find(".readers").replaceChildren(...(view.go ? neighbours(array, index, place) : []));
    find("details code").textContent = `${label}\n${array.equation ? `${array.name} = ${array.equation}` : "nothing computes it"}`;
  }

  const change = (value) => {
    if (!target || !Number.isFinite(value)) return;
    mover = target.array.isBool ? null : { id: target.array.id, place: target.place };
    edit(target.array.id, target.place, value);
  };
  function turn(by) {
    if (!target) return;
    const value = target.array.data[target.place];
    change(target.array.isBool ? Number(by > 0) : Number((value + by).toFixed(6)));
  }
  const takeBack = () => { if (target) undo(target.array.id, target.place); };
  field.addEventListener("input", () => { if (field.value !== "") change(Number(field.value)); });
  slider.addEventListener("input", () => change(Number(slider.value)));
  truth.addEventListener("change", () => change(Number(truth.checked)));
  for (const button of root.querySelectorAll("[data-by]")) button.addEventListener("click", () => turn(Number(button.dataset.by)));
  find(".undo").addEventListener("click", takeBack);
  find(".close").addEventListener("click", () => view.close());
  find(".to-array").addEventListener("click", () => view.open());

  return {
    show, turn, undo: takeBack,
    words: () => find("h2").textContent,
    startEditing() {
      if (!target) return;
      if (target.array.isBool) return change(1 - target.array.data[target.place]);
      field.focus();
      field.select();
    },
  };
}
