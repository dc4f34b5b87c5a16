"""Workers on Ray Serve: replicas on any number of machines, each an engine in its own process.

Ray starts and replaces replicas; a job goes to the replica that has its trace, unless that one is busy. Jobs are not
batched: matrix products of other sizes round differently, and results must be bit-identical wherever they are computed.
"""

import hashlib
import os
import pickle
from asyncio import to_thread
from threading import Timer
from typing import Any
from zlib import crc32

import ray
import torch
from ray import serve
from ray.exceptions import RayError
from ray.serve.config import RequestRouterConfig
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle
from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica

from serving import machine
from serving.job import Job
from serving.result_cache import Engine
from serving.scheduler import STOP_GRACE_SECONDS, TooSlow, Worker, WorkerLost
from serving.worker_process import answer_message, unpack_answer

NAME, LOOPBACK = "unmask", "127.0.0.1"
ENVIRONMENT = {"PYTHONPATH": str(machine.ROOT)}  # the program has the same path on every machine
ENVIRONMENT |= {"OMP_NUM_THREADS": "1", "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0"}


class AffinityRouter(RequestRouter):
    """A router that sends all jobs of a run to one replica, selected by `affinity_key` alone: servers that share a
    cluster select the same one, and most runs keep their replica when another one starts or ends."""

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Return the replica whose hash with the key is largest (rendezvous hashing), then the others if it is busy."""
        affinity_key = pending_request.kwargs["affinity_key"] if pending_request else ""
        if not affinity_key:
            return [candidate_replicas]
        first = max(candidate_replicas, key=lambda one: crc32(f"{affinity_key} {one.replica_id.unique_id}".encode()))
        return [[first], [one for one in candidate_replicas if one is not first]]


@serve.deployment(
    max_ongoing_requests=1,
    request_router_config=RequestRouterConfig(request_router_class=AffinityRouter),  # type: ignore[arg-type]
    health_check_period_s=2,
    health_check_timeout_s=5,
    graceful_shutdown_timeout_s=2,
)
class Replica:
    """A replica: one engine with one torch thread, which runs one job at a time. traces_share: of its machine's
    memory."""

    def __init__(self, models_in_memory: int, traces_share: float) -> None:
        torch.set_num_threads(1)
        if ray.util.get_node_ip_address() == LOOPBACK:
            _listen_on_loopback()
        self._engine = Engine(models_in_memory, int(traces_share * machine.memory_bytes()))

    async def do(self, job: bytes, seconds: float, *, affinity_key: str) -> bytes:
        """Return the answer to a job, for `unpack_answer`. At the time limit the replica exits, and Ray starts another.

        affinity_key: read by AffinityRouter.
        """
        timer = Timer(seconds + STOP_GRACE_SECONDS, os._exit, (1,))
        timer.start()
        try:
            found: Job = pickle.loads(job)  # noqa: S301 - of the server that started this one
            return await to_thread(answer_message, self._engine, found)  # so that Ray's health checks succeed
        finally:
            timer.cancel()


def _listen_on_loopback() -> None:
    """Make Ray Serve open the port of each new replica on loopback alone, not on every address of the machine.

    Relies on: `ray.serve._private.replica.add_port_to_grpc_server`, which is replaced, and its address "[::]:0".
    Checked with Ray 2.60.0 by tests/serving/test_ray_internals.py.
    """
    from ray.serve._private import replica

    opened = replica.add_port_to_grpc_server
    replica.add_port_to_grpc_server = lambda server, address: opened(server, address.replace("[::]", LOOPBACK))


class RayWorker(Worker):
    """A worker that sends jobs to the replicas, shared with all other RayWorkers. Ray waits until they are ready. They
    outlive the server, for others of the same cluster: `serve.delete` ends them."""

    def __init__(self, replicas: DeploymentHandle) -> None:
        self._replicas = replicas

    def do(self, job: Job, seconds: float) -> Any:
        message = pickle.dumps(job, pickle.HIGHEST_PROTOCOL)
        affinity_key = repr(job.affinity_key[0]) if job.affinity_key else ""
        try:
            answer = self._replicas.do.remote(message, seconds, affinity_key=affinity_key).result(timeout_s=seconds)
        except TimeoutError:
            raise TooSlow.after(seconds) from None
        except (RayError, RayServeException):
            raise WorkerLost from None
        return unpack_answer(answer)


def workers(address: str, most: int, models_in_memory: int, traces_share: float) -> list[RayWorker]:
    """Deploy the replicas, unless the same ones run in the cluster, and return one worker for each. address: for
    ray.init: "auto" for the cluster that this machine is part of, "local" for a new one. most: replicas; 0: one a core.
    traces_share: of memory, for the traces of all replicas together."""
    if not ray.is_initialized():
        # in a new cluster, replicas get normal priority, and no process starts before ENVIRONMENT is known
        os.environ.setdefault("RAY_worker_niceness", "0")
        os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
        own: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
        ray.init(address=address, namespace=NAME, log_to_driver=False, runtime_env={"env_vars": ENVIRONMENT}, **own)
    most = most or max(int(ray.cluster_resources().get("CPU", 1)), 1)
    scaling: dict[str, float] = {"min_replicas": 1, "initial_replicas": most, "max_replicas": most}
    scaling |= {"target_ongoing_requests": 1, "upscale_delay_s": 2.0}
    arguments = models_in_memory, traces_share / most  # not in bytes: the same for servers on different machines
    options = {"autoscaling_config": scaling, "ray_actor_options": {"num_cpus": 1}}
    options |= {"version": _version(*arguments), "_internal": True}
    deployment = Replica.options(**options)  # type: ignore[attr-defined]  # what the decorator has made of the class
    serve.start(proxy_location="Disabled")  # no HTTP requests
    handle = serve.run(deployment.bind(*arguments), name=NAME, route_prefix=None)
    return [RayWorker(handle) for _ in range(most)]


def _version(*arguments: float) -> str:
    """Return a version of the replicas, equal for servers with the same program and settings: a server that joins such
    a cluster keeps its replicas, with their jobs and traces. Without one, each call of serve.run replaces them all.

    Relies on: the option `version` of `Deployment.options`, which needs `_internal`. Checked with Ray 2.60.0 by
    tests/serving/test_backends.py.
    """
    files = [machine.ROOT / "i18n.py", machine.ROOT / "requirements.txt"]  # the latter: versions of packages
    files += [path for part in ("model", "serving") for path in (machine.ROOT / part).rglob("*") if path.is_file()]
    found = hashlib.sha256(repr(arguments).encode())
    for path in sorted(path for path in files if path.suffix != ".pyc"):
        found.update(path.read_bytes())
    return found.hexdigest()
