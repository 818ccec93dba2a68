"""identify_file and `mha-numpy identify`: whatever a file does, the answer is clear and in time."""

import json
import time
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from mha_numpy.errors import ConfigError
from mha_numpy.identifying import from_file
from mha_numpy.identifying.calling.subject import Subject
from mha_numpy.identifying.from_file import _for_command, identify_file
from mha_numpy.tables import Table

pytest.importorskip("resource", reason="there are no limits here")
SECONDS = 2.4  # long enough on a busy machine

GOOD = """
import numpy as np
from neighbour import twice

SIZE = 24

def attend(q, k, v):
    return twice(q)

def attend_backward(d_out, cache):
    return d_out

class Layer:
    scale = 2.0
    def __init__(self, num_heads): pass
    def attend(self, q, k, v): return [self.scale * q]
    def __call__(self, x): return {"out": x}

class parts:
    layer = Layer(2)
"""


class Sheet:
    """What identify returns, made of two calls of the function."""

    is_found = is_as_given = True

    def __init__(self, **about):
        self.about = about

    def __str__(self):
        return "; ".join(f"{name}: {value}" for name, value in self.about.items())

    def sections(self):
        return [Table("", (), [[str(self)]])]

    def to_dict(self):
        return self.about

    def to_html(self):
        return f"<p>{self}</p>"


def kind_of(arrays):
    """Return what a function returned, by the way to its first array."""
    path = arrays[0][0] if arrays else None
    return "NoneType" if path is None else "dict" if "'" in path else "list" if path else "ndarray"


def stub(function, *, backward=None, given=None, seconds=60.0, examples=False):
    """Call the function twice."""
    subject = Subject(function)
    if "nothing" in given:
        raise ConfigError("given: there is no argument nothing")
    names = [argument.name for argument in subject.arguments]
    x = np.ones((2, 3))
    calls = [subject.call(dict.fromkeys(names, x)) for _ in range(2)]
    sheet = Sheet(name=subject.name, calls=[call.trouble or kind_of(call.arrays) for call in calls])
    sheet.about |= {
        "seconds": seconds,
        "arguments": names,
        "backward": getattr(backward, "__name__", ""),
    }
    sheet.about["mistakes"] = [given["mistake"]] if "mistake" in given else []
    sheet.is_found = not calls[-1].trouble
    sheet.is_as_given = "misfit" not in given
    return sheet


@pytest.fixture
def write(tmp_path, monkeypatch):
    """A function that writes a file, and returns its path."""
    monkeypatch.setattr(from_file, "identify", stub)
    (tmp_path / "neighbour.py").write_text("def twice(x):\n    return 2 * x\n")

    def write(text, name="mine.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
        return path

    return write


def body(*lines):
    """Return the text of a file whose function does this."""
    return "import os, signal, sys, time\nimport numpy as np\ndef f(x):\n" + "".join(
        f"    {line}\n" for line in lines
    )


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("attend", "name: attend; calls: ['ndarray', 'ndarray']"),
        ("parts.layer", "calls: ['dict', 'dict']"),
        ("parts.layer.attend", "name: Layer.attend; calls: ['list', 'list']"),
        ("Layer(num_heads=len('a:b')).attend", "name: Layer.attend; calls: ['list', 'list']"),
    ],
)
def test_a_name_is_a_function_an_object_or_an_attribute(write, name, found):
    assert found in identify_file(f"{write(GOOD)}:{name}").text


def test_identify_itself_runs_there(tmp_path):
    scores = "q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5"
    weights = "np.exp(s - s.max(-1, keepdims=True))"
    lines = f"s = {scores}", f"w = {weights}", "return w / w.sum(-1, keepdims=True) @ v"
    (tmp_path / "mine.py").write_text(body(*lines).replace("f(x)", "f(q, k, v)"))
    sheet = identify_file(f"{tmp_path}/mine.py:f")
    assert sheet.is_found
    assert not sheet.has_mistake


def test_a_file_of_a_package_imports_its_neighbours(write):
    write("from .mine import f", "package/__init__.py")
    write("def double(x): return 2 * x", "package/helpers.py")
    path = write("from .helpers import double\ndef f(x): return double(x)", "package/mine.py")
    assert "calls: ['ndarray'" in identify_file(f"{path}:f").text


