// The guided tour: cards that lead through the page, say what is to be seen, and ask the reader to
// do something. A card notices when it is done; nobody has to wait for that.
//
// A card is {title, text, at, arrays, inMap, control, edits, ask, isDone, seen}: it opens at an array
// and lights arrays of the map, and controls. What was changed on a card is taken back at its end.

const isLargestOfRow = (page, { array, index }) => {
  const { shape, data } = page.trace.arrays[page.trace.byName.get(array)];
  const width = shape.at(-1);
  const place = flatten(index, shape);
  const row = data.slice(place - index.at(-1), place - index.at(-1) + width);
  return data[place] === Math.max(...row);
};
const goesTo = (...names) => (page, { type, array }) => type === "go" && names.includes(array);
const isEdit = (page, { type, value }) => type === "edit" && value !== null;

const CARDS = [
  {
    title: "What comes in",
    text: `Each row of x_q is one token, and each column is a number that says something about it.
      Gold is more than zero, violet is less. Attention will give each token a new row, which also
      knows something of the other tokens.`,
    at: "x_q",
    ask: "Click a cell: the panel says what it is.",
    isDone: goesTo("x_q"),
    seen: "The panel always says three things: where the number stands, where it came from, and where it goes.",
  },
  {
    title: "Three roles",
    text: `Each row is multiplied by three matrices of params. With w_q it becomes a query: what this
      token looks for. With w_k it becomes a key: what the token can be found by. With w_v it becomes
      a value: what it gives to the others.`,
    at: "q_projected",
    arrays: ["w_q", "w_k", "w_v"],
    inMap: true,
    ask: "Open one of the three in the map; they are framed.",
    isDone: goesTo("w_q", "w_k", "w_v"),
    seen: "These are params: nothing computes them, and training is what changes them.",
  },
  {
    title: "One query meets all keys",
    text: `A score says how well a query and a key fit: their numbers are multiplied in pairs, and the
      products are summed. Row = query, column = key. So each row holds the scores of one query with
      all keys.`,
    at: "scores",
    arrays: ["q", "k", "scores"],
    ask: "Choose a row, and click its largest score.",
    isDone: (page, event) =>
      event.type === "go" && event.array === "scores" && event.index && isLargestOfRow(page, event),
    seen: "This key fits the query best. The panel shows the products that made the score so large.",
  },
  {
    title: "Shares that sum to 1",
    text: `Softmax turns each row of scores into shares: the weights. A larger score gets a larger share,
      no share is less than 0, and each row sums to 1. The scale multiplies the scores first: it
      decides how far apart they are.`,
    at: "weights",
    arrays: ["weights"],
    control: "scale",
    ask: "What will the rows look like at scale 0? Pull the slider to 0.",
    isDone: (page, { type }) => type === "option" && page.option("scale") === 0,
    seen: "All scores are 0, so each key gets the same share. A large scale gives nearly all to one key. The next card puts the scale back.",
  },
  {
    title: "A mix of values",
    text: `Each query takes from each value as much as its weight says: its answer is the sum of weights
      times values. A weight of 0 takes nothing. Causal means that a query sees no key behind its own
      place.`,
    at: "heads",
    arrays: ["weights", "v", "heads"],
    control: "causal",
    ask: "Switch causal on or off, and compare the first row of weights.",
    isDone: (page, { type, name }) => type === "option" && name === "causal",
    seen: "Under causal the first query sees one key, its own: that weight is 1, and the answer is the value of its own token.",
  },
  {
    title: "Cut into heads",
    text: `q_projected has one long row for each token: the queries of all heads side by side. Here it is
      cut, and each head gets its part. As the cut comes after the product with w_q, each head has
      read the whole row of its token.`,
    at: "q_projected",
    arrays: ["q_by_token", "q"],
    inMap: true,
    ask: "Open q_by_token, then q, in the map or by the ▶ button. Watch the cells.",
    isDone: goesTo("q"),
    seen: "No number changed. First the rows were cut, then the axis of the heads moved to the front.",
  },
  {
    title: "Merged by w_o",
    text: `The answers of all heads are laid side by side again: that is merged. Then w_o mixes them into
      the new row of each token, which is out. Some rows of w_o belong to head 0, the next ones to
      head 1.`,
    at: "out",
    arrays: ["merged", "w_o", "out"],
    control: "heads",
    ask: "Switch one head off. Which numbers of out remain?",
    isDone: (page, { type }) => type === "option" && (page.option("heads") ?? []).includes(0),
    seen: "What remains was found by the other heads. The next card switches the head on again.",
  },
  {
    title: "One number for everything",
    text: `L is one number for the whole output: the sum of out times d_out. What would L be if this number
      of x_q were larger? The curve in the panel shows it. Its slope at the point is the gradient, and
      a gradient is nothing else.`,
    at: "x_q",
    control: "loss",
    ask: "Make the number larger, by the slider in the panel, and watch L.",
    isDone: isEdit,
    seen: "L moved along the curve. For a small step the straight line is a good guess, for a large one the curve bends away.",
    edits: true,
  },
  {
    title: "Backward, through softmax",
    text: `Backward takes the same steps from the end. d_weights says how L changes with each weight. But the
      weights of a row sum to 1: if one grows, others shrink. So only what differs from the row's mean
      counts, and each row of d_scores sums to 0.`,
    at: "d_scores",
    arrays: ["d_weights", "d_scores"],
    inMap: true,
    ask: "Compare: open d_weights in the map, below weights.",
    isDone: goesTo("d_weights"),
    seen: "A row of d_weights need not sum to 0. Softmax takes away what all keys of a row have in common.",
  },
  {
    title: "Back to the params",
    text: `All tokens used the same w_q. So its gradient is a sum over all tokens: a number of x_q times a
      number of d_q_projected for each. In the map d_w_q stands below w_q, and so does the gradient of
      everything else.`,
    at: "d_w_q",
    arrays: ["w_q", "d_w_q"],
    ask: "Click cells of d_w_q: the panel shows one product for each token.",
    isDone: goesTo("d_w_q"),
    seen: "This is the slope of L over one param. There is one such number for each param of the layer.",
  },
  {
    title: "Change one number",
    text: `Nothing here is a film: the page computes what you see. If you change a number, everything after
      it is computed anew, forward and backward. What changed gets a magenta frame for a moment, in the
      map too.`,
    at: "w_q",
    ask: "Double-click a cell of w_q, and type another number.",
    isDone: isEdit,
    seen: "Arrays without a frame do not depend on this number. A number of w_q, for example, changes no key and no value.",
    edits: true,
  },
  {
    title: "How params are learned",
    text: `Each param has a slope, and training moves each a little downhill. It does so again and again,
      with new examples each time. Below, a head with random params learns to say digits backwards,
      by the same equations.`,
    at: "#train",
    ask: "Press Start, and wait until the antidiagonal is there.",
    isDone: (page, { type }) => type === "learned",
    seen: "Nobody wrote this pattern down: it was found step by step. Forget draws new params, and it is gone.",
  },
];

