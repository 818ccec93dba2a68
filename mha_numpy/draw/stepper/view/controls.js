// The controls: options of the layer, questions ("What if ...?"), reset, and L.

function openControls({ root, data, trace, change, setSwitch, reset }) {
  const { options } = data;
  const arrayOf = (name) => trace.arrays[trace.byName.get(name)];
  const initial = trace.hasLoss ? trace.loss() : NaN;
  let chosen = null;

  // A mask of causal order: no key after its query.
  function causalMask() {
    const { shape, data: now, numbers } = arrayOf(options.causal.mask);
    const isLater = (place) => { const [i, j] = unflatten(place, shape).slice(-2); return j > i; };
    const later = [...now.keys()].filter(isLater);
    return { later, isOn: later.every((place) => !now[place]), wasGiven: (place) => Boolean(numbers?.[place]) };
  }
  const known = {
    causal: {
      get: () => causalMask().isOn,
      set(isOn) {
        const { later, wasGiven } = causalMask();
        const isBack = later.some(wasGiven) ? wasGiven : () => true;  // what was hidden besides stays so
        change(arrayOf(options.causal.mask).id, later.map((place) => [place, Number(!isOn && isBack(place))]));
      },
    },
    scale: {
      get: () => arrayOf(options.scale).data[0],
      set: (value) => change(arrayOf(options.scale).id, [[0, value]]),
    },
    heads: {
      get: () => { const { data: gates, shape } = arrayOf(options.heads); return [...gates.slice(0, shape.at(-1))]; },
      set(gates) {
        const { id, data: now } = arrayOf(options.heads);
        change(id, [...now.keys()].map((place) => [place, Number(gates[place % gates.length])]));
      },
    },
  };

  const labelled = (words, input) => element("label", "", input, ` ${words}`);
  const input = (type, more) => Object.assign(document.createElement("input"), { type, ...more });
  const shown = [];  // what brings the controls up to date
  function checkbox(words, get, set, color) {
    const box = input("checkbox");
    if (color) box.style.accentColor = color;
    box.addEventListener("change", () => set(box.checked));
    shown.push(() => { box.checked = get(); });
    root.append(labelled(words, box));
  }
  if (trace.isLive && options.causal) checkbox("causal", known.causal.get, known.causal.set);
  if (trace.isLive && options.heads) known.heads.get().forEach((_, head) => checkbox(`head ${head}`,
    () => known.heads.get()[head] !== 0,
    (isOn) => known.heads.set(known.heads.get().map((gate, i) => (i === head ? Number(isOn) : gate))),
    `var(--head-${head % 8})`));
  if (trace.isLive && options.scale) {
    const usual = known.scale.get();
    const slider = input("range", { min: 0, max: Math.max(2, 4 * usual), step: 0.01 });
    slider.setAttribute("aria-label", "scale");
    const value = element("output");
    slider.addEventListener("input", () => known.scale.set(Number(slider.value)));
    shown.push(() => { slider.value = known.scale.get(); value.textContent = known.scale.get().toFixed(2); });
    root.append(element("label", "slider", "scale ", slider, value));
  }
  const answer = document.getElementById("question");
  if (trace.isLive && data.switches?.length) {
    const menu = element("select", "", new Option("What if ...?", ""), ...data.switches.map(({ id, label }) => new Option(label, id)));
    menu.setAttribute("aria-label", "What if ...?");
    menu.addEventListener("change", () => setSwitch(menu.value || null));
    shown.push(() => {
      menu.value = chosen ?? "";
      const found = data.switches.find(({ id }) => id === chosen);
      answer.hidden = !found;
      answer.replaceChildren(...(found ? [element("strong", "", found.question), ` ${found.says}`] : []));
    });
    root.append(menu);
  }
  if (trace.isLive) {
    const button = Object.assign(element("button", "", "reset"), { type: "button" });
    button.addEventListener("click", reset);
    shown.push(() => { button.disabled = !trace.isEdited() && !chosen; });
    root.append(button);
  } else root.append(element("p", "hint", "Nothing can be changed here: the page cannot compute all of these arrays itself, so they are shown as they were recorded."));
  if (trace.hasLoss) {
    const loss = element("output", "loss");
    loss.id = "loss";
    shown.push(() => {
      const now = trace.loss();
      const moved = Math.abs(now - initial) > 5e-7 ? ` (${signed(now - initial)})` : "";
      loss.replaceChildren(`L = Σ d_out · out = ${now < 0 ? "−" : ""}${Math.abs(now).toFixed(3)}`, element("span", "changed", moved));
    });
    root.append(loss);
  }

  return {
    show: () => shown.forEach((update) => update()),
    set: (name, value) => known[name].set(value),
    get: (name) => (options[name] === undefined ? undefined : known[name].get()),
    choose(id) { chosen = id; },
    chosen: () => chosen,
  };
}
