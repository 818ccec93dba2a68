// The panel of the story: where a number is, how it came about, what it could be instead.

function openNumber({ root, trace, facts, stage, edit, undo, close, open }) {
  const find = (selector) => root.querySelector(selector);
  const [slider, field] = [find('[type="range"]'), find('[type="number"]')];
  let cell = null;

  // How a number came about: where it only moved, how it came about before that.
  function told(array, index) {
    const made = trace.story(array, index);
    if (!made || made.op || made.array === undefined) return made;
    const before = trace.arrays[made.array];
    return before.tree ? told(before, made.index) : made;
  }
  const point = (made) => { made.classList.add("number"); };

  function arithmetic({ id, place }) {
    const array = trace.arrays[id];
    const value = element("b", "", facts.number(array.data[place]));
    const made = told(array, unflatten(place, array.shape));
    if (!made?.op) return [array.equation && !array.tree ? "It was recorded: " : "This number was given: ", value];
    const isEdited = made.op === "edited";
    const [sum, by] = isEdited ? [made.args[0], made.args[1].value] : [made, 0];
    const inner = sum.op ? writeStory(sum, point) : told(trace.arrays[sum.array], sum.index);
    const written = inner instanceof Node ? inner : inner?.op ? writeStory(inner, point) : facts.number(sum.value);
    return [written, isEdited ? ` ${by < 0 ? "−" : "+"} ${facts.number(Math.abs(by))} added by you` : "", " = ", value];
  }

  function show(chosen, isBack, changedScenes) {
    cell = chosen;
    root.classList.toggle("rest", !cell);
    if (!cell) return;
    const { id, place, part, head } = cell;
    const array = trace.arrays[id];
    const value = array.data[place];
    const isHidden = ["scores", "weights"].includes(part) && facts.isHidden(head, cell.i, cell.j);
    const kind = { scores: "score", weights: "share" }[part];
    const small = [kind, facts.heads > 1 && !["x", "y", "out"].includes(part) && `head ${head}`].filter(Boolean).join(", ");
    find("h2").replaceChildren(...facts.place(cell).map(stage.piece), element("small", "", small && ` ${small}`));
    find(".sum").replaceChildren(...(isHidden ? ["Hidden: this word may not be looked at."] : arithmetic(cell)));
    const isEditable = !isHidden && trace.isEditable(array, place);
    find(".edit").hidden = !isEditable;
    find(".undo").hidden = !isEditable || !array.edits.has(place);
    if (isEditable) {
      if (document.activeElement !== slider) {
        const reach = Math.max(2, 1.5 * Math.abs(stage.first[id][place]), Math.abs(value));
        Object.assign(slider, { min: -reach, max: reach, value });
      }
      if (document.activeElement !== field) field.value = Number(value.toFixed(3));
    }
    find(".effect span").replaceChildren(...effect(array, isBack, isEditable, changedScenes));
    const index = unflatten(place, array.shape).join(", ");
    find("code").textContent = `${array.name}[${index}]\n${array.equation ? `${array.name} = ${array.equation}` : "nothing computes it"}`;
  }

  function effect(array, isBack, isEditable, changedScenes) {
    const { id, place } = cell;
    const value = array.data[place];
    if (isBack) {
      const slope = trace.gradientOf(array)?.data[place];
      if (slope === undefined) return [];
      const [truth] = isEditable ? trace.lossAt(id, place, [value + 0.1]).map((loss) => loss - trace.loss()) : [0];
      if (Math.abs(slope) < 1e-9 && Math.abs(truth) < 1e-9) return ["The goal does not depend on this number."];
      const strong = (number) => element("strong", "", facts.signed(number));
      return ["Slope ", strong(slope), ": 0.1 more changes the goal by about ", strong(0.1 * slope),
        ...(isEditable ? ["; in truth by ", strong(truth)] : []), "."];
    }
    if (!stage.isMoved(cell)) return [];
    return [`It was ${facts.number(stage.first[id][place])}. `,
      changedScenes.length ? `Scenes that have changed: ${changedScenes.join(" · ")}.` : ""];
  }

  slider.addEventListener("input", () => edit(cell, Number(slider.value)));
  field.addEventListener("input", () => { if (field.value !== "") edit(cell, Number(field.value)); });
  for (const button of root.querySelectorAll("[data-by]")) {
    button.addEventListener("click", () => {
      edit(cell, Number((trace.arrays[cell.id].data[cell.place] + Number(button.dataset.by)).toFixed(6)));
    });
  }
  find(".undo").addEventListener("click", () => undo(cell));
  find(".close").addEventListener("click", close);
  find(".to-array").addEventListener("click", () => open(cell));
  return { show };
}
