"""Gradients of anybody's function: right ones pass, and each mistake is named."""

import linecache

import numpy as np
import pytest

from mha_numpy.identifying import identify
from mha_numpy.identifying.calling.subject import Subject
from mha_numpy.identifying.calling.ways import Slot, Way
from mha_numpy.identifying.family import Sizes
from mha_numpy.identifying.gradients.look import look_at_gradients
from mha_numpy.identifying.searching.search import Found, Seen, explain
from tests.sweeps import every

PLAIN = """
def forward(Q, K, V):
    B, H, T, d = Q.shape
    n = H // K.shape[1]
    k, v = np.repeat(K, n, axis=1), np.repeat(V, n, axis=1)
    c = 1 / np.sqrt(d)
    S = c * np.einsum("bhid,bhjd->bhij", Q, k)
    hide = np.triu(np.ones(S.shape[-2:], bool), 1)
    S = np.where(hide, -np.inf, S)
    P = np.exp(S - S.max(-1, keepdims=True))
    P /= P.sum(-1, keepdims=True)
    return P @ v, (Q, k, v, P, c, n)

def backward(dO, cache):
    Q, k, v, P, c, n = cache
    B, H, T, d = Q.shape
    dV = P.transpose(0, 1, 3, 2) @ dO
    dP = dO @ v.transpose(0, 1, 3, 2)
    row = (P * dP).sum(-1, keepdims=True)
    dS = P * (dP - row)
    dQ = c * dS @ k
    dK = c * dS.transpose(0, 1, 3, 2) @ Q
    dK = dK.reshape(B, H // n, n, *dK.shape[2:]).sum(2)
    dV = dV.reshape(B, H // n, n, *dV.shape[2:]).sum(2)
    return dQ, dK, dV
"""
HEADS = {"Q": Slot("query", "B H T d"), "K": Slot("key", "B G S d"), "V": Slot("value", "B G S e")}
CAUSAL = {"causal": "past and itself"}
WIDE = Sizes(d=6)
GROUPED = Sizes(G=2, d=6)

LAYER = """
def split(t, h):
    b, n, w = t.shape
    return t.reshape(b, n, h, w // h).transpose(0, 2, 1, 3)

def join(t):
    b, h, n, d = t.shape
    return t.transpose(0, 2, 1, 3).reshape(b, n, h * d)

def forward(x, heads, p):
    q, k, v = (split(x @ p["W" + n] + p["b" + n], heads) for n in "qkv")
    s = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[3])
    a = np.exp(s - s.max(-1, keepdims=True))
    a /= a.sum(-1, keepdims=True)
    z = join(a @ v)
    return {"y": z @ p["Wo"] + p["bo"], "saved": (x, p, q, k, v, a, z)}

def backward(dy, saved):
    x, p, q, k, v, a, z = saved
    c, g = q.shape[3] ** -0.5, {}
    g["Wo"] = np.einsum("btm,btw->mw", z, dy)
    g["bo"] = dy.sum((0, 1))
    dz = dy @ p["Wo"].T
    do = split(dz, q.shape[1])
    dv = a.swapaxes(2, 3) @ do
    da = do @ v.swapaxes(2, 3)
    ds = a * (da - (a * da).sum(-1, keepdims=True))
    dx = 0
    for n, d in ("q", c * ds @ k), ("k", c * ds.swapaxes(2, 3) @ q), ("v", dv):
        d = join(d)
        g["W" + n] = np.einsum("btd,btm->dm", x, d)
        g["b" + n] = d.sum((0, 1))
        dx = dx + d @ p["W" + n].T
    return {"x": dx, **g}
"""
PARAMS = {
    "Wq": "w_q D M", "Wk": "w_k C N", "Wv": "w_v E O", "Wo": "w_o U W",
    "bq": "b_q M", "bk": "b_k N", "bv": "b_v O", "bo": "b_o W",
}  # fmt: skip
INSIDE = {
    "x": Slot("x", "B T D"), "heads": Slot("H"),
    **{f"p[{name!r}]": Slot(*text.split(" ", 1)) for name, text in PARAMS.items()},
}  # fmt: skip
SELF = Sizes(S=5, d=6, e=6, D=24)

OPTIONS = """
def forward(q, k, v, bias, keep):
    s = q @ np.swapaxes(k, 2, 3) * q.shape[3] ** -0.5
    t = np.tanh(s / 2)
    s = 2 * t + bias
    a = np.exp(s - s.max(-1, keepdims=True))
    a /= a.sum(-1, keepdims=True)
    return (a * keep) @ v, t, a

def backward(q, k, v, bias, keep, t, a, g):
    c = q.shape[3] ** -0.5
    dv = np.swapaxes(a * keep, 2, 3) @ g
    da = g @ np.swapaxes(v, 2, 3) * keep
    ds = a * (da - (a * da).sum(-1, keepdims=True))
    raw = ds * (1 - t * t)
    return c * raw @ k, c * np.swapaxes(raw, 2, 3) @ q, dv, ds.sum(0)
"""

