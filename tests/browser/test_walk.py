"""The eight places on the demo ViT with real clicks and a reload in the middle; pictures go to test-results/."""

import io
import json
import zipfile
from pathlib import Path

from playwright.sync_api import Page, expect

from hydra_core.study import Study
from tests.browser.conftest import SLOW, Server, check_page, choose, head, job_done, picture, settled, visit


def test_walk_through_the_eight_places(page: Page, server: Server, tmp_path: Path) -> None:
    # Start
    page.goto(server.url)
    expect(page.get_by_role("heading", level=1, name="Hydra studio")).to_be_visible(timeout=SLOW)
    settled(page)
    picture(page, "walk-1-start")

    # Model & data: a small study of its own, so that every step is really computed here.
    visit(page, "Model & data")
    page.get_by_label("Name of the study").fill("walk")
    page.get_by_label("Name of the study").press("Enter")
    page.get_by_role("spinbutton", name="Samples of each set").fill("200")
    page.get_by_role("spinbutton", name="Samples of each set").press("Enter")
    settled(page)
    page.get_by_role("button", name="Start this study").click()
    expect(page.get_by_role("heading", name="The full model on the test data")).to_be_visible(timeout=4 * SLOW)
    job_done(page, "The full model is measured on")
    expect(page.get_by_text("n = 200 ID test samples")).to_be_visible()
    expect(page.locator('[data-testid="stImage"] img').first).to_be_visible()
    picture(page, "walk-2-model-data")
    study = Study.open(server.studies / "walk")
    assert study.prediction_models() == ["full"]

    # Head importance
    visit(page, "Head importance")
    page.get_by_role("button", name="Compute Taylor scores").click()
    job_done(page, "Scores 'taylor' on")
    expect(page.get_by_text("n = 200 validation samples")).to_be_visible(timeout=SLOW)
    click_cell(page, layer=3, number=2)
    expect(page.get_by_label("Head", exact=True)).to_have_value("layer 3, head 2")
    expect(page.get_by_text("What happens without it")).to_be_visible()
    settled(page)
    picture(page, "walk-3-head-importance")

    # Circuits
    visit(page, "Circuits")
    page.get_by_role("button", name="Find the circuit of the task loss").click()
    job_done(page, "Circuit 'loss'")
    choose(page, "Objective", "OOD detection (AUROC)")
    page.get_by_role("button", name="Search", exact=True).click()
    job_done(page, "Circuit 'ood_auroc mnist'")
    assert set(study.circuits()) == {"loss", "ood_auroc mnist"}
    picture(page, "walk-4-circuits")
    page.get_by_role("button", name="Make 2 members of these circuits").click()
    settled(page)

    # Members, with a reload in the middle
    visit(page, "Members")
    expect(head(page, 1, 0, 0)).to_be_visible(timeout=SLOW)
    before = study.active_masks
    assert before is not None
    assert len(before) == 2
    head(page, 0, 2, 1).click()
    settled(page)
    page.reload()
    expect(head(page, 0, 2, 1)).to_be_visible(timeout=SLOW)
    settled(page)
    assert study.active_masks == [before[0].toggle(2, 1), before[1]]
    expect(page.get_by_text("Quick sample, n = 200 ID + 200 OOD (mnist)")).to_be_visible()
    picture(page, "walk-5-members")

    # Fuse
    visit(page, "Fuse")
    page.get_by_role("button", name="Fuse 2 members").click()
    job_done(page, "2 members fused")
    expect(page.get_by_text("Largest difference")).to_be_visible()
    check = json.loads(study.get("fusion", "check") or "{}")
    assert max(check["masked_fused"]) < 1e-4
    page.get_by_role("button", name="Time it").click()
    job_done(page, "Timed at batch")
    expect(page.get_by_text("Operations say")).to_be_visible()
    picture(page, "walk-6-fuse")

    # Evaluate
    visit(page, "Evaluate")
    expect(page.get_by_text("Fused ensemble, n = 200 ID and 200 mnist test samples")).to_be_visible(timeout=SLOW)
    expect(page.locator(".js-plotly-plot")).to_have_count(2)
    slider = page.get_by_role("slider", name="Confidence bins")
    slider.focus()
    slider.press("ArrowLeft")
    expect(page.get_by_text("14 equal-width bins, top label")).to_be_visible(timeout=SLOW)
    settled(page)
    picture(page, "walk-7-evaluate")

    # Export
    visit(page, "Export")
    with page.expect_download() as masks:
        page.get_by_role("button", name="Download the masks (JSON)").click()
    data = json.loads(Path(masks.value.path()).read_text())
    assert [[list(row) for row in mask.keep] for mask in study.active_masks or []] == [
        m["keep"] for m in data["members"]
    ]
    with page.expect_download(timeout=SLOW) as model:
        page.get_by_role("button", name="Download the fused model (zip)").click()
    names = zipfile.ZipFile(io.BytesIO(Path(model.value.path()).read_bytes())).namelist()
    assert {name.split("/")[-1] for name in names} >= {"config.json", "model.safetensors", "README.md"}
    expect(page.get_by_text("import hydra_core as hydra")).to_be_visible()
    picture(page, "walk-8-export")
    check_page(page)


def click_cell(page: Page, *, layer: int, number: int) -> None:
    """Click the middle of a heatmap's cell (6 x 6)."""
    plot = page.locator(".js-plotly-plot .nsewdrag").first
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] * (number + 0.5) / 6, box["y"] + box["height"] * (layer + 0.5) / 6
    page.mouse.move(x, y)
    page.wait_for_timeout(300)
    page.mouse.click(x, y)


def test_one_click_opens_the_demo_study_on_its_ensemble(page: Page, server: Server) -> None:
    page.goto(server.url)
    page.get_by_role("button", name="Open the demo study").click(timeout=SLOW)
    expect(page.get_by_role("heading", level=1, name="Evaluate")).to_be_visible(timeout=20_000)
    expect(page.get_by_text("Fused ensemble, n = ")).to_be_visible(timeout=20_000)
    expect(page.locator(".js-plotly-plot").first).to_be_visible(timeout=20_000)
    settled(page)
    assert page.locator(".js-plotly-plot").count() >= 2
    assert "study=demo-vit" in page.evaluate("location.search")
    picture(page, "demo-evaluate")
