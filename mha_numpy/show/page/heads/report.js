// The report: which text, head and cell are shown, and what the page says about them.

// What is measured; see VectorChange and LossChange.
const MEASURES = {
  vectors: {
    unit: "1 − cosine",
    about: `The model computes a vector for each text: the mean of its tokens’ last hidden states, scaled to length 1.
      We measure how far a cut turns it: 1 − the cosine between the vector without the head and the vector of the whole
      model, on average over the texts. 0 is no change, 1 is a right angle.`,
    gradient: `In the whole model 1 − cosine is at its lowest, so its own gradient is 0. We differentiate the vector
      instead and take half of |its slope over the head’s gate|², which is what 1 − cosine would be if the slope stayed
      constant. A vector of more than 32 numbers is estimated along 32 random directions, and may be a quarter off.`,
    mean: "In the last layer this removes less, because the texts’ vectors are themselves means over tokens.",
  },
  loss: {
    unit: "change of the loss",
    about: `The model predicts each next token of the texts; its loss is the mean cross-entropy, in nats per token. We
      measure how much the loss grows without the head. Where it shrinks, the change is negative.`,
    gradient: `|The slope of the loss over the head’s gate|, computed for each text and summed: how much the loss would
      change if the slope stayed constant.`,
    mean: "",
  },
};

