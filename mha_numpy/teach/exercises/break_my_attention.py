"""The other way round: write the tests that catch known mistakes."""

from collections.abc import Callable

from mha_numpy.dtypes import Array
from mha_numpy.teach.exercises.exercise import Exercise
from mha_numpy.teach.task import Hints


def break_my_attention(attention: Callable[..., Array]) -> None:
    """Test an attention that you did not write: raise an error if it is wrong.

    Your function is called with one `attention` after another, in any order. Most of them make one
    known mistake each, and the others are right. Accept all right ones. Your score is the number of
    wrong ones that you catch, with ``assert`` or any other exception; you need nine out of ten. A
    wrong one that raises an error by itself counts as caught. Use your own numbers: small cases
    that you know by hand, and properties that hold for all inputs. Do not compare with another
    implementation.

    Call it as ``attention(q, k, v, mask, softcap)``, at most 200 times for each one, with arrays
    whose shapes are at most (4, 8, 32, 64). It takes and returns float64 arrays, and computes this:

    - scores: the dot product of a query and a key, divided by the square root of d_k;
    - with a softcap c, each score becomes ``c * tanh(score / c)``;
    - weights: softmax of the scores over the keys that the mask lets the query see; the others have
      weight 0; large scores do no harm;
    - heads: for each query the mean of the values, weighted by its weights; 0 for a query that sees
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


EXERCISE = Exercise(
    id="break-my-attention",
    kind="tests",
    title="Write the tests that catch the mistakes",
    difficulty=4,
    minutes=60,
    needs=("masked-attention",),
    hints=Hints(
        where="What do you know about a right answer without computing it? Think of sums, of "
        "bounds, and of changes to the input that must or must not change the output. Then think "
        "of cases so small that you know every number.",
        question="For which v is the output equal to the weights? What must be true of a row of "
        "weights that sees all keys, of one that sees some of them, and of one that sees none?",
        mistake="groups tiled, not repeated",
        fix="If v is the identity, (B, H_kv, T_k, T_k), the output is the weights: hidden ones are "
        "0, and rows that see something sum to 1. Then test T_q != T_k and T_q == T_k, 4 query "
        "heads on 2 key/value heads that differ, a score of log 3 with d_k = 4, scores of 10000 in "
        "one row and -10000 in the next, such scores under the mask, and a softcap small enough to "
        "change the scores.",
    ),
    task="masked_attention",
    stub=break_my_attention,
)
