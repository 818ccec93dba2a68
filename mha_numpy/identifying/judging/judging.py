"""Which rows are mistakes, and which line of the source is to blame."""

import ast
import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from mha_numpy.identifying.blaming.blame import (
    Blame,
    find_blame,
    find_change,
    find_draw,
    find_first_nan,
    find_output,
    find_use,
    overflows,
)
from mha_numpy.identifying.calling.arrays import helpers_of, owner_of
from mha_numpy.identifying.calling.names import is_mask, roles_by_name
from mha_numpy.identifying.calling.subject import Subject
from mha_numpy.identifying.facts.options import IDLE, UNCLEAR
from mha_numpy.identifying.family import SETTINGS, USUAL, evaluate
from mha_numpy.identifying.family.visible import window_of
from mha_numpy.identifying.judging.dropped import dropped_results
from mha_numpy.identifying.judging.mending import mended, mended_cache
from mha_numpy.identifying.judging.promises import Promise, find_promises
from mha_numpy.identifying.look import Looked, other_lengths
from mha_numpy.identifying.reporting.rows import Row, make_row
from mha_numpy.identifying.searching.search import Found

NOT_FINITE = ("not finite", "underflow", "nan", "other numbers", "error")
OF_HELPERS = {"grouping", "rotation", "large_scores"}  # what they may say as well
NONE = (ast.Is, ast.IsNot)
OF_CACHES = ("alignment", "q_position", "causal")  # settings that make a cache go wrong, too
QUERIES = re.compile("q|tgt|target|row")
TURNS = re.compile(r"_?(?:apply_)?(?:rope|rotary(?:_emb\w*|_pos\w*)?|rotate)")
QUIET = ("rotation", "softcap_at", "packing")  # no row says that they are usual
SCALED = re.compile(r"scaled[ _-]dot[ _-]product", re.I)


def judge(looked: Looked, rows: Iterable[Row]) -> Iterator[Row]:
    """Yield rows; those that break a promise as mistakes, and mistakes with their line."""
    promises, right, lines = (
        promises_of(looked.subject),
        dict[str, Any](),
        set[tuple[str, str, int]](),
    )
    dropped = [*dropped_results(looked.subject)]
    rows = [*rows, *(dropped or _idle(looked, promises)), *_unturned(looked)]
    for promise in [_with_number(promise, looked) for promise in promises]:
        right.setdefault(promise.setting, promise.values[0])
        if promise.setting == "returned":
            rows += _order(looked)
        rows = [*_held_to(rows, looked, promise)]
    told = any(row.kind == "mistake" and row.setting in OF_CACHES for row in rows)
    for row in rows:
        if row.setting == "cache" and row.kind == "mistake":
            yield from () if told else [mended_cache(looked, row)]
            continue
        if (row.setting, row.value, row.kind) == ("scale", "1/d", "convention") and looked.found:
            once = {**looked.found.settings, "scale": "1/sqrt(d)"}
            is_meant = any(p.setting == "scale" and p.values[0] == "1/d" for p in promises)
            seen, named = looked.found.seen, SCALED.search(_own_text(looked.subject))
            if not is_meant and find_blame(looked.subject, seen, once, "scale", "1/d"):
                row = make_row("scale", "1/d, in two steps")._replace(value="1/d")
            elif not is_meant and named:
                promise = Promise("scale", ("1/sqrt(d)",), named[0], row.argument)
                row = next(_held_to([row], looked, promise))
        row = _exactly(looked, row)
        blame = _blame(looked, row, right.get(row.setting)) if row.kind == "mistake" else None
        if blame:
            row = row._replace(line=blame.line, code=blame.text)
            found = _finding(looked, row, row.setting)
            row = mended(looked, row, found, right.get(row.setting))
        if not row.line or (row.setting, row.says, row.line) not in lines:
            yield row  # else the same, of an option that is on in any case
        lines.add((row.setting, row.says, row.line))


def promises_of(subject: Subject) -> list[Promise]:
    """Return what a function says of itself, in its own text and in those around it."""
    names = [argument.name for argument in subject.arguments]
    names += [name for name in subject.numbers if "window" in roles_by_name(name)]
    own = find_promises(subject.name, _own_text(subject), names, subject.source)
    said = "\n\n".join(inspect.getdoc(helper) or "" for helper in helpers_of(subject.inner))
    known = {promise.setting for promise in own}
    theirs = [p for p in find_promises("", said, [], "") if p.setting in OF_HELPERS - known]
    return [*own, *theirs]


