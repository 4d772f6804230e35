"""Put the committed results into README.md, between its markers: python -m benchmarks.readme

tests/test_readme.py fails where the README and benchmarks/results disagree.
"""

import json
import re
from pathlib import Path

from hydra_core.zero_shot import DEMOS, markdown

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
README = ROOT / "README.md"


def filled(text: str) -> str:
    """`text` with each table between its markers made anew from the results."""
    for name in DEMOS:
        path = RESULTS / f"zero_shot_{name}.json"
        if path.is_file():
            table = markdown(json.loads(path.read_text(encoding="utf-8")))
            start, end = f"<!-- table:{name} -->", f"<!-- /table:{name} -->"
            block = f"{start}\n{table}\n{end}"
            text = re.sub(f"{re.escape(start)}.*?{re.escape(end)}", lambda _, block=block: block, text, flags=re.DOTALL)
    return text


if __name__ == "__main__":
    README.write_text(filled(README.read_text(encoding="utf-8")), encoding="utf-8")
