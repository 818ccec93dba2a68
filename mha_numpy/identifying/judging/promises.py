"""What a function promises: in its docstring, its comments and the names of its arguments.

Only what is said clearly counts. A promise that is not kept becomes a finding, so that a promise
too many accuses somebody who is right, and one too few merely loses a finding.
"""

import io
import re
import tokenize
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from mha_numpy.identifying.calling.names import roles_by_name


class Promise(NamedTuple):
    """Something that a function says of itself."""

    setting: str  # of the family, or a fact
    values: tuple[Any, ...]  # all that keep it
    quote: str  # the words, or the argument's name
    argument: str = ""  # that it is about, "" if it is general


CAUSAL_NAME = {"causal", "self", "attention", "attn", "multi", "head", "multihead", "mha", "sdpa",
               "grouped", "query", "softmax", "dot", "product", "scaled"}  # fmt: skip
OF_ROLE = {  # which argument a setting is about
    "causal": "is_causal", "alignment": "is_causal", "window_given": "window", "bias": "bias",
    "lengths": "lengths", "scale": "scale", "scale_given": "scale",
}  # fmt: skip
STABLE = re.compile(
    r"(?<![a-z])(?<!not )(?:softmax_stable|(?:numerically[_ ])?stable[_ ]softmax)", re.I
)
NOT = re.compile(r"\b(?:not|no|non|never|without|cannot|nothing)\b|n't\b")
DOUBT = re.compile(
    r"\?$|\b(?:unlike|todo|fixme|would|could|should|yourself|caller|depend(?:s|ing)?|unless|whether|"
    r"do not|don't|older|versions?|previously|already|has to|have to|must|need(?:s|ed)? to|"
    r"the other way|instead|like the|similar to|torch(?!\.repeat_inter)|usual|if|either(?! side)|"
    r"or from|or else|rather than|elsewhere|variants?|same as|is what|(?<!all )except|but with|"
    r"in the (?:decoder|encoder)|other implementations|overflow\w*)\b"
)  # fmt: skip
SECTION = re.compile(
    r"^[ \t]*(examples?|raises|references|see also|todo|warn\w*|parameters|arg\w*|returns?|yields|"
    r"notes?|attributes|:returns?|:raises? \w+)\b[ \t]*:?[ \t]*$", re.I | re.M
)  # fmt: skip


def find_promises(
    name: str, docstring: str, argument_names: Sequence[str], source: str
) -> list[Promise]:
    """Return what a function promises.

    `source` is that of the function; a softmax in it that is called "stable" counts as well.

    Examples
    --------
    >>> find_promises("f", "Rows that see nothing give zeros.", ["q", "visible"], "")[0][:2]
    ('blind', ('zeros',))
    """
    names = [n for n in argument_names if n != "self"]
    text = _plain(docstring) + "\n\n" + _plain(_comments(source, names))
    sentences = [*_sentences(text)]
    found = [p for sentence in sentences for p in _in_sentence(sentence, names, text)]
    found += [p for n in names for p in _of_mask(n, text, names)]
    if back := re.search(
        r"\breturns:?\s+(\w+) *[:(].*\n\s*(?:[^\n:(]*\n\s*)*?(\w+) *[:(]", text, re.I
    ):
        found += _in_sentence(f"returns {back[1]}, {back[2]}", names, text)
    said = {p.setting for p in found}
    words = _words(name)
    flag = _of_role("is_causal", names)
    if "causal" not in said:
        if flag:
            found.append(Promise("causal", ("past and itself",), flag[0], flag[0]))
        elif {"causal"} < {*words} <= CAUSAL_NAME and not any(map(_is_mask, names)):
            found.append(Promise("causal", ("past and itself",), name))
    stable = STABLE.search(f"{name}\n{source}")
    if stable and "large_scores" not in said:
        found.append(Promise("large_scores", ("fine",), stable[0]))
    return _without_conflicts(found)


@cache
def _rules() -> list[tuple[str, tuple[str, ...], str]]:
    """Return the settings, the values that are promised, and a pattern for each."""
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    words = table.pop("words")
    rules = []
    for settings, by_value in table.items():
        for setting, (values, patterns) in product(settings.split(", "), by_value.items()):
            for pattern in patterns:
                while named := re.search("[A-Z_]{3,}", pattern):
                    pattern = pattern.replace(named[0], words[named[0]])
                rules.append((setting, tuple(v.strip() for v in values.split("|")), pattern))
    return rules


