"""read_roster: what spreadsheets write, and ids that cannot be."""

import pytest

from mha_numpy.errors import ConfigError
from mha_numpy.teach.classroom import read_roster


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s1,Ada\ns2,Emmy\n", {"s1": "Ada", "s2": "Emmy"}),
        ("\ufeffid,name\r\ns1,Ada\r\n\r\n", {"s1": "Ada"}),
        ("ID;Name\ns1;Noether, Emmy\n", {"s1": "Noether, Emmy"}),
        ("group,name,id\nA,Émilie,e.du@uni.fr\n", {"e.du@uni.fr": "Émilie"}),
        ('id,name\ns1,"Noether, Emmy"\ns2\n', {"s1": "Noether, Emmy", "s2": ""}),
        ("id\n 007 \n", {"007": ""}),
        ('s1,"Ada\r\nLovelace"\n', {"s1": "Ada Lovelace"}),
    ],
)
def test_what_spreadsheets_write(tmp_path, text, expected):
    path = tmp_path / "ids.csv"
    path.write_bytes(text.encode())
    assert read_roster(path) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected an id and a name in each line; .* has none"),
        ("id,name\n", "has none"),
        ("id,name\n,Ada\n", "expected an id; .*line 2 has none"),
        ("name,id\nAda\n", "expected an id; .*line 2 has none"),
        ("s1,Ada\ns1,Emmy\n", "each id once; .*line 2 has 's1' after 's1'"),
        ("Ada,1\nada,2\n", "'ada' after 'Ada'"),
        ("../x,Ada\n", r"line 1 has '\.\./x'; write letters"),
        ("a\\b,Ada\n", "can be the name of a folder"),
        ("..,Ada\n", "can be the name of a folder"),
        ("-rf,Ada\n", "can be the name of a folder"),
        ("a|b,Ada\n", "can be the name of a folder"),
        ("all,Ada\n", "can be the name of a folder"),
        ("NUL.x,Ada\n", "can be the name of a folder"),
        ("a\x07,Ada\n", "can be the name of a folder"),
        ("x" * 101 + ",Ada\n", "can be the name of a folder"),
        (b"s1,\xff\n", "expected text in UTF-8"),
        ('s1,Ada\ns2,"Emmy\ns3,Bob\n', "line 2: .*quote"),
    ],
)
def test_ids_that_cannot_be(tmp_path, text, message):
    path = tmp_path / "ids.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=f"roster: .*{message}"):
        read_roster(path)


def test_no_roster(tmp_path):
    with pytest.raises(ConfigError, match=r"roster: cannot read .*none\.csv: No such file"):
        read_roster(tmp_path / "none.csv")