def _with_number(promise: Promise, looked: Looked) -> Promise:
    """Return a promise of a window that an object keeps as one of the number that it keeps."""
    width, found = looked.subject.numbers.get(promise.argument), looked.found
    window = found.settings.get("window") if found else None
    if promise.setting != "window_given" or width is None or window is None:
        return promise
    wide = (window_of(width, given) for given in promise.values if given != "left, right")
    values = tuple((before, window[1] if after is None else after) for before, after in wide)
    return Promise("window", values, promise.quote)


def _own_text(subject: Subject) -> str:
    """Return the docstrings of a function, of its class and of its module."""
    holder = owner_of(subject.function)
    around = [subject.inner, type(holder) if not inspect.isroutine(holder) else None]
    around.append(inspect.getmodule(subject.inner))
    return "\n\n".join(inspect.getdoc(each) or "" for each in around if each is not None)


def _held_to(rows: list[Row], looked: Looked, promise: Promise) -> Iterator[Row]:
    """Yield rows; those that a promise is about, and that break it, as mistakes."""
    setting, values, told = promise.setting, promise.values, {row.setting for row in rows}
    says = f"but it says: {promise.quote.strip(' :-')!r}"
    same = [row for row in rows if row.setting == setting]
    about = [row for row in same if row.argument == promise.argument]
    if not about and not (setting == "causal" and promise.argument):  # a flag that is off
        about = [row for row in same if not row.argument or not promise.argument]
    for row in rows:
        is_moot = setting == "alignment" and row.value in ("error", "one query")
        is_moot |= setting == "rotation" and "angles" in told  # which is the same mistake
        if row in about and row.value not in values and row.kind != "mistake" and not is_moot:
            instead = make_row(setting, values[0]).says
            row = row._replace(kind="mistake", says=f"{row.says}; {says}", instead=instead)
        if row in about and row.value in values and row.kind == "mistake":
            row = row._replace(kind="convention", says=f"{row.says}, as it says", instead="")
        yield row
    roles = looked.found.seen.way.roles() if looked.found else {}
    is_moot = setting == "packing" and "P" not in (roles.get("packed") or roles.get("w_qkv", ""))
    if setting in QUIET and not about and USUAL[setting] not in values and not is_moot:
        row, instead = make_row(setting, USUAL[setting]), make_row(setting, values[0]).says
        yield row._replace(kind="mistake", says=f"{row.says}; {says}", instead=instead)


def _blame(looked: Looked, row: Row, right: Any) -> Blame | None:
    """Find the line in which a row shows; `right` is what was promised, if anything was."""
    subject, setting = looked.subject, row.setting
    if looked.found and setting in ("returned", "orientation"):
        what = "projected" if setting == "orientation" else ""
        return find_output(subject, looked.found.seen, looked.found.settings, what)
    if setting == "sums":
        return find_use(subject, row.value.split(",")[0], last=False)
    if setting == "inputs":
        return find_change(subject, row.argument)
    if setting.startswith("dropout") and setting != "dropout_mask":
        return find_draw(subject, is_scale=setting == "dropout_scale")
    if row.value == "without effect":
        return find_use(subject, row.argument, last=False)
    if row.value == "ignored" and looked.found:
        own = looked.found.seen.way.argument(setting.removesuffix("_given"))
        if use := find_use(subject, row.argument or own):
            return use
    found = _finding(looked, row, setting)
    if found and setting in SETTINGS and setting != "blind":
        shown = {**found.settings, setting: row.value}
        calls = chain([found.seen], other_lengths(subject, found))  # some do not show it
        tries = (find_blame(subject, seen, shown, setting, right) for seen in calls)
        return next(filter(None, tries), None)
    facts = (f for f in looked.facts if (f.name, f.argument) == (setting, row.argument))
    seen = next((fact.seen for fact in facts), None)
    if seen is None or row.value not in NOT_FINITE:
        return None
    is_uneven = setting == "uneven_scores" or row.value in ("underflow", "other numbers")
    with subject.passing("float16" if setting in ("half_masked", "float16") else subject.dtype):
        return find_first_nan(subject, seen, "max" if is_uneven else "")


