// Motion: panels move first, then cells; each can be interrupted, and played again.

const PANELS = 450;  // milliseconds
const CELLS = { moves: 1000, product: 1000, cells: 800, given: 0 };

const eased = (t) => (t < 0.5 ? 4 * t ** 3 : 1 - (2 - 2 * t) ** 3 / 2);
const within = (t) => Math.min(1, Math.max(0, t));
const between = (a, b, share) => a + (b - a) * share;
const wantsLessMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

// One clock for everything that changes by itself: it calls `paint` once a frame, while any of its
// motions lasts. motion.at(time) is in milliseconds since its start.
function startClock(paint) {
  const running = new Map();
  let isAsked = false;
  function ask() {
    if (isAsked) return;
    isAsked = true;
    requestAnimationFrame((now) => {
      isAsked = false;
      for (const [name, motion] of running) {
        motion.start ??= now;
        motion.time = now - motion.start;
        if (motion.time >= motion.length) running.delete(name);
      }
      paint();
      if (running.size) ask();
    });
  }
  return {
    paint: ask,
    play(name, length) { running.set(name, { length, time: 0 }); ask(); },
    stop(name) { if (running.delete(name)) ask(); },
    time: (name) => running.get(name)?.time ?? Infinity,
    isPlaying: (name) => running.has(name),
  };
}

// How far a cell is on its way, heads one after the other: 0 at its source, 1 at its place.
function shareOf(time, kind, order, heads, head) {
  if (time === Infinity) return 1;
  const t = within((time - PANELS) / CELLS[kind]);
  if (kind !== "moves") return within((t * 1.15 - order) / 0.15);
  const delay = heads > 1 && head !== null ? 0.4 * head / (heads - 1) : 0;
  return eased(within((t - delay) / 0.6));
}
