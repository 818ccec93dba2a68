import numpy as np
import pytest

from mha_numpy.layers import Linear
from mha_numpy.models import Translator
from mha_numpy.models.train import IGNORED, SGD, Adam, AdamW, Batch, ParamGroup, fit, warm_up_cosine
from mha_numpy.models.weights import to_layout
from tests.compare import Tolerance, assert_close

pytest.importorskip("torch")

import torch

V, V_source, T, D, H, L, HIDDEN = 11, 13, 7, 12, 3, 2, 20
STEPS = 50


class TranslatorTwin(torch.nn.Module):
    """Translator of PyTorch's modules."""

    def __init__(self):
        super().__init__()
        self.source_embedding = torch.nn.Embedding(V_source, D)
        self.source_positions = torch.nn.Embedding(T, D)
        self.encoder = layers_of(torch.nn.TransformerEncoderLayer)
        self.encoder_norm = torch.nn.LayerNorm(D)
        self.target_embedding = torch.nn.Embedding(V, D)
        self.target_positions = torch.nn.Embedding(T, D)
        self.decoder = layers_of(torch.nn.TransformerDecoderLayer)
        self.decoder_norm = torch.nn.LayerNorm(D)
        self.unembedding = torch.nn.Linear(D, V, bias=False)

    def forward(self, source, target):
        padding = source == 0
        memory = self.source_embedding(source) + self.source_positions.weight
        for block in self.encoder:
            memory = block(memory, src_key_padding_mask=padding)
        memory = self.encoder_norm(memory)
        x = self.target_embedding(target) + self.target_positions.weight[: target.shape[1]]
        for block in self.decoder:
            x = block(
                x, memory, tgt_mask=later(target.shape[1]), tgt_is_causal=True,
                memory_key_padding_mask=padding,
            )  # fmt: skip
        return self.unembedding(self.decoder_norm(x))


def layers_of(kind):
    options = {"dropout": 0.0, "activation": "gelu", "batch_first": True, "norm_first": True}
    return torch.nn.ModuleList([kind(D, H, HIDDEN, **options) for _ in range(L)])


def later(size):
    """Return PyTorch's causal mask: True = may not attend."""
    return torch.ones(size, size, dtype=torch.bool).triu(1)


def copy_params(model, twin):
    """Give PyTorch's twin the params of our model."""
    for name, part in twin.named_children():
        ours = getattr(model, name)
        if isinstance(ours, list):
            layout = f"torch-{name}-layer"
            for block, layer in zip(ours, part, strict=True):
                arrays = to_layout(block, layout)
                layer.load_state_dict({n: torch.tensor(array) for n, array in arrays.items()})
        else:  # x @ w, where PyTorch has w @ x
            arrays = {n: array.T if n == "w" else array for n, array in ours.params.items()}
            names = {"table": "weight", "gain": "weight", "w": "weight", "bias": "bias"}
            part.load_state_dict({names[n]: torch.tensor(array) for n, array in arrays.items()})


def draw_batch(rng):
    """Return random sentences, sources of different lengths, a third of the targets not asked."""
    source, ids = rng.integers(1, V_source, size=(4, T)), rng.integers(V, size=(4, T - 1))
    source[np.arange(T) >= np.array([[2], [T], [5], [T]])] = 0
    targets = np.where(rng.random((4, T - 2)) < 0.3, IGNORED, ids[:, 1:])
    return Batch((source, ids[:, :-1]), targets)


@pytest.fixture
def _one_thread():
    """Let PyTorch use one thread: for small arrays two are ten times as slow."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("_one_thread")
def test_a_training_follows_pytorchs(rng):
    """Of a translator; the benchmarks' tests compare steps of the language models."""
    model = Translator(
        V_source, V, T, hidden_dim=HIDDEN, embed_dim=D, num_heads=H, num_layers=L, rng=0
    )
    for _, param in model.named_params():
        param += 0.1 * rng.normal(size=param.shape)  # no bias is 0, no gain is 1
    twin = TranslatorTwin().double()
    copy_params(model, twin)
    schedule = warm_up_cosine(STEPS, warm_up=10, last=0.1)

    history = fit(
        model, draw_batch, steps=STEPS, optimizer=AdamW(model, 1e-2, weight_decay=0.1),
        schedule=schedule, max_norm=1.0, label_smoothing=0.1, rng=7, progress=False,
    )  # fmt: skip

    losses, norms = torch_losses(twin, schedule)
    assert max(norms) > 1 > min(norms)  # some gradients are clipped, some are not
    assert_close(history.norms, norms, Tolerance(0, 1e-6), name="gradient norms")
    assert_close(history.losses, losses, Tolerance(0, 1e-6), name="losses")


def torch_losses(twin, schedule):
    """Return the loss and the norm of the gradient of each of PyTorch's steps."""
    optimizer = torch.optim.AdamW(twin.parameters(), 1e-2, weight_decay=0.1)
    rng = np.random.default_rng(7)
    losses, norms = [], []
    for step in range(1, STEPS + 1):
        batch = draw_batch(rng)
        logits = twin(*map(torch.tensor, batch.inputs))
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), torch.tensor(batch.targets).flatten(),
            ignore_index=IGNORED, label_smoothing=0.1,
        )  # fmt: skip
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(twin.parameters(), 1.0).item())
        optimizer.param_groups[0]["lr"] = 1e-2 * schedule(step)
        optimizer.step()
        losses.append(loss.item())
    return losses, norms


OPTIMIZERS = {
    "SGD": (SGD, torch.optim.SGD, {}),
    "SGD, momentum": (SGD, torch.optim.SGD, {"momentum": 0.9}),
    "SGD, Nesterov": (SGD, torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "Adam": (Adam, torch.optim.Adam, {"betas": (0.8, 0.95), "eps": 1e-3}),
    "AdamW": (AdamW, torch.optim.AdamW, {"weight_decay": 0.1}),
}


# options of the group of biases, as we name them and as PyTorch does
GROUPS = {
    "one group": None,
    "no decay of biases": ({"weight_decay": 0.0}, {"weight_decay": 0.0}),
    "a rate of their own": ({"learning_rate": 0.3}, {"lr": 0.3}),
}


@pytest.mark.parametrize(
    ("name", "group"),
    [
        (name, group) for name in OPTIMIZERS for group in GROUPS
        if name == "AdamW" or group != "no decay of biases"  # the others have none
    ],
)  # fmt: skip
def test_an_optimizer_follows_pytorchs(name, group, rng):
    kind, their_kind, options = OPTIMIZERS[name]
    layer = Linear(3, 5, rng=0)
    params = [torch.tensor(array, requires_grad=True) for array in layer.params.values()]
    if GROUPS[group] is None:
        ours, theirs = kind(layer, 0.01, **options), their_kind(params, 0.01, **options)
    else:
        own, their_own = GROUPS[group]
        ours = kind(layer, 0.01, **options, groups=[ParamGroup("b", **own)])
        w, b = params
        theirs = their_kind([{"params": [w]}, {"params": [b], **their_own}], 0.01, **options)
    for _ in range(20):
        for param, (key, array) in zip(params, layer.params.items(), strict=True):
            layer.grads[key] = rng.normal(size=array.shape)
            param.grad = torch.tensor(layer.grads[key])
        ours.step()
        theirs.step()
    for param, array in zip(params, layer.params.values(), strict=True):
        assert_close(array, param.detach(), Tolerance(0, 1e-12))