ROTATED = """
def turn(x, sign):
    h = x.shape[3] // 2
    angle = np.arange(x.shape[2])[:, None] * 10000.0 ** (-np.arange(h) / h)
    cos, sin = np.cos(angle), sign * np.sin(angle)
    a, b = x[..., :h], x[..., h:]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)

def forward(q, k, v):
    q, k = turn(q, 1), turn(k, 1)
    s = q @ k.swapaxes(2, 3) / 6 ** 0.5
    a = np.exp(s - s.max(-1, keepdims=True))
    a /= a.sum(-1, keepdims=True)
    return a @ v, dict(q=q, k=k, v=v, a=a)

def backward(g, tape):
    q, k, v, a = tape.values()
    da = g @ v.swapaxes(2, 3)
    ds = a * (da - (a * da).sum(-1, keepdims=True)) / 6 ** 0.5
    dq = turn(ds @ k, -1)
    dk = turn(ds.swapaxes(2, 3) @ q, -1)
    return dict(dk=dk, dv=a.swapaxes(2, 3) @ g, dq=dq)
"""
LOWER = {n.lower(): slot for n, slot in HEADS.items()}


def made(source, edits=()):
    for old, new in edits:
        assert old in source
        source = source.replace(old, new)
    home, file = {"np": np}, f"<foreign {hash(source)}>"
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    exec(compile(source, file, "exec"), home)
    return home["forward"], home["backward"]


def looked_at(
    forward,
    backward,
    slots,
    sizes=WIDE,
    settings=None,
    is_inside=False,
    framework="numpy",
    hidden=None,
):
    subject = Subject(forward)
    subject.framework = framework
    way = Way(slots, hidden or {}, sizes, is_inside)
    problem = way.problem(subject)
    if "dropout_mask" in problem.given:  # and the bias is one for all sequences
        keep = np.random.default_rng(0).permuted(problem.get("dropout_mask"), axis=3).argsort(3) % 3
        problem = problem.but(bias=problem.given["bias"][:1], dropout_mask=1.5 * (keep > 0))
    if "mask" in problem.given:
        problem = problem.but(mask=problem.given["mask"].argsort(3) % 2 == 0)
    called = subject.call(way.given(problem))
    assert not called.trouble
    found = Found(
        Seen(way, problem, called),
        settings or {},
        explain(Seen(way, problem, called), settings or {}),
    )
    rows = {}
    for row in look_at_gradients(subject, found, backward):
        rows.setdefault(row.name, []).append(row)
    return rows


def mistakes(rows):
    wrong = {name: own for name, own in rows.items() if not own[0].is_right}
    return {name: "; ".join(row.mistake for row in own) for name, own in wrong.items()}


