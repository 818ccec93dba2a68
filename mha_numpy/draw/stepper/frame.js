// Beside the frames of steppers: where this runs, their tables are not needed, and each frame
// becomes as high as it says. One listener serves all steppers of a page.
(() => {
  "use strict";
  const hideTables = () => {
    for (const table of document.querySelectorAll(".mha-stepper-table")) table.hidden = true;
  };
  hideTables();
  if (window.mhaStepperListens) return;
  window.mhaStepperListens = true;
  window.addEventListener("message", (message) => {
    const height = message.data && message.data.mhaStepperHeight;
    if (!Number.isFinite(height)) return;
    for (const frame of document.querySelectorAll(".mha-stepper iframe")) {
      if (frame.contentWindow !== message.source) continue;
      frame.style.height = `${Math.min(Math.max(height, 100), 20000)}px`;
      hideTables();
    }
  });
})();
