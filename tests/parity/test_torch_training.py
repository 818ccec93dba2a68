import re
from functools import partial

import numpy as np
import pytest

from mha_numpy.layers import Linear
from mha_numpy.models import AttentionOnlyLM, TransformerLM, Translator
from mha_numpy.models.train import IGNORED, SGD, Adam, AdamW, Batch, ParamGroup, fit, warm_up_cosine
from tests.compare import Tolerance, assert_close

pytest.importorskip("torch")

import torch

V, V_source, T, D, H, L, HIDDEN = 11, 13, 7, 12, 3, 2, 20
STEPS = 50


class AttentionOnlyTwin(torch.nn.Module):
    """AttentionOnlyLM of PyTorch's modules."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(V, D)
        self.positions = torch.nn.Embedding(T, D)
        self.attentions = torch.nn.ModuleList(
            [torch.nn.MultiheadAttention(D, H, bias=False, batch_first=True) for _ in range(L)]
        )
        self.unembedding = torch.nn.Linear(D, V, bias=False)

    def forward(self, ids):
        x = self.embedding(ids)
        for attention in self.attentions:
            placed = x + self.positions.weight
            x = x + attention(placed, placed, x, attn_mask=later(T), is_causal=True)[0]
        return self.unembedding(x)


class TransformerTwin(torch.nn.Module):
    """TransformerLM of PyTorch's modules."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(V, D)
        self.positions = torch.nn.Embedding(T, D)
        self.blocks = torch.nn.ModuleList([encoder_layer() for _ in range(L)])
        self.norm = torch.nn.LayerNorm(D)
        self.unembedding = torch.nn.Linear(D, V, bias=False)

    def forward(self, ids):
        x = self.embedding(ids) + self.positions.weight
        for block in self.blocks:
            x = block(x, src_mask=later(T), is_causal=True)
        return self.unembedding(self.norm(x))


class TranslatorTwin(torch.nn.Module):
    """Translator of PyTorch's modules."""

    def __init__(self):
        super().__init__()
        self.source_embedding = torch.nn.Embedding(V_source, D)
        self.source_positions = torch.nn.Embedding(T, D)
        self.encoder = torch.nn.ModuleList([encoder_layer() for _ in range(L)])
        self.encoder_norm = torch.nn.LayerNorm(D)
        self.target_embedding = torch.nn.Embedding(V, D)
        self.target_positions = torch.nn.Embedding(T, D)
        self.decoder = torch.nn.ModuleList(
            [torch.nn.TransformerDecoderLayer(D, H, HIDDEN, **OPTIONS) for _ in range(L)]
        )
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


OPTIONS = {"dropout": 0.0, "activation": "gelu", "batch_first": True, "norm_first": True}


def encoder_layer():
    return torch.nn.TransformerEncoderLayer(D, H, HIDDEN, **OPTIONS)


def later(size):
    """Return PyTorch's causal mask: True = may not attend."""
    return torch.ones(size, size, dtype=torch.bool).triu(1)


# from our names to PyTorch's, one after the other
NAMES = {
    r"cross_attention\.norm": "norm2",
    r"attention\.norm": "norm1",
    r"(decoder.*)feed_forward\.norm": r"\1norm3",
    r"feed_forward\.norm": "norm2",
    r"cross_attention\.layer": "multihead_attn",
    r"attention\.layer": "self_attn",
    r"feed_forward\.layer\.(\w)_in": r"linear1.\1",
    r"feed_forward\.layer\.(\w)_out": r"linear2.\1",
    r"\.(\w)_o$": r".out_proj.\1",
    r"\.(\w)_[qkv]$": r".in_proj_\1",
    r"([._])(gain|table|w)$": r"\1weight",
    r"([._])b$": r"\1bias",
}


def copy_params(model, twin):
    """Give PyTorch's twin the params of our model: every one of them."""
    found = {}
    for name, array in model.named_params():
        is_map = name.rpartition(".")[2].startswith("w")  # x @ w, where PyTorch has w @ x
        for ours, theirs in NAMES.items():
            name = re.sub(ours, theirs, name)
        found.setdefault(name, []).append(torch.tensor(array.T if is_map else array))
    twin.load_state_dict({name: torch.cat(arrays) for name, arrays in found.items()})


def draw_text(rng):
    """Return random text, a third of it not asked."""
    ids = rng.integers(V, size=(4, T + 1))
    return Batch((ids[:, :-1],), np.where(rng.random((4, T)) < 0.3, IGNORED, ids[:, 1:]))


def draw_translation(rng):
    """Return random sentences, sources of different lengths."""
    source, ids = rng.integers(1, V_source, size=(4, T)), rng.integers(V, size=(4, T - 1))
    source[np.arange(T) >= np.array([[2], [T], [5], [T]])] = 0
    return Batch((source, ids[:, :-1]), ids[:, 1:])


MODELS = {
    "attention only": (partial(AttentionOnlyLM, V, T), AttentionOnlyTwin, draw_text),
    "transformer": (partial(TransformerLM, V, T, hidden_dim=HIDDEN), TransformerTwin, draw_text),
    "translator": (
        partial(Translator, V_source, V, T, hidden_dim=HIDDEN), TranslatorTwin, draw_translation,
    ),
}  # fmt: skip


@pytest.fixture
def _one_thread():
    """Let PyTorch use one thread: for small arrays two are ten times as slow."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("_one_thread")
@pytest.mark.parametrize("name", MODELS)
def test_a_training_follows_pytorchs(name, rng):
    make_model, make_twin, draw_batch = MODELS[name]
    model = make_model(embed_dim=D, num_heads=H, num_layers=L, rng=0)
    for _, param in model.named_params():
        param += 0.1 * rng.normal(size=param.shape)  # no bias is 0, no gain is 1
    twin = make_twin().double()
    copy_params(model, twin)
    schedule = warm_up_cosine(STEPS, warm_up=10, last=0.1)

    history = fit(
        model, draw_batch, steps=STEPS, optimizer=AdamW(model, 1e-2, weight_decay=0.1),
        schedule=schedule, max_norm=1.0, label_smoothing=0.1, rng=7, progress=False,
    )  # fmt: skip

    losses, norms = torch_losses(twin, draw_batch, schedule)
    assert max(norms) > 1 > min(norms)  # some gradients are clipped, some are not
    assert_close(history.norms, norms, Tolerance(0, 1e-6), name="gradient norms")
    assert_close(history.losses, losses, Tolerance(0, 1e-6), name="losses")


def torch_losses(twin, draw_batch, schedule):
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
