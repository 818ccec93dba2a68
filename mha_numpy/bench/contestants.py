"""The contestants, the packages that they need, and an adapter that prepares each for a problem.

An adapter takes a problem's arrays, the case and the number of threads, and returns a `Ready`, in
the contestant's own layout and with its own API. Converting arrays, building models and choosing
threads happen before the clock starts.
"""

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.bench.problems import (
    AnyProblem,
    Case,
    Drawn,
    LayerDrawn,
    LayerProblem,
    Problem,
    Ready,
    TrainingProblem,
    joint_mask,
)
from mha_numpy.bench.training import our_training, torch_training
from mha_numpy.core import attention_backward, attention_forward
from mha_numpy.dtypes import Array
from mha_numpy.layers import MultiHeadAttention
from mha_numpy.models.weights import from_layout, to_layout

ZERO = "b_k"  # its gradient is 0, so what is computed is rounding, and not compared
OPSET = 23  # of ONNX: the first with Attention, so that every runtime that has it runs this


def our_attention(backend: str, drawn: Drawn, case: Case, threads: int) -> Ready:
    """Run `attention_forward` and `attention_backward`; the environment has set the threads."""
    q, k, v, d_out, mask, bias = drawn
    window = (case.window - 1, None) if case.window else None
    num_grads = 3 if bias is None else 4

    def call() -> list[Array]:
        out, cache = attention_forward(
            q, k, v, mask=mask, bias=bias, is_causal=case.is_causal, window=window, backend=backend
        )
        if not case.backward:
            return [out]
        grads = attention_backward(d_out, cache)[:num_grads]
        return [out, *(grad for grad in grads if grad is not None)]

    return Ready(call, list)


def our_layer(backend: str, drawn: LayerDrawn, case: Case, threads: int) -> Ready:
    """Run `MultiHeadAttention`."""
    layer = MultiHeadAttention(drawn.x.shape[-1], drawn.num_heads, backend=backend)
    layer.params = dict(drawn.params)

    def call() -> list[Array]:
        layer.zero_grads()
        out = layer(drawn.x)
        return [out, layer.backward(drawn.d_out)[0]] if case.backward else [out]

    def read(result: list[Array]) -> list[Array]:
        names = [name for name in layer.params if case.backward and name != ZERO]
        return result + [layer.grads[name] for name in names]

    return Ready(call, read)


def torch_attention(drawn: Drawn, case: Case, threads: int) -> Ready:
    """Run `torch.nn.functional.scaled_dot_product_attention` and `torch.autograd.grad`."""
    import torch

    torch.set_num_threads(threads)
    leaves = [torch.from_numpy(x).requires_grad_(case.backward) for x in drawn[:3]]
    q, k, v = leaves
    array, is_causal = one_mask(drawn, case)
    mask = None if array is None else torch.from_numpy(array)
    if mask is not None and drawn.bias is not None:
        leaves.append(mask.requires_grad_(case.backward))
    d_out = torch.from_numpy(drawn.d_out)

    def call() -> list[Any]:
        out = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, mask, is_causal=is_causal, enable_gqa=q.shape[1] != k.shape[1]
        )
        return [out, *torch.autograd.grad(out, leaves, d_out)] if case.backward else [out]

    return Ready(call, lambda result: [x.detach().numpy() for x in result])


def one_mask(drawn: Drawn, case: Case) -> tuple[Array | None, bool]:
    """Return in one array all that hides cells or is added, and whether causality comes besides.

    So PyTorch and ONNX Runtime want it. A bias has -inf there where cells are hidden.
    """
    if drawn.mask is drawn.bias is None and not case.window:
        return None, case.is_causal
    visible = joint_mask(drawn.q.shape[2], drawn.k.shape[2], case, drawn.mask)
    if drawn.bias is None or visible is None:
        return visible if drawn.bias is None else drawn.bias, False
    return np.where(visible, drawn.bias, drawn.bias.dtype.type(-np.inf)), False


def torch_layer(drawn: LayerDrawn, case: Case, threads: int) -> Ready:
    """Run `torch.nn.MultiheadAttention`; forward by itself takes its inference fast path."""
    import torch

    torch.set_num_threads(threads)
    sizes = drawn.x.shape[-1], drawn.num_heads
    module = torch.nn.MultiheadAttention(*sizes, batch_first=True)
    ours, of_grads = (MultiHeadAttention(*sizes).astype(np.float32) for _ in range(2))
    ours.params = dict(drawn.params)
    packed = to_layout(ours, "torch")
    module.load_state_dict({name: torch.from_numpy(array) for name, array in packed.items()})
    module.train(case.backward)
    x = torch.from_numpy(drawn.x).requires_grad_(case.backward)
    d_out = torch.from_numpy(drawn.d_out)

    def call() -> list[Any]:
        module.zero_grad(set_to_none=True)
        x.grad = None
        with torch.set_grad_enabled(case.backward):
            out, _ = module(x, x, x, need_weights=False)
        if not case.backward:
            return [out]
        out.backward(d_out)
        return [out, x.grad]

    def read(result: list[Any]) -> list[Array]:
        arrays = [array.detach().numpy() for array in result]
        if case.backward:
            grads = {name: param.grad.numpy() for name, param in module.named_parameters()}
            grads = from_layout(of_grads, grads, "torch").params
            arrays += [grad for name, grad in grads.items() if name != ZERO]
        return arrays

    return Ready(call, read)


