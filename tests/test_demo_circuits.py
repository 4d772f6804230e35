"""HeadMap on the three demos against the plain loop over the original libraries' models."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import hydra_core as hydra
from hydra_core.zero_shot import DEMOS
from tests.originals import Original, plain_circuit

ASSETS = Path(__file__).resolve().parents[1] / "assets"
SAMPLES = 24
KEEP = {"vit": 4, "bert": 9, "clip": 3}


def vit():
    from transformers import AutoModelForImageClassification

    model = AutoModelForImageClassification.from_pretrained(ASSETS / "models" / "vit", dtype=torch.float64).eval()
    return (
        model, lambda m, x: m(**x).logits, lambda m: [layer.attention.o_proj for layer in m.vit.layers],
        model.config.num_attention_heads,
    )  # fmt: skip


def bert():
    sys.path.insert(0, str(ASSETS / "build"))
    try:
        from merge import load_merged
    finally:
        sys.path.remove(str(ASSETS / "build"))
    model = load_merged()[0].double()
    return (
        model, lambda m, x: m(**x).logits, lambda m: [layer.attention.output.dense for layer in m.bert.encoder.layer],
        model.config.num_attention_heads,
    )  # fmt: skip


def clip():
    import open_clip

    where = f"local-dir:{ASSETS / 'models' / 'clip'}"
    model = open_clip.create_model_and_transforms(where)[0].eval()
    words = json.loads((ASSETS / "models" / "clip" / "templates.json").read_text())
    templates = [(lambda name, text=text: text.format(name)) for text in words["templates"]]
    weights = open_clip.build_zero_shot_classifier(
        model, open_clip.get_tokenizer(where), words["class_names"], templates, device="cpu"
    ).double()
    model = model.double()

    def forward(m, x):
        return m.logit_scale.exp() * m.encode_image(x["pixel_values"], normalize=True) @ weights

    blocks = model.visual.transformer.resblocks
    return model, forward, lambda m: [block.attn.out_proj for block in blocks], blocks[0].attn.num_heads


@pytest.mark.slow
@pytest.mark.parametrize("name", list(DEMOS))
@pytest.mark.parametrize("objective", ["loss", "ood_auroc"])
def test_find_circuit_on_a_demo_equals_the_plain_loop(name, objective):
    demo = DEMOS[name]
    backbone = hydra.load_backbone(demo.backbone, device="cpu", dtype="float64")
    data = hydra.load_dataset(demo.data, split="validation", limit=SAMPLES)
    ood = hydra.load_dataset(demo.selected[1], split="validation", limit=SAMPLES)
    known, other = (
        {
            key: value.double() if value.is_floating_point() else value
            for key, value in backbone.prepare(list(d)).items()
        }
        for d in (data.items, ood.items)
    )
    original = Original(name, demo.backbone, {}, *{"vit": vit, "bert": bert, "clip": clip}[name](), (), known)
    expected, table = plain_circuit(original, known, other, data.labels, objective, KEEP[name])
    circuit = hydra.find_circuit(backbone, data, ood=ood, objective=objective, heads_per_layer=KEEP[name])
    assert circuit.keep.kept == expected
    np.testing.assert_allclose(circuit.values, table, rtol=0, atol=1e-5)
