"""The figures that the paper reports, always labelled as the paper's."""

import pandas as pd
import streamlit as st

from hydra_core import published


def draw() -> None:
    """An expander with the published table."""
    with st.expander("What the paper reports (published figures, not measured here)", icon=":material/article:"):
        st.table(pd.DataFrame(published.ROWS, columns=published.HEADER).set_index("Setting"))
        st.caption(published.NOTE)
