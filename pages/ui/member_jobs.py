"""The long jobs of the Members page: searches that set the members' masks as their last step."""

from typing import TYPE_CHECKING

from hydra_core.jobs import Progress, Stages
from hydra_core.mask_files import selection_note
from hydra_core.masks import HeadMask
from hydra_core.study import Study
from pages.ui import cache, jobs, state, work

if TYPE_CHECKING:
    from hydra_core import Circuit, Dataset

STRATEGIES = {
    "circuit": "Circuits (HeadMap), by objective and OOD set",
    "greedy": "Greedy: best ensemble of circuits and Taylor",
    "taylor": "Taylor importance, by data shard",
    "random": "Random heads",
}
GOALS = {"nll": "the ensemble's NLL", "ood_auroc": "the ensemble's OOD AUROC"}
SEES_OOD = ("circuit", "greedy")
FEWEST_SAMPLES = 256


def make_members(
    study: Study, strategy: str, count: int, heads: int, select_ood: list[str], goal: str, max_overlap: float | None
) -> None:
    """Start a search that makes all members' masks; `select_ood`: OOD sets whose validation part may be used."""

    def run(progress: Progress) -> str:
        from hydra_core import pipeline

        progress(0, 0, "loading the backbone and the data")
        backbone = cache.backbone(study)
        found: dict[str, Circuit] = {}
        selection = pipeline.Selection(
            strategy, tuple(select_ood), count, heads, goal=goal, max_overlap=max_overlap
        )  # fmt: skip
        masks = pipeline.choose_masks(
            backbone, work.study_data(study), selection, seed=study.config.seed, found=found.__setitem__,
            progress=progress,
        )  # fmt: skip
        for name, circuit in found.items():
            study.save_circuit(name, circuit)
        seen = select_ood if strategy in SEES_OOD else []
        note = selection_note(f"{strategy}, seed {study.config.seed}", seen)
        state.set_masks(study, masks, backbone.fingerprint, note)
        pinned = ", pinned heads kept beside" if state.pins(study) else ""
        return f"{count} members made: {STRATEGIES[strategy]}, {heads} heads a layer{pinned}"

    jobs.start(str(study.folder), f"Making {count} members", run)


def keep_fewest(study: Study, members: list[int], points: float) -> None:
    """Start cutting heads of `members` while accuracy stays within `points` percentage points of the full model's."""

    def run(progress: Progress) -> str:
        import hydra_core as hydra

        progress(0, 0, "loading the backbone and the data")
        backbone, data = cache.backbone(study), cache.dataset(study, "id", cache.SELECTION)
        masks = list(study.active_masks or [])
        stages = Stages(progress, len(members))
        told = []
        for place, member in enumerate(members):
            found = hydra.fewest_heads(
                backbone, shard(data, place, len(members), study.config.seed), max_drop=points / 100,
                pinned=state.pins(study), progress=stages.next(f"member {member}"),
            )  # fmt: skip
            masks[member] = found.mask
            told.append(
                f"member {member} keeps {found.mask.num_kept} of {sum(found.mask.widths)} heads, accuracy "
                f"{100 * found.accuracy:.1f} % against {100 * found.full_accuracy:.1f} % (n = {found.num_samples})"
            )
        how = f"fewest heads within {points:g} points of accuracy"
        note = selection_note(how, []) if len(members) == len(masks) else how  # else the other members' stands too
        state.set_masks(study, masks, backbone.fingerprint, note)
        again = " The members are the same: the samples agree." if same(masks, members) else ""
        return f"{'; '.join(told).capitalize()}.{again} Undo brings the masks before back."

    jobs.start(str(study.folder), "Cutting heads that accuracy can spare", run)


def shard(data: "Dataset", place: int, count: int, seed: int) -> "Dataset":
    """The place-th of `count` samples of the validation data that share nothing, so that members may differ."""
    drawn = data.take(min(len(data), FEWEST_SAMPLES * count), seed=seed)
    return drawn.subset(list(range(place, len(drawn), count)))


def same(masks: list[HeadMask], members: list[int]) -> bool:
    """Whether several members came out alike."""
    return len(members) > 1 and len({masks[i] for i in members}) == 1
