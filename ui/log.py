"""What an error leaves in the server's log: its kind and the lines of code, not its words, which may hold a text."""

import logging
from traceback import format_tb


class WithoutWords(logging.Filter):
    """Takes the words of exceptions out of what a logger writes."""

    def filter(self, record: logging.LogRecord) -> bool:
        kind, _, trace = record.exc_info or (None, None, None)
        if kind is not None:
            record.msg = f"{record.getMessage()}: {kind.__name__}\n{''.join(format_tb(trace))}"
            record.args, record.exc_info, record.exc_text = (), None, None
        return True


def without_words() -> None:
    """Of exceptions that Streamlit finds in a page. Those of jobs come to it by way of the page that asked."""
    logging.getLogger("streamlit.error_util").addFilter(WithoutWords())
