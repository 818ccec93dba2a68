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
    <p class="train-intro">A row of ${tokens} digits comes in, and a single head has to say it backwards. Its params
    start out random. In each step it draws ${sequences} new rows and computes how wrong its answers are (the loss).
    Backward then gives the slope of the loss over each of the ${countParams()} params, and each param moves a little
    downhill. Your browser computes all of it.</p>
    <div class="train-buttons">
      <button type="button" class="train-start first">Start</button>
      <button type="button" class="train-once">One step</button>
      <button type="button" class="train-forget">Start again</button>
    </div>
    <div class="train-settings">
      <label>learning rate <input type="range" class="train-rate" min="-4" max="-0.5" step="0.25">
        <output class="train-rate-told"></output></label>
      <label>digits to read <input type="text" class="train-digits" inputmode="numeric"
        maxlength="${tokens}" size="${tokens}" autocomplete="off"></label>
    </div>
    <p class="train-told" aria-live="polite"></p>
    <p class="train-numbers"></p>
    <div class="train-pictures">
      <figure><figcaption><b>weights</b>: where the head looks. Each row looks at the columns, and its shares sum to 1. On
        the right is the digit that it says.</figcaption><div class="train-weights"></div></figure>
      <figure><figcaption><b>w_v @ w_o</b>: what the head passes on. In the row of the digit that it reads, a filled cell
        speaks for a digit, a ring against it.</figcaption><div class="train-passed"></div></figure>
      <figure><figcaption><b>loss</b> of each batch, before the step that learns from it. Dashed: guessing.</figcaption>
        <div class="train-loss"></div></figure>
    </div>`;
  const find = (name) => section.querySelector(`.train-${name}`);

  let example = EXAMPLE;
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
      return "All params are random. The weights have no pattern, and the answers are guesses.";
    }
    if (learnedAt) {
      return `The antidiagonal is there: the first query looks at the last key, the second at the
        last but one, and so on. Nobody wrote this rule down. Training found it in ${learnedAt} steps
        and ${seconds.toFixed(0)} seconds. The params are learned now; only the digits are random.`;
    }
    if (reading.antidiagonal > 0.5) {
      return "The antidiagonal appears: most queries already look at the right key.";
    }
    if (history.length > 600) {
      return rate() > 0.01
        ? "These steps are too long, so they jump over the lowest point. Start again with a lower rate."
        : "These steps are tiny, so learning is slow. Try a higher learning rate.";
    }
    return "Each step changes the params a little. Look for a pattern in the weights.";
  }

  function tell(reading) {
    const told = status(reading).replace(/\s+/g, " ");
    if (find("told").textContent !== told) find("told").textContent = told;
    const last = history.at(-1);
    find("numbers").textContent = last
      ? `step ${last.step} · loss ${last.loss.toFixed(3)} · right ${percent(shareRight())} · ` +
        `on the antidiagonal ${percent(reading.antidiagonal)}`
      : `step 0 · guessing is right ${percent(1 / values)} of the time and costs ln ${values} = ` +
        `${chance.toFixed(2)} · on the antidiagonal ${percent(reading.antidiagonal)}`;
    find("start").textContent = isRunning ? "Pause" : history.length ? "Continue" : "Start";
    find("rate-told").textContent = Number(rate().toPrecision(2));
  }

  const percent = (share) => `${Math.round(100 * share)}%`;

  // -- what is drawn

  const weights = openMatrix(find("weights"), (...cell) => weights.choose(...cell), "says");
  const passed = openMatrix(find("passed"), (...cell) => passed.choose(...cell));
  const curve = openCurve(find("loss"), [[], [chance]], { name: "loss", across: "steps", least: 100 });

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
      draw();
    }
  });
  find("rate").value = Math.log10(data.learningRate);
  find("digits").value = EXAMPLE.join("");
  weights.build(EXAMPLE.map(String));
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
