"""Files that a reader sent."""

import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile


def uploaded(key: str) -> UploadedFile | None:
    """For an uploader's callback: its file; None where there is none, or none any more, as after a restart."""
    file = st.session_state.get(key)
    return file if isinstance(file, UploadedFile) else None  # Streamlit gives a DeletedFile for one that it has lost
