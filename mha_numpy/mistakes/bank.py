"""The bank of known mistakes: what each is called, what a student is told, and how it is mended."""

from typing import NamedTuple


class Mistake(NamedTuple):
    """A mistake that people make in attention; `flawed` makes it when asked by its name."""

    name: str
    verdict: str  # what was done
    fix: str  # what to do instead, in one line


def _of_each(letters: str, name: str, verdict: str, fix: str) -> list[Mistake]:
    """Return one mistake for each of several params or branches: ? stands for its letter."""
    return [
        Mistake(*(text.replace("?", letter) for text in (name, verdict, fix))) for letter in letters
    ]


# fmt: off
HEADS = [
    Mistake("split without transpose", "heads are split by reshape alone, which deals out whole tokens to the heads",
            "x.reshape(B, T, H, d).transpose(0, 2, 1, 3)"),
    Mistake("heads interleaved when split", "each head takes every H-th column instead of a block of d columns",
            "reshape to (B, T, H, d), not to (B, T, d, H)"),
    Mistake("tokens reversed when split", "the tokens are in reverse order",
            "leave the token axis as it is"),
    Mistake("merge without transpose", "heads are merged by reshape alone, which mixes the tokens",
            "heads.transpose(0, 2, 1, 3).reshape(B, T, H * d)"),
    Mistake("heads merged in reverse", "the heads are concatenated from last to first",
            "head 0 has the first d columns"),
    Mistake("heads interleaved when merged", "the heads' columns alternate instead of lying in blocks",
            "transpose to (B, T, H, d), not to (B, T, d, H)"),
    Mistake("heads averaged instead of concatenated", "every head's place holds the mean of all heads",
            "lay the heads side by side"),
]
MASKS = [
    Mistake("causal, strict", "a query does not see its own position: < where <= belongs", "key <= query + q_offset"),
    Mistake("causal, leaks one key", "a query sees one key of the future", "key <= query + q_offset"),
    Mistake("causal, wrong triangle", "queries see the future instead of the past", "key <= query, not >="),
    Mistake("causal forgotten", "queries see the future", "join the mask with key <= query + q_offset"),
    Mistake("aligned at the bottom right", "the last query is aligned with the last key, whatever q_offset says",
            "query i stands at position i + q_offset"),
    Mistake("q_offset ignored", "q_offset is not used", "query i stands at position i + q_offset"),
    Mistake("q_offset subtracted", "q_offset is subtracted instead of added", "query i stands at position i + q_offset"),
    Mistake("window one too wide", "the window reaches one key too far back", "key >= query - left"),
    Mistake("window one too narrow", "the window is one key too short: > where >= belongs", "key >= query - left"),
    Mistake("window forgotten", "the window is not applied", "join the mask with key >= query - left"),
    Mistake("padding one too many", "one key of padding is visible: <= where < belongs", "key < length"),
    Mistake("padding forgotten", "padding is visible", "join the mask with key < length"),
    Mistake("padding inverted", "padding alone is visible", "key < length, not >="),
    Mistake("masks joined by or", "the masks are joined by or: one that allows is enough", "join masks by &"),
    Mistake("mask inverted", "True is taken for blocked", "True = may attend; np.where(mask, scores, -np.inf)"),
    Mistake("mask forgotten", "the mask is not used", "np.where(mask, scores, -np.inf) before softmax"),
    Mistake("mask after softmax", "the mask is applied to the weights, so rows sum to less than 1",
            "np.where(mask, scores, -np.inf) before softmax"),
    Mistake("mask multiplied into the scores", "the mask is multiplied into the scores: a hidden score is 0, and e^0 is not",
            "np.where(mask, scores, -np.inf), not scores * mask"),
    Mistake("hidden scores lowered by 10", "hidden scores are lowered by 10, so e^-10 of them leaks", "use -np.inf"),
    Mistake("-1e9 for -inf", "-1e9 stands for -inf, so a row that sees nothing gets weights all the same",
            "use -np.inf, and decide rows that see nothing from the mask"),
    Mistake("NaN in a row that sees nothing", "a row that sees nothing becomes NaN: 0/0", "its weights are 0"),
    Mistake("the mean in a row that sees nothing", "a row that sees nothing takes the mean of all values", "its weights are 0"),
]
SCORES = [
    Mistake("scale missing", "the scale 1/sqrt(d_k) is missing", "divide the scores by np.sqrt(d_k)"),
    Mistake("scale 1/d_k", "the scores are divided by d_k instead of its root", "divide the scores by np.sqrt(d_k)"),
    Mistake("scale 1/sqrt(D)", "the scores are divided by the root of the whole width D", "d_k is the width of one head"),
    Mistake("scale times sqrt(d_k)", "the scores are multiplied by sqrt(d_k)", "divide the scores by np.sqrt(d_k)"),
    Mistake("k reshaped, not transposed", "k is reshaped to (d_k, T_k), not transposed", "k.swapaxes(-1, -2)"),
    Mistake("q and k swapped", "the scores are k q^T: rows are keys", "q @ k.swapaxes(-1, -2)"),
    Mistake("k and v swapped", "keys and values have changed places", "match with k, mix v"),
    Mistake("softmax over queries", "softmax runs over the queries: columns sum to 1, rows do not", "axis=-1"),
    Mistake("softmax over heads", "softmax runs over the heads", "axis=-1"),
    Mistake("softmax over the whole matrix", "softmax runs over the whole matrix", "axis=-1"),
    Mistake("no maximum subtracted", "no maximum is subtracted: large scores overflow to NaN", "subtract each row's maximum"),
    Mistake("one maximum for all", "one maximum is subtracted for all rows: rows far below it become 0/0",
            "subtract each row's own maximum: axis=-1, keepdims=True"),
    Mistake("normalised by the mean", "rows are divided by their mean instead of their sum", "divide by the row's sum"),
    Mistake("weights transposed in the mix", "the weights are transposed before they mix the values", "weights @ v"),
    Mistake("groups tiled, not repeated", "key/value heads are tiled: query head h reads h % H_kv", "query head h reads h // G: np.repeat"),
    Mistake("first key/value head for all", "every query head reads key/value head 0", "query head h reads h // G"),
]
LAYER = [
    *_of_each("qkvo", "b_? left out", "the bias b_? is left out", "x @ w_? + b_?"),
    *_of_each("qkvo", "w_? transposed", "w_? is used transposed", "x @ w_?, with w_? (inputs, outputs)"),
    Mistake("source ignored", "keys and values come from the queries' input: the source is not used", "project k and v from the source"),
    Mistake("queries from the source", "the two inputs have changed places", "queries come from the first input"),
    Mistake("keys from the queries' input", "the keys come from the queries' input", "project k from the source"),
    Mistake("values from the queries' input", "the values come from the queries' input", "project v from the source"),
    Mistake("output projection left out", "the output projection is left out: the output is merged", "merged @ w_o + b_o"),
]
BACKWARD = [
    Mistake("row sum left out", "the row sum of softmax is left out, so rows of d_scores do not sum to 0",
            "weights * (d_weights - (weights * d_weights).sum(-1, keepdims=True))"),
    Mistake("row sum over queries", "softmax's sum is taken over the queries", "sum over the last axis"),
    Mistake("row sum unweighted", "softmax's sum is of d_weights alone", "sum weights * d_weights"),
    Mistake("row mean instead of the weighted sum", "the plain mean of d_weights is subtracted, not the mean under the weights", "sum weights * d_weights"),
    Mistake("diagonal of the Jacobian alone", "only the diagonal p (1 - p) of softmax's Jacobian is used", "add what the other scores of the row do: -p_i p_j"),
    Mistake("factor p left out", "the factor weights is left out, so hidden cells get gradients", "weights * (d_weights - ...)"),
    Mistake("mask forgotten in backward", "hidden cells take part in softmax's backward", "a weight of 0 passes nothing back"),
    Mistake("sign of d_scores", "d_scores has the wrong sign", "d_weights minus its mean, not the other way"),
    Mistake("scale left out of backward", "the scale is missing in backward: d_q and d_k are sqrt(d_k) too large", "scale * d_scores @ k"),
    Mistake("scale left out of d_q", "d_q is sqrt(d_k) too large: the scale is missing in it", "scale * d_scores @ k"),
    Mistake("scale left out of d_k", "d_k is sqrt(d_k) too large: the scale is missing in it", "scale * d_scores.T @ q"),
    Mistake("scale twice in backward", "the scale is applied twice in backward", "scale once: in d_scores or in d_q and d_k"),
    Mistake("sign of d_k", "d_k has the wrong sign", "scale * d_scores.T @ q"),
    Mistake("d_q and d_k swapped", "d_q and d_k have changed places", "d_q = scale * d_scores @ k, d_k = scale * d_scores.T @ q"),
    Mistake("weights not transposed", "d_v is made with weights that are not transposed", "weights.swapaxes(-1, -2) @ d_heads"),
    Mistake("d_scores not transposed", "d_k is made with d_scores that are not transposed", "d_scores.swapaxes(-1, -2) @ q"),
    Mistake("first of the group alone", "a shared head gets the gradient of the first query head of its group alone", "sum over the group"),
    Mistake("last of the group alone", "a shared head gets the gradient of the last query head of its group alone", "sum over the group"),
    Mistake("mean over the group", "a shared head gets the mean over its group instead of the sum", "sum over the group"),
    Mistake("gradients summed as if tiled", "gradients are summed over heads h, h + H_kv, ..., as if heads were tiled", "reshape to (B, H_kv, G, T, d), sum axis 2"),
    Mistake("everything divided by B", "everything is divided by the batch size", "the mean is the loss's business, not the layer's"),
    Mistake("float32 inside", "part of the computation is in float32", "keep the dtype of the inputs"),
    Mistake("d_x by w, not its transpose", "d_x is d_out @ w: w is not transposed", "d_out @ w.T"),
    Mistake("d_w of the last sequence alone", "d_w is of the last sequence alone", "sum over the batch"),
    Mistake("d_w: mean over the batch", "d_w is the mean over the batch instead of the sum", "sum over the batch"),
    Mistake("d_w: mean over batch and tokens", "d_w is a mean over batch and tokens", "sum over both"),
    Mistake("d_w transposed", "d_w is transposed", "x.T @ d_out, (inputs, outputs)"),
    Mistake("d_b of the last sequence alone", "d_b is of the last sequence alone", "sum over the batch"),
    Mistake("d_b of the last token alone", "d_b is of the last tokens alone", "sum over the tokens"),
    Mistake("d_b: mean", "d_b is a mean over batch and tokens", "sum over both"),
    Mistake("d_b: mean over the batch", "d_b is the mean over the batch instead of the sum", "sum over the batch"),
    Mistake("d_b: zero", "d_b is 0", "d_out.sum(axis=(0, 1))"),
    Mistake("d_b over one axis", "d_b is summed over the batch alone", "sum over batch and tokens"),
    Mistake("d_w_o from the output", "d_w_o is made from the layer's output instead of merged", "merged.T @ d_out"),
    Mistake("output projection skipped in backward", "d_merged is d_out: the output projection is skipped", "d_out @ w_o.T"),
    *_of_each("qkv", "branch of ? forgotten", "x is used for q, k and v, and the share through ? is missing", "d_x sums all three branches"),
    *_of_each("qkv", "branch of ? alone", "x is used for q, k and v, and d_x has the share through ? alone", "d_x sums all three branches"),
]
POSITIONS = [
    Mistake("frequencies over d, not d/2", "the frequencies fall too slowly: the exponent is over d", "base ** (-2 i / d) for i < d / 2"),
    Mistake("frequencies shifted by one", "the frequencies begin with i = 1", "i begins with 0: the first pair turns by the position itself"),
    Mistake("frequencies inverted", "the frequencies rise instead of falling", "base ** -(2 i / d)"),
    Mistake("positions ignored", "the positions that are given are not used", "angles are positions times frequencies"),
    Mistake("turned the other way", "the pairs are turned by minus the angle", "first * cos - second * sin"),
    Mistake("sine and cosine swapped", "sine and cosine have changed places", "first * cos - second * sin"),
    Mistake("pairs interleaved", "features 2i and 2i + 1 are paired", "pair i with i + d / 2"),
    Mistake("a sign of the rotation", "one sign of the rotation is wrong, so lengths change", "second half: first * sin + second * cos"),
    Mistake("gradient turned forward", "the gradient is turned on instead of back", "turn by minus the angle"),
]
# fmt: on

BANK = {m.name: m for m in [*HEADS, *MASKS, *SCORES, *LAYER, *BACKWARD, *POSITIONS]}
