"""A new token attends to latents."""

from typing import NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.probes import normal, whole_numbers
from mha_numpy.teach.task import Again, Hints, Inputs, Mistake, Reaction, Task, moved
from mha_numpy.teach.tasks.softmax import softmax


class Absorbed(NamedTuple):
    """The queries that meet the latents, and the heads."""

    q_absorbed: Array  # (H, d_c)
    heads: Array  # (H, d_v)


def absorbed_decode(
    q_nope: Array, q_rope: Array, kept: Array, w_k_up: Array, w_v_up: Array
) -> Absorbed:
    """Let the queries of one new token attend to all tokens without making a key or a value.

    Of each token, the new one included, `kept` has the latent, of width d_c, and then one rotated
    key of width d_rope, which all heads share. Head h owns block h of the columns of both maps: its
    key for a token is ``[latent @ w_k_up^h, rotated key]`` and its value ``latent @ w_v_up^h``. Its
    output is ``softmax(q k^T / sqrt(d_nope + d_rope)) v`` with the query ``[q_nope, q_rope]``.

    Compute the same without those keys and values:

    1. Each head's query is taken to the latents: ``q_absorbed @ latent`` is the product of `q_nope`
       with the head's own key, for every latent.
    2. Scores are the sum of both products, and the scale is that of a whole key.
    3. The weights mix the latents, and the head's value map comes after the mix.

    Large scores must not overflow.

    Parameters
    ----------
    q_nope : (H, d_nope)
        The part of each head's query that is not rotated.
    q_rope : (H, d_rope)
        The other part, already rotated.
    kept : (T, d_c + d_rope)
        The latents are already normed, and the keys are already rotated.
    w_k_up : (d_c, H*d_nope)
    w_v_up : (d_c, H*d_v)

    Returns
    -------
    q_absorbed : (H, d_c)
        Not scaled.
    heads : (H, d_v)
    """
    (H, d_nope), d_rope, d_c = q_nope.shape, q_rope.shape[1], len(w_k_up)
    w_k = w_k_up.reshape(d_c, H, d_nope)
    w_v = w_v_up.reshape(d_c, H, -1)
    latents, k_rope = kept[:, :d_c], kept[:, d_c:]
    q_absorbed = np.einsum("hn,chn->hc", q_nope, w_k)
    both = q_absorbed @ latents.T + q_rope @ k_rope.T
    weights = softmax(both / np.sqrt(d_nope + d_rope), None)
    mixed = weights @ latents
    return Absorbed(q_absorbed, np.einsum("hc,chv->hv", mixed, w_v))


def _draw_latents(rng: np.random.Generator) -> list[Inputs]:
    """Draw all sizes different, all equal, one token, a wide head, and large scores."""
    probes = []
    for H, T, d_nope, d_rope, d_c, d_v in (
        (3, 8, 4, 2, 6, 5), (4, 4, 4, 4, 4, 4), (2, 1, 3, 2, 4, 5), (2, 5, 6, 4, 3, 2),
    ):  # fmt: skip
        probes.append(
            normal(
                rng, q_nope=(H, d_nope), q_rope=(H, d_rope), kept=(T, d_c + d_rope),
                w_k_up=(d_c, H * d_nope), w_v_up=(d_c, H * d_v),
            )
        )  # fmt: skip
    shapes = {"q_nope": (3, 2), "q_rope": (3, 2), "kept": (6, 7), "w_k_up": (5, 6)}
    large = {name: whole_numbers(rng, 2, shape) for name, shape in shapes.items()}
    large["q_rope"][:2, 0], large["kept"][:, 5] = [400.0, -400.0], [10.0] * 5 + [5.0]
    return [*probes, large | normal(rng, w_v_up=(5, 12))]


