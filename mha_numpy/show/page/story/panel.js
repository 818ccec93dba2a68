// What the story says of a number in the panel: where it is, and which scenes have changed with it.

function openNumber({ root, facts, stage, panel, close, open }) {
  let cell = null;
  const view = { root, close, open: () => open(cell) };

  function show(chosen, isBack, changedScenes) {
    cell = chosen;
    if (!cell) return panel.show(view, null);
    const { id, place, part, head, i, j } = cell;
    const kind = { scores: "score", weights: "share" }[part];
    const small = [kind, facts.heads > 1 && !["x", "y", "out"].includes(part) && `head ${head}`].filter(Boolean).join(", ");
    const isHidden = Boolean(kind) && facts.isHidden(head, i, j);
    const says = !isBack && stage.isMoved(cell) && changedScenes.length ? [`This also changes: ${changedScenes.join(" · ")}.`] : [];
    panel.show(view, { id, place }, { words: [...facts.place(cell).map(stage.piece), element("small", "", small && ` ${small}`)], isHidden, isBack, says });
  }
  return { show };
}
