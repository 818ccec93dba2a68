"""The circuit set by hand copies, and each of its heads is needed."""

import numpy as np
import pytest

from mha_numpy.models import induction_by_hand
from mha_numpy.models.analysis import cut_heads, head_patterns
from mha_numpy.models.train.recipes import share_right
from mha_numpy.models.train.tasks import Induction


@pytest.mark.parametrize("sizes", [(32, 48), (40, 21)])
def test_it_copies_by_its_two_heads(sizes):
    model, task = induction_by_hand(*sizes), Induction(*sizes)
    (ids,), targets = task.draw_batch(np.random.default_rng(5), 100)
    assert share_right(model(ids), targets) == 1
    first, second = model.attentions
    assert head_patterns(first.weights, ids)["previous"][0] > 0.999
    assert head_patterns(second.weights, ids)["induction"][0] > 0.999
    for layer in (first, second):
        with cut_heads(layer, 0):
            assert share_right(model(ids), targets) < 0.2
