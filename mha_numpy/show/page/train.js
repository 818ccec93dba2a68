// The place where a head learns before the reader's eyes: a guess, the weights, the loss.
//
// Nothing is computed here, and nothing is said that is not read off the head.

function startTraining(section, data, seed = 0) {
  const training = openTraining(data, seed);
  const { sequences, tokens, values, chance } = training;
  const numParams = training.params.reduce((count, { numbers }) => count + numbers.length, 0);
  const EXAMPLE = [3, 1, 4, 1, 5, 9, 2, 6].slice(0, tokens);
  const RECENT = 10;  // steps whose shares of right digits are averaged
  const LEARNED = { right: 0.99, antidiagonal: 0.95 };
  const FOUND = 0.5;  // the share from which on a row has found its place
  const PACE = { dull: 90, slow: 26 };  // steps per second: slow while the pattern appears
  const OFTEN = 20;  // steps between two sentences while nothing is found

  const level = section.matches("main") ? "h1" : "h2";  // by itself, or below the arrays
  section.ariaLabel = "Watch a head learn";
  section.innerHTML = `
    <${level}>Watch a head learn</${level}>
    <p class="train-intro">A single head reads ${tokens} digits and has to say them backwards, one per row. Its ${numParams}
      params start out random. Nobody tells it where to look.</p>
    <div class="train-stage">
      <div class="train-guess"><p id="train-asked" aria-live="polite"></p><div role="radiogroup" aria-labelledby="train-asked"></div></div>
      <div class="train-bar">
        <div class="train-buttons">
          <button type="button" class="train-start">Start</button>
          <button type="button" class="train-once">One step</button>
          <button type="button" class="train-forget">Start again</button>
        </div>
        <p class="train-numbers"></p>
      </div>
      <p class="train-told" aria-live="polite"></p>
      <figure class="train-seen"><figcaption><b>weights</b>: which digit above does each row look at?</figcaption><div class="train-weights"></div>
        <label>Try other digits <input type="text" class="train-digits" inputmode="numeric" maxlength="${tokens}" size="${tokens}" autocomplete="off"></label></figure>
      <figure class="train-cost"><figcaption><b>loss</b>: how wrong its answers are. Dashed: guessing, ln ${values}.</figcaption>
        <div class="train-loss"></div></figure>
    </div>
    <details class="train-maps"><summary>What it passes on: <code>w_v @ w_o</code></summary>
      <p>Row 3 shows what reading a 3 does to the answer: a filled cell is a vote for saying that digit, a ring a vote
        against. Once the head has learned, each digit’s strongest vote is for itself.</p>
      <div class="train-passed"></div></details>
    <details class="train-how"><summary>What a step does</summary><p>It draws ${sequences} new rows of digits and computes
      the loss of the head’s answers. The backward pass finds the slope of the loss for each param. Adam then moves each
      param against the running mean of its slopes: by about the learning rate if they agree, by less if they don’t. The
      loss may rise for a step, because each step sees new digits. Your browser computes all of it.</p>
      <label>Learning rate <input type="range" class="train-rate" min="-4" max="-0.5" step="0.25">
        <output class="train-rate-told"></output></label></details>`;
  const find = (name) => section.querySelector(`.train-${name}`);

  let example = EXAMPLE;
  let guess = null;  // the place that the reader expects the asked row to look at
  let [history, isRunning, learnedAt, found, told] = [[], false, null, new Map(), null];

  const rate = () => 10 ** Number(find("rate").value);
  const recent = () => history.slice(-RECENT);
  const shareRight = () => recent().reduce((sum, { right }) => sum + right, 0) / recent().length;
  const mirrored = (t) => tokens - 1 - t;
  const wanted = () => example.toReversed();
    const ordinal = (n) => `${n + 1}${["st", "nd", "rd"][n] ?? "th"}`;
  const percent = (share) => `${Math.round(100 * share)}%`;

  // -- what the page says

  // The row that the reader is asked about: the first whose digit stands at two places.
  const isTwice = (digit) => example.indexOf(digit) !== example.lastIndexOf(digit);
  const askedRow = () => Math.max(0, wanted().findIndex(isTwice));

  function question(reading) {
    const row = askedRow();
    const digit = wanted()[row];
    if (!learnedAt) {
      return guess !== null ? `Your guess: the outlined row will look at the ${ordinal(guess)} place. Watch the dashed cell.`
        : `It should say ${wanted().join("")}. The outlined row has to say ${digit}. Which ${isTwice(digit) ? `of the ${digit}s` : "digit"} will it look at?`;
    }
    const seen = reading.weights.slice(row * tokens, (row + 1) * tokens);
    const place = seen.indexOf(Math.max(...seen));
    return (guess === null ? "" : `Your guess: the ${ordinal(guess)} place.\n`) +
      `What happened: the outlined row went for the ${example[place]} in ${ordinal(place)} place (${percent(seen[place])}).\n` +
      `Only the ${ordinal(mirrored(row))} place works whatever the digits are.`;
  }

  function status(reading) {
    const most = percent(Math.max(...reading.weights));
    if (!history.length) {
      const right = reading.said.filter((digit, t) => digit === wanted()[t]).length;
      return `With random params it looks a little at everything: no weight is above ${most}.
        ${right || "None"} of its ${tokens} digits ${right > 1 ? "are" : "is"} right.`;
    }
    if (learnedAt) {
      const rows = found.size === tokens ? "every row looks" : `${found.size} of ${tokens} rows look`;
      return `Step ${learnedAt}: ${rows} at the mirrored place. This diagonal, from top right to bottom left, is a
        rule that nobody wrote down. Training found it.`;
    }
    if (found.size) {
      const [row, at] = [...found].at(-1);
      return `Step ${at}: the ${ordinal(row)} row has found its digit, in ${ordinal(mirrored(row))} place. ` +
        (found.size > 1 ? `${found.size} of the ${tokens} rows have found theirs.` : "It is the first.");
    }
    if (history.length > 600) return "It should have learned by now. Start again with a learning rate near 0.003.";
    return `Step ${history.length}: ` + (shareRight() < 2 / values ? "it still guesses. " : "it does better than guessing. ") +
      `${percent(shareRight())} of its digits are right, and no weight is above ${most}.`;
  }

  function tell(reading) {
    for (let t = 0; t < tokens; t++) {
      if (reading.weights[t * tokens + mirrored(t)] < FOUND) found.delete(t);
      else if (!found.has(t)) found.set(t, history.length);
    }
    const about = [learnedAt, found.size, Math.floor(history.length / OFTEN), example].join();
    if (told !== about || !isRunning) find("told").textContent = status(reading).replace(/\s+/g, " ");
    told = about;
    const asked = question(reading);
    if (find("guess").firstChild.textContent !== asked) find("guess").firstChild.textContent = asked;
    find("guess").lastChild.hidden = history.length > 0;
    for (const row of section.querySelectorAll(".train-weights tbody tr")) {
      row.classList.toggle("asked", row.rowIndex === askedRow() + 1);
      for (const cell of row.cells) cell.classList.toggle("guess", row.matches(".asked") && guess !== null && cell.cellIndex === guess + 1);
    }
    const last = history.at(-1);
    find("numbers").textContent = last
      ? `step ${last.step} · loss ${last.loss.toFixed(2)} · ${percent(shareRight())} right`
      : `step 0 · guessing: loss ${chance.toFixed(2)} · ${percent(1 / values)} right`;
    find("start").textContent = isRunning ? "Pause" : history.length ? "Continue" : "Start";
    find("start").classList.toggle("first", !learnedAt && (guess !== null || history.length > 0));
    find("forget").hidden = !history.length;
    find("rate-told").textContent = Number(rate().toPrecision(2));
  }

  function offerGuesses() {
    guess = null;
    find("guess").lastChild.replaceChildren(...example.map((digit, n) => {
      const choice = Object.assign(element("input"), { type: "radio", name: "train-guess", ariaLabel: `${digit}, at place ${n + 1}` });
      choice.addEventListener("change", () => { guess = n; draw(); });
      return element("label", "", choice, element("span", "", String(digit)));
    }));
  }

  // -- what is drawn

  const weights = openMatrix(find("weights"), (...cell) => weights.choose(...cell), "says");
  const passed = openMatrix(find("passed"), (...cell) => passed.choose(...cell));
  const curve = openCurve(find("loss"), [[], [chance]], { name: "loss", across: "steps", least: 200, lowest: 150 });

  function read(digits) {
    example = digits;
    found = new Map();
    weights.build(example.map(String), undefined, wanted().map(String));
    offerGuesses();
    draw();
  }

  function draw() {
    const reading = training.read(example);
    tell(reading);
    const weight = (i, j) => reading.weights[i * tokens + j];
    weights.show(weight, weight, () => false, "weights", "fill-0");
    reading.said.forEach((digit, t) => weights.end(t, `${digit} ${digit === wanted()[t] ? "✓" : "✗"}`));
    const losses = history.map(({ loss }) => Math.min(loss, 4 * chance));
    curve.show([losses, Array(Math.max(200, losses.length)).fill(chance)]);
    if (!find("maps").open) return;
    const numbers = training.passedOn();
    const most = numbers.reduce((largest, value) => Math.max(largest, Math.abs(value)), 0);
    const passedOn = (i, j) => numbers[i * values + j];
    passed.show(passedOn, (i, j) => passedOn(i, j) / most, () => false, "w_v @ w_o", "head-0");
  }

  // -- what the reader does

  function takeStep() {
    history.push(training.learn(rate()));
    if (learnedAt || history.length < RECENT || shareRight() < LEARNED.right) return;
    if (training.read(example).antidiagonal < LEARNED.antidiagonal) return;
    learnedAt = history.length;  // once: the reader may go on
    isRunning = false;
    find("maps").open = true;
    section.dispatchEvent(new Event("learned", { bubbles: true }));
  }

  let [before, due] = [0, 0];
  function frame(now) {
    if (!isRunning) return;
    const isDull = !history.length || recent().at(-1).loss > 0.93 * chance;
    due += Math.min(0.1, (now - before) / 1000) * (isDull || learnedAt ? PACE.dull : PACE.slow);
    before = now;
    const steps = history.length;
    for (; due >= 1 && isRunning; due--) takeStep();
    if (history.length > steps) draw();
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
    [history, isRunning, learnedAt] = [[], false, null];
    read(example);
  }

  find("start").addEventListener("click", () => run(!isRunning));
  find("once").addEventListener("click", () => { takeStep(); run(false); });
  find("forget").addEventListener("click", forget);
  find("rate").addEventListener("input", draw);
  find("maps").addEventListener("toggle", draw);
  find("digits").addEventListener("input", ({ target }) => {
    target.value = target.value.replace(/\D/g, "");
    if (target.value.length === tokens) read([...target.value].map(Number));
  });
  find("rate").value = Math.log10(data.learningRate);
  find("digits").value = EXAMPLE.join("");
  passed.build([...Array(values).keys()].map(String));
  read(EXAMPLE);
  return {
    isRunning: () => isRunning, steps: () => history.length, shareRight, learnedAt: () => learnedAt,
  };
}
