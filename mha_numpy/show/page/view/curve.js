// A line chart over 0, 1, 2, ...: the first line is drawn, all others are dashed.

// Round numbers that part an interval into about `count` pieces.
function ticksOf(low, high, count) {
  const rough = (high - low || 1) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) =>
    Number(((first + i) * step).toPrecision(6)));
}

// `lines` are lists of numbers; `pick`, where there is something to choose, is called with a place along
// them. The chart has room for at least `least` steps.
function openCurve(root, lines, { name, across, pick, least = 1, lowest = 220 }) {
  const [left, right, top, bottom] = [52, 12, 22, 38];
  let [width, height, at, count, low, high] = [0, 0, 0, 0, 0, 0];
  root.classList.add("curve");
  const x = (n) => left + (width - left - right) * n / count;
  const y = (value) => top + (height - top - bottom) * (high - value) / (high - low);

  function draw() {
    const numbers = lines.flat();
    [low, high] = [Math.min(0, ...numbers), Math.max(...numbers, 1e-9)];
    count = Math.max(least, ...lines.map((line) => line.length - 1));
    width = root.clientWidth;
    height = Math.max(lowest, Math.min(340, width * 0.5));
    const rules = ticksOf(low, high, 4).flatMap((value) => [
      inSvg("line", { class: "rule", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
      inSvg("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, String(value).replace("-", "−")),
    ]);
    const steps = ticksOf(0, count, Math.min(6, count)).filter(Number.isInteger).map((n) =>
      inSvg("text", { x: x(n), y: height - bottom + 16, "text-anchor": "middle" }, String(n)));
    const paths = lines.filter((line) => line.length).map((line) => inSvg("path", {
      class: line === lines[0] ? "ours" : "random",
      d: `M${line.map((value, n) => `${x(n).toFixed(1)},${y(value).toFixed(1)}`).join("L")}`,
    }));
    root.replaceChildren(inSvg("svg", { width, height, role: "img", "aria-label": `${name}, by the ${across}` },
      ...rules, ...steps, ...paths.reverse(),
      inSvg("text", { x: 0, y: 12 }, name),
      inSvg("text", { x: width - right, y: height - 4, "text-anchor": "end" }, across),
      ...(pick ? [inSvg("line", { class: "at" }), inSvg("circle", { r: 5 })] : [])));
    if (pick) mark(at);
  }

  function mark(n) {
    at = n;
    const place = { x1: x(n), x2: x(n), y1: top, y2: height - bottom };
    const rule = root.querySelector(".at");
    for (const [key, number] of Object.entries(place)) rule.setAttribute(key, number);
    root.querySelector("circle").setAttribute("cx", x(n));
    root.querySelector("circle").setAttribute("cy", y(lines[0][n]));
  }

  function point({ clientX }) {
    const share = (clientX - root.getBoundingClientRect().left - left) / (width - left - right);
    pick(Math.max(0, Math.min(count, Math.round(share * count))));
  }
  for (const event of pick ? ["pointermove", "pointerdown"] : []) root.addEventListener(event, point);
  new ResizeObserver(() => { if (root.clientWidth !== width) draw(); }).observe(root);
  draw();
  return { mark, show(more) { lines = more; draw(); } };
}
