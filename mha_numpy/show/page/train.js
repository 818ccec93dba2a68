// The place where a head learns before the reader's eyes: buttons, the weights, the loss.
//
// A frame takes one training step, so that the page stays alive. Nothing is computed here.

function startTraining(section, data, seed = 0) {
  const training = openTraining(data, seed);
  const { sequences, tokens, values, chance } = training;
  const EXAMPLE = [3, 1, 4, 1, 5, 9, 2, 6].slice(0, tokens);
  const RECENT = 10;  // steps whose shares of right digits are averaged
  const LEARNED = { right: 0.99, antidiagonal: 0.95 };

  const level = section.matches("main") ? "h1" : "h2";  // by itself, or below the arrays
  section.ariaLabel = "Watch a head learn";
  section.innerHTML = `
    <${level}>Watch a head learn</${level}>
    <p class="train-intro">A row of ${tokens} digits comes in, and a single head has to say it backwards. Nobody tells it
      how: its ${countParams()} params start out random, and each step moves them a little.</p>
    <figure class="train-seen"><figcaption><b>weights</b>: how much each row looks at each column. On the right: the digit it says.</figcaption><div class="train-weights"></div></figure>
    <div class="train-do">
      <div class="train-guess"><p id="train-asked"></p><div role="radiogroup" aria-labelledby="train-asked"></div></div>
      <div class="train-bar">
        <div class="train-buttons">
          <button type="button" class="train-start first">Start</button>
          <button type="button" class="train-once">One step</button>
          <button type="button" class="train-forget">Start again</button>
        </div>
        <p class="train-numbers"></p>
      </div>
      <p class="train-told" aria-live="polite"></p>
      <figure class="train-cost"><figcaption><b>loss</b>: how wrong its answers are. Dashed: guessing.</figcaption>
        <div class="train-loss"></div></figure>
      <div class="train-settings">
        <label>learning rate <input type="range" class="train-rate" min="-4" max="-0.5" step="0.25">
          <output class="train-rate-told"></output></label>
        <label>digits to read <input type="text" class="train-digits" inputmode="numeric"
          maxlength="${tokens}" size="${tokens}" autocomplete="off"></label>
      </div>
    </div>
    <figure class="train-maps"><figcaption><b>w_v @ w_o</b>: what the head passes on. Each row is a digit that it reads; a filled cell is a vote for saying that digit, a ring is a vote against.</figcaption><div class="train-passed"></div></figure>
    <details class="train-how"><summary>What a step does</summary><p>It draws ${sequences} new rows of digits and computes the
      loss of the head's answers. The backward pass finds the slope of the loss for each param, and Adam nudges each param a little downhill. Your browser computes all of it.</p></details>`;
  const find = (name) => section.querySelector(`.train-${name}`);

  let example = EXAMPLE;
  let guess = null;  // the column that the reader expects the first row to look at
  let [history, isRunning, learnedAt, seconds] = [[], false, null, 0];

  function countParams() {
    return training.params.reduce((count, { numbers }) => count + numbers.length, 0);
  }
  const rate = () => 10 ** Number(find("rate").value);
  const recent = () => history.slice(-RECENT);
  const shareRight = () => recent().reduce((sum, { right }) => sum + right, 0) / recent().length;
  const wanted = (t) => example[tokens - 1 - t];

  // -- what the page says

  function status(reading) {
    if (!history.length) {
      const right = reading.said.filter((digit, t) => digit === wanted(t)).length;
      return `All params are random, so the head looks a little at everything: no weight is above
        ${percent(Math.max(...reading.weights))}. It says ${reading.said.join("")}, and ${right || "none"} of its
        ${tokens} digits ${right === 1 ? "is" : "are"} right.`;
    }
    if (learnedAt) {
      return `The antidiagonal is there: the first query looks at the last key, the second at the
        last but one, and so on. Nobody wrote this rule down: training found it in ${learnedAt} steps
        and ${seconds.toFixed(0)} seconds. The params are no longer random; only the digits are.`;
    }
    if (reading.antidiagonal > 0.5) {
      return "The antidiagonal appears: most queries already look at the right key.";
    }
    if (history.length > 600) {
      return rate() > 0.01
        ? "These steps are too long, so they jump over the lowest point. Start again with a lower rate."
        : "These steps are tiny, so learning is slow. Try a higher learning rate.";
    }
    return "Each step changes the params a little. Expect a few hundred before a pattern shows in the weights.";
  }

  function askForGuess() {
    const [seen, digit] = [tokens - 1, example[guess]];
    find("guess").firstChild.textContent = guess === null
      ? `It should say ${example.toReversed().join("")}. Which digit will the first row look at, once the head has learned?`
      : !learnedAt ? `You expect the first row to look at ${digit}. Its weight has a dashed frame: watch it.`
        : guess === seen ? `You expected the first row to look at ${digit}, and it does.`
          : `You expected ${digit}, but the first row looks at the last digit, ${example[seen]}: it has to say it first.`;
    section.querySelectorAll(".train-weights tbody tr:first-child td").forEach((cell, n) => cell.classList.toggle("guess", n === guess));
  }

  function offerGuesses() {
    guess = null;
    find("guess").lastChild.replaceChildren(...example.map((digit, n) => {
      const choice = Object.assign(element("input"), { type: "radio", name: "train-guess", ariaLabel: `${digit}, at place ${n + 1}` });
      choice.addEventListener("change", () => { guess = n; askForGuess(); });
      return element("label", "", choice, element("span", "", String(digit)));
    }));
  }

  function tell(reading) {
    askForGuess();
    const told = status(reading).replace(/\s+/g, " ");
    if (find("told").textContent !== told) find("told").textContent = told;
    const last = history.at(-1);
    find("numbers").textContent = last
      ? `step ${last.step} · loss ${last.loss.toFixed(3)} · right ${percent(shareRight())} · ` +
        `on the antidiagonal ${percent(reading.antidiagonal)}`
      : `step 0 · guessing is right ${percent(1 / values)} of the time, with loss ln ${values} = ${chance.toFixed(2)}`;
    find("start").textContent = isRunning ? "Pause" : history.length ? "Continue" : "Start";
    find("rate-told").textContent = Number(rate().toPrecision(2));
  }

  const percent = (share) => `${Math.round(100 * share)}%`;

  // -- what is drawn

  const weights = openMatrix(find("weights"), (...cell) => weights.choose(...cell), "says");
  const passed = openMatrix(find("passed"), (...cell) => passed.choose(...cell));
  const curve = openCurve(find("loss"), [[], [chance]], { name: "loss", across: "steps", least: 100, lowest: 150 });

  function draw() {
    const reading = training.read(example);
    tell(reading);
    const weight = (i, j) => reading.weights[i * tokens + j];
    weights.show(weight, weight, () => false, "weights", "fill-0");
    reading.said.forEach((digit, t) => weights.end(t, `${digit} ${digit === wanted(t) ? "✓" : "✗"}`));
    const numbers = training.passedOn();
    const most = numbers.reduce((largest, value) => Math.max(largest, Math.abs(value)), 0);
    const passedOn = (i, j) => numbers[i * values + j];
    passed.show(passedOn, (i, j) => passedOn(i, j) / most, () => false, "w_v @ w_o", "head-0");
    const losses = history.map(({ loss }) => Math.min(loss, 4 * chance));
    curve.show([losses, Array(Math.max(100, losses.length)).fill(chance)]);
  }

  // -- what the reader does

  function takeStep() {
    history.push(training.learn(rate()));
  }

  function isLearned() {
    if (history.length < RECENT || shareRight() < LEARNED.right) return false;
    return training.read(example).antidiagonal >= LEARNED.antidiagonal;
  }

  let before = 0;
  function frame(now) {
    if (!isRunning) return;
    seconds += Math.min(0.5, (now - before) / 1000);
    before = now;
    takeStep();
    if (!learnedAt && isLearned()) {  // once: the reader may go on
      learnedAt = history.length;
      isRunning = false;
      section.dispatchEvent(new Event("learned", { bubbles: true }));
    }
    if (!isRunning || history.length % 3 === 0) draw();
    requestAnimationFrame(frame);
  }

  function run(isOn) {
    isRunning = isOn;
    draw();
    if (isOn) requestAnimationFrame((now) => { before = now; frame(now); });
  }

  function forget() {
    seed += 1;
    training.forget(seed);
    [history, learnedAt, seconds] = [[], null, 0];
    run(false);
  }

  find("start").addEventListener("click", () => run(!isRunning));
  find("once").addEventListener("click", () => { takeStep(); run(false); });
  find("forget").addEventListener("click", forget);
  find("rate").addEventListener("input", draw);
  find("digits").addEventListener("input", ({ target }) => {
    const digits = [...target.value].filter((character) => character >= "0" && character <= "9");
    target.value = digits.join("");
    if (digits.length === tokens) {
      example = digits.map(Number);
      weights.build(digits);
      offerGuesses();
      draw();
    }
  });
  find("rate").value = Math.log10(data.learningRate);
  find("digits").value = EXAMPLE.join("");
  weights.build(EXAMPLE.map(String));
  offerGuesses();
  passed.build([...Array(values).keys()].map(String));
  draw();
  return {
    training,
    isRunning: () => isRunning,
    steps: () => history.length,
    losses: () => history.map(({ loss }) => loss),
    shareRight, learnedAt: () => learnedAt, seconds: () => seconds,
  };
}