def lines(rows):
    """Return the code of the line that is to blame, by gradient."""
    return {name: [row.code for row in own] for name, own in rows.items() if own[0].line}


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    every(3, [
        ("dQ = c * dS", "dQ = dS", {"d_q": "scale left out of d_q"}),
        ("dK = c * dS", "dK = dS", {"d_k": "scale left out of d_k"}),
        ("dS = P *", "dS = c * P *", dict.fromkeys(["d_q", "d_k"], "scale twice in d_q and d_k")),
        ("dQ = c *", "dQ = 1 / c *", {"d_q": "scale inverted in d_q"}),
        ("dP - row", "dP", dict.fromkeys(["d_q", "d_k"], "row sum left out")),
        (".sum(-1, keepdims=True)\n    dS", ".sum(-2, keepdims=True)\n    dS", dict.fromkeys(["d_q", "d_k"], "row sum over queries")),
        ("(P * dP).sum", "dP.sum", dict.fromkeys(["d_q", "d_k"], "row sum unweighted")),
        ("(P * dP).sum", "dP.mean", dict.fromkeys(["d_q", "d_k"], "row mean instead of the weighted sum")),
        ("P * (dP - row)", "P * (1 - P) * dP", dict.fromkeys(["d_q", "d_k"], "only the diagonal of the Jacobian")),
        ("P * (dP - row)", "dP - row", dict.fromkeys(["d_q", "d_k"], "factor p left out")),
        ("P * (dP - row)", "dP", dict.fromkeys(["d_q", "d_k"], "softmax skipped in backward")),
        ("P * (dP - row)", "P * dP - row", dict.fromkeys(["d_q", "d_k"], "row sum without the factor p")),
        ("n, *dK.shape[2:]).sum(2)", "n, *dK.shape[2:])[:, :, 0]", {"d_k": "only the first of the group in d_k"}),
        ("n, *dV.shape[2:]).sum(2)", "n, *dV.shape[2:]).mean(2)", {"d_v": "mean over the group in d_v"}),
        ("(B, H // n, n, *dV.shape[2:]).sum(2)", "(B, n, H // n, *dV.shape[2:]).sum(1)", {"d_v": "summed over the wrong heads in d_v"}),
        ("    dK = dK.re", "    return dQ, dK, dV\n    dK = dK.re", dict.fromkeys(["d_k", "d_v"], "group not summed")),
        ("dO @ v.transpose(0, 1, 3, 2)", "dO @ v.reshape(B, H, v.shape[3], v.shape[2])", dict.fromkeys(["d_q", "d_k"], "v reshaped")),
        ("dV = P.transpose(0, 1, 3, 2)", "dV = P.reshape(B, H, -1, T)", {"d_v": "weights reshaped"}),
        ("dV = P", "dV = dS", {"d_v": "d_v made from d_scores"}),
        ("dK = c * dS", "dK = c * P", {"d_k": "d_k made from the weights"}),
        ("return dQ", "return -dQ", {"d_q": "sign of d_q"}),
        ("return dQ, dK, dV", "return dQ, dV, dK", dict.fromkeys(["d_k", "d_v"], "d_k and d_v swapped")),
        ("= cache", "= cache\n    dO = dO / len(dO)", dict.fromkeys(["d_q", "d_k", "d_v"], "everything divided by B")),
        ("= cache", "= cache\n    s = c * Q @ k.transpose(0, 1, 3, 2)\n    P = np.exp(s) / np.exp(s).sum(-1, keepdims=True)",
         dict.fromkeys(["d_q", "d_k", "d_v"], "mask forgotten in backward")),
        ("return dQ, dK, dV", "return dQ, 0 * dK, dV / B", {"d_k": "d_k zero", "d_v": "d_v divided by B"}),
        ("return dQ, dK", "return 3 * dQ, dK", {"d_q": "wrong factor of d_q"}),
        ("return dQ, dK, dV", "return dQ + dQ**2, dK, -dV", {"d_q": "", "d_v": "sign of d_v"}),
    ]),
)  # fmt: skip
def test_mistake_of_heads_is_named(old, new, wrong):
    edits = [(old, new)]
    if new.startswith("dV = dS"):  # dS has to be there
        edits = [
            ("    dV = P.transpose(0, 1, 3, 2) @ dO\n", ""),
            ("    dK = dK.re", "    dV = dS.transpose(0, 1, 3, 2) @ dO\n    dK = dK.re"),
        ]
    forward, backward = made(PLAIN, edits)
    assert mistakes(looked_at(forward, backward, HEADS, GROUPED, CAUSAL)) == wrong


def test_two_mistakes_are_both_named():
    forward, backward = made(PLAIN, [("dP - row", "dP"), ("dK = c * dS", "dK = dS")])
    rows = looked_at(forward, backward, HEADS, GROUPED, CAUSAL)
    assert mistakes(rows) == {
        "d_q": "row sum left out", "d_k": "row sum left out; scale left out of d_k",
    }  # fmt: skip
    dS = "dS = P * (dP)"
    assert lines(rows) == {"d_q": [dS], "d_k": [dS, "dK = dS.transpose(0, 1, 3, 2) @ Q"]}
    assert rows["d_k"][1].instead == "d_k = scale * d_scores.swapaxes(-1, -2) @ q"
    edits = [
        ("n, *dK.shape[2:]).sum(2)", "n, *dK.shape[2:])[:, :, 0]"),
        ("n, *dV.shape[2:]).sum(2)", "n, *dV.shape[2:])[:, :, 0]"),
        ("return dQ, dK, dV", "return dQ, dV, dK"),
    ]
    rows = looked_at(*made(PLAIN, edits), HEADS, GROUPED, CAUSAL)
    assert lines(rows)["d_k"][1] == "return dQ, dV, dK"


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("dP - row", "dP - 1.5 * row", {"d_q": ["dS = P * (dP - 1.5 * row)"]}),
        ("dQ = c * dS @ k", "dQ = c * dS @ k + 0.1", {"d_q": ["dQ = c * dS @ k + 0.1"]}),
        ("return dQ, dK, dV", "return dQ, dV, dK", {"d_k": ["return dQ, dV, dK"]}),
        ("P.transpose(0, 1, 3, 2) @ dO", "2 * P.transpose(0, 1, 3, 2) @ dO",
         {"d_v": ["dV = 2 * P.transpose(0, 1, 3, 2) @ dO"]}),
    ],
)  # fmt: skip
def test_line_of_a_gradient_that_no_known_mistake_explains(old, new, wrong):
    rows = looked_at(*made(PLAIN, [(old, new)]), HEADS, GROUPED, CAUSAL)
    assert lines(rows) | wrong == lines(rows)


