"""Forms of the Members page that let a search set the masks: all members at once, or the fewest heads."""

import streamlit as st

from hydra_core.masks import HeadMask
from hydra_core.study import Study
from pages.ui import cache, jobs, member_jobs, state, work


def make_all(study: Study, facts: cache.Facts) -> None:
    """Let a search make all members: circuits, a greedy choice, Taylor on shards, random."""
    with st.expander("Let a search make the members", icon=":material/manufacturing:"):
        left, middle, right = st.columns([4, 3, 3])
        strategies = list(member_jobs.STRATEGIES)
        strategy = left.selectbox(
            "Strategy", strategies, format_func=member_jobs.STRATEGIES.get,
            **state.bind(study, "strategy", "circuit", strategies),
        )  # fmt: skip
        count = middle.slider("Members", 2, 8, **state.bind(study, "strategy members", 3))
        widest = max(facts.widths)
        heads = right.slider(
            "Heads a layer", 1, widest, **state.bind(study, "strategy heads", max(1, round(widest * 5 / 6)))
        )
        select = selection_sets(study) if strategy in member_jobs.SEES_OOD else []
        goal, limit = "nll", 1.0
        left, right = st.columns(2)
        if strategy == "greedy":
            goals = list(member_jobs.GOALS) if select else ["nll"]
            goal = left.selectbox(
                "Make best", goals, format_func=member_jobs.GOALS.get,
                **state.bind(study, "strategy goal", "nll", goals),
                help="On validation data. Greedy: the best candidate first, then the one that helps the ensemble most.",
            )  # fmt: skip
        limit = right.slider(
            "Largest overlap of two members (Jaccard)", 0.0, 1.0, step=0.05,
            **state.bind(study, "strategy overlap", 1.0),
            help="1.00: members need only differ. Lower: more diverse, and the search may say that it found too few.",
        )  # fmt: skip
        job = jobs.current(str(study.folder))
        st.button(
            "Make members", type="primary", key=state.key("members", "make"), disabled=job is not None and job.active,
            on_click=member_jobs.make_members,
            args=(study, strategy, count, heads, select, goal, limit if limit < 1 else None),
        )  # fmt: skip


def fewest(study: Study, masks: list[HeadMask]) -> None:
    """Cut as many heads as accuracy can spare."""
    with st.expander("Keep the fewest heads that hold accuracy", icon=":material/content_cut:"):
        left, right = st.columns(2)
        points = left.slider(
            "Accuracy that may be lost, in points", 0.0, 10.0, step=0.5, **state.bind(study, "fewest points", 1.0)
        )
        members = ["all members", *(f"member {i}" for i in range(len(masks)))]
        target = right.selectbox("For", members, **state.bind(study, "fewest target", members[0], members))
        chosen = list(range(len(masks))) if target == members[0] else [members.index(target) - 1]
        st.caption(
            f"Starts from all heads and cuts one after another, the least missed first, on up to "
            f"{member_jobs.FEWEST_SAMPLES} validation samples a member (other samples for each). At least one head a "
            "layer stays, and every pinned one."
        )
        job = jobs.current(str(study.folder))
        st.button(
            "Find the fewest heads", type="primary", key=state.key("members", "fewest"),
            disabled=job is not None and job.active, on_click=member_jobs.keep_fewest, args=(study, chosen, points),
        )  # fmt: skip


def selection_sets(study: Study) -> list[str]:
    names = work.selectable(study)
    if not names:
        return []
    stored = [name for name in state.chosen(study, "selection ood", names) if name in names]
    return st.multiselect(
        "OOD sets that may choose heads (their validation part)", names,
        help="A set that helped to choose heads is not unseen any more: leave one out to test on.",
        **state.bind(study, "selection ood", stored),
    )  # fmt: skip