function startTour({ root, page, cards = CARDS }) {
  const isThere = ({ at }) => at.startsWith("#") ? document.querySelector(`${at}:not(:empty)`) : page.trace.byName.has(at);
  const canBeDone = ({ control, edits }) =>
    (!(control || edits) || page.trace.isLive) &&
    (control === "loss" ? page.trace.hasLoss : !control || page.option(control) !== undefined);
  const usable = cards.filter((card) => isThere(card) && canBeDone(card));
  const sentence = (text) => text.replace(/\s+/g, " ");

  root.innerHTML = `
    <h2>The tour, as a text</h2>
    <ol class="tour-list"></ol>
    <div class="tour-card" role="region" aria-label="Guided tour">
      <div class="tour-head">
        <h3></h3><span class="tour-count"></span>
        <button type="button" class="tour-fold" aria-label="Fold the card"></button>
        <button type="button" class="tour-leave" aria-label="Leave the tour">✕</button>
      </div>
      <p class="tour-text" aria-live="polite"></p>
      <div class="tour-do">
        <p class="tour-ask"></p>
        <p class="tour-seen" aria-live="polite"></p>
      </div>
      <div class="tour-buttons">
        <button type="button" class="tour-back" title="key p">Back</button>
        <button type="button" class="tour-next" title="key n">Next</button>
      </div>
    </div>`;
  const find = (name) => root.querySelector(`.tour-${name}`);
  const panel = find("card");
  const start = Object.assign(document.createElement("button"), { type: "button", className: "tour-start" });
  document.querySelector("#page header").append(start);

  let [place, isOpen, isDone, isOurs] = [0, false, false, false];
  let [lit, wasEdited] = [[], false];  // what is lit; whether the reader had changed numbers before
  const card = () => usable[place];

  function controlsOf(name) {
    if (name === "loss") return [document.getElementById("loss")];
    const starts = { causal: "causal", scale: "scale", heads: "head " }[name];
    return [...document.querySelectorAll("#controls label")]
      .filter(({ textContent }) => textContent.trim().startsWith(starts));
  }

  const toStage = () => document.getElementById("cells").focus({ preventScroll: true });

  // What the tour does itself is not what the reader does.
  function byTour(change) {
    isOurs = true;
    try { change(); } finally { isOurs = false; }
  }

  function leaveCard() {
    lit.forEach((element) => page.light(element, false));
    lit = [];
    if (!wasEdited && page.trace.isEdited()) byTour(page.reset);
  }

  function enterCard() {
    const { at, arrays = [], control, inMap, edits } = card();
    wasEdited = page.trace.isEdited();
    isDone = false;
    const kinds = {
      "by-control": control, "in-map": inMap, edits, "without-panel": inMap || (control && !edits),
    };
    for (const [kind, is] of Object.entries(kinds)) document.body.classList.toggle(`tour-${kind}`, Boolean(is));
    const links = arrays.map((name) => document.querySelector(`#map a[href="#${name}"]`));
    lit = [...links, ...(control ? controlsOf(control) : [])].filter(Boolean);
    lit.forEach((element) => page.light(element, true));
    fold(false);
    if (at.startsWith("#")) return document.querySelector(at).scrollIntoView();
    const toTop = () => scrollTo(0, 0);
    if (isPhone()) toTop();  // then the cell is scrolled into view
    byTour(() => page.goTo(at));
    if (inMap || innerHeight > 950) toTop();
    else if (!isPhone()) document.getElementById("controls").scrollIntoView();
    if (inMap) lit.forEach((link) => link.scrollIntoView({ block: "nearest", inline: "nearest" }));
    toStage();
  }

  function show() {
    document.body.classList.toggle("touring", isOpen);
    panel.hidden = !isOpen;
    panel.classList.toggle("done", isDone);
    start.hidden = isOpen;
    start.textContent = place || isDone
      ? `Go on with the tour (${place + 1} of ${usable.length})`
      : `Take the tour: ${usable.length} cards, ${Math.ceil(usable.length / 2)} minutes`;
    if (!isOpen) return;
    panel.querySelector("h3").textContent = card().title;
    find("count").textContent = `${place + 1} of ${usable.length}`;
    find("text").textContent = sentence(card().text);
    find("ask").textContent = card().ask;
    find("seen").textContent = isDone ? card().seen : "";
    find("back").disabled = place === 0;
    find("next").textContent = place === usable.length - 1 ? "Finish" : "Next";
    document.body.style.setProperty("--card", `${panel.offsetHeight}px`);
  }

  function fold(isFolded) {
    panel.classList.toggle("folded", isFolded);
    find("fold").textContent = isFolded ? "▴" : "▾";
    find("fold").setAttribute("aria-expanded", String(!isFolded));
    show();
  }

  function open(at) {
    if (isOpen) leaveCard();
    [place, isOpen] = [at, true];
    enterCard();
  }

  function leave() {
    leaveCard();
    isOpen = false;
    show();
    start.focus({ preventScroll: true });
  }

  function turn(by) {
    const next = place + by;
    if (next < 0) return;
    if (next < usable.length) return open(next);
    leave();
    place = 0;
    isDone = false;
    show();
  }

  function notice(event) {
    if (!isOpen || isOurs || isDone || !card().isDone(page, event)) return;
    isDone = true;
    show();
  }

  for (const type of ["go", "edit", "option", "switch"]) {
    page.on(type, (told) => notice({ type, ...(told ?? {}) }));
  }
  document.addEventListener("learned", () => notice({ type: "learned" }));
  const isPhone = () => matchMedia("(max-width: 639px)").matches;
  document.addEventListener("click", ({ target }) => {  // a phone has no room for both
    if (isOpen && isPhone() && !panel.contains(target)) fold(true);
  }, true);  // before the cell is scrolled into what is left
  document.addEventListener("keydown", ({ key, target, ctrlKey, metaKey, altKey }) => {
    if (!isOpen || ctrlKey || metaKey || altKey) return;
    if (key === "Escape" && panel.contains(target)) leave();
    if (target.closest?.("input, select, textarea")) return;
    if (key === "n") turn(1);
    if (key === "p") turn(-1);
  });
  start.addEventListener("click", () => open(place));
  find("leave").addEventListener("click", leave);
  find("fold").addEventListener("click", () => {
    fold(!panel.classList.contains("folded"));
    if (panel.classList.contains("folded")) toStage();
  });
  find("back").addEventListener("click", () => turn(-1));
  find("next").addEventListener("click", () => turn(1));

  find("list").append(...usable.map(({ title, text, ask }, i) => {
    const item = document.createElement("li");
    const link = Object.assign(document.createElement("button"), { type: "button", className: "link", textContent: title });
    link.addEventListener("click", () => open(i));
    item.append(link, ` ${sentence(text)} `, Object.assign(document.createElement("em"), { textContent: ask }));
    return item;
  }));
  show();
  return { cards: usable, open, leave, at: () => (isOpen ? place : null), isDone: () => isDone };
}
