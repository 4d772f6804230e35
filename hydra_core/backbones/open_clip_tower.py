"""open_clip adapter: the image tower as a classifier, with class weights made from prompts by the text tower.

Logits are the library's: exp(logit_scale) x normalised image features x class weights (+ logit_bias).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hydra_core.backbones.layers import LayerWeights, affine
from hydra_core.backbones.network import Embed, NetworkSpec, Readout
from hydra_core.errors import HydraError


class ClipEmbed(Embed):
    """Patch convolution, class token, positions and the LayerNorm in front of the layers."""

    def __init__(self, width: int, patch: Sequence[int], grid: Sequence[int], norm: nn.LayerNorm | None) -> None:
        super().__init__()
        self.grid = tuple(grid)
        size = (int(patch[0]), int(patch[1]))
        self.conv1 = nn.Conv2d(3, width, kernel_size=size, stride=size, bias=False)
        self.class_embedding = nn.Parameter(torch.empty(width))
        self.positional_embedding = nn.Parameter(torch.empty(self.grid[0] * self.grid[1] + 1, width))
        self.ln_pre = nn.Identity() if norm is None else nn.LayerNorm(width, eps=norm.eps)

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """`pixel_values` (B, 3, height, width) -> (B, T, D)."""
        pixels = inputs["pixel_values"]
        patch = self.conv1.kernel_size
        expected = (self.grid[0] * int(patch[0]), self.grid[1] * int(patch[1]))
        if tuple(pixels.shape[-2:]) != expected:
            raise HydraError(
                f"images of {pixels.shape[-2]}x{pixels.shape[-1]} pixels do not fit this backbone, which takes "
                f"{expected[0]}x{expected[1]}; pass the images through prepare() first"
            )
        x = self.conv1(pixels).flatten(2).transpose(1, 2)  # (B, T - 1, D)
        x = torch.cat([self.class_embedding.expand(x.shape[0], 1, -1), x], dim=1) + self.positional_embedding
        tokens: Tensor = self.ln_pre(x)
        return tokens

    def num_tokens(self) -> int:
        """Patches and the class token."""
        return len(self.positional_embedding)

    @property
    def patch_grid(self) -> tuple[int, int]:
        """Rows and columns of the patches."""
        return int(self.grid[0]), int(self.grid[1])

    def flops(self, tokens: int) -> int:
        """The patch convolution."""
        return 2 * self.conv1.weight.numel() * (tokens - 1)


class ClipReadout(Readout):
    """LayerNorm, pooling, projection, normalisation and the product with the class weights."""

    def __init__(self, width: int, embed_dim: int, classes: int, pool: str, norm_after_pool: bool, eps: float) -> None:
        super().__init__()
        self.tokens = 1 if pool == "tok" else None
        self.pool = pool
        self.norm_after_pool = norm_after_pool
        self.ln_post = nn.LayerNorm(width, eps=eps)
        self.proj = nn.Parameter(torch.empty(width, embed_dim))
        self.class_weights = nn.Parameter(torch.empty(embed_dim, classes))
        self.logit_scale = nn.Parameter(torch.empty(()))
        self.logit_bias = nn.Parameter(torch.empty(()))

    def forward(self, x: Tensor) -> Tensor:
        """(B, Q, D) -> (B, C)."""
        if not self.norm_after_pool:
            x = self.ln_post(x)
        x = x[:, 0] if self.pool == "tok" else x[:, 1:].mean(1)
        if self.norm_after_pool:
            x = self.ln_post(x)
        features = F.normalize(x @ self.proj, dim=-1)
        return self.logit_scale.exp() * features @ self.class_weights + self.logit_bias

    def flops(self) -> int:
        """Projection and class weights."""
        return 2 * (self.proj.numel() + self.class_weights.numel())


def _check(visual: Any, ref: str) -> None:
    from open_clip.transformer import ResidualAttentionBlock, VisionTransformer

    if type(visual) is not VisionTransformer:
        raise HydraError(
            f"{ref!r} has an image tower of type {type(visual).__name__}; supported are open_clip's own vision "
            "transformers, not timm trunks or ResNets"
        )
    if visual.attn_pool is not None or visual.pool_type not in ("tok", "avg"):
        raise HydraError(f"{ref!r} pools its image tokens with attention, which is not supported")
    for block in visual.transformer.resblocks:
        if type(block) is not ResidualAttentionBlock:
            raise HydraError(
                f"{ref!r} is built of {type(block).__name__}; only open_clip's plain ResidualAttentionBlock is "
                "supported"
            )


def _activation(block: Any, ref: str) -> str:
    from open_clip.transformer import QuickGELU

    act = block.mlp.gelu
    if isinstance(act, QuickGELU):
        return "quick_gelu"
    if isinstance(act, nn.GELU):
        return "gelu" if act.approximate == "none" else "gelu_tanh"
    if isinstance(act, nn.ReLU):
        return "relu"
    raise HydraError(f"the activation {type(act).__name__} of {ref!r} is not supported")


def _layer(block: Any, ref: str) -> LayerWeights:
    attention = block.attn
    weights = attention.in_proj_weight.chunk(3)  # packed query, key, value: (3D, D)
    biases = (None,) * 3 if attention.in_proj_bias is None else attention.in_proj_bias.chunk(3)
    return LayerWeights(
        (weights[0], biases[0]), (weights[1], biases[1]), (weights[2], biases[2]), affine(attention.out_proj),
        block.ln_1, block.ln_2, affine(block.mlp.c_fc), affine(block.mlp.c_proj),
        attention.num_heads, _activation(block, ref), pre_norm=True,
        scale1=getattr(block.ls_1, "gamma", None), scale2=getattr(block.ls_2, "gamma", None),
    )  # fmt: skip


def take_apart(model: Any, class_weights: Tensor, ref: str) -> tuple[Embed, list[LayerWeights], Readout, NetworkSpec]:
    """An open_clip model's image tower as embedding, layers and read-out.

    Args:
        model: an open_clip CLIP or CustomTextCLIP.
        class_weights: (E, C), normalised columns, from the text tower.
        ref: named in errors.

    Raises:
        HydraError: a timm trunk, a ResNet, attention pooling, or a custom block.
    """
    visual = model.visual
    _check(visual, ref)
    has_norm = not isinstance(visual.ln_pre, nn.Identity)
    config = {
        "width": visual.conv1.out_channels,
        "patch": list(visual.conv1.kernel_size),
        "grid": list(visual.grid_size),
        "pre_eps": visual.ln_pre.eps if has_norm else None,
        "embed_dim": visual.proj.shape[1],
        "classes": class_weights.shape[1],
        "pool": visual.pool_type,
        "norm_after_pool": bool(visual.final_ln_after_pool),
        "post_eps": visual.ln_post.eps,
    }
    spec = NetworkSpec("open_clip", config)
    embed, readout = skeleton(config)
    bias = model.logit_bias
    own = embed.state_dict()
    embed.load_state_dict({name: t for name, t in visual.state_dict().items() if name in own}, assign=True)
    readout.load_state_dict(
        {
            "ln_post.weight": visual.ln_post.weight,
            "ln_post.bias": visual.ln_post.bias,
            "proj": visual.proj,
            "class_weights": class_weights,
            "logit_scale": model.logit_scale.reshape(()),
            "logit_bias": torch.zeros(()) if bias is None else bias.reshape(()),
        }
    )
    return embed, [_layer(block, ref) for block in visual.transformer.resblocks], readout, spec


def skeleton(config: Mapping[str, Any]) -> tuple[Embed, Readout]:
    """Embedding and read-out without trained numbers, from the spec's config."""
    eps = config["pre_eps"]
    norm = None if eps is None else nn.LayerNorm(1, eps=eps)
    return (
        ClipEmbed(config["width"], config["patch"], config["grid"], norm),
        ClipReadout(
            config["width"], config["embed_dim"], config["classes"], config["pool"], config["norm_after_pool"],
            config["post_eps"],
        ),
    )  # fmt: skip
