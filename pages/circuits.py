"""placeholder"""

import streamlit as st

from pages.ui import frame

T = {"model_data": "Model & data", "head_importance": "Head importance"}.get("circuits", "circuits".title())
frame.page(T, lambda s: st.write("x"), explain="x")
