// The controls: options of the layer, questions ("What if ...?"), Start again, and L.

function openControls({ root, data, trace, change, setSwitch, reset }) {
  const { options } = data;
  const initial = trace.loss();
  let chosen = null;

  // The cells of the mask whose key comes after its query.
  function laterKeys({ data: now, shape }) {
    return [...now.keys()].filter((place) => {
      const [query, key] = unflatten(place, shape).slice(-2);
      return key > query;
    });
  }

  // By its name, what an option is now, and what sets it.
  const known = {
    causal: {
      get: (mask) => laterKeys(mask).every((place) => !mask.data[place]),
      set: (mask, isOn) => {
        const later = laterKeys(mask);
        const wasGiven = (place) => Boolean(mask.numbers?.[place]);
        const back = later.some(wasGiven) ? wasGiven : () => true;  // other hidden keys stay hidden
        return later.map((place) => [place, Number(!isOn && back(place))]);
      },
    },
    scale: { get: ({ data: [scale] }) => scale, set: (scale, value) => [[0, value]] },
    heads: {
      get: ({ data: gates, shape }) => [...gates.slice(0, shape.at(-1))],
      set: ({ data: now }, gates) => [...now.keys()].map((place) => [place, Number(gates[place % gates.length])]),
    },
  };
  const of = (name) => trace.arrays[trace.byName.get(options[name].mask ?? options[name])];
  const get = (name) => (options[name] === undefined ? undefined : known[name].get(of(name)));
  const set = (name, value) => change(of(name).id, known[name].set(of(name), value));

  const shown = [];  // what brings the controls up to date
  const input = (type, more) => Object.assign(document.createElement("input"), { type, ...more });

  function checkbox(words, isOn, act) {
    const box = input("checkbox");
    box.addEventListener("change", () => act(box.checked));
    shown.push(() => { box.checked = isOn(); });
    root.append(element("label", "", box, ...words));
  }

  function slider(name) {
    const range = input("range", { min: 0, max: Math.max(2, 4 * get(name)), step: 0.01, ariaLabel: name });
    const value = element("output");
    range.addEventListener("input", () => set(name, Number(range.value)));
    shown.push(() => {
      range.value = get(name);
      value.textContent = get(name).toFixed(2);
    });
    root.append(element("label", "slider", name, range, value));
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
    const button = Object.assign(element("button", "", "Start again"), { type: "button", onclick: reset });
    shown.push(() => { button.disabled = !trace.isEdited() && !chosen; });
    root.append(button);
  }

  function showLoss() {
    const output = Object.assign(element("output"), { id: "loss", title: "L = Σ d_out · out" });
    shown.push(() => {
      const moved = trace.loss() - initial;
      output.replaceChildren(`goal L = ${fixed(trace.loss(), 3)}`,
        element("strong", "", Math.abs(moved) > 5e-7 ? ` (${signed(moved)})` : ""));
    });
    root.append(output);
  }

  if (trace.isLive) {
    if (options.causal) checkbox(["causal"], () => get("causal"), (isOn) => set("causal", isOn));
    if (options.heads) get("heads").forEach((_, head) => checkbox(headKey(head), () => get("heads")[head] !== 0,
      (isOn) => set("heads", get("heads").with(head, Number(isOn)))));
    if (options.scale) slider("scale");
    if (data.switches.length) questions();
    resetButton();
  } else {
    root.append(element("p", "hint", "You can't change anything here: the page cannot compute all "
      + "of these arrays, so it shows them as they were recorded."));
  }
  if (trace.hasLoss) showLoss();

  return {
    show: () => shown.forEach((update) => update()),
    get, set,
    choose(id) { chosen = id; },
    chosen: () => chosen,
  };
}
