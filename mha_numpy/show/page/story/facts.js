// What the story says and shows, from the trace as it is now: scenes/story.py and scenes/still.py say
// the same of a trace as it was recorded, and a test holds the two against each other.

function openFacts(told, trace, sequence) {
  const parts = {};
  for (const [part, name] of Object.entries(told.parts)) parts[part] = trace.arrays[trace.byName.get(name)];
  const { meaning, tokens: looks, sourceTokens: source } = told;
  const sizeOf = (part, axis) => parts[part].shape[parts[part].axes.indexOf(axis)] ?? 1;
  const heads = sizeOf("weights", "H");
  const isCross = "y" in parts;
  const reads = isCross ? looks : source;  // what a row of x is the vector of

  // The matrix that an array, or the gradient of one, holds for a head.
  function matrix(part, head) {
    const name = part.replace(/^d_/, "");
    const of = parts[name];
    const array = part === name ? of : trace.gradientOf(of);
    if (!array) return null;
    const at = { B: sequence, H: head, H_kv: Math.floor(head * sizeOf("k", "H_kv") / heads) };
    const [rows, width] = of.shape.slice(-2);
    const cols = name[1] === "_" ? matrix(name[2], head).cols : width;  // of w_q: those of the head
    const before = flatten(of.axes.slice(0, -2).map((axis) => at[axis] ?? 0), of.shape.slice(0, -2));
    const start = before * rows * width + (cols < width ? at[name === "w_q" ? "H" : "H_kv"] * cols : 0);
    const place = (i, j) => start + i * width + j;
    const row = (i, data = array.data) => [...data.slice(place(i, 0), place(i, cols))];
    return { array, rows, cols, place, row, at: (i, j) => array.data[place(i, j)],
      all: (data) => [...Array(rows).keys()].flatMap((i) => row(i, data)) };
  }
  const isHidden = (head, i, j) => "masked" in parts && matrix("masked", head).at(i, j) === -Infinity;

  function columns(part, head) {
    const name = part.replace(/^d_/, "");
    if (name === "scores" || name === "weights") return source;
    const byHead = { q: "matched", k: "matched", v: "handed", heads: "handed" }[name.replace("w_", "")];
    const names = meaning && (byHead ? meaning[byHead][head] : meaning.features);
    const { cols } = matrix(name, head);
    return names?.length === cols ? names : [...Array(cols).keys()].map(String);
  }

  // --- numbers

  const fixed = (value, digits) => value.toFixed(digits).replace("-", "−");
  function number(value) {
    if (!Number.isFinite(value)) return String(value).replace("Infinity", "∞").replace("-", "−");
    for (const [digits, unit] of [[0, 1], [1, 10]]) {
      const round = Math.round(value * unit) / unit;
      if (Math.abs(value - round) < 1e-6 && (round || Math.abs(value) < 1e-12)) return fixed(round + 0, digits);
    }
    return fixed(value, Math.abs(value) >= 10 ? 1 : 2);
  }
  function signed(slope) {
    const text = fixed(slope, Math.abs(slope - Math.round(slope)) < 1e-6 ? 0 : 3).replace(/^−0$/, "0");
    return text[0] === "−" ? text : `+${text}`;
  }
  const percent = (share) => `${fixed(100 * share, 0)}%`;

  const ranked = (weights) => {
    const order = weights.map((w, j) => [-Math.round(w * 1e9), j]).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    return [order[0][1], (order[1] ?? order[0])[1]];
  };
  const asker = () => {
    if (meaning || !parts.out || !trace.gradientOf(parts.out)) return meaning?.asker ?? 0;
    const { rows, row } = matrix("d_out", 0);
    const sizes = [...Array(rows).keys()].map((i) => Math.max(...row(i).map(Math.abs)));
    return sizes.indexOf(Math.max(...sizes));
  };
  const EPSILON = 5e-4;
  const EXTREMES = { gain: ["d_scores", Math.max], loss: ["d_scores", Math.min],
    helper: ["d_weights", Math.max], hinderer: ["d_weights", Math.min] };
  const called = (label) => (/^\d+$/.test(label) ? `number ${label}` : label);

  // --- facts: [kind, text] pieces

  function fact(name, word, head) {
    const [which, what = ""] = name.split(".");
    const w = matrix("weights", head).row(word);
    const [best, next] = ranked(w);
    const other = (head + 1) % heads;
    const theirs = matrix("weights", other).row(word);
    if (which in EXTREMES) {
      const [part, extreme] = EXTREMES[which];
      const slopes = matrix(part, head).row(word);
      const slope = extreme(...slopes);
      return [what ? ["number", signed(slope * (what === "tenth" ? 0.1 : 1))] : ["word", source[slopes.indexOf(slope)]]];
    }
    if (which === "other") {
      const [at] = ranked(theirs);
      return [{ "": ["number", String(other)], best: ["word", source[at]], share: ["number", percent(theirs[at])] }[what]];
    }
    if (which === "best" || which === "next") {
      const at = which === "best" ? best : next;
      return [{ "": ["word", source[at]], share: ["number", percent(w[at])],
        score: ["number", number(matrix("scores", head).at(word, at))] }[what]];
    }
    if (name === "word" || name === "asker") return [["word", looks[name === "word" ? word : asker()]]];
    if (name === "wish" || name === "goal") return [["text", meaning[name]]];
    if (name === "question") return [["text", meaning.asks[head][word]]];
    if (name === "head") return [["number", String(head)]];
    if (name === "D") return [["number", String(matrix("x", 0).cols)]];
    if (name === "width") return [["number", String(matrix("q", 0).cols)]];
    if (name === "scale") return [["number", number(trace.arrays[trace.byName.get("scale")].data[0])]];
    return list(name, word, head);
  }

  // The numbers of a row that matter most, with the names of their columns.
  function list(name, word, head) {
    const [isWished, isSlope] = [name === "wished", name.startsWith("d_")];
    const part = isWished ? "out" : name;
    const [row, labels] = [matrix(part, head).row(word), columns(part, head)];
    const order = [...row.keys()].sort((a, b) => Math.abs(row[b]) - Math.abs(row[a]) || a - b);
    const kept = (isWished ? order.filter((c) => matrix("d_out", head).at(word, c))
      : order.slice(0, isSlope ? 2 : 3).filter((c) => Math.abs(row[c]) >= (isSlope ? EPSILON : 0.005)));
    const pieces = kept.sort((a, b) => a - b).flatMap((c, n) => [
      ["text", `${n ? ", " : ""}${called(labels[c])} `],
      ["number", (isSlope ? signed : number)(row[c])],
    ]);
    return pieces.length ? pieces : [["text", "nothing"]];
  }

  function flags(word, head, isAll) {
    const w = matrix("weights", head).row(word);
    const [best, next] = ranked(w);
    const found = {
      example: meaning, plain: !meaning, cross: isCross, asker: word === asker(), single: heads === 1,
      unlike: !isCross && String(looks) !== String(source), two: w.filter((_, j) => !isHidden(head, word, j)).length > 1,
      all: isAll, places: Boolean(meaning?.features.includes("place x")), tie: Math.abs(w[best] - w[next]) < 1e-9, hides: w.some((_, j) => isHidden(head, word, j)),
    };
    for (const part of ["x", "q", "k", "v", "scores", "heads", "out"]) {
      const slopes = parts[part] && matrix(`d_${part}`, head);
      if (!slopes) continue;
      const large = (numbers) => Math.max(...numbers.map(Math.abs)) >= EPSILON;
      found[part] = large(slopes.row(word < slopes.rows ? word : 0));
      if (part === "heads") found.head = large(slopes.all());
    }
    found.kv = !isCross && (found.k || found.v);
    const wished = parts.d_out ? [...Array(looks.length).keys()].map((i) => matrix("d_out", 0).row(i).some(Boolean)) : [];
    found.lone = isAll && wished.filter(Boolean).length === 1;
    return found;
  }

  // The sentences whose conditions hold, as pieces.
  function says(scene, { back: isBack, word, head, times }, isAll) {
    const known = flags(word, head, isAll);
    const holds = (condition) => (condition[0] === "!" ? !known[condition.slice(1)] : Boolean(known[condition]));
    const templates = (times ? scene.says_times : isBack ? scene.says_back : scene.says)
      .filter(([conditions]) => conditions.split(" ").filter(Boolean).every(holds));
    return templates.flatMap(([, template], n) => [
      ...(n ? [["text", " "]] : []),
      ...template.split(/(\{[\w.]+\}|\*[^*]+\*|`[^`]+`)/).filter(Boolean).flatMap((piece) => {
        const inner = piece.slice(1, -1);
        if (piece[0] === "{") return fact(inner, word, head);
        return [piece[0] === "*" ? ["term", inner] : piece[0] === "`" ? ["name", inner] : ["text", piece]];
      }),
    ]);
  }

  // --- what is on stage: tables of rows, rows of slices, slices of cells {part, id, place, i, j, head}

  // The matrices that a row is multiplied by, where the product is all that happens to it.
  const factors = ["w_q", "w_k", "w_v"].filter((name) => {
    if (!parts.x || isCross || !parts[name] || parts[name].shape[0] > 16) return false;
    const [x, w] = [matrix("x", 0).row(0), matrix(name, 0)];
    return w.rows === x.length && matrix(name[2], 0).row(0).every((v, j) =>
      Math.abs(v - x.reduce((sum, each, f) => sum + each * w.at(f, j), 0)) < 1e-6);
  });

  function slice(part, letters, head) {
    if (!part.includes(" ")) return [part];
    const [name, row, column] = part.split(" ");
    if (name === "heads*") return [...Array(heads).keys()].flatMap((h) => slice(`heads ${row}`, letters, h));
    const { array: { id }, cols, place } = matrix(name, head);
    const i = letters[row];
    const js = column ? [letters[column]] : [...Array(cols).keys()];
    return js.map((j) => ({ part: name, id, place: place(i, j), i, j, head }));
  }

  function lines(row, word, head) {
    const best = ranked(matrix("weights", head).row(word))[0];
    const [words, only] = { i: [looks, word], k: [reads, word], b: [source, best],
      queries: [looks], keys: [source], tokens: [reads], features: [row.each === "features" && columns("x", head)] }[row.each] ?? [[]];
    const places = only === undefined ? [...words.keys()] : [only];
    return places.map((n) => ({
      word: words[n], role: row.role, isName: row.each === "features",
      isChosen: !["keys", "features"].includes(row.each) && n === word,
      slices: row.parts.map((part) => slice(part, {
        i: ["keys", "b", "features"].includes(row.each) ? word : n, j: n, k: n, f: n, b: best,
      }, head)),
    }));
  }

  // Rows under the same columns are one table.
  function tables(scene, { word, head, back: isBack, times }, isAll) {
    const one = isCross && scene.across.length ? scene.across : scene.one;
    const layouts = isAll ? scene.all : !times ? one
      : [one.find(({ rows }) => !rows.length), scene.times.find(({ columns: [, , name] }) => name === times)];
    const isThere = ({ columns: slots }) =>
      !slots.some((slot) => ["x", "y"].includes(slot) && !(slot in parts));
    const found = layouts.filter(isThere).map((layout) => ({
      caption: layout.caption,
      columns: layout.columns.map((slot) => (slot === "keys" ? source : slot === "heads*"
        ? [...Array(heads).keys()].flatMap((h) => columns("heads", h))
        : slot in parts ? columns(slot, head) : [slot])),
      isOfWords: layout.columns[0] === "keys",
      rows: layout.rows.filter(({ role }) => !isBack || role !== "before").flatMap((row) => (row.each === "line" ? [null] : lines(row, word, head))),
    }));
    return found.reduce((kept, table) => {
      const before = kept.at(-1);
      const isMore = before?.rows.length && table.rows.length && !table.caption && String(before.columns) === String(table.columns);
      return isMore ? kept.with(-1, { ...before, rows: [...before.rows, ...table.rows] }) : [...kept, table];
    }, []);
  }

  // Where a cell is, in words.
  function place({ part, i, j, head }) {
    const verb = { q: " asks for", k: " offers", v: " gives", heads: " receives", out: ", new row" }[part] ?? "";
    if (part === "scores" || part === "weights") {
      return [["word", looks[i]], ["text", " looking at "], ["word", source[j]]];
    }
    if (part[1] === "_") return [["name", part], ["text", `: ${columns("x", head)[i]} to ${columns(part, head)[j]}`]];
    const words = ["k", "v", "y"].includes(part) ? source : part === "x" ? reads : looks;
    return [["word", words[i]], ["text", `${verb}: ${called(columns(part, head)[j])}`]];
  }

  return { parts, heads, isCross, factors, matrix, isHidden, columns, called, number, signed, ranked, asker, fact, flags, says, tables, place };
}
