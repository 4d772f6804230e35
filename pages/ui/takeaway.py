"""Files that leave the app."""

import io
import tempfile
import zipfile
from pathlib import Path

from hydra_core.errors import HydraError
from hydra_core.study import Study
from pages.ui import cache


def model_zip(study: Study) -> bytes:
    """The fused ensemble as the zip of the folder that ``hydra.load_ensemble`` opens."""
    import hydra_core as hydra

    masks = study.active_masks
    if not masks:
        raise HydraError("there are no members yet; make them on the Members page")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "ensemble"
        hydra.save_ensemble(cache.fused(study, masks), folder)
        out = io.BytesIO()
        # Weights do not compress: stored as they are, which is quick.
        with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
            for path in sorted(folder.rglob("*")):
                if path.is_file():
                    archive.write(path, f"{study.name}-fused/{path.relative_to(folder)}")
    return out.getvalue()
