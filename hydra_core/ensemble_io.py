"""Save a fused ensemble as a folder and load it again, in a new process, without the backbone it came from.

The folder holds config.json, model.safetensors, the preprocessing's own files and a README.md (model card). Nothing is
pickled. On loading, every weight's name, shape and the file's fingerprint are checked.
"""

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hydra_core.artefacts import parse_json
from hydra_core.errors import HydraError
from hydra_core.fusion import FusedEnsemble
from hydra_core.masks import HeadMask
from hydra_core.model_card import CardFacts, model_card
from hydra_core.version import __version__

FORMAT = "hydra-ensemble"
VERSION = 1
CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"


def save_ensemble(
    fused: FusedEnsemble, folder: str | os.PathLike[str], *, card: str = "", facts: CardFacts | None = None
) -> Path:
    """Write `fused` to a folder of its own; an existing ensemble there is replaced only once all is written.

    Args:
        fused: from :func:`hydra_core.fuse`.
        folder: made where it does not exist; refused where it exists and holds something else.
        card: Markdown that is added to the model card.
        facts: metrics, data and how the heads were chosen, for the card.

    Returns:
        The folder.

    Raises:
        HydraError: `fused` is no FusedEnsemble, or the folder cannot be written or holds other things.
    """
    from safetensors.torch import save_file

    if not isinstance(fused, FusedEnsemble):
        raise HydraError(f"save_ensemble takes a fused ensemble (hydra.fuse), got a {type(fused).__name__}")
    target = Path(folder)
    if target.exists() and (not target.is_dir() or (any(target.iterdir()) and not (target / CONFIG).is_file())):
        raise HydraError(f"{str(target)!r} exists and is no saved ensemble; choose a new folder")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except OSError as error:
        raise HydraError(f"the folder {str(target)!r} cannot be written ({error.strerror})") from None
    try:
        kept = None if fused.processor is None else fused.processor.save(str(temporary))
        # safetensors refuses tensors that share memory: each is written as its own copy.
        state = {name: t.detach().cpu().contiguous().clone() for name, t in fused.network.state_dict().items()}
        save_file(state, temporary / WEIGHTS, metadata={"format": "pt"})
        (temporary / CONFIG).write_text(json.dumps(_config(fused, kept), indent=1), encoding="utf-8")
        (temporary / CARD).write_text(model_card(fused, facts, card), encoding="utf-8")
        if target.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{target.name}-old-", dir=target.parent))
            os.replace(target, old / "ensemble")
            os.replace(temporary, target)
            shutil.rmtree(old)
        else:
            os.replace(temporary, target)
    except OSError as error:
        raise HydraError(f"the ensemble could not be written to {str(target)!r} ({error.strerror or error})") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    os.chmod(target, 0o755)  # mkdtemp makes a private folder
    return target


def _config(fused: FusedEnsemble, processor: dict[str, Any] | None) -> dict[str, Any]:
    encoder = fused.network.encoder
    return {
        "format": FORMAT,
        "version": VERSION,
        "hydra_core": __version__,
        "family": fused.family,
        "backbone": fused.ref,
        "fingerprint": fused.fingerprint,
        "class_names": list(fused.class_names),
        "num_members": fused.num_members,
        "masks": [[list(row) for row in mask.keep] for mask in fused.masks],
        "dtype": fused.dtype,
        "report": fused.report,
        "adapter": fused.spec.adapter,
        "network": fused.spec.config,
        "readouts": len(fused.network.readouts),
        "readout_tokens": encoder.readout_tokens,
        "blocks": [shape.to_dict() for shape in encoder.shapes],
        "processor": processor,
    }


def load_ensemble(folder: str | os.PathLike[str], *, device: str = "auto") -> FusedEnsemble:
    """Load what :func:`save_ensemble` wrote; needs neither the original backbone nor a network connection.

    Args:
        folder: the ensemble's folder.
        device: `auto` (the GPU where there is one), `cpu`, `cuda`, ...

    Raises:
        HydraError: not an ensemble's folder, a newer format, or weights that do not fit the configuration.
    """
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from hydra_core.backbones.layers import empty_encoder
    from hydra_core.backbones.network import Network, NetworkSpec
    from hydra_core.backbones.processors import load_processor
    from hydra_core.backbones.registry import resolve_device, resolve_dtype
    from hydra_core.block import BlockShape

    path = Path(folder)
    place = resolve_device(device)
    config = _read_config(path)
    try:
        skeletons = [_skeleton(config) for _ in range(config["readouts"])]
        shapes = [BlockShape.from_dict(block) for block in config["blocks"]]
        encoder = empty_encoder(shapes, config["readout_tokens"])
        network = Network(skeletons[0][0], encoder, [readout for _, readout in skeletons], config["num_members"])
        masks = [HeadMask(mask) for mask in config["masks"]]
        if config["num_members"] != len(masks):
            raise ValueError(f"{config['num_members']!r} members, {len(masks)} masks")
        dtype = resolve_dtype(config["dtype"])
    except HydraError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise HydraError(f"{str(path / CONFIG)!r} is damaged ({what}); export it again") from None
    try:
        state = load_file(path / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise HydraError(f"the weights in {str(path)!r} cannot be read ({error}); copy or export them again") from None
    _check_shapes(network, state, path)
    network.load_state_dict(state, assign=True)
    with torch.no_grad():
        network.to(device=place, dtype=dtype)
    return FusedEnsemble(
        network.requires_grad_(False),
        None if config["processor"] is None else load_processor(path, config["processor"]),
        NetworkSpec(config["adapter"], config["network"]),
        ref=config["backbone"], family=config["family"], class_names=config["class_names"],
        fingerprint=config["fingerprint"], masks=masks, report=config["report"],
    )  # fmt: skip


def _read_config(path: Path) -> dict[str, Any]:
    if not (path / CONFIG).is_file() or not (path / WEIGHTS).is_file():
        raise HydraError(f"{str(path)!r} is no saved ensemble: it needs {CONFIG} and {WEIGHTS}")
    config = parse_json((path / CONFIG).read_text(encoding="utf-8", errors="replace"), "an ensemble's configuration")
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise HydraError(f"{str(path / CONFIG)!r} is not an ensemble's configuration; was it a backbone's folder?")
    if config.get("version") != VERSION:
        raise HydraError(
            f"{str(path)!r} was written in format {config.get('version')!r} by hydra_core "
            f"{config.get('hydra_core')}; this is {__version__}, which reads format {VERSION}"
        )
    return config


def _skeleton(config: dict[str, Any]) -> Any:
    from hydra_core.backbones import hf, open_clip_tower

    adapters = {"hf": hf.skeleton, "open_clip": open_clip_tower.skeleton}
    if config["adapter"] not in adapters:
        raise HydraError(f"the ensemble needs the adapter {config['adapter']!r}, which this version does not have")
    return adapters[config["adapter"]](config["network"])


def _check_shapes(network: Any, state: dict[str, Any], path: Path) -> None:
    expected = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in state.items()}
    if expected.keys() != found.keys():
        odd = sorted(expected.keys() ^ found.keys())
        raise HydraError(f"the weights in {str(path)!r} do not fit its configuration: {len(odd)} names, e.g. {odd[0]}")
    for name, shape in expected.items():
        if found[name] != shape:
            raise HydraError(
                f"the weights in {str(path)!r} do not fit their configuration: {name} has shape {found[name]}, "
                f"{shape} was expected"
            )
