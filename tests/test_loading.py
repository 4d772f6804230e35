"""What load_backbone refuses, and in which words; what it keeps in memory."""

import copy
import gc
import json
import weakref

import pytest
import torch
import transformers as tf

import hydra_core as hydra
from hydra_core.backbones import hf, registry
from tests import originals


def vit_config(**changes):
    shape = {
        "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 8,
        "image_size": 8, "patch_size": 4, "num_labels": 2,
    }  # fmt: skip
    return tf.ViTConfig(**{**shape, **changes})


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(0)
    tf.ViTForImageClassification(vit_config()).save_pretrained(tmp_path)
    return tmp_path


def test_the_saved_folder_loads(folder):
    backbone = hydra.load_backbone(str(folder), device="cpu")
    assert (backbone.num_layers, backbone.num_heads, backbone.head_dim) == (2, (3, 3), 4)
    assert backbone.num_parameters == sum(p.numel() for p in tf.ViTForImageClassification(vit_config()).parameters())


@pytest.mark.parametrize(
    ("ref", "words"),
    [
        ("", "empty"),
        ("no/such/folder", "does not exist"),
        ("demo/gpt", "no demo backbone"),
        ("timm:vit_tiny:file", "timm"),
        ("open_clip:ViT-B-32", "class_names"),
    ],
)
def test_unknown_references(ref, words):
    with pytest.raises(hydra.HydraError, match=words):
        hydra.load_backbone(ref)


def test_open_clip_needs_placeholders_and_weights(tmp_path):
    options = {"class_names": ["a", "b"], "templates": ["a photo"]}
    with pytest.raises(hydra.HydraError, match=r"{}"):
        hydra.load_backbone("open_clip:ViT-B-32:none", **options)
    options["templates"] = ["a {}"]
    with pytest.raises(hydra.HydraError, match="names no weights"):
        hydra.load_backbone("open_clip:ViT-B-32", **options)
    with pytest.raises(hydra.HydraError, match="could not be loaded by open_clip"):
        hydra.load_backbone("open_clip:no-such-arch:file.safetensors", **options)
    with pytest.raises(hydra.HydraError, match="does not exist"):
        hydra.load_backbone(f"open_clip:local-dir:{tmp_path / 'none'}", **options)


@pytest.mark.parametrize("setting", [("device", "tpu9"), ("dtype", "int8")])
def test_unknown_device_or_dtype(folder, setting):
    with pytest.raises(hydra.HydraError, match=setting[1]):
        hydra.load_backbone(str(folder), **dict([setting]))


def test_class_names_must_fit(folder):
    with pytest.raises(hydra.HydraError, match=r"3 class names were given.*2 classes"):
        hydra.load_backbone(str(folder), class_names=["a", "b", "c"])
    with pytest.raises(hydra.HydraError, match="not all different"):
        hydra.load_backbone(str(folder), class_names=["a", "a"])
    assert hydra.load_backbone(str(folder), class_names=["no", "yes"]).class_names == ("no", "yes")


def test_damaged_folders(folder):
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(hydra.HydraError, match="could not be loaded by transformers"):
        hydra.load_backbone(str(folder))
    weights.unlink()
    with pytest.raises(hydra.HydraError, match=r"no \.safetensors file"):
        hydra.load_backbone(str(folder))
    (folder / "config.json").write_text("{")
    with pytest.raises(hydra.HydraError, match="cannot be read as JSON"):
        hydra.load_backbone(str(folder))
    (folder / "config.json").unlink()
    with pytest.raises(hydra.HydraError, match=r"no config\.json"):
        hydra.load_backbone(str(folder))


def test_a_backbone_without_classifier_is_refused(tmp_path):
    tf.ViTModel(vit_config()).save_pretrained(tmp_path)
    with pytest.raises(hydra.HydraError, match="ViTModel, which has no classifier"):
        hydra.load_backbone(str(tmp_path))
    config = json.loads((tmp_path / "config.json").read_text())
    config["architectures"] = ["ViTForImageClassification"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(hydra.HydraError, match="lacks weights"):
        hydra.load_backbone(str(tmp_path))


def test_shared_layers_and_grouped_queries_are_refused(tmp_path):
    """H19, from folders that transformers itself saved."""
    small = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 16}
    albert = tf.AlbertForSequenceClassification(tf.AlbertConfig(vocab_size=20, embedding_size=8, **small))
    albert.save_pretrained(tmp_path / "albert")
    with pytest.raises(hydra.HydraError, match="ALBERT shares one attention among all its layers"):
        hydra.load_backbone(str(tmp_path / "albert"))
    llama = tf.LlamaForSequenceClassification(tf.LlamaConfig(vocab_size=20, num_key_value_heads=2, **small))
    llama.save_pretrained(tmp_path / "llama")
    with pytest.raises(hydra.HydraError, match="grouped-query attention: 4 query heads share 2"):
        hydra.load_backbone(str(tmp_path / "llama"))