def _in_sentence(sentence: str, names: list[str], text: str) -> Iterator[Promise]:
    """Yield what a sentence promises."""
    low = sentence.lower()
    default = re.compile(
        r"(,)? (?:if|when|unless) (?:it is )?(?:not given|left out|omitted|none|absent|given)\b"
    )
    is_default, low = bool(default.search(low)), default.sub(" by default", low)
    every = "|".join(map(re.escape, names)).lower() or "-"
    doubt = DOUBT.search(low) or re.search(rf"\bwith (?:{every})\b[,=]", low)
    has_mask = any(map(_is_mask, names))  # which may be causal itself
    for setting, values, pattern in _rules():
        match = re.search(_filled(pattern, names), low)
        is_of_masks = setting in ("blind", "softcap_at")
        if not match or (doubt and not (is_of_masks and doubt[0] in ("if", "must"))):
            continue
        if setting == "causal" and "causal" in match[0] and (has_mask or "conv" in low):
            continue
        if setting == "alignment" and "offset" in low:
            continue
        if setting == "scale" and "scaled dot" in match[0] and _of_role("query", names):
            continue  # they may come scaled
        if setting == "hide" and re.search(r"dropout|expert|rout|top-k", low):
            continue
        before = re.split(r"[,;:(]", low[: match.start()])[-1][-25:]
        if not NOT.search(pattern) and NOT.search(before + match[0]):
            continue
        argument = next(iter(_of_role(OF_ROLE.get(setting, ""), names)), "")
        if setting == "scale" and not _is_of_head(match, text, names, bool(argument), is_default):
            continue
        yield Promise(setting, values, _quote(sentence, match), argument)
    if not doubt:
        yield from _packing(sentence, names)


def _packing(sentence: str, names: Sequence[str]) -> Iterator[Promise]:
    """Yield the order in which a sentence says that queries, keys and values are packed."""
    one = r"\b(q|k|v|query|key|value|queries|keys|values)\b"
    between = r"(?: rows| columns| vectors)?(,? then the | ?[|] ?|,? and |, ?)"
    for match in re.finditer(one + between + one + between + one, sentence.lower()):
        order = match[1][0] + match[3][0] + match[5][0]
        before, after = sentence[: match.start()].lower(), sentence[match.end() :].lower()
        is_clear = (
            (match[2].strip() == match[4].strip() == "|")
            or re.search(r"\b(?:order|(?:columns|rows)(?: of [\w.]+)? are(?: the)?)[: ]*$", before)
            or re.match(r"[\w ]{0,30},? (?:side by side|one after the other)", after)
        )
        is_other = NOT.search(sentence.lower()) or re.search(r"(?:each|per) head|\bto\b", sentence)
        if {*order} == {*"qkv"} and is_clear and not is_other and not _of_role("query", names):
            yield Promise("packing", (order,), _quote(sentence, match))


def _quote(sentence: str, match: re.Match[str]) -> str:
    """Return the part of a sentence, between its commas, that a match is in."""
    if match.string != sentence.lower():
        return sentence.strip()
    start = max(sentence.rfind(mark, 0, match.start() + 1) for mark in ",;:")
    end = re.search(r"[,;:]|$", sentence[match.end() :])
    words = sentence[start + 1 : match.end() + (end.start() if end else 0)]
    return re.sub(r"^[^(\[]*[)\]] ", "", words).strip()


def _is_of_head(
    match: re.Match[str], text: str, names: list[str], is_given: bool, is_default: bool
) -> bool:
    """Return whether a scale is meant that the function applies, by the width of a head."""
    if is_given != (is_default or "default" in match[0]):
        return False
    groups = match.groupdict()
    width = groups.get("d") or groups.get("d2") or "d_k"
    if width not in ("d", "size") or not _of_role("H", names):
        return True
    return bool(
        re.search(rf"\b{width} ?= ?\w+ ?//? ?\w|\b{width}\b.{{0,20}}(?:per|each) head", text)
    )


def _filled(pattern: str, names: list[str]) -> str:
    """Return a pattern with the names of arguments; (?!) fits nothing."""
    for role in re.findall(r"(?<!\?P)<(\w+)>", pattern):
        own = "|".join(re.escape(n.lower()) for n in _of_role(role, names))
        pattern = pattern.replace(f"<{role}>", f"(?:{own or '(?!)'})")
    return pattern


def _of_role(role: str, names: Sequence[str]) -> list[str]:
    if role == "is_causal":  # a flag: a "causal_mask" may be an array
        flags = {"causal", "is", "use", "apply", "mask"}
        return [
            n
            for n in names
            if {*_words(n)} <= flags and "causal" in n.lower() and n != "causal_mask"
        ]
    return [n for n in names if role in roles_by_name(n)]


