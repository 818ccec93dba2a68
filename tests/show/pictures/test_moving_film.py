"""The moving film, read back: which way it takes, where cells go, what a file holds."""

import numpy as np
import pytest
from PIL import Image

from mha_numpy.show.pictures import animate
from mha_numpy.show.pictures.moving_film import _came_from, _scene, _way
from tests.show.pictures.helpers import recorded


@pytest.fixture(scope="module")
def layer():
    return recorded(B=2, T=3, D=4, H=2)[0]


def test_the_way_of_the_queries_and_of_their_gradients(layer):
    names = [step.name for step in _way(layer)]
    assert names == [
        "x_q", "q_projected", "q_by_token", "q", "scores", "weights",
        "heads", "heads_by_token", "merged", "out",
        "d_out", "d_merged", "d_heads_by_token", "d_heads", "d_weights", "d_scores", "d_q",
        "d_q_by_token", "d_q_projected", "d_x_q", "d_x",
    ]  # fmt: skip


def test_a_cell_that_moves_keeps_its_number(layer):
    scenes = {step.name: _scene(step, 1, layer.steps, ()) for step in layer}
    for before, after in [("q_by_token", "q"), ("heads", "heads_by_token")]:
        came = _came_from(scenes[before], scenes[after], layer)
        moved = layer[before][1].ravel()[came]
        assert np.array_equal(moved, layer[after][1].ravel())
    assert _came_from(scenes["q"], scenes["scores"], layer) is None


def test_heads_stand_side_by_side_and_tokens_one_below_the_other(layer):
    q = next(step for step in layer if step.name == "q")
    scene = _scene(q, 0, layer.steps, ["a", "b", "c"])
    places = scene.places.reshape(2, 3, 2, 2)  # H, T, d, (x, y)
    assert places[0, :, :, 0].max() < places[1, :, :, 0].min()
    assert (np.diff(places[:, :, :, 1], axis=1) < 0).all()
    assert [token for _, token in scene.rows] == ["a", "b", "c"]
    assert np.allclose([y for y, _ in scene.rows], places[0, :, 0, 1])


def test_the_file_moves_and_has_no_background(layer, tmp_path, monkeypatch):
    monkeypatch.setattr("mha_numpy.show.pictures.moving_film.FRAMES", 2)
    with Image.open(animate(layer, tmp_path / "film.png")) as film:
        assert film.n_frames == 21 + 20
        assert film.info["loop"] == 0
        assert film.convert("RGBA").getpixel((0, 0))[3] == 0
