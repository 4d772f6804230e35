"""Members, prediction, evaluation, fine-tuning and Captum on a small random ViT with real image files of data."""

import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

import hydra_core as hydra
from hydra_core.data import Dataset
from hydra_core.pipeline import Parts, StudyData, predict_parts
from tests import originals
from tests.rows import images

CLASSES = originals.CLASSES


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    original = originals.build("vit", tmp_path_factory.mktemp("originals"))
    return hydra.load_backbone(original.ref, device="cpu")


@pytest.fixture(scope="module")
def fused(backbone):
    masks = [backbone.mask.without([(0, 0), (1, 1)]), backbone.mask.without([(0, 1)]), backbone.mask.without([(2, 4)])]
    return hydra.fuse([hydra.prune(backbone, mask) for mask in masks])


def test_predict_equals_one_batch_by_hand(backbone, fused):
    data = images(19, 0)
    inputs = backbone.prepare(list(data.items))
    predictions = hydra.predict(fused, data, batch_size=4)
    np.testing.assert_allclose(predictions.logits, fused.member_logits(inputs).numpy(), rtol=0, atol=1e-5)
    np.testing.assert_allclose(predictions.probabilities, softmax(predictions.logits, axis=-1), rtol=0, atol=1e-6)
    np.testing.assert_array_equal(predictions.labels, data.labels)
    single = hydra.predict(backbone, data)
    assert single.logits.shape == (1, 19, 7)
    np.testing.assert_allclose(single.logits[0], backbone.logits(inputs).numpy(), rtol=0, atol=1e-5)
    np.testing.assert_array_equal(predictions.member(1).logits[0], predictions.logits[1])


def test_evaluate_against_scikit_learn(fused):
    data, other = images(40, 1), images(30, 2, labelled=False)
    inputs, others = fused.prepare(list(data.items)), fused.prepare(list(other.items))
    mean = fused.member_logits(inputs).softmax(-1).mean(0).double().numpy()
    mean_other = fused.member_logits(others).softmax(-1).mean(0).double().numpy()
    result = hydra.evaluate(fused, data, ood={"noise": other})
    assert result.metrics["accuracy"] == pytest.approx(accuracy_score(data.labels, mean.argmax(1)))
    assert result.metrics["nll"] == pytest.approx(log_loss(data.labels, mean, labels=range(7)), abs=1e-5)
    scores = np.r_[1 - mean.max(1), 1 - mean_other.max(1)]
    truth = np.r_[np.zeros(40), np.ones(30)]
    assert result.metrics["ood/noise/auroc"] == pytest.approx(roc_auc_score(truth, scores), abs=1e-6)
    assert (result.num_samples, result.ood_counts, result.num_members) == (40, {"noise": 30}, 3)
    again = type(result).from_json(result.to_json())
    assert again == result


def test_undefined_values_are_none_with_the_reason(backbone):
    result = hydra.evaluate(
        backbone, images(10, 1, labelled=False), ood={"x": images(5, 2)}, score="mutual_information"
    )
    for key in ("accuracy", "ece", "mutual_information", "disagreement", "ood/x/auroc"):
        assert result.metrics[key] is None
        assert result.reasons[key]


def test_rows_with_a_non_finite_logit_are_excluded_and_named(backbone):
    """M10 through the whole path: one sample is broken, every metric leaves it out."""
    data = images(12, 3)

    class Broken:
        def __call__(self, items):
            inputs = backbone.processor(items)
            inputs["pixel_values"][[np.array_equal(i, data.items[5]) for i in map(np.asarray, items)]] = torch.nan
            return inputs

    import copy

    broken = copy.copy(backbone)
    broken.processor = Broken()
    predictions = hydra.predict(broken, data, batch_size=5)
    assert predictions.excluded == (5,)
    assert np.isnan(predictions.logits[:, 5]).all()
    rest = data.subset([i for i in range(12) if i != 5])
    expected = hydra.evaluate(backbone, rest)
    result = hydra.evaluate(broken, data)
    assert (result.num_samples, result.excluded) == (11, (5,))
    for name in ("accuracy", "nll", "brier", "ece", "ace", "mce"):
        assert result.metrics[name] == pytest.approx(expected.metrics[name], abs=1e-6)
    assert np.isfinite(hydra.score_heads(broken, data, method="taylor").values).all()
    assert np.isfinite(hydra.find_circuit(broken, data, heads_per_layer=2).values).all()


