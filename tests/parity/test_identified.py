"""identify says of libraries what libraries.json has."""

import json

import pytest

from mha_numpy.identifying.reporting.libraries import FILE
from tests.docs.scripts import load

SCRIPT = load("libraries")
SHEETS = json.loads(FILE.read_text("utf-8"))["sheets"]
SLOW = ("jax", "keras", "transformers")  # to compile, or to import


@pytest.mark.filterwarnings("ignore")  # of the libraries' own
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if package in SLOW else ())
        for name, (package, _) in SCRIPT.SUBJECTS.items()
    ],
)
def test_the_file_says_what_is_found(name):
    pytest.importorskip(SCRIPT.SUBJECTS[name][0])
    found = json.loads(json.dumps(SCRIPT.found(name)))
    assert found == SHEETS[name]


def test_every_datasheet_has_a_subject():
    assert [*SHEETS] == [*SCRIPT.SUBJECTS]
