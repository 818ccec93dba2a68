"""Tables, Markdown, JSON, the report in a page, the chart; from figures made up here."""

import json

import pytest

from mha_numpy.bench import Cell, Fact, Ratio, Results, Settings
from mha_numpy.bench.chart import ratio_chart
from mha_numpy.bench.contestants import CONTESTANTS
from mha_numpy.bench.report import Files, replace_report, sections, to_json, to_markdown
from mha_numpy.errors import ConfigError
from tests.show.pictures.helpers import assert_readable, root_of, texts_in

CELLS = [
    Cell("1,2,5,4", "fwd", "torch", Ratio(2.0, 1.875, 2.25), 0.5, 1.0, 30, 1e-7, 250.5, 0.66, 0.33),
    Cell("1,2,5,4", "fwd+bwd causal", "torch", Ratio(0.5, 0.25, 0.75), 1234.5, 617.0, 5, 1e-7),
    Cell("3,4/2,1,9,8", "fwd", "torch", Ratio(1.0, 1.0, 1.0), 2.0, 2.0, 7, 0.25, 250.5, 0.5, 0.5),
    Cell("1,2,5,4", "fwd", "loops", Ratio(4.0, 4.0, 4.0), 0.6, 2.4, 9, None),
]
FACTS = [
    Fact("import", "mha_numpy", 0.0834, "s"),
    Fact("peak memory", "PyTorch", 1063.2, "MB"),
    Fact("memory", "our NumPy", None, "", "skipped: no account of it"),
]


MACHINE = {"family": "Abacus, beads", "processor": "abacus", "cores": "2"}


def made_up(cells=tuple(CELLS), facts=tuple(FACTS), **settings):
    settings = Settings(ours="numpy", against=("torch", "loops"), threads=2, **settings)
    return Results(settings, MACHINE, list(cells), list(facts))


@pytest.fixture(autouse=True)
def everybody_is_here(monkeypatch):
    for name in ("torch", "loops"):
        monkeypatch.setitem(CONTESTANTS, name, CONTESTANTS[name]._replace(packages=()))


def test_tables():
    summary, torch, fractions, loops, times, facts = sections(made_up())
    assert summary == (
        "mha-numpy bench --ours numpy --against torch,loops --threads 2\n"
        "family Abacus, beads, processor abacus, cores 2"
    )  # fmt: skip
    assert torch.title == "PyTorch: its time / that of our NumPy, median (quartiles)"
    assert torch.columns == ["shape", "fwd", "fwd+bwd causal"]
    assert torch.rows == [
        ["1,2,5,4", "2.00 (1.88-2.25)", "0.50 (0.25-0.75)"],
        ["3,4/2,1,9,8", "RESULTS DIFFER: 2e-01", ""],
    ]
    assert torch.bad_rows == {1}
    assert fractions.title == "Parts of the FMA peak: our NumPy / PyTorch, median"
    assert fractions.rows == [["1,2,5,4", "66% / 33%"]]  # none of what differs or has no peak
    assert loops.rows == [["1,2,5,4", "RESULTS DIFFER: NaN"]]
    assert loops.bad_rows == {0}
    assert times.rows == [["1,2,5,4", "0.5", "1234"], ["3,4/2,1,9,8", "2", ""]]
    assert [row[1:] for row in facts.rows] == [
        ["mha_numpy", "0.0834 s"],
        ["PyTorch", "1063 MB"],
        ["our NumPy", "skipped: no account of it"],
    ]


def test_a_share_above_100_percent_is_marked_and_explained():
    cells = [CELLS[0], CELLS[0]._replace(case="fwd+bwd", ours_fraction=3.68)]
    _, _, fractions, note, *_ = sections(made_up(cells))
    assert fractions.rows == [["1,2,5,4", "66% / 33%", "368% / 33% [1]"]]
    assert note.startswith("[1] Above 100%: ")
    assert f"| 368% / 33% [1] |\n\n{note}\n\n**Time" in to_markdown(made_up(cells))
    for fits in (cells[:1], [cells[0]._replace(other_fraction=1.0)]):
        assert "[1]" not in to_markdown(made_up(fits))


def test_who_is_absent_is_named_with_what_to_install(monkeypatch):
    absent = CONTESTANTS["torch"]._replace(packages=("no_such_package",))
    monkeypatch.setitem(CONTESTANTS, "torch", absent)
    said = list(sections(made_up(cells=[], facts=[])))[1:]
    assert said == [
        "PyTorch is not installed: "
        "pip install torch --index-url https://download.pytorch.org/whl/cpu"
    ]


def test_all_right():
    failed, skipped = (
        Fact("memory", "PyTorch", None, "", f"{why}: x") for why in ("failed", "skipped")
    )
    assert made_up(CELLS[:2], [skipped]).all_right
    for cells, facts in ((CELLS[:3], []), (CELLS[3:], []), (CELLS[:2], [failed])):
        assert not made_up(cells, facts).all_right


def test_markdown():
    text = to_markdown(made_up())
    assert text.startswith(
        "### Abacus, beads\n\n"
        "Measured by `mha-numpy bench --ours numpy --against torch,loops --threads 2` on:\n\n"
        "- processor: abacus\n- cores: 2\n\n"
    )
    assert (
        "| shape | fwd | fwd+bwd causal |\n"
        "| --- | --- | --- |\n"
        "| 1,2,5,4 | 2.00 (1.88-2.25) | 0.50 (0.25-0.75) |\n"
    ) in text
    assert "| import | mha_numpy | 0.0834 s |\n" in text


