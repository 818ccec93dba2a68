"""The subcommands of `mha-numpy`: what can be written, and the library function that it calls."""

import signal
import sys
import webbrowser
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from inspect import signature
from pathlib import Path
from time import perf_counter, strftime
from typing import Any

from mha_numpy.checks import check_absent, check_count, read_text
from mha_numpy.cli.program import command, count, number, option, path, switch, word
from mha_numpy.errors import BackendError, ConfigError
from mha_numpy.tables import Table, show

EXAMPLE = '"The animal didn\'t cross the street because it was too tired"'


def _taken(function: Callable[..., Any], options: Namespace) -> dict[str, Any]:
    """Return the options that a function takes, by name; those not given keep its defaults."""
    given = {name: value for name, value in vars(options).items() if value is not None}
    return {name: given[name] for name in signature(function).parameters if name in given}


def _report(
    sections: Iterable[Table | str], written: Iterable[Path] = (), width: int | None = None
) -> None:
    for section in sections:
        show(section, width)
    for file in written:
        print(f"wrote {file}")


@command(
    "run a sentence through attention and show every step",
    "Run a sentence through multi-head attention, forward and backward. Show what each word looks "
    "at, check every gradient, and write a page on which you can change any number. With --model, "
    "look into a trained model: one of five small ones, minilm (a real BERT, 90 MB), or a folder "
    "with a BERT, GPT-2, Llama or one of their relatives.",
    "mha-numpy walk --open",
    option("text", "your own sentence, with random vectors (default: an example set by hand)",
        nargs="?"),
    word("--model", "NAME",
        "a trained model: captions, induction, numbers, reverse, text, minilm or a folder"),
    count("--layer", "N",
        "which layer of minilm or a folder's model, counted from 0 (default: the last)"),
    path("--params", "FILE",
        "your own params for one of the first five, from `mha-numpy train --save`"),
    path("--input", "FILE",
        "a .npy or .npz file with a (T, D) or (B, T, D) array, instead of a sentence",
        dest="file"),
    count("--heads", "H", "number of query heads (default 4)"),
    count("--kv-heads", "H_KV",
        "number of key/value heads, a divisor of --heads (default: the same)"),
    count("--dim", "D", "width of a token's vector (default 16)"),
    switch("--causal", "let a token see only itself and the tokens before it"),
    word("--cross", "TEXT", "take the keys and values from this second sentence"),
    option("--dtype", "type of all numbers: float16, float32 or float64 (default)",
        default="float64"),
    option("--seed", "seed of all random numbers (default 0)", type=int, default=0),
    switch("--verbose", "show every step with its shape and equation, and every gradient"),
    switch("--memory", "the same, with the memory of each step: strides, bytes, view or copy"),
    path("--save", "DIR", "write pictures (SVG) and the trace (JSON) to this folder"),
    path("--html", "FILE", "write a page on which you can change any number"),
    switch("--open", "write that page (page.html by default) and open it in the browser"),
    switch("--force", "let --save and --html overwrite files"),
)  # fmt: skip
def _walk(options: Namespace) -> int:
    from mha_numpy.show.walk import walk
    from mha_numpy.show.walk.files import FILES, save
    from mha_numpy.show.walk.page import check_page, page_of, save_page
    from mha_numpy.show.walk.report import NEXT, WIDTH, brief, sections

    html = options.html or (Path("page.html") if options.open else None)
    if options.save:
        check_absent(options.save, FILES, force=options.force)
    if html:
        check_page(html, force=options.force)
    seen = walk(**_taken(walk, options))
    # saved before anything is printed: a reader such as head may leave early
    saved = save(seen, options.save) if options.save else []
    if html:
        save_page(page_of(seen), html)
    is_whole = options.verbose or options.memory
    told = (
        sections(seen, memory=options.memory) if is_whole else brief(seen, is_shaded=_can_shade())
    )
    _report(told, saved, WIDTH)
    if html:
        _tell_of_page(html, is_wanted=options.open)
        print(f"try: {seen.meaning.dare}" if seen.meaning else "try: change any number")
    print(NEXT)
    return 0 if seen.report else 1


