// Beside the frames of steppers: a table behind a frame is not needed, and each frame becomes as
// high as it says. One listener serves all steppers of a page. An output that is not trusted has
// lost its frame, and keeps its table.
(() => {
  "use strict";
  const hideTables = () => {
    const behindFrames = ".mha-stepper iframe ~ .mha-stepper-table";
    for (const table of document.querySelectorAll(behindFrames)) table.hidden = true;
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
      const { jpThemeLight } = document.body.dataset;  // JupyterLab's
      const theme = jpThemeLight && (jpThemeLight === "false" ? "dark" : "light");
      message.source.postMessage({ mhaStepperTheme: theme }, "*");
      hideTables();
    }
  });
})();
