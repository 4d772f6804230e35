"""How long after a click on a head do the new numbers stand on the page? demo/vit, a real server and Chromium.

    python -m benchmarks.toggle [--toggles 20]

Each toggle makes a mask that was never seen, so its logits on 256 ID and 256 OOD samples are computed. Timed in the
browser: from the click to the first frame in which the member's and the ensemble's rows of the live table have
changed. Then twenty clicks as fast as the mouse goes: the stored masks must equal them. Heads of all layers take
turns: one of the first layer runs the whole network, one of the last only that layer.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect, sync_playwright

from benchmarks.common import machine, write_results
from hydra_core.markdown import markdown_table
from hydra_core.study import Study, StudyConfig
from tests.browser.conftest import CHROMIUM, FLAGS, SLOW, head, serve, settled

LAYERS, HEADS = 6, 6
WAIT_MS = 5_000

# Resolves to the milliseconds from the click to the frame that shows other numbers in both rows; null after WAIT_MS.
TIMED_CLICK = """
([name, wait]) => new Promise((resolve) => {
    const buttons = [];
    const search = (root) => { for (const one of root.querySelectorAll('*')) {
        if (one.matches('button.head')) buttons.push(one);
        if (one.shadowRoot) search(one.shadowRoot); } };
    search(document);
    const of = (title) => [...document.querySelectorAll('tr')]
        .filter((row) => row.cells[0]?.innerText.trim() === title).map((row) => row.innerText).join();
    const member = 'Member ' + name.match(/member (\\d+)/)[1];
    const before = [of(member), of('Ensemble')];
    const begin = performance.now();
    const look = () => {
        const after = [of(member), of('Ensemble')], spent = performance.now() - begin;
        if (after.every((text, i) => text && text !== before[i])) resolve(spent);
        else if (spent > wait) resolve(null);
        else requestAnimationFrame(look);
    };
    buttons.find((one) => one.getAttribute('aria-label') === name).click();
    requestAnimationFrame(look);
})
"""


def toggles(page: Page, count: int) -> list[dict[str, Any]]:
    """Time `count` toggles of member 0, each a head that is still kept."""
    rows = []
    for i in range(count):
        layer, number = i % LAYERS, (i // LAYERS + i) % HEADS
        spent = page.evaluate(TIMED_CLICK, [f"member 0, layer {layer}, head {number}", WAIT_MS])
        rows.append({"layer": layer, "head": number, "milliseconds": spent})
        settled(page)
    return rows


def fast_clicks(page: Page, study: Study, count: int = 20) -> int:
    """Click `count` heads of member 1 without waiting; how many of them the stored masks lack."""
    places = [(i % LAYERS, i // LAYERS) for i in range(count)]
    for layer, number in places:
        head(page, 1, layer, number).click(no_wait_after=True)
    page.wait_for_timeout(1000)
    settled(page)
    masks = study.active_masks
    assert masks is not None
    return len(set(places) ^ (masks[1].complement().kept))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toggles", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        studies = Path(scratch) / "studies"
        studies.mkdir()
        config = StudyConfig("demo/vit", "demo/fashion-mnist", {"mnist": "demo/mnist"})
        study = Study.create(studies, "toggle", config)
        server = serve(studies, Path(scratch) / "server.log")
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
                page = browser.new_page(viewport={"width": 1440, "height": 900})
                page.goto(f"{server.url}/members?study={study.name}")
                page.get_by_role("button", name="Begin with three members").click(timeout=SLOW)
                expect(page.get_by_text("Quick sample, n = 256 ID + 256 OOD")).to_be_visible(timeout=SLOW)
                settled(page)
                head(page, 2, 0, 0).click()  # warms up: the first toggle of a session
                settled(page)
                rows = toggles(page, arguments.toggles)
                lost = fast_clicks(page, study)
                browser.close()
        finally:
            server.stop()
    known = [row["milliseconds"] for row in rows if row["milliseconds"] is not None]
    if not known:
        raise SystemExit("no toggle changed the numbers on the page: nothing to report")
    results = {
        "machine": machine(), "toggles": rows, "median_ms": statistics.median(known), "slowest_ms": max(known),
        "unseen": len(rows) - len(known), "fast_clicks_lost": lost,
    }  # fmt: skip
    table = [[str(r["layer"]), str(r["head"]), "none" if r["milliseconds"] is None else f"{r['milliseconds']:.0f}"]
             for r in rows]  # fmt: skip
    print(markdown_table(["layer", "head", "ms to new numbers"], table, numbers_from=0))
    print(
        f"\nMedian of {len(known)} toggles {results['median_ms']:.0f} ms, slowest {results['slowest_ms']:.0f} ms; "
        f"{results['unseen']} without a change of the numbers; of 20 fast clicks {lost} lost."
    )
    print(f"Written to {write_results('toggle', results)}", file=sys.stderr)


if __name__ == "__main__":
    main()
