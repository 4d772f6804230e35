"""Resuming from the first new layer gives what a whole run of the pruned backbone gives."""

import numpy as np
import pytest

import hydra_core as hydra
from hydra_core.quick_sample import QuickSample


@pytest.fixture(scope="module")
def backbone() -> hydra.Backbone:
    return hydra.load_backbone("demo/vit")


@pytest.fixture(scope="module")
def data() -> hydra.Dataset:
    return hydra.load_dataset("demo/fashion-mnist").take(24)


@pytest.mark.parametrize("state_bytes", [512 * 1024**2, 1_000_000, 0])
def test_any_order_of_masks_equals_a_whole_run(backbone: hydra.Backbone, data: hydra.Dataset, state_bytes: int) -> None:
    sample = QuickSample(backbone, data, batch_size=10, state_bytes=state_bytes)
    full = backbone.mask
    one = full.without([(2, 1)])
    masks = [
        full,
        one,
        one.without([(4, 0), (4, 5)]),
        full.without([(0, 0)]),
        one,
        full.without([(5, i) for i in range(6)]),
    ]
    for mask in masks:
        expected = hydra.predict(hydra.prune(backbone, mask), data).logits[0]
        np.testing.assert_allclose(sample.logits(mask), expected, atol=1e-5)


def test_a_toggle_runs_no_layer_before_it(backbone: hydra.Backbone, data: hydra.Dataset) -> None:
    sample = QuickSample(backbone, data)
    sample.logits(backbone.mask)
    before = set(sample._states)
    sample.logits(backbone.mask.toggle(4, 2))
    assert {len(prefix) for prefix in set(sample._states) - before} == {5, 6}
