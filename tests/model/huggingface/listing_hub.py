"""A fake Hub that also lists a repository's files with their sizes, as the Hub's API does."""

import json
import re
from collections.abc import Mapping
from typing import Any

from tests.model.huggingface.fake_hub import COMMIT, FakeHub


class ListingHub(FakeHub):
    """FakeHub with listings. larger_than_life: bytes that the listing states for a file, whatever its real size."""

    def __init__(self, repos: Mapping[str, Mapping[str, bytes]]) -> None:
        super().__init__(repos)
        self.larger_than_life: dict[str, int] = {}
        files: Any = self._server.RequestHandlerClass
        hub = self

        class Handler(files):
            def do_GET(self) -> None:
                matched = re.match(r"/api/models/([^?]+)", self.path)
                if matched is None:
                    super().do_GET()
                    return
                hub.requests.append(f"{self.command} {self.path}")
                repo = hub.repos.get(matched[1])
                if repo is None:
                    self.refuse(404, "RepoNotFound")
                    return
                body = json.dumps(hub.listing(matched[1], repo)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server.RequestHandlerClass = Handler

    def listing(self, name: str, repo: Mapping[str, bytes]) -> dict[str, Any]:
        sizes = {file: self.larger_than_life.get(file, len(content)) for file, content in repo.items()}
        siblings = [{"rfilename": file, "size": size} for file, size in sizes.items()]
        return {"id": name, "sha": COMMIT, "private": False, "siblings": siblings}
