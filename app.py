"""Hydra studio: page set-up and navigation; everything else is in pages/. Run with ``streamlit run app.py``."""

import streamlit as st

from hydra_core.paths import ASSETS
from pages.ui import frame, state

st.set_page_config(
    page_title="Hydra studio",
    page_icon=ASSETS / "icon.png",
    layout="wide",
    initial_sidebar_state="auto",
    menu_items={"About": "Prune attention heads into circuits, fuse them into one ensemble, measure its uncertainty."},
)
current = frame.navigation()
state.set_ready()
current.run()
