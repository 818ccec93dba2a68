// What is behind the canvas and below it: the numbers as a table, and all arrays as a list.

function tabulate(root, { name, data }, blocks) {
  root.replaceChildren(...blocks.map(({ rows, cols, cells, head, number, rowLabels, colLabels }) => {
    const lines = Array.from({ length: rows }, (_, i) => element("tr", "",
      element("th", "", rowLabels[i] ?? ""),
      ...[...cells.slice(i * cols, (i + 1) * cols)].map((place) => element("td", "", written(data[place])))));
    const columns = colLabels.map((label) => element("th", "", label));
    return element("table", "", element("caption", "", name + (head === null ? "" : `, head ${number}`)),
      element("thead", "", element("tr", "", element("th"), ...columns)),
      element("tbody", "", ...lines));
  }));
}

function listArrays(root, { arrays }, go) {
  root.append(...arrays.filter(({ says }) => says).map(({ id, name, axes, equation, says }) => {
    const link = Object.assign(element("a", "", name), { href: `#${name}` });
    link.addEventListener("click", (event) => { event.preventDefault(); go(id); });
    const shape = ` (${axes.join(", ")})${equation ? ` = ${equation}` : ""} `;
    return element("li", "", link, element("code", "", shape), says);
  }));
}
