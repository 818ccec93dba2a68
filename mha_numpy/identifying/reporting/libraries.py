"""What libraries compute: their datasheets, and where another one differs from them."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from mha_numpy.errors import ConfigError, did_you_mean
from mha_numpy.identifying.family import USUAL
from mha_numpy.identifying.reporting.datasheet import Findings, Named
from mha_numpy.identifying.reporting.rows import ROLES, Row, make_row
from mha_numpy.identifying.searching.search import NEEDS

FILE = Path(__file__).with_name("libraries.json")  # docs/examples/libraries.py writes it
ROLES_OF_INPUTS = (
    "query", "key", "value", "wide_q", "wide_k", "wide_v", "x", "x_q", "x_k", "x_v", "memory",
)  # fmt: skip
INPUTS = tuple(ROLES[role] for role in ROLES_OF_INPUTS)
SHOWN = {  # in every datasheet: functions, and what takes their place for layers
    "PyTorch": ("PyTorch's scaled_dot_product_attention", "PyTorch's MultiheadAttention"),
    "Keras": ("Keras's MultiHeadAttention", "Keras's MultiHeadAttention"),
    "JAX": ("JAX's dot_product_attention", "JAX's dot_product_attention"),
    "ONNX": ("ONNX's Attention", "ONNX's Attention"),
    "mha_numpy": ("mha_numpy's scaled_dot_product_attention", "mha_numpy's MultiHeadAttention"),
}
NOT_KEPT = ("float32", "float16", "sums", "gradients")  # they depend on the machine
OWN = "stored, not passed"
MARK = "'s "  # between a library and its function
MINOR = ("unknown", "a switch", "dropout rate", "training or not", "source of randomness")
SHORT = {"returns": "what it returns", "axes": "shapes", "last": "no output projection"}
OF_ARGUMENTS = (  # settings that say nothing of attention without such an argument
    "mask", "mask_index", "lengths", "rows", "rows_by", "window_given", "scale_given", "bias",
    "softcap_at", "dropout_mask", "head_gate", "hide", "combined", "blind", "alignment",
    "grouping", "buckets",
)  # fmt: skip
OF_GROUPS = "key/value head "  # what a row of grouping says of it comes after this
Key = tuple[str, str]  # a setting, and what the argument is that it is about


def pack(sheet: Findings) -> dict[str, Any]:
    """Return what a file keeps of a datasheet; the words of its rows are made again."""
    return {
        "name": sheet.name, "framework": sheet.framework,
        "arguments": [[*each] for each in sheet.arguments],
        "returns": [[*each] for each in sheet.returns],
        "rows": [[r.setting, r.value, r.argument] for r in sheet.rows if r.setting not in NOT_KEPT],
    }  # fmt: skip


@cache
def libraries() -> dict[str, Findings]:
    """Return the datasheets of libraries, by name."""
    sheets = json.loads(FILE.read_text("utf-8"))["sheets"]
    return {
        name: Findings(
            sheet["name"], sheet["framework"], True, "",
            tuple(Named(*each) for each in sheet["arguments"]),
            tuple(Named(*each) for each in sheet["returns"]),
            tuple(make_row(*row) for row in sheet["rows"]),
        )
        for name, sheet in sheets.items()
    }  # fmt: skip


def keys_of(sheet: Findings, rows: Sequence[Row]) -> list[Key]:
    """Return what each row is about, in words that all datasheets share."""
    what = {each.name: each.what for each in sheet.arguments if each.what not in MINOR}
    return [(row.setting, what.get(row.argument, "")) for row in rows]


def _by_key(sheet: Findings) -> dict[Key, Row]:
    found: dict[Key, Row] = {}
    for key, row in zip(keys_of(sheet, sheet.rows), sheet.rows, strict=True):
        found.setdefault(key, row)
    for each in sheet.arguments:
        if each.what in INPUTS:
            axes = each.axes.replace("D_kv", "D")  # which it may be everywhere
            found["axes", each.what] = Row(each.what, each.axes, "usual", "axes", axes)
    returned = ", ".join(each.what for each in sheet.returns)
    found["returns", ""] = Row("it returns", returned, "usual", "returns", returned)
    own = [each.what for each in sheet.arguments if each.note == OWN]
    if own:
        last = "applied" if ROLES["w_o"] in own else "none"
        found["last", ""] = Row("output projection", last, "usual", "last", last)
    return found


def compare_with(sheet: Findings, library: str) -> list[tuple[Row, Row]]:
    """Return the rows of a datasheet that a library has differently, each with the library's.

    Parameters
    ----------
    sheet : Findings
        From `identify`.
    library : str
        One of `libraries()`.

    Examples
    --------
    >>> numpys = libraries()["mha_numpy's scaled_dot_product_attention"]
    >>> [own.name for own, _ in compare_with(numpys, "PyTorch's scaled_dot_product_attention")]
    ['NaN in a hidden key', 'float mask']
    """
    if library not in libraries():
        advice = did_you_mean(library, [*libraries()]) or ", ".join(libraries())
        raise ConfigError(f"library: there is none with the name {library!r}; {advice}")
    here, there = _by_key(sheet), _by_key(libraries()[library])
    pairs = [(_row(here, key), _row(there, key)) for key in dict.fromkeys([*here, *there])]
    return [(own, its) for own, its in pairs if own and its and own.value != its.value]


def _row(rows: Mapping[Key, Row], key: Key) -> Row | None:
    """Return the row that is about the same; what is not said of the form itself is usual."""
    setting, about = key
    same = [row for (other, _), row in rows.items() if other == setting]
    if key in rows or (not about and same):
        return rows.get(key, next(iter(same), None))
    is_said = about or setting in OF_ARGUMENTS or setting not in USUAL
    told = {other for other, _ in rows}
    is_moot = setting in NEEDS and told.isdisjoint(NEEDS[setting])  # a base without a rotation
    return None if is_said or is_moot else make_row(setting, USUAL[setting])


class Nearest(NamedTuple):
    """The library's attention that a function differs least from, and in what."""

    library: str
    rows: list[tuple[Row, Row | None]]  # the function's, and the library's if it has such a row
    lacks: list[str]  # the arguments that it does not have

    def in_short(self) -> str:
        """Return a sentence that names what differs.

        Examples
        --------
        >>> Nearest("JAX's", [], ["bias"]).in_short(), Nearest("JAX's", [], []).in_short()
        ("Differs from JAX's: you cannot pass bias.", "A drop-in for JAX's.")
        """
        names = dict.fromkeys(SHORT.get(row.setting, row.name) for row, _ in self.rows)
        lacks = f"you cannot pass {', '.join(self.lacks)}" if self.lacks else ""
        said = f"{', '.join(names)}{'; ' * bool(lacks)}{lacks}" if names else lacks
        start = f"Differs from {self.library}{' in' * bool(names)}: "
        return f"{start}{said}." if said else f"A drop-in for {self.library}."

    def lines(self) -> list[tuple[str, str, str]]:
        """Return the name of each row that both have, what it is here, and what there."""
        its = f"{self.library.partition(MARK)[0]}: "
        found = [(row.name, row.says, its + there.says) for row, there in self.rows if there]
        lacks = f"you cannot pass {', '.join(self.lacks)}"
        return [*found, ("arguments", lacks, "")] if self.lacks else found