def test_a_file_may_have_the_name_of_a_module(write):
    assert (
        "calls: ['ndarray'"
        in identify_file(f"{write(body('return np.exp(x)'), 'numpy.py')}:f").text
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("atend", "function: there is no function atend; did you mean 'attend'?"),
        ("parts.layer.zzzzzz", "function: there is no function parts.layer.zzzzzz; it has attend"),
        ("SIZE", "function: expected a function or a layer; SIZE is 24"),
        ("Layer(", "function: Layer( raised SyntaxError: '(' was never closed"),
    ],
)
def test_a_wrong_name(write, name, message):
    with pytest.raises(ConfigError) as raised:
        identify_file(f"{write(GOOD)}:{name}")
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import numpyy", "No module named 'numpyy' (line 1 of mine.py: `import numpyy`)"),
        ("x = 1\ndef f(:", "SyntaxError: invalid syntax (line 2 of mine.py: `def f(:`)"),
        ("import sys\nsys.exit(3)", "ended the process: sys.exit(3) (line 2 of mine.py"),
        ("import os\nos._exit(3)", "ended the process: os._exit(3) (while loading)"),
        ("while True: pass", f"took longer than {SECONDS} s and was stopped (line 1 of mine.py"),
        ("f = '\0'", "mine.py: "),
        ("import missing_too", "No module named 'missing_too'"),
    ],
)
def test_a_file_that_cannot_be_loaded(write, text, message):
    path = write(text)
    with pytest.raises(ConfigError, match=r"function: cannot load mine\.py: ") as raised:
        identify_file(f"{path}:f", seconds=SECONDS)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_without_a_name_says_what_it_defines(write):
    path = write(GOOD)
    for function in (f"{path}", f"{path}:"):
        with pytest.raises(ConfigError, match=r"such as .*mine.py:attend; it defines att"):
            identify_file(function)


def test_hints_are_those_of_the_command_line():
    text = 'If not, say so, for example given={"mask": "a", "heads": "n"}'
    assert _for_command(text, Path("m.py")).endswith("for example --given mask=a heads=n")
    text = "cannot build A; build one yourself and pass that, such as A(dim=...)"
    assert _for_command(text, Path("m.py")) == "cannot build A; say how: 'm.py:A(dim=...)'"


def test_no_such_file(tmp_path):
    with pytest.raises(ConfigError, match="function: there is no file .*none.py"):
        identify_file(f"{tmp_path}/none.py:f")
    with pytest.raises(ConfigError, match="function: expected FILE.py:NAME; got 'notes.txt:f'"):
        identify_file("notes.txt:f")


@pytest.mark.parametrize(
    ("lines", "answer"),
    [
        (["print('x' * 10**6)", "return x"], "calls: ['ndarray', 'ndarray']"),
        (["os.write(1, b'x' * 10**6)", "return x"], "calls: ['ndarray', 'ndarray']"),
        (["input()"], "calls: ['EOFError"),
        (["x += 1", "return [x, {'a': x}]"], "calls: ['list', 'list']"),
        (["raise ValueError('no')"], "calls: ['ValueError: no', 'ValueError: no']"),
        (["return np.ones(30 * 2**27)"], "calls: ['MemoryError: Unable to allocate"),
        (["while True: pass"], "TimeoutError: took longer than 0.4 s (line 4 of mine.py: `while"),
        (["if f.calls: return x", "f.calls = 1", "while True: x = np.exp(x)"],
         "(line 6 of mine.py: `while True: x = np.exp(x)`)', 'ndarray']"),
    ],
)  # fmt: skip
def test_identify_goes_on_after(write, lines, answer):
    text = body(*lines) + "f.calls = 0\n"
    start = time.monotonic()
    assert answer in identify_file(f"{write(text)}:f", seconds=SECONDS).text
    assert time.monotonic() < start + SECONDS + 30  # a busy machine starts slowly


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("time.sleep(60)",
         f"took longer than {SECONDS} s and was stopped (line 4 of mine.py: `time.sleep(60)`) "
         "(while identify called it)"),
        ("os._exit(0)", "ended the process: os._exit(0) (while identify called it)"),
        ("os.abort()", "crashed: aborted (while identify called it)"),
        ("os.kill(0, signal.SIGKILL)", "was killed (SIGKILL) (while identify called it)"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt (line 4 of mine.py"),
    ],
)  # fmt: skip
def test_a_function_that_ends_its_process(write, line, why):
    start = time.monotonic()
    sheet = identify_file(f"{write(body(line))}:f", seconds=SECONDS)
    assert sheet.text.startswith(f"mine.py:f {why}")
    assert not sheet.is_found
    found = json.loads(sheet.json)
    assert (found["is_found"], found["rows"], found["saw"][:9]) == (False, [], why[:9])
    assert why.split("'")[0] in sheet.html
    assert time.monotonic() < start + SECONDS + 30


