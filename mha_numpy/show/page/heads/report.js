// The report: which text, head and word are shown, and what the page says about them.

const nameOf = (l, h) => `layer ${l}, head ${h}`;
const colorName = (kind, color) => (color === null ? { head: "plain", fill: "fill-x" }[kind] : `${kind}-${color}`);

function startReport(data) {
  const { heads, families, texts, isCausal } = data;
  const byId = (id) => document.getElementById(id);
  let [text, hasNorms, only] = [texts[0], false, null];
  let [layer, head, query] = [0, 0, 0];  // what is shown
  let [chosen, colors] = [[0, 0], readColors()];  // what is shown again when the pointer leaves

  const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.01 ? 1 : 0)}%`;
  const weight = (l, h, i, j) => text.weights[l][h][i * text.labels.length + j] / 1000;
  const value = (l, h, i, j) => weight(l, h, i, j) * (hasNorms ? text.norms[l][h][j] : 1);
  const valuesOf = (l, h, i) => text.labels.map((_, j) => value(l, h, i, j));
  const rowsOf = (l, h) => text.labels.map((_, i) => valuesOf(l, h, i));
  const isHidden = (i, j) => isCausal && j > i;
  const familyOf = (l, h) => text.families[l][h];
  const all = heads.flatMap((size, l) => Array.from({ length: size }, (_, h) => [l, h]));
  const colorOf = (l, h) => families[familyOf(l, h)][1];
  const isQuiet = (l, h) => ["first", "many"].includes(familyOf(l, h));  // most heads: they hide the others

  // A head leaves on the start, the end and full stops what it does not need: these columns are grey, and what
  // has full colour is the head's largest number elsewhere. Only a grey head is about them.
  const isAside = (j) => j === 0 || text.labels[j] in ENDS || isStop(text.labels[j]);
  const onWords = (values) => values.filter((_, j) => !isAside(j));
  const fullOf = (l, h) => Math.max(0, ...rowsOf(l, h).flatMap(colorOf(l, h) === null ? (row) => row : onWords)) || 1;
  const depth = (l, h, full = fullOf(l, h)) => (i, j) => Math.min(1, value(l, h, i, j) / full);

  // --- the map of all heads

  const overview = openGrid(byId("overview"), heads, "All heads: layers down, heads across; Enter keeps one", {
    pick, point: (l, h) => { if (l !== layer || h !== head) show(l, h); }, leave: () => show(...chosen),
  });

  function thumbnail(l, h) {
    const [size, shade] = [text.labels.length, depth(l, h)];
    const canvas = Object.assign(element("canvas"), { width: size, height: size });
    const [ctx, image] = [canvas.getContext("2d"), new ImageData(size, size)];
    for (let at = 0; at < size * size; at++) image.data[4 * at + 3] = 255 * shade(Math.floor(at / size), at % size);
    ctx.putImageData(image, 0, 0);
    ctx.globalCompositeOperation = "source-atop";  // what is black so far takes the colour
    text.labels.forEach((_, j) => {
      ctx.fillStyle = colors.shade(1, isAside(j) ? null : colorOf(l, h), true);
      ctx.fillRect(j, 0, 1, size);
    });
    return canvas;
  }

  function showOverview() {
    const loud = all.filter((at) => !isQuiet(...at)).length;
    byId("quiet").textContent = loud ? `Full colour: the ${loud} heads that look at something particular in this sentence.` : "";
    overview.paint((button, l, h) => {
      button.replaceChildren(thumbnail(l, h));
      button.ariaLabel = `${nameOf(l, h)} looks at ${families[familyOf(l, h)][0]}`;
      button.classList.toggle("faded", only ? only !== familyOf(l, h) : isQuiet(l, h) && loud > 0);
    });
    byId("families").replaceChildren(...Object.entries(families).flatMap(([family, [words, color]]) => {
      const members = all.filter((at) => familyOf(...at) === family);
      if (!members.length) return [];
      const button = element("button", "", element("i"), words, element("small", "", members.length));
      button.type = "button";
      button.style.setProperty("--mark", `var(--${colorName("head", color)})`);
      button.setAttribute("aria-pressed", String(only === family));
      button.addEventListener("click", () => {
        only = only === family ? null : family;
        showOverview();
        byId("families").querySelector("[aria-pressed=true]")?.focus();
        if (!only) return;
        chosen = clearest(members);
        query = strongest();
        pick(...chosen);
      });
      return [button];
    }));
  }

  // The head whose weights on words are largest; and its word whose largest weight on a word is.
  const peaks = (l, h) => rowsOf(l, h).map((row, i) => (i ? Math.max(0, ...onWords(row)) : 0));
  const sizeOf = (at) => peaks(...at).reduce((sum, each) => sum + each);
  const clearest = (members) => members.reduce((best, each) => (sizeOf(each) > sizeOf(best) ? each : best));
  const strongest = (sizes = peaks(...chosen)) => sizes.indexOf(Math.max(...sizes));

  // --- one head

  const sentence = openSentence(byId("sentence"), (i) => { query = i; showWord(); });
  const matrix = openMatrix(byId("matrix"), (i, j) => { query = i; showWord(j); });

  function pick(l, h) {
    chosen = [l, h];
    show(l, h);
    const shown = byId("one-title").closest("section");
    const { top, bottom } = shown.getBoundingClientRect();
    if (bottom < 120 || top > innerHeight - 120) shown.scrollIntoView();
    try { history.replaceState(null, "", `#l${l}h${h}`); } catch { /* a frame has no address */ }
  }

  function show(l, h) {
    [layer, head] = [l, h];
    const [words, color] = families[familyOf(l, h)];
    const { style } = byId("heads");
    style.setProperty("--mark", `var(--${colorName("head", color)})`);
    style.setProperty("--fill", `var(--${colorName("fill", color)})`);
    style.setProperty("--text", color === null ? "var(--ink)" : `var(--head-${color}-ink)`);
    byId("one-title").textContent = `Layer ${l}, head ${h}`;
    byId("one-family").textContent = `looks at ${words}`;
    overview.mark(l, h);
    cuts.mark(l, h);
    matrix.show((i, j) => value(l, h, i, j), depth(l, h), isHidden, nameOf(l, h), "tone");
    showWord();
  }

  // Where the word looks; `key` is the one whose cell is chosen, else that of the largest share.
  function showWord(key) {
    const values = valuesOf(layer, head, query);
    const best = [...values.keys()].sort((a, b) => values[b] - values[a]);
    const total = values.reduce((sum, each) => sum + each, 0) || 1;
    const shares = values.map((each) => each / total);
    sentence.show(query, shares);
    const word = (i) => (text.labels[i] in ENDS ? `the ${asWord(text.labels[i])}` : element("b", "w", text.labels[i]));
    const named = best.slice(0, 3).filter((j, n) => n === 0 || shares[j] >= 0.1);
    byId("told").replaceChildren(word(query), shares[best[0]] < 0.5 ? " looks most at " : " looks at ", ...named.flatMap((j, n) =>
      [n === 0 ? "" : n === named.length - 1 ? " and " : ", ", j === query ? "itself" : word(j), ` (${percent(shares[j])})`]),
    ".");
    const here = [texts.indexOf(text), layer, head, text.labels[query]].join();
    for (const find of byId("finds").children) find.setAttribute("aria-pressed", String(find.value === here));
    const at = key ?? best[0];
    matrix.choose(query, at);
    const [share, norm] = [weight(layer, head, query, at), text.norms[layer][head][at]];
    byId("cell-told").replaceChildren(...(isHidden(query, at)
      ? [word(query), " can’t look at ", word(at), ", which comes later."]
      : [word(query), ` gives ${percent(share)} of its weight to `, word(at),
        ...(hasNorms ? [`, which writes a vector of length ${small(norm)}, so a length of ${small(share * norm)} arrives`] : []), "."]));
  }

  // --- what the reader chooses

  byId("title").textContent = data.title;
  byId("lead").textContent = data.note;
  const choose = byId("texts").querySelector("select");
  choose.append(...texts.map(({ name }, at) => new Option(name, at)));
  byId("texts").hidden = texts.length === 1;
  choose.addEventListener("change", () => showText(texts[choose.value]));
  byId("norms").addEventListener("change", ({ target }) => { hasNorms = target.checked; showAll(); });

  function showAll() {
    showOverview();
    show(...chosen);
  }

  // The word is that of the head's largest share, unless one is named.
  function showText(shown, word) {
    text = shown;
    choose.value = texts.indexOf(text);
    [query, only] = [word ? text.labels.indexOf(word) : strongest(), null];
    sentence.build(text.labels);
    matrix.build(text.labels.map(asWord), isAside);
    cuts.paint(colorOf);
    showAll();
  }

  // What the page opens on, and other places worth a look.
  function open({ text: at, head: place, word }) {
    chosen = place;
    showText(texts[at], word);
  }
  const finds = data.finds ?? [];
  byId("finds").hidden = !finds.length;
  byId("finds").append(...finds.map((find) => {
    const value = [find.text, ...find.head, find.word].join();
    const button = Object.assign(element("button", "", find.asks), { type: "button", value });
    button.addEventListener("click", () => { open(find); pick(...find.head); });
    return button;
  }));

  const cuts = openCuts(data, pick);
  const asked = /^#l(\d+)h(\d+)$/.exec(location.hash)?.slice(1).map(Number);
  const isNamed = asked && heads[asked[0]] > asked[1];
  onTheme(() => { colors = readColors(); showOverview(); });
  open(isNamed ? { text: 0, head: asked } : finds[0] ?? { text: 0, head: clearest(all) });
  followHeight();
}
