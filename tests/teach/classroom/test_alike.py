"""find_alike: a copy with other names is found, common and handed-out code says nothing."""

import re

from mha_numpy.teach.classroom.alike import LEAST, find_alike, fingerprint
from tests.teach.classroom.classes import written

LONG = "\n".join(f"y{i} = np.exp(x{i} - {i}) @ w[{i}, :, {i + 1}]" for i in range(9))


def test_a_copy_with_other_names_and_comments():
    copy = re.sub(r"\by", "mine_", LONG).replace("\n", "  # my idea\n\n")
    other = fingerprint([written()])
    pairs = find_alike({"ada": fingerprint([LONG]), "bob": fingerprint([copy]), "eve": other})
    assert [(pair.one, pair.other, pair.overlap) for pair in pairs] == [("ada", "bob", 1.0)]


def test_what_was_handed_out_does_not_count():
    assert fingerprint([LONG], [LONG]) == []
    assert len(fingerprint([LONG + "\nmore = 1 + 2 + 3 + 4"], [LONG])) < 20


def test_what_many_wrote_does_not_count():
    numbers = {f"s{i}": [*range(100), *range(1000 * i, 1000 * i + 40)] for i in range(1, 10)}
    assert find_alike(numbers) == []


def test_too_little_to_compare():
    assert find_alike({"ada": range(LEAST - 1), "bob": range(LEAST - 1)}) == []
    assert find_alike({"ada": range(LEAST), "bob": range(LEAST)})


def test_broken_code_is_compared_as_far_as_it_goes():
    assert fingerprint([LONG + "\n'''", "\0", "(" * 999])
