"""Stories that tests of scenes and of the page in a browser share."""

from mha_numpy.show.scenes import story_of
from mha_numpy.show.walk.page import record


def told(seen, change=None):
    """Return the story of a walk; `change` gets its layer's inputs before the walk is recorded."""
    inputs = {name: x.copy() for name, x in seen.inputs.items()}
    if change:
        change(inputs)
    changed = type(seen)(**{**vars(seen), "inputs": inputs})
    return story_of(
        record(changed), tokens=seen.tokens, source_tokens=seen.source_tokens, meaning=seen.meaning
    )
