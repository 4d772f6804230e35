"""B26, B27, B28: a click toggles its head, no fast click is lost, masks outlive a page change and a reload."""

import json
import re
from pathlib import Path

from playwright.sync_api import Page, expect

from hydra_core.study import Study
from tests.browser.conftest import SLOW, Server, head, settled, visit


def open_members(page: Page, server: Server, study: Study) -> None:
    page.goto(f"{server.url}/members?study={study.name}")
    page.get_by_role("button", name="Begin with three members").click(timeout=SLOW)
    expect(head(page, 2, 0, 0)).to_be_visible(timeout=SLOW)
    settled(page)


def cut(study: Study, member: int) -> set[tuple[int, int]]:
    """Heads that the stored masks cut."""
    masks = study.active_masks
    assert masks is not None
    rows = enumerate(masks[member].keep)
    return {(layer, number) for layer, row in rows for number, keep in enumerate(row) if not keep}


def test_b26_a_click_toggles_that_head_alone(page: Page, server: Server, vit_study: Study) -> None:
    open_members(page, server, vit_study)
    expect(head(page, 1, 2, 3)).to_have_attribute("aria-pressed", "true")
    head(page, 1, 2, 3).click()
    expect(head(page, 1, 2, 3)).to_have_attribute("aria-pressed", "false")
    settled(page)
    assert [cut(vit_study, member) for member in range(3)] == [set(), {(2, 3)}, set()]
    assert page.locator('button[aria-pressed="false"].head').count() == 1
    head(page, 1, 2, 3).click()
    settled(page)
    assert cut(vit_study, 1) == set()
    expect(head(page, 1, 2, 3)).to_have_attribute("aria-pressed", "true")


def test_b27_no_click_is_lost_however_fast(page: Page, server: Server, vit_study: Study) -> None:
    open_members(page, server, vit_study)
    a, b, c = ((0, 0, 0), (0, 1, 1), (1, 2, 2))
    # In one go in the browser: faster than any hand, so several clicks fall into one run of the script.
    fast = """(names) => { const all = [];
        const search = (root) => { for (const element of root.querySelectorAll('*')) {
            if (element.matches('button.head')) all.push(element);
            if (element.shadowRoot) search(element.shadowRoot); } };
        search(document);
        for (const name of names) all.find((one) => one.getAttribute('aria-label') === name).click(); }"""
    names = [f"member {m}, layer {layer}, head {h}" for m, layer, h in (a, b, c, c)]
    page.evaluate(fast, names)
    settled(page)
    page.wait_for_timeout(500)
    settled(page)
    assert [cut(vit_study, member) for member in range(3)] == [{(0, 0), (1, 1)}, set(), set()]
    # With the mouse, without waiting between the clicks.
    for _ in range(3):
        for place in (a, b, c, c):
            head(page, *place).click(no_wait_after=True)
    page.wait_for_timeout(500)
    settled(page)
    # Sixth and second toggles of a and b make them kept again: 1 + 3 toggles each.
    assert [cut(vit_study, member) for member in range(3)] == [set(), set(), set()]
    assert page.locator('button[aria-pressed="false"].head').count() == 0


def test_a_long_burst_equals_its_clicks(page: Page, server: Server, vit_study: Study) -> None:
    open_members(page, server, vit_study)
    cells = [(0, layer, number) for layer in range(4) for number in range(5)]
    for i, place in enumerate(cells):
        head(page, *place).click(no_wait_after=True)
        if i % 3 == 0:
            head(page, *place).click(no_wait_after=True)
    page.wait_for_timeout(500)
    settled(page)
    assert cut(vit_study, 0) == {place[1:] for i, place in enumerate(cells) if i % 3}


def test_keyboard_alone_moves_and_toggles(page: Page, server: Server, vit_study: Study) -> None:
    open_members(page, server, vit_study)
    head(page, 0, 0, 0).focus()
    for name in ("ArrowRight", "ArrowDown", "ArrowDown"):
        page.keyboard.press(name)
    expect(head(page, 0, 2, 1)).to_be_focused()
    page.keyboard.press("Space")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    page.wait_for_timeout(300)
    settled(page)
    assert cut(vit_study, 0) == {(2, 1), (2, 5)}
    # The focus stays where it was after the redraw, and Tab leads to the next member.
    expect(head(page, 0, 2, 5)).to_be_focused()
    page.keyboard.press("Tab")
    expect(head(page, 1, 0, 0)).to_be_focused()


def test_dragging_paints_one_stroke(page: Page, server: Server, vit_study: Study) -> None:
    open_members(page, server, vit_study)
    box = {number: head(page, 0, 1, number).bounding_box() for number in (0, 4)}
    middle = {n: (b["x"] + b["width"] / 2, b["y"] + b["height"] / 2) for n, b in box.items() if b}
    page.mouse.move(*middle[0])
    page.mouse.down()
    page.mouse.move(*middle[4], steps=15)
    page.mouse.up()
    page.wait_for_timeout(500)
    settled(page)
    assert cut(vit_study, 0) == {(1, number) for number in range(5)}
    page.get_by_role("button", name="Undo").click()
    page.wait_for_timeout(300)
    settled(page)
    assert cut(vit_study, 0) == set()
    expect(head(page, 0, 1, 4)).to_have_attribute("aria-pressed", "true")


