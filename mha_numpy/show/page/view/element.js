// What all pages need: elements, and where a page stands: in the dark, in a notebook.

const NONE = 0.005;  // of the largest number: below, a cell looks like that of a zero

const element = (tag, className, ...children) => {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children);
  return made;
};

const inSvg = (tag, attributes, ...children) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
};

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };  // x, y

// One stop of the Tab key for a group of links or buttons; arrow keys go on within it.
function roving(root, selector) {
  const all = () => [...root.querySelectorAll(selector)].filter((each) => each.offsetParent);
  function stop(chosen = all()[0]) {
    for (const each of root.querySelectorAll(selector)) each.tabIndex = each === chosen ? 0 : -1;
  }
  root.addEventListener("focusin", ({ target }) => { if (target.matches(selector)) stop(target); });
  root.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!by || !event.target.matches(selector)) return;
    event.preventDefault();
    event.stopPropagation();
    const items = all();
    items[items.indexOf(event.target) + by]?.focus();
  });
  return stop;
}

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