def _can_shade() -> bool:
    """Whether a terminal reads, which shows shaded cells."""
    out = sys.stdout
    return out is not None and out.isatty() and "utf" in (out.encoding or "").lower()


def _tell_of_page(path: Path, *, is_wanted: bool) -> None:
    """Open a page in the browser if that is wanted, and say where it is."""
    sys.stdout.flush()
    is_open = is_wanted and webbrowser.open(path.resolve().as_uri())
    print(f"wrote {path}: {'it is open in the browser' if is_open else 'open it in a browser'}")


@command(
    "write a page that shows what each head of a pretrained model does",
    "Write a page about the heads of a BERT, GPT-2, Llama or a relative: where each head looks in "
    "your texts, what changes without it, and what is left as you cut more and more heads. This "
    "takes up to a minute.",
    f"mha-numpy heads minilm {EXAMPLE} --open",
    word("model", "MODEL",
        "minilm, or a folder with config.json, model.safetensors and tokenizer.json"),
    word("texts", "TEXT", "one or more sentences", nargs="+"),
    path("--out", "FILE", "write the page to this file (default heads.html)",
        default=Path("heads.html")),
    switch("--open", "open the page in the browser"),
    switch("--force", "let --out overwrite a file that is not such a page"),
)  # fmt: skip
def _heads(options: Namespace) -> int:
    from mha_numpy.show.walk.page import check_page, save_page

    check_page(options.out, force=options.force, option="out")
    from mha_numpy.models import from_pretrained
    from mha_numpy.models.pretrained import PACKAGES
    from mha_numpy.show.page import head_report  # matplotlib takes a second

    model = from_pretrained(options.model)
    note = f"The params are those in {options.model}."
    if options.model in PACKAGES:
        note = f"The params are those of {options.model}, a pretrained model."
    save_page(head_report(model, options.texts, note=note), options.out, option="out")
    _tell_of_page(options.out, is_wanted=options.open)
    return 0


@command(
    "train a small model: captions, induction, numbers, reverse or text",
    "Train one of five small models, and print its results.",
    "mha-numpy train text my-book.txt --checkpoint run.npz",
    word("name", "NAME", "captions, induction, numbers, reverse or text"),
    path("file", "FILE", "your own text to learn, in UTF-8; only for the model text", nargs="?"),
    option("--seed", "seed of params, dropout and batches (default 0)", type=int, default=0),
    count("--steps", "N", "number of training steps (default: 150 to 1500, by the model)"),
    option("--backend", "how to compute: numpy, loops or numba (default)", default="numba"),
    path("--checkpoint", "FILE", "save the state to this file, and continue from it if it exists"),
    path("--save", "DIR",
        "write the params (.npz) and pictures of the loss and results to this folder"),
    switch("--force", "let --save overwrite files"),
)  # fmt: skip
def _train(options: Namespace) -> int:
    from mha_numpy.models.train import train_recipe
    from mha_numpy.show.training import FILES, save, sections

    if options.save:
        check_absent(options.save, FILES, force=options.force)

    check_count("seed", options.seed, least=0)
    start = perf_counter()
    text = None if options.file is None else read_text("file", options.file)
    try:
        trained = train_recipe(text=text, **_taken(train_recipe, options))
    except KeyboardInterrupt as stop:
        kept = options.checkpoint is not None and options.checkpoint.exists()
        advice = (
            f"run the same command to continue from {options.checkpoint}"
            if kept
            else "nothing was saved"
        )
        print(f"mha-numpy train: {str(stop) or 'interrupted'}; {advice}", file=sys.stderr)
        return 130
    seconds = perf_counter() - start
    saved = save(trained, options.save) if options.save else []
    _report(sections(trained, seconds), saved)
    return 0


def _write(option: str, file: Path, text: str) -> None:
    """Write a text, or raise a ConfigError that names the option that asked for it."""
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{option}: cannot write {file}: {error.strerror}") from error


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


