"""The Python lines that reproduce a study with hydra_core."""

from hydra_core.study import Study, StudyConfig


def file_name(name: str) -> str:
    """A study's name as a script's file name."""
    return "".join(c if c.isalnum() else "_" for c in name) or "study"


def python_lines(study: Study) -> str:
    """A script that loads, prunes, fuses, evaluates and saves what the study holds now."""
    config = study.config
    arguments = [repr(config.backbone)]
    if config.device != "auto":
        arguments.append(f"device={config.device!r}")
    if config.dtype != "float32":
        arguments.append(f"dtype={config.dtype!r}")
    if config.class_names:
        arguments.append(f"class_names={list(config.class_names)!r}")
    if config.templates:
        arguments.append(f"templates={list(config.templates)!r}")
    options = f", limit={config.limit}, seed={config.seed}" if config.limit else ""
    lines = [
        "import hydra_core as hydra",
        "",
        f"backbone = hydra.load_backbone({', '.join(arguments)})",
    ]
    lines += _data("data", config.data, config, options, classes=True)
    lines.append("ood = {}")
    for name, ref in config.ood.items():
        lines += _data(f"ood[{name!r}]", ref, config, options, classes=False)
    masks = study.active_masks
    if masks:
        lines += ["", "# Which heads each member keeps: one row a layer, 1 = kept.", "members = ["]
        for mask in masks:
            rows = [f'"{"".join("1" if keep else "0" for keep in row)}"' for row in mask.keep]
            lines.append(f"    [{', '.join(rows)}],")
        lines += [
            "]",
            'masks = [hydra.HeadMask([[head == "1" for head in row] for row in rows]) for rows in members]',
            "fused = hydra.fuse([hydra.prune(backbone, mask) for mask in masks])",
            "",
            'for name, model in {"full": backbone, "fused": fused}.items():',
            "    print(name, hydra.evaluate(model, data, ood=ood).metrics)",
            f'hydra.save_ensemble(fused, "{file_name(study.name)}_fused")',
        ]
    else:
        lines += ["", "print(hydra.evaluate(backbone, data, ood=ood).metrics)"]
    return "\n".join(lines) + "\n"


def _data(target: str, ref: str, config: StudyConfig, options: str, *, classes: bool) -> list[str]:
    names = ", class_names=backbone.class_names" if classes else ""
    if ref.startswith("demo/"):
        return [f'{target} = hydra.load_dataset({ref!r}, split="test"{options}{names})']
    # One half of one's own data selects heads, the other half tests them (as in the app).
    return [f"{target} = hydra.load_dataset({ref!r}{options}{names}).split(0.5, seed={config.seed})[1]"]
