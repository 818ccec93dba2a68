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

  const number = written;
  const percent = (share) => `${fixed(100 * share, 0)}%`;

  // The places of the largest numbers: of equal ones all, or none. More than `most` are returned only
  // if all of these are the largest.
  function largest(sizes, most, least = -Infinity) {
    const size = (j) => Math.round(sizes[j] * 1e9);
    const order = [...sizes.keys()].sort((a, b) => size(b) - size(a) || a - b);
    const next = order.length > most ? size(order[most]) : -Infinity;
    const kept = order.slice(0, most).filter((j) => size(j) > next && sizes[j] >= least);
    return kept.length ? kept : order.filter((j) => size(j) === size(order[0]));
  }
  const bestOf = (word, head) => largest(matrix("weights", head).row(word), 1)[0];
  const asker = () => {
    if (meaning || !parts.out || !trace.gradientOf(parts.out)) return meaning?.asker ?? 0;
    const { rows, row } = matrix("d_out", 0);
    const sizes = [...Array(rows).keys()].map((i) => Math.max(...row(i).map(Math.abs)));
    return sizes.indexOf(Math.max(...sizes));
  };
  const [EPSILON, LEAST] = [5e-4, 0.1];  // the least slope, and the least share, that is named
  const off = () => [...(parts.head_gate?.data.slice(-heads) ?? [])].flatMap((gate, h) => (gate ? [] : [h]));
  const scale = () => trace.arrays[trace.byName.get("scale")].data[0];
  const called = (label) => (/^\d+$/.test(label) ? `number ${label}` : label);
  const workings = openWorkings({ parts, scale, matrix, columns, called, isHidden });

  // --- facts: [kind, text] pieces

  function fact(name, word, head) {
    const other = (head + 1) % heads;
    const known = {
      text: meaning ? { wish: meaning.wish, goal: meaning.goal, question: meaning.asks[head][word] } : {},
      word: { word: looks[word], asker: looks[asker()], best: source[bestOf(word, head)] },
      number: { head, other, off: off().join(" and head "), scale: number(scale()),
        D: parts.x?.shape.at(-1), width: matrix("q", 0).cols },
    };
    for (const [kind, told] of Object.entries(known)) if (name in told) return [[kind, String(told[name])]];
    const pieces = name === "others" ? listed("weights", word, other) : listed(name, word, head);
    return pieces.length ? pieces : [["text", "nothing"]];
  }

  // The numbers that matter most in a word's row, each with what it is of.
  function listed(name, word, head) {
    const part = name === "wished" ? "out" : name;
    const isSlope = part.startsWith("d_");
    const of = part.replace(/^d_/, "") in parts ? matrix(part, head) : null;
    if (!of || word >= of.rows) return [];
    const [row, labels] = [of.row(word), columns(part, head)];
    const isOfWords = /^(d_)?(scores|weights)$/.test(part);
    const write = part === "weights" ? percent : isSlope ? signed : number;
    const joined = (places) => places.flatMap((c, n) => [...(n ? [["text", ", "]] : []),
      isOfWords ? ["word", labels[c]] : ["text", called(labels[c])],
      ...(isOfWords || called(labels[c]) === labels[c] ? [["text", " "], ["number", write(row[c])]]
        : [["text", " ("], ["number", write(row[c])], ["text", ")"]])]);
    if (isOfWords && !isSlope) {  // none of equal ones before others
      const seen = [...row.keys()].filter((j) => !isHidden(head, word, j));
      const found = largest(seen.map((j) => row[j]), 2, part === "weights" ? LEAST : undefined).map((n) => seen[n]);
      return found.length <= 2 ? joined(found)
        : [["number", String(found.length)], ["text", " words, "], ["number", write(row[found[0]])], ["text", " each"]];
    }
    const [most, least] = isSlope ? [2, EPSILON] : [4, 0.005];
    const sizes = row.map(Math.abs);
    const kept = name === "wished" ? [...row.keys()].filter((c) => matrix("d_out", head).at(word, c))
      : largest(sizes, most).slice(0, most).filter((c) => sizes[c] >= least);
    if (!isOfWords) kept.sort((a, b) => a - b);
    if (isOfWords || isSlope) return joined(kept);
    return kept.flatMap((c) => [["text", ", "], ["number", number(row[c])], ["text", ` for ${called(labels[c])}`]]).slice(1);
  }

  // Whether a condition holds; a fact holds where it names numbers.
  function conditions(word, head, isAll) {
    const w = matrix("weights", head).row(word);
    const hidden = w.filter((_, j) => isHidden(head, word, j)).length;
    const [slopes, wishes] = [matrix("d_heads", head), parts.out && matrix("d_out", 0)];
    const wished = wishes ? looks.filter((_, i) => wishes.row(i).some(Boolean)).length : 0;
    const found = {
      example: Boolean(meaning), cross: isCross, asker: word === asker(), single: heads === 1, all: isAll,
      off: off().length > 0, silent: off().includes((head + 1) % heads),
      unlike: !isCross && String(looks) !== String(source), alone: w.length - hidden === 1, hides: hidden > 0,
      whole: Math.abs(w.reduce((sum, each) => sum + each, 0) - 1) < 5e-3, lone: isAll && wished === 1,
      head: Boolean(slopes?.all().some((slope) => Math.abs(slope) >= EPSILON)),
    };
    return (name) => (name in found ? found[name] : listed(name, word, head).length > 0);
  }

  // The sentences whose conditions hold, as pieces.
  function says(scene, { back: isBack, word, head, times }, isAll) {
    const holds = conditions(word, head, isAll);
    const templates = (times ? scene.says_times : isBack ? scene.says_back : scene.says)
      .filter(([conditions]) => conditions.split(" ").filter(Boolean).every((each) => holds(each.replace("!", "")) !== each.startsWith("!")));
    return templates.flatMap(([, template], n) => [
      ...(n ? [["text", " "]] : []),
      ...template.split(/(\{\w+\}|\*[^*]+\*|`[^`]+`)/).filter(Boolean).flatMap((piece) => {
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

  function slice(part, letters, head, made) {
    const { j } = letters;
    if (part === "product") return columns("v", head).map((_, c) => ({ name: part, j, c, head }));
    if (part === "bar" && made.chain && made.isTrue.power) return [{ name: "chain", j }];
    if (part in WORKINGS) return made.isTrue[WORKINGS[part]] ? [{ name: part, j }] : [part === "asked" ? "" : "→"];
    if (!part.includes(" ")) return [part];
    const [name, row, column] = part.split(" ");
    if (name === "heads*") return [...Array(heads).keys()].flatMap((h) => slice(`heads ${row}`, letters, h, made));
    const { array: { id }, cols, place } = matrix(name, head);
    const i = letters[row];
    const js = column ? [letters[column]] : [...Array(cols).keys()];
    return js.map((j) => ({ part: name, id, place: place(i, j), i, j, head }));
  }

  function lines(row, word, head, made) {
    if (row.each === "sum") return made.isTrue.power ? [null, { word: made.last, isName: true, isSum: true, slices: row.parts.map((part) => slice(part, {}, head, made)) }] : [];
    const best = bestOf(word, head);
    const [words, only] = { i: [looks, word], k: [reads, word], b: [source, best],
      queries: [looks], keys: [source], tokens: [reads], features: [row.each === "features" && columns("x", head)] }[row.each] ?? [[]];
    const places = only === undefined ? [...words.keys()] : [only];
    return places.map((n) => ({
      word: words[n], role: row.role, isName: row.each === "features",
      isChosen: !["keys", "features"].includes(row.each) && n === word,
      slices: row.parts.map((part) => slice(part, {
        i: ["keys", "b", "features"].includes(row.each) ? word : n, j: n, k: n, f: n, b: best,
      }, head, made)),
    }));
  }

  // Rows under the same columns are one table.
  function tables(scene, at, isAll) {
    const { word, head, back: isBack, times, room } = at;
    const made = workings(at);
    const namesOf = (slot) => (slot === "keys" ? source : slot === "heads*"
      ? [...Array(heads).keys()].flatMap((h) => columns("heads", h))
      : slot in parts ? columns(slot, head) : !(slot in WORKINGS) ? [slot] : made.isTrue[slot] ? [{ name: slot }] : [""]);
    const fits = scene.wide.length && made.isWhole() && 60 * scene.wide[0].columns.flatMap(namesOf).length <= room;
    const one = isCross && scene.across.length ? scene.across : fits ? scene.wide : scene.one;
    const layouts = isAll ? scene.all : !times ? one
      : [one.find(({ rows }) => !rows.length), scene.times.find(({ columns: [, , name] }) => name === times)];
    const isThere = ({ columns: slots }) =>
      !slots.some((slot) => ["x", "y"].includes(slot) && !(slot in parts));
    const found = layouts.filter(isThere).map((layout) => ({
      caption: layout.caption,
      columns: layout.columns.map(namesOf),
      isOfWords: layout.columns[0] === "keys",
      rows: layout.rows.filter(({ role }) => !isBack || role !== "before").flatMap((row) => (row.each === "line" ? [null] : lines(row, word, head, made))),
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

  return { parts, heads, isCross, factors, workings, matrix, isHidden, columns, called, number, signed, fixed, asker, EPSILON, says, tables, place };
}
