"""Assignment: the exercises of a class with their points, and a variant for each student."""

import hashlib
import hmac
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache

from mha_numpy import __version__
from mha_numpy.teach.classroom.late import NOTHING_OFF, LateRule
from mha_numpy.teach.diagnosis import CONVENTIONS, Variant, using
from mha_numpy.teach.exercises import Exercise, find_exercise
from mha_numpy.teach.exercises.exercise import exercise_of
from mha_numpy.teach.load_own import load_own
from mha_numpy.teach.own import Example, Own
from mha_numpy.teach.own_example import example_of

MOST = 3  # conventions of one exercise
VARIANTS = ("none", "seeds", "conventions")  # what differs between students


@dataclass(frozen=True)
class Assignment:
    """The work of a class, as an assignment's folder describes it."""

    name: str
    title: str
    exercises: dict[str, float]  # points, by the id of an exercise
    marks: dict[str, float]  # percent of these points, by group of stages
    deadline: datetime | None = None
    secret: bytes | None = None  # what variants are made of; None: all have the usual one
    roster: dict[str, str] | None = None  # names, by the id; None: all have the usual conventions
    handed_out: tuple[str, ...] = ()  # ids of the exercises as handed out; default: all of them
    variants: str = "conventions"  # one of VARIANTS; without a roster the same as "seeds"
    late: LateRule = NOTHING_OFF
    attempts: str = "last"  # or "best": which of several counts
    columns: dict[str, str] = field(default_factory=dict)  # titles in gradebooks, by platform
    own: dict[str, Own] = field(default_factory=dict)  # exercises that a teacher wrote, by the id

    @property
    def total(self) -> float:
        """The sum of all points."""
        return sum(self.exercises.values())

    @property
    def catalogue(self) -> list[Exercise]:
        """The exercises themselves, in their order."""
        return [self.find(exercise) for exercise in self.exercises]

    def find(self, exercise: str) -> Exercise:
        """Return one of the exercises, a teacher's own or one of this package, by its id."""
        own = self.own.get(exercise)
        return find_exercise(exercise) if own is None else exercise_of(load_own(own))

    @property
    def examples(self) -> dict[str, Example]:
        """What students see of the exercises that a teacher wrote: a call and its result."""
        found = {}
        for exercise, own in self.own.items():
            with using(Variant(own=own)):
                found[exercise] = example_of(load_own(own))
        return found

    @property
    def version(self) -> str:
        """A short digest of everything that points depend on, except secret, time and teacher.

        Examples
        --------
        >>> one = Assignment("hw", "", {"rope": 10}, {})
        >>> one.version == Assignment("hw", "another title", {"rope": 10}, {}).version
        True
        >>> one.version == Assignment("hw", "", {"rope": 20}, {}).version
        False
        """
        points = (self.name, sorted(self.exercises.items()), sorted(self.marks.items()))
        own = [(exercise, *one[:4]) for exercise, one in sorted(self.own.items())]
        given = (__version__, *points, self.attempts, self.variants, self.handed_out, own)
        return hashlib.sha256(repr(given).encode()).hexdigest()[:8]

    def variant(self, student: str) -> dict[str, Variant]:
        """Return the variant of each exercise that a student has.

        The seed of an exercise is ``HMAC-SHA256(secret, student|assignment|exercise)``; with
        variants "none" there is no student in it. Conventions need a roster and are the same in
        all exercises of a student, because one function may use another. They are drawn in the
        same way as the seed, from all sets that `_sets_of` allows.

        Parameters
        ----------
        student : str
            The student's id, which need not be on the roster.

        Returns
        -------
        dict
            A Variant for each exercise.

        Examples
        --------
        >>> points = {"scores": 10.0, "rope": 20.0}
        >>> one = Assignment("hw", "", points, {}, secret=b"not told", roster={"ada": "Ada"})
        >>> {id: variant.conventions for id, variant in one.variant("ada").items()}
        {'scores': ('tokens as columns',), 'rope': ()}
        >>> Assignment("hw", "", {"rope": 10}, {}).variant("ada")
        {'rope': Variant(seed=20240229, conventions=(), own=None)}
        """
        if self.secret is None:
            return {exercise: Variant(own=self.own.get(exercise)) for exercise in self.exercises}
        whose = "" if self.variants == "none" else student
        followed = self._conventions(student) if self.are_conventions_drawn else ()
        return {
            exercise: Variant(
                int.from_bytes(self._digest(whose, exercise)[:8]),
                tuple(name for name in followed if name in self._known_to(exercise)),
                self.own.get(exercise),
            )
            for exercise in self.exercises
        }

    @property
    def are_conventions_drawn(self) -> bool:
        """Whether each student has their own conventions."""
        return self.variants == "conventions" and self.roster is not None

    def _known_to(self, exercise: str) -> frozenset[str]:
        return frozenset() if exercise in self.own else _known_to(exercise)

    def _conventions(self, student: str) -> tuple[str, ...]:
        ids = self.handed_out or tuple(self.exercises)
        sets = _sets_of(tuple(exercise for exercise in ids if exercise not in self.own))
        return sets[int.from_bytes(self._digest(student, "conventions")[:8]) % len(sets)]

    def _digest(self, student: str, what: str) -> bytes:
        """Return a digest that cannot be computed without the secret."""
        message = f"{student}|{self.name}|{what}".encode()
        return hmac.digest(self.secret or b"", message, "sha256")


def _known_to(exercise_id: str) -> frozenset[str]:
    """Return the conventions that an exercise knows; handed-out code knows none."""
    exercise = find_exercise(exercise_id)
    if exercise.kind != "code":
        return frozenset()
    return frozenset(name for name, one in CONVENTIONS.items() if exercise.task in one.at)


@cache
def _sets_of(ids: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return the sets of conventions that a student of these exercises may have.

    No two of a set decide the same thing, and each exercise has at most `MOST`. Of each exercise,
    at least one changes the code, unless there is only one that does: then all would have it.
    """
    known = [_known_to(exercise) for exercise in ids]
    useful = [
        frozenset(
            name for name in names if find_exercise(exercise).task not in CONVENTIONS[name].same
        )
        for exercise, names in zip(ids, known, strict=True)
    ]
    sets: list[tuple[str, ...]] = [()]
    for name in filter(frozenset().union(*known).__contains__, CONVENTIONS):
        sets += [
            (*before, name)
            for before in sets
            if not any(CONVENTIONS[name].excludes(CONVENTIONS[other]) for other in before)
            and all(len(names & {*before, name}) <= MOST for names in known)
        ]
    missed = [sum(len(names) > 1 and names.isdisjoint(one) for names in useful) for one in sets]
    return [one for one, count in zip(sets, missed, strict=True) if count == min(missed)]
