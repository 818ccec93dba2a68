"""The datasheet: everything that was found out, in rows."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from mha_numpy.identifying.calling.ways import Slot
from mha_numpy.identifying.facts.feeding import holder_of
from mha_numpy.identifying.facts.options import Option
from mha_numpy.identifying.family import SETTINGS, USUAL, Sizes
from mha_numpy.identifying.gradients.look import GradientRow
from mha_numpy.identifying.judging.judging import judge
from mha_numpy.identifying.judging.otherwise import describe_unknown
from mha_numpy.identifying.look import Looked
from mha_numpy.identifying.reporting.rows import ROLES, Row, make_row
from mha_numpy.identifying.searching.search import Fit, Found

RETURNED = {
    "out": "output", "projected": "output", "merged": "output", "weights": "weights",
    "dropped": "weights after dropout", "mean weights": "weights, averaged over heads",
    "lse": "log-sum-exp",
    "scores": "scores", "masked": "masked scores", "turned_q": "queries", "turned_k": "keys",
    "turned_v": "values", "visible": "the mask of all rules", "number": "a number",
}  # fmt: skip
SYMBOLS = {
    "r": "H/H_kv",
    "T": "T_q", "S": "T_k", "d": "d_k", "e": "d_v", "G": "H_kv", "M": "H*d_k", "N": "H_kv*d_k",
    "O": "H_kv*d_v", "U": "H*d_v", "P": "3*D", "R": "2*D", "C": "D", "E": "D", "W": "D",
    "F": "d_k/2", "FF": "d_k", "ff": "d_k", "Z": "T_past", "K": "buckets",
}  # fmt: skip
AS_QUERIES = str.maketrans("GNO", "HMU")  # keys and values have as many heads
LATE = "the time was over before everything was tried: give it more seconds"
CAPPED = (("softcap_at", "after the bias"), ("bias", "added before the scale"))  # a bias, too
MIXED = (("D M", "W U"), ("D P", "W U"), ("M D", "U W"), ("P D", "U W"))  # one is transposed
ALWAYS = ("scale", "causal", "softmax_axis")  # told also where they are usual


class Named(NamedTuple):
    """An argument or a result: its name, what it is, its axes and what is to be said of it."""

    name: str
    what: str
    axes: str = ""
    note: str = ""


class Findings(NamedTuple):
    """What a function computes: the data of a `Datasheet`."""

    name: str
    framework: str
    is_found: bool
    saw: str  # what was seen, where it is no attention that is known
    arguments: tuple[Named, ...] = ()
    returns: tuple[Named, ...] = ()
    rows: tuple[Row, ...] = ()
    notes: tuple[str, ...] = ()  # how it was looked at: sentences

    @property
    def mistakes(self) -> tuple[Row, ...]:
        """The rows that look like mistakes."""
        return tuple(row for row in self.rows if row.kind == "mistake")

    def value(self, setting: str) -> Any:
        """Return the value of a setting or a fact, None if there is no such row."""
        return next((row.value for row in self.rows if row.setting == setting), None)


def make_datasheet(looked: Looked) -> Findings:
    """Return what was found out as a datasheet."""
    subject, found = looked.subject, looked.found
    if found is None:
        saw = describe_unknown(subject, looked.seen, looked.trouble)
        saw += f"; {LATE}" if looked.is_late else ""
        return Findings(subject.name, subject.framework, False, saw)
    rows = [*_rows(found.settings, ""), *_rows_of_roles(found)]
    if found.seen.way.argument("scale") and "scale" not in found.settings:  # it is passed
        rows = [row for row in rows if row.setting != "scale"]
    if found.fits[0].what == "merged" and found.seen.problem.get("w_o") is not None:
        rows.append(make_row("w_o", "left out"))
    layouts = found.seen.way.roles()
    maps = layouts.get("w_q") or layouts.get("w_qkv"), layouts.get("w_o")
    if found.fits[0].what == "projected" and maps in MIXED:
        rows.append(make_row("orientation", "mixed"))
    for option in looked.options:
        rows += _rows_of_option(option)
    if any((row.setting, row.value) in CAPPED for row in rows):
        rows = [row for row in rows if row.setting != "softcap_at" or row.kind != "usual"]
    rows += [make_row(fact.name, fact.value, fact.argument) for fact in looked.facts]
    if found.fits[0].what == "projected":
        rows = [*map(_projected, rows)]
    rows += _rows_of_gradients(looked.gradients)
    if looked.is_late:
        rows.append(Row("time", LATE, "convention", "time", "over"))
    return Findings(
        subject.name, subject.framework, True, "",
        (*_arguments(found), *_options(looked)), tuple(_returned(looked, found)),
        tuple(judge(looked, in_order(rows))),
        (f"Its gradients are those of {looked.beside}, in the same file.",) * bool(looked.beside),
    )  # fmt: skip


def _rows(settings: Mapping[str, Any], argument: str) -> Iterator[Row]:
    if (settings.get("window") or (0, 1))[1] == 0:  # no key after the query
        settings = {"causal": "past and itself", **settings}
    normaliser = make_row("normaliser", settings.get("normaliser", "softmax"))
    if "of q and k" in str(normaliser.value) or settings.get("product") == "additive":
        settings = {**settings, "scale": "none"}
    for setting in SETTINGS:
        if setting == "softmax_axis" and normaliser.says.startswith(("no softmax", "scores")):
            continue
        if setting == "hide" and settings.get("softmax_axis") == "heads":
            continue  # a cell that is hidden from all heads has equal weights, whatever its score
        if setting in settings or (not argument and setting in ALWAYS):
            yield make_row(setting, settings.get(setting, USUAL[setting]), argument)


def _projected(row: Row) -> Row:
    """Return a row; where heads give zeros, a layer returns the bias of its projection."""
    is_inside = row.value == "zeros"
    return row._replace(says=f"{row.says}, before the output projection") if is_inside else row


def _rows_of_gradients(gradients: Sequence[GradientRow]) -> Iterator[Row]:
    right = [each.name for each in gradients if each.is_right]
    if right:
        yield Row("gradients", f"{', '.join(right)}: right", "usual", "gradients", right)
    unseen = [each.says for each in gradients if not each.name]
    yield from (Row("gradients", says, "convention", "gradients", "") for says in unseen)
    wrong = [each for each in gradients if each.name and not each.is_right]
    for says in dict.fromkeys(each.says for each in wrong):
        same = [each for each in wrong if each.says == says]
        names = ", ".join(each.name for each in same)
        row = Row(f"gradients {names}", says, "mistake", names, same[0].mistake)
        yield row._replace(instead=same[0].instead, line=same[0].line, code=same[0].code)


TELLING = {  # the setting that says how an argument of this role is meant
    "mask": "mask", "lengths": "lengths", "bias": "bias", "window": "window_given",
    "scale": "scale_given",
    "softcap": "softcap_at", "dropout_mask": "dropout_mask", "head_gate": "head_gate",
    "offset": "q_position", "bias_table": "buckets",
}  # fmt: skip


def _rows_of_roles(found: Found) -> Iterator[Row]:
    """Yield how the arguments that have to be passed are meant."""
    for name, slot in found.seen.way.slots.items():
        setting = TELLING.get(slot.role, "")
        if setting and setting not in found.settings:
            yield make_row(setting, USUAL[setting], name)


def _rows_of_option(option: Option) -> Iterator[Row]:
    if option.found is None:
        return
    settings = dict(option.settings)
    role = option.slot.role if option.slot else option.role
    if role in TELLING and (role != "offset" or option.found.settings.get("rotation")):
        settings.setdefault(
            TELLING[role], option.found.settings.get(TELLING[role], USUAL[TELLING[role]])
        )
    if role == "is_causal" and option.slot and option.slot.value:
        settings.setdefault("causal", option.found.settings.get("causal"))
    for setting, value in (("rows_by", "queries"), ("mask_index", "transposed")):
        if settings.get(setting) == value and option.argument.startswith("q"):
            settings[setting] = f"{value}, as it says"
    yield from _rows(settings, option.argument)


def in_order(rows: list[Row]) -> Iterator[Row]:
    """Yield each row once, those of one name together."""
    for name in dict.fromkeys(row.name for row in rows):
        same = [row for row in rows if row.name == name]
        yield from (row for at, row in enumerate(same) if row not in same[:at])


USUAL_SIZES = Sizes()


def axes_of(layout: str, *, is_self: bool = False, sizes: Sizes = USUAL_SIZES) -> str:
    """Return a layout as a shape in the usual symbols; `sizes` say whether d_v may differ.

    Examples
    --------
    >>> axes_of("B H T d"), axes_of("B 1 1 S")
    ('(B, H, T_q, d_k)', '(B, 1, 1, T_k)')
    """
    if sizes.e == sizes.d:
        layout = layout.replace("e", "d")
    names = [SYMBOLS.get(axis, axis) for axis in layout.split()]
    if is_self:
        names = ["T" if name in ("T_q", "T_k") else name for name in names]
    return f"({', '.join(names)}{',' * (len(names) == 1)})" if names else ""


def _arguments(found: Found) -> Iterator[Named]:
    way = found.seen.way
    is_self = "x" in way.roles() and "memory" not in way.roles()
    for name, slot in way.slots.items():
        role = "x_q" if slot.role == "x" and not is_self else slot.role
        layout = slot.layout if slot.kind != "ends" else ""
        axes = axes_of(layout, is_self=is_self, sizes=way.sizes)
        yield Named(name, ROLES.get(role, role), axes, _kind(slot))
    for name, slot in way.hidden.items():
        what = ROLES.get(slot.role, slot.role)
        layout = slot.layout.translate(AS_QUERIES if way.sizes.G == way.sizes.H else {})
        yield Named(name, what, axes_of(layout), "stored, not passed")


def _kind(slot: Slot) -> str:
    return {
        "bool": "bool", "int": "0 and 1", "float": "0.0 and 1.0", "room": "with room for more",
        "reversed": "True = not causal", "ends": "the first row of each, and the end",
        "flat": "one after the other, as in C",
    }.get(slot.kind, "")  # fmt: skip


def _options(looked: Looked) -> Iterator[Named]:
    names = [option.argument for option in looked.options]
    told = [fact.argument for fact in looked.facts]  # of a flag that needs other sizes
    caches = [f.argument for f in looked.facts if f.name == "cache" and f.value != "not tried"]
    for option in looked.options:
        slots = {option.argument: option.slot}
        if option.found and looked.found:  # two may have been passed together
            own = looked.found.seen.way.slots
            slots = {n: slot for n, slot in option.found.seen.way.slots.items() if n not in own}
            slots = {n: slot for n, slot in slots.items() if n == option.argument or n not in names}
        for name, slot in slots.items():
            what = ROLES.get(slot.role if slot else option.role, "unknown")
            note = _kind(slot) if slot else option.note or _of_flag(option)
            note = "" if option.argument in told and not slot else note
            if holder_of(name) in caches and what == "unknown":
                what, note = ROLES["cache"], ""
            layout = slot.layout if slot else ""
            if name.startswith("q") and option.settings.get("mask_index") == "transposed":
                layout = layout.replace("S", "T")  # it hides queries
            yield Named(name, what, axes_of(layout), note)


def _of_flag(option: Option) -> str:
    """Say what comes back if a flag is switched."""
    back = (f"{_what(fit)}, {fit.path} {axes_of(fit.layout)}".rstrip() for fit in option.fits)
    return f"{option.value} returns {' and '.join(back)}" if option.fits else ""


def _returned(looked: Looked, found: Found) -> Iterator[Named]:
    way = found.seen.way
    is_self = "x" in way.roles() and "memory" not in way.roles()
    gradients = {row.path: row for row in looked.gradients if row.path}
    for fit in found.fits:
        row = gradients.get(fit.path)
        layout = fit.layout if way.is_inside else fit.layout.replace("W", "e")
        layout = way.slots[row.argument].layout if row and row.argument in way.slots else layout
        what = f"gradient of {row.argument}" if row else _what(fit)
        yield Named(fit.path or "result", what, axes_of(layout, is_self=is_self, sizes=way.sizes))


def _what(fit: Fit) -> str:
    return RETURNED.get(fit.what) or ROLES.get(fit.what, fit.what) or "unknown"
