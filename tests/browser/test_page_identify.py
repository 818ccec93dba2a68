"""The datasheet as its readers see it: on a desk, on a phone, on paper."""

import pytest

from tests.identifying.test_page import SHEET, named

pytestmark = pytest.mark.slow

LONG = "attention_with_a_very_long_name_" * 4


@pytest.mark.parametrize("sheet", [SHEET, named(LONG)], ids=["short", "long"])
@pytest.mark.parametrize("width", [320, 390, 768, 1280, 680])
def test_nothing_scrolls_sideways(visit, tmp_path, sheet, width):
    file = tmp_path / "page.html"
    file.write_text(sheet.to_html(), encoding="utf-8")
    page = visit(file.as_uri(), file.as_uri(), viewport={"width": width, "height": 900})
    page.emulate_media(media="print" if width == 680 else "screen")  # a sheet of A4
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("h2").first.inner_text() == "What looks like a mistake"
