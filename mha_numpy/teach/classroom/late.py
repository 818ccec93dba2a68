"""The late rule of an assignment: what late work loses."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from math import ceil
from typing import NamedTuple

from mha_numpy.errors import ConfigError

DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)


class LateRule(NamedTuple):
    """The percent of its points that late work loses; as it is, nothing."""

    per_day: float = 0.0  # for each day that has begun
    grace_minutes: float = 0.0  # after the deadline, which do not count as late
    most: float = 100.0

    def days(self, handed_in: datetime, deadline: datetime) -> int:
        """Return the days that have begun since the deadline, 0 within the grace.

        Examples
        --------
        >>> rule = LateRule(per_day=10, grace_minutes=15)
        >>> rule.days(datetime(2030, 6, 1, 12, 16), datetime(2030, 5, 31, 12))
        2
        """
        if handed_in.tzinfo is None or deadline.tzinfo is None:  # platforms write local times
            handed_in, deadline = handed_in.replace(tzinfo=None), deadline.replace(tzinfo=None)
        after = handed_in - deadline
        is_in_time = after / MINUTE <= self.grace_minutes or after <= timedelta()
        return 0 if is_in_time else ceil(after / DAY)

    def percent(self, days: int) -> float:
        """Return the percent that work loses."""
        return min(self.per_day * days, self.most)


NOTHING_OFF = LateRule()


def read_late(table: Mapping[str, float], path: object) -> LateRule:
    """Return the rule of an assignment's table; what is missing is as by default.

    Examples
    --------
    >>> read_late({"per_day": 10}, "assignment.toml")
    LateRule(per_day=10, grace_minutes=0.0, most=100.0)
    """
    unknown = [name for name in table if name not in LateRule._fields]
    if unknown or max(table.get("per_day", 0), table.get("most", 0)) > 100:
        raise ConfigError(
            f"late: expected {', '.join(LateRule._fields)}, and at most 100%; {path} has "
            f"{dict(table)}"
        )
    return LateRule(**table)
