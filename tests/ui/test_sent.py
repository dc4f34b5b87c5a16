"""Values of the wrong type that a browser sends for a widget: the widget keeps the value that it had.

python -m pytest tests/ui/test_sent.py
"""

from typing import Any

import pytest
from streamlit.proto.WidgetStates_pb2 import WidgetStates
from streamlit.testing.v1 import AppTest

VALUES: dict[str, Any] = {
    "bool_value": True,
    "string_value": "zzz",
    "int_value": -3,
    "double_value": float("nan"),
    "double_array_value": [1.0],
    "int_array_value": [7, -7],
    "string_array_value": ["zzz"],
    "json_value": "[1",
    "bytes_value": b"\x00",
}


def page() -> None:
    import streamlit as st

    from ui.widgets import widget_values  # noqa: F401

    st.text_area("Text", "a text", key="text").strip()
    st.slider("Part", 0, 9, (2, 5), key="part")
    st.toggle("On", True, key="on")
    st.segmented_control("One", ["a", "b"], default="b", key="one", required=True)
    st.selectbox("Number", [1, 2], key="number")


@pytest.mark.parametrize("field", VALUES)
@pytest.mark.parametrize("again", [False, True], ids=["first run", "later"])
def test_a_value_of_another_type_counts_as_not_sent(field: str, again: bool) -> None:
    def opened() -> AppTest:
        return AppTest.from_function(page)

    app = opened().run()
    widgets = {key: next(one for one in app if getattr(one, "key", None) == key) for key in KEPT}
    widget_values = WidgetStates()
    for key, widget in widgets.items():
        if field not in OWN[key]:
            state = widget_values.widgets.add(id=widget.id)
            if field.endswith("array_value"):
                getattr(state, field).data.extend(VALUES[field])
            else:
                setattr(state, field, VALUES[field])
    app = (app if again else opened())._run(widget_values)
    assert not app.exception
    assert {key: app.session_state[key] for key in KEPT if field not in OWN[key]} == {
        key: value for key, value in KEPT.items() if field not in OWN[key]
    }


KEPT = {"text": "a text", "part": (2, 5), "on": True, "one": "b", "number": 1}
OWN = {
    "text": ("string_value",),
    "part": ("double_array_value",),
    "on": ("bool_value",),
    "one": ("string_array_value",),
    "number": (),  # none of the values is the name of an option
}