# masks: which value means what
SEEN = (
    r"(?:visible|seen?|sees|attend(?:ed|s|ing|able)?|(?<!of )attention|look(?:ed|s)?|"
    r"allow(?:ed|s)?|keeps?|kept|valid|real|read|participates?|take part|unmasked|holds something)"
)
HIDDEN = (
    r"(?:block(?:ed|s)|hid(?:es?|den|ing)|masked|masks? out|ignor(?:ed?|es)|pad(?:ding|ded|s)?|"
    r"forbidden|forbids|drop(?:s|ped)|exclud(?:ed?|es)|disallowed|skip(?:ped|s)|invisible|"
    r"prevents?|prevented|suppressed|banned|discarded)"
)
TRUTH = re.compile(
    r"(?<![\w.(\[+-])(?<!id )(true|false|1(?:\.0)?s?|0(?:\.0)?s?|(?:non-?)?zero|ones)"
    r"(?= ?[=:(>]| ->| [a-z]|[,.;]|$)(?!\.\d|\.\.)"
)  # fmt: skip
TRUE = ("true", "1", "1.0", "1s", "1.0s", "nonzero", "non-zero", "ones")
NAME_SEEN = {"visible", "allowed", "allow", "keep", "attend", "may", "see", "valid", "real"}
NAME_HIDDEN = {"blocked", "forbidden", "forbid", "banned", "hide", "ignore", "ignored"}
NEUTRAL = {
    "mask", "masks", "key", "keys", "kv", "q", "k", "query", "attn", "attention", "att", "src",
    "tgt", "is", "memory", "mem", "ctx", "context", "token", "tokens", "cells", "positions", "can",
}  # fmt: skip


def _is_mask(argument: str) -> bool:
    words = {*_words(argument)}
    if words & (NAME_SEEN | NAME_HIDDEN) and words <= NAME_SEEN | NAME_HIDDEN | NEUTRAL:
        return True
    return roles_by_name(argument)[:1] in (("mask",), ("padding",))


def _of_mask(argument: str, text: str, names: list[str]) -> Iterator[Promise]:
    """Yield what the text, or else the name, says of the values of a mask."""
    words = {*_words(argument)}
    if not _is_mask(argument):
        return
    said = dict(each for piece in _pieces(argument, text, names) for each in _meanings(piece))
    if len(said) == 1:
        yield Promise("mask", tuple(said), next(iter(said.values())), argument)
    elif not said and words <= NAME_SEEN | NEUTRAL and words & NAME_SEEN:
        yield Promise("mask", ("true = visible",), argument, argument)
    elif (
        not said
        and words <= NAME_HIDDEN | NEUTRAL | {"pad", "padding", "padded"}
        and (words & NAME_HIDDEN or ("is" in words and words & {"pad", "padding", "padded"}))
    ):  # a mask called "padding" is often 1 for tokens
        yield Promise("mask", ("true = blocked",), argument, argument)


def _pieces(argument: str, text: str, names: list[str]) -> Iterator[str]:
    """Yield what is said below or after an argument's name, up to the next one's."""
    known = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    head = (
        r"(?:^[ \t]*(?:[-*] ?|:param (?:\w+ )?)?|[.;:,)\]] +|\band |\b[Ww]ith (?:[\w']+ )?)"
        rf"({known})\b(?= ?:| ?[(\[]| is | are | (?:follows|semantics|conventions?) |"
        r", \w+ [(\[:]|  )"
    )
    heads = [*re.finditer(head, text, re.M)]
    for at, match in enumerate(heads):
        if match[1] == argument:
            end = heads[at + 1].start() if at + 1 < len(heads) else len(text)
            indent = re.match(r"[ \t]*", match[0])
            less = rf"\n(?!{indent[0] if indent else ''})"  # what follows the list
            ends = rf"\n\s*\n|\n\s*:|\n\s*(?:Returns|Raises)\b|{less}"
            yield re.split(ends, text[match.end() : end])[0]