def test_a_number_takes_its_whole_row_or_column(page: Page, server: Server, vit_study: Study) -> None:
    open_members(page, server, vit_study)
    row = page.get_by_role("button", name="member 1, all heads of layer 2", exact=True)
    column = page.get_by_role("button", name="member 1, head 4 of every layer", exact=True)
    whole_row, whole_column = {(2, number) for number in range(6)}, {(layer, 4) for layer in range(6)}
    row.click()
    page.wait_for_timeout(300)
    settled(page)
    assert cut(vit_study, 1) == whole_row
    column.click()  # not all of it is kept, so all of it comes back
    column.click()  # and now all of it goes
    page.wait_for_timeout(300)
    settled(page)
    assert cut(vit_study, 1) == whole_row | whole_column
    assert cut(vit_study, 0) == cut(vit_study, 2) == set()
    row.click()
    page.wait_for_timeout(300)
    settled(page)
    assert cut(vit_study, 1) == whole_column - {(2, 4)}
    page.get_by_role("button", name="Undo").click()
    page.wait_for_timeout(300)
    settled(page)
    assert (2, 0) in cut(vit_study, 1)


def test_a_pinned_head_stays_in_all_members(page: Page, server: Server, vit_study: Study) -> None:
    open_members(page, server, vit_study)
    for member in (0, 2):
        head(page, member, 1, 2).click()
    settled(page)
    head(page, 1, 1, 2).click(modifiers=["Shift"])
    expect(page.get_by_text("Pinned in all members: layer 1 head 2")).to_be_visible()
    settled(page)
    assert [cut(vit_study, member) for member in range(3)] == [set(), set(), set()]
    head(page, 0, 1, 2).click()  # stays
    expect(page.get_by_text("layer 1, head 2 is pinned (P frees it)")).to_be_visible()
    page.get_by_role("button", name="member 0, all heads of layer 1", exact=True).click()
    page.wait_for_timeout(300)
    settled(page)
    assert cut(vit_study, 0) == {(1, number) for number in range(6)} - {(1, 2)}
    expect(head(page, 0, 1, 2)).to_have_attribute("aria-pressed", "true")
    page.reload()
    expect(page.get_by_text("Pinned in all members: layer 1 head 2")).to_be_visible(timeout=SLOW)
    settled(page)
    head(page, 0, 1, 2).focus()
    page.keyboard.press("p")
    expect(page.get_by_text("Pinned in all members")).to_have_count(0)
    settled(page)
    head(page, 0, 1, 2).click()
    page.wait_for_timeout(300)
    settled(page)
    assert (1, 2) in cut(vit_study, 0)


def test_masks_are_taken_from_a_file_and_another_backbones_are_refused(
    page: Page, server: Server, vit_study: Study, tmp_path: Path
) -> None:
    open_members(page, server, vit_study)
    before = vit_study.active_masks
    text = vit_study.get("masks", "current")
    assert text is not None
    stored = json.loads(text)
    foreign, own = tmp_path / "foreign.json", tmp_path / "own.json"
    foreign.write_text(json.dumps({**stored, "fingerprint": "f" * 64, "backbone": "another"}))
    for member in stored["members"]:
        member["keep"][0][0] = False
    own.write_text(json.dumps(stored))
    for path, told in (
        (foreign, "these masks were made for the backbone 'another'"),
        (own, "3 members taken from own.json"),
    ):
        page.get_by_role("button", name="Mask files").click()
        page.get_by_test_id("stFileUploaderDropzoneInput").set_input_files(path)
        expect(page.get_by_text(path.name)).to_be_visible()
        settled(page)
        page.get_by_role("button", name="Use this file").click()
        expect(page.get_by_text(re.compile(re.escape(told)))).to_be_visible(timeout=SLOW)
        settled(page)
        if path == foreign:
            assert vit_study.active_masks == before
        page.keyboard.press("Escape")
    assert [cut(vit_study, member) for member in range(3)] == [{(0, 0)}] * 3


def test_b28_masks_outlive_a_page_change_and_a_reload(page: Page, server: Server, vit_study: Study) -> None:
    open_members(page, server, vit_study)
    for place in ((0, 0, 1), (1, 3, 2), (2, 5, 5)):
        head(page, *place).click()
    settled(page)
    visit(page, "Fuse")
    visit(page, "Members")
    for place in ((0, 0, 1), (1, 3, 2), (2, 5, 5)):
        expect(head(page, *place)).to_have_attribute("aria-pressed", "false")
    page.reload()
    expect(head(page, 2, 5, 5)).to_have_attribute("aria-pressed", "false", timeout=SLOW)
    settled(page)
    assert page.locator('button[aria-pressed="false"].head').count() == 3
    # The new session's clicks count too.
    head(page, 0, 0, 1).click()
    settled(page)
    assert cut(vit_study, 0) == set()