def test_a_slow_function_is_not_interrupted(write):
    """Nor are many short calls, which take long together."""
    lines = ["end = time.process_time() + 0.25", "while time.process_time() < end: pass"]
    assert "calls: ['NoneType'" in identify_file(f"{write(body(*lines))}:f").text


def test_identify_has_a_part_of_the_time_that_is_left(write):
    path = write("import time\ntime.sleep(0.3)\ndef f(x): return x")
    seconds = json.loads(identify_file(f"{path}:f", seconds=SECONDS).json)["seconds"]
    assert 0 < seconds <= from_file.ENOUGH * (SECONDS - 0.3)


def test_a_process_that_the_function_forks_ends_with_its_call(write, tmp_path):
    """Else each would go on to fork others, call by call."""
    note = f"open({str(tmp_path / 'calls')!r}, 'a').write('x')"
    identify_file(f"{write(body('child = os.fork()', note, 'if child: os.wait()', 'return x'))}:f")
    assert (tmp_path / "calls").read_text() == "xxxx"


class TestProgram:
    def test_it_prints_the_datasheet(self, write, program):
        done = program("identify", f"{write(GOOD)}:attend", "--backward", "attend_backward")
        assert (done.code, done.err) == (0, "")
        assert done.out.startswith("name: attend; ")
        assert "backward: attend_backward" in done.out

    def test_it_writes_files(self, write, tmp_path, program):
        page, file = tmp_path / "page.html", tmp_path / "found.json"
        done = program("identify", f"{write(GOOD)}:attend", "--html", page, "--json", file)
        assert done.out.endswith(f"wrote {file}\nwrote {page}\n")
        assert page.read_text(encoding="utf-8").startswith("<p>name: attend")
        assert json.loads(file.read_text(encoding="utf-8"))["name"] == "attend"

    def test_json_alone(self, write, program, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        done = program("identify", f"{write(GOOD)}:attend", "--json", "-")
        assert json.loads(done.out)["arguments"] == ["q", "k", "v"]
        assert not (tmp_path / "-").exists()

    @pytest.mark.parametrize(
        ("given", "code"),
        [(["--given", "mistake=scale"], 1), (["--given", "a=b", "mistake=x", "--given", "c=d"], 1),
         (["--given", "a=b"], 0), (["--given", "misfit=a", "mistake=scale"], 3)],
    )  # fmt: skip
    def test_a_mistake_is_exit_code_1(self, write, program, given, code):
        assert program("identify", f"{write(GOOD)}:attend", *given).code == code

    def test_what_it_cannot_tell_is_exit_code_3(self, write, program):
        done = program("identify", f"{write(body('os._exit(1)'))}:f")
        assert (done.code, done.err) == (3, "")
        assert "mine.py:f ended the process: os._exit(1)" in done.out

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--given", "mask"], "given: expected ROLE=ARGUMENT, such as mask=attn"),
            (["--given", "mask=a", "mask=b"], "given: expected ROLE=ARGUMENT, such as mask=attn"),
            (["--given", "=a"], "given: expected ROLE=ARGUMENT, such as mask=attn"),
            (["--given", "nothing=a"], "given: there is no argument nothing"),
            (["--backward", "atend_backward"], "did you mean 'attend_backward'?"),
            (["--backward", "SIZE"], "backward: expected a function or a layer; SIZE is 24"),
            (["--seconds", "0"], "limits.seconds: expected a number > 0; got 0.0"),
            (["--html", "none/page.html"], "html: expected a file in a folder that exists; got no"),
        ],
    )
    def test_a_wrong_argument_is_one_line(self, write, program, options, message):
        done = program("identify", f"{write(GOOD)}:attend", *options)
        assert (done.code, done.out) == (2, "")
        assert message in done.err
        assert done.err.count("\n") == 1
