"""The command line: ``python -m hydra_core run | score | circuit | evaluate | export | bench | table``.

An error that a person can mend is one line on stderr and exit code 2; Ctrl-C is exit code 130, and no study
is left half-written by either. With ``--json`` the last line of stdout is one JSON object.
"""

import argparse
import json
import logging
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

from hydra_core.cli import commands
from hydra_core.cli.text import ProgressLine
from hydra_core.errors import HydraError
from hydra_core.jobs import Cancelled
from hydra_core.version import __version__

EXIT_ERROR, EXIT_CANCELLED = 2, 130
GOALS = ("nll", "ood_auroc")
STRATEGIES = ("circuit", "taylor", "random", "greedy")
OBJECTIVES = ("loss", "ood_auroc", "average")
SCORES = (
    "msp", "max_logit", "energy", "entropy", "mutual_information", "expected_pairwise_kl", "vote_disagreement",
)  # fmt: skip


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        # argparse prints the usage before; one line is what this program promises.
        raise HydraError(f"{message}; see {self.prog} --help")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    _quiet_libraries()
    line = ProgressLine(sys.stderr)
    try:
        parsed = build_parser().parse_args(arguments)
        result: dict[str, Any] = parsed.command(parsed, line.show)
        line.clear()
        if parsed.json:
            print(json.dumps(result, allow_nan=False))
        return 0
    except HydraError as error:
        line.clear()
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return EXIT_ERROR
    except (KeyboardInterrupt, Cancelled):
        line.clear()
        print("cancelled: nothing was changed", file=sys.stderr)
        return EXIT_CANCELLED


def build_parser() -> argparse.ArgumentParser:
    """The parser with all commands; each sets `command`, a function of :mod:`hydra_core.cli.commands`."""
    parser = _Parser(prog="python -m hydra_core", description="Hydra Ensembles without a browser.")
    parser.add_argument("--version", action="version", version=f"hydra-studio {__version__}")
    parts = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)
    _run(parts.add_parser("run", help="the whole path: choose heads, prune, fuse, evaluate, save a study"))
    _score(parts.add_parser("score", help="score every attention head"))
    _circuit(parts.add_parser("circuit", help="find a circuit with HeadMap"))
    _evaluate(parts.add_parser("evaluate", help="metrics of a backbone, a saved ensemble, or a study's members"))
    _export(parts.add_parser("export", help="write a study's masks, its fused ensemble, or a report"))
    _bench(parts.add_parser("bench", help="time a study's fused ensemble against the single network"))
    _table(parts.add_parser("table", help="the zero-shot table of the demos, as Markdown"))
    return parser


def _run(parser: argparse.ArgumentParser) -> None:
    _add_source(parser, study=False)
    _add_heads(parser)
    parser.add_argument("--strategy", choices=STRATEGIES, default="circuit", help="how members differ (%(default)s)")
    parser.add_argument("--members", type=_count, default=3, metavar="M", help="number of members (%(default)s)")
    parser.add_argument("--goal", choices=GOALS, default="nll", help="what `greedy` makes best (%(default)s)")
    parser.add_argument("--max-overlap", type=float, metavar="J", help="largest Jaccard overlap of two members")
    parser.add_argument(
        "--select-ood",
        action="append",
        metavar="NAME",
        help="an OOD set whose validation part helps to choose heads (repeatable; the first --ood by default)",
    )
    _add_scoring(parser)
    parser.add_argument("--out", required=True, metavar="FOLDER", help="the study's new folder")
    parser.add_argument("--replace", action="store_true", help="replace a study that is there")
    parser.add_argument("--without-weights", action="store_true", help="leave out the fused network's weights")
    _finish(parser, commands.run)


def _score(parser: argparse.ArgumentParser) -> None:
    _add_source(parser)
    parser.add_argument("--method", default="taylor", help="taylor, taylor_squared, ablation, headmap, captum:... ")
    parser.add_argument("--objective", choices=OBJECTIVES, default="loss", help="(%(default)s)")
    parser.add_argument("--num-samples", type=_count, metavar="N", help="score on N validation samples")
    _add_heads(parser, required=False)
    _add_scoring(parser, bins=False)
    parser.add_argument("--out", metavar="FILE", help="write the scores to this JSON file")
    parser.add_argument("--name", help="name in the study (the method by default)")
    _finish(parser, commands.score)


def _circuit(parser: argparse.ArgumentParser) -> None:
    _add_source(parser)
    parser.add_argument("--objective", choices=OBJECTIVES, default="loss", help="(%(default)s)")
    _add_heads(parser)
    _add_scoring(parser, bins=False)
    parser.add_argument("--out", metavar="FILE", help="write the circuit to this JSON file")
    parser.add_argument("--name", help="name in the study (objective and OOD set by default)")
    _finish(parser, commands.circuit)


