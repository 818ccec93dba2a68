// A model that learns in the page: one training step is a trace, computed again and again, each
// time on a new batch and with the params that the last step left. Nothing here knows of the page.

// Numbers from 0 to 1 that look random, the same for the same seed (mulberry32).
function randomNumbers(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

// Step by the running mean of the gradient over the root of that of its square; t counts from 1.
function adamStep(param, gradient, memory, t, learningRate) {
  const { mean, square } = memory;
  for (let i = 0; i < param.length; i++) {
    mean[i] = 0.9 * mean[i] + 0.1 * gradient[i];
    square[i] = 0.999 * square[i] + 0.001 * gradient[i] ** 2;
    const meanHat = mean[i] / (1 - 0.9 ** t);
    const squareHat = square[i] / (1 - 0.999 ** t);
    param[i] -= learningRate * meanHat / (Math.sqrt(squareHat) + 1e-8);
  }
}

// The task: digits are read, and the same digits have to be said backwards.
function openTraining({ trace: given, bounds }, seed = 0) {
  const trace = openTrace(given);
  const named = (name) => trace.arrays[trace.byName.get(name)];
  const params = Object.keys(bounds).map(named);
  const [digits, targets, answer, weights] = ["x_v", "targets", "out", "weights"].map(named);
  const [sequences, tokens, values] = digits.shape;
  let random, memories, step;

  function forget(newSeed) {
    random = randomNumbers(newSeed);
    step = 0;
    for (const { numbers, name } of params) {
      for (let i = 0; i < numbers.length; i++) numbers[i] = (2 * random() - 1) * bounds[name];
    }
    memories = params.map(({ numbers: { length } }) =>
      ({ mean: new Float64Array(length), square: new Float64Array(length) }));
  }

  const drawDigits = () => Array.from({ length: tokens }, () => Math.floor(random() * values));

  function show(batch) {
    digits.numbers.fill(0);
    targets.numbers.fill(0);
    batch.forEach((sequence, b) => sequence.forEach((digit, t) => {
      digits.numbers[(b * tokens + t) * values + digit] = 1;
      targets.numbers[b * tokens + tokens - 1 - t] = digit;
    }));
    trace.compute();
  }

  const likeliest = (row) => row.indexOf(Math.max(...row));
  const rowOf = ({ data }, row) => data.subarray(row * values, (row + 1) * values);

  // One step on sequences that were never seen: how well it did on them before it learned of them.
  function learn(learningRate) {
    show(Array.from({ length: sequences }, drawDigits));
    const rows = Array.from({ length: sequences * tokens }, (_, row) => row);
    const right = rows.filter((row) => likeliest(rowOf(answer, row)) === targets.numbers[row]);
    const loss = trace.loss();
    step += 1;
    params.forEach((param, i) =>
      adamStep(param.numbers, trace.gradientOf(param).data, memories[i], step, learningRate));
    return { step, loss, right: right.length / rows.length };
  }

  // What the head makes of one sequence: its weights, what it says, its mean weight on the antidiagonal.
  function read(sequence) {
    show([sequence]);
    const said = sequence.map((_, t) => likeliest(rowOf(answer, t)));
    const seen = weights.data.slice(0, tokens * tokens);
    const onAntidiagonal = sequence.map((_, t) => seen[t * tokens + tokens - 1 - t]);
    return { said, weights: seen, antidiagonal: onAntidiagonal.reduce((a, b) => a + b) / tokens };
  }

  // What a value becomes on its way out: for each digit that is read, a number for each to say.
  const passedOn = () => matmul(...["w_v", "w_o"].map(named)).data;

  forget(seed);
  return {
    trace, params, sequences, tokens, values, forget, learn, read, passedOn, chance: Math.log(values),
  };
}
