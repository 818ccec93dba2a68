"""The tables of docs/conventions.md are those of the datasheets."""

from tests.docs.scripts import load


def test_the_tables_are_not_stale():
    libraries = load("libraries")
    assert libraries.page() == libraries.PAGE.read_text(encoding="utf-8")