def jax_attention(drawn: Drawn, case: Case, threads: int) -> Ready:
    """Run `jax.nn.dot_product_attention`, jitted; the environment has set the threads."""
    import jax

    jax.config.update("jax_enable_x64", case.is_double)
    q, k, v, d_out = (jax.numpy.asarray(x.swapaxes(1, 2)) for x in drawn[:4])  # (B, T, H, d)
    mask = None if drawn.mask is None else jax.numpy.asarray(drawn.mask)
    bias = [] if drawn.bias is None else [jax.numpy.asarray(drawn.bias)]
    window = (case.window - 1, 0) if case.window else None

    def attend(q: Any, k: Any, v: Any, bias: Any = None) -> Any:
        return jax.nn.dot_product_attention(
            q, k, v, bias, mask, is_causal=case.is_causal, local_window_size=window
        )

    def run(d_out: Any, *inputs: Any) -> list[Any]:
        if not case.backward:
            return [attend(*inputs)]
        out, pull_back = jax.vjp(attend, *inputs)
        return [out, *pull_back(d_out)]

    def read(result: list[Any]) -> list[Array]:
        found = [np.asarray(x) for x in result]
        return [x.swapaxes(1, 2) for x in found[:4]] + found[4:]  # d_bias has our layout

    jitted = jax.jit(run)
    return Ready(lambda: jax.block_until_ready(jitted(d_out, q, k, v, *bias)), read)


def onnx_attention(drawn: Drawn, case: Case, threads: int) -> Ready:
    """Run the operator Attention in ONNX Runtime, on the CPU."""
    import onnxruntime
    from onnx import helper

    mask, is_causal = one_mask(drawn, case)
    feeds = {"q": drawn.q, "k": drawn.k, "v": drawn.v}
    if mask is not None:  # the runtime does not broadcast over queries
        shape = (*mask.shape[:-2], drawn.q.shape[2], drawn.k.shape[2])
        feeds["mask"] = np.ascontiguousarray(np.broadcast_to(mask, shape))
    types = {name: helper.np_dtype_to_tensor_dtype(x.dtype) for name, x in feeds.items()}
    graph = helper.make_graph(
        [helper.make_node("Attention", list(feeds), ["out"], is_causal=int(is_causal))],
        "attention",
        [helper.make_tensor_value_info(name, types[name], x.shape) for name, x in feeds.items()],
        [helper.make_tensor_value_info("out", types["q"], drawn.q.shape)],
    )
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(
        graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets)
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return Ready(lambda: session.run(None, feeds), list)


Adapter = Callable[..., Ready]  # of (drawn, case, threads)


class Contestant(NamedTuple):
    """A way to compute attention."""

    label: str
    packages: tuple[str, ...]  # what must be installed
    install: str  # how
    adapters: dict[type[AnyProblem], Adapter]  # of those problems that it can be given
    has_backward: bool = True

    @property
    def is_here(self) -> bool:
        """Whether all its packages are installed."""
        return all(find_spec(package) for package in self.packages)


def _ours(label: str, backend: str, packages: tuple[str, ...] = ()) -> Contestant:
    adapters = [partial(adapter, backend) for adapter in (our_attention, our_layer, our_training)]
    return Contestant(label, packages, "pip install numba", dict(zip(KINDS, adapters, strict=True)))


KINDS = (Problem, LayerProblem, TrainingProblem)
CONTESTANTS = {
    "torch": Contestant(
        "PyTorch", ("torch",),
        "pip install torch --index-url https://download.pytorch.org/whl/cpu",
        dict(zip(KINDS, (torch_attention, torch_layer, torch_training), strict=True)),
    ),
    "jax": Contestant("JAX", ("jax",), "pip install jax", {Problem: jax_attention}),
    "onnxruntime": Contestant(
        "ONNX Runtime", ("onnxruntime", "onnx"), "pip install onnxruntime onnx",
        {Problem: onnx_attention}, has_backward=False,
    ),
    "numba": _ours("our tiles", "numba", ("numba",)),
    "loops": _ours("our loops", "loops", ("numba",)),
    "numpy": _ours("our NumPy", "numpy"),
}  # fmt: skip
OURS = ("numba", "loops", "numpy")
