from ui.streamlit_internals import files, messages

messages.lock_session_state()
messages.preserve_interrupted_clicks()
messages.preserve_text_on_page_change()
messages.send_what_the_browser_lacks()
files.limit_uploads()
files.serialize_downloads()
files.hash_whole_downloads()
messages.rerun_page_for_late_clicks()  # before the slow imports: after a restart, clicks come meanwhile
