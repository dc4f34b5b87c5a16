"""Files to download, and to upload: Streamlit refuses (403) uploads without an XSRF cookie, as in a frame elsewhere."""

from io import BytesIO
from typing import Any

import streamlit as st

from i18n import say
from ui.streamlit_internals import XSRF_COOKIE


def download(label: str, data: Any, name: str, kind: str | None = None, **look: Any) -> None:
    """A button; the page does not run again for it. data: the file, or a function that makes it. kind: MIME type."""
    st.download_button(label, data, name, kind, on_click="ignore", icon=":material/download:", **look)


def uploader(*arguments: Any, **options: Any) -> Any:
    """st.file_uploader, under a sentence where an upload would be refused. How to allow it: deploy/README.md."""
    asks = st.get_option("server.enableXsrfProtection")
    if asks and "Host" in st.context.headers and XSRF_COOKIE not in st.context.cookies:
        words = say(
            "Uploads do not work here: the browser blocks the cookie that they need, as it does for pages embedded in "
            "another site. Open this page in its own tab to upload a file."
        )
        st.caption(f":material/info: {words}")
    return st.file_uploader(*arguments, **options)


def uploaded(key: str) -> Any:
    """For an uploader's callback: its file; None where there is none, or none any more, as after a restart."""
    file = st.session_state.get(key)
    return file if isinstance(file, BytesIO) else None  # Streamlit gives a DeletedFile for one that it has lost
