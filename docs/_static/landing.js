// The sentence of the first page: each view was drawn when the site was built, and is shown here.
(() => {
  "use strict";
  const root = document.documentElement;
  const view = document.getElementById("view");
  const alive = document.getElementById("alive");
  const theme = document.getElementById("theme");
  const views = { true: [], false: [] };
  for (const one of document.querySelectorAll("template.view")) views[one.dataset.alive].push(one);
  const words = () => [...view.querySelectorAll(".word")];
  let chosen = words().findIndex((word) => word.ariaChecked === "true");
  const asker = chosen;
  const who = document.getElementById("who");
  const question = who.innerHTML;

  // Make a node like another one. What stays the same node can change smoothly, and keeps the focus.
  function become(node, other) {
    if (node.nodeName !== other.nodeName) return node.replaceWith(other.cloneNode(true));
    if (node.nodeType !== Node.ELEMENT_NODE) return void (node.data !== other.data && (node.data = other.data));
    for (const { name } of [...node.attributes]) if (!other.hasAttribute(name)) node.removeAttribute(name);
    for (const { name, value } of other.attributes)
      if (node.getAttribute(name) !== value) node.setAttribute(name, value);
    const [mine, theirs] = [[...node.childNodes], [...other.childNodes]];
    mine.slice(theirs.length).forEach((one) => one.remove());
    theirs.forEach((one, n) => (n < mine.length ? become(mine[n], one) : node.append(one.cloneNode(true))));
  }

  function show(word) {
    const shown = view.cloneNode(false);
    shown.append(views[alive.checked][word].content.cloneNode(true));
    become(view, shown);
    who.innerHTML = word === asker ? question : `Where does <b>${words()[word].firstChild.textContent}</b> look?`;
  }

  view.addEventListener("click", ({ target }) => {
    const word = words().indexOf(target.closest(".word"));
    if (word >= 0) show((chosen = word));
  });
  view.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step || !event.target.closest(".word")) return;
    event.preventDefault();
    chosen = (chosen + step + words().length) % words().length;
    show(chosen);
    words()[chosen].focus();
  });
  alive.disabled = false;
  alive.addEventListener("change", () => show((chosen = asker)));

  const isDark = () => getComputedStyle(root).colorScheme === "dark" ||
    (!root.dataset.theme?.match(/light|dark/) && matchMedia("(prefers-color-scheme: dark)").matches);
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const next = isDark() ? "light" : "dark";
    root.dataset.theme = localStorage.theme = localStorage.mode = next; // as the other pages keep it
  });
})();
