"""placeholder"""

import streamlit as st

from pages.ui import frame

T = {"model_data": "Model & data", "head_importance": "Head importance"}.get(
    "head_importance", "head_importance".title()
)
frame.page(T, lambda s: st.write("x"), explain="x")
