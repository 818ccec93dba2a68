// A gradient is a slope: the loss as a curve over one number, and its tangent.

const [POINTS, SLOPE_TIME] = [33, 300];  // of a curve, and the milliseconds that it may take

function drawSlope(root, { from, to, at, loss, gradient, curve }) {
  const [width, height] = [288, innerWidth < 640 ? 72 : 104];
  const known = [...curve, loss].filter(Number.isFinite);
  const [least, most] = [Math.min(...known), Math.max(...known)];
  const room = Math.max(most - least, Math.abs(gradient) * (to - from) * 0.5, 1e-9);
  const x = (value) => 22 + (width - 28) * (value - from) / (to - from);
  const y = (value) => height / 2 - (height - 34) * (value - (least + most) / 2) / room;
  const line = (kind, values) => inSvg("polyline", { class: kind, points: values.map((value, i) =>
    `${x(between(from, to, i / (values.length - 1))).toFixed(1)},${y(value).toFixed(1)}`).join(" ") });
  root.replaceChildren(inSvg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "The goal L over this number" },
    line("truth", curve.filter(Number.isFinite)), line("tangent", [from, to].map((value) => loss + gradient * (value - at))),
    inSvg("circle", { cx: x(at), cy: y(loss), r: 4.5 }),
    inSvg("text", { x: 4, y: 15 }, "goal L"),
    inSvg("text", { class: "name", x: width - 6, y: height - 5 }, "this number →")));
}