def test_json():
    read = json.loads(to_json(made_up()))
    assert read["command"] == "mha-numpy bench --ours numpy --against torch,loops --threads 2"
    assert read["machine"] == MACHINE
    assert read["cells"][0] == {
        "shape": "1,2,5,4", "case": "fwd", "other": "torch",
        "ratio": {"median": 2.0, "low": 1.875, "high": 2.25},
        "ours_ms": 0.5, "other_ms": 1.0, "pairs": 30, "difference": 1e-7,
        "peak": 250.5, "ours_fraction": 0.66, "other_fraction": 0.33,
    }  # fmt: skip
    assert read["cells"][3]["difference"] is read["cells"][3]["ours_fraction"] is None
    assert read["facts"][2]["note"] == "skipped: no account of it"
    assert read["settings"]["seconds"] == 2.0


def test_the_command_has_every_option_that_matters():
    settings = Settings(
        ours="numpy", against=("loops",), only="layer 4", threads=3, seconds=0.5, mask=True,
        quick=True,
    )  # fmt: skip
    assert settings.command == (
        "mha-numpy bench --ours numpy --against loops --only 'layer 4' --threads 3 "
        "--seconds 0.5 --mask --quick"
    )


def report_on(family, text):
    return f"<!-- benchmark: {family}: begin -->\n{text}<!-- benchmark: {family}: end -->\n"


ZILOG, BEADS = report_on("Zilog, 8 bits", "old\n"), report_on("Abacus, beads", "older\n")
PAGE = f"above\n\n{ZILOG}\n{BEADS}\nbelow\n"


def test_a_report_replaces_that_on_the_same_family_or_comes_last():
    for family, old in (("Zilog, 8 bits", ZILOG), ("Abacus, beads", BEADS)):
        once = replace_report(PAGE, family, "new\n")
        assert once == PAGE.replace(old, report_on(family, "new\n"))
        assert replace_report(once, family, "new\n") == once
    new = report_on("Zilog, 16 bits", "new\n")
    added = replace_report(PAGE, "Zilog, 16 bits", "new\n")
    assert added == f"above\n\n{ZILOG}\n{BEADS}\n{new}\nbelow\n"


@pytest.mark.parametrize(
    "page",
    [
        "",
        ZILOG.replace("begin", "end"),
        ZILOG.replace("end", "begin"),
        ZILOG.replace("bits: end", "lanes: end"),
        "<!-- benchmark: Zilog, 8 bits: begin -->\n" + BEADS,
        PAGE + PAGE,
    ],
)
def test_a_page_without_a_place_for_the_report(page):
    with pytest.raises(
        ConfigError, match="write: expected a page with reports, one for each FAMILY"
    ):
        replace_report(page, "Abacus, beads", "new\n")


def test_files(tmp_path):
    (tmp_path / "page.md").write_text(PAGE)
    names = ("all.json", "report.md", "page.md", "chart.svg")
    paths = [tmp_path / name for name in names]
    results = made_up()
    assert Files(*paths).save(results) == paths
    assert paths[0].read_text() == to_json(results)
    assert paths[1].read_text() == to_markdown(results)
    assert paths[2].read_text() == replace_report(PAGE, "Abacus, beads", to_markdown(results))
    assert paths[3].read_text().startswith("<svg")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


def test_no_chart_where_nobody_was_compared(tmp_path):
    assert Files(chart=tmp_path / "chart.svg").save(made_up(cells=[])) == []
    assert not list(tmp_path.iterdir())
    with pytest.raises(ConfigError, match="chart: expected a ratio"):
        ratio_chart(made_up(cells=[]))


def bars_of(panel):
    """Return (left, right, token) of all bars, from top to bottom."""
    rects = [e.attrib for e in root_of(panel).iter() if e.attrib.get("class") == "ratio"]
    return [
        (float(at["x"]), float(at["x"]) + float(at["width"]), at["style"].split("--m-")[1][:-1])
        for at in rects
    ]


def test_chart():
    picture = ratio_chart(made_up())
    torch, loops = picture.panels
    assert torch.title == "Time of PyTorch / time of our NumPy: above 1, ours is faster"
    assert loops.title.startswith("Time of our loops / time of our NumPy")
    assert texts_in(torch, "v")[-3:] == ["2", "0.5", "1"]
    assert [text for text in texts_in(torch, "s") if "fwd" in text] == [
        "fwd", "fwd+bwd causal", "fwd",
    ]  # fmt: skip
    assert texts_in(torch, "i") == ["1,2,5,4", "3,4/2,1,9,8"]
    twice, half, same = bars_of(torch)
    one = twice[0]
    assert half[1] == pytest.approx(one, abs=0.2) == same[0] == same[1]
    assert twice[1] - one == pytest.approx(one - half[0], abs=0.2)  # logarithmic
    assert [bar[2] for bar in (twice, half)] == ["fill-x", "plain"]
    assert "PyTorch 0.5 to 2; our loops 4 to 4" in picture.alt
    assert "on Abacus, beads" in picture.alt
    assert picture.title == "Measured on Abacus, beads"
    assert_readable(picture)


def test_a_chart_of_everything_is_readable():
    cases = ["fwd", "fwd causal", "fwd mask", "fwd+bwd", "fwd+bwd causal", "fwd+bwd padding"]
    cases.append("training step")
    shapes = ["1,2,5,4", "layer 1,2,4,2", "AttentionOnlyLM 64,48,64,4,2,32"]
    cells = [
        Cell(shape, case, "torch", Ratio(2 * i, 1, 40), 1, 2, 5, 0.0)
        for i, shape in enumerate(shapes, 1)
        for case in cases
    ]
    picture = ratio_chart(made_up(cells))
    assert_readable(picture)
    assert [text for text in texts_in(picture.panels[0], "s") if text in cases] == cases * 3
