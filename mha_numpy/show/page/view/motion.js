// Motion: cells that only move go from their source to their place, one head after the other. It can be
// interrupted, and played again.

const MOTION = 1000;  // milliseconds

const eased = (t) => (t < 0.5 ? 4 * t ** 3 : 1 - (2 - 2 * t) ** 3 / 2);
const between = (a, b, share) => a + (b - a) * share;

// Calls `paint` once a frame, where it was asked for: with the share of a motion that has passed, at rest 1.
function startClock(paint) {
  let [isAsked, isMoving, start] = [false, false, null];
  function ask() {
    if (isAsked) return;
    isAsked = true;
    requestAnimationFrame((now) => {
      start ??= now;
      isAsked = false;
      isMoving &&= now - start < MOTION;
      paint(isMoving ? (now - start) / MOTION : 1);
      if (isMoving) ask();
    });
  }
  return {
    paint: ask,
    play() {
      [isMoving, start] = [!matchMedia("(prefers-reduced-motion: reduce)").matches, null];
      ask();
    },
    stop() { isMoving = false; ask(); },
    isMoving: () => isMoving,
  };
}

// How far a cell is on its way: 0 at its source, 1 at its place.
function shareOf(share, heads, head) {
  const delay = heads > 1 && head !== null ? 0.4 * head / (heads - 1) : 0;
  return eased(Math.min(1, Math.max(0, (share - delay) / 0.6)));
}
