"""Saved ensembles: a new process, damaged folders, no pickle (H15)."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

import hydra_core as hydra
from tests import originals

LOAD_ALONE = """
import sys, numpy as np, torch
torch.set_num_threads(1)
import hydra_core as hydra
folder, inputs, out = sys.argv[1:]
ensemble = hydra.load_ensemble(folder, device="cpu")
given = {name: torch.as_tensor(array) for name, array in np.load(inputs).items()}
np.save(out, ensemble.member_logits(given).numpy())
"""


@pytest.fixture(scope="module", params=["deit", "distilbert", "open-clip-quick"])
def saved(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("saved")
    original = originals.build(request.param, root / "original")
    backbone = hydra.load_backbone(original.ref, device="cpu", **original.load_options)
    masks = [
        backbone.mask.without([(0, 0), (1, 2), (2, 1)]),
        backbone.mask.without([(1, h) for h in range(backbone.max_heads)]),
        backbone.mask.without([(2, 0)]),
    ]
    fused = hydra.fuse([hydra.prune(backbone, mask) for mask in masks])
    hydra.save_ensemble(fused, root / "ensemble")
    return root, original, fused


def test_a_new_process_gives_bit_identical_logits(saved, tmp_path):
    root, original, fused = saved
    np.savez(tmp_path / "inputs.npz", **{k: v.numpy() for k, v in original.inputs.items()})
    # The original's folder is out of reach: the ensemble must do without it.
    hidden = root / "hidden"
    (root / "original").rename(hidden)
    try:
        command = [sys.executable, "-c", LOAD_ALONE, root / "ensemble", tmp_path / "inputs.npz", tmp_path / "out.npy"]
        subprocess.run([str(part) for part in command], check=True, timeout=120)
    finally:
        hidden.rename(root / "original")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    expected = fused.member_logits(original.inputs).numpy()
    torch.set_num_threads(threads)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)


def test_nothing_is_pickled(saved):
    root, *_ = saved
    names = {path.name for path in (root / "ensemble").rglob("*") if path.is_file()}
    assert {"config.json", "model.safetensors", "README.md"} <= names
    assert not any(name.endswith((".bin", ".pt", ".pth", ".pkl", ".npy")) for name in names)


def copy_of(root, tmp_path):
    import shutil

    return shutil.copytree(root / "ensemble", tmp_path / "copy")


def edit(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_damaged_ensembles_are_refused(saved, tmp_path):
    root, *_ = saved
    folder = copy_of(root, tmp_path)
    edit(folder, version=99)
    with pytest.raises(hydra.HydraError, match="format 99"):
        hydra.load_ensemble(folder)
    edit(folder, version=1, num_members="many")
    with pytest.raises(hydra.HydraError):
        hydra.load_ensemble(folder)
    blocks = json.loads((root / "ensemble" / "config.json").read_text())["blocks"]
    blocks[0]["heads"] = [ids[:-1] for ids in blocks[0]["heads"]]
    edit(folder, num_members=3, blocks=blocks)
    with pytest.raises(hydra.HydraError, match=r"has shape .* was expected"):
        hydra.load_ensemble(folder)
    (folder / "config.json").write_text("[")
    with pytest.raises(hydra.HydraError, match="JSON"):
        hydra.load_ensemble(folder)
    (folder / "config.json").unlink()
    with pytest.raises(hydra.HydraError, match="no saved ensemble"):
        hydra.load_ensemble(folder)


def test_truncated_weights_are_refused(saved, tmp_path):
    root, *_ = saved
    folder = copy_of(root, tmp_path)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:200])
    with pytest.raises(hydra.HydraError, match="cannot be read"):
        hydra.load_ensemble(folder)


def test_a_foreign_folder_is_not_overwritten(saved, tmp_path):
    _, _, fused = saved
    (tmp_path / "mine.txt").write_text("dear diary")
    with pytest.raises(hydra.HydraError, match="is no saved ensemble"):
        hydra.save_ensemble(fused, tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "dear diary"
    hydra.save_ensemble(fused, tmp_path / "new")
    hydra.save_ensemble(fused, tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.txt", "new"]


def test_fusing_what_does_not_fit_is_refused(tmp_path):
    vit = hydra.load_backbone(originals.build("vit", tmp_path).ref, device="cpu")
    deit = hydra.load_backbone(originals.build("deit", tmp_path).ref, device="cpu")
    with pytest.raises(hydra.HydraError, match="at least one"):
        hydra.fuse([])
    with pytest.raises(hydra.HydraError, match="members 0 and 1 cannot be fused, their architecture differs"):
        hydra.fuse([vit, deit])
    double = hydra.load_backbone(vit.ref, device="cpu", dtype="float64")
    with pytest.raises(hydra.HydraError, match="their dtype differs: float32 against float64"):
        hydra.fuse([vit, double])
    with pytest.raises(hydra.HydraError, match="this mask is for 1 layers x 2 heads"):
        hydra.prune(vit, hydra.HeadMask([[True, False]]))
