// The numbers behind the canvas, as a table.

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