MISTAKES: list[Mistake | Again] = [
    Mistake("scale of the latent's width", "the scores are divided by sqrt(d_c + d_rope), the width of what is kept",
            "np.sqrt(d_nope + d_rope), the width of a whole key", {"np.sqrt(d_nope + d_rope)": "np.sqrt(d_c + d_rope)"}),
    Mistake("scale of the latent", "the scores are divided by sqrt(d_c)",
            "np.sqrt(d_nope + d_rope), the width of a whole key", {"np.sqrt(d_nope + d_rope)": "np.sqrt(d_c)"}),
    Mistake("scale without the rotated part", "the scores are divided by sqrt(d_nope)",
            "np.sqrt(d_nope + d_rope), the width of a whole key", {"np.sqrt(d_nope + d_rope)": "np.sqrt(d_nope)"}),
    Mistake("rotated part not scaled", "only the product with the latents is scaled, not that of the rotated parts",
            "add both products, then divide the sum",
            {"both = q_absorbed @ latents.T + q_rope @ k_rope.T": "both = q_absorbed @ latents.T + np.sqrt(d_nope + d_rope) * q_rope @ k_rope.T"}),
    Mistake("latent part not scaled", "only the product of the rotated parts is scaled, not that with the latents",
            "add both products, then divide the sum",
            {"both = q_absorbed @ latents.T": "both = np.sqrt(d_nope + d_rope) * q_absorbed @ latents.T"}),
    Mistake("each part with its own scale", "each part is divided by the root of its own width, d_nope and d_rope",
            "add both products, then divide the sum by np.sqrt(d_nope + d_rope)",
            {"both = q_absorbed @ latents.T + q_rope @ k_rope.T": "both = q_absorbed @ latents.T / np.sqrt(d_nope) + q_rope @ k_rope.T / np.sqrt(d_rope)",
             "both / np.sqrt(d_nope + d_rope)": "both"}),
    Mistake("scale in the absorbed query", "the returned q_absorbed is already scaled", "divide the scores, not the query",
            {"Absorbed(q_absorbed,": "Absorbed(q_absorbed / np.sqrt(d_nope + d_rope),"}),
    Mistake("rotated part left out", "the rotated parts are not used", "q_absorbed @ latents.T + q_rope @ k_rope.T",
            {" + q_rope @ k_rope.T": ""}),
    Mistake("rotated part only", "the scores are those of the rotated parts only",
            "q_absorbed @ latents.T + q_rope @ k_rope.T", {"both = q_absorbed @ latents.T + ": "both = "}),
    Mistake("rotated part subtracted", "the product of the rotated parts is subtracted",
            "q_absorbed @ latents.T + q_rope @ k_rope.T", {" + q_rope @ k_rope.T": " - q_rope @ k_rope.T"}),
    Mistake("rotated query of head 0 for all", "every head uses the rotated query of head 0",
            "the rotated key is shared, but each head has its own rotated query", {"+ q_rope @": "+ q_rope[:1] @"}),
    Mistake("rotated queries averaged", "every head uses the mean of all heads' rotated queries",
            "the rotated key is shared, but each head has its own rotated query", {"+ q_rope @": "+ q_rope.mean(axis=0) @"}),
    Mistake("rotated key before the latent", "the first d_rope columns of kept are read as the rotated key",
            "the latent comes first: kept[:, :d_c], kept[:, d_c:]",
            {"kept[:, :d_c], kept[:, d_c:]": "kept[:, d_rope:], kept[:, :d_rope]"}),
    Mistake("latents normed again", "the latents are normed once more, though what is kept is normed already",
            "use the latents as they are",
            {"    q_absorbed = np": "    latents = latents / np.sqrt((latents**2).mean(axis=-1, keepdims=True))\n    q_absorbed = np"}),
    Mistake("latents normed again for the keys", "the scores use latents that are normed once more, and the mix does not",
            "use the latents as they are",
            {"q_absorbed @ latents.T": "q_absorbed @ (latents / np.sqrt((latents**2).mean(axis=-1, keepdims=True))).T"}),
    Mistake("key map's heads interleaved", "w_k_up is split so that each head takes every H-th column",
            "w_k_up.reshape(d_c, H, d_nope)", {"w_k_up.reshape(d_c, H, d_nope)": "w_k_up.reshape(d_c, d_nope, H).swapaxes(1, 2)"}),
    Mistake("value map's heads interleaved", "w_v_up is split so that each head takes every H-th column",
            "w_v_up.reshape(d_c, H, d_v)", {"w_v_up.reshape(d_c, H, -1)": "w_v_up.reshape(d_c, -1, H).swapaxes(1, 2)"}),
    Mistake("both maps' heads interleaved", "both maps are split so that each head takes every H-th column",
            "w.reshape(d_c, H, -1)",
            {"w_k_up.reshape(d_c, H, d_nope)": "w_k_up.reshape(d_c, d_nope, H).swapaxes(1, 2)",
             "w_v_up.reshape(d_c, H, -1)": "w_v_up.reshape(d_c, -1, H).swapaxes(1, 2)"}),
    Mistake("key map dealt out in memory order", "w_k_up is reshaped to (H, d_c, d_nope), so a head takes rows instead of columns",
            "w_k_up.reshape(d_c, H, d_nope)", {"w_k_up.reshape(d_c, H, d_nope)": "w_k_up.reshape(H, d_c, d_nope).swapaxes(0, 1)"}),
    Mistake("value map dealt out in memory order", "w_v_up is reshaped to (H, d_c, d_v), so a head takes rows instead of columns",
            "w_v_up.reshape(d_c, H, d_v)", {"w_v_up.reshape(d_c, H, -1)": "w_v_up.reshape(H, d_c, -1).swapaxes(0, 1)"}),
    Mistake("both maps dealt out in memory order",
            "both maps are reshaped to (H, d_c, ...), so a head takes rows instead of columns", "w.reshape(d_c, H, -1)",
            {"w_k_up.reshape(d_c, H, d_nope)": "w_k_up.reshape(H, d_c, d_nope).swapaxes(0, 1)",
             "w_v_up.reshape(d_c, H, -1)": "w_v_up.reshape(H, d_c, -1).swapaxes(0, 1)"}),
    Mistake("key map transposed before its split", "w_k_up is reshaped to (d_nope, H, d_c), as if it were transposed",
            "w_k_up.reshape(d_c, H, d_nope)",
            {"w_k_up.reshape(d_c, H, d_nope)": "w_k_up.reshape(d_nope, H, d_c).transpose(2, 1, 0)"}),
    Mistake("key map of head 0 for all", "every head's query goes through the key map of head 0",
            "head h has its own block of w_k_up", {"\"hn,chn->hc\", q_nope, w_k)": "\"hn,cn->hc\", q_nope, w_k[:, 0])"}),
    Mistake("value map of head 0 for all", "every head's mix goes through the value map of head 0",
            "head h has its own block of w_v_up", {"\"hc,chv->hv\", mixed, w_v)": "\"hc,cv->hv\", mixed, w_v[:, 0])"}),
    Mistake("key maps summed over the heads", "the sum runs over the heads too, so every head gets the same absorbed query",
            "einsum's result keeps h: \"hn,chn->hc\"",
            {"np.einsum(\"hn,chn->hc\", q_nope, w_k)": "np.tile(np.einsum(\"hn,chn->c\", q_nope, w_k), (H, 1))"}),
    Mistake("key map not transposed", "the queries are multiplied by w_k_up^h instead of its transpose",
            "each head's w_k_up (d_c, d_nope) transposed: (d_nope, d_c)",
            {"np.einsum(\"hn,chn->hc\"": "np.einsum(\"hc,chn->hn\""}, is_first=True),
    Mistake("value map transposed", "the mixes are multiplied by the transpose of w_v_up^h",
            "mixed (d_c,) @ each head's w_v_up (d_c, d_v)", {"\"hc,chv->hv\"": "\"hv,chv->hc\""}),
    Mistake("value map twice", "the value map is applied twice, before the mix and after it",
            "once: the latents are mixed as they are",
            {"mixed = weights @ latents": "mixed = np.einsum(\"ht,tc,chv->hv\", weights, latents, w_v)"}),
    Mistake("value map left out", "the mixes of the latents are returned as heads", "after the mix comes the value map of each head",
            {"np.einsum(\"hc,chv->hv\", mixed, w_v)": "mixed"}),
    Mistake("maps swapped", "the value map takes the queries to the latents, and the key map makes the heads",
            "w_k_up for the queries, w_v_up after the mix",
            {"w_k = w_k_up.reshape(d_c, H, d_nope)": "w_k = w_v_up.reshape(d_c, H, -1)",
             "w_v = w_v_up.reshape(d_c, H, -1)": "w_v = w_k_up.reshape(d_c, H, d_nope)"}),
    Mistake("key map after the mix", "the key map is applied after the mix instead of the value map",
            "w_v_up after the mix", {"mixed, w_v)": "mixed, w_k)"}),
    Mistake("value map on the queries", "the queries go through the value map", "w_k_up for the queries",
            {"\"hn,chn->hc\", q_nope, w_k)": "\"hn,chn->hc\", q_nope, w_v)"}),
    Mistake("new token not seen in the latents", "the newest token is not among those that are attended to",
            "attend to all T tokens", {"    weights = softmax(both /": "    both[:, len(kept) - 1 or 1:] = -np.inf\n    weights = softmax(both /"}),
    Mistake("a softmax for each part", "each part has its own softmax, and the weights are averaged",
            "one softmax, of the sum of both products",
            {"weights = softmax(both / np.sqrt(d_nope + d_rope), None)": "each = q_absorbed @ latents.T, q_rope @ k_rope.T\n    weights = sum(softmax(one / np.sqrt(d_nope + d_rope), None) for one in each) / 2"}),
    Mistake("weights not divided by their sum", "the powers of e are the weights, without a division by their sum",
            "divide each head's powers by their sum",
            {"softmax(both / np.sqrt(d_nope + d_rope), None)": "np.exp((both - both.max(axis=-1, keepdims=True)) / np.sqrt(d_nope + d_rope))"}),
    Again("decoded as position 0", {"kept[:, :d_c], kept[:, d_c:]": "kept[:1, :d_c], kept[:1, d_c:]"}),
    Again("scale missing", {"both / np.sqrt(d_nope + d_rope)": "both"}),
    Again("scale 1/d_k", {"both / np.sqrt(d_nope + d_rope)": "both / (d_nope + d_rope)"}),
    Again("scale times sqrt(d_k)", {"both / np.sqrt(d_nope + d_rope)": "both * np.sqrt(d_nope + d_rope)"}),
    Again("scale after softmax",
          {"softmax(both / np.sqrt(d_nope + d_rope), None)": "softmax(both, None) / np.sqrt(d_nope + d_rope)"}),
    Again("softmax left out",
          {"softmax(both / np.sqrt(d_nope + d_rope), None)": "both / np.sqrt(d_nope + d_rope)"}),
]  # fmt: skip

