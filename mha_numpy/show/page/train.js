// The place where a head learns before the reader's eyes: buttons, the weights, the loss.
//
// A frame takes one training step, so that the page stays alive. Nothing is computed here.

function startTraining(section, data, seed = 0) {
  const training = openTraining(data, seed);
  const { sequences, tokens, values, chance } = training;
  const EXAMPLE = [3, 1, 4, 1, 5, 9, 2, 6].slice(0, tokens);
  const RECENT = 10;  // steps whose shares of right digits are averaged
  const WEIGHTS = { left: 42, top: 40, right: 44, size: tokens };  // margins of a matrix, in pixels
  const PASSED = { left: 42, top: 40, right: 12, size: values };
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
      <figure><canvas class="train-weights" role="img"></canvas>
        <figcaption><b>weights</b>: where the head looks. Row = query, column = key; a row sums to
        1. The digit on the right is the head's answer for that row.</figcaption></figure>
      <figure><canvas class="train-passed" role="img"></canvas>
        <figcaption><b>w_v @ w_o</b>: what the head passes on. Row = the digit it reads, column
        = the digit to say; a filled cell speaks for it, a ring against it.</figcaption></figure>
      <figure><canvas class="train-loss" role="img"></canvas>
        <figcaption><b>loss</b> of each batch, before the step that learns from it.</figcaption></figure>
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
    find("weights").ariaLabel = example.map((digit, t) => {
      const row = Array.from(reading.weights.slice(t * tokens, (t + 1) * tokens));
      const most = row.indexOf(Math.max(...row));
      return `Query ${t} looks most at key ${most}, with ${percent(row[most])} of its weight, and says ` +
        `${reading.said[t]}, which is ${reading.said[t] === wanted(t) ? "right" : "wrong"}.`;
    }).join(" ");
    find("passed").ariaLabel = "Ten digits by ten digits: a trained head passes each digit on.";
    find("loss").ariaLabel = last
      ? `The loss was ${history[0].loss.toFixed(2)} at first and is ${last.loss.toFixed(2)} now.`
      : "No steps yet.";
  }

  const percent = (share) => `${Math.round(100 * share)}%`;

  // -- what is painted

  function paint() {
    const reading = training.read(example);
    tell(reading);
    const color = readColors();
    onCanvas(find("weights"), WEIGHTS, (...place) => paintWeights(...place, reading, color));
    onCanvas(find("passed"), PASSED, (...place) => paintPassed(...place, color));
    onCanvas(find("loss"), null, (...place) => paintLoss(...place, color));
  }

  // A canvas as wide as its place, and as tall as its square cells need.
  function onCanvas(canvas, matrix, draw) {
    const width = canvas.clientWidth;
    const cell = matrix && (width - matrix.left - matrix.right) / matrix.size;
    const height = Math.round(matrix ? matrix.top + matrix.size * cell : 0.62 * width);
    const sharpness = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * sharpness)) {
      canvas.style.height = `${height}px`;
      canvas.width = Math.round(width * sharpness);
      canvas.height = Math.round(height * sharpness);
    }
    const brush = canvas.getContext("2d");
    brush.setTransform(sharpness, 0, 0, sharpness, 0, 0);
    brush.clearRect(0, 0, width, height);
    brush.lastFont = null;
    draw(brush, width, matrix ? cell : height);
  }

  // The cells of a matrix, the head's, with words beside them.
  function paintMatrix(brush, cell, { left, top, size }, { numbers, most, names, color, told, isNumbered }) {
    const look = { most, head: 0, numbers: isNumbered ? writingOf({}, numbers) : () => null };
    numbers.forEach((value, k) =>
      paintCell(brush, color, left + (k % size) * cell, top + Math.floor(k / size) * cell, cell, value, look));
    const soft = { color: color.soft, font: color.sans };
    const middle = (i) => (i + 0.5) * cell;
    names.forEach((name, i) => {
      text(brush, `${name}`, left + middle(i), top - 11, { ...soft, color: color.ink });
      text(brush, `${name}`, left - 12, top + middle(i), { ...soft, color: color.ink });
    });
    text(brush, told.cols, left + size * cell / 2, 10, soft);
    brush.save();
    brush.translate(9, top + size * cell / 2);
    brush.rotate(-Math.PI / 2);
    text(brush, told.rows, 0, 0, soft);
    brush.restore();
  }

  function paintWeights(brush, width, cell, reading, color) {
    paintMatrix(brush, cell, WEIGHTS, {
      names: example, color, numbers: reading.weights, most: 1, isNumbered: true,
      told: { rows: "queries", cols: "keys: the digits it reads" },
    });
    const x = width - WEIGHTS.right / 2;
    text(brush, "says", x, WEIGHTS.top - 11, { color: color.soft, font: color.sans });
    reading.said.forEach((digit, t) => {
      const isRight = digit === wanted(t);
      text(brush, isRight ? `${digit}` : `${digit} ✗`, x, WEIGHTS.top + (t + 0.5) * cell,
        { color: isRight ? color.ink : color.soft, font: color.sans, size: 15, bold: isRight });
    });
  }

  function paintPassed(brush, width, cell, color) {
    const numbers = training.passedOn();
    paintMatrix(brush, cell, PASSED, {
      names: [...Array(values).keys()], color, numbers,
      most: numbers.reduce((most, number) => Math.max(most, Math.abs(number)), 0),
      told: { rows: "the digit it reads", cols: "the digit to say" },
    });
  }

  function paintLoss(brush, width, height, color) {
    const [left, top, bottom] = [34, 10, 22];
    const steps = Math.max(100, history.length);
    const highest = Math.max(1.2 * chance, ...history.map(({ loss }) => Math.min(loss, 4 * chance)));
    const at = (step, loss) => [
      left + (step / steps) * (width - left - 8),
      top + (1 - Math.min(loss / highest, 1)) * (height - top - bottom),
    ];
    const line = (points, stroke, dashes = []) => {
      brush.beginPath();
      points.forEach(([x, y]) => brush.lineTo(x, y));
      brush.strokeStyle = stroke;
      brush.lineWidth = 2;
      brush.setLineDash(dashes);
      brush.stroke();
    };
    line([at(0, highest), at(0, 0), at(steps, 0)], color.edge);
    line([at(0, chance), at(steps, chance)], color.edge, [4, 4]);
    line(history.map(({ step, loss }) => at(step, loss)), color.ink);
    const soft = { color: color.soft, font: color.sans };
    const [x, y] = at(steps, chance);
    text(brush, `guessing: ${chance.toFixed(2)}`, x, y - 10, { ...soft, align: "right" });
    text(brush, "0", left - 9, at(0, 0)[1], soft);
    text(brush, chance.toFixed(1), left - 16, y, soft);
    text(brush, `${steps} steps`, x, height - 9, { ...soft, align: "right" });
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
    if (!isRunning || history.length % 3 === 0) paint();
    requestAnimationFrame(frame);
  }

  function run(isOn) {
    isRunning = isOn;
    paint();
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
  find("rate").addEventListener("input", paint);
  find("digits").addEventListener("input", ({ target }) => {
    const digits = [...target.value].filter((character) => character >= "0" && character <= "9");
    target.value = digits.join("");
    if (digits.length === tokens) {
      example = digits.map(Number);
      paint();
    }
  });
  new ResizeObserver(paint).observe(find("pictures"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  new MutationObserver(paint).observe(document.documentElement, { attributeFilter: ["data-theme"] });

  find("rate").value = Math.log10(data.learningRate);
  find("digits").value = EXAMPLE.join("");
  paint();
  return {
    training,
    isRunning: () => isRunning,
    steps: () => history.length,
    losses: () => history.map(({ loss }) => loss),
    shareRight, learnedAt: () => learnedAt, seconds: () => seconds,
  };
}
