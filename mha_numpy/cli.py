"""The program `mha-numpy`: one subcommand, one library function."""

import argparse
import io
import os
import signal
import sys
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter, strftime
from typing import Any

from mha_numpy.checks import check_absent, check_count
from mha_numpy.cli_parser import make_parser
from mha_numpy.errors import BackendError, ConfigError, MhaError
from mha_numpy.tables import show


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand and return the exit code: 0 done, 1 a result is wrong, 2 wrong use."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may not know a token's letters
    options = _parse(arguments)
    try:
        code = COMMANDS[options.command](options)
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


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options; what is left over is the subcommand's to complain about."""
    options, unknown = make_parser().parse_known_args(arguments)
    if unknown:
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return options


def _walk(options: argparse.Namespace) -> int:
    """Run `mha_numpy.show.walk.walk` and print what it saw."""
    from mha_numpy.show.walk import walk
    from mha_numpy.show.walk.files import FILES, save
    from mha_numpy.show.walk.page import check_page, write_page
    from mha_numpy.show.walk.report import WIDTH, sections

    html = options.html or (Path("page.html") if options.open else None)
    if options.save:
        check_absent(options.save, FILES, force=options.force)
    if html:
        check_page(html, force=options.force)
    seen = walk(
        options.text, model=options.model, params=options.params, layer=options.layer,
        file=options.input,
        heads=options.heads, kv_heads=options.kv_heads, dim=options.dim, causal=options.causal,
        cross=options.cross, dtype=options.dtype, seed=options.seed, example=options.example,
    )  # fmt: skip
    # saved before anything is printed: a reader such as head may leave early
    saved = save(seen, options.save) if options.save else []
    if html:
        write_page(seen, html)
    for section in sections(seen, memory=options.memory):
        show(section, WIDTH)
    for path in saved:
        print(f"wrote {path}")
    if html:
        _tell_of_page(html, is_wanted=options.open)
    return 0 if seen.report else 1


def _tell_of_page(path: Path, *, is_wanted: bool) -> None:
    """Open a page in the browser if that is wanted, and say where it is."""
    sys.stdout.flush()
    is_open = is_wanted and webbrowser.open(path.resolve().as_uri())
    print(f"wrote {path}: {'it is open in the browser' if is_open else 'open it in a browser'}")


def _heads(options: argparse.Namespace) -> int:
    """Run `head_report` on a pretrained model and write the page."""
    from mha_numpy.show.walk.page import check_page, save_page

    check_page(options.out, force=options.force, option="out")
    from mha_numpy.models import from_pretrained
    from mha_numpy.models.pretrained import PACKAGES
    from mha_numpy.show.page import head_report  # matplotlib takes a second

    model = from_pretrained(options.model)
    note = f"The params are those in {options.model}."
    if options.model in PACKAGES:
        note = f"The params are those of {options.model}, which others have trained."
    save_page(head_report(model, options.texts, note=note), options.out, option="out")
    _tell_of_page(options.out, is_wanted=options.open)
    return 0


