"""Files that users send. Streamlit refuses them (403) without an XSRF cookie, as in a frame of another site."""

from typing import Any

import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile
from streamlit.web.server.server_util import is_xsrf_enabled

from i18n import say

COOKIE = "_streamlit_xsrf"


def uploader(*arguments: Any, **options: Any) -> Any:
    """st.file_uploader, under a sentence where an upload would be refused. How to allow it: deploy/README.md."""
    if is_xsrf_enabled() and "Host" in st.context.headers and COOKIE not in st.context.cookies:
        words = say(
            "Uploads do not work here: the browser blocks the cookie that they need, as it does for pages embedded in "
            "another site. Open this page in its own tab to upload a file."
        )
        st.caption(f":material/info: {words}")
    return st.file_uploader(*arguments, **options)


def uploaded(key: str) -> UploadedFile | None:
    """For an uploader's callback: its file; None where there is none, or none any more, as after a restart."""
    file = st.session_state.get(key)
    return file if isinstance(file, UploadedFile) else None  # Streamlit gives a DeletedFile for one that it has lost
