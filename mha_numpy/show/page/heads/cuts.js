// What changes without a head: one by one, and one after the other.

// What is measured; see VectorChange and LossChange.
const MEASURES = {
  vectors: {
    unit: "change",
    about: `To find out, silence a head. The model sums up each text in one vector. How far does that vector turn when
      the head falls silent? 0 means not at all, 1 means a right angle. Texts that mean similar things have vectors
      pointing in similar directions, so once a vector has turned far, the model no longer knows which texts are alike.`,
    measure: `The model computes a vector for each text: the mean of its words’ last hidden states, scaled to length 1.
      The change is 1 − the cosine between the vector without the head and the vector of the whole model, on average
      over the texts. Which head goes first is estimated from half of |the slope of the vector over the head’s gate|².`,
  },
  loss: {
    unit: "growth of the loss",
    about: `To find out, silence a head and see how much worse the model predicts each next word: how much its loss
      grows. Where the loss shrinks, the number is negative.`,
    measure: `The loss is the mean cross-entropy of each next token, in nats per token. Which head goes first is
      estimated from |the slope of the loss over the head’s gate|.`,
  },
};

const small = (value) => (value === 0 ? "0" : Number(value.toPrecision(2)).toString().replace("-", "−"));

// `pick` opens a head. Returns what marks the open head, and what gives each head its colour.
function openCuts({ worth, heads }, pick) {
  const byId = (id) => document.getElementById(id);
  const words = MEASURES[worth.kind];
  const slider = byId("cuts");
  const most = Math.max(...worth.zero.flat().map(Math.abs)) || 1;
  const count = worth.order.length;
  const numberOf = new Map(worth.order.map(([l, h], n) => [`${l} ${h}`, n + 1]));

  byId("worth-about").textContent = words.about;
  byId("measure").textContent = `${words.measure} Silencing a head isn’t a small change, so its slope can mislead (Michel 2019).
    Full colour is ${small(most)}, and colour grows with the square root of the change. Rings mark negative numbers.`;
  const grid = openGrid(byId("zero"), heads, `Without one head: ${words.unit}`, {
    pick, point: (l, h) => {
      byId("worth-told").textContent = `Without ${nameOf(l, h)}: ${words.unit} ${small(worth.zero[l][h])}. It would ` +
        `go as number ${numberOf.get(`${l} ${h}`)} of ${count}. Click to see what it looks at.`;
    },
  });
  const curve = openCurve(byId("curve"), [worth.curve, worth.random], {
    name: words.unit, across: "number of silent heads", pick: cut,
  });

  function paint(colorOf) {
    grid.paint((button, l, h) => {
      const change = worth.zero[l][h];
      tint(button, Math.sign(change) * Math.sqrt(Math.abs(change) / most), colorName("head", colorOf(l, h)));
      button.ariaLabel = `${nameOf(l, h)}: ${small(change)}`;
    });
  }

  function cut(n) {
    slider.value = n;
    curve.mark(n);
    grid.paint((button, l, h) => button.classList.toggle("cut", numberOf.get(`${l} ${h}`) <= n));
    const told = `${n} of ${count} heads silent. The ${words.unit} is ${small(worth.curve[n])} ` +
      `(${small(worth.random[n])} if you silence them in random order).` + (n ? ` The last one was ${nameOf(...worth.order[n - 1])}.` : "");
    byId("cuts-told").textContent = told;
    slider.setAttribute("aria-valuetext", told);
  }

  slider.max = count;
  slider.addEventListener("input", () => cut(Number(slider.value)));
  cut(0);
  return { mark: grid.mark, paint };
}
