"""Deep links on a fresh server, a path prefix, one backbone in memory, two sessions that do not mix."""

from collections.abc import Callable

from playwright.sync_api import Browser, Page, expect

from hydra_core.masks import HeadMask
from hydra_core.study import Study, StudyConfig
from tests.browser.conftest import SLOW, Server, check_page, choose, head, job_done, settled, visit

VIT = StudyConfig("demo/vit", "demo/fashion-mnist", {"mnist": "demo/mnist"}, limit=60)


def test_b32_behind_a_path_prefix_assets_load(page: Page, start_server: Callable[..., Server]) -> None:
    server = start_server("--server.baseUrlPath=hydra", path="/hydra")
    missing: list[str] = []
    page.on("response", lambda answer: missing.append(answer.url) if answer.status >= 400 else None)
    study = Study.create(server.studies, "prefix", VIT)
    page.goto(f"{server.url}/")
    expect(page.get_by_role("button", name="Open the demo study")).to_be_visible(timeout=SLOW)
    page.goto(f"{server.url}/members?study={study.name}")
    page.get_by_role("button", name="Begin with three members").click(timeout=SLOW)
    expect(head(page, 0, 0, 0)).to_be_visible(timeout=SLOW)
    head(page, 0, 0, 0).click()
    settled(page)
    visit(page, "Export")
    # Streamlit itself asks for its health page beside the page's own address before it knows the prefix.
    assert [url for url in missing if "_stcore/" not in url] == []


def test_a_deep_link_on_a_fresh_server_restores_the_study(page: Page, start_server: Callable[..., Server]) -> None:
    server = start_server()
    study = Study.create(server.studies, "deep", VIT)
    study.save_masks("current", [HeadMask([[True] * 6] * 6).without([(1, 2)])] * 2, "unknown weights")
    page.goto(f"{server.url}/members?study=deep")
    expect(page.get_by_role("heading", level=1, name="Members")).to_be_visible(timeout=SLOW)
    expect(head(page, 1, 1, 2)).to_have_attribute("aria-pressed", "false", timeout=SLOW)
    settled(page)
    links = page.get_by_test_id("stSidebarNav").get_by_role("link").all_inner_texts()
    names = [text.splitlines()[-1] for text in links]
    assert names[:8] == [
        "Start", "Model & data", "Head importance", "Circuits", "Members", "Fuse", "Evaluate", "Export",
    ]  # fmt: skip
    # The name stays in the address from page to page, so any page can be reloaded or sent to somebody.
    visit(page, "Export")
    assert page.evaluate("location.pathname") == "/export"
    assert page.evaluate("location.search") == "?study=deep"


def test_b29_one_backbone_in_memory_and_no_number_of_the_old_one(
    page: Page, start_server: Callable[..., Server]
) -> None:
    server = start_server()
    Study.create(server.studies, "old", VIT)
    page.goto(f"{server.url}/members?study=old")
    page.get_by_role("button", name="Begin with three members").click(timeout=SLOW)
    expect(head(page, 0, 0, 0)).to_be_visible(timeout=SLOW)
    for i in range(10):
        head(page, i % 3, i % 6, (2 * i) % 6).click()
        settled(page)
    visit(page, "Model & data")
    page.get_by_role("button", name="Measure the full model").click()
    job_done(page, "The full model is measured on")
    expect(page.get_by_text("Backbones in memory: 1.")).to_be_visible(timeout=SLOW)
    expect(page.get_by_text("demo/vit (vit, 10 classes)")).to_be_visible()
    old = page.get_by_test_id("stMetricValue").all_inner_texts()

    page.get_by_text("Another backbone or other data").click()
    choose(page, "Demo", "demo/clip")
    page.get_by_label("Name of the study").fill("new")
    page.get_by_label("Name of the study").press("Enter")
    page.get_by_role("spinbutton", name="Samples of each set").fill("60")
    page.get_by_role("spinbutton", name="Samples of each set").press("Enter")
    settled(page)
    page.get_by_role("button", name="Start this study").click()
    expect(page.get_by_text("demo/clip (clip, 10 classes)")).to_be_visible(timeout=2 * SLOW)
    job_done(page, "The full model is measured on")
    expect(page.get_by_text("Backbones in memory: 1.")).to_be_visible(timeout=SLOW)
    new = page.get_by_test_id("stMetricValue").all_inner_texts()
    assert new[0] != old[0]  # layers x heads
    assert Study.open(server.studies / "new").prediction_models() == ["full"]
    # What was not computed for the new backbone is said to be missing, not shown from the old one.
    visit(page, "Members")
    expect(page.get_by_role("button", name="Begin with three members")).to_be_visible(timeout=SLOW)
    visit(page, "Evaluate")
    assert "Fused ensemble" not in page.locator("body").inner_text()


def test_two_sessions_on_one_backbone_keep_their_own_masks(chromium: Browser, server: Server) -> None:
    pages = []
    for name in ("session-a", "session-b"):
        Study.create(server.studies, name, VIT)
        context = chromium.new_context(viewport={"width": 1440, "height": 900})
        page = context.new_page()
        page.goto(f"{server.url}/members?study={name}")
        page.get_by_role("button", name="Begin with three members").click(timeout=SLOW)
        expect(head(page, 0, 0, 0)).to_be_visible(timeout=SLOW)
        settled(page)
        pages.append(page)
    a, b = pages
    head(a, 0, 0, 0).click()
    head(b, 0, 0, 1).click()
    head(a, 0, 0, 2).click()
    for page in pages:
        settled(page)
        check_page(page)
    kept = {name: Study.open(server.studies / name).active_masks for name in ("session-a", "session-b")}
    full = HeadMask([[True] * 6] * 6)
    assert kept == {
        "session-a": [full.without([(0, 0), (0, 2)]), full, full],
        "session-b": [full.without([(0, 1)]), full, full],
    }
    for page in pages:
        page.context.close()


def test_a_job_shows_progress_and_is_cancelled(page: Page, server: Server) -> None:
    config = StudyConfig("demo/vit", "demo/fashion-mnist", {"mnist": "demo/mnist"})
    study = Study.create(server.studies, "cancel", config)
    page.goto(f"{server.url}/circuits?study=cancel")
    page.get_by_role("button", name="Find the circuit of the task loss").click(timeout=SLOW)
    page.get_by_role("button", name="Cancel", exact=True).click(timeout=SLOW)
    expect(page.get_by_text("cancelled. The study is as it was before.")).to_be_visible(timeout=SLOW)
    settled(page)
    assert study.circuits() == {}
