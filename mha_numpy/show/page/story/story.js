// The story: a sentence, a scene at a time, forward and back. Where the reader is, and what is asked.

const SWITCHES = { "cut-first": "roles", "no-transpose": "roles", "head-by-head": "roles", "by-sqrt-D": "weights", "no-scale": "weights",
  grouped: "roles", "multi-query": "roles", latent: "roles", "window-2": "weights", sink: "weights" };
const PLAY = 5000;  // milliseconds of a scene

function startStory(data, page) {
  const { story: told, sequence = 0 } = data;
  const { trace, controls } = page;
  const byId = (name) => document.getElementById(`story-${name}`);
  const root = document.getElementById("story");
  const facts = openFacts(told, trace, sequence);
  const { tokens: words, meaning, scenes } = told;
  const [opensWord, opensHead] = told.opens;
  const last = scenes.length - 1;
  const isWide = facts.parts.x?.shape.at(-1) > 8;
  const canReturn = trace.hasLoss && scenes.at(-1).id === "join"
    && scenes.flatMap(({ arrays }) => arrays).every((part) => trace.gradientOf(facts.parts[part]));
  const at = { scene: 0, word: opensWord, head: opensHead, all: false, times: null, cell: null, back: false, expert: false, only: false };
  const scene = () => scenes[at.scene];
  let [playing, steps, beforeBack] = [0, 0, {}];  // of the way back: how many steps, where the reader was before
  const isPhone = () => innerWidth <= 900;

  const set = (cell, value) => page.edit(cell.id, cell.place, value);
  const undo = (cell) => page.undo(cell.id, cell.place);
  const stage = openScene({
    root: byId("stage"), trace, facts, undo,
    unfold(name) {
      go({ times: at.times === name ? null : name, all: false });
      byId("stage").querySelector(`[data-times="${name}"]`).focus();
    },
    choose: (cell) => { at.cell = cell; refresh(); stage.reveal(); },
    change(cell, value) {
      at.cell = cell;
      if (trace.isEditable(trace.arrays[cell.id], cell.place)) set(cell, value);
    },
  });
  const panel = openNumber({
    root: byId("panel"), facts, stage, panel: page.panel, close: letGo,
    open: ({ id, place }) => { go({ expert: true }); page.open(id, place); },
  });
  const cellOf = (part, i, j, head = at.head) => {
    const { array, place } = facts.matrix(part, head);
    return { part, id: array.id, place: place(i, j), i, j, head };
  };

  // --- one change for each scene that shows what it is about: {label, watch, cell, value} or {label, watch, gate}

  const argmax = (numbers, size = Math.abs) => numbers.reduce((best, v, j) => (size(v) > size(numbers[best]) ? j : best), 0);
  const word = (name) => element("b", "w", name);
  const tried = {};  // by scene, word and head

  function tryOf() {
    const [{ id }, { word: i, head: h }] = [scene(), at];
    const row = (part, j = i) => facts.matrix(part, h).row(j);
    const called = (part, n) => facts.called(facts.columns(part, h)[n]);
    const offer = (part, j, n, value, label, watch) => ({ cell: cellOf(part, j, n), value, label, watch });
    const [me, names] = [word(words[i]), told.sourceTokens.map(word)];
    const scores = row("scores");
    const seen = [...scores.keys()].filter((j) => !facts.isHidden(h, i, j)).sort((a, b) => scores[b] - scores[a] || a - b);
    const [best, next] = seen;
    const tenths = (value) => Math.round(10 * value) / 10;
    const wish = meaning && canReturn ? row("d_out", meaning.asker) : [];
    const [up, down] = [1, -1].map((sign) => argmax(wish, (v) => sign * v));
    if (id === "words" && wish.length) {
      const rival = argmax(words.map((_, j) => row("x", j)[down]), Number);
      return offer("x", rival, up, 1, ["make ", names[rival], ` ${called("x", up)}`], ["where ", word(words[meaning.asker]), " looks"]);
    }
    if (id === "words") {
      const n = argmax(row("x"));
      return offer("x", i, n, -row("x")[n], [`turn ${called("x", n)} of `, me, " into its opposite"], ["where it looks"]);
    }
    if (id === "roles") {
      const away = wish.length ? facts.columns("q", h).indexOf(meaning.features[down]) : -1;
      if (away >= 0) return offer("q", i, away, 2, ["let ", me, ` ask for ${called("q", away)}`], ["where it looks"]);
      const n = argmax(row("q"));
      return offer("q", i, n, -row("q")[n], ["let ", me, ` ask for the opposite of ${called("q", n)}`], ["where it looks"]);
    }
    if (id === "join") {
      return facts.heads > 1 && controls.get("heads") ? { gate: h, label: [`switch off head ${h}`], watch: ["the new row"] } : null;
    }
    if (next === undefined) return null;
    if (id === "scores") return offer("scores", i, next, tenths(scores[best] + 1), ["give ", names[next], " the highest score"], ["its share"]);
    if (id === "weights") return offer("scores", i, best, tenths(scores[best] - 3), ["lower the score of ", names[best], " by 3"], ["who gets its share"]);
    const from = seen.find((j) => row("v", j).some(Boolean)) ?? best;
    const n = argmax(row("v", from));
    return offer("v", from, n, 2 * row("v", from)[n], ["let ", names[from], ` give twice as much ${called("v", n)}`], ["what ", me, " receives"]);
  }

  function showTry() {
    const [button, key] = [byId("try"), [scene().id, at.word, at.head].join()];
    const gates = controls.get("heads");
    const isDone = ({ cell, gate, value }, isOurs) => (cell
      ? trace.arrays[cell.id].edits.has(cell.place) && (isOurs || trace.arrays[cell.id].data[cell.place] === value) : !gates[gate]);
    const offer = at.back || !trace.isLive ? null : tried[key] && isDone(tried[key], true) ? tried[key] : tryOf();
    button.hidden = !offer;
    if (!offer) return;
    const undoes = isDone(offer, offer === tried[key]);
    button.classList.toggle("done", undoes);
    button.replaceChildren(undoes ? "Undo: " : "Try: ", ...offer.label, ...(undoes ? [] : [", and watch ", ...offer.watch]));
    button.onclick = () => {
      tried[key] = offer;
      if (!offer.cell) return controls.set("heads", gates.with(offer.gate, Number(undoes)));
      if (!stage.has(offer.cell)) go({ all: false, times: null });
      at.cell = isPhone() ? null : offer.cell;  // a sheet would hide what changes
      from = stage.at(offer.cell);
      if (undoes) undo(offer.cell);
      else set(offer.cell, offer.value);
    };
  }

  // --- options of the layer, each in the scene it belongs to

  function showOptions() {
    const box = byId("options");
    const { id } = scene();
    const made = [];
    const label = (input, ...words) => made.push(element("label", "", input, element("span", "", ...words)));
    const input = (type, more) => Object.assign(document.createElement("input"), { type, ...more });
    if (trace.isLive && id === "weights") {
      const causal = controls.get("causal");
      if (causal !== undefined) {
        const box = input("checkbox", { checked: causal, onchange: () => controls.set("causal", box.checked) });
        label(box, element("span", "extra", "hide later words: "), "causal");
      }
      const scale = controls.get("scale");
      if (scale !== undefined) {
        const most = Math.max(2, 4 * stage.first[trace.byName.get("scale")][0]);
        const range = input("range", { min: 0, max: most, step: 0.01, value: scale, oninput: () => controls.set("scale", Number(range.value)) });
        label(range, "scale ", element("output", "", facts.number(scale)));
      }
    }
    const gates = trace.isLive && id === "join" && facts.heads > 1 ? controls.get("heads") : null;
    (gates ?? []).forEach((gate, h) => {
      const box = input("checkbox", { checked: gate !== 0, onchange: () => controls.set("heads", gates.with(h, Number(box.checked))) });
      label(box, `head ${h}`);
    });
    const mine = trace.isLive ? data.switches.filter((each) => SWITCHES[each.id] === id) : [];
    const asked = data.switches.find((each) => each.id === controls.chosen());
    if (mine.length) {
      const menu = element("select", "", new Option("What if ...?", ""), ...mine.map((each) => new Option(each.label, each.id)));
      menu.value = mine.includes(asked) ? asked.id : "";
      menu.setAttribute("aria-label", "What if ...?");
      menu.onchange = () => page.setSwitch(menu.value || null);
      made.push(menu);
      if (mine.includes(asked)) made.push(element("p", "", element("b", "", asked.question), ` ${asked.says}`));
    }
    const kept = box.dataset.of === id && box.contains(document.activeElement) ? document.activeElement : null;
    box.dataset.of = id;
    if (kept?.type === "range") {  // it stays in the hand
      box.querySelector("output").textContent = facts.number(controls.get("scale"));
      return;
    }
    const place = kept ? [...box.querySelectorAll("input, select")].indexOf(kept) : -1;
    box.replaceChildren(...made);
    box.querySelectorAll("input, select")[place]?.focus();
  }

  // --- the wish

  const moved = ["w_q", "w_k"].map((name) => trace.arrays[trace.byName.get(name)]);
  const canStep = canReturn && trace.isLive && moved.every((array) => array && !array.tree);
  const steepest = () => Math.max(1e-9, ...moved.flatMap((array) => [...trace.gradientOf(array).data].map(Math.abs)));
  const rate = canStep ? 0.1 / steepest() : 0;  // the first step moves no number by more than 0.1

  function step() {
    steps += 1;
    page.changed(() => {
      const moves = moved.map((array) => {
        const slopes = trace.gradientOf(array).data;
        return [array.id, [...array.data].map((value, place) => [place, value + rate * slopes[place]])];
      });
      for (const [id, pairs] of moves) trace.setMany(id, pairs);
    });
  }

  function showGoal() {
    byId("goal").hidden = byId("aim").hidden = !at.back;
    if (!at.back) return;
    const home = byId(isPhone() ? "goal" : "says");  // beside the sentence, or where a sheet leaves it in sight
    if (!home.contains(byId("aim")) && home.nextSibling !== byId("aim")) home[isPhone() ? "prepend" : "after"](byId("aim"));
    const goal = trace.loss();
    const find = (selector) => root.querySelector(`:is(#story-goal, #story-aim) ${selector}`);
    const [wish, row] = ["d_out", "out"].map((part) => facts.matrix(part, 0).row(facts.asker()));
    const terms = [...wish.keys()].filter((c) => wish[c]);
    const three = (value) => Number(value.toFixed(3));
    const isExact = Math.abs(terms.reduce((sum, c) => sum + wish[c] * three(row[c]), -three(goal))) < 1e-9;
    const sum = terms.map((c, n) => `${n ? (wish[c] < 0 ? " − " : " + ") : ""}${facts.fixed(row[c], 3).replace(/^−.*/, "($&)")}`).join("");
    if (moved.every((array) => !array?.edits.size)) steps = 0;
    find(".goal").replaceChildren("Goal", ...(meaning ? [" for ", word(words[meaning.asker]), `: ${meaning.goal} = `] : [": a larger sum of d_out · out. Now it is "]),
      element("span", "sum", ...(meaning ? [`${sum} ${isExact ? "=" : "≈"} `] : []), element("strong", "", facts.fixed(goal, 3)), "."));
    find(".meter").hidden = !meaning;
    find(".meter i").style.width = `${100 * Math.min(1, Math.max(0, goal))}%`;
    find(".step").hidden = !canStep;
    const isChanged = trace.isEdited() || controls.chosen();
    find(".again").disabled = !isChanged;
    const [short, long] = steps ? [`You have taken ${steps} ${steps === 1 ? "step" : "steps"}`, " along the slopes of w_q and w_k."]
      : ["▲ should rise, ▼ should fall", "; a larger arrow matters more."];
    byId("steps").replaceChildren(short, element("span", "extra", long, isChanged ? " Start again also undoes your own changes." : ""));
  }

  // --- where the word looks: arcs over the sentence, those of a second head below it

  const sides = String(words) !== String(told.sourceTokens) ? [] : facts.heads === 2 ? [() => 0, () => 1] : [() => at.head];
  const arcs = inSvg("svg", { "aria-hidden": true }, ...sides.flatMap(() => words.map(() => inSvg("path", {}))));
  function showArcs() {
    const labels = [...byId("words").querySelectorAll("label")];
    const room = parseFloat(getComputedStyle(byId("words")).paddingTop);
    const middles = labels.map(({ offsetLeft, offsetWidth }) => offsetLeft + offsetWidth / 2);
    sides.forEach((headOf, side) => facts.matrix("weights", headOf()).row(at.word).forEach((share, j) => {
      const path = arcs.children[side * words.length + j];
      const [start, end] = j === at.word ? [middles[j] - 9, middles[j] + 9] : [middles[at.word], middles[j]];
      const high = Math.min(room - 4, 0.3 * room + 0.2 * Math.abs(end - start)) * 4 / 3;
      const [y, top] = side ? [room + labels[0].offsetHeight - 5, room + labels[0].offsetHeight + high] : [room + 5, room - high];
      path.setAttribute("d", `M${start} ${y}C${start} ${top} ${end} ${top} ${end} ${y}`);
      path.setAttribute("class", `head-${headOf() % 8}${byId("heads").hidden || headOf() === at.head ? "" : " faint"}`);
      path.style.setProperty("--v", share < 0.005 ? 0 : share);
    }));
  }

  // --- painting

  let from = null;  // what the reader changed, where it is not the chosen cell
  const isSmall = (all) => stage.countCells(facts.tables(scene(), at, all)) <= MOST_CELLS;
  const showsAll = () => ((scene().id === "words" && !isWide) || at.all) && isSmall(true);
  const highOf = (each) => facts.tables(each, { ...at, times: null }, each.id === "words" && !isWide)
    .reduce((sum, { rows }) => sum + rows.filter(Boolean).length, 0);
  const changedScenes = () => scenes.filter(({ arrays }) => arrays.some((part) => facts.parts[part]
    && facts.parts[part].data.some((_, place) => stage.isMoved({ id: facts.parts[part].id, place }))));

  function refresh() {
    const changed = changedScenes();
    byId("says").replaceChildren(...facts.says(scene(), at, showsAll()).map(stage.piece));
    panel.show(at.cell, at.back, changed.map(({ name }) => name));
    const start = Math.max(0, scenes.findIndex((each) => changed.includes(each)));
    const reached = [];
    [...byId("scenes").children].forEach((item, n) => {
      if (changed.includes(scenes[n]) && n > at.scene && !item.classList.contains("moved")) reached.push(item.firstChild);
      item.classList.toggle("moved", changed.includes(scenes[n]));
      item.style.setProperty("--wait", `${Math.max(0, n - start) * 140}ms`);
      item.firstChild.setAttribute("aria-label", `Scene ${n + 1}: ${scenes[n].name}${changed.includes(scenes[n]) ? ", changed" : ""}`);
    });
    root.classList.toggle("choosing", Boolean(at.cell));
    stage.paint({ ...at, from, also: at.only ? [] : reached });
    from = null;
    showTry();
    showOptions();
    showGoal();
    showArcs();
  }

  const uniqueWord = (i) => (words.indexOf(words[i]) === words.lastIndexOf(words[i]) && words[i][0] !== "@" ? words[i] : `@${i}`);
  function showAddress() {
    if (at.expert) return;
    const address = [scene().id, encodeURIComponent(uniqueWord(at.word)), at.head, ...(at.back ? ["back"] : []), ...(at.only ? ["only"] : [])].join("/");
    try { history.replaceState(null, "", `#${address}`); } catch { /* a frame has no address */ }
  }

  function go(to, { isMoving = true } = {}) {
    const before = { ...at };
    Object.assign(at, to);
    if (at.scene !== before.scene || at.all) at.times = null;
    if (["scene", "word", "head", "all", "back", "times"].some((name) => at[name] !== before[name])) {
      at.cell = to.cell ?? null;
    }
    byId("main").hidden = at.expert;
    root.querySelector(".scrub").hidden = root.querySelector(".who").hidden = at.expert;
    for (const section of document.querySelectorAll("#page, #train")) section.hidden = !at.expert;
    byId("expert").setAttribute("aria-pressed", String(at.expert));
    byId("expert").textContent = at.expert ? "The story" : "All arrays";
    root.classList.toggle("back", at.back);
    root.classList.toggle("only", at.only);
    const { id, name, title, back, arrays } = scene();
    byId("step").replaceChildren(`${at.back ? "Backward" : "Forward"} · ${at.scene + 1} of ${scenes.length} · `, element("code", "", arrays.map((part) => facts.parts[part].name).join(", ")));
    byId("title").textContent = at.back ? back : title;
    byId("note").hidden = !told.note || at.back || at.scene > 0;
    byId("heads").hidden = facts.heads === 1 || id === "words" || id === "join";
    byId("extent").hidden = words.length === 1 || (id === "words" && !isWide) || !isSmall(true);
    const asked = byId("words").querySelectorAll("input")[at.word];
    asked.checked = true;
    byId("words").scrollLeft = asked.parentElement.offsetLeft - byId("words").offsetLeft - 60;
    byId("heads").querySelectorAll("input")[at.head].checked = true;
    byId("extent").querySelectorAll("input")[Number(at.all)].checked = true;
    [...byId("scenes").children].forEach((item, n) => {
      item.classList.toggle("done", at.back ? n > at.scene : n < at.scene);
      item.firstChild.ariaCurrent = n === at.scene ? "step" : null;
    });
    byId("now").textContent = name;
    byId("previous").disabled = at.scene === 0;
    byId("next").disabled = at.scene === last && !leadsBack();
    byId("next").setAttribute("aria-label", leadsBack() ? "The way back" : "Next scene");
    byId("back").checked = at.back;
    if (!at.expert) {
      at.room = byId("stage").clientWidth;
      stage.show(facts.tables(scene(), at, showsAll()), isMoving, at.times, Math.max(...scenes.map(highOf)));
      refresh();
    }
    showAddress();
  }

  function letGo() {
    const { cell } = at;
    at.cell = null;
    refresh();
    if (cell) stage.focus(stage.keyOf(cell), { preventScroll: true });
  }

  // --- the bars above and below

  function choices(box, name, labels, act) {
    box.replaceChildren(...labels.map(([content, kind], n) => {
      const input = Object.assign(document.createElement("input"), { type: "radio", name: `story-${name}`, value: n });
      input.addEventListener("change", () => act(n));
      return element("label", kind ?? "", input, element("span", "", ...content));
    }));
  }
  const isMany = facts.heads > 4;  // their numbers are enough then
  choices(byId("words"), "word", words.map((each, i) => [[meaning?.written?.[i] ?? each]]), (n) => go({ word: n }));
  byId("words").append(arcs);
  choices(byId("heads"), "head", [...Array(facts.heads).keys()].map((h) => [[
    element("i", "mark", SHAPES[h] ?? String(h)), element("span", isMany ? "spoken" : "", `Head ${h}`),
    element("span", "extra", meaning ? `: ${meaning.heads[h]}` : ""),
  ], `head-${h % 8}`]), (n) => go({ head: n }));
  choices(byId("extent"), "extent", [[["one word"]], [["all words"]]], (n) => go({ all: Boolean(n) }));
  byId("note").textContent = told.note;
  byId("wish").hidden = !canReturn;
  byId("scenes").replaceChildren(...scenes.map((each, n) => {
    const button = Object.assign(element("button", "", element("span", "", each.name)), { type: "button" });
    button.addEventListener("click", () => go({ scene: n }));
    return element("li", "", button);
  }));

  function turnRound(isBack) {
    if (isBack) beforeBack = { scene: at.scene, word: at.word, head: at.head, all: at.all };
    go(isBack ? { back: true, scene: last, word: facts.asker(), head: opensHead, all: false } : { ...beforeBack, back: false });
  }
  const leadsBack = () => at.scene === last && !at.back && canReturn;
  const turn = (by) => (by > 0 && leadsBack() ? turnRound(true) : go({ scene: Math.min(last, Math.max(0, at.scene + by)) }));
  function stop() {
    clearInterval(playing);
    playing = 0;
    byId("play").textContent = "▶";
    byId("play").setAttribute("aria-label", "Play the story");
  }
  function play() {
    if (playing) return stop();
    const [by, end] = at.back ? [-1, 0] : [1, last];
    if (at.scene === end) go({ scene: last - end });
    byId("play").textContent = "❚❚";
    byId("play").setAttribute("aria-label", "Pause");
    playing = setInterval(() => {
      turn(by);
      if (at.scene === end) stop();
    }, PLAY);
  }
  byId("previous").addEventListener("click", () => turn(-1));
  byId("next").addEventListener("click", () => turn(1));
  byId("play").addEventListener("click", play);
  byId("expert").addEventListener("click", () => go({ expert: !at.expert }));
  byId("back").addEventListener("change", ({ target }) => {
    turnRound(target.checked);
  });
  for (const [name, act] of [[".step", step], [".again", page.reset]]) {
    byId("goal").querySelector(name).addEventListener("click", ({ target }) => { from = target; act(); });
  }
  addEventListener("pointerdown", ({ target }) => { if (playing && !target.closest?.("#story-play")) stop(); });
  document.addEventListener("keydown", (event) => {
    if (at.expert || event.ctrlKey || event.metaKey || event.altKey) return;
    if (playing && event.target.id !== "story-play") stop();
    if (event.target.matches?.('input[type="number"], select')) return;
    const isOurs = !event.target.matches?.("input, .cell");
    const by = { n: 1, p: -1, ...(isOurs && { ArrowRight: 1, ArrowLeft: -1 }) }[event.key];
    if (by && !at.only) turn(by);
    if (event.key === "Escape" && at.cell) {
      letGo();
      document.activeElement.blur();  // so that arrows change the scene again
    }
  });

  // --- the start

  page.change(() => { if (!at.expert) refresh(); });
  const isFramed = parent !== window;
  root.classList.toggle("framed", isFramed);
  const tellHeight = () => { if (isFramed) askForHeight(at.expert ? 960 : root.offsetHeight); };
  const sizes = new ResizeObserver(() => {
    for (const [name, selector] of Object.entries({ top: ".story-top", wish: "#story-wish", scrub: ".scrub" })) {
      root.style.setProperty(`--${name}`, `${root.querySelector(selector).offsetHeight}px`);
    }
    if (!at.expert && scene().wide.length && at.room !== byId("stage").clientWidth) go({}, { isMoving: false });
    if (!at.expert) { stage.fit(); stage.paint(at); showArcs(); }
    tellHeight();
  });
  for (const name of ["main", "says", "wish", "options"]) sizes.observe(byId(name));
  for (const label of byId("words").querySelectorAll("label")) sizes.observe(label);  // a font arrives late
  function read() {
    const hash = decodeURI(location.hash.slice(1));
    if (hash && !hash.includes("/") && trace.byName.has(hash)) return { expert: true };
    const [id, name = "", head, ...ways] = hash.split("/").map(decodeURIComponent);
    const n = name[0] === "@" ? Number(name.slice(1)) : words.indexOf(name);
    return {
      expert: false, scene: Math.max(0, scenes.findIndex((each) => each.id === id)),
      word: words[n] === undefined ? opensWord : n, head: Number(head) < facts.heads ? Number(head) : opensHead,
      back: ways.includes("back") && canReturn, only: ways.includes("only"),
    };
  }
  addEventListener("hashchange", () => go(read()));
  root.hidden = false;
  go(read(), { isMoving: false });
  return { go, at };
}