def _meanings(piece: str) -> Iterator[tuple[str, str]]:
    """Yield what True means, each time that a piece says it of True, False, 1 or 0."""
    is_added = re.search(r"\badd(?:ed|itive|s)\b|\binf\b|1e\d|\bfloats\b", piece)
    for sentence in _sentences(piece):
        low = re.sub(
            r"between 0 and 1|\([^()=]*,[^()=]*\)|\[[^\[\]]*\]", " ", sentence.lower()
        )  # shapes
        low = re.sub(r"\bfollow(?:s|ing)? (?:the )?\w*torch\b", "is", low)  # and is what it says
        if re.search(r"\?$|\b(?:unlike|torch|old|versions?|other way|todo|depend\w*)\b", low):
            continue
        truths = [*TRUTH.finditer(low)]
        for at, truth in enumerate(truths):
            if is_added and truth[1] not in ("true", "false"):
                continue
            if re.search(r"\b(?:if|default|defaults to) (?:it is )?$", low[: truth.start()]):
                continue
            end = truths[at + 1].start() if at + 1 < len(truths) else len(low)
            after = re.split(r"[,;]|\bunless\b", low[truth.end() : end])[0]
            polarity = _polarity(after)
            before = re.split(r"[,;:]", low[: truth.start()])[-1]
            if polarity is None and re.search(r"\b(?:where|when|marked)\b[^,]{0,20}$", before):
                polarity = _polarity(re.split(r"\b(?:where|when|marked)\b", before)[0])
            if polarity is not None:
                is_seen = polarity == (truth[1] in TRUE)
                yield f"true = {'visible' if is_seen else 'blocked'}", sentence.strip()


def _polarity(phrase: str) -> bool | None:
    """Return whether words say that a key is seen, None where that is not clear."""
    found: set[bool] = set()
    for match in re.finditer(rf"\b(?:({SEEN})|({HIDDEN}))\b", phrase):
        before = phrase[: match.start()].split()[-3:]
        found.add(bool(match[1]) != bool(NOT.search(" ".join(before))))
    if not found and re.search(r"\btokens?\b", phrase) and not NOT.search(phrase):
        return True
    return found.pop() if len(found) == 1 else None


# text
def _plain(text: str) -> str:
    """Return a text without markup, examples, and sections on something else."""
    text = re.sub(r"^[ \t]*(?:>>>|\.\.\. ).*$", "", text or "", flags=re.M)
    parts = SECTION.split("\n" + text)
    text = parts[0] + "".join(
        f"\n\n{title}\n{part}"
        for title, part in zip(parts[1::2], parts[2::2], strict=True)
        if not re.match(r"example|:?raises|references|see also|todo|warn", title, re.I)
    )
    text = re.sub(r"\^\{\\?(?:T|top)\}|\^\\?(?:T|top)\b|ᵀ", "^T", text).replace("ₖ", "_k")
    text = re.sub(r"√\(?(\w+)\)?|\\sqrt\{(\w+)\}", lambda m: f"sqrt({m[1] or m[2]})", text)
    text = re.sub(r"\\frac\{([^{}]*)\}\{([^{}]*)\}", r"\1 / \2", text)
    text = re.sub(r"\\(?:left|right|,)|\\mathrm\{(\w+)\}", r"\1", text).replace("\\", "")
    text = re.sub(r"(?<!\w)\*\*?(\w[^*\n]*\w|\w)\*\*?(?!\w)", r"\1", text.replace("`", ""))
    return re.sub(r"^([ \t]*\w[\w, ]* : .*)$", r"\1;", text, flags=re.M)  # numpydoc


def _sentences(text: str) -> Iterator[str]:
    """Yield sentences, each in one line."""
    for paragraph in re.split(r"\n\s*\n|\n\s*[-*•] |\n\s*:", text):
        for line in re.split(r"\n(?=\s*\w+(?:, \w+)* *[:(\[])", paragraph):
            joined = " ".join(line.split())
            yield from (
                s.strip()
                for s in re.split(r"(?<=[\w)\]'\"])[.;!](?=\s|$)|(?<=\?)", joined)
                if s.strip()
            )


def _comments(source: str, names: Sequence[str]) -> str:
    """Return the comments: lines in a row as one text, those beside an argument with its name."""
    found, last = "", -2
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                row, words = token.start[0], token.string.lstrip("# ")
                code = re.match(r"\s*(\w+)\s*(?::[^=#]+)?(?:=[^#,]*)?,?\s*#", token.line)
                if code and code[1] in names:
                    words = f"{code[1]}: {words}"
                is_next = row == last + 1 and token.line.lstrip().startswith("#")
                found += ("\n" if is_next else "\n\n") + words
                last = row
    except (tokenize.TokenError, IndentationError):
        pass
    return found


def _words(name: str) -> list[str]:
    """Return the words of a name."""
    return re.findall(r"[a-z]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()) or [""]


def _without_conflicts(found: list[Promise]) -> list[Promise]:
    """Leave out what contradicts itself, and what is said twice."""
    kept: dict[tuple[str, str, tuple[Any, ...]], Promise] = {}
    for p in found:
        others = [o for o in found if (o.setting, o.argument) == (p.setting, p.argument)]
        if p.setting.startswith("dropout") or all({*o.values} & {*p.values} for o in others):
            kept.setdefault((p.setting, p.argument, p.values), p)
    return [*kept.values()]
