"""The bare page that pages are compared with: a text field, a switch and two Plotly charts.

streamlit run tests/benchmarks/bare_page.py
"""

import numpy as np
import plotly.graph_objects as go
import streamlit as st

st.text_area("Text", "x")
causal = st.toggle("Causal", True, key="causal")
numbers = np.random.default_rng(int(causal)).random((23, 23))
st.plotly_chart(go.Figure(go.Heatmap(z=numbers)), key="heatmap")
st.plotly_chart(go.Figure(go.Scatter(y=numbers[0])), key="line")