def test_labels_are_matched_by_name(backbone):
    data = images(14, 4)
    turned = Dataset(data.items, 6 - data.labels, CLASSES[::-1], kind="image", name="turned")
    assert hydra.evaluate(backbone, turned).metrics == hydra.evaluate(backbone, data).metrics
    strange = Dataset(data.items, data.labels, [*CLASSES[:6], "yak"], kind="image", name="strange")
    with pytest.raises(hydra.HydraError, match="yak is unknown to it; it knows ant, bee"):
        hydra.score_heads(backbone, strange, method="taylor")
    with pytest.raises(hydra.HydraError, match="yak is unknown to it; it knows ant, bee"):
        hydra.evaluate(backbone, strange)
    with pytest.raises(hydra.HydraError, match="yak is unknown"):
        predict_parts(backbone, StudyData(Parts(data, strange), {}))
    own_classes = hydra.evaluate(backbone, data, ood={"strange": strange})  # an OOD set's classes are its own
    assert own_classes.metrics["ood/strange/auroc"] == pytest.approx(0.5)  # the same samples as the ID data


def test_data_of_another_kind_or_empty_are_refused(backbone):
    text = Dataset(["a", "b"], np.array([0, 1]), CLASSES, kind="text", name="words")
    with pytest.raises(hydra.HydraError, match=r"reads images, but the data .words. hold texts"):
        hydra.predict(backbone, text)
    with pytest.raises(hydra.HydraError, match="hold no sample"):
        hydra.find_circuit(backbone, images(5, 0).subset([]), heads_per_layer=2)
    with pytest.raises(hydra.HydraError, match="must be a Dataset"):
        hydra.predict(backbone, "demo/mnist")


@pytest.mark.parametrize("strategy", ["circuit", "taylor", "random"])
def test_members_differ_and_keep_what_was_asked(backbone, strategy):
    data, other = images(28, 5), images(20, 6, labelled=False)
    options = {"ood": other, "num_members": 3, "strategy": strategy, "heads_per_layer": [2, 3, 1], "seed": 4}
    masks = hydra.make_members(backbone, data, **options)
    assert len(set(masks)) == 3
    assert all(mask.kept_per_layer == (2, 3, 1) for mask in masks)
    assert hydra.make_members(backbone, data, **options) == masks, "seeded, so the same again"


def test_the_first_circuit_members_are_the_three_objectives(backbone):
    data, other = images(28, 5), images(20, 6, labelled=False)
    masks = hydra.make_members(backbone, data, ood=other, strategy="circuit", heads_per_layer=2)
    single = [
        hydra.find_circuit(backbone, data, ood=other, objective=objective, heads_per_layer=2).keep
        for objective in ("loss", "ood_auroc", "average")
    ]
    assert masks[0] == single[0]
    assert [mask for mask in masks if mask in single] == list(dict.fromkeys(single))


def test_overlap_is_limited_or_refused(backbone):
    data = images(28, 5)
    masks = hydra.make_members(
        backbone, data, num_members=2, strategy="random", heads_per_layer=2, max_overlap=0.2, seed=1
    )
    assert masks[0].jaccard(masks[1]) <= 0.2
    with pytest.raises(hydra.HydraError, match="found 1 different member of 2 with an overlap of at most 0"):
        hydra.make_members(backbone, data, num_members=2, strategy="random", heads_per_layer=4, max_overlap=0.0)
    with pytest.raises(hydra.HydraError, match="allows 1 mask"):
        hydra.make_members(backbone, data, num_members=2, strategy="random", heads_per_layer=5)
    with pytest.raises(hydra.HydraError, match="'magic' is not known"):
        hydra.make_members(backbone, data, strategy="magic", heads_per_layer=2)


def test_importing_the_core_is_light():
    import subprocess
    import sys

    code = (
        "import sys, hydra_core as hydra\n"
        "hydra.HeadMask([[True]]); hydra.metrics\n"
        "heavy = {'torch', 'streamlit', 'transformers', 'open_clip', 'sklearn', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
