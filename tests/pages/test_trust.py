"""The views of a circuit: graph, faithfulness, stability and overlap, with stored results, none, and damaged ones."""

import dataclasses
import time

import numpy as np
import pytest

from hydra_core.agreement import Stability
from hydra_core.faithfulness import Faithfulness
from hydra_core.study import Study
from pages.ui import cache, state, work
from tests.pages.conftest import Open, button, healthy, texts


def stored_curves(study: Study, fingerprint: str) -> Faithfulness:
    kept = list(range(7))
    names = ("accuracy", "ece", "nll", "ood/mnist/auroc")
    lines = {name: [k / 6 for k in kept] for name in names}
    curves = {name: {"keep": lines, "remove": lines} for name in ("circuit loss", "random 0", "random 1")}
    return Faithfulness(kept, curves, 90, {"mnist": 80}, fingerprint, "data")


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        ("Heads", "Circuits over one another"),
        ("Graph", "From the weights alone"),
        ("Faithfulness", "Keep only each layer"),
        ("Stability and overlap", "Do the objectives choose the same heads?"),
    ],
)
def test_each_view_is_drawn_with_nothing_stored(view: str, expected: str, open_page: Open, study: Study) -> None:
    state.remember(study, "circuit view", view)
    at = open_page("circuits", study.name)
    healthy(at)
    assert expected in texts(at)


def test_a_stored_measurement_is_drawn_with_its_areas(open_page: Open, study: Study) -> None:
    fingerprint = cache.facts(study).fingerprint
    study.put("faithfulness", "latest", stored_curves(study, fingerprint).to_json())
    state.remember(study, "circuit view", "Faithfulness")
    at = open_page("circuits", study.name)
    healthy(at)
    assert len(at.get("plotly_chart")) == 2
    table = at.table[0].value
    assert table.loc["circuit loss"].tolist() == ["0.500", "0.500"]  # under a line from 0 to 1
    assert table.loc["random, mean of 2 (range)"].tolist() == ["0.500 (0.500 to 0.500)"] * 2
    assert not at.warning
    study.put("faithfulness", "latest", stored_curves(study, "another").to_json())
    assert "belong to another backbone" in texts(open_page("circuits", study.name))


def test_stability_is_drawn_and_a_damaged_one_is_said_to_be(open_page: Open, study: Study) -> None:
    name = next(iter(study.circuits()))
    frequency = np.full((6, 6), 0.5).tolist()
    study.put("stability", name, Stability(frequency, 4, 40, 0.75, 0).to_json())
    state.remember(study, "circuit view", "Stability and overlap")
    state.remember(study, "stability circuit", name)
    at = open_page("circuits", study.name)
    healthy(at)
    assert "Two resamples share 0.75 of their heads" in texts(at)
    study.path("stability", name).write_text("{half a file")
    at = open_page("circuits", study.name)
    healthy(at)
    assert "cannot be read and must be measured again" in texts(at)


def test_a_head_chosen_on_one_page_is_the_one_on_the_other(open_page: Open, study: Study) -> None:
    state.remember(study, "head", "layer 4, head 3")
    state.remember(study, "circuit view", "Graph")
    for page in ("circuits", "head_importance"):
        at = open_page(page, study.name)
        healthy(at)
        box = next(one for one in at.selectbox if one.label == "Head")
        assert box.value == "layer 4, head 3"
        assert "goes to the 4 x 4 patches" in texts(at)


def test_scores_and_circuits_of_other_weights_are_left_out_with_a_word(open_page: Open, study: Study) -> None:
    scores, (name, circuit) = study.scores("taylor"), next(iter(study.circuits().items()))
    assert scores is not None
    study.save_scores("old", dataclasses.replace(scores, backbone_fingerprint="another"))
    study.save_circuit("old circuit", dataclasses.replace(circuit, backbone_fingerprint="another"))
    for page, old, known in (("head_importance", "old", "taylor"), ("circuits", "old circuit", name)):
        at = open_page(page, study.name)
        assert not at.exception
        assert f"Left out: '{old}' was made on another backbone (another)" in texts(at)
        box = next(one for one in at.selectbox if one.label in ("Scores shown", "Circuit"))
        assert known in box.options
        assert old not in box.options


def test_an_ood_objective_asks_for_its_set_and_its_score(open_page: Open, study: Study) -> None:
    state.remember(study, "circuit objective", "ood_auroc")
    state.remember(study, "circuit ood score", "energy")
    at = open_page("circuits", study.name)
    healthy(at)
    boxes = {one.label: one for one in at.selectbox}
    assert boxes["OOD set"].options == ["mnist"]  # patches are kept for testing alone
    assert boxes["OOD score"].value == "energy"
    button(at, "Search").click().run()
    for _ in range(200):
        if "ood_auroc mnist energy" in study.circuits():
            break
        time.sleep(0.1)
    circuit = study.circuit("ood_auroc mnist energy")
    assert circuit is not None
    assert (circuit.objective, circuit.score) == ("ood_auroc", "energy")


def test_stability_of_an_earlier_circuit_of_that_name_is_said_to_be_old(open_page: Open, study: Study) -> None:
    name, circuit = next(iter(study.circuits().items()))
    frequency = np.full((6, 6), 0.5).tolist()
    state.remember(study, "circuit view", "Stability and overlap")
    state.remember(study, "stability circuit", name)
    for made_for, expected in ((circuit.digest, "Two resamples share"), ("another", "has been searched anew")):
        study.put("stability", name, Stability(frequency, 4, 40, 0.75, 0, made_for).to_json())
        at = open_page("circuits", study.name)
        assert not at.exception
        assert expected in texts(at)


def test_a_circuit_knows_its_ood_set_whatever_it_is_called(study: Study) -> None:
    circuit = next(one for name, one in study.circuits().items() if one.objective == "average")
    assert work.ood_of(study, "average mnist, 3 heads a layer", dataclasses.replace(circuit, ood_name=None)) == "mnist"
    assert work.ood_of(study, "whatever", dataclasses.replace(circuit, ood_name="patches")) == "patches"
    assert work.ood_of(study, "loss", dataclasses.replace(circuit, objective="loss")) is None


def test_headmap_scores_are_ranked_and_coloured_within_layers(open_page: Open, study: Study) -> None:
    scores = study.scores("taylor")
    assert scores is not None
    study.save_scores("headmap", dataclasses.replace(scores, method="headmap"))
    state.remember(study, "scores shown", "headmap")
    at = open_page("head_importance", study.name)
    healthy(at)
    assert "Spearman rank correlation of the places within each layer" in texts(at)
    card = next(table.value for table in at.table if "Rank" in table.value.columns)
    assert card.loc["headmap", "Rank"].endswith(" of 6 in its layer")
    assert card.loc["taylor", "Rank"].endswith(" of 36")