def test_other_architectures_are_named(tmp_path):
    tf.ResNetForImageClassification(tf.ResNetConfig(embedding_size=4, hidden_sizes=[4], depths=[1])).save_pretrained(
        tmp_path
    )
    with pytest.raises(hydra.HydraError, match=r"type 'resnet'. Supported: ViT and DeiT"):
        hydra.load_backbone(str(tmp_path))


@pytest.mark.parametrize(
    ("vision", "words"),
    [
        ({"qk_norm": True}, "CustomResidualAttentionBlock"),
        ({"attentional_pool": True}, "pools its image tokens with attention"),
        ({"timm_model_name": "vit_tiny_patch16_224", "image_size": 224}, "not timm trunks"),
        ({"layers": [1, 1, 1, 1]}, "ModifiedResNet"),
    ],
)
def test_unsupported_open_clip_towers(vision, words):
    import open_clip

    shape = {"layers": 1, "width": 32, "head_width": 8, "patch_size": 4, "image_size": 8, **vision}
    text = {"context_length": 8, "vocab_size": 49408, "width": 8, "heads": 1, "layers": 1}
    model = open_clip.CLIP(embed_dim=8, vision_cfg=shape, text_cfg=text)
    tokenizer = open_clip.SimpleTokenizer(context_length=8)
    with pytest.raises(hydra.HydraError, match=words):
        registry.from_open_clip_model(model, tokenizer, ref="it", class_names=["a", "b"], templates=["{}"])


def test_an_unknown_activation_is_refused():
    model = tf.ViTForImageClassification(vit_config(hidden_act="silu"))
    with pytest.raises(hydra.HydraError, match="activation 'silu'"):
        registry.from_hf_model(model, None, ref="it")


def test_an_unfaithful_reading_is_refused_with_both_figures(monkeypatch):
    """The parity check can fail: here the LayerNorms are read in the wrong order."""
    read = hf._vit_layer

    def wrong(layer, config):
        weights = read(layer, config)
        return type(weights)(**{**vars(weights), "norm1": weights.norm2, "norm2": weights.norm1})

    model = tf.ViTForImageClassification(vit_config())
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn_like(p))
    broken = type(hf.ARCHITECTURES["vit"])(**{**vars(hf.ARCHITECTURES["vit"]), "layer": wrong})
    monkeypatch.setitem(hf.ARCHITECTURES, "vit", broken)
    with pytest.raises(hydra.HydraError, match=r"differ from the original library's by .* at most .* is allowed"):
        registry.from_hf_model(model, None, ref="it")


def test_a_backbone_on_which_masking_has_no_effect_is_refused():
    """H13's self-test."""
    model = tf.ViTForImageClassification(vit_config())
    with torch.no_grad():
        for layer in model.vit.layers:
            layer.attention.o_proj.weight.zero_()
    with pytest.raises(hydra.HydraError, match="masking every head of 'it' changes no logit"):
        registry.from_hf_model(model, None, ref="it")


def test_weights_that_are_not_finite_are_refused():
    model = tf.ViTForImageClassification(vit_config())
    with torch.no_grad():
        model.classifier.bias[0] = torch.nan
    with pytest.raises(hydra.HydraError, match="not finite"):
        registry.from_hf_model(model, None, ref="it")


def test_the_original_is_let_go(folder):
    model = tf.ViTForImageClassification.from_pretrained(folder)
    gone = weakref.ref(model.vit.layers[0].attention.q_proj.weight)
    backbone = registry.from_hf_model(model, None, ref="it")
    del model
    gc.collect()
    assert gone() is None, "the packed copy must be the only one"
    assert backbone.num_layers == 2


def test_the_text_tower_of_open_clip_stays_untouched(tmp_path):
    """H18: pruning our reading changes nothing in the open_clip model it came from."""
    original = originals.build("open-clip", tmp_path)
    import open_clip

    before = copy.deepcopy(original.model.float().state_dict())
    tokenizer = open_clip.SimpleTokenizer(context_length=12)
    backbone = registry.from_open_clip_model(
        original.model, tokenizer, ref="it", class_names=["a", "b"], templates=["{}"]
    )
    hydra.prune(backbone, backbone.mask.without([(0, 0), (1, 2)]))
    assert all(torch.equal(tensor, before[name]) for name, tensor in original.model.state_dict().items())


def test_prepare_says_what_it_wants(folder):
    backbone = hydra.load_backbone(str(folder))
    with pytest.raises(hydra.HydraError, match="at least one item"):
        backbone.prepare([])
    with pytest.raises(hydra.HydraError):
        backbone.prepare([3.5])
    bert = tf.BertConfig(
        hidden_size=12, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, vocab_size=30, num_labels=2
    )
    text = registry.from_hf_model(tf.BertForSequenceClassification(bert), None, ref="it")
    with pytest.raises(hydra.HydraError, match="came without a tokenizer"):
        text.prepare(["hello"])
