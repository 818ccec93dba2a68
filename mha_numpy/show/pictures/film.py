"""The film: the story's six scenes one after the other, forward or on the way back."""

from mha_numpy.errors import ConfigError, describe
from mha_numpy.show.pictures.save import Picture
from mha_numpy.show.pictures.stage import draw_names, draw_scene, spoken
from mha_numpy.show.pictures.svg import Drawing
from mha_numpy.show.scenes import Story, still

SECONDS = 20  # of the film
GLANCE = 1  # of these for each scene; the rest is shared out by the length of what is said


class Film(Picture):
    """Scenes of the story; in a file they follow each other, in a notebook all are there."""

    def svg(self, width: int = 0) -> str:
        """Return all scenes in one SVG, of one width: each for as long as its words need, again."""
        whole = Drawing(self.title, self.alt)
        said = [len(scene.desc) for scene in self.panels]
        rest = (SECONDS - GLANCE * len(said)) / sum(said)
        shares = [(GLANCE + rest * length) * 100 / SECONDS for length in said]
        whole.style = (
            "".join(
                f"@keyframes mha-scene-{i} {{ 0%, {share - 1:.1f}% {{ opacity: 1; }} "
                f"{share:.1f}%, 99% {{ opacity: 0; }} 100% {{ opacity: 1; }} }}"
                for i, share in enumerate(shares)
            ) + f".mha-picture .scene {{ opacity: 0; animation: {SECONDS}s linear infinite; }}"
            ".mha-picture .first { opacity: 1; }"
            "@media (prefers-reduced-motion: reduce) { .mha-picture .scene { animation: none; } }"
        )  # fmt: skip
        for i, scene in enumerate(self.panels):
            whole.used |= scene.used
            whole.defs += [each for each in scene.defs if each not in whole.defs]
            start = SECONDS * (sum(shares[:i]) / 100 - 1)
            style = f"animation-name:mha-scene-{i};animation-delay:{start:.2f}s"
            look = f'class="scene{" first" * (i == 0)}"'
            body = f'<g {look} style="{style}">{"".join(scene.parts)}</g>'
            whole.add(body, scene.width, scene.height)
        return whole.svg()


def film(story: Story, *, back: bool = False) -> Film:
    """Draw the six scenes of the story: what becomes of the words, or of a goal on the way back.

    Parameters
    ----------
    story : Story
        From `mha_numpy.show.scenes.story_of`.
    back : bool
        The way back, from the goal to the words.

    Returns
    -------
    Film
        A notebook shows all scenes. `save_figure` writes one SVG in which they follow each other,
        in 20 seconds; who wants less motion sees the first.

    Examples
    --------
    >>> from mha_numpy.show.scenes import story_of
    >>> from mha_numpy.show.walk import walk
    >>> seen = walk()
    >>> story = story_of(seen.trace, tokens=seen.tokens, meaning=seen.meaning)
    >>> [panel.title for panel in film(story).panels][:3]
    ['Words become numbers', 'One row becomes three', 'Asking meets offering']
    """
    if not isinstance(story, Story):
        raise ConfigError(f"story: expected a Story of story_of(trace, ...); got {describe(story)}")
    order = list(enumerate(story.scenes))[:: -1 if back else 1]
    panels = []
    for place, (_, scene) in enumerate(order):
        shown = still(story, scene.id, back=back)
        words = spoken(shown.text, is_last=place == len(order) - 1)
        panels.append(draw_scene(shown, words=words, is_back=back))
    bottom = max(panel.height for panel in panels) + 22
    for (number, _), panel in zip(order, panels, strict=True):
        draw_names(panel, story, number, bottom)
    sentence = " ".join(story.tokens)
    title = f"From a goal back to the words: {sentence}" if back else f"Six scenes: {sentence}"
    alt = f"{title}. " + " ".join(f"{panel.title}: {panel.desc}" for panel in panels)
    return Film(panels, alt=alt, title=title, notes=[story.note])
