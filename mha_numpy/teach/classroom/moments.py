"""Points in time: deadlines, extensions, and when something was handed in."""

from datetime import date, datetime, time

from mha_numpy.errors import ConfigError


def end_of(day: date) -> datetime:
    """Return a time as it is, and a day as its last minute."""
    return day if isinstance(day, datetime) else datetime.combine(day, time(23, 59))


def read_moment(text: str, what: str) -> datetime:
    """Return a time that was written as a date, which means its end, or as a date and a time.

    Examples
    --------
    >>> read_moment("2030-05-31", "deadline"), read_moment("2030-05-31 12:00", "deadline")
    (datetime.datetime(2030, 5, 31, 23, 59), datetime.datetime(2030, 5, 31, 12, 0))
    """
    try:
        is_date = len(text) <= len("2030-05-31")
        return end_of(date.fromisoformat(text) if is_date else datetime.fromisoformat(text))
    except ValueError as error:
        raise ConfigError(
            f"{what}: expected a date such as 2030-05-31 or 2030-05-31T12:00; got {text!r}"
        ) from error