def test_deviations_of_forward_are_no_mistakes_of_backward():
    forward, backward = made(PLAIN, [("1 / np.sqrt(d)", "1 / d")])
    rows = looked_at(forward, backward, HEADS, GROUPED, {**CAUSAL, "scale": "1/d"})
    assert [row.is_right for (row,) in rows.values()] == [True] * 3


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    every(3, [
        ("dx + d @ p", "d @ p", {"d_x": "only the branch of v"}),
        ('@ p["W" + n].T', '@ p["W" + n]', {"d_x": "back through each w, not its transpose"}),
        ('dz = dy @ p["Wo"].T', 'dz = dy @ p["Wo"]', dict.fromkeys(("d_x", "d_w_q", "d_b_q", "d_w_k", "d_w_v", "d_b_v"), "back through w_o, not its transpose")),
        ('"btm,btw->mw", z, dy', '"btm,btw->wm", z, dy', {"d_w_o": "d_w_o transposed"}),
        ('np.einsum("btd,btm->dm", x, d)', 'np.einsum("btd,btm->bdm", x, d)',
         dict.fromkeys(["d_w_q", "d_w_k", "d_w_v"], "each d_w not summed over the batch")),
        ("dy.sum((0, 1))", "dy.mean((0, 1))", {"d_b_o": "d_b_o: mean"}),
        ("= d.sum((0, 1))", "= d.mean((0, 1))", dict.fromkeys(["d_b_q", "d_b_v"], "each d_b: mean")),
        ("d = join(d)", "d = d.reshape(*x.shape[:2], -1)", dict.fromkeys(("d_x", "d_w_q", "d_b_q", "d_w_k", "d_w_v", "d_b_v"), "heads merged without transpose")),
        ("do = split(dz, q.shape[1])", "do = dz.reshape(q.shape)", dict.fromkeys(("d_x", "d_w_q", "d_b_q", "d_w_k", "d_w_v", "d_b_v"), "heads split without transpose")),
        ('dx = dx + d @ p["W" + n].T', 'dx = dx + d @ p["Wq"].T', {"d_x": "w_q for all branches"}),
        ('"x": dx', '"x": 2 * dx', {"d_x": "wrong factor of d_x"}),
    ]),
)  # fmt: skip
def test_mistake_of_a_layer_is_named(old, new, wrong):
    forward, backward = made(LAYER, [(old, new)])
    rows = looked_at(forward, backward, INSIDE, SELF, is_inside=True)
    assert {n: m for n, m in mistakes(rows).items() if n in wrong} == wrong
    assert set(mistakes(rows)) <= {*wrong, "d_b_k", "d_b_q"}


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    every(3, [
        ("(1 - t * t)", "1", dict.fromkeys(["d_q", "d_k"], "softcap left out of backward")),
        ("(1 - t * t)", "(1 - t)", dict.fromkeys(["d_q", "d_k"], "softcap: 1 - tanh")),
        ("np.swapaxes(v, 2, 3) * keep", "np.swapaxes(v, 2, 3)",
         dict.fromkeys(["d_q", "d_k", "d_bias"], "dropout ignored in d_weights")),
        ("np.swapaxes(a * keep, 2, 3)", "np.swapaxes(a, 2, 3)", {"d_v": "dropout ignored in d_v"}),
        ("dv, ds.sum(0)", "dv, ds.mean(0)", {"d_bias": "d_bias: mean over the batch"}),
        ("dv, ds.sum(0)", "dv, c * raw.sum(0)", {"d_bias": "d_bias with the scale"}),
    ]),
)  # fmt: skip
def test_mistake_with_options_is_named(old, new, wrong):
    slots = {**LOWER, "bias": Slot("bias", "H T S"), "keep": Slot("dropout_mask", "B H T S")}
    forward, backward = made(OPTIONS, [(old, new)])
    rows = looked_at(forward, backward, slots, settings={"softcap": 2.0})
    assert mistakes(rows) == wrong


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("turn(ds @ k, -1)", "turn(ds @ k, 1)", {"d_q": "d_q turned forward"}),
        ("turn(ds.swapaxes(2, 3) @ q, -1)", "ds.swapaxes(2, 3) @ q", {"d_k": "d_k not turned back"}),
        ("sin = np.cos(angle), sign * np", "sin = np.cos(angle), np", dict.fromkeys(["d_q", "d_k"], "d_q and d_k turned forward")),
        ("dict(dk=dk, dv=a.swapaxes(2, 3) @ g, dq=dq)", "dict(dv=dk, dk=a.swapaxes(2, 3) @ g, dq=dq)",
         dict.fromkeys(["d_v", "d_k"], "d_k and d_v swapped")),
        ("-1)\n    return dict(", "-1)\n    return dict(", {}),
    ],
)  # fmt: skip
def test_mistake_of_rotation_is_named(old, new, wrong):
    forward, backward = made(ROTATED, [(old, new)])
    assert mistakes(looked_at(forward, backward, LOWER, settings={"rotation": "halves"})) == wrong