def _train(options: argparse.Namespace) -> int:
    """Run `mha_numpy.models.train.train_recipe` and print what was measured."""
    from mha_numpy.models.train import train_recipe
    from mha_numpy.show.training import FILES, save, sections

    if options.save:
        check_absent(options.save, FILES, force=options.force)

    check_count("seed", options.seed, least=0)
    text, start = None, perf_counter()
    if options.file is not None:
        try:
            text = options.file.read_text(encoding="utf-8-sig")
        except OSError as error:
            raise ConfigError(f"file: cannot read {options.file}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"file: expected text in UTF-8 in {options.file}") from error
    try:
        trained = train_recipe(
            options.name, text=text, seed=options.seed, steps=options.steps,
            backend=options.backend, checkpoint=options.checkpoint,
        )  # fmt: skip
    except KeyboardInterrupt as stop:
        kept = options.checkpoint is not None and options.checkpoint.exists()
        advice = (
            f"the same command goes on from {options.checkpoint}" if kept else "nothing was saved"
        )
        print(f"mha-numpy train: {str(stop) or 'interrupted'}; {advice}", file=sys.stderr)
        return 130
    seconds = perf_counter() - start
    saved = save(trained, options.save) if options.save else []
    for section in sections(trained, seconds):
        show(section)
    for path in saved:
        print(f"wrote {path}")
    return 0


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
    """Print what `mha_numpy.models.cost` counts."""
    from mha_numpy.models.cost import find_configuration
    from mha_numpy.models.cost.report import overview, sections

    if options.model is None:
        show(overview())
        return 0
    config = find_configuration(options.model)
    context = config.context if options.context is None else options.context
    for section in sections(config, check_count("context", context), options.batch):
        show(section)
    return 0


def _lab(options: argparse.Namespace) -> int:
    """Run `mha_numpy.show.lab.copy_notebooks` and `mha_numpy.show.lab.open_lab`."""
    from mha_numpy.show.lab import check_installed, copy_notebooks, notebook_name, open_lab

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


def _exercises(options: argparse.Namespace) -> int:
    """Run `mha_numpy.teach.exercises.start`, or list the exercises."""
    from mha_numpy.teach.exercises import start
    from mha_numpy.teach.exercises.report import overview

    match options.words:
        case ["start", folder]:
            started = start(folder)
            kept = f", {len(started.kept)} left as they were" if started.kept else ""
            print(f"{folder}: {len(started.written)} files written{kept}")
            print(f"next: read {folder}/README.md, then mha-numpy check {folder}")
        case ["start"]:
            raise ConfigError("start: expected a folder, such as mha-numpy exercises start mine")
        case [] | [_]:
            folder = Path(*options.words)
            if not folder.is_dir():
                raise ConfigError(
                    f"there is no folder {folder}; `mha-numpy exercises start {folder}` makes it"
                )
            show(overview(folder))
        case _:
            raise ConfigError(f"expected a folder; got {' '.join(options.words)}")
    return 0


def _check(options: argparse.Namespace) -> int:
    """Run `mha_numpy.teach.exercises.judge_file` for one exercise, or for all in a folder."""
    from mha_numpy.teach.exercises import Limits
    from mha_numpy.teach.exercises.report import check_files
    from mha_numpy.teach.exercises.watch import Watch

    limits = Limits(seconds=options.seconds, memory=options.megabytes * 2**20)
    if options.json and options.watch:
        raise ConfigError("json: expected no --watch beside it, which prints again and again")
    run = partial(
        check_files, options.folder, options.id, limits, strict=options.strict, as_json=options.json
    )
    watch = Watch(options.folder) if options.watch else ()  # looks before the first check
    code = run()
    if options.watch:
        print(f"watching {options.folder}; Ctrl-C ends", flush=True)
        for changed in watch:
            print(f"\n{', '.join(path.name for path in changed)}, {strftime('%H:%M:%S')}")
            code = run()
    return code


def _hint(options: argparse.Namespace) -> int:
    """Run `mha_numpy.teach.exercises.hint_in` and print the hint."""
    from mha_numpy.teach.exercises import hint_in

    hint, picture = hint_in(options.folder, options.id, options.number, force=options.force)
    for section in hint.sections:
        show(section)
    if picture is not None:
        print(f"a picture of it: {picture}")
    return 0 if hint.is_given else 1


def _assignment(options: argparse.Namespace) -> int:
    """Run `mha_numpy.teach.classroom.make_assignment` and say what to hand out."""
    from mha_numpy.teach.classroom import make_assignment
    from mha_numpy.teach.classroom.exports import EXPORTS

    assignment, handouts = make_assignment(
        options.name, options.out, roster=options.roster, secret_file=options.secret_file,
        form=options.format, deadline=options.deadline, force=options.force,
    )  # fmt: skip
    count = len(assignment.exercises)
    print(f"{options.out}: {assignment.name}, {count} functions, {assignment.total:g} points")
    if options.format in EXPORTS:
        print(f"{handouts[0]}/README.md says what to type; the folder holds solutions")
        return 0
    whose = f"the {len(handouts)} folders in {handouts[0].parent}, each to its student"
    print(f"hand out {whose if assignment.roster else handouts[0]}, and nothing else")
    table = options.out / "assignment.toml"
    print(f"change points and marks in {table}; keep a copy of the whole folder")
    return 0


def _mistakes(options: argparse.Namespace) -> int:
    """Print the bank, run `find_confusion`, or make the table of the search."""
    from mha_numpy.teach.diagnosis import TASKS, find_confusion, find_task, search
    from mha_numpy.teach.diagnosis.confusion import hold_out
    from mha_numpy.teach.diagnosis.report import (
        bank_table,
        confusion_sections,
        held_out_sections,
        to_markdown,
    )

    if options.search_table:
        search.write_table()
        print(f"wrote {search.FILE}")
        return 0
    pieces = list(TASKS) if options.piece is None else [find_task(options.piece).name]
    if not options.confusion:
        show(bank_table(pieces))
        return 0
    sections = confusion_sections(find_confusion(pieces, check_count("pairs", options.pairs)))
    if options.held_out:
        sections += held_out_sections(hold_out(pieces, options.held_out))
    if options.write is not None:
        try:
            options.write.write_text(to_markdown(sections), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"write: cannot write {options.write}: {error.strerror}") from error
    for section in sections:
        show(section)
    return 0


def _audit_tests(options: argparse.Namespace) -> int:
    """Run `mha_numpy.teach.exercises.audit_tests` and print what slips through."""
    from mha_numpy.teach.exercises import audit_tests

    audit = audit_tests(options.file, seconds=options.seconds)
    for section in audit.sections:
        show(section)
    return 0 if audit.passed else 1


def _grade(options: argparse.Namespace) -> int:
    """Run `mha_numpy.teach.classroom.grade` and say where the results are."""
    from mha_numpy.teach.classroom import grade
    from mha_numpy.teach.exercises import Limits

    limits = Limits(seconds=options.seconds, memory=options.megabytes * 2**20)
    with _handling(lambda number, _: sys.exit(128 + number), "SIGTERM", "SIGHUP"):
        grades = grade(
            options.submissions, assignment=options.assignment, out=options.out, jobs=options.jobs,
            dask=options.dask, is_isolated=not options.unsafe_local, limits=limits,
        )  # fmt: skip
    show(grades.table())
    count, before = len(grades.results), len(grades.results) - grades.graded
    print(f"{count} students: {grades.graded} graded now, {before} before")
    for name in ("grades.csv", "class.html", "feedback", "gradescope"):
        print(f"wrote {options.out / name}")
    return 0


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


COMMANDS = {
    "walk": _walk, "heads": _heads, "train": _train, "bench": _bench, "cost": _cost, "lab": _lab,
    "exercises": _exercises, "check": _check, "hint": _hint, "mistakes": _mistakes,
    "assignment": _assignment, "audit-tests": _audit_tests, "grade": _grade, "compile": _compile,
}  # fmt: skip
