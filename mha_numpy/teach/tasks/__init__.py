"""The functions that people write, one in a file: task, hints, solution, probes and mistakes.

The solution is attention once more, as a student would write it: plain NumPy, and right. Sizes of
probes are pairwise different, as equal ones hide transposes, and one square case is there for the
mistakes that only a square lets run; upstream gradients are random, biases are not zero, and where
there is a mask, one row sees nothing and one probe has large scores.
"""

from importlib import import_module

from mha_numpy.errors import ConfigError
from mha_numpy.teach.task import Task

# where two mistakes give the same numbers, the first of them is named first
NAMES = [
    "split_heads",
    "merge_heads",
    "make_mask",
    "scores",
    "softmax",
    "softmax_with_lse",
    "attention",
    "one_query",
    "masked_attention",
    "grouped_attention",
    "multi_head",
    "cross_attention",
    "scores_backward",
    "softmax_backward",
    "attention_backward",
    "sum_over_group",
    "grouped_backward",
    "backward_from_lse",
    "linear_backward",
    "input_gradient",
    "multi_head_backward",
    "strongest_keys",
    "dropout_backward",
    "d_head_gate",
    "head_importance",
    "weights_times_norm",
    "prune_heads",
    "rope",
    "rope_backward",
    "online_attention",
    "decode_step",
    "from_gpt2",
    "to_gpt2",
    "cost_table",
    "layer_norm",
    "rms_norm",
    "layer_norm_backward",
    "gelu",
    "gelu_backward",
    "embedding_backward",
    "adam_step",
    "train_steps",
    "train_with_adam",
    "cross_entropy",
    "cross_entropy_backward",
]
TASKS: dict[str, Task] = {name: import_module(f"{__name__}.{name}").TASK for name in NAMES}


def find_task(name: str) -> Task:
    """Return a task by its name, as the variant in force has it; raise a ConfigError if absent."""
    if name not in TASKS:
        raise ConfigError(f"task: expected one of {', '.join(TASKS)}; got {name!r}")
    return TASKS[name].varied()
