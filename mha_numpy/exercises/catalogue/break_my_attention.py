"""The other way round: write the tests, and catch every known mistake."""

from collections.abc import Callable

from mha_numpy.dtypes import Array
from mha_numpy.exercises.exercise import Hints, exercise


@exercise(
    "break-my-attention",
    kind="tests",
    title="Write the tests that catch the mistakes",
    difficulty=4,
    minutes=60,
    needs=("masked-attention",),
    hints=Hints(
        where="What can you know about a right answer without computing it? Sums, bounds, what may "
        "not matter, what must; and cases so small that you know every number.",
        question="Which values would make the output show you the weights themselves? And with "
        "those in view, what must each row of them fulfil: a row in full, in part, and one that "
        "sees nothing?",
        mistake="groups tiled, not repeated",
        fix="With v the identity, (B, H_kv, T_k, T_k), the output is the weights: hidden ones are "
        "0, rows that see something sum to 1. Then: T_q != T_k and equal, 4 heads on 2 that "
        "differ, a score of log 3 with d_k = 4, scores of 10000 in one row and -10000 in the next, "
        "or under the mask, and a softcap that bends.",
    ),
    piece="masked_attention",
)
def break_my_attention(attention: Callable[..., Array]) -> None:
    """Test an attention that somebody else wrote: raise an error if it is wrong.

    `attention` will be a right one, and then many that each make one known mistake. Let the right
    one pass. Your score is the number of wrong ones that you catch, by ``assert`` or any other
    exception (nine of ten are asked for); one that fails by itself while you call it is caught as
    well. Bring numbers of your own: small cases that you know by hand, and properties that hold for
    all. Do not compare with another implementation.

    It is called as ``attention(q, k, v, mask, softcap)``, takes and returns arrays of float64, and
    is to do this:

    - scores: the dot product of a query and a key, divided by the square root of d_k;
    - with a softcap c, each score becomes ``c * tanh(score / c)``;
    - weights: softmax of the scores over the keys that the mask lets the query see; the others have
      weight 0; large scores do no harm;
    - heads: for each query the mean of the values under its weights; 0 for a query that sees
      nothing;
    - query head h reads key/value head ``h // (H // H_kv)``.

    Parameters
    ----------
    attention : function
        Its arguments are q (B, H, T_q, d_k); k (B, H_kv, T_k, d_k); v (B, H_kv, T_k, d_v), where
        H_kv divides H; mask (B, 1, T_q, T_k) bool, True = may attend; softcap, a float or None. It
        returns heads (B, H, T_q, d_v).

    Raises
    ------
    AssertionError
        Or any other exception, if `attention` is wrong.
    """
    raise NotImplementedError
