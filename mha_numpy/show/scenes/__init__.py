"""The story that pages, films and pictures tell: six scenes, forward and back."""

from mha_numpy.show.scenes.scenes import SCENES, Layout, Row, Scene
from mha_numpy.show.scenes.still import Cell, Still, Table, still
from mha_numpy.show.scenes.story import Story, story_of

__all__ = [
    "SCENES",
    "Cell",
    "Layout",
    "Row",
    "Scene",
    "Still",
    "Story",
    "Table",
    "still",
    "story_of",
]