def _exactly(looked: Looked, row: Row) -> Row:
    """Return a row that says more, where a closer look at it does."""
    if (row.setting, row.value) == ("large_scores", "not finite"):
        seen = next(fact.seen for fact in looked.facts if fact.name == "large_scores")
        if seen and not overflows(looked.subject, seen):
            return make_row("large_scores", "underflow")
    settings = looked.found.settings if looked.found else {}
    if settings.get("qk_norm", "").startswith("l2") and row.value == "sqrt(d)":  # of cosines
        return row._replace(kind="convention", says="the scores are multiplied by sqrt(d)")
    is_alike = settings.get("softmax_axis") == "queries" or QUERIES.match(row.argument)
    if (row.setting, row.value) == ("mask", "ignored") and is_alike:  # it hides all of a row
        return row._replace(kind="convention", instead="")
    if (row.setting, row.value) == ("combined", "mask alone"):  # said so, as in Hugging Face's
        alone = rf"causal\w*\s*=[^\n]*\b{re.escape(row.argument or '-')} is None"
        is_meant = re.search(alone, looked.subject.source)
        return row._replace(kind="convention", instead="") if is_meant else row
    if (row.setting, row.value) == ("softcap_at", "after the bias"):
        found = _finding(looked, row, row.setting)
        values = evaluate(found.seen.problem, found.settings) if found else None
        if is_mask(row.argument) or (values and values["has_rule"]):
            return make_row("softcap_at", "after the mask", row.argument)._replace(value=row.value)
    return row


def _idle(looked: Looked, promises: Sequence[Promise]) -> Iterator[Row]:
    """Yield masks and biases that change nothing, although the source reads them, or says how."""
    meant = {promise.argument for promise in promises if promise.setting == "mask"}
    for node in ast.walk(looked.subject.tree):
        is_used = isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Subscript, ast.Call))
        if is_used or (isinstance(node, ast.Compare) and not isinstance(node.ops[0], NONE)):
            meant |= {part.id for part in ast.iter_child_nodes(node) if isinstance(part, ast.Name)}
    for option in looked.options:
        setting = {"padding": "mask"}.get(option.role, option.role)
        if option.note == IDLE and setting in ("mask", "bias") and option.argument in meant:
            yield make_row(setting, "ignored", option.argument)


def _unturned(looked: Looked) -> Iterator[Row]:
    """Yield a rotation that the function calls in any case, and that changes no score."""
    findings = [each for each in (looked.found, *(o.found for o in looked.options)) if each]
    if any("rotation" in each.settings or each.seen.way.sizes.T < 2 for each in findings):
        return
    if not findings or any(option.note == UNCLEAR for option in looked.options):
        return
    nodes: Iterator[Any] = ast.walk(looked.subject.tree)
    body = next((node.body for node in nodes if isinstance(node, ast.FunctionDef)), [])
    steps = [step.value for step in body if isinstance(step, ast.Assign)]
    for node in (node for step in steps for node in ast.walk(step)):
        name = getattr(node, "id", "") or getattr(node, "attr", "")
        if TURNS.fullmatch(name):
            yield make_row("rotation", "without effect", name)
            return


def _order(looked: Looked) -> Iterator[Row]:
    """Yield in which order output and weights come back, where both do."""
    fits = sorted(looked.found.fits, key=lambda fit: fit.path) if looked.found else []
    names = ["weights" if "weights" in fit.what else "output" for fit in fits if fit.path]
    if {*names} == {"weights", "output"} and len(names) == 2:
        yield make_row("returned", ", ".join(names))


def _finding(looked: Looked, row: Row, setting: str) -> Found | None:
    """Return a call that showed a setting."""
    calls = [each.found for each in looked.options if each.argument == row.argument]
    calls += [looked.found, *(each.found for each in looked.options)]
    made = [found for found in calls if found]
    hides = [f for f in made if setting != "alignment" or f.settings.get("causal")]
    return next((f for f in made if f.settings.get(setting)), next(iter(hides), None))
