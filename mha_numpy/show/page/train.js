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
  const COLORS = ["ink", "muted", "paper", "gold", "violet", "flash", "accent"];
  const ON_GOLD = "#16161a";
  const LEARNED = { right: 0.99, antidiagonal: 0.95 };

  section.innerHTML = `
    <h2>Watch a head learn</h2>
    <span class="train-probe" hidden></span>
    <p class="train-intro">A row of ${tokens} digits comes in, and a single head has to say it backwards. Its params are
    random at first. Each step draws ${sequences} new rows, computes how wrong the answers are (the
    loss) and, by backward, the slope of the loss over each of the ${countParams()} params; then
    each param moves a little downhill. This page computes all of it itself.</p>
    <div class="train-buttons">
      <button type="button" class="train-start">Start</button>
      <button type="button" class="train-once">One step</button>
      <button type="button" class="train-forget">Forget</button>
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
        1. At the right stands what the head says for that row.</figcaption></figure>
      <figure><canvas class="train-passed" role="img"></canvas>
        <figcaption><b>w_v @ w_o</b>: what the head passes on. Row = the digit that is read, column
        = the digit to say; gold speaks for it, violet against it.</figcaption></figure>
      <figure><canvas class="train-loss" role="img"></canvas>
        <figcaption><b>loss</b> of each batch, before the step learned from it.</figcaption></figure>
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

  // -- what is told

  function status(reading) {
    if (!history.length) {
      return "All params are random now. The weights have no pattern, and the answers are guesses.";
    }
    if (learnedAt) {
      return `The antidiagonal is there: the first query looks at the last key, the second at the
        last but one, and so on. Nobody wrote this rule down: ${learnedAt} steps found it, in
        ${seconds.toFixed(0)} seconds. The params are learned now; only the digits are random.`;
    }
    if (reading.antidiagonal > 0.5) {
      return "The antidiagonal appears: most queries look at the right key already.";
    }
    if (history.length > 600) {
      return rate() > 0.01
        ? "These steps are too long: they jump over the lowest point. Take a smaller rate; forget."
        : "These steps are short, and learning takes long. Try a larger learning rate.";
    }
    return "The params change a little in each step. Look for a pattern in the weights.";
  }

  function tell(reading) {
    const told = status(reading).replace(/\s+/g, " ");
    if (find("told").textContent !== told) find("told").textContent = told;
    const last = history.at(-1);
    find("numbers").textContent = last
      ? `step ${last.step} · loss ${last.loss.toFixed(3)} · right ${percent(shareRight())} · ` +
        `on the antidiagonal ${percent(reading.antidiagonal)}`
      : `step 0 · guessing is right in ${percent(1 / values)} and costs ln ${values} = ` +
        `${chance.toFixed(2)} · on the antidiagonal ${percent(reading.antidiagonal)}`;
    find("start").textContent = isRunning ? "Pause" : history.length ? "Go on" : "Start";
    find("rate-told").textContent = Number(rate().toPrecision(2));
    find("weights").ariaLabel = example.map((digit, t) => {
      const row = Array.from(reading.weights.slice(t * tokens, (t + 1) * tokens));
      const most = row.indexOf(Math.max(...row));
      return `Query ${t} looks most at key ${most}, weight ${row[most].toFixed(2)}, and says ` +
        `${reading.said[t]}, which is ${reading.said[t] === wanted(t) ? "right" : "wrong"}.`;
    }).join(" ");
    find("passed").ariaLabel = "Ten digits by ten digits; a learned head passes each digit on.";
    find("loss").ariaLabel = last
      ? `The loss was ${history[0].loss.toFixed(2)} at first and is ${last.loss.toFixed(2)} now.`
      : "No step was taken yet.";
  }

  const percent = (share) => `${Math.round(100 * share)} %`;

  // -- what is painted

  function paint() {
    const reading = training.read(example);
    tell(reading);
    const color = colorsNow();
    onCanvas(find("weights"), WEIGHTS, (...place) => paintWeights(...place, reading, color));
    onCanvas(find("passed"), PASSED, (...place) => paintPassed(...place, color));
    onCanvas(find("loss"), null, (...place) => paintLoss(...place, color));
  }

  // The page's colours as a canvas understands them: what the style sheet makes of them now.
  function colorsNow() {
    const found = Object.fromEntries(COLORS.map((name) => {
      find("probe").style.color = `var(--${name})`;
      return [name, getComputedStyle(find("probe")).color];
    }));
    return (name) => found[name];
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
    brush.textAlign = "center";
    brush.textBaseline = "middle";
    draw(brush, width, matrix ? cell : height);
  }

  function write(brush, text, x, y, { fill, size = 13, isBold = false, align = "center" }) {
    brush.font = `${isBold ? "bold " : ""}${size}px system-ui, sans-serif`;
    brush.fillStyle = fill;
    brush.textAlign = align;
    brush.fillText(text, x, y);
  }

  // Cells of a matrix with labels; `strength` is from -1 to 1.
  function paintCells(brush, cell, { left, top, size }, { strength, label, names, color, told }) {
    for (let i = 0; i < size; i++) {
      for (let j = 0; j < size; j++) {
        const share = strength(i, j);
        const [x, y] = [left + j * cell, top + i * cell];
        brush.fillStyle = color("paper");
        brush.fillRect(x, y, cell - 1, cell - 1);
        brush.globalAlpha = Math.min(1, Math.abs(share));
        brush.fillStyle = color(share < 0 ? "violet" : "gold");
        brush.fillRect(x, y, cell - 1, cell - 1);
        brush.globalAlpha = 1;
        if (label && cell >= 26) {
          const fill = Math.abs(share) > 0.55 ? ON_GOLD : color("ink");
          write(brush, label(i, j), x + cell / 2, y + cell / 2, { fill, size: cell * 0.34 });
        }
      }
    }
    names.forEach((name, i) => {
      const look = { fill: color("ink"), size: Math.max(10, Math.min(15, cell * 0.5)) };
      write(brush, name, left + (i + 0.5) * cell, top - 11, look);
      write(brush, name, left - 12, top + (i + 0.5) * cell, look);
    });
    const muted = { fill: color("muted"), size: 12 };
    write(brush, told.cols, left + size * cell / 2, 10, muted);
    brush.save();
    brush.translate(9, top + size * cell / 2);
    brush.rotate(-Math.PI / 2);
    write(brush, told.rows, 0, 0, muted);
    brush.restore();
  }

  function paintWeights(brush, width, cell, reading, color) {
    const weight = (i, j) => reading.weights[i * tokens + j];
    paintCells(brush, cell, WEIGHTS, {
      names: example, color, strength: weight, label: (i, j) => weight(i, j).toFixed(2),
      told: { rows: "queries", cols: "keys: the digits that are read" },
    });
    const x = width - WEIGHTS.right / 2;
    write(brush, "says", x, WEIGHTS.top - 11, { fill: color("muted"), size: 12 });
    reading.said.forEach((digit, t) => {
      const isRight = digit === wanted(t);
      write(brush, isRight ? digit : `${digit} ✗`, x, WEIGHTS.top + (t + 0.5) * cell,
        { fill: color(isRight ? "ink" : "flash"), size: 15, isBold: isRight });
    });
  }

  function paintPassed(brush, width, cell, color) {
    const passed = training.passedOn();
    const largest = passed.reduce((most, number) => Math.max(most, Math.abs(number)), 0);
    paintCells(brush, cell, PASSED, {
      names: [...Array(values).keys()], color,
      strength: (i, j) => passed[i * values + j] / largest,
      told: { rows: "the digit that is read", cols: "the digit to say" },
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
    line([at(0, highest), at(0, 0), at(steps, 0)], color("muted"));
    line([at(0, chance), at(steps, chance)], color("muted"), [4, 4]);
    line(history.map(({ step, loss }) => at(step, loss)), color("accent"));
    const muted = { fill: color("muted"), size: 12 };
    const [x, y] = at(steps, chance);
    write(brush, `guessing: ${chance.toFixed(2)}`, x, y - 9, { ...muted, align: "right" });
    write(brush, "0", left - 9, at(0, 0)[1], muted);
    write(brush, chance.toFixed(1), left - 15, y, muted);
    write(brush, `${steps} steps`, x, height - 9, { ...muted, align: "right" });
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
    if (!learnedAt && isLearned()) {  // once: whoever goes on may go on
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
