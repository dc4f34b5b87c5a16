"""Tests that the undocumented parts of Ray Serve that the app uses still exist and behave as it relies on."""

import inspect
from pathlib import Path
from unittest.mock import Mock

import pytest

from serving import machine

machine.keep_ray_on_loopback()  # before the import: this process may start a cluster in another test file
import ray  # noqa: E402
from ray.serve._private import replica  # noqa: E402

from serving import ray_cluster  # noqa: E402

PART = (
    f"ray {ray.__version__} has changed a part that serving/ray_cluster.py relies on: replica.add_port_to_grpc_server"
)


def test_a_replica_opens_its_port_by_the_function_that_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    assert hasattr(replica, "add_port_to_grpc_server"), PART
    assert 'add_port_to_grpc_server(self._server, "[::]:0")' in inspect.getsource(replica), PART
    monkeypatch.setattr(replica, "add_port_to_grpc_server", lambda _, address: opened.append(address))
    ray_cluster._listen_on_loopback()
    replica.add_port_to_grpc_server(None, "[::]:0")
    assert opened == ["127.0.0.1:0"]


def test_the_replicas_share_the_memory_for_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    serve = Mock()
    monkeypatch.setattr(ray_cluster, "serve", serve)
    monkeypatch.setattr(ray_cluster.ray, "is_initialized", lambda: True)
    workers = ray_cluster.workers("local", 3, 1, 0.3)
    (application,) = serve.run.call_args.args
    assert (len(workers), application._bound_deployment.init_args) == (3, (1, pytest.approx(0.1)))


def test_the_replicas_version_is_the_program_s_and_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    run = ("i18n.py", "requirements.txt", "model/masks.py", "model/weights/story.bin", "serving/job.py")
    for name in (*run, "ui/page.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("as deployed")
    deployed = ray_cluster._version(1, 0.1)
    (tmp_path / "model" / "masks.cpython-311.pyc").write_text("cached")
    (tmp_path / "ui" / "page.py").write_text("changed")
    assert ray_cluster._version(1, 0.1) == deployed, "replicas run none of this"
    assert len({deployed, ray_cluster._version(2, 0.1), ray_cluster._version(1, 0.2)}) == 3
    for name in run:
        (tmp_path / name).write_text("changed")
        assert ray_cluster._version(1, 0.1) != deployed, name
        (tmp_path / name).write_text("as deployed")
