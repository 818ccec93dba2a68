// A map of all heads: a row for each layer, a button for each head.

// `pick` and `point` are called with a layer and a head, `leave` when neither pointer nor keys are there
// any more; `paint` fills a head's button.
function openGrid(root, heads, label, { pick, point, leave = () => {} }) {
  const most = Math.max(...heads);
  root.setAttribute("role", "grid");
  root.setAttribute("aria-label", label);
  root.style.gridTemplateColumns = `max-content repeat(${most}, minmax(0, 96px))`;
  const axis = (words, kind, role) => {
    const made = element("span", `axis ${kind}`, words);
    made.setAttribute("role", role);
    return made;
  };
  const row = (...cells) => {
    const made = element("div", "", ...cells);
    made.setAttribute("role", "row");
    return made;
  };
  const buttons = heads.map((count, layer) => Array.from({ length: count }, (_, head) => {
    const button = element("button");
    button.type = "button";
    button.tabIndex = -1;
    button.setAttribute("role", "gridcell");
    button.addEventListener("click", () => pick(layer, head));
    for (const event of ["pointermove", "focus"]) {  // a page that moves below the pointer says nothing
      button.addEventListener(event, () => point(layer, head));
    }
    return button;
  }));
  const across = Array.from({ length: most }, (_, head) => axis(String(head), "head", "columnheader"));
  root.replaceChildren(
    row(axis("", "layer", "columnheader"), ...across),
    ...buttons.map((cells, layer) => {
      const made = row(axis(`${layer}`, "layer", "rowheader"), ...cells);
      for (let head = cells.length; head < most; head++) made.append(element("span"));
      return made;
    }),
  );
  root.addEventListener("pointerleave", () => {
    const place = placeOf(document.activeElement);
    if (place) point(...place); else leave();
  });
  root.addEventListener("focusout", ({ relatedTarget }) => { if (!root.contains(relatedTarget)) leave(); });
  function placeOf(button) {
    const layer = buttons.findIndex((cells) => cells.includes(button));
    return layer < 0 ? null : [layer, buttons[layer].indexOf(button)];
  }
  root.addEventListener("keydown", (event) => {
    const [step, place] = [stepOf(event), placeOf(event.target)];
    if (!step || !place) return;
    const [layer, head] = place;
    const next = buttons[layer + step[0]]?.[head + step[1]];
    event.preventDefault();
    if (next) focusOn(next);
  });

  function focusOn(button) {
    for (const each of buttons.flat()) each.tabIndex = each === button ? 0 : -1;
    button.focus();
  }

  return {
    paint(each) {
      buttons.forEach((cells, layer) => cells.forEach((button, head) => each(button, layer, head)));
    },
    mark(layer, head) {
      buttons.flat().forEach((button) => {
        const isCurrent = button === buttons[layer][head];
        button.classList.toggle("current", isCurrent);
        button.setAttribute("aria-selected", String(isCurrent));
        button.tabIndex = isCurrent ? 0 : -1;
      });
    },
  };
}
