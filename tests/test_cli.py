"""The program as a user runs it: in a process of its own."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from mha_numpy.show import training as report
from mha_numpy.show.walk import walk as walk_through
from mha_numpy.show.walk.files import FILES
from mha_numpy.show.walk.report import brief
from tests.show.walk.pretrained import save_model

SMALL = ("--dim", "4")  # a quick walk: each param is checked
SENTENCE = "The animal didn't cross the street because it was too tired"


def run(*arguments, env=None):
    return subprocess.run(
        [sys.executable, "-m", "mha_numpy", *arguments],
        capture_output=True, text=True, check=False, timeout=120, encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **(env or {})},
    )  # fmt: skip


def rows_of(output, title):
    """Return the rows of the table under a title, split at two or more spaces."""
    lines = output[output.index(title) :].splitlines()
    end = lines.index("") if "" in lines else len(lines)
    return [line.split() for line in lines[3:end]]


@pytest.fixture(scope="module")
def output():
    """What the whole walk through a sentence prints into a pipe."""
    result = run("walk", SENTENCE, "--verbose")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


@pytest.fixture
def walk(program):
    """A function that walks in this process and returns what it prints."""

    def walk(*arguments):
        done = program("walk", *arguments)
        assert (done.code, done.err) == (0, "")
        return done.out

    return walk


class TestWalk:
    def test_the_first_command_says_what_a_newcomer_can_read(self, walk):
        """In about fifteen lines: who looks at whom, shapes, gradients, and where to go on."""
        output = walk()
        lines = [line for line in output.splitlines() if line]
        assert len(lines) <= 18
        assert max(map(len, lines)) <= 80
        assert output.isascii()
        whom = rows_of(output, "In each head")
        assert whom[4] == ["It", "cat", "78%,", "fish", "17%", "fish", "92%"]
        assert "-> weights (1, 2, 6, 6) ->" in output
        assert "gradients: every number checked, all correct" in output
        assert "every number by hand" in " ".join(output.split())

    def test_a_sentence_of_your_own_has_random_vectors_and_says_so_first(self, walk):
        output = walk("to be or not to be", *SMALL)
        assert output.startswith("Random, not trained")

    def test_on_a_terminal_weights_are_shaded(self):
        _, table, *_ = brief(walk_through(), is_shaded=True)
        assert table.rows[4][1].startswith("··▓▓··░░")
        text = table.to_text()
        assert text.count("██") == 6  # head 1 is sure of each word before

    def test_verbose_shows_everything(self, output):
        assert "tokens: 0 The  1 animal  2 didn't" in output
        forward = [row[0] for row in rows_of(output, "FORWARD")]
        assert forward[0] == "x_q"
        assert forward[-1] == "out"
        backward = [row[0] for row in rows_of(output, "BACKWARD")]
        assert backward[0] == "d_out"
        assert backward[-1] == "d_x"
        assert "B=1 H=4 T_q=11 T_k=11    scale * q @ k.swapaxes(-1, -2)" in output
        whom = rows_of(output, "In each head")
        assert [row[0] for row in whom] == SENTENCE.split()
        checked = {row[0] for row in rows_of(output, "GRADIENT CHECK")}
        assert checked == {"x_q", *(f"{x}_{y}" for x in "wb" for y in "qkvo")}
        assert "gradients: all 9 right" in output
        assert "next: mha-numpy lab" in output

    @pytest.mark.slow
    def test_memory(self, output, walk):
        with_memory = walk(SENTENCE, "--memory")
        assert "3872 968 88 8" in with_memory
        assert "view of q_projected" in with_memory
        assert "copy of heads_by_token" in with_memory
        for text in (output, with_memory):
            assert max(map(len, text.splitlines())) <= 80

    def test_small_arrays_are_shown_themselves(self, walk):
        output = walk("a b", "--dim", "2", "--heads", "1", "--causal", "--verbose")
        lines = output[output.index("\nmasked ") :].splitlines()[2:4]
        assert [line.split()[-1] for line in lines] == ["-inf]", lines[1].split()[-1]]

    @pytest.mark.slow
    def test_is_plain_when_piped_and_the_same_every_time(self, output, walk):
        assert "\x1b" not in output
        assert output.isascii()
        assert walk(SENTENCE, "--verbose") == output
        assert walk("a b", *SMALL, "--seed", "1") != walk("a b", *SMALL, "--seed", "2")

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            (("--causal",), "causal self-attention, float64: B=1, T_q=11, T_k=11, D=4"),
            (("--heads", "8", "--kv-heads", "2", "--dim", "8"), "D=8, H=8, H_kv=2, d_k=1"),
            (("--cross", "two words"), "cross-attention, float64: B=1, T_q=11, T_k=2"),
            (("--dtype", "float32"), "float32: B=1"),
            (("--dtype", "float16", "--causal", "--kv-heads", "1"), "float16: B=1"),
            (("--heads", "1", "--dim", "3"), "H=1, H_kv=1, d_k=3"),
        ],
    )
    def test_options(self, walk, arguments, expected):
        output = walk(SENTENCE, *SMALL, *arguments, "--verbose")
        assert expected in output
        assert "right; largest error" in output

    def test_causal_attends_to_no_later_token(self, walk):
        whom = rows_of(walk("one two three", *SMALL, "--causal"), "In each head")
        assert whom[0][1:] == ["one", "100%"] * 4
        assert "three" not in whom[1][2:]

    def test_one_token(self, walk):
        assert "B=1, T_q=1, T_k=1, D=4" in walk("alone", *SMALL, "--verbose")

    @pytest.mark.parametrize(
        ("kind", "shape", "dtype"),
        [("npy", (5, 4), float), ("npz", (2, 5, 4), float), ("npy", (2, 5, 4), int)],
    )
    def test_input_from_a_file(self, tmp_path, walk, kind, shape, dtype):
        path, x = tmp_path / f"x.{kind}", np.arange(math.prod(shape), dtype=dtype).reshape(shape)
        np.save(path, x) if kind == "npy" else np.savez(path, x=x, other=np.ones(3))
        assert f"B={1 if len(shape) == 2 else 2}, T_q=5, T_k=5, D=4" in walk(
            "--input", path, "--verbose"
        )

    def test_save(self, tmp_path, walk, program):
        (tmp_path / "trace.json").write_text("mine")
        refused = program("walk", "a b c", "--save", tmp_path)
        assert refused.code == 2
        assert "--force" in refused.err
        assert (tmp_path / "trace.json").read_text() == "mine"

        output = walk("a b c", *SMALL, "--save", tmp_path, "--causal", "--force")
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FILES)
        assert output.count("wrote ") == len(FILES)
        described = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))
        steps = {step["name"]: step for step in described["steps"]}
        weights = np.array(steps["weights"]["values"])
        assert weights.shape == (1, 4, 3, 3)
        np.testing.assert_allclose(weights.sum(axis=-1), 1)
        assert described["tokens"] == ["a", "b", "c"]
        for path in tmp_path.glob("*.svg"):
            assert "Random params: nothing here is trained." in path.read_text(encoding="utf-8")


class TestWrongUse:
    @pytest.fixture
    def files(self, tmp_path):
        """Files that are not what the walk can read."""
        (tmp_path / "text.npy").write_text("not an array")
        (tmp_path / "empty.npy").write_bytes(b"")
        (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04broken")
        np.save(tmp_path / "words.npy", np.array([["a", "b"]]))
        np.save(tmp_path / "objects.npy", np.array([{}, None]), allow_pickle=True)
        np.save(tmp_path / "rank1.npy", np.ones(4))
        np.save(tmp_path / "none.npy", np.ones((0, 4)))
        np.save(tmp_path / "nan.npy", np.full((3, 4), np.nan))
        np.savez(tmp_path / "two.npz", a=np.ones((3, 4)), b=np.ones((3, 4)))
        np.save(tmp_path / "good.npy", np.ones((3, 4)))
        (tmp_path / "file").write_text("in the way")
        return tmp_path

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["walk", "--heads", "2"], "heads: expected none without a text"),
            (["walk", ""], "text: expected at least one word; got ''"),
            (["walk", "   "], "text: expected at least one word"),
            (["walk", "a b", "--heads", "3"], "heads: expected a divisor of dim=16; got 3"),
            (["walk", "a b", "--heads", "0"], "heads: expected an integer >= 1; got 0"),
            (["walk", "a b", "--heads", "-4"], "heads: expected an integer >= 1; got -4"),
            (["walk", "a b", "--heads", "two"], "invalid int value: 'two'"),
            (["walk", "a b", "--kv-heads", "3"], "kv_heads: expected a divisor of heads=4; got 3"),
            (["walk", "a b", "--kv-heads", "8"], "kv_heads: expected a divisor of heads=4; got 8"),
            (["walk", "a b", "--dim", "0"], "dim: expected an integer >= 1; got 0"),
            (["walk", "a b", "--dtype", "int8"], "dtype: expected one of float16, float32, "),
            (["walk", "a b", "--seed", "-1"], "seed: expected an integer >= 0; got -1"),
            (["walk", "a b", "--cross", ""], "cross: expected at least one word; got ''"),
            (["walk", "a b", "--input", "good.npy"], "text: expected a sentence or --input FILE"),
            (["walk", "--input", "missing.npy"], "input: cannot read missing.npy"),
            (["walk", "--input", "text.npy"], "input: cannot read text.npy"),
            (["walk", "--input", "empty.npy"], "input: cannot read empty.npy"),
            (["walk", "--input", "broken.npz"], "input: cannot read broken.npz"),
            (["walk", "--input", "objects.npy"], "input: cannot read objects.npy"),
            (["walk", "--input", "."], "input: cannot read ."),
            (["walk", "--input", "words.npy"], "input: expected numbers of shape"),
            (["walk", "--input", "rank1.npy"], "got (4,) float64"),
            (["walk", "--input", "none.npy"], "got (0, 4) float64"),
            (["walk", "--input", "nan.npy"], "input: expected numbers up to 1e+100"),
            (["walk", "--input", "two.npz"], "input: expected one array or one named x"),
            (["walk", "--input", "good.npy", "--dim", "8"], "dim: expected none, or D=4"),
            (["walk", "a b", *SMALL, "--save", "file"], "save: cannot write to file: File exists"),
            (["walk", "a", "b"], "unrecognized arguments: b (a sentence needs quotes around it)"),
            (["train", "text", "two.npz"], "file: expected text in UTF-8 in two.npz"),
            (["train", "text", "missing"], "file: cannot read missing: No such file"),
            (["train", "text", "file"], "text: expected more than 650 characters"),
            (["train", "reverse", "file"], "text: expected none with 'reverse'"),
            (["bench", "4,12,128,64"], "4,12,128,64 (write a shape as --only 4,12,128,64)"),
            (["walk", "a b", "--colour"], "unrecognized arguments: --colour"),
            (["wlak", "a b"], "mha-numpy: there is no command 'wlak'; did you mean 'walk'?"),
            (["audit", "a"], "there is no command 'audit'; did you mean 'audit-tests'?"),
            (["f'x"], "there is no command \"f'x\"; `mha-numpy --help` lists them"),
            ([], "the following arguments are required: COMMAND"),
        ],
    )  # fmt: skip
    def test_one_clear_line_and_exit_code_2(self, files, monkeypatch, program, arguments, message):
        monkeypatch.chdir(files)
        before = sorted(path.name for path in files.iterdir())
        done = program(*arguments)
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith("mha-numpy")
        assert message in done.err
        assert done.err.count("\n") == 1
        assert sorted(path.name for path in files.iterdir()) == before

    @pytest.mark.slow
    def test_no_traceback_from_a_process_either(self):
        result = run("walk", "a b", "--heads", "5")
        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr == "mha-numpy walk: heads: expected a divisor of dim=16; got 5\n"


def test_train_prints_what_was_measured_and_saves_params_and_pictures(tmp_path, program):
    train = ["train", "reverse", "--steps", "2", "--backend", "numpy", "--save", tmp_path]
    done = program(*train)
    assert done.code == 0
    measured = dict(line.split() for line in done.out.splitlines()[3:8])
    assert measured["steps"] == "2"
    assert 0 < float(measured["right"]) < 0.5
    assert {path.name for path in tmp_path.iterdir()} == set(report.FILES)
    again = program(*train)
    assert again.code == 2
    assert "already has params.npz; add --force" in again.err


def test_help_and_version(program):
    assert "walk" in program("--help").out
    assert "--kv-heads" in program("walk", "--help").out
    assert run("--version").stdout.startswith("mha-numpy 0.")


def test_a_terminal_that_knows_only_ascii():
    result = run("walk", "les \u00e9l\u00e8ves", *SMALL, env={"PYTHONIOENCODING": "ascii"})
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
def test_ctrl_c_ends_a_training_with_a_checkpoint_from_which_it_goes_on(tmp_path):
    checkpoint = tmp_path / "run.npz"
    command = ["train", "reverse", "--steps", "100000", "--backend", "numpy",
               "--checkpoint", str(checkpoint)]  # fmt: skip
    training = subprocess.Popen(
        [sys.executable, "-m", "mha_numpy", *command], stderr=subprocess.PIPE, text=True,
        # a shell lets its jobs in the background ignore Ctrl+C, and so would this one
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    while not checkpoint.exists():  # written after 100 steps
        assert training.poll() is None
        time.sleep(0.05)
    training.send_signal(signal.SIGINT)
    _, errors = training.communicate(timeout=60)
    assert training.returncode == 130
    assert "stopped after step" in errors
    assert f"run the same command to continue from {checkpoint}" in errors


@pytest.mark.slow
def test_a_reader_that_stops_early_still_gets_what_was_to_be_saved(tmp_path):
    first = subprocess.Popen(
        [sys.executable, "-m", "mha_numpy", "walk", "a b", *SMALL, "--save",
         str(tmp_path / "new" / "folder")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    first.stdout.close()
    _, errors = first.communicate(timeout=60)
    assert errors == b""
    assert first.returncode == 0
    assert len(list((tmp_path / "new" / "folder").iterdir())) == len(FILES)


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")
@pytest.mark.parametrize(
    ("rest", "code", "message"),
    [
        (">&-", 0, ""),  # nobody listens
        ("> /dev/full", 2, "mha-numpy walk: cannot print: No space left on device\n"),
        pytest.param(
            "--save /proc/none",
            2,
            "mha-numpy walk: save: cannot write to /proc/none: ",
            marks=pytest.mark.slow,
        ),
        ("--dim 99999999999", 2, "mha-numpy walk: not enough memory"),
        ("$'caf\\xe9 cr\\xe8me'", 2, "mha-numpy walk: unrecognized arguments: "),
    ],
)
def test_a_hostile_shell(rest, code, message):
    command = f"exec {sys.executable} -m mha_numpy walk --dim 4 'a b' {rest}"
    result = subprocess.run(["bash", "-c", command], capture_output=True, check=False, timeout=60)
    errors = result.stderr.decode(errors="replace")
    assert result.returncode == code, errors
    assert errors.startswith(message)
    assert errors.count("\n") == bool(message)


def test_text_in_another_encoding_is_walked():
    result = subprocess.run(
        [sys.executable, "-m", "mha_numpy", "walk", *SMALL, b"caf\xe9 noir"],
        capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert b"\ncaf" in result.stdout


def test_a_wrong_gradient_is_exit_code_1(monkeypatch, program):
    from mha_numpy.show.walk import steps

    def wrong(d_out, cache):
        grads = backward(d_out, cache)
        return grads._replace(d_x_q=-grads.d_x_q)

    backward = steps.multi_head_attention_backward
    monkeypatch.setattr(steps, "multi_head_attention_backward", wrong)
    done = program("walk", "a b", *SMALL)
    assert done.code == 1
    assert "gradients: WRONG" in done.out


def test_in_a_terminal_it_is_in_colour(monkeypatch, walk):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLORTERM", "truecolor")
    output = walk("a [b] c", *SMALL, "--verbose")
    assert "\x1b[" in output
    assert "from [B, T, D] to [B, H, T, d_h]" in output
    heads = output[output.index("In each head") :].splitlines()[1]
    assert len(set(re.findall(r"\x1b\[1;(38;[\d;]+)m", heads))) == 4, "each head has its colour"


def test_the_walk_of_the_readme_is_in_the_readme():
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    assert "mha-numpy walk --html page.html" in readme


def test_heads_writes_a_page_of_a_folder_and_texts(tmp_path, program):
    model, out = save_model(tmp_path / "tiny", "bert"), tmp_path / "heads.html"
    done = program("heads", model, "a cat sat", "mat", "--out", out)
    assert (done.code, done.err) == (0, "")
    assert done.out == f"wrote {out}: open it in a browser\n"
    page = out.read_text(encoding="utf-8")
    assert "<title>What 12 heads look at</title>" in page
    assert f"The params are those in {model}." in page
    assert '"labels":["[CLS]","a","cat","sat","[SEP]"]' in page
    assert program("heads", model, "a cat", "--out", out).code == 0  # a page of ours
    nowhere = program("heads", model, "a cat", "--out", tmp_path / "no" / "heads.html")
    assert nowhere.err.startswith("mha-numpy heads: out: cannot write")


def test_heads_says_what_is_wrong(tmp_path, program):
    note = tmp_path / "note.txt"
    note.write_text("mine", encoding="utf-8")
    taken = program("heads", "minilm", "a cat", "--out", note)
    assert taken.code == 2
    assert "out: " in taken.err
    assert "--force" in taken.err
    assert note.read_text(encoding="utf-8") == "mine"
    absent = program("heads", tmp_path, "a cat", "--out", tmp_path / "heads.html")
    assert "config.json: expected a readable file: No such file" in absent.err


def test_heads_reads_a_language_model_in_words_of_its_own(tmp_path, program):
    model, out = save_model(tmp_path / "tiny", "mistral"), tmp_path / "heads.html"
    assert program("heads", model, "a cat sat on", "--out", out).code == 0
    page = out.read_text(encoding="utf-8")
    assert '"labels":["a","cat","sat","on"]' in page
    assert '"kind":"loss"' in page
    short = program("heads", model, "cat", "--out", out)
    assert "texts: expected 2 to 9 tokens in each; got 1 in text 0" in short.err
