"""Put the committed results into README.md, between its markers: python -m benchmarks.readme

tests/test_readme.py fails where the README and benchmarks/results disagree.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from benchmarks.fusion import fusion_table
from benchmarks.headmap import headmap_text
from benchmarks.racing import racing_table
from hydra_core.zero_shot import DEMOS, markdown

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
README = ROOT / "README.md"


def blocks() -> Iterator[tuple[str, str]]:
    """Name of each marked block that there are results for, and its text."""
    for name in DEMOS:
        path = RESULTS / f"zero_shot_{name}.json"
        if path.is_file():
            yield f"table:{name}", markdown(json.loads(path.read_text(encoding="utf-8")))
        circuits = RESULTS / f"faithfulness_{name}.md"
        if circuits.is_file():
            yield f"faithfulness:{name}", circuits.read_text(encoding="utf-8").strip()
        tuned = RESULTS / f"finetuned_{name}.md"
        if tuned.is_file():
            yield f"finetuned:{name}", tuned.read_text(encoding="utf-8").strip()
    if (RESULTS / "fusion.json").is_file():
        yield "speed", fusion_table(json.loads((RESULTS / "fusion.json").read_text(encoding="utf-8"))["rows"])
    yield "racing", racing_table(json.loads((RESULTS / "racing.json").read_text(encoding="utf-8")))
    yield "headmap", headmap_text(json.loads((RESULTS / "headmap.json").read_text(encoding="utf-8"))["headmap"])


def filled(text: str) -> str:
    """`text` with each block between its markers made anew from the results."""
    for name, block in blocks():
        start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        whole = f"{start}\n{block}\n{end}"
        text = re.sub(f"{re.escape(start)}.*?{re.escape(end)}", lambda _, whole=whole: whole, text, flags=re.DOTALL)
    return text


if __name__ == "__main__":
    README.write_text(filled(README.read_text(encoding="utf-8")), encoding="utf-8")