@command(
    "time attention side by side with other libraries",
    "Compare the results of attention, forward and backward, with whichever of PyTorch, JAX and "
    "ONNX Runtime you have installed, then time them side by side. This takes a few minutes. "
    "Backends: numpy (the equations), loops (plain loops, compiled), numba (fast kernels).",
    "mha-numpy bench --quick --against torch,numpy --chart ratios.svg",
    word("--ours", "BACKEND", "compare this backend with all others (default numba)",
        default="numba"),
    word("--against", "NAMES",
        "any of torch,jax,onnxruntime,numba,loops,numpy (default: without numba,loops)",
        type=lambda names: tuple(names.split(","))),
    word("--only", "SUBSTRING",
        "run only measurements with this in their name: memory, 4,12,128,64, ...", default=""),
    count("--threads", "N", "threads of every library (default: one per core)"),
    number("--seconds", "S",
        "time for each figure (default 2), but at least five pairs of calls",
        default=2.0),
    switch("--mask", "also measure with boolean masks"),
    switch("--quick", "take a rough look in a tenth of the time: short shapes, peak and import"),
    count("--sweep", "N", "measure N random calls, not the listed shapes", default=0),
    count("--seed", "S", "draws other calls (default 0)", default=0),
    path("--json", "FILE", "write all figures to this file"),
    path("--markdown", "FILE", "write the report to this file"),
    path("--write", "FILE",
        "update the report on this processor family in a page (docs/performance.md)"),
    path("--chart", "FILE.svg", "draw the ratios into this file"),
)  # fmt: skip
def _bench(options: Namespace) -> int:
    from mha_numpy.bench import Settings, benchmark
    from mha_numpy.bench.report import Files, sections

    files = Files(**_taken(Files, options))
    settings = Settings(**_taken(Settings, options))
    for name, install in settings.absent.items():
        print(f"left out: {name} is not installed: {install}", file=sys.stderr)
    # when ended from outside, leave no stopped process behind
    with _handling(lambda number, _: sys.exit(128 + number), "SIGTERM", "SIGHUP"):
        results = benchmark(settings)
    saved: list[Path] = []
    try:  # saved before anything is printed: a reader such as head may leave early
        saved = files.save(results)
    finally:  # what took minutes is shown even if it cannot be saved
        _report(sections(results), saved)
    return 0 if results.all_right else 1


@command(
    "count a known model's params, operations and KV cache",
    "Count the params and floating-point operations of a known model, and the bytes of its KV "
    "cache, which keeps the keys and values of earlier tokens. Without --model, list all models.",
    "mha-numpy cost --model llama-3-70b --context 8192",
    word("--model", "NAME", "a model such as gpt-2 or llama-3-70b"),
    count("--context", "T", "tokens per sequence (default: the most the model can read)"),
    count("--batch", "B", "number of sequences (default 1)", default=1),
)  # fmt: skip
def _cost(options: Namespace) -> int:
    from mha_numpy.models.cost import find_configuration
    from mha_numpy.models.cost.report import overview, sections

    if options.model is None:
        show(overview())
        return 0
    config = find_configuration(options.model)
    context = config.context if options.context is None else options.context
    _report(sections(config, check_count("context", context), options.batch))
    return 0


@command(
    "try what people say of attention, over several seeds",
    "Train the small models of an experiment, and compare what they show with what the docs say. "
    "Most take one to three minutes. Without NAME, list all experiments.",
    "mha-numpy experiment heads --first-seed 5",
    word("name", "NAME", "an experiment such as heads or scale", nargs="?"),
    count("--seeds", "N", "how many seeds (default 5)", default=5),
    count("--first-seed", "SEED", "the first of them (default 0)", default=0),
    count("--jobs", "N", "how many models to train at a time (default: one per core)"),
    path("--save", "FILE.json", "also write what every run measured to a file"),
)  # fmt: skip
def _experiment(options: Namespace) -> int:
    from mha_numpy.models.experiments import (
        EXPERIMENTS,
        find_experiment,
        load_result,
        run_experiment,
    )
    from mha_numpy.models.experiments.report import overview, sections

    if options.name is None:
        show(overview(EXPERIMENTS, {name: load_result(name) for name in EXPERIMENTS}))
        return 0
    experiment = find_experiment(options.name)
    first = check_count("first_seed", options.first_seed, least=0)
    seeds = range(first, first + check_count("seeds", options.seeds, least=2))
    if options.save is not None and not options.save.parent.is_dir():
        raise ConfigError(f"save: there is no folder {options.save.parent}")  # before it trains
    result = run_experiment(experiment, seeds=seeds, processes=options.jobs)
    if options.save is not None:
        try:
            result.save(options.save)
        except OSError as error:
            raise ConfigError(f"save: cannot write {options.save}: {error.strerror}") from error
        print(f"wrote {options.save}")
    _report(sections(experiment, result, load_result(experiment.name)))
    return 0 if all(found.holds for found in experiment.findings(result)) else 1


