"""A picture with the weights over its patches, word by word."""

import re
from base64 import b64decode
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from mha_numpy.errors import MhaError
from mha_numpy.show.pictures import weights_over_picture

PICTURE = np.zeros((4, 4, 3))
PICTURE[0, 3] = 0, 0, 1
HEADS = np.array([[[0.0, 1.0, 0.0, 0.0]], [[0.5, 0.5, 0.0, 0.0]]])  # two heads, one word


def test_the_larger_the_weight_the_thinner_the_veil():
    picture = weights_over_picture(PICTURE, HEADS, ["blue"])
    svg = picture.svg(326)
    veils = [float(share) for share in re.findall(r'opacity="([\d.]+)" x', svg)]
    assert veils == [0.55, 0, 0.82, 0.82]  # weights .25, .75, 0, 0
    assert re.findall(r">(\.\d\d)</text>", svg) == [".25", ".75"]
    (file,) = re.findall(r"data:image/png;base64,([^\"]+)", svg)
    pixels = np.array(Image.open(BytesIO(b64decode(file))))
    assert pixels[0, 3].tolist() == [51, 51, 204, 255]
    assert pixels[..., 3].sum() == 255
    assert picture.alt.endswith(
        "As it writes blue, the largest weight is 0.75, on the patch in row 1, column 2."
    )


@pytest.mark.parametrize(
    ("picture", "weights", "words", "message"),
    [
        (PICTURE[:3], HEADS, ["a"], "picture: expected"),
        (PICTURE, HEADS[..., :3], ["a"], "weights: expected"),
        (PICTURE, np.ones((1, 9)), ["a"], "weights: expected"),
        (PICTURE, HEADS, ["a", "b"], "words: expected T_q=1"),
        (2 * PICTURE, HEADS, ["a"], "picture: expected pixels from 0 to 1"),
        (PICTURE, -HEADS, ["a"], "weights: expected numbers between 0 and 1"),
    ],
)
def test_wrong_input(picture, weights, words, message):
    with pytest.raises(MhaError, match=f"^{message}"):
        weights_over_picture(picture, weights, words)
