"""Objects that have some of the tokens themselves: learned queries, keys that are stored."""

import numpy as np
import pytest

from mha_numpy.identifying import identify


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def draw(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape) / np.sqrt(shape[0])


class Pooled:
    """One vector for each sequence."""

    def __init__(self, dim):
        self.pool_query = draw(dim)

    def forward(self, x, keep=None):
        scores = x @ self.pool_query / np.sqrt(x.shape[-1])
        scores = scores if keep is None else np.where(keep, scores, -np.inf)
        return (softmax(scores)[:, None] @ x)[:, 0]


class Resampled:
    """A few vectors for each sequence, from as many latents."""

    def __init__(self, dim, heads=2):
        self.latents, self.heads = draw(1, 6, dim), heads
        self.wq, self.wk, self.wv, self.wo = (draw(dim, dim) + i / 9 for i in range(4))

    def __call__(self, x):
        q, k, v = self.latents @ self.wq, x @ self.wk, x @ self.wv
        q, k, v = (a.reshape(*a.shape[:2], self.heads, -1).swapaxes(1, 2) for a in (q, k, v))
        out = softmax(q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])) @ v
        return out.swapaxes(1, 2).reshape(len(x), 6, -1) @ self.wo


class Scored:
    """A linear map gives each token one score."""

    def __init__(self, dim):
        self.to_score = draw(dim, 1)

    def __call__(self, x):
        return np.einsum("bt,btd->bd", softmax((x @ self.to_score)[..., 0]), x)


class Words:
    """Hierarchical attention: the score is additive, without a query."""

    def __init__(self, dim):
        self.W, self.b, self.u = draw(dim, dim), draw(dim), draw(dim + 1)[1:]

    def __call__(self, x):
        return np.einsum("bt,btd->bd", softmax(np.tanh(x @ self.W + self.b) @ self.u), x)


@pytest.mark.parametrize("kind", [Pooled, Resampled, Scored, Words])
def test_queries_may_be_learned(kind):
    sheet = identify(kind)
    assert sheet.is_found
    assert not sheet.mistakes
    assert sheet.arguments[0].what == "tokens of keys and values"
    learned = [each.name for each in sheet.arguments if each.what == "tokens of the queries"]
    assert learned == {"Pooled": ["pool_query"], "Resampled": ["latents"], "Words": [],
                       "Scored": ["to_score"]}[kind.__name__]  # fmt: skip


def test_a_mask_of_a_pool_has_a_row_for_each_sequence():
    sheet = identify(Pooled)
    axes = {each.name: each.axes for each in sheet.arguments}
    assert (axes["keep"], sheet.value("blind")) == ("(B, T_k)", "nan")


class Smoother:
    def __init__(self, temperature=1.0):
        self.temperature = temperature

    def fit(self, X, y):
        self.X, self.y = X, y
        return self

    def predict(self, X):
        return softmax(X @ self.X.T / self.temperature) @ self.y


class Notebook:
    def __init__(self):
        self.keys, self.values = [], []

    def write(self, k, v):
        self.keys.append(k)
        self.values.append(v)

    def read(self, q):
        k, v = np.concatenate(self.keys), np.concatenate(self.values)
        return softmax(q @ k.T / np.sqrt(k.shape[-1])) @ v


@pytest.mark.parametrize(
    ("kind", "names", "scale"),
    [
        (Smoother, ["X_keys", "y_values", "X_queries"], "1"),
        (Notebook, ["k", "v", "q"], "1/sqrt(d)"),
    ],
)
def test_one_method_stores_what_the_other_reads(kind, names, scale):
    sheet = identify(kind)
    told = {each.name: each.what for each in sheet.arguments}
    assert [told[name] for name in names] == ["keys", "values", "queries"]
    assert sheet.value("scale") == scale
    assert not sheet.mistakes


class Luong:
    """The output and the state of the decoder, joined, under a tanh."""

    def __init__(self, hidden):
        self.W_a, self.W_c = draw(hidden, hidden), draw(2 * hidden, hidden)

    def __call__(self, dec, enc):
        context = softmax(dec @ self.W_a @ enc.swapaxes(1, 2)) @ enc
        return np.tanh(np.concatenate([context, dec], -1) @ self.W_c)


class QueryFirst(Luong):
    """In the other order, and without a tanh."""

    def __call__(self, dec, enc):
        context = softmax(dec @ self.W_a @ enc.swapaxes(1, 2)) @ enc
        return np.concatenate([dec, context], -1) @ self.W_c


class Captions:
    """features (batch, regions, width), hidden (batch, units)"""

    def __init__(self, units):
        self.W1, self.W2, self.V = draw(units, units), draw(units, units).T + 0.1, draw(units)

    def __call__(self, features, hidden):
        scores = np.tanh(features @ self.W1 + (hidden @ self.W2)[:, None]) @ self.V
        return np.einsum("bt,btd->bd", softmax(scores), features)


@pytest.mark.parametrize(
    ("kind", "after", "beside"), [(Luong, "tanh", None), (QueryFirst, None, "x, output")]
)
def test_an_output_may_be_joined_with_its_query(kind, after, beside):
    sheet = identify(kind)
    assert (sheet.value("after"), sheet.value("beside")) == (after, beside)
    assert "params of the output and its query in one" in str(sheet)


def test_either_map_of_additive_scores_may_be_that_of_the_keys():
    told = {each.name: each.what for each in identify(Captions).arguments}
    assert told["features"] == "tokens of keys and values"
    assert (told["W1"], told["W2"]) == ("params of the keys", "params of the queries")
