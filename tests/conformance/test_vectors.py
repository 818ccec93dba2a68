"""The files, read as somebody reads them who has only the README."""

import hashlib
import json

import jsonschema
import numpy as np
import pytest

from mha_numpy.conformance import VERSION, cases, solve, write_vectors
from mha_numpy.conformance.words import WORDS
from mha_numpy.errors import ConfigError, FileError

# Other contents are another version: raise VERSION in mha_numpy/conformance/cases.py, and write the
# hash that the test computes to the right of it.
HASHES = {1: "966c2e94006f242ddd5716c479c2316c8c29f87ab95c26b4e79c864562de6c9d"}
ODD = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_vectors(tmp_path_factory.mktemp("vectors")).parent


def read(path):
    """Read JSON without what Python alone understands."""

    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


def listed(folder):
    return read(folder / "manifest.json")["cases"]


def array_of(value):
    """Return what README says that an ARRAY is; other options as they are."""
    if not isinstance(value, dict):
        return value
    data = [ODD.get(number, number) for number in value["data"]]
    return np.array(data, value["dtype"]).reshape(value["shape"])


def arrays_of(case):
    parts = case["inputs"] | case["options"] | {"d_out": case["d_out"]} | case["expected"]
    return {name: array_of(value) for name, value in parts.items()}


def test_all_files_follow_the_schema(folder):
    schema = read(folder / "schema.json")
    jsonschema.Draft202012Validator.check_schema(schema)
    follows = jsonschema.Draft202012Validator(schema).is_valid
    files = [folder / "manifest.json", *(folder / entry["json"] for entry in listed(folder))]
    assert [file.name for file in files if not follows(read(file))] == []
    assert {*files} == {*folder.rglob("*.json")} - {folder / "schema.json"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("inputs", "q", "data", 0), "nan"),
        (("inputs", "q", "dtype"), "float128"),
        (("inputs", "q"), {"dtype": "float64", "data": []}),
        (("options", "is_causal"), 1),
        (("options", "causal"), True),
        (("expected", "d_x"), 0),
        (("conventions", "mask"), "1 = attend"),
        (("name",), "a/b"),
    ],
)
def test_the_schema_rejects_what_is_wrong(folder, path, value):
    case = read(folder / "cases" / "causal.json")
    *parents, last = path
    place = case
    for name in parents:
        place = place[name]
    place[last] = value
    assert not jsonschema.Draft202012Validator(read(folder / "schema.json")).is_valid(case)


def test_json_and_npz_have_the_numbers_of_the_cases(folder):
    for case, entry in zip(cases(), listed(folder), strict=True):
        by_json = arrays_of(read(folder / entry["json"]))
        with np.load(folder / entry["npz"], allow_pickle=False) as file:
            by_npz = {name: file[name] for name in file.files}
        parts = {**case.inputs, **case.options, "d_out": case.d_out, **solve(case)}
        assert by_json.keys() == by_npz.keys() == parts.keys()
        for name, array in parts.items():
            if name == "window":
                assert by_json[name] == [*array]
                array = [-1 if side is None else side for side in array]
                by_json[name] = array
            for other in (by_json[name], by_npz[name]):
                assert np.array_equal(other, array, equal_nan=np.asarray(array).dtype.kind == "f")
                assert np.asarray(other).dtype == np.asarray(array).dtype


def test_the_manifest_explains_every_word(folder):
    manifest = read(folder / "manifest.json")
    assert manifest["words"] == WORDS
    used = {
        (name, word) for entry in manifest["cases"] for name, word in entry["conventions"].items()
    }
    assert all(word in manifest["words"][name] for name, word in used)
    assert {name for name, _ in used} == {*WORDS}
    alignments = {word for name, word in used if name == "causal_alignment"}
    assert alignments == {*WORDS["causal_alignment"]}
    readme = (folder / "README.md").read_text(encoding="utf-8")
    named = {name for entry in manifest["cases"] for name in entry["arguments"]}
    assert [name for name in named if name not in readme] == []


def test_names_are_distinct_also_where_case_does_not_count():
    assert len({case.name.lower() for case in cases()}) == len(cases())


def test_every_run_writes_the_same_bytes_and_less_than_two_megabytes(folder, tmp_path):
    write_vectors(tmp_path / "again")
    again = write_vectors(tmp_path / "again").parent  # also into a folder of its own
    files = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.*")}
    others = {path.relative_to(again): path.read_bytes() for path in again.rglob("*.*")}
    assert files == others
    assert sum(map(len, files.values())) < 2_000_000


def test_other_contents_are_another_version(folder):
    """To nine digits, because another processor may round the last ones otherwise."""
    contents = []
    for entry in listed(folder):
        case = read(folder / entry["json"])
        expected = {name: array_of(x) for name, x in case.pop("expected").items()}
        rounded = {name: (x.round(9) + 0.0).tolist() for name, x in expected.items()}
        contents.append([entry, case, rounded])
    text = json.dumps([contents, WORDS], sort_keys=True)
    assert hashlib.sha256(text.encode()).hexdigest() == HASHES[VERSION]


def test_a_folder_with_other_files_stays_as_it_is(tmp_path):
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(ConfigError, match=r"folder: expected a new or empty one; .* has other"):
        write_vectors(tmp_path)
    with pytest.raises(ConfigError, match="folder: expected"):
        write_vectors(tmp_path / "README.md")
    with pytest.raises(FileError, match="folder: cannot write"):
        write_vectors(tmp_path / "README.md" / "below")
    assert (tmp_path / "README.md").read_text() == "mine"


def test_the_program_writes_them(tmp_path, program):
    done = program("vectors", "--out", tmp_path / "new")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"wrote {len(cases())} cases; ")
    assert (tmp_path / "new" / "cases" / "plain.npz").exists()
    assert program("vectors", "--out", tmp_path).err.startswith("mha-numpy vectors: folder: ")