def right(
    returned,
    cache="return P @ v, (Q, k, v, P, c, n)",
    head="def backward(dO, cache):",
    unpack="Q, k, v, P, c, n = cache",
):
    """Edit the right backward into one of another signature."""
    return [
        ("return dQ, dK, dV", returned), ("return P @ v, (Q, k, v, P, c, n)", cache),
        ("def backward(dO, cache):", head), ("Q, k, v, P, c, n = cache", unpack),
    ]  # fmt: skip


AGAIN = "B, H, T, d = Q.shape; n = H // K.shape[1]; c = d ** -0.5; k, v = np.repeat(K, n, 1), np.repeat(V, n, 1)"
SIGNATURES = {
    "a packed cache": right("return dQ, dK, dV"),
    "a dict": right("return dQ, dK, dV", "return dict(y=P @ v, Q=Q, k=k, v=v, P=P, c=c, n=n)",
                    "def backward(saved, upstream):", "dO, (_, Q, k, v, P, c, n) = upstream, saved.values()"),
    "many results": right("return {'grad_Q': dQ, 'grad_V': dV, 'grad_K': dK}", "return P @ v, Q, k, v, P, c, n",
                          "def backward(dy, *tape):", "dO, (Q, k, v, P, c, n) = dy, tape"),
    "inputs again and the weights": right("return dV, dK, dQ", "return P @ v, P",
                                          "def backward(V, K, Q, attn, grad_out):", f"dO, P = grad_out, attn; {AGAIN}"),
    "names that say nothing": right("return [dQ, dK, dV]", "return P, P @ v",
                                    "def backward(one, two, three, four, five):",
                                    f"Q, K, V, dO, P = one, two, three, four, five; {AGAIN}"),
    "weights that forward does not return": right("return dQ, dK, dV", "return P @ v",
                                                  "def backward(dO, Q, K, V, P):", AGAIN),
    "one gradient": right("return dV", "return P @ v, P", "def backward(dO, K, V, P):",
                          "B, H, T, _ = P.shape; n = H // K.shape[1]; Q, c = np.zeros((B, H, T, 6)), 1; "
                          "k, v = np.repeat(K, n, 1), np.repeat(V, n, 1)"),
    "a documented order": right("return dQ, dV, dK", head='def backward(dO, cache):\n    """Return dQ, dV and dK."""'),
}  # fmt: skip


@pytest.mark.parametrize("signature", SIGNATURES)
def test_right_backward_of_any_signature_passes(signature):
    forward, backward = made(PLAIN, SIGNATURES[signature])
    rows = looked_at(forward, backward, HEADS, GROUPED, CAUSAL)
    assert rows
    assert mistakes(rows) == {}
    assert {*rows} == ({"d_v"} if signature == "one gradient" else {"d_q", "d_k", "d_v"})


def test_right_backward_of_a_layer_passes():
    rows = looked_at(*made(LAYER), INSIDE, SELF, is_inside=True)
    assert mistakes(rows) == {}
    assert len(rows) == 9


def test_arguments_keep_their_names():
    rows = looked_at(*made(LAYER), INSIDE, SELF, is_inside=True)
    assert rows["d_w_q"][0].argument == "p['Wq']"
    assert rows["d_x"][0].argument == "x"


def test_backward_that_raises_gives_no_rows():
    forward, backward = made(PLAIN, [("dV = P.transpose", "dV = P.trnspose")])
    ((row,),) = looked_at(forward, backward, HEADS, GROUPED, CAUSAL).values()
    assert "AttributeError" in row.says


def test_gradient_of_what_nothing_sees_is_exactly_0():
    forward, backward = made(PLAIN, [("return dQ, dK, dV", "return dQ, dK + 1e-9, dV")])
    rows = looked_at(forward, backward, HEADS, GROUPED, CAUSAL)
    assert mistakes(rows) == {"d_k": "masked keys get gradients"}


MASKED = PLAIN.replace("def forward(Q, K, V):", "def forward(Q, K, V, hide):").replace(
    "    hide = np.triu(np.ones(S.shape[-2:], bool), 1)\n", ""
)


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("P = np.exp(S - S.max(-1, keepdims=True))", "P = np.exp(S - S.max(-1, keepdims=True).clip(-99))", {}),
        ("(Q, k, v, P, c, n)\n\ndef", "(Q, k, v, np.where(hide.all(-1, keepdims=True), np.nan, P), c, n)\n\ndef",
         dict.fromkeys(["d_q", "d_k", "d_v"], "a query has no keys left")),
    ],
)  # fmt: skip
def test_query_that_sees_nothing(old, new, wrong):
    sums = ("P /= P.sum(-1, keepdims=True)", "P /= np.maximum(P.sum(-1, keepdims=True), 1e-30)")
    safe = (
        "P = np.exp(S - S.max(-1, keepdims=True))",
        "P = np.exp(S - S.max(-1, keepdims=True).clip(-99))",
    )
    forward, backward = made(MASKED, [sums, safe] + ([(old, new)] if wrong else []))
    slots = {**HEADS, "hide": Slot("mask", "B H T S")}
    rows = looked_at(forward, backward, slots, GROUPED, {"mask": "true = blocked"})
    assert len(rows) == 3
    assert mistakes(rows) == wrong


