// What changes without a head: one by one, in three ways, and one after the other.

// What is measured; see VectorChange and LossChange.
const MEASURES = {
  vectors: {
    unit: "change",
    about: `To find out, silence a head and see how far that turns the vector in which the model sums up a text: 0 is not at
      all, 1 is a right angle. Texts of like meaning have vectors of like direction, so a model that turns them gets wrong
      which texts are alike.`,
    measure: `The model computes a vector for each text: the mean of its words’ last hidden states, scaled to length 1.
      The change is 1 − the cosine between the vector without the head and the vector of the whole model, on average
      over the texts.`,
    gradient: `With all heads on, the change is 0, its minimum, so its gradient is 0, too, and tells us nothing. We differentiate the vector
      instead and take half of |its slope over the head’s gate|², which is what the change would be if the slope stayed
      constant. A vector of more than 32 numbers is estimated along 32 random directions, and may be a quarter off. This
      slope decides which head goes first; a cut is not a small change, so compare the two (Michel 2019).`,
    mean: "In the last layer this changes less, because a text’s vector is itself a mean over its words.",
  },
  loss: {
    unit: "growth of the loss",
    about: `To find out, silence a head and see how much worse the model predicts each next word: how much its loss
      grows. Where the loss shrinks, the number is negative.`,
    measure: "The loss is the mean cross-entropy of each next token, in nats per token.",
    gradient: `|The slope of the loss over the head’s gate|, computed for each text and summed: how much the loss would
      change if the slope stayed constant. This slope decides which head goes first; a cut is not a small change, so
      compare the two (Michel 2019).`,
    mean: "",
  },
};

const small = (value) => (value === 0 ? "0" : Number(value.toPrecision(2)).toString().replace("-", "−"));

// `pick` opens a head. Returns what marks the head that is open.
function openCuts({ worth, heads }, pick) {
  const byId = (id) => document.getElementById(id);
  const words = MEASURES[worth.kind];
  const most = Math.max(...["zero", "gradient", "mean"].flatMap((kind) => worth[kind].flat()).map(Math.abs)) || 1;
  const count = worth.order.length;
  const numberOf = new Map(worth.order.map(([l, h], n) => [`${l} ${h}`, n + 1]));
  const others = {
    mean: ["Replace its output by its mean", `Instead of nothing, the head writes the same for every word: its mean over these
      texts. Later layers are used to that. ${words.mean}`],
    gradient: ["By the slope", words.gradient],
  };

  byId("worth-about").textContent = words.about;
  byId("measure").textContent = words.measure;
  byId("worth-scale").textContent = `In all these pictures full colour is ${small(most)}, and colour grows with the ` +
    "square root, so that you can see small changes. Rings mark negative numbers.";

  function drawGrid(root, kind, name) {
    const grid = openGrid(root, heads, `${name}: ${words.unit}`, {
      pick, point: (l, h) => {
        byId("worth-told").textContent = `Without ${nameOf(l, h)}: ${words.unit} ${small(worth.zero[l][h])}. It would ` +
          `go as number ${numberOf.get(`${l} ${h}`)} of ${count}. Click to see what it looks at.`;
      },
    });
    grid.paint((button, l, h) => {
      const change = worth[kind][l][h];
      tint(button, Math.sign(change) * Math.sqrt(Math.abs(change) / most), "plain");
      button.ariaLabel = `${nameOf(l, h)}: ${small(change)}`;
    });
    return grid;
  }

  const zero = drawGrid(byId("zero"), "zero", "Without one head");
  const grids = [zero, ...Object.entries(others).map(([kind, [name, about]]) => {
    const root = element("div", "heads-grid");
    byId("others").append(element("div", "", element("h3", "", name), element("p", "", about), root));
    return drawGrid(root, kind, name);
  })];
  const curve = openCurve(byId("curve"), [worth.curve, worth.random], {
    name: words.unit, across: "number of silent heads", pick: cut,
  });

  function cut(n) {
    byId("cuts").value = n;
    curve.mark(n);
    zero.paint((button, l, h) => button.classList.toggle("cut", numberOf.get(`${l} ${h}`) <= n));
    const told = `${n} of ${count} heads are silent: ${words.unit} ${small(worth.curve[n])}; in a random order it ` +
      `would be ${small(worth.random[n])}.` + (n ? ` The last one was ${nameOf(...worth.order[n - 1])}.` : "");
    byId("cuts-told").textContent = told;
    byId("cuts").setAttribute("aria-valuetext", told);
  }

  byId("cuts").max = count;
  byId("cuts").addEventListener("input", ({ target }) => cut(Number(target.value)));
  const row = (tag, cells) => element("tr", "", ...cells.map((cell) => element(tag, "", cell)));
  byId("curve-numbers").append(element("table", "",
    element("thead", "", row("th", ["silent", "the last one", words.unit, "in a random order"])),
    element("tbody", "", ...worth.curve.map((lost, n) => row("td",
      [String(n), n ? nameOf(...worth.order[n - 1]) : "–", small(lost), small(worth.random[n])])))));
  cut(Math.floor(count / 4));
  return { mark: (l, h) => grids.forEach((grid) => grid.mark(l, h)) };
}
