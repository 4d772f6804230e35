"""Compiled and captured forwards against the eager one."""

import pytest
import torch

import hydra_core as hydra
from hydra_core.acceleration import accelerate
from tests import originals


@pytest.fixture(scope="module")
def fused(tmp_path_factory) -> tuple[hydra.FusedEnsemble, dict[str, torch.Tensor]]:
    original = originals.build("vit", tmp_path_factory.mktemp("originals"))
    backbone = hydra.load_backbone(original.ref, device="cpu")
    members = [hydra.prune(backbone, backbone.mask.without([(0, head), (2, 0)])) for head in range(3)]
    return hydra.fuse(members), original.inputs


def test_bad_wishes_are_refused(fused):
    model, inputs = fused
    with pytest.raises(hydra.HydraError, match="'jit' is not known; expected one of compile, cuda_graph"):
        accelerate(model, inputs, mode="jit")
    with pytest.raises(hydra.HydraError, match="needs a model on a GPU, this one is on 'cpu'"):
        accelerate(model, inputs, mode="cuda_graph")


def test_a_forward_that_computes_something_else_is_refused(fused, monkeypatch):
    model, inputs = fused
    monkeypatch.setattr(torch, "compile", lambda network: lambda inputs: network(inputs) + 0.01)
    with pytest.raises(hydra.HydraError, match=r"differ by 1\.0e-02 from the eager forward's, allowed are"):
        accelerate(model, inputs, mode="compile")


def test_a_compiler_that_fails_is_named(fused, monkeypatch):
    model, inputs = fused

    def broken(network):
        raise RuntimeError("no C++ compiler\nlong story")

    monkeypatch.setattr(torch, "compile", broken)
    with pytest.raises(hydra.HydraError, match="cannot be run as compile: no C\\+\\+ compiler; use it as it is"):
        accelerate(model, inputs, mode="compile")


@pytest.mark.slow
def test_compiled_equals_eager_also_for_another_batch(fused):
    model, inputs = fused
    compiled = accelerate(model, inputs, mode="compile")
    assert compiled.max_difference <= compiled.tolerance
    for count in (1, 3):
        some = {name: tensor[:count] for name, tensor in inputs.items()}
        torch.testing.assert_close(compiled.member_logits(some), model.member_logits(some), rtol=0, atol=1e-4)
    torch.testing.assert_close(compiled.probabilities(inputs), model.probabilities(inputs), rtol=0, atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_cuda_graph_replays_new_inputs(dtype, tmp_path):
    original = originals.build("vit", tmp_path)
    backbone = hydra.load_backbone(original.ref, device="cuda", dtype=dtype)
    model = hydra.fuse([hydra.prune(backbone, backbone.mask.without([(0, head)])) for head in range(3)])
    graph = accelerate(model, original.inputs, mode="cuda_graph")
    other = {name: tensor.flip(0) for name, tensor in original.inputs.items()}
    torch.testing.assert_close(graph.member_logits(other), model.member_logits(other), rtol=0, atol=graph.tolerance)
    with pytest.raises(hydra.HydraError, match="was captured for inputs of shapes"):
        graph.member_logits({name: tensor[:1] for name, tensor in original.inputs.items()})
