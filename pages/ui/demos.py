"""The shipped demo studies, and opening one: a copy goes to the studies folder, so nothing shipped is ever changed."""

from dataclasses import dataclass

from hydra_core.errors import HydraError
from hydra_core.paths import ASSETS
from hydra_core.study import Study, studies_root
from pages.ui import state

SHIPPED = ASSETS / "studies"


@dataclass(frozen=True)
class Demo:
    """A shipped study: its folder, and what the Start page says of it."""

    folder: str
    title: str
    text: str


DEMOS = (
    Demo(
        "demo-vit",
        "Images: ViT",
        "A small vision transformer that knows Fashion-MNIST clothes. Do its circuits notice a handwritten "
        "digit "
        "(MNIST), or a crop of a photograph?",
    ),
    Demo(
        "demo-bert",
        "Text: BERT",
        "MiniLM, fine-tuned on film reviews. Do its circuits notice a newspaper editorial, or a product review?",
    ),
    Demo(
        "demo-clip",
        "Zero-shot: CLIP",
        "A small CLIP that classifies clothes by text prompts, never fine-tuned. Its class names were seen "
        "in training; "
        "its prompt templates were not.",
    ),
)


def open_demo(folder: str) -> None:
    """Open the demo study, copying it into the studies folder the first time."""
    source, target = SHIPPED / folder, studies_root() / folder
    if not target.is_dir():
        if not source.is_dir():
            raise HydraError(
                f"The demo study {folder!r} is not in this copy of Hydra studio (assets/studies). "
                "Make it with `make demo-studies`, or start a study of your own under Model & data."
            )
        Study.open(source).duplicate(folder, root=studies_root())
    state.open_study(folder)
