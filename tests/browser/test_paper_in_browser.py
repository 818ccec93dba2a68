"""White paper is dark where the page is dark: by the system, or by the notebook's theme."""

import pytest

from mha_numpy.show.pictures import Picture
from mha_numpy.tables import Table

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("system", "body", "is_dark"),
    [
        ("light", "<body>", False),
        ("dark", "<body>", True),
        ("dark", "<body data-jp-theme-light=true>", False),
        ("light", "<body data-jp-theme-light=false>", True),
        ("light", "<body class=vscode-dark>", True),
        ("dark", "<body class=vscode-light>", False),
    ],
)
def test_paper(browser, system, body, is_dark):
    page = browser.new_page(color_scheme=system)
    shown = Table("t", ["a"], [["1"]]).to_html() + Picture(figsize=(1, 1))._repr_html_()
    page.set_content(body + shown)
    filters = page.eval_on_selector_all(
        "table, img", "found => found.map(each => getComputedStyle(each).filter)"
    )
    page.close()
    assert [value != "none" for value in filters] == [is_dark, is_dark]