def test_torch_is_looked_at_by_its_autograd():
    torch = pytest.importorskip("torch")

    def attend(q, k, v):
        weights = torch.softmax(q @ k.transpose(2, 3) / 6**0.5, -1)
        return weights.detach() @ v

    rows = looked_at(attend, None, LOWER, framework="torch")
    assert mistakes(rows) == {"d_q": "d_q zero", "d_k": "d_k zero"}


RULE = """
import torch

class Rule(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v):
        a = torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1)
        ctx.save_for_backward(q, k, v, a)
        return a @ v

    @staticmethod
    def backward(ctx, g):
        q, k, v, a = ctx.saved_tensors
        da = g @ v.mT
        ds = a * (da - (a * da).sum(-1, keepdim=True)) / q.shape[-1] ** 0.5
        dk = ds @ q
        return ds @ k, dk, a.mT @ g

def forward(q, k, v):
    return Rule.apply(q, k, v)

backward = None
"""


def test_line_in_a_backward_for_autograd():
    pytest.importorskip("torch")
    rows = looked_at(made(RULE, [])[0], None, {**LOWER, "v": LOWER["v"]}, framework="torch")
    assert mistakes(rows) == {"d_k": "d_scores not transposed"}
    assert lines(rows) == {"d_k": ["dk = ds @ q"]}


def test_params_of_a_torch_module():
    torch = pytest.importorskip("torch")

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = torch.nn.Linear(24, 72)

        def forward(self, x):
            q, k, v = (a.unflatten(2, (4, 6)).transpose(1, 2) for a in self.qkv(x).chunk(3, -1))
            return (
                (torch.softmax(q @ k.transpose(2, 3) / 6**0.5, -1) @ v).transpose(1, 2).flatten(2)
            )

    hidden = {"qkv.weight": Slot("w_qkv", "P D"), "qkv.bias": Slot("b_qkv", "P")}
    rows = looked_at(
        Layer(),
        None,
        {"x": Slot("x", "B T D")},
        SELF,
        is_inside=True,
        framework="torch",
        hidden=hidden,
    )
    assert mistakes(rows) == {}
    assert {*rows} == {"d_x", "d_w_qkv", "d_b_qkv"}


def test_jax_is_looked_at_by_its_vjp():
    jax = pytest.importorskip("jax")

    def attend(q, k, v):
        weights = jax.nn.softmax(q @ k.swapaxes(2, 3) / 6**0.5)
        return {"out": weights @ jax.lax.stop_gradient(v), "weights": weights}

    rows = looked_at(attend, None, LOWER, framework="jax")
    assert mistakes(rows) == {"d_v": "d_v zero"}


def test_mistake_that_only_groups_show():
    edit = ("n, *dK.shape[2:]).sum(2)", "n, *dK.shape[2:])[:, :, 0]")
    forward, backward = made(PLAIN, [edit])
    rows = looked_at(forward, backward, HEADS, WIDE, CAUSAL)  # as many key heads as query heads
    assert mistakes(rows) == {"d_k": "only the first of the group in d_k"}


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("dV = P.transpose(0, 1, 3, 2) @ dO", "dV = P @ dO", {"d_v": "weights not transposed"}),
        ("dO @ v.transpose(0, 1, 3, 2)", "dO @ v", dict.fromkeys(["d_q", "d_k"], "v not transposed")),
        ("@ k\n    dK", "@ Q\n    dK", {"d_q": "d_q made from q"}),
    ],
)  # fmt: skip
def test_mistake_that_runs_with_square_matrices_only(old, new, wrong):
    forward, backward = made(PLAIN, [(old, new)])
    assert mistakes(looked_at(forward, backward, HEADS, GROUPED, CAUSAL)) == wrong


def test_bias_may_be_meant_for_all_sequences():
    forward, backward = made(
        OPTIONS,
        [
            ("bias, keep)", "bias)"),
            ("bias, keep, t", "bias, t"),
            ("(a * keep) @ v", "a @ v"),
            ("a * keep", "a"),
            (" * keep", ""),
        ],
    )
    slots = {**LOWER, "bias": Slot("bias", "B H T S")}  # forward takes it, too
    rows = looked_at(forward, backward, slots, settings={"softcap": 2.0})
    assert rows["d_bias"][0].is_right
    assert mistakes(rows) == {}


