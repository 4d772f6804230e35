"""Layers whose weights carry a member axis: group m acts on member m's stream with member m's own numbers."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class GroupedLinear(nn.Module):
    """Grouped fully-connected layer (GFC of Hydra Ensembles, arXiv 2510.18358): y_m = x_m W_m + b_m.

    Members may have different widths. Their weights lie one after another along the ragged axis, so nothing is
    padded and no arithmetic is wasted; equal widths are one batched product.

    Args:
        widths: one ragged width a member (0 is allowed).
        width: the axis that is the same for all members, D.
        grouped: which side is ragged: ``"output"`` maps D -> widths[m] (query, key, value), ``"input"`` maps
            widths[m] -> D (output projection).
        bias: whether there are biases: along the ragged axis for "output", (M, D) for "input".
        parts: equal parts each ragged width consists of (3 for packed query, key, value), so that a caller can
            ask for some of them.
    """

    def __init__(self, widths: Sequence[int], width: int, *, grouped: str, bias: bool = True, parts: int = 1) -> None:
        super().__init__()
        if grouped not in ("output", "input"):
            raise ValueError(f'grouped must be "output" or "input", got {grouped!r}')
        self.widths = tuple(widths)
        self.width = width
        self.grouped = grouped
        self.parts = parts
        self.weight = nn.Parameter(torch.empty(sum(widths), width))
        bias_shape = (sum(widths),) if grouped == "output" else (len(widths), width)
        self.bias = nn.Parameter(torch.empty(bias_shape)) if bias else None

    @property
    def even(self) -> bool:
        """Whether all members are equally wide."""
        return len(set(self.widths)) == 1

    def matrices(self, part: slice = slice(None)) -> list[tuple[Tensor, Tensor | None]]:
        """Views of each member's weight as (in, out) and bias (out), restricted to some of the `parts`."""
        weights = self.weight.split(self.widths)
        if self.grouped == "input":
            biases = [None] * len(weights) if self.bias is None else list(self.bias.unbind(0))
            return list(zip(weights, biases, strict=True))
        ragged = [None] * len(weights) if self.bias is None else list(self.bias.split(self.widths))
        views = []
        for w, b in zip(weights, ragged, strict=True):
            w = w.view(self.parts, -1, self.width)[part].flatten(0, 1)
            views.append((w.t(), None if b is None else b.view(self.parts, -1)[part].flatten()))
        return views

    def forward(self, x: Tensor | list[Tensor], part: slice = slice(None)) -> Tensor | list[Tensor]:
        """Map each member's stream.

        Args:
            x: (M or 1, ..., in), or for ragged inputs a list of M tensors (..., in_m); a leading 1 serves all.
            part: which of the `parts` to compute ("output" only).

        Returns:
            (M, ..., out) where the outputs are equally wide, else a list of M tensors (..., out_m).
        """
        matrices = self.matrices(part)
        if isinstance(x, Tensor) and self.even:
            return self._batched(x, matrices)
        streams = list(x.expand(len(matrices), *x.shape[1:])) if isinstance(x, Tensor) else x
        outputs = [_affine(s, w, b) for s, (w, b) in zip(streams, matrices, strict=True)]
        return torch.stack(outputs) if self.grouped == "input" else outputs

    def _batched(self, x: Tensor, matrices: list[tuple[Tensor, Tensor | None]]) -> Tensor:
        members, width = len(matrices), matrices[0][0].shape[1]
        shape = (members, *x.shape[1:-1], width)
        rows = x.flatten(1, -2)  # (M or 1, N, in)
        if members == 1:
            return _affine(rows[0], *matrices[0]).view(shape)
        if x.device.type == "cpu" and not torch.is_grad_enabled() and not torch.compiler.is_compiling():
            # On CPU one product a member beats the batched one (measured, see benchmarks/fusion.py).
            out = x.new_empty(members, rows.shape[1], width)
            for m, (w, b) in enumerate(matrices):
                source = rows[min(m, len(rows) - 1)]
                if b is None:
                    torch.mm(source, w, out=out[m])
                else:
                    torch.addmm(b, source, w, out=out[m])
            return out.view(shape)
        rows = rows.expand(members, -1, -1)
        weight = torch.stack([w for w, _ in matrices]) if self.grouped == "output" else self._stacked()
        bias = None if self.bias is None else torch.stack([b for _, b in matrices if b is not None])
        if bias is None:
            return torch.bmm(rows, weight).view(shape)
        return torch.baddbmm(bias[:, None], rows, weight).view(shape)

    def _stacked(self) -> Tensor:
        return self.weight.view(len(self.widths), -1, self.width)  # a view: nothing is copied


def _affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x (..., in) times weight (in, out) plus bias; an input of width 0 gives the bias alone."""
    if weight.shape[0] == 0:  # an exported graph must hold no tensor without elements
        zeros = x.new_zeros(*x.shape[:-1], weight.shape[1])
        return zeros if bias is None else zeros + bias
    return F.linear(x, weight.t(), bias)


class GroupedLayerNorm(nn.Module):
    """LayerNorm over D with one weight and bias a member, or one for all (members = 1)."""

    def __init__(self, members: int, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(members, width))
        self.bias = nn.Parameter(torch.empty(members, width))

    def forward(self, x: Tensor) -> Tensor:
        """x (M or 1, B, T, D) -> (M, B, T, D)."""
        width = x.shape[-1:]
        if len(self.weight) == 1:
            return F.layer_norm(x, width, self.weight[0], self.bias[0], self.eps)
        normed = F.layer_norm(x, width, eps=self.eps)
        return torch.addcmul(self.bias[:, None, None], normed, self.weight[:, None, None])


class GroupedScale(nn.Module):
    """LayerScale: an elementwise factor over D, one a member, or one for all (members = 1)."""

    def __init__(self, members: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(members, width))

    def forward(self, x: Tensor) -> Tensor:
        """x (M or 1, B, T, D) -> (M, B, T, D)."""
        return x * self.weight[:, None, None]
