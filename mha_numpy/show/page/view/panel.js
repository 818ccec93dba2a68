// The panel: where a number is, how it came about, what it could be instead, and what L would be.

function openPanel({ root, trace, names, edit, undo, light, go, hold }) {
  const part = (name) => root.querySelector(`[data-part=${name}]`);
  const [field, slider, switchBox] = ["field", "slider", "truth"].map(part);
  const labelOf = ({ name }, index) => (index.length ? `${name}[${index.join(",")}]` : name);
  const stop = roving(part("arithmetic"), ".number[title]");
  let target = null;  // the number that can be changed: {array, place}
  let waiting = 0;

  // The forward array at the place of a gradient; an array itself otherwise.
  const forward = (array) => trace.arrays.find((each) =>
    each.pass !== "backward" && trace.gradientOf(each) === array) ?? array;

  const inFull = ({ isBool, isInteger, data }, place) =>
    (isBool ? (data[place] ? "True" : "False") : (isInteger ? written : inDecimals)(data[place]));

  const point = (made, { array: given, index }) => {
    const array = trace.plain(given);
    const cell = { array, place: flatten(index, trace.arrays[array].shape) };
    made.title = labelOf(trace.arrays[array], index);
    made.role = "link";
    if (trace.arrays[array].isBool) made.textContent = inFull(trace.arrays[array], cell.place);
    for (const event of ["pointerenter", "focus"]) made.addEventListener(event, () => light([cell]));
    for (const event of ["pointerleave", "blur"]) made.addEventListener(event, () => light([]));
    const follow = () => { light([]); go(array, cell.place); };
    made.addEventListener("click", follow);
    made.addEventListener("keydown", ({ key }) => { if (key === "Enter") follow(); });
  };

  function tellArithmetic(array, index, place) {
    const told = trace.story(array, index);
    const result = element("strong", "", ` = ${inFull(array, place)}`);
    if (!told) {
      const given = array.pass === "param" ? "A param is learned or set; nothing computes it."
        : "An input comes from outside; nothing computes it.";
      return [element("p", "sum", element("code", "", labelOf(array, index)), result),
        element("p", "hint", array.equation ? "Recorded, because the page cannot compute it." : given)];
    }
    const isEdited = told.op === "edited";
    const [from, change] = isEdited ? [told.args[0], told.args[1].value] : [told, 0];
    const added = ` ${change < 0 ? "−" : "+"} ${inDecimals(Math.abs(change))} by your edit`;
    const edited = isEdited ? element("strong", "", array.isBool ? " (your edit)" : added) : "";
    if (from.array !== undefined) {
      const source = element("span", "number");
      point(source, from);
      source.textContent = source.title;
      return [element("p", "sum", source, edited, result),
        element("p", "hint", "The same number in a different place.")];
    }
    const sum = [writeStory(from, point), halves(from), edited];
    const isChoice = CHOICES.includes(from.op) && [undefined, "negative"].includes(from.args[0].op);
    return [element("p", "sum", ...sum, isChoice && !isEdited ? "" : result)];  // ends with its result
  }

  // What reads this array next; where a number only moves, the very cell.
  function tellReaders(array, place) {
    const readers = trace.arrays.filter((each) => !trace.repeated(each)
      && each.reads.map(trace.plain).includes(array.id)).slice(0, 6);
    if (!readers.length) return [];
    const links = readers.map((reader) => {
      const to = onlyMoves(reader.tree) ? [...reader.data.keys()].find((at) => {
        const from = trace.story(reader, unflatten(at, reader.shape));
        return trace.plain(from.array) === array.id && flatten(from.index, array.shape) === place;
      }) : undefined;
      const name = to === undefined ? reader.name : labelOf(reader, unflatten(to, reader.shape));
      const link = element("button", "link", name);
      link.type = "button";
      link.addEventListener("click", () => go(reader.id, to));
      return link;
    });
    return ["It goes into ", ...links.flatMap((link, i) => (i ? [", ", link] : [link])), "."];
  }

  function showEditor(array, place) {
    const forwards = forward(array);
    const isNumber = Number.isFinite(forwards.data[place]);
    target = isNumber && trace.isEditable(forwards, place) ? { array: forwards, place } : null;
    part("editor").hidden = !target;
    if (!target) return;
    const value = forwards.data[place];
    part("target").textContent = labelOf(forwards, unflatten(place, forwards.shape));
    part("target").parentElement.classList.toggle("spoken", forwards === array);  // it is the heading
    const isTruth = forwards.isBool;
    switchBox.parentElement.hidden = !isTruth;
    field.hidden = slider.hidden = isTruth;
    switchBox.checked = Boolean(value);
    if (document.activeElement !== field) field.value = Number(value.toFixed(4));
    if (document.activeElement !== slider) {
      const reach = Math.max(2, 2 * Math.abs(value));
      Object.assign(slider, { min: value - reach, max: value + reach, value });
    }
    part("undo").disabled = !forwards.edits.has(place);
  }

  function showSlope(array, place) {
    clearTimeout(waiting);
    const gradient = target && trace.hasLoss && trace.gradientOf(target.array);
    part("slope").hidden = !gradient;
    if (!gradient) return;
    const { array: { id, data, shape, name } } = target;
    const at = data[place];
    const reach = Math.max(1, Math.abs(at));
    const [index, from, to] = [unflatten(place, shape), at - reach, at + reach];
    const known = {
      from, to, at, loss: trace.loss(), gradient: gradient.data[place], curve: [],
      name: labelOf({ name }, index),
    };
    const start = performance.now();
    const [truth] = trace.lossAt(id, place, [at + 0.1]);
    const slope = `slope ${written(known.gradient)} = ${labelOf(gradient, index)}: `;
    part("slope-words").replaceChildren(element("strong", "", slope),
      slopeInWords(known.gradient, truth - known.loss));
    const cost = performance.now() - start;
    const points = Math.round(Math.min(POINTS, Math.max(9, SLOPE_TIME / cost)));
    const draw = () => {
      const values = Array.from({ length: points }, (_, i) => between(from, to, i / (points - 1)));
      drawSlope(part("curve"), { ...known, curve: trace.lossAt(id, place, values) });
    };
    if (cost < 0.25) draw();
    else {  // a large layer: the curve waits until the hand rests
      drawSlope(part("curve"), known);
      waiting = setTimeout(draw, 150);
    }
  }

  function show(id, place) {
    const array = trace.arrays[id];
    const index = unflatten(place, array.shape);
    part("cell").textContent = labelOf(array, index);
    part("words").textContent = names.inWords(array, index);
    part("arithmetic").replaceChildren(...tellArithmetic(array, index, place));
    stop();
    part("readers").replaceChildren(...tellReaders(array, place));
    showEditor(array, place);
    showSlope(array, place);
  }

  const change = (value) => {
    if (target && Number.isFinite(value)) edit(target.array.id, target.place, value);
  };
  field.addEventListener("input", () => { if (field.value !== "") change(Number(field.value)); });
  slider.addEventListener("input", () => change(Number(slider.value)));
  switchBox.addEventListener("change", () => change(Number(switchBox.checked)));
  part("undo").addEventListener("click", () => undo(target.array.id, target.place));
  for (const event of ["pointerdown", "focusin"]) {
    root.addEventListener(event, ({ target: on }) => { if (on !== part("close")) hold(true); });
  }
  part("close").addEventListener("click", () => hold(false));

  return {
    show, labelOf, forward,
    startEditing() {
      if (!target) return;
      if (target.array.isBool) return change(1 - target.array.data[target.place]);
      field.focus();
      field.select();
    },
    turn(by) {
      if (!target) return;
      const value = target.array.data[target.place];
      change(target.array.isBool ? Number(by > 0) : Number((value + by).toFixed(6)));
    },
  };
}
