"""assert_causal in a training loop: at its beginning and every so many steps."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from unmask.checking import assert_causal

LIGHTNING = ("lightning.pytorch", "pytorch_lightning")


def trainer_callback(every: int = 1000, **options: Any) -> Any:
    """A TrainerCallback of transformers: Trainer(callbacks=[unmask.trainer_callback()]). options: of assert_causal."""
    from transformers import TrainerCallback

    class CausalTrainerCallback(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            assert_causal(model, **options)

        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            if state.global_step % every == 0:
                assert_causal(model, **options)

    return CausalTrainerCallback()


def lightning_callback(every: int = 1000, network: Callable[[Any], Any] = lambda module: module, **options: Any) -> Any:
    """A Lightning Callback: Trainer(callbacks=[unmask.lightning_callback()]). network: what of the LightningModule is
    called with ids, itself unless given. options: of assert_causal."""

    class CausalLightningCallback(_lightning_base()):  # type: ignore[misc]
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            assert_causal(network(pl_module), **options)

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if (batch_idx + 1) % every == 0:
                assert_causal(network(pl_module), **options)

    return CausalLightningCallback()


def _lightning_base() -> Any:
    for name in LIGHTNING:
        try:
            return import_module(name).Callback
        except ImportError:
            continue
    return object