function startReport(data) {
  const { heads, names, texts, worth, isCausal } = data;
  const byId = (id) => document.getElementById(id);
  const MODES = { weights: "weight", norms: "weight × norm" };
  const words = MEASURES[worth.kind];
  const KINDS = {
    gradient: ["By its slope", words.gradient],
    zero: ["Cut by 0", "The head writes nothing."],
    mean: ["Cut by its mean",
      `The head writes the same for every token: its mean over the tokens of these texts. ${words.mean}`],
  };
  let [text, layer, head, mode, shown] = [texts[0], 0, 0, "weights", "pictures"];
  let colors = readColors();

  const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.01 ? 1 : 0)}%`;
  const small = (value) => (value === 0 ? "0" : Number(value.toPrecision(2)).toString().replace("-", "−"));
  const nameOf = (l, h) => `layer ${l}, head ${h}`;
  const titled = (l, h) => `Layer ${l}, head ${h}`;
  const weight = (l, h, i, j) => text.weights[l][h][i * text.labels.length + j] / 1000;
  const value = (l, h, i, j) => weight(l, h, i, j) * (mode === "norms" ? text.norms[l][h][j] : 1);
  const isHidden = (i, j) => isCausal && j > i;
  const isShare = (pattern) => pattern !== "distance" && pattern !== "entropy";
  const scoreOf = (pattern, l, h, by = mode) => text[by === "norms" ? "shares" : "scores"][l][pattern][h];

  // What has full colour: weight 1, or the largest weight × norm of the layer.
  function fullOf(l) {
    if (mode === "weights") return 1;
    const largest = text.weights[l].map((_, h) => Math.max(...text.labels.flatMap((_, i) =>
      text.labels.map((_, j) => value(l, h, i, j)))));
    return Math.max(...largest) || 1;
  }

  // --- the map of all heads

  const pick = (l, h) => { [layer, head] = [l, h]; showHead(true); };
  const overview = openGrid(byId("overview"), heads, "All heads: layers down, heads across; Enter opens one", {
    pick, point: (l, h) => { byId("overview-told").textContent = `${titled(l, h)}: ${text.says[l][h]}`; },
  });

  function thumbnail(l, h, full) {
    const size = text.labels.length;
    const canvas = Object.assign(element("canvas"), { width: size, height: size });
    const image = new ImageData(size, size);
    const pixels = new Uint32Array(image.data.buffer);
    for (let i = 0; i < size; i++) for (let j = 0; j < size; j++) {
      pixels[i * size + j] = (Math.round(255 * value(l, h, i, j) / full) << 24) >>> 0;
    }
    const ctx = canvas.getContext("2d");
    ctx.putImageData(image, 0, 0);
    ctx.globalCompositeOperation = "source-in";  // what is black so far takes the head's colour
    ctx.fillStyle = colors.shade(1, h, true);
    ctx.fillRect(0, 0, size, size);
    return canvas;
  }

  function showOverview() {
    const fulls = heads.map((_, l) => fullOf(l));
    const largest = shown === "distance" || shown === "entropy"
      ? Math.max(...heads.flatMap((_, l) => text[mode === "norms" ? "shares" : "scores"][l][shown])) : 1;
    overview.paint((button, l, h) => {
      button.removeAttribute("style");
      button.classList.remove("hatched");
      if (shown === "pictures") {
        button.replaceChildren(thumbnail(l, h, fulls[l]));
        button.ariaLabel = `${nameOf(l, h)}: ${text.says[l][h]}`;
        return;
      }
      const score = scoreOf(shown, l, h);
      button.classList.toggle("hatched", score === null);
      if (score !== null) tint(button, score / (largest || 1), "fill-x");
      const number = score === null ? "" : isShare(shown) ? percent(score) : score.toFixed(1);
      button.replaceChildren(button.clientWidth < 38 ? "" : number);
      button.ariaLabel = `${nameOf(l, h)}: ${names[shown][0]} ${number || "unknown"}`;
    });
    const where = names[shown]?.[1];
    const of = MODES[mode];
    byId("scale").textContent = shown === "pictures"
      ? mode === "weights" ? "Full colour is a weight of 1." : "Full colour is the largest weight × norm of the layer."
      : !isShare(shown) ? `By ${of}: ${where}. Full colour is ${largest.toFixed(1)}, the largest of all heads.`
        : `The share of ${of} on ${where}, on average over ${queriesOf(shown)}. Full colour is 100%.`;
  }

  function queriesOf(pattern) {
    const [count, all] = [text.places[pattern], text.labels.length];
    return count === all ? `all ${all} queries` : count === 0 ? "no query, because none has such a key"
      : count === 1 ? `the only query that has such a key` : `the ${count} queries that have such a key`;
  }

  // --- one head

  const matrix = openMatrix(byId("matrix"), showCell);

  function showHead(isPicked = false) {
    overview.mark(layer, head);
    for (const grid of Object.values(grids)) grid.mark(layer, head);
    left.mark(layer, head);
    byId("one-title").textContent = titled(layer, head);
    byId("says").textContent = text.says[layer][head];
    matrix.show((i, j) => value(layer, head, i, j), fullOf(layer), isHidden,
      `${MODES[mode]}, ${nameOf(layer, head)}`, head);
    matrix.choose(...(isPicked ? strongest() : matrix.chosen()));
    showScores();
    if (!isPicked) return;
    reveal(byId("one-title"));
    byId("spoken").textContent = `${titled(layer, head)} is open.`;
    try { history.replaceState(null, "", `#l${layer}h${head}`); } catch { /* a frame has no address */ }
  }

  // Where the head is far away, as from the grids below, the page goes there.
  function reveal(title) {
    const { top } = title.getBoundingClientRect();
    if (top < 0 || top > 0.75 * innerHeight) title.scrollIntoView();
  }

  function strongest() {
    const n = text.labels.length;
    let best = [0, 0];
    for (let i = 0; i < n; i++) for (let j = 0; j < n; j++) {
      if (value(layer, head, i, j) > value(layer, head, ...best)) best = [i, j];
    }
    return best;
  }

  function showCell(i, j) {
    const [query, key] = [text.labels[i], text.labels[j]];
    const places = `the query “${query}” (${i})`;
    const [share, norm] = [weight(layer, head, i, j), text.norms[layer][head][j]];
    byId("cell-told").textContent = isHidden(i, j)
      ? `${titled(layer, head)}: ${places} may not see “${key}” (${j}), which comes later.`
      : `${titled(layer, head)}: ${places} gives ${percent(share)} of its weight to the key “${key}” (${j}). ` +
        `The value there writes a vector of length ${small(norm)}, so a length of ${small(share * norm)} arrives.`;
  }

  function showScores() {
    byId("scores-title").textContent = `What ${nameOf(layer, head)} does on this text`;
    const bar = (score) => {
      const made = element("span", "bar");
      made.style.width = `${100 * score}%`;
      return made;
    };
    const cell = (pattern, by) => {
      const score = scoreOf(pattern, layer, head, by);
      if (score === null) return element("td", "", "–");
      return element("td", "", ...(isShare(pattern) ? [percent(score), bar(score)] : [score.toFixed(2)]));
    };
    const row = (pattern) => {
      const heading = element("th", "", names[pattern][0]);
      heading.scope = "row";
      heading.title = names[pattern][1];
      if (isShare(pattern) && text.places[pattern] < text.labels.length / 2) {
        const count = text.places[pattern];
        const queries = count === 1 ? "1 query has" : `${count || "no"} queries have`;
        heading.append(element("span", "hint", ` (${queries} one)`));
      }
      return element("tr", "", heading, cell(pattern, "weights"), cell(pattern, "norms"));
    };
    const known = Object.keys(names).filter((pattern) => pattern in text.scores[layer]);
    const top = ["share on", MODES.weights, MODES.norms].map((words) => element("th", "", words));
    const cutAs = worth.order.findIndex(([l, h]) => l === layer && h === head) + 1;
    byId("scores").replaceChildren(
      element("table", "", element("thead", "", element("tr", "", ...top)),
        element("tbody", "", ...known.map(row))),
      element("p", "hint", `Without it, ${words.unit}: ${small(worth.zero[layer][head])} when cut by 0, ` +
        `${small(worth.mean[layer][head])} when cut by its mean, and ${small(worth.gradient[layer][head])} by its ` +
        `slope, which ranks it ${cutAs} of ${worth.order.length}, least important first.`),
    );
  }

  // --- what changes without a head

  const changes = Object.keys(KINDS).flatMap((kind) => worth[kind].flat());
  const largestWorth = Math.max(...changes.map(Math.abs)) || 1;
  const pointWorth = (l, h) => {
    const [slope, zero, mean] = Object.keys(KINDS).map((kind) => small(worth[kind][l][h]));
    byId("worth-told").textContent = `${titled(l, h)}: ${words.unit} ${slope} by its slope, ${zero} when cut by 0, ` +
      `${mean} when cut by its mean.`;
  };
  const grids = Object.fromEntries(Object.entries(KINDS).map(([kind, [title, about]]) => {
    const root = element("div", "heads-grid");
    byId("worth").append(element("div", "", element("h3", "", title), element("p", "hint", about), root));
    const grid = openGrid(root, heads, `${title}: ${words.unit}`, { pick, point: pointWorth });
    grid.paint((button, l, h) => {
      const change = worth[kind][l][h];
      tint(button, Math.sign(change) * Math.sqrt(Math.abs(change) / largestWorth), "plain");
      button.ariaLabel = `${nameOf(l, h)}: ${small(change)}`;
    });
    return [kind, grid];
  }));
  byId("overview-told").textContent = "Point at a head, or move between heads with the arrow keys. A click or Enter " +
    "opens it.";
  byId("worth-told").textContent = "Point at a head to read its numbers. A click opens it above.";
  byId("worth-about").textContent = words.about;
  byId("worth-scale").textContent = `One scale for all three: full colour is ${small(largestWorth)}, and colour grows ` +
    "with the square root, so that you can see small changes. A ring is less than zero.";

  // --- one head after the other

  const left = openGrid(byId("left"), heads, "Which heads are cut", { pick });
  const curve = openCurve(byId("curve"), [worth.curve, worth.random], {
    name: words.unit, across: "number of heads cut", pick: cut,
  });
  const numberOf = new Map(worth.order.map(([l, h], n) => [`${l} ${h}`, n + 1]));

  function cut(n) {
    byId("cuts").value = n;
    curve.mark(n);
    left.paint((button, l, h) => {
      const isCut = numberOf.get(`${l} ${h}`) <= n;
      button.classList.toggle("hatched", isCut);
      button.ariaLabel = `${nameOf(l, h)}${isCut ? ", cut" : ""}`;
    });
    const last = n ? ` The last one was ${nameOf(...worth.order[n - 1])}.` : "";
    const told = `${n} of ${worth.order.length} heads are cut: ${words.unit} ${small(worth.curve[n])}; ` +
      `${small(worth.random[n])} in a random order.${last}`;
    byId("cuts-told").textContent = told;
    byId("cuts").setAttribute("aria-valuetext", told);
  }

  byId("cuts").max = worth.order.length;
  byId("cuts").addEventListener("input", ({ target }) => cut(Number(target.value)));
  const row = (tag, cells) => element("tr", "", ...cells.map((cell) => element(tag, "", cell)));
  const numbers = worth.curve.map((lost, n) => row("td",
    [String(n), n ? nameOf(...worth.order[n - 1]) : "–", small(lost), small(worth.random[n])]));
  byId("curve-numbers").append(element("table", "",
    element("thead", "", row("th", ["cut", "the last one", words.unit, "in a random order"])),
    element("tbody", "", ...numbers)));

  // --- what the reader chooses

  byId("title").textContent = data.title;
  byId("note").textContent = data.note;
  const count = texts.length === 1 ? "one text" : `${texts.length} texts`;
  byId("limits").textContent = `This is one model on ${count}. What you see here is true of them; it need not be ` +
    "true of others.";
  const [choose, select] = [byId("texts").querySelector("select"), byId("shown")];
  choose.append(...texts.map(({ name }, at) => new Option(name, at)));
  byId("texts").hidden = texts.length === 1;
  choose.addEventListener("change", () => { text = texts[choose.value]; showText(); });
  select.append(new Option("pictures", "pictures"),
    ...Object.entries(names).map(([pattern, [label]]) => new Option(label, pattern)));
  select.addEventListener("change", () => { shown = select.value; showOverview(); });
  byId("modes").append(...Object.entries(MODES).map(([id, label]) => {
    const button = element("button", "", label);
    button.type = "button";
    button.dataset.mode = id;
    button.addEventListener("click", () => { mode = id; showMode(); });
    return button;
  }));

  function showMode() {
    for (const button of byId("modes").children) {
      button.setAttribute("aria-pressed", String(button.dataset.mode === mode));
    }
    showOverview();
    showHead();
  }

  function showText() {
    matrix.build(text.labels);
    showMode();
    matrix.choose(...strongest());
  }

  const isLarge = ([l, h]) => worth.zero[l][h] === Math.max(...worth.zero.flat());
  const named = /^#l(\d+)h(\d+)$/.exec(location.hash)?.slice(1).map(Number);
  [layer, head] = named && heads[named[0]] > named[1] ? named : worth.order.find(isLarge);
  onTheme(() => { colors = readColors(); showOverview(); });
  cut(Math.floor(worth.order.length / 4));
  showText();
  followHeight();
}
