"""Ray Serve as workers: replicas on any number of machines, each an engine in its own process.

Ray starts replicas as there is need of them and replaces those that are lost; a job goes to the replica that
has the trace which it takes, unless that one is busy. Jobs are not batched: other sizes of a matrix product
round otherwise, and the numbers shall be the same to the bit wherever they are computed.
"""

import os
import pickle
from asyncio import to_thread
from pathlib import Path
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

from serving.job import Job
from serving.result_cache import Engine
from serving.scheduler import SPARE, TooSlow, WorkerLost
from serving.worker import answered, told

ROOT = Path(__file__).parents[1]
NAME, LOOPBACK = "unmask", "127.0.0.1"
ENVIRONMENT = {  # the program lies at the same place on every machine
    "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
}  # fmt: skip


class AffinityRouter(RequestRouter):
    """The jobs of a run go to one replica, by the `affinity_key` of each alone: servers that share a cluster agree
    without a word, and with another replica more or less nearly all runs stay where they are.
    """

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """The one whose hash with the run is the largest (rendezvous hashing); where it is busy, any that is free."""
        affinity_key = pending_request.kwargs["affinity_key"] if pending_request else ""
        if not affinity_key:
            return [candidate_replicas]
        first = max(candidate_replicas, key=lambda one: crc32(f"{affinity_key} {one.replica_id.unique_id}".encode()))
        return [[first], [one for one in candidate_replicas if one is not first]]


ROUTING: dict[str, Any] = {"request_router_class": AffinityRouter}


@serve.deployment(
    max_ongoing_requests=1, health_check_period_s=2, health_check_timeout_s=5, graceful_shutdown_timeout_s=2,
    request_router_config=RequestRouterConfig(**ROUTING),
)  # fmt: skip
class Replica:
    """One engine, one thread of torch, one job at a time."""

    def __init__(self, models_in_memory: int, trace_bytes: int) -> None:
        torch.set_num_threads(1)
        if ray.util.get_node_ip_address() == LOOPBACK:
            _listen_on_loopback()
        self._engine = Engine(models_in_memory, trace_bytes)

    async def do(self, job: bytes, seconds: float, *, affinity_key: str) -> bytes:
        """What a job comes to, for worker.told. One that is over its time ends the replica; Ray starts another.

        affinity_key: of its run; read by AffinityRouter.
        """
        timer = Timer(seconds + SPARE, os._exit, (1,))
        timer.start()
        try:
            found: Job = pickle.loads(job)  # noqa: S301 - of the server that started this one
            return await to_thread(answered, self._engine, found)  # so that Ray can see that the replica lives
        finally:
            timer.cancel()


def _listen_on_loopback() -> None:
    """Serve opens a port of each replica, after it was made, at every address whatever Ray's own processes do.

    Relies on: `ray.serve._private.replica.add_port_to_grpc_server`, which is replaced, and its address "[::]:0".
    Checked with Ray 2.60.0 by tests/serving/test_ray_internals.py.
    """
    from ray.serve._private import replica

    opened = replica.add_port_to_grpc_server
    replica.add_port_to_grpc_server = lambda server, address: opened(server, address.replace("[::]", LOOPBACK))


class RayWorker:
    """One of several that ask the same replicas."""

    def __init__(self, replicas: DeploymentHandle) -> None:
        self._replicas = replicas

    def wait_until_ready(self) -> None:
        """It is: Ray waits for its replicas."""

    def do(self, job: Job, seconds: float) -> Any:
        """The answer. Raises what the job raises; TooSlow; WorkerLost."""
        message, affinity_key = (
            pickle.dumps(job, pickle.HIGHEST_PROTOCOL),
            repr(job.affinity_key[0]) if job.affinity_key else "",
        )
        try:
            answer = self._replicas.do.remote(message, seconds, affinity_key=affinity_key).result(timeout_s=seconds)
        except TimeoutError:
            raise TooSlow(seconds) from None
        except (RayError, RayServeException):
            raise WorkerLost from None
        return told(answer)

    def close(self) -> None:
        """The replicas stay for other servers of the same cluster: `serve.delete` ends them."""


def workers(address: str, most: int, models_in_memory: int, trace_bytes: int) -> list[RayWorker]:
    """address: as ray.init takes it: "auto" for the cluster that this machine is part of, "local" for a new one here.
    most: replicas; 0 for as many as the cluster has cores.
    """
    if not ray.is_initialized():
        # of a cluster that begins here: replicas answer readers, so they are not nice; and processes that Ray starts
        # before anybody asks have not got ENVIRONMENT: no replica would run in one
        os.environ.setdefault("RAY_worker_niceness", "0")
        os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
        own: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
        ray.init(address=address, namespace=NAME, log_to_driver=False, runtime_env={"env_vars": ENVIRONMENT}, **own)
    most = most or max(int(ray.cluster_resources().get("CPU", 1)), 1)
    scaling = {"min_replicas": 1, "initial_replicas": most, "max_replicas": most, "target_ongoing_requests": 1,
               "upscale_delay_s": 2.0}  # fmt: skip
    options = {"autoscaling_config": scaling, "ray_actor_options": {"num_cpus": 1}}
    deployment = Replica.options(**options)  # type: ignore[attr-defined]  # what the decorator has made of the class
    serve.start(proxy_location="Disabled")  # nobody asks by HTTP
    handle = serve.run(deployment.bind(models_in_memory, trace_bytes), name=NAME, route_prefix=None)
    return [RayWorker(handle) for _ in range(most)]
