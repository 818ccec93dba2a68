// What all pages need: elements, and where a page stands: in the dark, in a notebook.

const element = (tag, className, ...children) => {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children);
  return made;
};

// Call after each change of the theme: the system's, or that of the notebook around the page.
function onTheme(recolor) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolor);
  addEventListener("message", ({ source, data: told }) => {
    if (source !== parent || !["dark", "light"].includes(told?.mhaStepperTheme)) return;
    document.documentElement.dataset.theme = told.mhaStepperTheme;
    recolor();
  });
}

// In a notebook a page has a frame, which becomes as high as it says.
function askForHeight(pixels) {
  if (parent !== window) parent.postMessage({ mhaStepperHeight: pixels }, "*");
}

// Call once: the frame stays as high as the page.
function followHeight() {
  new ResizeObserver(() => askForHeight(document.body.offsetHeight)).observe(document.body);
}
