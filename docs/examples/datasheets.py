"""Write the datasheets of docs/identify.md: ten functions, and what identify says about each.

python docs/examples/datasheets.py           all of them (about a minute; needs PyTorch and JAX)
python docs/examples/datasheets.py c_port    those of some files
"""

import os
import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from mha_numpy import identify
from mha_numpy.identifying import Datasheet

FOLDER = Path(__file__).parent / "identified"
PAGE = Path(__file__).parents[1] / "identify.md"
FIRST = "mine"  # the file of the page's first command, whose datasheet is there in the open
SHOWN = {  # file: function or class, and a title
    FIRST: ("attention", ""),
    "annotated_transformer": ("attention", "A paper with annotations, in PyTorch"),
    "gpt2_style": ("causal_self_attention", "GPT-2 in NumPy, with one matrix for q, k and v"),
    "torch_head": ("Head", "One head of a small GPT, a module of PyTorch"),
    "einsum_class": ("SelfAttention", "A class of einsums"),
    "class_assignment": ("multi_head_attention", "An assignment"),
    "jax_function": ("dot_product_attention", "A function of JAX"),
    "t5_style": ("t5_attention", "T5: a bias for each distance, and no scale"),
    "grouped_rope": ("attention", "Grouped heads with rotary positions, as in Llama"),
    "flash_loop": ("flash_attention", "Blocks of keys, as in FlashAttention"),
    "c_port": ("attention_forward", "Loops ported from C"),
}  # fmt: skip
PART = r"<!-- datasheet: {} -->\n.*?<!-- end -->\n"  # of the page


def identified(file: str) -> Datasheet:
    """Return the datasheet of the function in a file."""
    spec = spec_from_file_location(file, FOLDER / f"{file}.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError(file)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return identify(getattr(module, SHOWN[file][0]))


def part(file: str) -> str:
    """Return what the page has of a file: its code and its datasheet."""
    os.environ["COLUMNS"] = "100"  # of the terminal
    sheet = identified(file)
    shown = f"```text\n{str(sheet).strip()}\n```\n"
    if file != FIRST:
        code = (FOLDER / f"{file}.py").read_text(encoding="utf-8")
        title = f"<summary><b>{SHOWN[file][1]}</b></summary>"
        answer = f"<details><summary>The datasheet</summary>\n\n{shown}\n</details>"
        shown = f'<details class="row">{title}\n\n```python\n{code}```\n\n{answer}\n</details>\n'
    return f"<!-- datasheet: {file} -->\n{shown}<!-- end -->\n"


def stored(page: str, file: str) -> str:
    """Return what the page has of a file now."""
    return re.search(PART.format(file), page, re.DOTALL)[0]


def main(files: list[str]) -> None:
    """Write the parts of some files, or of all."""
    page = PAGE.read_text(encoding="utf-8")
    for file in files or SHOWN:
        page = page.replace(stored(page, file), part(file))
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
