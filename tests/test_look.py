"""The look can be read: text and marks stand out from what they are on, in light and in dark."""

import re

import pytest

from mha_numpy.look import HEADS, css_tokens, tokens

THEMES = pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])


def luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


@THEMES
@pytest.mark.parametrize("head", range(len(HEADS)))
def test_a_head_can_be_read(head: int, dark: bool) -> None:
    color = {name: both[dark] for name, both in tokens().items()}
    assert contrast(color["ink"], color[f"fill-{head}"]) >= 4.5
    assert contrast(color[f"head-{head}-ink"], color["card"]) >= 4.5
    assert contrast(color[f"head-{head}"], color["card"]) >= 3


@THEMES
def test_text_can_be_read(dark: bool) -> None:
    color = {name: both[dark] for name, both in tokens().items()}
    for ground in ("paper", "card", "sunk"):
        assert contrast(color["ink"], color[ground]) >= 7
        assert contrast(color["soft"], color[ground]) >= 4.5
        assert contrast(color["dim"], color[ground]) >= 4.5
        assert contrast(color["edge"], color[ground]) >= 3
    assert contrast(color["ink"], color["fill-x"]) >= 4.5
    assert contrast(color["plain"], color["card"]) >= 3


def test_css_names_each_color_once() -> None:
    names = re.findall(r"--([\w-]+): light-dark", css_tokens())
    assert sorted(names) == sorted(tokens())
