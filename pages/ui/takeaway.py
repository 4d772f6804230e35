"""Files that leave the app."""

import io
import tempfile
import zipfile
from pathlib import Path

from hydra_core.mask_files import parse_mask_file, write_head_lists
from hydra_core.study import CURRENT_MASKS, Study
from pages.ui import ensemble


def model_zip(study: Study, variant: str) -> bytes:
    """The fused ensemble `variant` as the zip of the folder that ``hydra.load_ensemble`` opens."""
    import hydra_core as hydra
    from hydra_core.model_card import study_facts

    fused = ensemble.fused(study, variant)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "ensemble"
        hydra.save_ensemble(fused, folder, facts=study_facts(study, fused.fingerprint))
        out = io.BytesIO()
        # Weights do not compress: stored as they are, which is quick.
        with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
            for path in sorted(folder.rglob("*")):
                if path.is_file():
                    archive.write(path, f"{study.name}-{ensemble.file_stem(variant)}/{path.relative_to(folder)}")
    return out.getvalue()


def head_lists(study: Study) -> str:
    """The members' masks as lists of heads by layer."""
    masks, known = parse_mask_file(study.get("masks", CURRENT_MASKS) or "")
    return write_head_lists(masks, known["fingerprint"], known["backbone"], known.get("note", ""))


def report(study: Study) -> str:
    """The whole study as one HTML page."""
    from hydra_core.report import study_report

    return study_report(study)
