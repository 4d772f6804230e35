"""Licences of what ships with the project, as assets/models/*/README.md and assets/data/README.md record them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Licence:
    """A licence in words, and its SPDX name in lower case where there is one."""

    words: str
    spdx: str | None = None


_WEIGHTS = {
    "demo/vit": Licence("Apache-2.0, as this project; trained on Fashion-MNIST (MIT)", "apache-2.0"),
    "demo/bert": Licence(
        "Apache-2.0: this project's difference and its base, all-MiniLM-L6-v2; trained on film reviews (MIT)",
        "apache-2.0",
    ),
    "demo/clip": Licence("Apache-2.0, as this project; trained on Fashion-MNIST (MIT)", "apache-2.0"),
}
_SENTENCES = Licence("MIT, copyright 2016 C.J. Hutto", "mit")
_DATA = {
    "demo/fashion-mnist": Licence("MIT, copyright 2017 Zalando SE", "mit"),
    "demo/mnist": Licence("commonly given as CC BY-SA 3.0 (LeCun, Cortes and Burges)", "cc-by-sa-3.0"),
    "demo/patches": Licence(
        "CC BY 2.0, photographs by danielbuechele and vultilion (Flickr), cropped, made grey and reduced", "cc-by-2.0"
    ),
    "demo/movies": _SENTENCES,
    "demo/nyt": _SENTENCES,
    "demo/amazon": _SENTENCES,
}


def of_weights(ref: str) -> Licence:
    """The licence of a backbone's weights; of one's own, a sentence that names them."""
    return _WEIGHTS.get(ref) or Licence(f"that of the weights you brought, {ref}: look there before you pass it on")


def of_data(ref: str) -> Licence:
    """The licence of a data set."""
    return _DATA.get(ref) or Licence("that of the data you brought")
