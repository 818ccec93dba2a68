"""Assignment: the exercises of a class with their points, and a variant for each student."""

import hmac
from dataclasses import dataclass, field
from datetime import datetime

from mha_numpy.teach.diagnosis import CONVENTIONS, Variant, using
from mha_numpy.teach.exercises import Exercise, find_exercise
from mha_numpy.teach.exercises.exercise import exercise_of
from mha_numpy.teach.load_own import load_own
from mha_numpy.teach.own import Example, Own
from mha_numpy.teach.own_example import example_of

MOST = 2  # conventions of one exercise, if it can be helped


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

    def variant(self, student: str) -> dict[str, Variant]:
        """Return the variant of each exercise that a student has.

        The seed of an exercise is ``HMAC-SHA256(secret, student|assignment|exercise)``. A
        roster also brings conventions, the same in all exercises of a student, because one
        function may use another. Each exercise that knows any has at least one. They are drawn
        in the same way as the seed.

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
        {'scores': ('keys as rows', 'heads behind the tokens'), 'rope': ()}
        >>> Assignment("hw", "", {"rope": 10}, {}).variant("ada")
        {'rope': Variant(seed=20240229, conventions=(), own=None)}
        """
        if self.secret is None:
            return {exercise: Variant(own=self.own.get(exercise)) for exercise in self.exercises}
        followed = set() if self.roster is None else self._conventions(student)
        variants = {}
        for exercise in self.exercises:
            known, own = _conventions_for(self.find(exercise)), self.own.get(exercise)
            seed = int.from_bytes(self._digest(student, exercise)[:8])
            variants[exercise] = Variant(
                seed, tuple(name for name in known if name in followed), own
            )
        return variants

    def _conventions(self, student: str) -> set[str]:
        order = sorted(CONVENTIONS, key=lambda name: self._digest(student, f"convention {name}"))
        ids = self.handed_out or tuple(self.exercises)
        known = [set(_conventions_for(self.find(exercise))) for exercise in ids]
        followed: list[str] = []
        for names in filter(None, known):
            if names.isdisjoint(followed):
                followed.append(next(name for name in order if name in names))
        for name in order:  # and some more, by the toss of a coin
            is_tossed = self._digest(student, f"coin {name}")[0] % 2
            more = {*followed, name}
            if is_tossed and all(len(names & more) <= MOST for names in known if name in names):
                followed.append(name)
        return set(followed)

    def _digest(self, student: str, what: str) -> bytes:
        """Return a digest that cannot be computed without the secret."""
        message = f"{student}|{self.name}|{what}".encode()
        return hmac.digest(self.secret or b"", message, "sha256")


def _conventions_for(exercise: Exercise) -> list[str]:
    """Return the conventions that an exercise knows; handed-out code knows none."""
    if exercise.kind != "code":
        return []
    return [name for name, convention in CONVENTIONS.items() if exercise.task in convention.at]
