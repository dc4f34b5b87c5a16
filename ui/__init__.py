from ui import streamlit_internals

streamlit_internals.preserve_interrupted_clicks()
streamlit_internals.preserve_text_on_page_change()
streamlit_internals.limit_uploads()
streamlit_internals.serialize_downloads()
streamlit_internals.hash_whole_downloads()
streamlit_internals.rerun_page_for_late_clicks()  # before the slow imports: after a restart, clicks come meanwhile
