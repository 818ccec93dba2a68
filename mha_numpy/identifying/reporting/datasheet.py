"""The datasheet: everything that was found out, in rows."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from mha_numpy.errors import ConfigError, did_you_mean
from mha_numpy.identifying.calling.names import roles_by_name
from mha_numpy.identifying.calling.ways import OF_ROWS, Slot
from mha_numpy.identifying.facts.feeding import holder_of
from mha_numpy.identifying.facts.options import IDLE, UNCLEAR, Option
from mha_numpy.identifying.family import SETTINGS, USUAL, Sizes
from mha_numpy.identifying.gradients.look import GradientRow
from mha_numpy.identifying.judging.judging import judge
from mha_numpy.identifying.judging.otherwise import describe_unknown
from mha_numpy.identifying.look import Looked
from mha_numpy.identifying.reporting.rows import ROLES, Row, known_settings, make_row
from mha_numpy.identifying.searching.calls import with_sizes
from mha_numpy.identifying.searching.reading import settings_of
from mha_numpy.identifying.searching.search import Fit, Found, Seen, explain

RETURNED = {
    "out": "output", "projected": "output", "merged": "output", "weights": "weights",
    "dropped": "weights after dropout", "mean weights": "weights, averaged over heads",
    "lse": "log-sum-exp",
    "scores": "scores", "masked": "masked scores", "turned_q": "queries", "turned_k": "keys",
    "turned_v": "values", "visible": "the mask of all rules", "number": "a number",
}  # fmt: skip
SYMBOLS = {
    "r": "H/H_kv", "p": "pages", "l": "rows",
    "T": "T_q", "S": "T_k", "d": "d_k", "e": "d_v", "G": "H_kv", "M": "H*d_k", "N": "H_kv*d_k",
    "O": "H_kv*d_v", "U": "H*d_v", "P": "3*D", "R": "2*D", "C": "D", "E": "D", "W": "D",
    "F": "d_k/2", "Y": "2*D", "FF": "d_k", "ff": "d_k", "Z": "T_past", "K": "buckets",
}  # fmt: skip
AS_QUERIES = str.maketrans("GNO", "HMU")  # keys and values have as many heads
LATE = "it ran out of time before everything was tried; allow it more seconds"
FED = (
    "Each call takes one token, and the object keeps its key and value for later calls. Here, all "
    "tokens of a sequence were passed one after the other."
)
CAPPED = (("softcap_at", "after the bias"), ("bias", "added before the scale"))  # a bias, too
MIXED = (("D M", "W U"), ("D P", "W U"), ("M D", "U W"), ("P D", "U W"))  # one is transposed
SHARED = {  # roles where queries are keys, too
    "query": "queries and keys", "wide_q": "queries and keys", "x_q": "queries and keys",
    "key_value": "values", "memory": "values",
}  # fmt: skip
UNREAD = (  # settings of which nothing is known where weights are read
    "normaliser", "softmax_axis", *settings_of("take", "project", "split", "rotate", "match"),
)  # fmt: skip
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
    is_found: bool  # whether it is known what the numbers are
    saw: str  # what was seen, where they are those of no attention that is known
    arguments: tuple[Named, ...] = ()
    returns: tuple[Named, ...] = ()
    rows: tuple[Row, ...] = ()
    notes: tuple[str, ...] = ()  # how it was looked at: sentences
    is_as_given: bool = True  # whether the roles that were given fit

    @property
    def mistakes(self) -> tuple[Row, ...]:
        """The rows that look like mistakes."""
        return tuple(row for row in self.rows if row.kind == "mistake")

    def value(self, setting: str) -> Any:
        """Return the value of a setting or a fact, None if there is no such row."""
        if setting not in known_settings():
            advice = did_you_mean(setting, known_settings()) or "each row has one: row.setting"
            raise ConfigError(f"setting: there is none with the name {setting!r}; {advice}")
        return next((row.value for row in self.rows if row.setting == setting), None)


def make_datasheet(looked: Looked) -> Findings:
    """Return what was found out as a datasheet."""
    subject, found, saw = looked.subject, looked.found, ""
    if found is None:
        saw = describe_unknown(subject, looked.seen, looked.trouble, looked.mixture)
        saw += f"; {LATE}" if looked.is_late else ""
        if looked.mixture is None or not looked.mixture.depend:
            return Findings(subject.name, subject.framework, False, saw)
        found = looked.mixture.found
    settings = {**found.settings, **({"exchanged": ""} if _has_no_keys(found) else {})}
    rows = [*_rows(settings, ""), *_rows_of_roles(found)]
    if not looked.found and looked.mixture:
        unread = (*UNREAD, "causal") if looked.mixture.has_gaps else UNREAD
        rows = [row for row in rows if row.setting not in unread]
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
    if found.fits[0].what == "projected" and {"w_o", "b_o"} & found.seen.problem.given.keys():
        rows = [*map(_projected, rows)]
    rows += _rows_of_gradients(looked.gradients)
    if looked.is_late and looked.found:
        rows.append(Row("time", LATE, "convention", "time", "over"))
    widths = _widths(looked, found)
    return Findings(
        subject.name, subject.framework, looked.found is not None, saw,
        (*_arguments(found, looked.found is None, widths), *_options(looked, found)),
        tuple(_returned(looked, found, widths)),
        tuple(
            judge(looked, in_order(rows)) if looked.found
            else (row for row in in_order(rows) if row.kind != "mistake")
        ),
        (f"Its gradients are those of {looked.beside}, in the same file.",) * bool(looked.beside)
        + (FED,) * bool(subject.feeding),
    )  # fmt: skip


def _has_no_keys(found: Found) -> bool:
    """Return whether no argument has keys, so that it is meant that queries are keys, too."""
    way = found.seen.way
    name = way.argument("key_value") or way.argument("memory")
    is_plain = "w_k" not in way.roles() or roles_by_name(name)[:1] == ("value",)
    return found.settings.get("exchanged") == "k := q" and is_plain


def _rows(settings: Mapping[str, Any], argument: str) -> Iterator[Row]:
    if (settings.get("window") or (0, 1))[1] == 0:  # no key after the query
        settings = {"causal": "past and itself", **settings}
    normaliser = make_row("normaliser", settings.get("normaliser", "softmax"))
    if "of q and k" in str(normaliser.value):
        settings = {**settings, "scale": "none"}
    elif settings.get("product") == "additive":
        settings = {**settings, "scale": "added"}
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
        is_told = slot.role != "offset" or "rotation" in found.settings
        if setting and is_told and setting not in found.settings:
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


def axes_of(
    layout: str, *, is_self: bool = False, sizes: Sizes = USUAL_SIZES,
    widths: Mapping[str, str] = MappingProxyType({}),
) -> str:  # fmt: skip
    """Return a layout as a shape in the usual symbols; `sizes` say whether d_v may differ.

    `widths` are symbols of axes whose widths differ from those that they usually have.

    Examples
    --------
    >>> axes_of("B H T d"), axes_of("B 1 1 S")
    ('(B, H, T_q, d_k)', '(B, 1, 1, T_k)')
    """
    if sizes.e == sizes.d:
        layout = layout.replace("e", "d")
    known = {**SYMBOLS, **_joined_widths(sizes), **widths}
    names = [known.get(axis, axis) for axis in layout.split()]
    if is_self:
        names = ["T" if name in ("T_q", "T_k") else name for name in names]
    return f"({', '.join(names)}{',' * (len(names) == 1)})" if names else ""


def _joined_widths(sizes: Sizes) -> dict[str, str]:
    """Return the widths of several maps in one where these are not as wide as the model.

    Examples
    --------
    >>> _joined_widths(Sizes(H=4, G=2)), _joined_widths(Sizes(H=4, G=4, d=8, D=24))
    ({'P': '(H+2*H_kv)*d_k', 'R': '2*H_kv*d_k'}, {'P': '3*H*d_k', 'R': '2*H*d_k'})
    """
    if sizes.G != sizes.H:
        return {"P": "(H+2*H_kv)*d_k", "R": "2*H_kv*d_k"}
    return {} if sizes.of("D") == sizes.of("M") else {"P": "3*H*d_k", "R": "2*H*d_k"}


def _widths(looked: Looked, found: Found) -> dict[str, str]:
    """Return symbols for the features of keys, and of outputs, where these may be others."""
    way, sizes = found.seen.way, found.seen.way.sizes
    of_keys = dict.fromkeys("CE", "D_kv")
    if of_keys.keys().isdisjoint(axis for each in way.roles().values() for axis in each.split()):
        return {}
    D, C = sizes.of("D"), sizes.of("C")
    if D != C:
        return of_keys
    of_both = {"D": D + 5, "C": D + 3}  # none of them as wide as all heads together
    for changed in (of_both, {"C": D + 3}) if looked.found and not way.hidden else ():
        seen = with_sizes(looked.subject, way, **changed)
        fits = explain(seen, found.settings) if seen else ()
        if seen and fits:
            return of_keys | _width_of_output(seen, found, fits[0])
    return {}


def _width_of_output(seen: Seen, found: Found, fit: Fit) -> dict[str, str]:
    """Return the symbol for the width of an output, from a call in which all widths differ."""
    layout, sizes = fit.layout.split(), seen.way.sizes
    if "W" not in layout:
        return {}
    width = found.output(seen).shape[layout.index("W")]
    names = {"D": "D", "C": "D_kv", "U": "H*d_v"}
    return next(({"W": name} for axis, name in names.items() if sizes.of(axis) == width), {})


def _arguments(found: Found, is_partial: bool, widths: Mapping[str, str]) -> Iterator[Named]:
    """Yield the arguments; where scores are not known, names confirm roles beside tokens."""
    way = found.seen.way
    is_self = "x" in way.roles() and "memory" not in way.roles()
    for name, slot in way.slots.items():
        role = "x_q" if slot.role == "x" and not is_self else slot.role
        layout = slot.layout if slot.kind not in ("ends", "edges") else ""
        if slot.kind == "pages":
            layout = f"p {layout.replace('S', 'l').removeprefix('B ')}"
        axes = axes_of(layout, is_self=is_self, sizes=way.sizes, widths=widths)
        what = ROLES.get(role, role)
        if _has_no_keys(found) and role in SHARED:
            what = SHARED[role]
        if is_partial and role in (*OF_ROWS, "lengths") and role not in roles_by_name(name):
            yield Named(name, "unknown", axes, UNCLEAR)
            continue
        yield Named(name, what, axes, _kind(slot))
    for name, slot in way.hidden.items():
        role = "x_q" if slot.role == "x" else slot.role
        what = ROLES.get(role, role)
        layout = slot.layout.translate(AS_QUERIES if way.sizes.G == way.sizes.H else {})
        sizes = way.sizes._replace(e=0)  # d_v = d_k says nothing of what is stored
        axes = axes_of(layout, sizes=sizes, widths=widths)
        yield Named(name, what, axes, "stored, not passed")


def _kind(slot: Slot) -> str:
    return {
        "bool": "bool", "int": "0 and 1", "float": "0.0 and 1.0", "room": "with room for more",
        "reversed": "True = not causal", "ends": "the first row of each, and the end",
        "edges": "keys in the first row, and a query for each in the second",
        "flat": "one after the other, as in C",
    }.get(slot.kind, "")  # fmt: skip


def _options(looked: Looked, found: Found) -> Iterator[Named]:
    names = [option.argument for option in looked.options]
    told = [fact.argument for fact in looked.facts]  # of a flag that needs other sizes
    caches = [f.argument for f in looked.facts if f.name == "cache" and f.value != "not tried"]
    for option in looked.options:
        slots = {option.argument: option.slot}
        if option.found:  # two may have been passed together
            own = found.seen.way.slots
            slots = {n: slot for n, slot in option.found.seen.way.slots.items() if n not in own}
            slots = {n: slot for n, slot in slots.items() if n == option.argument or n not in names}
        for name, slot in slots.items():
            is_size = option.role == "block" and option.note == IDLE  # of something else
            what = ROLES.get(slot.role if slot else option.role * (not is_size), "unknown")
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


def _returned(looked: Looked, found: Found, widths: Mapping[str, str]) -> Iterator[Named]:
    way = found.seen.way
    is_self = "x" in way.roles() and "memory" not in way.roles()
    gradients = {row.path: row for row in looked.gradients if row.path}
    for fit in found.fits:
        row = gradients.get(fit.path)
        layout = fit.layout if way.is_inside else fit.layout.replace("W", "e")
        layout = way.slots[row.argument].layout if row and row.argument in way.slots else layout
        what = f"gradient of {row.argument}" if row else _what(fit)
        axes = axes_of(layout, is_self=is_self, sizes=way.sizes, widths=widths)
        yield Named(fit.path or "result", what, axes)


def _what(fit: Fit) -> str:
    return RETURNED.get(fit.what) or ROLES.get(fit.what, fit.what) or "unknown"
