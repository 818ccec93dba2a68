// A map of all heads: a row for each layer, a button for each head.

// `pick` and `point` are called with a layer and a head, `leave` when neither pointer nor keys are there
// any more; `paint` fills a head's button.
function openGrid(root, heads, label, { pick, point, leave = () => {} }) {
  const most = Math.max(...heads);
  root.setAttribute("role", "grid");
  root.setAttribute("aria-label", label);
  root.style.gridTemplateColumns = `max-content repeat(${most}, minmax(0, 96px))`;
  const part = (role, className, ...children) => {
    const made = element("div", className, ...children);
    made.setAttribute("role", role);
    return made;
  };
  const buttons = heads.map((count, layer) => Array.from({ length: count }, (_, head) => {
    const button = element("button");
    button.type = "button";
    button.tabIndex = -1;
    button.setAttribute("role", "gridcell");
    button.addEventListener("focus", () => { for (const each of buttons.flat()) each.tabIndex = each === button ? 0 : -1; });
    button.addEventListener("click", () => pick(layer, head));
    for (const event of ["pointermove", "focus"]) {  // a page that moves below the pointer says nothing
      button.addEventListener(event, () => point(layer, head));
    }
    return button;
  }));
  const across = Array.from({ length: most }, (_, head) => part("columnheader", "axis", String(head)));
  root.replaceChildren(
    part("row", "", part("columnheader", ""), ...across),
    ...buttons.map((cells, layer) => part("row", "", part("rowheader", "axis layer", String(layer)), ...cells,
      ...across.slice(cells.length).map(() => element("span")))),
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
    event.preventDefault();
    buttons[place[0] + step[0]]?.[place[1] + step[1]]?.focus();
  });

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