TASK = Task(
    absorbed_decode,
    place=265,
    difficulty=3,
    minutes=25,
    needs=("attention", "split-heads"),
    hints=Hints(
        where="Write down the product of a query with a key that is made from a latent, and move "
        'the bracket: notebook 31, "Move the bracket".',
        question="A head's key map is (d_c, d_nope). A latent times this map is a key. Which side "
        "of the map does the query have to meet, so that its result can meet the latent? And how "
        "wide would the head's key be, if you made it?",
        mistake="scale of the latent's width",
        fix='w_k = w_k_up.reshape(d_c, H, d_nope); q_absorbed = np.einsum("hn,chn->hc", q_nope, '
        "w_k); both = q_absorbed @ kept[:, :d_c].T + q_rope @ kept[:, d_c:].T\n"
        "then softmax of both / sqrt(d_nope + d_rope), the mix of the latents, and each head's "
        "value map:\n"
        'heads = np.einsum("hc,chv->hv", weights @ kept[:, :d_c], w_v_up.reshape(d_c, H, -1))',
    ),
    returns="tuple[Array, Array]",
    draw=_draw_latents,
    reactions=[
        Reaction(
            "changing the last head's query changes only the last head",
            moved("q_nope", -1),
            lambda _, arrays: arrays["heads"][:-1],
        ),
        Reaction(
            "changing the rotated queries does not change q_absorbed",
            moved("q_rope", np.s_[:]),
            lambda _, arrays: arrays["q_absorbed"],
        ),
    ],
    mistakes=MISTAKES,
)
