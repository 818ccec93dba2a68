"""The program `mha-numpy`: one subcommand, one library function."""

import argparse
import io
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, NoReturn

from mha_numpy import __version__
from mha_numpy.core.checks import check_count
from mha_numpy.errors import BackendError, ConfigError, MhaError
from mha_numpy.tables import show

EXAMPLE = '"The animal didn\'t cross the street because it was too tired"'

ADVICE = {
    "mha-numpy walk": " (a sentence needs quotes around it)",
    "mha-numpy bench": " (write a shape as --only 4,12,128,64)",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand and return the exit code: 0 done, 1 a result is wrong, 2 wrong use."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may not know a token's letters
    options = _parse(arguments)
    try:
        code = int(options.run(options))
        if sys.stdout is not None:  # closed by whoever started us
            sys.stdout.flush()
    except MhaError as error:
        return _complain(options.command, str(error))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MemoryError:
        return _complain(options.command, "not enough memory for arrays of these sizes")
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _complain(options.command, f"cannot print: {error.strerror}")
    return code


def _complain(command: str, message: str) -> int:
    """Print one line to stderr and return the exit code of wrong use."""
    print(f"mha-numpy {command}: {' '.join(message.split())}", file=sys.stderr)
    return 2


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments: ") and " -" not in message:
            message += ADVICE.get(self.prog, "")
        self.exit(2, f"{self.prog}: {' '.join(message.split())}\n")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options; what is left over is the subcommand's to complain about."""
    parser = _parser()
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return options


def _parser() -> argparse.ArgumentParser:
    """Return the parser of the whole program."""
    parser = _Parser(prog="mha-numpy", description="Attention in NumPy to learn from.")
    parser.add_argument("--version", action="version", version=f"mha-numpy {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    walk = commands.add_parser(
        "walk",
        help="run a sentence through attention and show every step",
        description="Run a sentence through multi-head attention, forward and backward: show every "
        "step with its shape, who attends to whom, and check every gradient.",
        epilog=f"example: mha-numpy walk {EXAMPLE} --heads 4 --kv-heads 2 --causal",
    )
    # fmt: off
    add = walk.add_argument
    add("text", nargs="?", help="the sentence")
    add("--input", type=Path, metavar="FILE",
        help="a .npy or .npz file with a (T, D) or (B, T, D) array, instead of a sentence")
    add("--heads", type=int, default=4, metavar="H", help="query heads (default 4)")
    add("--kv-heads", type=int, metavar="H_KV",
        help="key/value heads, a divisor of the heads (default: as many)")
    add("--dim", type=int, metavar="D", help="width of a token's vector (default 16)")
    add("--causal", action="store_true", help="a token sees only itself and those before it")
    add("--cross", metavar="TEXT", help="another sentence, for keys and values")
    add("--dtype", default="float64", help="float16, float32 or float64 (default)")
    add("--seed", type=int, default=0,
        help="seeds vectors, params and the upstream gradient (default 0)")
    add("--save", type=Path, metavar="DIR",
        help="write pictures (PNG, SVG) and the trace (JSON) there")
    add("--force", action="store_true", help="let --save overwrite files")
    # fmt: on
    walk.set_defaults(run=_walk, parser=walk)

    bench = commands.add_parser(
        "bench",
        help="time attention side by side with other libraries",
        description="Time attention, forward and backward, side by side with whatever is installed "
        "of PyTorch, JAX and ONNX Runtime, after comparing the results. Takes some minutes.",
        epilog="example: mha-numpy bench --quick --against torch,numpy --chart ratios.png",
    )
    # fmt: off
    add = bench.add_argument
    add("--ours", default="numba", metavar="BACKEND",
        help="the backend to compare with all others (default numba)")
    add("--against", metavar="NAMES",
        help="some of torch,jax,onnxruntime,numba,loops,numpy (default: all but numba and loops)")
    add("--only", default="", metavar="SUBSTRING",
        help="only measurements with this in their name: a shape such as 4,12,128,64, layer, "
        "import, compile, memory, scaling, error")
    add("--threads", type=int, metavar="N", help="for every library (default: one a core)")
    add("--seconds", type=float, default=2.0, metavar="S",
        help="time for each figure (default 2); five pairs are timed even if they take longer")
    add("--mask", action="store_true", help="also with boolean masks")
    add("--quick", action="store_true",
        help="a rough look: short shapes, a tenth of the time, import times and nothing else")
    add("--json", type=Path, metavar="FILE", help="write all figures there")
    add("--markdown", type=Path, metavar="FILE", help="write the report there")
    add("--write", type=Path, metavar="FILE",
        help="replace the generated part of a Markdown page, such as docs/performance.md")
    add("--chart", type=Path, metavar="FILE.png", help="draw the ratios there")
    # fmt: on
    bench.set_defaults(run=_bench, parser=bench)

    cost = commands.add_parser(
        "cost",
        help="count a known model's params, operations and KV cache",
        description="Count the params, floating-point operations and KV-cache bytes of a known "
        "model; without --model, list all.",
        epilog="example: mha-numpy cost --model llama-3-70b --context 8192",
    )
    # fmt: off
    add = cost.add_argument
    add("--model", metavar="NAME", help="such as gpt-2 or llama-3-70b")
    add("--context", type=int, metavar="T",
        help="tokens of each sequence (default: what the model was made for)")
    add("--batch", type=int, default=1, metavar="B", help="sequences (default 1)")
    # fmt: on
    cost.set_defaults(run=_cost, parser=cost)

    lab = commands.add_parser(
        "lab",
        help="copy the notebooks into a folder of yours and open them in JupyterLab",
        description="Copy the notebooks into a folder of yours, leaving alone those that are there "
        "already, and open JupyterLab on them.",
        epilog="example: mha-numpy lab attention --open 05 --port 9000 --no-browser",
    )
    # fmt: off
    add = lab.add_argument
    add("folder", nargs="?", type=Path, default=Path("attention-notebooks"), metavar="DIR",
        help="default attention-notebooks")
    add("--open", default="00", metavar="NUMBER", help="the notebook to begin with (default 00)")
    add("--force", action="store_true",
        help="overwrite notebooks that are there already: what you wrote into them is lost")
    add("--copy-only", action="store_true", help="copy, and open nothing")
    add("--no-browser", action="store_true", help="only print the address")
    add("--port", type=int, metavar="N",
        help="where JupyterLab listens (default 8888); the next free one if it is taken")
    add("--allow-root", action="store_true", help="let root run JupyterLab, as in a container")
    # fmt: on
    lab.set_defaults(run=_lab, parser=lab)

    compile_ = commands.add_parser(
        "compile",
        help="compile the numba kernels now instead of at their first use",
        description="Compile all numba kernels, in float32 and float64, and keep them on disk.",
    )
    compile_.set_defaults(run=_compile, parser=compile_)
    return parser


def _walk(options: argparse.Namespace) -> int:
    """Run `mha_numpy.walk.walk` and print what it saw."""
    from mha_numpy.walk import walk
    from mha_numpy.walk.files import check_folder, save
    from mha_numpy.walk.report import sections

    if options.save:
        check_folder(options.save, force=options.force)
    seen = walk(
        options.text, file=options.input, heads=options.heads, kv_heads=options.kv_heads,
        dim=options.dim, causal=options.causal, cross=options.cross, dtype=options.dtype,
        seed=options.seed,
    )  # fmt: skip
    # saved before anything is printed: a reader such as head may leave early
    saved = save(seen, options.save) if options.save else []
    for section in sections(seen):
        show(section)
    for path in saved:
        print(f"wrote {path}")
    return 0 if seen.report else 1


def _bench(options: argparse.Namespace) -> int:
    """Run `mha_numpy.bench.benchmark` and print what it found."""
    from mha_numpy.bench import Settings, benchmark
    from mha_numpy.bench.files import Files
    from mha_numpy.bench.report import sections

    given = {name: getattr(options, name) for name in ("ours", "only", "seconds", "mask", "quick")}
    if options.against is not None:
        given["against"] = tuple(options.against.split(","))
    if options.threads is not None:
        given["threads"] = options.threads
    files = Files(options.json, options.markdown, options.write, options.chart)
    settings = Settings(**given)
    for name, install in settings.absent.items():
        print(f"left out: {name}, which {install} would install", file=sys.stderr)
    # ended by others too, leave no stopped process behind
    with _handling(lambda number, _: sys.exit(128 + number), "SIGTERM", "SIGHUP"):
        results = benchmark(settings)
    try:  # saved before anything is printed: a reader such as head may leave early
        saved = files.save(results)
    finally:  # what took minutes is shown even if it cannot be saved
        for section in sections(results):
            show(section)
    for path in saved:
        print(f"wrote {path}")
    return 0 if results.all_right else 1


@contextmanager
def _handling(handler: Any, *names: str) -> Iterator[None]:
    """Give these signals, as far as the system has them, another handler for a while."""
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


def _cost(options: argparse.Namespace) -> int:
    """Print what `mha_numpy.cost` counts."""
    from mha_numpy.cost import find_configuration
    from mha_numpy.cost.report import overview, sections

    if options.model is None:
        show(overview())
        return 0
    config = find_configuration(options.model)
    context = config.context if options.context is None else options.context
    for section in sections(config, check_count("context", context), options.batch):
        show(section)
    return 0


def _lab(options: argparse.Namespace) -> int:
    """Run `mha_numpy.lab.copy_notebooks` and `mha_numpy.lab.open_lab`."""
    from mha_numpy.lab import check_installed, copy_notebooks, notebook_name, open_lab

    name = notebook_name(options.open)
    switches = {"--no-browser": options.no_browser, "--allow-root": options.allow_root}
    given = [switch for switch, is_on in switches.items() if is_on]
    if options.port is not None:
        if not 1 <= options.port <= 65535:
            raise ConfigError(f"port: expected 1 to 65535; got {options.port}")
        given.append(f"--port={options.port}")
    if not options.copy_only:
        check_installed()
    written, kept = copy_notebooks(options.folder, force=options.force)
    print(f"{options.folder}: {len(written)} notebooks copied, {len(kept)} left as they were")
    if options.copy_only:
        return 0
    sys.stdout.flush()
    # Ctrl-C is JupyterLab's, which asks before it ends
    with _handling(lambda *_: None, "SIGINT"):
        return open_lab(options.folder / name, given)


def _compile(options: argparse.Namespace) -> int:
    """Run `mha_numpy.kernels.ahead.compile_all` and print each step when it is done."""
    try:
        from mha_numpy.kernels.ahead import compile_all
        from mha_numpy.kernels.loops import forward
    except ImportError as reason:
        raise BackendError(f"numba cannot be used ({reason}): pip install numba") from reason

    print("compiling for this machine, up to half a minute for each dtype", flush=True)
    start = perf_counter()
    # LLVM calls back into Python, where a KeyboardInterrupt would get lost
    with _handling(signal.SIG_DFL, "SIGINT"):
        for step in compile_all():
            print(f"{perf_counter() - start:5.1f} s  {step}", flush=True)
    folder = forward.stats.cache_path  # of this kernel as of all
    print(f"kept in {folder}" if folder else "not kept: no cache folder can be written to")
    return 0
