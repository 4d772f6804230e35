"""What a person may give by mistake is refused in a sentence, before anything runs."""

import itertools
from pathlib import Path

import pytest

import hydra_core as hydra
from hydra_core.members import _least_overlap
from tests import originals
from tests.rows import images


@pytest.fixture(scope="module")
def backbone(tmp_path_factory) -> hydra.Backbone:
    original = originals.build("vit", tmp_path_factory.mktemp("originals"))
    return hydra.load_backbone(original.ref, device="cpu")


@pytest.fixture(scope="module")
def member(backbone) -> hydra.Backbone:
    return hydra.prune(backbone, backbone.mask.without([(0, 0)]))


def refused(match: str):
    return pytest.raises(hydra.HydraError, match=match)


def test_make_members(backbone):
    data, other = images(28, 5), images(20, 6, labelled=False)
    options = {"strategy": "random", "heads_per_layer": 2}
    for wrong, said in (
        ({"max_overlap": True}, "max_overlap is a Jaccard overlap from 0 to 1, got True"),
        ({"max_overlap": "0.5"}, "max_overlap is a Jaccard overlap"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"seed": "a"}, "seed must be a whole number"),
        ({"ood": [other]}, "ood takes a Dataset .* or a dict from names to Datasets"),
    ):
        with refused(said):
            hydra.make_members(backbone, data, **{**options, **wrong})
    with refused("backbone must be a Backbone .*, got a str"):
        hydra.make_members("demo/vit", data, **options)


@pytest.mark.parametrize("keep", [1, 2, 3, 4])
def test_an_overlap_that_no_two_masks_can_keep_is_refused_before_a_search(backbone, keep):
    rows = [set(one) for one in itertools.combinations(range(5), keep)]
    best = min(len(a & b) / len(a | b) for a in rows for b in rows)  # the same in every layer
    assert _least_overlap((5, 5, 5), (keep,) * 3) == pytest.approx(best)
    if best > 0:
        with refused(f"two members overlap by at least {best:.2f}"):
            hydra.make_members(
                backbone, images(28, 5), strategy="greedy", heads_per_layer=keep, max_overlap=best - 0.01,
                progress=lambda *_: pytest.fail("a search began"),
            )  # fmt: skip


def test_fewest_heads(backbone):
    data = images(20, 0)
    with refused("min_heads_per_layer must be a whole number from 0 to 5, got 6"):
        hydra.fewest_heads(backbone, data, max_drop=0.1, min_heads_per_layer=6)
    for pinned in ([(0,)], ["ab"], 5, [(0.5, 1)], (0, 1)):
        with refused("pinned takes .layer, head. pairs of whole numbers"):
            hydra.fewest_heads(backbone, data, max_drop=0.1, pinned=pinned)


def test_fine_tune(backbone, member, tmp_path: Path):
    data = images(16, 0)
    for wrong, said in (
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1, got 0"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"lora_rank": 36}, "must be a whole number from 1 to 35, got 36"),
        ({"checkpoint": 5}, "checkpoint must be a str or a PathLike"),
        ({"checkpoint": tmp_path}, "is a folder; name a file in it"),
    ):
        with refused(said):
            hydra.fine_tune(member, data, **{"epochs": 1, "learning_rate": 1e-3, **wrong})
    with refused("model must be a Backbone or a FusedEnsemble .*, got a HeadMask"):
        hydra.fine_tune(backbone.mask, data, epochs=1, learning_rate=1e-3)


def test_prune_and_fuse(backbone, member):
    for wrong in (backbone, None):
        with refused("members must be a Sequence .a list of pruned backbones"):
            hydra.fuse(wrong)
    with refused("mask must be a HeadMask .*, got a list"):
        hydra.prune(backbone, [[True] * 5] * 3)
    with refused("backbone must be a Backbone .*, got a FusedEnsemble"):
        hydra.prune(hydra.fuse([member]), member.mask)


def test_merge_gap_takes_the_members_that_were_fused_and_no_others(backbone, member, tmp_path: Path):
    data = images(16, 1)
    tuned = hydra.fine_tune(member, data, epochs=1, learning_rate=1e-3)
    fused = hydra.fuse([tuned, tuned])
    with refused("have the heads of those that were fused, but other weights"):
        hydra.merge_gap([member, member], fused, data)
    further = hydra.fine_tune(fused, data, epochs=1, learning_rate=1e-3)
    again = hydra.load_ensemble(hydra.save_ensemble(further, tmp_path / "further"), device="cpu")
    for model in (fused, further, again):  # an ensemble that was tuned further, or saved, still knows its members
        hydra.merge_gap([tuned, tuned], model, data)
        with refused("other weights"):
            hydra.merge_gap([tuned, member], model, data)
    with refused("fused must be a FusedEnsemble"):
        hydra.merge_gap([tuned], tuned, data)
    with refused("members must be a Sequence"):
        hydra.merge_gap(None, fused, data)
    with refused("ood takes a Dataset"):
        hydra.merge_gap([tuned, tuned], fused, data, ood=[data])


def test_inputs_that_were_not_prepared(backbone, member, tmp_path: Path):
    for inputs in ({}, {"input_ids": 1}, ["a picture"]):
        with refused("takes prepared inputs with 'pixel_values'"):
            backbone.logits(inputs)
        with refused("takes prepared inputs with 'pixel_values'"):
            hydra.accelerate(member, inputs, mode="compile")
    with refused("model must be a Backbone or a FusedEnsemble"):
        hydra.accelerate("x", {}, mode="compile")


def test_export_model(member, tmp_path: Path):
    with refused("is a folder; name the file"):
        hydra.export_model(member, tmp_path, format="onnx")
    with refused("path must be a str or a PathLike"):
        hydra.export_model(member, None, format="onnx")
    with refused("model must be a Backbone or a FusedEnsemble"):
        hydra.export_model("x", tmp_path / "m.onnx", format="onnx")
    with refused("takes prepared inputs with 'pixel_values'"):
        hydra.export_model(member, tmp_path / "m.onnx", format="onnx", example_inputs=[1])
