"""What can be written on the command line: the subcommands of `mha-numpy` and their options."""

import argparse
import re
from pathlib import Path
from typing import NoReturn, TypeAlias

from mha_numpy import __version__
from mha_numpy.errors import did_you_mean

Commands: TypeAlias = "argparse._SubParsersAction[Parser]"

EXAMPLE = '"The animal didn\'t cross the street because it was too tired"'

ADVICE = {
    "mha-numpy walk": " (a sentence needs quotes around it)",
    "mha-numpy bench": " (write a shape as --only 4,12,128,64)",
}

UNKNOWN_COMMAND = re.compile(
    r"argument COMMAND: invalid choice: (['\"])(.+)\1.* \(choose from (.+)\)"
)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Print the message and end with 2."""
        unknown = UNKNOWN_COMMAND.fullmatch(message)
        if unknown:
            name, known = unknown[2], re.findall(r"[\w-]+", unknown[3])
            advice = did_you_mean(name, known) or "`mha-numpy --help` lists them"
            message = f"there is no command {name!r}; {advice}"
        if message.startswith("unrecognized arguments: ") and " -" not in message:
            message += ADVICE.get(self.prog, "")
        self.exit(2, f"{self.prog}: {' '.join(message.split())}\n")


def _walk(commands: Commands) -> None:
    """Define `mha-numpy walk`."""
    parser = commands.add_parser(
        "walk",
        help="run a sentence through attention and show every step",
        description="Run a sentence through multi-head attention, forward and backward. Show every "
        "step with its shape, show who attends to whom, and check every gradient.",
        epilog=f"example: mha-numpy walk {EXAMPLE} --heads 4 --kv-heads 2 --causal",
    )
    # fmt: off
    add = parser.add_argument
    add("text", nargs="?", help="the sentence")
    add("--model", metavar="NAME",
        help="a trained model: induction, numbers, reverse or text; minilm, a real BERT from a "
        "Python package; or a folder with a BERT, GPT-2, Llama or Mistral (default: random params)")
    add("--layer", type=int, metavar="N",
        help="which layer of minilm or of a folder's model, from 0 on (default: the last)")
    add("--params", type=Path, metavar="FILE",
        help="params of your own for one of the first four: params.npz, written by `mha-numpy "
        "train --save`")
    add("--example", action="store_true",
        help="'the cat sat on the mat', with features that have names and heads set by hand")
    add("--input", type=Path, metavar="FILE",
        help="a .npy or .npz file with a (T, D) or (B, T, D) array, instead of a sentence")
    add("--heads", type=int, metavar="H", help="query heads (default 4)")
    add("--kv-heads", type=int, metavar="H_KV",
        help="key/value heads, a divisor of the heads (default: as many)")
    add("--dim", type=int, metavar="D", help="width of a token's vector (default 16)")
    add("--causal", action="store_true", help="a token sees only itself and those before it")
    add("--cross", metavar="TEXT", help="another sentence, for keys and values")
    add("--dtype", default="float64", help="float16, float32 or float64 (default)")
    add("--seed", type=int, default=0,
        help="seeds the upstream gradient, and random vectors and params (default 0)")
    add("--memory", action="store_true",
        help="show the memory of each step: strides, bytes, view or copy")
    add("--save", type=Path, metavar="DIR",
        help="write pictures (PNG, SVG) and the trace (JSON) there")
    add("--html", type=Path, metavar="FILE",
        help="write a page there on which any number can be changed")
    add("--open", action="store_true", help="open that page in the browser (page.html by default)")
    add("--force", action="store_true", help="let --save and --html overwrite files")
    # fmt: on


def _heads(commands: Commands) -> None:
    """Define `mha-numpy heads`."""
    parser = commands.add_parser(
        "heads",
        help="show what each head of a pretrained model does on a text, in a page",
        description="Write a page about the heads of a BERT, GPT-2, Llama or Mistral: where each "
        "of them looks on your texts, what changes without it, and what is left as more and more "
        "are cut. This takes up to a minute.",
        epilog=f"example: mha-numpy heads minilm {EXAMPLE} --open",
    )
    # fmt: off
    add = parser.add_argument
    add("model", metavar="MODEL",
        help="minilm, or a folder with config.json, model.safetensors and tokenizer.json")
    add("texts", nargs="+", metavar="TEXT", help="a sentence, or several")
    add("--out", type=Path, default=Path("heads.html"), metavar="FILE",
        help="where the page is written (default heads.html)")
    add("--open", action="store_true", help="open the page in the browser")
    add("--force", action="store_true", help="let --out overwrite a file that is not such a page")
    # fmt: on


def _train(commands: Commands) -> None:
    """Define `mha-numpy train`."""
    parser = commands.add_parser(
        "train",
        help="train a small model: induction, numbers, reverse or text",
        description="Train one of four small models, and print what was measured at the end.",
        epilog="example: mha-numpy train text my-book.txt --checkpoint run.npz",
    )
    # fmt: off
    add = parser.add_argument
    add("name", metavar="NAME", help="induction, numbers, reverse or text")
    add("file", nargs="?", type=Path, metavar="FILE", help="for text: a text of yours, in UTF-8")
    add("--seed", type=int, default=0, help="seeds params, dropout and batches (default 0)")
    add("--steps", type=int, metavar="N", help="number of steps (default: that of the recipe)")
    add("--backend", default="numba", help="numpy, loops or numba (default)")
    add("--checkpoint", type=Path, metavar="FILE",
        help="save the state there; go on from it if the file exists")
    add("--save", type=Path, metavar="DIR",
        help="write the params (.npz), and pictures of the loss and of what was measured")
    add("--force", action="store_true", help="let --save overwrite files")
    # fmt: on


def _bench(commands: Commands) -> None:
    """Define `mha-numpy bench`."""
    parser = commands.add_parser(
        "bench",
        help="time attention side by side with other libraries",
        description="Time attention, forward and backward, side by side with those of PyTorch, "
        "JAX and ONNX Runtime that are installed, after comparing the results. This takes some "
        "minutes.",
        epilog="example: mha-numpy bench --quick --against torch,numpy --chart ratios.png",
    )
    # fmt: off
    add = parser.add_argument
    add("--ours", default="numba", metavar="BACKEND",
        help="the backend to compare with all others (default numba)")
    add("--against", metavar="NAMES",
        help="some of torch,jax,onnxruntime,numba,loops,numpy (default: all but numba and loops)")
    add("--only", default="", metavar="SUBSTRING",
        help="only measurements with this in their name: a shape such as 4,12,128,64, layer, LM, "
        "peak, import, compile, memory, scaling, error")
    add("--threads", type=int, metavar="N",
        help="threads of every library (default: one for each core)")
    add("--seconds", type=float, default=2.0, metavar="S",
        help="time for each figure (default 2); five pairs are timed even if they take longer")
    add("--mask", action="store_true", help="also measure with boolean masks")
    add("--quick", action="store_true",
        help="a rough look: short shapes, a tenth of the time; else only peak and import")
    add("--json", type=Path, metavar="FILE", help="write all figures there")
    add("--markdown", type=Path, metavar="FILE", help="write the report there")
    add("--write", type=Path, metavar="FILE",
        help="replace the report on this family of processors in a Markdown page, such as "
        "docs/performance.md")
    add("--chart", type=Path, metavar="FILE.png", help="draw the ratios there")
    # fmt: on


def _cost(commands: Commands) -> None:
    """Define `mha-numpy cost`."""
    parser = commands.add_parser(
        "cost",
        help="count a known model's params, operations and KV cache",
        description="Count the params, floating-point operations and KV-cache bytes of a known "
        "model; without --model, list all.",
        epilog="example: mha-numpy cost --model llama-3-70b --context 8192",
    )
    # fmt: off
    add = parser.add_argument
    add("--model", metavar="NAME", help="such as gpt-2 or llama-3-70b")
    add("--context", type=int, metavar="T",
        help="tokens of each sequence (default: the context of the model)")
    add("--batch", type=int, default=1, metavar="B", help="sequences (default 1)")
    # fmt: on


def _lab(commands: Commands) -> None:
    """Define `mha-numpy lab`."""
    parser = commands.add_parser(
        "lab",
        help="copy the notebooks into a folder of yours and open them in JupyterLab",
        description="Copy the notebooks into a folder of yours, and open JupyterLab on them. "
        "Notebooks that are there already stay as they are.",
        epilog="example: mha-numpy lab attention --open 05 --port 9000 --no-browser",
    )
    # fmt: off
    add = parser.add_argument
    add("folder", nargs="?", type=Path, default=Path("attention-notebooks"), metavar="DIR",
        help="default attention-notebooks")
    add("--open", default="00", metavar="NUMBER", help="the notebook to begin with (default 00)")
    add("--force", action="store_true",
        help="overwrite notebooks that are there already; what you wrote into them is lost")
    add("--copy-only", action="store_true", help="copy, and open nothing")
    add("--no-browser", action="store_true", help="only print the address")
    add("--port", type=int, metavar="N",
        help="where JupyterLab listens (default 8888); the next free one if it is taken")
    add("--allow-root", action="store_true", help="let root run JupyterLab, as in a container")
    # fmt: on


def _exercises(commands: Commands) -> None:
    """Define `mha-numpy exercises`."""
    parser = commands.add_parser(
        "exercises",
        help="list the exercises, or begin with them in a folder of yours",
        description="List all exercises, and which of them are done in a folder. With `start`, "
        "write a stub for each, a README and a file for pytest into a folder; files that are there "
        "already stay as they are.",
        epilog="example: mha-numpy exercises start my-exercises",
    )
    # fmt: off
    add = parser.add_argument
    add("words", nargs="*", metavar="[start] [DIR]", help="the folder (default: this one)")
    # fmt: on


def _check(commands: Commands) -> None:
    """Define `mha-numpy check`."""
    parser = commands.add_parser(
        "check",
        help="check exercises, and name the mistakes",
        description="Check one exercise stage by stage, or all in a folder with a line each. Your "
        "code runs in a process of its own, with limits on time, memory and output.",
        epilog="example: mha-numpy check my-exercises softmax --watch",
    )
    # fmt: off
    add = parser.add_argument
    add("folder", type=Path, metavar="DIR", help="a folder written by `mha-numpy exercises start`")
    add("id", nargs="?", metavar="ID", help="the id of an exercise (default: all)")
    add("--watch", action="store_true", help="check again whenever a file is saved")
    add("--strict", action="store_true",
        help="reject what calls this package for its answer, instead of a remark")
    add("--json", action="store_true",
        help="print JSON alone, for a program: a list with an object for each exercise")
    add("--seconds", type=float, default=10.0, metavar="S",
        help="how long your code may run (default 10)")
    add("--megabytes", type=int, default=2048, metavar="N",
        help="how much memory your code may take (default 2048)")
    # fmt: on


def _assignment(commands: Commands) -> None:
    """Define `mha-numpy assignment`."""
    parser = commands.add_parser(
        "assignment",
        help="make an assignment for a class, each student in a variant",
        description="Make an assignment: a table of points, a secret, and handouts with "
        "instructions, stubs and public checks. NAME is hw1-forward, hw2-backward, "
        "hw3-grouped-and-cache, or ids of exercises with commas between them. With a roster each "
        "student gets conventions of their own, so that a copied solution is seldom right.",
        epilog="example: mha-numpy assignment hw1-forward --out hw1 --roster ids.csv",
    )
    # fmt: off
    add = parser.add_argument
    add("name", metavar="NAME", help="hw1-forward, ..., or such as softmax,masks")
    add("--out", type=Path, required=True, metavar="DIR",
        help="the folder to write; its folder `handouts` is for students, the rest is not; points "
        "are changed in its assignment.toml")
    add("--roster", type=Path, metavar="FILE.csv", help="the students: columns id and name")
    add("--secret-file", type=Path, metavar="FILE",
        help="what the variants are made of (default: DIR/secret, made if missing)")
    add("--format", default="notebook", metavar="FORM",
        help="notebook (default) or files; or for other graders: otter, nbgrader")
    add("--deadline", metavar="WHEN", help="such as 2030-05-31 or 2030-05-31T12:00")
    add("--force", action="store_true",
        help="overwrite an assignment; its secret stays, so that nobody's variant changes")
    # fmt: on


def _hint(commands: Commands) -> None:
    """Define `mha-numpy hint`."""
    parser = commands.add_parser(
        "hint",
        help="show the next of four hints on an exercise",
        description="Show the next of four hints: where to look, a question, the mistake that your "
        "last check showed or that many make (with a picture), the line that mends it. After the "
        "first each needs a check since the one before.",
        epilog="example: mha-numpy hint my-exercises softmax",
    )
    # fmt: off
    add = parser.add_argument
    add("folder", type=Path, metavar="DIR", help="a folder written by `mha-numpy exercises start`")
    add("id", metavar="ID", help="the id of an exercise")
    add("--number", type=int, choices=range(1, 5), metavar="N",
        help="one of the four (default: the next)")
    add("--force", action="store_true",
        help="also where nothing was checked since the last hint")
    # fmt: on


def _mistakes(commands: Commands) -> None:
    """Define `mha-numpy mistakes`."""
    parser = commands.add_parser(
        "mistakes",
        help="list the known mistakes, or count how many are rejected and named rightly",
        description="List the known mistakes of a function, or of all. With --confusion make each "
        "of them, and pairs of them, and count how many are rejected and named rightly.",
        epilog="example: mha-numpy mistakes softmax_backward",
    )
    # fmt: off
    add = parser.add_argument
    add("piece", nargs="?", metavar="FUNCTION", help="such as softmax_backward (default: all)")
    add("--confusion", action="store_true", help="make the mistakes and count")
    add("--pairs", type=int, default=100, metavar="N",
        help="how many pairs of mistakes to make for each function (default 100)")
    add("--held-out", type=int, default=1, metavar="N",
        help="how many edits of each kind to make for each function and to search without that "
        "kind (default 1)")
    add("--write", type=Path, metavar="FILE",
        help="with --confusion, write the page, such as docs/confusion.md")
    add("--search-table", action="store_true",
        help="compute anew what all small edits of the right functions give")
    # fmt: on


def _audit_tests(commands: Commands) -> None:
    """Define `mha-numpy audit-tests`."""
    parser = commands.add_parser(
        "audit-tests",
        help="count how many of the known mistakes some tests catch",
        description="Run the tests of a file with pytest, on right functions and then on each "
        "known mistake. Print how many mistakes they catch, and which slip through.",
        epilog="example: mha-numpy audit-tests tests/test_attention.py",
    )
    # fmt: off
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="tests that take or import softmax, attention, ...")
    add("--seconds", type=float, default=10.0, metavar="S",
        help="how long the tests may take for each mistake (default 10)")
    # fmt: on


def _grade(commands: Commands) -> None:
    """Define `mha-numpy grade`."""
    parser = commands.add_parser(
        "grade",
        help="grade what a class has handed in, in isolation, with a page for each student",
        description="Run every student's functions where they see Python and NumPy and nothing "
        "else, and write grades.csv, a page for each student and one for the class. What was "
        "graded before is not graded again. Late work is marked, and no points are taken off.",
        epilog="example: mha-numpy grade handed-in --assignment hw1 --out results",
    )
    # fmt: off
    add = parser.add_argument
    add("submissions", type=Path, metavar="DIR",
        help="a folder or a .py or .ipynb file for each student, as Moodle, Canvas or Blackboard "
        "names them or by the students' ids")
    add("--assignment", type=Path, required=True, metavar="DIR",
        help="a folder written by `mha-numpy assignment`")
    add("--out", type=Path, required=True, metavar="DIR", help="where the results are written")
    add("--jobs", type=int, metavar="N",
        help="how many students are graded at a time (default: one for each core)")
    add("--dask", metavar="ADDRESS",
        help="let the workers of a Dask cluster grade, such as tcp://10.0.0.1:8786")
    add("--seconds", type=float, default=10.0, metavar="S",
        help="how long each function may run (default 10)")
    add("--megabytes", type=int, default=2048, metavar="N",
        help="how much memory each function may take (default 2048)")
    add("--unsafe-local", action="store_true",
        help="run the functions as your user, with limits but without isolation: they can read and "
        "delete your files")
    # fmt: on


def _compile(commands: Commands) -> None:
    """Define `mha-numpy compile`."""
    commands.add_parser(
        "compile",
        help="compile the numba kernels now instead of at their first use",
        description="Compile all numba kernels, in float32 and float64, and keep them on disk.",
    )


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole program."""
    parser = Parser(prog="mha-numpy", description="Attention in NumPy to learn from.")
    parser.add_argument("--version", action="version", version=f"mha-numpy {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _walk(commands)
    _heads(commands)
    _train(commands)
    _bench(commands)
    _cost(commands)
    _lab(commands)
    _exercises(commands)
    _check(commands)
    _hint(commands)
    _assignment(commands)
    _mistakes(commands)
    _audit_tests(commands)
    _grade(commands)
    _compile(commands)
    for subcommand in commands.choices.values():
        subcommand.set_defaults(parser=subcommand)  # its errors name it
    return parser
