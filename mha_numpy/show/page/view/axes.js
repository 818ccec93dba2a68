// What the places along an axis are called: tokens, features, heads; as labels and in words.

function nameAxes(data, trace) {
  const sizes = {};
  for (const { axes, shape } of trace.arrays) axes.forEach((axis, i) => { sizes[axis] = shape[i]; });
  const labels = {
    T_q: data.tokens, T_k: data.sourceTokens ?? data.tokens,
    D: data.features, kdim: data.features, vdim: data.features,
  };
  const heads = sizes.H ?? 1;
  const isHead = (axis) => axis === "H" || axis === "H_kv";
  const isMerged = (axis) => /^H(_kv)?\*/.test(axis);  // heads side by side, as in H*d_k
  const headsAlong = (axis) => (axis.startsWith("H_kv") ? sizes.H_kv ?? heads : heads);
  const named = (axis, i, size) => (labels[axis]?.length === size ? labels[axis][i] : undefined);
  const width = (axis, size) => size / headsAlong(axis);

  function label(axis, i, size) {
    return named(axis, i, size) ?? String(isMerged(axis) ? i % width(axis, size) : i);
  }

  // The query head that gives a place its colour; null where it belongs to none.
  function headAt(axis, i, size) {
    if (!isHead(axis) && !isMerged(axis)) return null;
    const head = isMerged(axis) ? Math.floor(i / width(axis, size)) : i;
    return head * (heads / headsAlong(axis));
  }

  function inWords({ axes, shape }, index) {
    const isPair = axes.includes("T_q") && axes.includes("T_k");
    return axes.flatMap((axis, at) => {
      const [i, size] = [index[at], shape[at]];
      const name = named(axis, i, size);
      if (axis === "B") return size > 1 ? [`sequence ${i}`] : [];
      if (isHead(axis)) return [`${axis === "H" ? "" : "key "}head ${i}`];
      if (axis === "T_q" || axis === "T_k") {
        const role = axis === "T_q" ? "query" : "key";
        return [`${isPair ? `${role} ` : name ? "" : "token "}${name ? `“${name}”` : i}`];
      }
      if (isMerged(axis)) {
        const each = width(axis, size);
        return [`head ${Math.floor(i / each)}`, `feature ${i % each}`];
      }
      return axis === "1" || size === 1 ? [] : [name ? `“${name}”` : `feature ${i}`];
    }).join(", ");
  }

  return { heads, isHead, label, headAt, inWords };
}
