// What the places along an axis are called: tokens, features, heads; as labels and in words.

function nameAxes(data, trace) {
  const sizes = {};
  for (const { axes, shape } of trace.arrays) axes.forEach((axis, i) => { sizes[axis] = shape[i]; });
  const labels = {
    T_q: data.tokens, T_k: data.sourceTokens ?? data.tokens,
    D: data.features, D_out: data.features, kdim: data.features, vdim: data.features,
  };
  const heads = sizes.H ?? 1;
  const meaning = data.story?.meaning;
  const columns = { d_k: meaning?.matched, d_v: meaning?.handed };  // their names, head by head
  const isHead = (axis) => axis === "H" || axis === "H_kv";
  const isToken = (axis) => axis.startsWith("T_");
  const isMerged = (axis) => /^H(_kv)?\*/.test(axis);  // heads side by side, as in H*d_k
  const headsAlong = (axis) => (axis.startsWith("H_kv") ? sizes.H_kv ?? heads : heads);
  const named = (axis, i, size) => (labels[axis]?.length === size ? labels[axis][i] : undefined);
  const width = (axis, size) => size / headsAlong(axis);
  const ofHead = (axis, i, head) => columns[axis.split("*").at(-1)]?.[head]?.[i];

  // `head` is that of the cell, where heads have an axis of their own.
  function label(axis, i, size, head) {
    if (!isMerged(axis)) return named(axis, i, size) ?? ofHead(axis, i, head) ?? String(i);
    const each = width(axis, size);
    return ofHead(axis, i % each, Math.floor(i / each)) ?? String(i % each);
  }

  // The query head that gives a place its colour; null where it belongs to none.
  function headAt(axis, i, size) {
    if (!isHead(axis) && !isMerged(axis)) return null;
    const head = isMerged(axis) ? Math.floor(i / width(axis, size)) : i;
    return head * (heads / headsAlong(axis));
  }

  // Where a number is, as pieces: "It looking at cat, head 0", "It: alive", "stand-in to alive".
  function inWords({ axes, shape }, index) {
    const head = index[axes.findIndex(isHead)];
    const [places, rest] = [[], []];
    axes.forEach((axis, at) => {
      const [i, size] = [index[at], shape[at]];
      if (axis === "B") return size > 1 && rest.push(`sequence ${i}`);
      if (isHead(axis)) return rest.push(`${axis === "H" || sizes.H_kv === heads ? "" : "key/value "}head ${i}`);
      if (isMerged(axis)) rest.push(`head ${Math.floor(i / width(axis, size))}`);
      const words = label(axis, i, size, head);
      if (isToken(axis)) return places.push(isNaN(words) ? element("b", "w", words) : `token ${i}`);
      return size > 1 && places.push(isNaN(words) ? words : `number ${words}`);
    });
    const joint = [" looking at ", ": ", " to "][2 - axes.filter(isToken).length];
    const pieces = places.flatMap((each, n) => (n ? [joint, each] : [each]));
    return [...pieces, element("small", "", [pieces.length ? "" : [], rest].flat().join(", "))];
  }

  return { heads, isHead, label, headAt, inWords };
}
