"""What the walk prints: tokens, steps, who attends to whom, gradients."""

from collections.abc import Iterator

from mha_numpy.tables import Table
from mha_numpy.walk.result import Walk


def sections(seen: Walk) -> Iterator[Table | str]:
    """Yield the parts of the report in order: lines of text, and tables."""
    yield _summary(seen)
    is_named = seen.is_trained and seen.source_tokens is not seen.tokens
    yield _tokens(seen.query_name if is_named else "tokens", seen.tokens)
    if seen.source_tokens is not seen.tokens:
        yield _tokens(seen.key_name if is_named else "source", seen.source_tokens)
    yield from seen.said
    yield _titled("FORWARD: from [B, T, D] to [B, H, T, d_h] and back", seen, backward=False)
    yield attention_table(seen)
    yield _titled("BACKWARD: the same way, last step to first", seen, backward=True)
    yield seen.report.table()
    yield _verdict(seen)


def attention_table(seen: Walk) -> Table:
    """Return, for each query and head, the key that it attends to most; of the first sequence."""
    H = seen.weights.shape[1]
    rows = []
    for i, token in enumerate(seen.tokens):
        cells = []
        for h in range(H):
            row = seen.weights[0, h, i]
            j = int(row.argmax())
            cells.append(f"{seen.source_tokens[j]} {row[j]:.2f}" if row[j] > 0 else "nothing")
        rows.append([str(i), token, *cells])
    B, K = seen.weights.shape[0], len(seen.source_tokens)
    title = f"WHO ATTENDS TO WHOM MOST, of {K} keys (weight 0 to 1)"
    if B > 1:
        title += f", sequence 0 of {B}"
    return Table(title, ["#", "query", *(f"head {h}" for h in range(H))], rows)


def _summary(seen: Walk) -> str:
    """Say what is about to be shown, in one paragraph."""
    sizes = seen.trace.sizes
    kind = "cross-attention" if seen.is_cross else "self-attention"
    if seen.is_causal:
        kind = f"causal {kind}"
    dims = ", ".join(
        f"{axis}={sizes[axis]}" for axis in ("B", "T_q", "T_k", "D", "H", "H_kv", "d_k", "d_v")
    )
    dtype = seen.trace.steps[0].array.dtype
    return f"{kind}, {dtype}: {dims}\n{seen.layer}\n{seen.about}"


def _tokens(title: str, tokens: list[str]) -> str:
    """Return the tokens in one line, numbered."""
    return f"{title}: " + "  ".join(f"{i} {token}" for i, token in enumerate(tokens))


def _titled(title: str, seen: Walk, *, backward: bool) -> Table:
    """Return the steps of one pass under a title."""
    table = seen.trace.table(backward=backward)
    return table._replace(title=f"{title} ({table.title})")


def _verdict(seen: Walk) -> str:
    """Say in one line whether the gradients are right."""
    report = seen.report
    if not report:
        return "gradients: WRONG, see the rows marked FAIL"
    worst = {method: report.errors(method).values() for method in ("central", "complex step")}
    found = [f"{max(errors):.0e} by {method}" for method, errors in worst.items() if errors]
    return f"gradients: all {len(worst['central'])} right; largest error {', '.join(found)}"
