"""Marks: the points of one function, by groups of the questions that a check asks."""

from collections.abc import Iterable, Mapping

from mha_numpy.teach.exercises.stages import Stage

# groups of stages, and how many percent of a function's points each is worth
MARKS = {"shape": 10, "invariants": 20, "values": 40, "gradients": 20, "robustness": 10}
GROUPS = {
    "type and dtype": "shape", "shape": "shape", "invariants": "invariants", "values": "values",
    "gradients": "gradients", "finite": "robustness", "inputs left alone": "robustness",
    "the same twice": "robustness", "memory": "robustness",
}  # fmt: skip


def groups_of(stages: Iterable[Stage]) -> dict[str, bool]:
    """Return which groups of questions a function has passed; a group passed in part is not.

    A function that does not run to the end of all its calls has passed none. The groups are in the
    order of ``MARKS``, without those that no stage asks about.

    Examples
    --------
    >>> groups_of([Stage("runs", True, ""), Stage("shape", True, ""), Stage("values", None, "")])
    {'shape': True, 'values': False}
    """
    stages = list(stages)
    has_run = all(stage.passed for stage in stages if stage.name == "runs")
    asked: dict[str, list[bool]] = {}
    for stage in stages:
        if stage.name in GROUPS:
            asked.setdefault(GROUPS[stage.name], []).append(has_run and stage.passed is True)
    return {group: all(asked[group]) for group in MARKS if group in asked}


def points_of(groups: Mapping[str, bool], out_of: float, marks: Mapping[str, float]) -> float:
    """Return the points of a function, to two decimals.

    Groups that the function does not have share their weight among those that it has.

    Parameters
    ----------
    groups : {group: bool}
        Of `groups_of`.
    out_of : float
        The points of a right function.
    marks : {group: number}
        The weight of each group.

    Returns
    -------
    float

    Examples
    --------
    >>> points_of({"shape": True, "values": False, "robustness": True}, 12, MARKS)
    4.0
    """
    weights = {group: marks.get(group, 0) for group in groups}
    total = sum(weights.values())
    if total == 0 or all(groups.values()):
        return float(out_of) if groups and all(groups.values()) else 0.0
    return round(out_of * sum(weights[group] for group in groups if groups[group]) / total, 2)
