"""A whole training step by us and by PyTorch: forward, loss, backward, clipping and AdamW."""

from typing import Any

import numpy as np

from mha_numpy import models
from mha_numpy.bench.problems import Case, Ready, TrainingDrawn, TrainingProblem
from mha_numpy.dtypes import Array
from mha_numpy.layers import Layer
from mha_numpy.models.train import AdamW, Batch, clip_gradients
from mha_numpy.models.train.fit import loss_and_gradients

RATE, DECAY, MAX_NORM = 1e-3, 0.01, 1.0


def build(problem: TrainingProblem, backend: str) -> Layer:
    """Return our model in float32; its params are the same for every backend."""
    _, _, T, D, H, L, V = problem
    sizes: dict[str, Any] = {"embed_dim": D, "num_heads": H, "num_layers": L, "backend": backend}
    if problem.model == "TransformerLM":
        sizes["activation"] = "gelu_tanh"
    return getattr(models, problem.model)(V, T, **sizes, rng=0).astype(np.float32)


def our_training(backend: str, drawn: TrainingDrawn, case: Case, threads: int) -> Ready:
    """Run one step of `fit`; the environment has set the threads."""
    model = build(drawn.problem, backend)
    optimizer = AdamW(model, RATE, weight_decay=DECAY, backend=backend)
    batch = Batch((drawn.ids,), drawn.targets)

    def call() -> float:
        loss = loss_and_gradients(model, batch)
        clip_gradients(model, MAX_NORM)
        optimizer.step()
        return loss

    def read(loss: float) -> list[Array]:
        return [np.array(loss), *(gradient for _, gradient in model.named_grads())]

    return Ready(call, read)


def torch_training(drawn: TrainingDrawn, case: Case, threads: int) -> Ready:
    """Run the same model, written with `torch.nn.functional` and one projection for q, k and v."""
    import torch
    from torch.nn import functional

    torch.set_num_threads(threads)
    B, T, D, H, L, V = drawn.problem[1:]
    is_transformer = drawn.problem.model == "TransformerLM"
    joined = "qkv" if is_transformer else "qk"  # what projects the same input
    ours = dict(build(drawn.problem, "numpy").named_params())
    params = {name: torch.from_numpy(x).requires_grad_() for name, x in _join(ours, joined).items()}
    optimizer = torch.optim.AdamW(params.values(), RATE, weight_decay=DECAY, fused=True)
    ids, targets = torch.from_numpy(drawn.ids), torch.from_numpy(drawn.targets).reshape(-1)

    def linear(x: Any, layer: str, kind: str) -> Any:
        return functional.linear(x, params[f"{layer}.w_{kind}"], params.get(f"{layer}.b_{kind}"))

    def norm(x: Any, layer: str) -> Any:
        return functional.layer_norm(x, (D,), params[f"{layer}.gain"], params[f"{layer}.bias"])

    def attend(*projected: Any) -> Any:
        q, k, v = (x.view(B, T, H, D // H).transpose(1, 2) for x in projected)
        heads = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return heads.transpose(1, 2).reshape(B, T, D)

    def transformer(x: Any) -> Any:
        x = x + params["positions.table"]
        for i in range(L):
            at = f"blocks.{i}.attention"
            qkv = linear(norm(x, f"{at}.norm"), f"{at}.layer", "qkv")
            x = x + linear(attend(*qkv.chunk(3, -1)), f"{at}.layer", "o")
            at = f"blocks.{i}.feed_forward"
            hidden = linear(norm(x, f"{at}.norm"), f"{at}.layer", "in")
            x = x + linear(functional.gelu(hidden, approximate="tanh"), f"{at}.layer", "out")
        return norm(x, "norm")

    def attention_only(x: Any) -> Any:
        for i in range(L):
            at = f"attentions.{i}"
            qk = linear(x + params["positions.table"], at, "qk")
            x = x + linear(attend(*qk.chunk(2, -1), linear(x, at, "v")), at, "o")
        return x

    def call() -> float:
        optimizer.zero_grad()
        x = functional.embedding(ids, params["embedding.table"])
        x = transformer(x) if is_transformer else attention_only(x)
        logits = functional.linear(x, params["unembedding.w"])
        loss = functional.cross_entropy(logits.view(-1, V), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params.values(), MAX_NORM)
        optimizer.step()
        return float(loss.detach())

    def read(loss: float) -> list[Array]:
        grads = _part({name: x.grad.numpy() for name, x in params.items()}, joined)
        return [np.array(loss), *(grads[name] for name in ours)]

    return Ready(call, read)


def _join(params: dict[str, Array], joined: str) -> dict[str, Array]:
    """Return our params as PyTorch keeps them: w (outputs, inputs), some of one input together."""
    turned = {name: np.ascontiguousarray(_turn(name, x)) for name, x in params.items()}
    for name in [name for name in turned if name.endswith("_q")]:
        parts = [turned.pop(f"{name[:-1]}{letter}") for letter in joined]
        turned[f"{name[:-1]}{joined}"] = np.concatenate(parts)
    return turned


def _part(params: dict[str, Array], joined: str) -> dict[str, Array]:
    """Undo `_join`."""
    parted: dict[str, Array] = {}
    for name, x in params.items():
        if name.endswith(f"_{joined}"):
            stem = name.removesuffix(joined)
            parts = dict(zip(joined, np.split(x, len(joined)), strict=True))
            parted |= {f"{stem}{letter}": part for letter, part in parts.items()}
        else:
            parted[name] = x
    return {name: _turn(name, x) for name, x in parted.items()}


def _turn(name: str, x: Array) -> Array:
    """Return the weights of a linear map as the other library keeps them."""
    return x.T if name.split(".")[-1].startswith("w") else x
