// One word and where it looks: the sentence, with an arc to each word, as thick as its share.

const SMALLEST_WORD = 19, LARGEST_WORD = 36;  // of letters, in pixels
const SAID = 0.05;  // from this share on it is written
const ENDS = { "[CLS]": "start", "[SEP]": "end", "<s>": "start", "</s>": "end" };  // marks, not words
const asWord = (label) => ENDS[label] ?? label;
const isStop = (label) => /^[.,;:!?]$/.test(label);

// `pick` is called with the place of the word that the reader chooses.
function openSentence(root, pick) {
  const drawing = inSvg("svg", { "aria-hidden": "true" });
  let words = [];
  let shown = null;
  root.setAttribute("role", "radiogroup");
  root.setAttribute("aria-label", "The word that looks");

  function build(labels) {
    words = labels.map((label, at) => {
      const made = element("button", label in ENDS ? "word end" : isStop(label) ? "word rest" : "word",
        element("b", "share"), element("span", "", asWord(label)));
      made.type = "button";
      made.setAttribute("role", "radio");
      for (const event of ["click", "focus"]) made.addEventListener(event, () => pick(at));
      return made;
    });
    root.replaceChildren(drawing, ...words);
    shown = null;
    fit();
  }

  // As large as one line allows; where letters would be too small, a word for each line.
  function fit() {
    if (!words.length) return;
    root.classList.remove("tall");
    root.style.setProperty("--size", `${SMALLEST_WORD}px`);
    const wide = words.at(-1).getBoundingClientRect().right - words[0].getBoundingClientRect().left;
    const room = root.clientWidth;
    root.classList.toggle("tall", wide > room);
    root.style.setProperty("--size", `${wide > room ? 22 : Math.min(LARGEST_WORD, SMALLEST_WORD * room / wide * 0.98)}px`);
    if (shown) draw();
  }

  // An arc leaves the words upwards, or to the right where they are below each other.
  function draw() {
    const frame = root.getBoundingClientRect();
    const isTall = root.classList.contains("tall");
    const boxes = words.map((word) => word.getBoundingClientRect());
    const along = (box) => (isTall ? box.top - frame.top + box.height / 2 : box.left - frame.left + box.width / 2);
    const base = isTall ? Math.max(...boxes.map(({ right }) => right)) - frame.left + 6 : boxes[0].top - frame.top - 4;
    const room = isTall ? frame.width - base - 8 : base - 10;
    const farthest = isTall ? frame.height : frame.width;
    const { query, shares } = shown;
    const arcs = shares.map((share, j) => {
      let [from, to] = [along(boxes[query]), along(boxes[j])];
      if (j === query) [from, to] = [from - 9, to + 9];
      const away = Math.min(room, room * (0.3 + 1.6 * Math.abs(from - to) / farthest)) * 4 / 3;
      const tip = isTall ? base + away : base - away;
      const points = [[from, base], [from, tip], [to, tip], [to, base]];
      const at = points.map(([x, y]) => (isTall ? `${y} ${x}` : `${x} ${y}`));
      return inSvg("path", { d: `M${at[0]}C${at.slice(1).join(" ")}`, style: `--share:${share}` });
    });
    drawing.replaceChildren(...arcs.filter((_, j) => shares[j] >= 0.005));
  }

  new ResizeObserver(fit).observe(root);
  document.fonts?.ready.then(fit);
  const stop = roving(root, ".word");

  return {
    build,
    show(query, shares) {
      shown = { query, shares };
      stop(words[query]);
      words.forEach((word, j) => {
        word.setAttribute("aria-checked", String(j === query));
        word.firstChild.textContent = shares[j] >= SAID ? `${Math.round(100 * shares[j])}%` : "";
        word.firstChild.classList.toggle("small", shares[j] < 0.15);
      });
      draw();
    },
  };
}
