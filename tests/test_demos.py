"""The shipped demos: sizes, accuracy, and studies that belong to the shipped weights."""

from pathlib import Path

import numpy as np
import pytest
import torch

import hydra_core as hydra
from hydra_core.masks import fused_fingerprint, pruned_fingerprint
from hydra_core.pipeline import load_study_data
from hydra_core.study import Study
from hydra_core.zero_shot import DEMOS

ASSETS = Path(__file__).resolve().parents[1] / "assets"
# layers, heads, largest size of the shipped weights in MB, least accuracy on the shipped test part
EXPECTED = {"vit": (6, 6, 5, 0.89), "bert": (6, 12, 8, 0.82), "clip": (4, 4, 10, 0.86)}


@pytest.fixture(scope="module", params=list(DEMOS))
def demo(request):
    name = request.param
    return name, hydra.load_backbone(f"demo/{name}", device="cpu"), Study.open(ASSETS / "studies" / f"demo-{name}")


def test_size_and_shape(demo):
    name, backbone, _ = demo
    layers, heads, megabytes, _ = EXPECTED[name]
    assert backbone.num_layers >= layers
    assert min(backbone.num_heads) >= heads
    folder = ASSETS / "models" / name
    assert sum(path.stat().st_size for path in folder.iterdir()) <= megabytes * 1e6
    assert (folder / "README.md").is_file(), "weights ship with their model card"


def test_the_study_belongs_to_the_shipped_weights(demo):
    _, backbone, study = demo
    masks = study.masks("fused")
    stored = study.predictions("full", "id")
    assert stored.model_fingerprint == backbone.fingerprint
    members = [pruned_fingerprint(backbone.fingerprint, mask) for mask in masks]
    assert study.predictions("fused", "id").model_fingerprint == fused_fingerprint(members)
    assert all(circuit.backbone_fingerprint == backbone.fingerprint for circuit in study.circuits().values())
    assert study.scores("taylor").backbone_fingerprint == backbone.fingerprint


def test_the_stored_predictions_are_what_the_models_say_now(demo):
    _, backbone, study = demo
    data = load_study_data(study.config, backbone.class_names).known.test
    stored = study.predictions("fused", "id")
    assert stored.data_fingerprint == data.fingerprint
    fused = hydra.fuse([hydra.prune(backbone, mask) for mask in study.masks("fused")])
    assert fused.fingerprint == stored.model_fingerprint
    fresh = hydra.predict(fused, data.subset(range(24)), batch_size=8)
    np.testing.assert_allclose(fresh.logits, stored.logits[:, :24], rtol=0, atol=1e-3)


def test_accuracy_on_the_shipped_test_part(demo):
    name, _, study = demo
    predictions = study.predictions("full", "id")
    accuracy = (predictions.logits[0].argmax(1) == predictions.labels).mean()
    assert accuracy >= EXPECTED[name][3]


def test_three_fused_circuits_tell_mnist_apart_better_than_the_full_vit():
    study = Study.open(ASSETS / "studies" / "demo-vit")
    aurocs = {}
    for model in ("full", "fused"):
        parts = {part: study.predictions(model, part) for part in ("id", "mnist")}
        result = hydra.evaluate_predictions(parts["id"], {"mnist": parts["mnist"]})
        aurocs[model] = result.metrics["ood/mnist/auroc"]
    assert aurocs["fused"] > aurocs["full"]


@pytest.mark.parametrize("name", ["nyt", "amazon"])
def test_ood_texts_are_split_by_document(name):
    import pandas as pd

    table = pd.read_parquet(ASSETS / "data" / f"{name}.parquet")
    documents = table["id"].astype(str).str.split("_").str[0]
    parts = [set(documents[table["split"] == split]) for split in ("validation", "test")]
    assert all(parts)
    assert not parts[0] & parts[1]


def test_the_bert_base_is_checked(tmp_path, monkeypatch):
    """Another version of the package's weights is refused, not merged."""
    from hydra_core.backbones import demo

    (tmp_path / "model.safetensors").write_bytes(b"other weights")
    monkeypatch.setattr(demo, "_package_folder", lambda package: tmp_path)
    with pytest.raises(hydra.HydraError, match="has other weights than the demo was made for"):
        hydra.load_backbone("demo/bert")


def test_a_sample_does_not_depend_on_its_batch(demo):
    """For BERT the batch is padded, so this also tests the key mask on real texts."""
    name, backbone, _ = demo
    assert backbone.parity.max_difference <= backbone.parity.tolerance
    data = hydra.load_dataset(DEMOS[name].data, split="validation", limit=6)
    inputs = backbone.prepare(list(data.items))
    alone = torch.cat([backbone.logits(backbone.prepare([item])) for item in data.items])
    torch.testing.assert_close(backbone.logits(inputs), alone, rtol=0, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["full", "fused"])
def test_every_stored_prediction_again(demo, model):
    """The whole demo study, predicted anew: its figures are what the shipped weights give."""
    _, backbone, study = demo
    members = [hydra.prune(backbone, mask) for mask in study.masks("fused")]
    parts = load_study_data(study.config, backbone.class_names)
    tests = {"id": parts.known.test, **{name: part.test for name, part in parts.ood.items()}}
    for part, data in tests.items():
        fresh = hydra.predict(backbone if model == "full" else hydra.fuse(members), data)
        stored = study.predictions(model, part)
        assert stored.data_fingerprint == data.fingerprint
        np.testing.assert_allclose(fresh.logits, stored.logits, rtol=0, atol=1e-3)
