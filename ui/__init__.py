from ui import streamlit_internals

streamlit_internals.lose_no_clicks()
streamlit_internals.keep_texts_for_the_next_page()
streamlit_internals.limit_uploads()
streamlit_internals.make_downloads_in_turn()
streamlit_internals.run_page_for_late_clicks()  # before the slow imports: after a restart, clicks come meanwhile