def nearest(sheet: Findings) -> Nearest | None:
    """Return the nearest library: PyTorch's, which most people mean, if it takes such inputs.

    Examples
    --------
    >>> nearest(libraries()["Keras's GroupQueryAttention"]).library
    "PyTorch's MultiheadAttention"
    """
    own = {each.what for each in sheet.arguments}
    own |= {ROLES["mask"]} if ROLES["bias"] in own else set()  # which may hide, too
    found: list[tuple[bool, int, str, Nearest]] = []
    for library, there in libraries().items() if sheet.is_found else ():
        theirs = {each.what: each.name for each in there.arguments if each.note != OWN}
        is_pytorch = library.startswith("PyTorch")
        is_layer = any(each.note == OWN for each in there.arguments)
        is_self = is_pytorch and is_layer and ROLES["x"] in own
        if there == sheet or not (is_self or {*INPUTS} & theirs.keys() <= own):
            continue
        rows: list[tuple[Row, Row | None]] = [*compare_with(sheet, library)]
        told = [row.name for row, _ in rows]
        rows += [(row, None) for row in sheet.mistakes if row.name not in told]
        lacks = [name for what, name in theirs.items() if what not in (*own, *MINOR, *INPUTS)]
        count = len(rows) + len(lacks) + bool(lacks)
        found.append((not is_pytorch, count, library, Nearest(library, rows, lacks)))
    return min(found)[-1] if found else None


def in_libraries(sheet: Findings, rows: Sequence[Row]) -> list[dict[str, Row]]:
    """Return for each row those of five libraries that are about the same."""
    there = {short: _by_key(libraries()[name]) for short, name in _shown(sheet).items()}
    return [
        {short: found[key] for short, found in there.items() if key in found}
        for key in keys_of(sheet, rows)
    ]


def _shown(sheet: Findings) -> dict[str, str]:
    """Return the function of each library, or the layer where the datasheet is of a layer."""
    near = nearest(sheet)
    is_layer = any(each.note == OWN for each in sheet.arguments)
    if near and near.library in SHOWN["PyTorch"]:  # it is compared with this one elsewhere, too
        is_layer = near.library == SHOWN["PyTorch"][1]
    return {short: names[is_layer] for short, names in SHOWN.items()}


def which_libraries(sheet: Findings) -> str:
    """Say which function or layer stands for each library.

    Examples
    --------
    >>> which_libraries(libraries()["JAX's dot_product_attention"])[:60]
    'Here, PyTorch means scaled_dot_product_attention, Keras mean'
    """
    names = (f"{short} means {x.partition(MARK)[2]}" for short, x in _shown(sheet).items())
    return f"Here, {', '.join(names)}."


def in_words(row: Row, there: dict[str, Row]) -> str:
    """Say what libraries do where a row's function differs from any of them.

    Examples
    --------
    >>> rows = {"PyTorch": make_row("blind", "zeros"), "JAX": make_row("blind", "nan")}
    >>> in_words(make_row("blind", "nan"), rows)
    'PyTorch: zeros; JAX: the same'
    >>> in_words(make_row("grouping", "tile"), {"JAX": make_row("grouping", "repeat")})
    'JAX: h // (H / H_kv)'
    """
    groups: dict[str, list[str]] = {}
    for library, each in there.items():
        is_short = each.value and each.setting not in ("dropout_when", "grouping")
        short = str(each.value if is_short else each.says.partition(":")[0])
        short = short.rpartition(OF_GROUPS)[2] if each.setting == "grouping" else short
        groups.setdefault("the same" if each.value == row.value else short, []).append(library)
    return "; ".join(f"{', '.join(names)}: {value}" for value, names in groups.items())
