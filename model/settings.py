"""What whoever runs the program decides, from environment variables."""

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

PREFIX = "UNMASK_"


class Settings(BaseModel):
    """UNMASK_MAX_WEIGHTS_GB, UNMASK_MODELS, UNMASK_MODEL_ROOT and UNMASK_MODELS_IN_MEMORY."""

    model_config = ConfigDict(frozen=True)

    max_weights_gb: float = Field(default=3.0, gt=0)  # the most that a model's weight files may take, in 10^9 bytes
    models: tuple[str, ...] = ()  # all that a hosted demo offers; when there are any, nothing else can be loaded
    model_root: Path | None = None  # a folder that every model folder must lie in
    models_in_memory: int = Field(default=2, ge=1)

    @property
    def max_weights_bytes(self) -> int:
        return int(self.max_weights_gb * 10**9)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Settings":
        """The settings in force now; an empty variable counts as none. Raises ValueError naming a bad variable."""
        given: dict[str, object] = {
            name: environment[PREFIX + name.upper()].strip()
            for name in cls.model_fields
            if environment.get(PREFIX + name.upper(), "").strip()
        }
        if "models" in given:
            given["models"] = tuple(name.strip() for name in str(given["models"]).split(",") if name.strip())
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            first = error.errors()[0]
            variable = PREFIX + str(first["loc"][0]).upper()
            raise ValueError(f"{variable}: {first['msg']}, found {str(first['input'])!r}") from None