def _evaluate(parser: argparse.ArgumentParser) -> None:
    _add_source(parser)
    parser.add_argument("--ensemble", metavar="FOLDER", help="a saved ensemble, in place of --backbone")
    _add_scoring(parser)
    parser.add_argument("--out", metavar="FILE", help="write the evaluation to this JSON file")
    _finish(parser, commands.evaluate)


def _export(parser: argparse.ArgumentParser) -> None:
    _add_study(parser)
    parser.add_argument("--masks", metavar="FILE", help="write the members' masks to this JSON file")
    parser.add_argument("--head-lists", metavar="FILE", help="write kept and pruned heads by layer to this JSON file")
    parser.add_argument("--report", metavar="FILE", help="write the study as one HTML page that needs no network")
    parser.add_argument("--ensemble", metavar="PATH", help="write the fused ensemble to this folder or .zip file")
    parser.add_argument("--masks-name", default="current", metavar="NAME", help="which set of masks (%(default)s)")
    parser.add_argument("--device", help="where to fuse; the study's device by default")
    parser.add_argument("--replace", action="store_true", help="replace a file or folder that is there")
    _finish(parser, commands.export)


def _bench(parser: argparse.ArgumentParser) -> None:
    _add_study(parser)
    parser.add_argument("--batch-size", type=_count, default=8, metavar="B", help="(%(default)s)")
    parser.add_argument("--rounds", type=_count, default=15, help="interleaved rounds (%(default)s)")
    parser.add_argument("--device", help="where to run; the study's device by default")
    _finish(parser, commands.bench)


def _table(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--demo", action="append", choices=("vit", "bert", "clip"), help="which demo (repeatable; all by default)"
    )
    _add_heads(parser, required=False)
    parser.add_argument("--validation-limit", type=_count, metavar="N", help="validation samples of each set")
    parser.add_argument("--test-limit", type=_count, metavar="N", help="test samples of each set")
    parser.add_argument("--seed", type=int, default=0, help="(%(default)s)")
    parser.add_argument("--device", default="auto", help="(%(default)s)")
    parser.add_argument("--out", metavar="FOLDER", help="write zero_shot_DEMO.json and .md here")
    _finish(parser, commands.table)


def _add_source(parser: argparse.ArgumentParser, *, study: bool = True) -> None:
    if study:
        parser.add_argument("--study", metavar="FOLDER", help="take backbone and data from this study, and save there")
    parser.add_argument("--backbone", required=not study, metavar="REF", help="demo/vit, a Hugging Face folder, ...")
    parser.add_argument("--data", required=not study, metavar="REF", help="demo/fashion-mnist, a folder, a file, ...")
    parser.add_argument(
        "--ood", action="append", default=[], metavar="[NAME=]REF", help="out-of-distribution data (repeatable)"
    )
    parser.add_argument(
        "--class-name", action="append", metavar="NAME", help="class of an open_clip model (repeatable)"
    )
    parser.add_argument("--template", action="append", metavar="TEXT", help="prompt with {} for the class (repeatable)")
    parser.add_argument("--validation-limit", type=_count, metavar="N", help="validation samples to take of each set")
    parser.add_argument("--test-limit", type=_count, metavar="N", help="test samples to take of each set")
    parser.add_argument("--seed", type=int, default=0, help="of samples, shards and draws (%(default)s)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, ... (%(default)s)")
    parser.add_argument("--dtype", default="float32", help="float32, bfloat16, float64 (%(default)s)")


def _add_study(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--study", required=True, metavar="FOLDER", help="the study's folder")


def _add_heads(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    parser.add_argument(
        "--heads-per-layer",
        type=_heads,
        required=required,
        metavar="N",
        help="heads a member keeps in each layer: one number, or one a layer (4,4,6,...)",
    )


def _add_scoring(parser: argparse.ArgumentParser, *, bins: bool = True) -> None:
    parser.add_argument("--score", choices=SCORES, default="msp", help="OOD score (%(default)s)")
    parser.add_argument("--batch-size", type=_count, metavar="B", help="by default chosen by model and device")
    if bins:
        parser.add_argument("--bins", type=_count, default=15, help="bins of the calibration errors (%(default)s)")


def _finish(parser: argparse.ArgumentParser, command: commands.Command) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    parser.set_defaults(command=command)


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text}")
    return number


def _heads(text: str) -> int | tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a whole number, or one a layer (4,4,6), got {text!r}") from None
    return numbers[0] if len(numbers) == 1 else numbers


def _quiet_libraries() -> None:
    # Progress bars and notices of libraries would stand between this program's own lines. Read when they are
    # imported.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    logging.getLogger().addHandler(logging.NullHandler())
