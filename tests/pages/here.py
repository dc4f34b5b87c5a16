"""A long job without its process."""

from collections.abc import Callable

from serving.background import Watched


class Here:
    """A long job done at once: for what is not about its process, which takes seconds to start."""

    def __init__(self, function: Callable, *arguments: object) -> None:
        self._job = function, arguments

    def finish(self, look: Callable[[Watched], object]) -> object:
        function, arguments = self._job
        return function(lambda report: look(Watched(reports=(report,))), *arguments)
