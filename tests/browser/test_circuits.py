"""Circuits on text and head cards on both kinds of data, as a person uses them."""

import re

import pytest
from playwright.sync_api import Page, expect

from hydra_core.study import Study, StudyConfig
from tests.browser.conftest import SLOW, Server, choose, job_done, picture, settled, visit


@pytest.fixture
def bert_study(server: Server) -> Study:
    config = StudyConfig("demo/bert", "demo/movies", {"nyt": "demo/nyt"}, limit=32)
    return Study.create(server.studies, "circuits-of-bert", config)


def test_search_cancel_search_again_and_open_cards(
    page: Page, server: Server, bert_study: Study, vit_study: Study
) -> None:
    page.goto(f"{server.url}/circuits?study={bert_study.name}")
    find = page.get_by_role("button", name="Find the circuit of the task loss")
    expect(find).to_be_visible(timeout=SLOW)
    settled(page)
    find.click()
    page.get_by_role("button", name="Cancel", exact=True).click(timeout=SLOW)
    job_done(page, "cancelled. The study is as it was before.")
    assert bert_study.circuits() == {}
    expect(find).to_be_visible(timeout=SLOW)
    find.click()
    job_done(page, "Circuit 'loss'")
    assert bert_study.circuit("loss") is not None

    # The graph, and the card of a head on a sentence
    page.get_by_role("radio", name="Graph").click()
    settled(page)
    expect(page.get_by_text(re.compile("K-composition from the weights"))).to_be_visible(timeout=SLOW)
    choose(page, "Head", "layer 2, head 7")
    expect(page.get_by_text("What it attends to")).to_be_visible()
    expect(page.get_by_text(re.compile(r"the more '\[CLS\]' reads there"))).to_be_visible(timeout=SLOW)
    expect(page.get_by_text("Attention distance (tokens)")).to_be_visible()
    settled(page)
    picture(page, "circuits-bert-graph")

    # The same card on a picture, on the page of head importance
    page.goto(f"{server.url}/head_importance?study={vit_study.name}")
    page.get_by_role("button", name="Compute Taylor scores").click(timeout=SLOW)
    job_done(page, "Scores 'taylor' on")
    expect(page.get_by_text(re.compile("goes to the 4 x 4 patches"))).to_be_visible(timeout=SLOW)
    choose(page, "Data", "OOD: mnist")
    expect(page.get_by_text(re.compile("of demo/mnist, layer 0, head 0"))).to_be_visible(timeout=SLOW)
    settled(page)
    picture(page, "head-card-vit")
    visit(page, "Circuits")
