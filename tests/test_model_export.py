"""torch.export and ONNX files: loaded in a process that cannot import hydra_core, they give the same logits."""

import subprocess
import sys

import numpy as np
import pytest
import torch

import hydra_core as hydra
from hydra_core.model_export import export_model
from tests import originals

ELSEWHERE = """
import importlib.util, sys
import numpy as np
assert importlib.util.find_spec("hydra_core") is None
path, inputs, out = sys.argv[1:]
given = dict(np.load(inputs))
if path.endswith(".onnx"):
    import onnxruntime
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [one.name for one in session.get_inputs()] == list(given), session.get_inputs()
    logits, probabilities = session.run(["member_logits", "probabilities"], given)
else:
    import torch
    with torch.no_grad():
        found = torch.export.load(path).module()(*map(torch.from_numpy, given.values()))
    logits, probabilities = (one.numpy() for one in found)
np.savez(out, logits=logits, probabilities=probabilities)
"""


def fused_and_inputs(name, folder):
    """Three members: uneven, one with a layer without heads, one whole; and inputs in float32."""
    original = originals.build(name, folder)
    backbone = hydra.load_backbone(original.ref, device="cpu", **original.load_options)
    full = backbone.mask
    masks = [full.without([(1, 0), (2, 1)]), full.without([(1, h) for h in range(full.widths[1])]), full]
    inputs = {k: v.float() if v.is_floating_point() else v for k, v in original.inputs.items()}
    return hydra.fuse([hydra.prune(backbone, mask) for mask in masks]), inputs


def run_elsewhere(path, inputs, folder):
    np.savez(folder / "inputs.npz", **{name: tensor.numpy() for name, tensor in inputs.items()})
    command = [sys.executable, "-I", "-c", ELSEWHERE, str(path), str(folder / "inputs.npz"), str(folder / "out.npz")]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return np.load(folder / "out.npz")


def check(fused, inputs, format, folder):
    told = export_model(fused, folder / f"model.{format}", format=format, example_inputs=inputs)
    assert told.max_difference <= told.tolerance
    for count in (1, 3):  # of another batch size than the four it was exported with
        part = {name: tensor[:count] for name, tensor in inputs.items()}
        if "input_ids" in part:
            part = {name: tensor[:, :-2] for name, tensor in part.items()}
        found = run_elsewhere(told.path, part, folder)
        expected = fused.member_logits(part)
        np.testing.assert_allclose(found["logits"], expected.numpy(), rtol=0, atol=told.tolerance)
        np.testing.assert_allclose(found["probabilities"], fused.probabilities(part).numpy(), rtol=0, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", originals.NAMES)
@pytest.mark.parametrize("format", ["torch", "onnx"])
def test_files_of_every_family_run_where_hydra_core_is_not(name, format, tmp_path):
    check(*fused_and_inputs(name, tmp_path / "originals"), format, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("demo", ["vit", "bert", "clip"])
@pytest.mark.parametrize("format", ["torch", "onnx"])
def test_demos_are_exported_with_their_own_probe_inputs(demo, format, tmp_path):
    backbone = hydra.load_backbone(f"demo/{demo}", device="cpu")
    masks = [backbone.mask.without([(layer, head) for layer in range(2, 4)]) for head in range(3)]
    fused = hydra.fuse([hydra.prune(backbone, mask) for mask in masks])
    told = export_model(fused, tmp_path / "model", format=format)
    items = {"bert": ["a fine film", "no", "a longer one, with commas"]}.get(
        demo, list(np.random.default_rng(1).integers(0, 256, (3, 40, 40, 3), dtype=np.uint8))
    )
    inputs = backbone.prepare(items)
    found = run_elsewhere(told.path.rename(tmp_path / f"model.{format}"), inputs, tmp_path)
    np.testing.assert_allclose(found["logits"], fused.member_logits(inputs).numpy(), rtol=0, atol=told.tolerance)


def test_what_cannot_be_exported_is_refused_and_leaves_the_file_alone(tmp_path, monkeypatch):
    fused, inputs = fused_and_inputs("vit", tmp_path / "originals")
    target = tmp_path / "model.pt2"
    target.write_bytes(b"the file before")
    with pytest.raises(hydra.HydraError, match="'tensorflow' is not known; expected one of torch, onnx"):
        export_model(fused, target, format="tensorflow", example_inputs=inputs)
    with pytest.raises(hydra.HydraError, match="at least two samples"):
        export_model(fused, target, format="torch", example_inputs={"pixel_values": inputs["pixel_values"][:1]})
    wide = hydra.load_backbone(fused.ref, device="cpu", dtype="float64")
    with pytest.raises(hydra.HydraError, match="this one is float64"):
        export_model(wide, target, format="torch", example_inputs=inputs)
    monkeypatch.setattr("hydra_core.model_export.TOLERANCE", -1.0)
    with pytest.raises(hydra.HydraError, match="gives other logits than the network: they differ by"):
        export_model(fused, target, format="torch", example_inputs=inputs)
    assert target.read_bytes() == b"the file before"
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["originals"]


def test_a_layer_without_heads_adds_its_bias_alone():
    """H16, on the grouped layer itself."""
    from hydra_core.grouped import GroupedLinear

    layer = GroupedLinear([0, 4], 3, grouped="input")
    torch.nn.init.normal_(layer.weight)
    torch.nn.init.normal_(layer.bias)
    x = torch.randn(2, 5, 4)
    out = layer([x[..., :0], x])
    torch.testing.assert_close(out[0], layer.bias[0].expand(2, 5, 3))
    torch.testing.assert_close(out[1], x @ layer.weight + layer.bias[1])
