// A gradient is a slope: the loss as a curve over one number, and its tangent.

const [POINTS, SLOPE_TIME] = [33, 300];  // of a curve, and the milliseconds that it may take
let slopeWidth = 0;  // of the canvas: it is asked once, because asking costs a layout of the page
addEventListener("resize", () => { slopeWidth = 0; });

function drawSlope(canvas, colors, { from, to, at, loss, gradient, curve, name }) {
  slopeWidth ||= canvas.clientWidth;
  const [width, height] = [slopeWidth || 260, innerWidth < 640 ? 72 : 104];
  const scale = devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.height = `${height}px`;
  const ctx = canvas.getContext("2d");
  ctx.scale(scale, scale);
  const known = [...curve, loss].filter(Number.isFinite);
  const [least, most] = [Math.min(...known), Math.max(...known)];
  const room = Math.max(most - least, Math.abs(gradient) * (to - from) * 0.5, 1e-9);
  const middle = (least + most) / 2;
  const x = (value) => 22 + (width - 28) * (value - from) / (to - from);
  const y = (value) => height / 2 - (height - 34) * (value - middle) / room;
  const line = (values, color, thick, dash = []) => {
    ctx.strokeStyle = color;
    ctx.lineWidth = thick;
    ctx.setLineDash(dash);
    ctx.beginPath();
    const step = (to - from) / (values.length - 1);
    values.forEach((value, i) => ctx.lineTo(x(from + step * i), y(value)));
    ctx.stroke();
    ctx.setLineDash([]);
  };
  ctx.save();
  ctx.beginPath();
  ctx.rect(20, 0, width, height);
  ctx.clip();
  if (curve.length) line(curve, colors.edge, 3);
  const tangent = (value) => loss + gradient * (value - at);
  line([tangent(from), tangent(to)], colors.ink, 2, [5, 4]);
  ctx.fillStyle = colors.ink;
  ctx.beginPath();
  ctx.arc(x(at), y(loss), 4.5, 0, 7);
  ctx.fill();
  ctx.restore();
  text(ctx, "L", 8, 11, { color: colors.ink, font: colors.sans, align: "left" });
  text(ctx, `${name} →`, width - 6, height - 9, {
    color: colors.soft, font: colors.mono, align: "right", width: width - 30,
  });
}

const slopeInWords = (gradient, truth) => (Math.abs(gradient) < 1e-12 && Math.abs(truth) < 1e-12
  ? "L does not depend on it here."
  : `0.1 more here changes L by about ${signed(0.1 * gradient)}; in truth by ${signed(truth)}.`);