@command(
    "copy the notebooks into your own folder and open them in JupyterLab",
    "Copy the notebooks into your own folder, and open them in JupyterLab. Notebooks that are "
    "already there stay as they are.",
    "mha-numpy lab attention --open 05 --port 9000 --no-browser",
    path("folder", "DIR", "the folder (default attention-notebooks)",
        nargs="?", default=Path("attention-notebooks")),
    word("--open", "NUMBER", "the notebook to start with (default 00)", default="00"),
    switch("--force",
        "overwrite notebooks that are already there, and lose your changes in them"),
    switch("--copy-only", "copy the notebooks, but open nothing"),
    switch("--no-browser", "only print the address"),
    count("--port", "N",
        "the port of JupyterLab (default 8888); if it is taken, the next free one"),
    switch("--allow-root", "let root run JupyterLab, as in a container"),
)  # fmt: skip
def _lab(options: Namespace) -> int:
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


@command(
    "list the exercises, or start them in your own folder",
    "List all exercises, and show which of them are done in a folder. With `start`, write a stub "
    "for each one, a README and a file for pytest into a folder. Files that are already there stay "
    "as they are.",
    "mha-numpy exercises start my-exercises",
    word("words", "[start] [DIR]", "the folder (default: this one)", nargs="*"),
)  # fmt: skip
def _exercises(options: Namespace) -> int:
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
            raise ConfigError(f"expected one folder; got {' '.join(options.words)}")
    return 0


@command(
    "check exercises, and name the mistakes",
    "Check one exercise stage by stage, or all exercises in a folder with one line each. Your code "
    "runs in a separate process, with limits on time, memory and output.",
    "mha-numpy check my-exercises softmax --watch",
    path("folder", "DIR", "a folder written by `mha-numpy exercises start`"),
    word("id", "ID", "the id of an exercise (default: all)", nargs="?"),
    switch("--watch", "check again whenever you save a file"),
    switch("--strict", "reject code that calls this package for its answer, instead of remarking "
        "on it"),
    switch("--json", "print only JSON, for a program: a list with one object per exercise"),
    number("--seconds", "S", "how long your code may run (default 10)", default=10.0),
    count("--megabytes", "N", "how much memory your code may use (default 2048)", default=2048),
)  # fmt: skip
def _check(options: Namespace) -> int:
    from mha_numpy.teach.exercises import Limits
    from mha_numpy.teach.exercises.report import Watch, check_files

    limits = Limits(seconds=options.seconds, memory=options.megabytes * 2**20)
    if options.json and options.watch:
        raise ConfigError("json: expected --json without --watch, which prints again and again")
    run = partial(
        check_files, options.folder, options.id, limits, strict=options.strict, as_json=options.json
    )
    watch = Watch(options.folder) if options.watch else ()  # looks before the first check
    code = run()
    if options.watch:
        print(f"watching {options.folder}; press Ctrl-C to stop", flush=True)
        for changed in watch:
            print(f"\n{', '.join(path.name for path in changed)}, {strftime('%H:%M:%S')}")
            code = run()
    return code


@command(
    "show the next of four hints on an exercise",
    "Show the next of four hints: where to look, a question, the mistake that your last check "
    "showed or that many make (with a picture), and the line that fixes it. After the first hint, "
    "check your answer again before you ask for the next one.",
    "mha-numpy hint my-exercises softmax",
    path("folder", "DIR", "a folder written by `mha-numpy exercises start`"),
    word("exercise_id", "ID", "the id of an exercise"),
    count("--number", "N", "which of the four hints (default: the next)", choices=range(1, 5)),
    switch("--force", "show it even if you have not checked since the last hint"),
)  # fmt: skip
def _hint(options: Namespace) -> int:
    from mha_numpy.teach.exercises import hint_in

    hint, picture = hint_in(**_taken(hint_in, options))
    _report(hint.sections)
    if picture is not None:
        print(f"a picture of it: {picture}")
    return 0 if hint.is_given else 1


