"""Compute the demo studies that the app opens: python -m benchmarks.demo_studies --out assets/studies

Each is what `python -m hydra_core run` leaves with the settings of the zero-shot table, without the weights of the
fused network (the masks rebuild them in a second), and with the single models of that table beside full and fused.
"""

import argparse
import sys
from pathlib import Path

from hydra_core import pipeline
from hydra_core.cli.text import ProgressLine
from hydra_core.jobs import Stages
from hydra_core.members import keep_highest
from hydra_core.pruning import prune
from hydra_core.scoring.headmap import check_heads_per_layer
from hydra_core.study import Study, StudyConfig
from hydra_core.zero_shot import DEMOS, TAYLOR_SINGLE, Demo

SEED = 0


def selection_of(demo: Demo, validation_limit: int | None) -> pipeline.Selection:
    return pipeline.Selection(
        "circuit",
        (demo.selected[0],),
        num_members=demo.num_members,
        heads_per_layer=demo.heads_per_layer,
        validation_limit=validation_limit or demo.validation_limit,
    )


def fill(study: Study, demo: Demo, selection: pipeline.Selection, progress: pipeline.Progress) -> None:
    """Walk the whole path, then predict with the single pruned models."""
    stages = Stages(progress, 2)
    walked = pipeline.walk(study, selection, with_weights=False, progress=stages.next("path"))
    data = pipeline.load_study_data(study.config, walked.backbone.class_names)
    scores = study.scores("taylor")
    assert scores is not None
    counts = check_heads_per_layer(demo.heads_per_layer, walked.backbone)
    singles = {TAYLOR_SINGLE: keep_highest(scores.values, counts, walked.backbone)}
    singles |= {f"circuit ({circuit.objective})": circuit.keep for circuit in study.circuits().values()}
    inner = Stages(stages.next("single models"), len(singles))
    fused = {part: study.predictions(pipeline.FUSED, part) for part in (pipeline.ID, *study.config.ood)}
    for name, mask in singles.items():
        note = inner.next(name)
        if mask in walked.masks:  # a member: the fused network ran it already, and exactly
            index = walked.masks.index(mask)
            predictions = {part: values.member(index) for part, values in fused.items() if values is not None}
        else:
            predictions = pipeline.predict_parts(prune(walked.backbone, mask), data, note)
        for part, values in predictions.items():
            study.save_predictions(name, part, values)
        study.save_evaluation(name, pipeline.evaluate_parts(predictions, selection.score))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the folder of the demo studies")
    parser.add_argument("--demo", action="append", choices=list(DEMOS), help="which (repeatable; all by default)")
    parser.add_argument("--limit", type=int, help="test samples of each set; all by default")
    parser.add_argument("--validation-limit", type=int, help="validation samples of each set")
    arguments = parser.parse_args()
    line = ProgressLine(sys.stderr)
    for name in arguments.demo or DEMOS:
        demo = DEMOS[name]
        config = StudyConfig(
            demo.backbone, demo.data, dict([demo.selected, demo.unseen]), seed=SEED, limit=arguments.limit
        )
        selection = selection_of(demo, arguments.validation_limit)
        config = pipeline.with_selection(config, selection)

        def work(study: Study, demo: Demo = demo, selection: pipeline.Selection = selection) -> None:
            fill(study, demo, selection, line.show)

        study = Study.build(arguments.out, f"demo-{name}", config, work, replace=True)
        line.clear()
        size = sum(path.stat().st_size for path in study.folder.rglob("*") if path.is_file())
        print(f"{study.folder}: {', '.join(study.prediction_models())}; {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