def test_float32_has_a_coarser_tolerance():
    narrow = "Q, K, V = (a.astype(np.float32) for a in (Q, K, V))"
    edits = [
        ("d = Q.shape\n    n", f"d = Q.shape\n    {narrow}\n    n"),
        ("return dQ", "return 1.0001 * dQ"),
    ]
    rows = looked_at(*made(PLAIN, edits), HEADS, GROUPED, CAUSAL)
    assert mistakes(rows) == {}
    assert len(rows) == 3
    assert mistakes(looked_at(*made(PLAIN, edits[1:]), HEADS, GROUPED, CAUSAL)) == {
        "d_q": "wrong factor of d_q"
    }


def test_nothing_to_look_at():
    forward, _ = made(PLAIN)
    assert looked_at(forward, None, HEADS, GROUPED, CAUSAL) == {}


STORES = """
class Linear:
    def __init__(self, seed):
        self.params = {"W": np.random.default_rng(seed).normal(size=(24, 24)) / 5}
        self.grads = {"W": np.zeros((24, 24))}

    def forward(self, x):
        self.x = x
        return x @ self.params["W"]

    def backward(self, d):
        self.grads["W"] += np.einsum("bti,btj->ij", self.x, d)
        return d @ self.params["W"].T

class Attention:
    def __init__(self, n_heads=4):
        self.n_heads = n_heads
        self.q_proj, self.k_proj, self.v_proj = map(Linear, range(3))
        self.w_o = np.random.default_rng(3).normal(size=(24, 24)) / 5

    def forward(self, x):
        q, k, v = (np.stack(np.split(part.forward(x), self.n_heads, -1), 1)
                   for part in (self.q_proj, self.k_proj, self.v_proj))
        s = q @ k.swapaxes(2, 3) / q.shape[3] ** 0.5
        a = np.exp(s - s.max(-1, keepdims=True))
        a /= a.sum(-1, keepdims=True)
        self.saved = q, k, v, a, self.join(a @ v)
        return self.saved[-1] @ self.w_o

    def join(self, t):
        return np.concatenate([*np.moveaxis(t, 1, 0)], -1)

    def backward(self, d):
        q, k, v, a, z = self.saved
        self.w_o_grad = np.einsum("bti,btj->ij", z, d)
        d = np.stack(np.split(d @ self.w_o.T, self.n_heads, -1), 1)
        da = d @ v.swapaxes(2, 3)
        ds = a * (da - (a * da).sum(-1, keepdims=True)) / q.shape[3] ** 0.5
        dq, dk, dv = ds @ k, ds.swapaxes(2, 3) @ q, a.swapaxes(2, 3) @ d
        return (self.q_proj.backward(self.join(dq)) + self.k_proj.backward(self.join(dk))
                + self.v_proj.backward(self.join(dv)))

layer = Attention()
forward, backward = layer.forward, layer.backward
"""


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("return d @", "return d @", {}),
        ('"bti,btj->ij", z, d', '"bti,btj->ji", z, d', {"d_w_o": "d_w_o transposed"}),
        ("- (a * da).sum(-1, keepdims=True)", "", dict.fromkeys(["d_x", "d_w_q", "d_w_k"], "row sum left out")),
    ],
)  # fmt: skip
def test_gradients_that_an_object_stores(old, new, wrong):
    forward, _ = made(STORES, [(old, new)])
    sheet = identify(forward)
    (right,) = (row.value for row in sheet.rows if row.setting == "gradients")
    assert {*right} == {"d_x", "d_w_q", "d_w_k", "d_w_v", "d_w_o"} - {*wrong}
    assert {(row.setting, row.value) for row in sheet.mistakes} == (
        {(", ".join(wrong), next(iter(wrong.values())))} if wrong else set()
    )
    assert all(new in row.code for row in sheet.mistakes)


def test_gradients_are_not_added_to_those_of_another_call():
    edits = [
        ("def forward(self, x):\n        q", "def forward(self, x, mask=None):\n        q"),
        ("a = np", "s = s if mask is None else np.where(mask, s, -np.inf)\n        a = np"),
        ("- (a * da).sum(-1, keepdims=True)", ""),
    ]
    sheet = identify(made(STORES, edits)[0])
    assert [row.setting for row in sheet.mistakes] == ["d_x, d_w_q, d_w_k"]


def test_forward_fills_a_dict_for_backward():
    edits = [
        ("def forward(Q, K, V):", "def forward(kept, Q, K, V):"),
        (
            "return P @ v, (Q, k, v, P, c, n)",
            "kept.update(all=(Q, k, v, P, c, n))\n    return P @ v",
        ),
        ("def backward(dO, cache):", "def backward(kept, dO):"),
        ("= cache", "= kept['all']"),
        ("return dQ, dK, dV", "return dQ, dV, dK"),
    ]
    forward, backward = made(PLAIN, edits)
    (row,) = identify(forward, backward=backward).mistakes
    assert row.says == "d_k and d_v are swapped"