@command(
    "make an assignment for a class, with a variant for each student",
    "Make an assignment: a table of points, a secret, and handouts with instructions, stubs and "
    "public checks. NAME is hw1-forward, hw2-backward, hw3-grouped-and-cache, or ids of exercises, "
    "separated by commas. --from adds an exercise that you wrote: a folder with solution.py and "
    "inputs.py, as docs/own-exercise.md explains. With a roster each student gets their own "
    "conventions, so a copied solution is seldom right; --variants seeds or none leaves that out.",
    "mha-numpy assignment hw1-forward --out hw1 --roster ids.csv",
    word("name", "NAME", "a ready-made assignment, or exercises such as softmax,masks",
        nargs="?", default=""),
    path("--from", "DIR", "a folder with an exercise that you wrote; may be given several times",
        action="append", default=[], dest="folders"),
    path("--out", "DIR", "the folder to write; only its folder `handouts` is for students",
        required=True),
    path("--roster", "FILE.csv", "the students: columns id and name"),
    path("--secret-file", "FILE",
        "random bytes that set the variants (default: DIR/secret, made if missing)"),
    word("--format", "FORM", "notebook (default) or files; or for other graders: otter, nbgrader",
        default="notebook", dest="form"),
    word("--variants", "WHAT", "what differs between students: none, seeds (hidden numbers), or "
        "conventions too (default with a roster)"),
    word("--deadline", "WHEN", "a date or time, such as 2030-05-31 or 2030-05-31T12:00"),
    switch("--force",
        "overwrite an assignment; its secret and the students' variants stay"),
)  # fmt: skip
def _assignment(options: Namespace) -> int:
    from mha_numpy.teach.classroom import make_assignment
    from mha_numpy.teach.classroom.exports import EXPORTS
    from mha_numpy.teach.exercises import check_own

    def checked() -> Iterator[Any]:
        for folder in options.folders:
            own = check_own(folder)
            print(own)
            yield own

    assignment, handouts = make_assignment(own=checked(), **_taken(make_assignment, options))
    count = len(assignment.exercises)
    functions = f"{count} function{'s' * (count != 1)}"
    name = f"{assignment.name}, " * (assignment.name != options.out.resolve().name)
    print(f"{options.out}: {name}{functions}, {assignment.total:g} points")
    if options.form in EXPORTS:
        print(f"read {handouts[0]}/README.md next; the folder contains the solutions")
        return 0
    whose = f"the {len(handouts)} folders in {handouts[0].parent}, each to its student"
    print(f"hand out {whose if assignment.roster else handouts[0]}, and nothing else")
    table = options.out / "assignment.toml"
    print(f"change points and marks in {table}; keep a copy of the whole folder")
    return 0


@command(
    "write each student's right functions, for the teacher",
    "Write a file of right functions for each student of an assignment, in the conventions of the "
    "student's variant. Each file is graded like a submission before it is written. Keep the "
    "folder private.",
    "mha-numpy solutions hw1",
    path("assignment", "DIR", "a folder written by `mha-numpy assignment`"),
    count("--jobs", "N", "how many students at a time (default: one per core)"),
)  # fmt: skip
def _solutions(options: Namespace) -> int:
    from mha_numpy.teach.classroom import write_solutions

    paths = write_solutions(**_taken(write_solutions, options))
    print(f"{len(paths)} files in {options.assignment / 'solutions'}, each graded: all points")
    print("keep this folder private; it is not for students")
    return 0


