"""Operator settings from UNMASK_* variables."""

import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from serving import machine

PREFIX = "UNMASK_"
PLAIN = {  # replacements in pydantic's messages
    "Input should be ": "",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    "greater than": "more than",
}


def _redis_url(url: str) -> str:
    """Return the URL unchanged. Raises ValueError if redis-py, imported only if there is one, cannot parse it, and for
    a name of a host that cannot be looked up."""
    if url:
        from redis.connection import parse_url

        parse_url(url)["host"].encode("idna")
    return url


class Settings(BaseModel):
    """The operator's settings. The variable of each is UNMASK_ and its name in capitals: UNMASK_MAX_WEIGHTS_GB …"""

    model_config = ConfigDict(frozen=True)

    # the most memory for a model's loaded weights, in 10^9 bytes
    max_weights_gb: float = Field(default=3.0, gt=0, allow_inf_nan=False)
    models: tuple[str, ...] = ()  # offered by a hosted demo; if there are any, no others can be loaded
    lessons: Path | None = None  # a folder of a teacher's own lessons
    shared: bool = False  # whether the server has users other than who started it; serve.py sets this
    model_root: Path | None = None  # a folder that every model folder must lie in
    device: str = Field(  # for models; auto: a CUDA device if there is one
        default="auto", pattern=r"^(auto|cpu|mps|cuda(:\d{1,2})?)$", description="auto, cpu, mps, cuda or cuda:N"
    )
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"  # auto: the file's, if it is fast
    device_map: Literal["", "auto", "balanced", "sequential"] = ""  # accelerate's, for several devices
    models_in_memory: int = Field(default=2, ge=1)
    results_share: float = Field(default=0.1, gt=0, le=0.9)  # of the container's memory, for results
    traces_share: float = Field(default=0.15, gt=0, le=0.9)  # of the container's memory, for traces
    workers: int = Field(default=0, ge=0)  # processes that run the jobs; 0 = the server's own
    ray: str = ""  # the Ray cluster whose replicas run the jobs, for ray.init: "auto", "local" or an address
    characters: int = Field(default=100_000, ge=100)  # most characters read of a text
    rows: int = Field(default=16, ge=2)  # most lines read of a text
    tokens: int = Field(default=4096, ge=16)  # most tokens read of a row, if the model takes as many
    background_jobs: int = Field(default=2, ge=1)  # how many trainings and checks run at a time
    waiting_jobs: int = Field(default=100, ge=1)  # most waiting jobs of all users; further ones are refused
    waiting_jobs_a_reader: int = Field(default=8, ge=1)
    job_seconds: float = Field(default=120.0, gt=0, allow_inf_nan=False)  # time limit of a job
    metrics_port: int = Field(default=0, ge=0, le=65535)  # of /metrics, /live and /ready; 0 = none of them
    metrics_address: str = "127.0.0.1"  # the address at which that port is opened
    rooms: Annotated[str, AfterValidator(_redis_url)] = Field(  # a Redis for rooms that replicas share; "": memory
        default="",
        # without a query, whose options can change what redis-py returns
        pattern=r"^(rediss?://([^/?#]*@)?(\[.+\]|[^:/?#@]+)(:\d{1,5})?(/\d{0,5})?)?$",
        description="redis://HOST:PORT/DATABASE or rediss://… (PORT at most 65535, no ?options)",
    )
    frame_ancestors: str = Field(  # CSP sources of pages that may embed the app
        default="'self'",
        pattern=r"^[ -+\--:<-~]+$",  # printable ASCII, as headers need
        description="sources in one line without ; and , in ASCII (xn--… for other letters)",
    )

    @property
    def max_weights_bytes(self) -> int:
        return int(self.max_weights_gb * 10**9)

    @property
    def results_bytes(self) -> int:
        return int(self.results_share * machine.memory_bytes())

    @property
    def traces_bytes(self) -> int:
        return int(self.traces_share * machine.memory_bytes())

    @classmethod
    def of(cls, given: Mapping[str, object], named: Callable[[str], str] = str) -> "Settings":
        """Return the settings given. named: maps a field to its name in messages. Raises ValueError for a bad value."""
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][0])
            wanted = cls.model_fields[name].description or re.sub(", (unable|got) .*", "", first["msg"])
            for words, plain in PLAIN.items():
                wanted = wanted.replace(words, plain)
            got = first["input"]
            if name == "rooms":  # keep a password, which may contain @ or ?, and options out of logs
                got = re.sub(r"^(\w+://)?(.*[?#].*@.*|.*@)", r"\1…@", str(got), flags=re.DOTALL)
                got = re.sub(r"([?#]).*", r"\1…", got, flags=re.DOTALL)
            raise ValueError(f"{named(name)}: expected {wanted}, got {got!r:.80}") from None

    @classmethod
    def from_environment(cls) -> "Settings":
        """Return the current settings; an empty variable counts as unset. Raises ValueError naming a bad variable."""
        given: dict[str, object] = {
            name: found for name in cls.model_fields if (found := os.environ.get(_variable(name), "").strip())
        }
        if "models" in given:
            given["models"] = tuple(name.strip() for name in str(given["models"]).split(",") if name.strip())
        return cls.of(given, _variable)

    @classmethod
    def of_server(cls) -> "Settings":
        """Return the settings from the environment. A bad variable, or a folder that does not exist, ends the process
        with a message and status 2, from whichever thread."""
        try:
            found = cls.from_environment()
            for name in ("lessons", "model_root"):
                folder: Path | None = getattr(found, name)
                if folder is not None and not folder.is_dir():
                    raise ValueError(f"{_variable(name)}: expected a folder, got {str(folder)!r:.80}")
            return found
        except ValueError as error:
            print(error, file=sys.stderr, flush=True)
            os._exit(2)


def _variable(name: str) -> str:
    return PREFIX + name.upper()
