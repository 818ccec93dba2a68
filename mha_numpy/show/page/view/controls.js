// The controls: options of the layer, questions ("What if ...?"), Start again, and L.

function openControls({ root, data, trace, change, setSwitch, reset }) {
  const { options } = data;
  const arrayOf = (name) => trace.arrays[trace.byName.get(name)];
  const places = ({ data: now }) => [...now.keys()];
  const initial = trace.loss();
  let chosen = null;

  // The cells of the mask whose key comes after its query.
  function laterKeys() {
    const mask = arrayOf(options.causal.mask);
    return places(mask).filter((place) => {
      const [query, key] = unflatten(place, mask.shape).slice(-2);
      return key > query;
    });
  }

  const known = {
    causal: {
      get: () => laterKeys().every((place) => !arrayOf(options.causal.mask).data[place]),
      set(isOn) {
        const { id, numbers } = arrayOf(options.causal.mask);
        const later = laterKeys();
        const wasGiven = (place) => Boolean(numbers?.[place]);
        const back = later.some(wasGiven) ? wasGiven : () => true;  // other hidden keys stay hidden
        change(id, later.map((place) => [place, Number(!isOn && back(place))]));
      },
    },
    scale: {
      get: () => arrayOf(options.scale).data[0],
      set: (value) => change(arrayOf(options.scale).id, [[0, value]]),
    },
    heads: {
      get: () => [...arrayOf(options.heads).data.slice(0, arrayOf(options.heads).shape.at(-1))],
      set(gates) {
        const gate = arrayOf(options.heads);
        const pairs = places(gate).map((place) => [place, Number(gates[place % gates.length])]);
        change(gate.id, pairs);
      },
    },
  };

  const shown = [];  // what brings the controls up to date
  const input = (type, more) => Object.assign(document.createElement("input"), { type, ...more });

  function checkbox(words, get, set) {
    const box = input("checkbox");
    box.addEventListener("change", () => set(box.checked));
    shown.push(() => { box.checked = get(); });
    return element("label", "", box, ...words);
  }

  function slider(words, { get, set }) {
    const range = input("range", { min: 0, max: Math.max(2, 4 * get()), step: 0.01 });
    const value = element("output");
    range.setAttribute("aria-label", words);
    range.addEventListener("input", () => set(Number(range.value)));
    shown.push(() => {
      range.value = get();
      value.textContent = get().toFixed(2);
    });
    root.append(element("label", "slider", words, range, value));
  }

  function questions() {
    const answers = data.switches.map(({ id, label }) => new Option(label, id));
    const menu = element("select", "", new Option("What if ...?", ""), ...answers);
    const words = document.getElementById("question");
    menu.setAttribute("aria-label", "What if ...?");
    menu.addEventListener("change", () => setSwitch(menu.value || null));
    shown.push(() => {
      menu.value = chosen ?? "";
      const found = data.switches.find(({ id }) => id === chosen);
      words.hidden = !found;
      if (found) words.replaceChildren(element("strong", "", found.question), ` ${found.says}`);
    });
    root.append(menu);
  }

  function resetButton() {
    const button = Object.assign(element("button", "", "Start again"), { type: "button" });
    button.addEventListener("click", reset);
    shown.push(() => { button.disabled = !trace.isEdited() && !chosen; });
    root.append(button);
  }

  function showLoss() {
    const output = Object.assign(element("output"), { id: "loss" });
    shown.push(() => {
      const now = trace.loss();
      const moved = Math.abs(now - initial) > 5e-7 ? ` (${signed(now - initial)})` : "";
      output.title = "L = Σ d_out · out";
      output.replaceChildren(`goal L = ${fixed(now, 3)}`,
        element("strong", "", moved));
    });
    return output;
  }

  if (trace.isLive) {
    if (options.causal) root.append(checkbox(["causal"], known.causal.get, known.causal.set));
    if (options.heads) root.append(...known.heads.get().map((_, head) => checkbox(headKey(head),
      () => known.heads.get()[head] !== 0,
      (isOn) => known.heads.set(known.heads.get().with(head, Number(isOn))))));
    if (options.scale) slider("scale", known.scale);
    if (data.switches.length) questions();
    resetButton();
  } else {
    root.append(element("p", "hint", "You can't change anything here: the page cannot compute all "
      + "of these arrays, so it shows them as they were recorded."));
  }
  if (trace.hasLoss) root.append(showLoss());

  return {
    show: () => shown.forEach((update) => update()),
    set: (name, value) => known[name].set(value),
    get: (name) => (options[name] === undefined ? undefined : known[name].get()),
    choose(id) { chosen = id; },
    chosen: () => chosen,
  };
}
