"""Pictures to words: does a decoder look at what it names, and does it need to know places?"""

from functools import partial

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.models.captioner import Captioner
from mha_numpy.models.experiments.experiment import Chart, Experiment, Finding
from mha_numpy.models.experiments.result import Measured, Result
from mha_numpy.models.train import AdamW, fit, warm_up_cosine
from mha_numpy.models.train.tasks.scenes import PATCH, SIDE, Scenes

STEPS = 500
TASK = Scenes()
OBJECT_OF = {0: 0, 1: 0, 3: 1, 4: 1}  # of a written word's place: which object it names
ARMS = {  # places that the patches know, heads, encoder blocks
    "2-D places": ("2-D", 4, 0),
    "1-D places": ("1-D", 4, 0),
    "no places": ("none", 4, 0),
    "2-D places, 1 head": ("2-D", 1, 0),
    "2-D places, patches mixed": ("2-D", 4, 1),
}


def make_model(positions: str, num_heads: int, num_encoder_layers: int, rng: int) -> Captioner:
    """Return the model of an arm, in float32."""
    return Captioner(
        TASK.vocab_size, SIDE, PATCH, positions=positions, num_heads=num_heads,
        num_encoder_layers=num_encoder_layers, embed_dim=32, hidden_dim=64, activation="relu",
        rng=rng,
    ).astype(np.float32)  # fmt: skip


def looks(weights: Array, shares: Array) -> Array:
    """Return how much of the weights falls on the named object and on the other.

    Parameters
    ----------
    weights : (B, H, 5, T_k) float array
        Of cross-attention; the row of a word is that which writes it.
    shares : (B, 2, T_k) float array
        How much of each patch belongs to each object.

    Returns
    -------
    (2, H, 4) array
        Mean over scenes, for the four words that name a colour or a shape.
    """
    on_each = np.einsum("bhtk,bsk->sth", weights, shares) / len(weights)
    named = [
        [on_each[object_, place], on_each[1 - object_, place]] for place, shape in OBJECT_OF.items()
    ]
    return np.array(named).transpose(1, 2, 0)


def _run(arm: str, seed: int) -> Measured:
    model = make_model(*ARMS[arm], rng=seed)
    fit(
        model, partial(TASK.draw_batch, size=64), steps=STEPS, optimizer=AdamW(model, 1e-2),
        schedule=warm_up_cosine(STEPS, STEPS // 10), max_norm=1.0, rng=seed, progress=False,
    )  # fmt: skip
    rng = np.random.default_rng(1000 + seed)
    scenes, others = (TASK.draw_scenes(rng, 512, held_out=held_out) for held_out in (False, True))
    (pictures, words), targets = TASK.batch_of(scenes)
    right = model(pictures, words).argmax(axis=-1) == targets  # (B, 5)
    shares = TASK.shares(scenes)
    on_named, on_other = looks(model.decoder[0].cross_attention.layer.weights, shares)
    best = on_named[:, [1, 3]].mean(axis=1).argmax()

    def right_without(hidden: Array) -> float:
        """Return the share of right shapes when each row's hidden patches (B, 4, T_k) are gone."""
        mask = np.ones((len(scenes), 1, 5, hidden.shape[-1]), bool)
        mask[:, 0, list(OBJECT_OF)] = ~hidden
        said = model.decode(model.encode(pictures), mask, words).argmax(axis=-1)
        return float((said == targets)[:, [1, 4]].mean())

    has = shares > 0
    named, other = has[:, list(OBJECT_OF.values())], has[:, [1 - i for i in OBJECT_OF.values()]]
    new = TASK.batch_of(others)
    new_right = model(*new.inputs).argmax(axis=-1) == new.targets
    is_new = others[..., :2].sum(axis=-1) % 4 == 0  # (B, 2)
    return {
        "caption": right.all(axis=1).mean(),
        "word by word": right.mean(axis=0).tolist(),
        "shape of a new combination": new_right[:, [1, 4]][is_new].mean(),
        "colour of a new combination": new_right[:, [0, 3]][is_new].mean(),
        "on the named object": on_named[:, [1, 3]].mean(),
        "on the other object": on_other[:, [1, 3]].mean(),
        "on the named object, best head": on_named[best, [1, 3]].mean(),
        "drawn on": shares.mean(),
        "shape, named object hidden": right_without(named),
        "shape, other object hidden": right_without(other & ~named),
        "on the named object, word by word": on_named.mean(axis=0).tolist(),
    }


def _findings(result: Result) -> list[Finding]:
    return []


CAPTIONS = Experiment(
    "captions",
    "Does it look at what it names?",
    "A decoder that writes about a picture looks at the part that it names. Its patches need to "
    "know their places in two dimensions.",
    "B, E; Xu et al. 2015; Dosovitskiy et al. 2021, appendix D.4",
    "",
    tuple(ARMS),
    {
        "caption": "share of new scenes whose five words are all right",
        "word by word": "share of right words, at each of the five",
        "shape of a new combination": "share of right shapes, where that shape never had that colour",
        "colour of a new combination": "share of right colours, of the same objects",
        "on the named object": "share of weights, mean over heads, as it writes circle, square, ...",
        "on the other object": "the same, on the other object",
        "on the named object, best head": "the same, of the head that looks most at what it names",
        "drawn on": "share of the picture that one object takes up: what weights without aim give",
        "shape, named object hidden": "share of right shapes if the decoder cannot see those patches",
        "shape, other object hidden": "the same if it cannot see the patches of only the other object",
        "on the named object, word by word": "share of weights, for both colours and shapes",
    },
    _run,
    (),
    _findings,
)  # fmt: skip