def test_gradients_in_the_shape_of_the_keys():
    folded = "{0}.reshape(B, H // n, n, *k.shape[2:])[:, :, 0]"  # of d_v, too, where d_k = d_v
    edits = [
        (f"{d}.reshape(B, H // n, n, *{d}.shape[2:]).sum(2)", folded.format(d))
        for d in ("dK", "dV")
    ]
    edits += [("dQ = c * dS", "dQ = dS"), ("dK = c * dS", "dK = dS")]
    rows = looked_at(*made(PLAIN, edits), HEADS, GROUPED, CAUSAL)
    missing, first = "scale left out of d_q and d_k", "only the first of the group"
    found = mistakes(rows)
    assert {name: {*found[name].split("; ")} for name in found} == {
        "d_q": {missing}, "d_k": {missing, first}, "d_v": {first},
    }  # fmt: skip


def test_scores_of_1e9_are_usual_where_a_query_sees_nothing():
    edits = [("-np.inf, S)", "-1e9, S)")]
    forward, backward = made(MASKED, edits)
    slots = {**HEADS, "hide": Slot("mask", "B H T S")}
    assert not mistakes(looked_at(forward, backward, slots, GROUPED, {"mask": "true = blocked"}))


def test_nothing_is_expected_where_a_mask_and_causality_leave_only_a_mean():
    hides = "np.where(np.tri(*S.shape[-2:]) > 0, np.where(hide, -1e9, S), -1e9)"
    forward, backward = made(MASKED, [("np.where(hide, -np.inf, S)", hides)])
    slots = {**HEADS, "hide": Slot("mask", "B H T S")}
    settings = {"mask": "true = blocked", "causal": "past and itself"}
    settings["blind"] = "mean of all values"
    with np.errstate(all="ignore"):
        assert not mistakes(looked_at(forward, backward, slots, GROUPED, settings))


def test_output_and_gradients_of_one_function():
    def both(q, k, v, d_out):
        s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
        a = np.exp(s - s.max(-1, keepdims=True))
        a /= a.sum(-1, keepdims=True)
        da = d_out @ v.swapaxes(-1, -2)
        ds = a * (da - (a * da).sum(-1, keepdims=True)) / q.shape[-1] ** 0.5
        return a @ v, ds @ k, ds.swapaxes(-1, -2) @ q, a @ d_out

    sheet = identify(both)
    assert [row.says for row in sheet.mistakes] == ["the weights are not transposed in d_v"]
    assert sheet.value("gradients") == ["d_q", "d_k"]


VJP = """
def forward(q, k, v, g=None):
    a = np.exp(q @ k.swapaxes(2, 3) / 8 ** 0.5)
    a /= a.sum(-1, keepdims=True)
    def pull(g):
        da = g @ v.swapaxes(2, 3)
        ds = a * (da - (a * da).sum(-1, keepdims=True)) / 8 ** 0.5
        return ds @ k, 3 * ds.swapaxes(2, 3) @ q, a.swapaxes(2, 3) @ g
    RETURN

backward = None
"""


@pytest.mark.parametrize(
    ("head", "returned"),
    [
        ("g=None", "return a @ v, pull"),
        ("d_out=None", "return a @ v if d_out is None else (a @ v, *pull(d_out))"),
    ],
)
def test_backward_that_forward_returns_or_is(head, returned):
    forward, _ = made(VJP, [("RETURN", returned), ("g=None", head)])
    sheet = identify(forward)
    assert sheet.value("gradients") == ["d_q", "d_v"]
    (row,) = (row for row in sheet.mistakes if row.setting == "d_k")
    assert row.code == "return ds @ k, 3 * ds.swapaxes(2, 3) @ q, a.swapaxes(2, 3) @ g"


def test_weights_made_again_without_the_mask():
    again = "P = np.exp(c * Q @ k.transpose(0, 1, 3, 2) - lse)"
    edits = [
        ("(Q, k, v, P, c, n)", "(Q, k, v, P @ v, np.log(np.exp(S).sum(-1, keepdims=True)), c, n)"),
        ("Q, k, v, P, c, n = cache", f"Q, k, v, O, lse, c, n = cache\n    {again}"),
        ("(P * dP).sum", "(O * dO).sum"),
    ]
    rows = looked_at(*made(PLAIN, edits), HEADS, GROUPED, CAUSAL)
    assert mistakes(rows) == dict.fromkeys(["d_q", "d_k", "d_v"], "mask forgotten in backward")
    assert lines(rows)["d_q"] == [again]