@command(
    "list the known mistakes, or count how many are rejected and named correctly",
    "List the known mistakes of one function, or of all. With --confusion, make each mistake and "
    "pairs of mistakes, and count how many are rejected and named correctly.",
    "mha-numpy mistakes softmax_backward",
    word("piece", "FUNCTION", "a function such as softmax_backward (default: all)", nargs="?"),
    switch("--confusion", "make the mistakes, and count how many are named"),
    count("--pairs", "N", "pairs of mistakes to make for each function (default 100)",
        default=100),
    count("--held-out", "N",
        "small edits of each kind, each searched for without its kind (default 1)", default=1),
    path("--write", "FILE",
        "with --confusion, also write the page to a file such as docs/confusion.md"),
    switch("--search-table",
        "for developers: update the table of all small edits and their results"),
)  # fmt: skip
def _mistakes(options: Namespace) -> int:
    from mha_numpy.teach.diagnosis import TASKS, find_confusion, find_task, search
    from mha_numpy.teach.diagnosis.confusion import (
        bank_table,
        confusion_sections,
        held_out_sections,
        hold_out,
        to_markdown,
    )

    if options.search_table:
        made = search.write_table()
        print(f"{search.FILE}: computed {', '.join(made) or 'nothing: it is up to date'}")
        return 0
    pieces = list(TASKS) if options.piece is None else [find_task(options.piece).name]
    if not options.confusion:
        show(bank_table(pieces))
        return 0
    sections = confusion_sections(find_confusion(pieces, check_count("pairs", options.pairs)))
    if options.held_out:
        sections += held_out_sections(hold_out(pieces, options.held_out))
    if options.write is not None:
        _write("write", options.write, to_markdown(sections))
    _report(sections)
    return 0


@command(
    "count how many known mistakes your tests catch",
    "Run the tests in a file with pytest, on right functions and then on each known mistake. "
    "Print how many mistakes they catch, and which ones slip through.",
    "mha-numpy audit-tests tests/test_attention.py",
    path("file", "FILE", "tests for pytest that take or import softmax, attention, ..."),
    number("--seconds", "S", "how long the tests may take for each mistake (default 10)",
        default=10.0),
)  # fmt: skip
def _audit_tests(options: Namespace) -> int:
    from mha_numpy.teach.exercises import audit_tests

    audit = audit_tests(**_taken(audit_tests, options))
    _report(audit.sections)
    return 0 if audit.passed else 1


@command(
    "grade a class's submissions in a sandbox, and write a page for each student",
    "Run every student's functions in a sandbox with nothing but Python and NumPy, and write "
    "grades.csv, a page for each student and one for the class. Submissions that were graded "
    "before are not graded again. Late work loses points only if the assignment has a late rule.",
    "mha-numpy grade handed-in --assignment hw1 --out results",
    path("submissions", "DIR",
        "a folder or file per student, named by Moodle, Canvas or Blackboard, or by id"),
    path("--assignment", "DIR", "a folder written by `mha-numpy assignment`", required=True),
    path("--out", "DIR", "write the results to this folder", required=True),
    count("--jobs", "N", "how many students to grade at a time (default: one per core)"),
    word("--dask", "ADDRESS",
        "grade on the workers of a Dask cluster, such as tcp://10.0.0.1:8786"),
    number("--seconds", "S", "how long each function may run (default 10)", default=10.0),
    count("--megabytes", "N", "how much memory each function may use (default 2048)",
        default=2048),
    option("--unsafe-local", "run code without a sandbox: it could read and delete your files",
        action="store_false", dest="is_isolated"),
)  # fmt: skip
def _grade(options: Namespace) -> int:
    from mha_numpy.teach.classroom import grade
    from mha_numpy.teach.exercises import Limits

    limits = Limits(seconds=options.seconds, memory=options.megabytes * 2**20)
    with _handling(lambda number, _: sys.exit(128 + number), "SIGTERM", "SIGHUP"):
        grades = grade(limits=limits, **_taken(grade, options))
    show(grades.table())
    count, before = len(grades.results), len(grades.results) - grades.graded
    print(f"{count} students: {grades.graded} graded now, {before} graded before")
    for name in ("grades.csv", "class.html", "feedback", "gradescope", "gradebook"):
        print(f"wrote {options.out / name}")
    return 0


@command(
    "write small cases of attention as files for other languages",
    "Write about seventy small attention problems with their expected numbers, forward and "
    "backward, as JSON and npz, with a README that says how to read them in any language.",
    "mha-numpy vectors --out vectors",
    path("--out", "DIR", "write to this folder, which is new or empty", dest="folder",
        required=True),
)  # fmt: skip
def _vectors(options: Namespace) -> int:
    from mha_numpy.conformance import cases, write_vectors

    manifest = write_vectors(**_taken(write_vectors, options))
    print(f"wrote {len(cases())} cases; {manifest} lists them, and README.md explains them")
    return 0


@command(
    "say what an attention function computes, and name its mistakes",
    "Call a function or layer in a Python file, and report what it computes: its arguments, layout "
    "and conventions, and the line of each mistake. It may use NumPy, PyTorch, JAX or Keras. Your "
    "code runs in a separate process, with limits on time and memory. The exit code is 0 without a "
    "mistake, 1 with one, and 3 if the report cannot say what your code computes or if a role that "
    "you gave does not fit.",
    "mha-numpy identify attention.py:attend --given mask=attn --html attend.html",
    word("function", "FILE.py:NAME",
        "a function, an object, a class, an attribute of these, such as Layer.attend, or a call "
        "that makes one, such as 'Layer(32, heads=4)'"),
    word("--backward", "NAME", "the function in this file that computes the gradients"),
    word("--given", "ROLE=ARGUMENT",
        "say which argument has a role, such as mask=attn; you can give several. Roles are query, "
        "key, value, x, memory, mask, padding, lengths, bias, heads, is_causal, window, w_q and "
        "others; a wrong one lists them all",
        nargs="+", action="extend", default=[]),
    switch("--examples", "add to each finding the smallest inputs that show it"),
    path("--json", "FILE", "write the report to this file as JSON; - prints only the JSON"),
    path("--html", "FILE", "write the report to this file as a page"),
    number("--seconds", "S", "how long all of it may take (default 60)", default=60.0),
    count("--megabytes", "N", "how much memory your code may use (default 4096)", default=4096),
)  # fmt: skip
def _identify(options: Namespace) -> int:
    from mha_numpy.identifying.from_file import identify_file
    from mha_numpy.identifying.reporting.report import WIDTH

    given = dict(text.split("=", 1) for text in options.given if "=" in text.strip("="))
    if len(given) < len(options.given):
        raise ConfigError(
            "given: expected ROLE=ARGUMENT, such as mask=attn, and each role once; "
            f"got {' '.join(options.given)}"
        )
    is_json = options.json == Path("-")
    wanted = {"json": None if is_json else options.json, "html": options.html}
    wanted = {name: file for name, file in wanted.items() if file is not None}
    for name, file in wanted.items():  # before it takes a minute
        if file.is_dir() or not file.parent.is_dir():
            raise ConfigError(f"{name}: expected a file in a folder that exists; got {file}")
    known = {"given": given, "memory": options.megabytes * 2**20}
    sheet = identify_file(**_taken(identify_file, options) | known)
    for name, file in wanted.items():
        _write(name, file, getattr(sheet, name))
    if is_json:
        print(sheet.json)
    for section in () if is_json else sheet.sections:
        show(section, WIDTH, WIDTH)
    _report([], () if is_json else wanted.values())
    return int(sheet.has_mistake) if sheet.is_found and sheet.is_as_given else 3


@command(
    "compile the numba kernels now instead of at their first use",
    "Compile the kernels of the fast backend, numba, for float32 and float64, and keep them on "
    "disk. This takes up to a minute, and saves that minute at the first use.",
    "",
)  # fmt: skip
def _compile(options: Namespace) -> int:
    try:
        from mha_numpy.kernels.ahead import compile_all
        from mha_numpy.kernels.loops import forward
    except ImportError as reason:
        raise BackendError(f"numba cannot be used ({reason}): pip install numba") from reason

    print("compiling for this machine; each dtype takes up to half a minute", flush=True)
    start = perf_counter()
    # LLVM calls back into Python, where a KeyboardInterrupt would get lost
    with _handling(signal.SIG_DFL, "SIGINT"):
        for step in compile_all():
            print(f"{perf_counter() - start:5.1f} s  {step}", flush=True)
    folder = forward.stats.cache_path  # of this kernel as of all
    print(f"kept in {folder}" if folder else "not kept: there is no writable cache folder")
    return 0
