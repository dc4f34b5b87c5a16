"""A run as plain arrays, by which sentences are judged: nothing here uses the code that writes the sentences."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch

from ui.run_view import RunView


@dataclass(frozen=True, eq=False)
class Facts:
    """A run under chosen and under standard masks, as arrays: of one head, or of all. at: the chosen query."""

    now: RunView
    standard: RunView
    runs: tuple  # traces under the chosen and the standard masks
    layer: int
    head: int
    at: int
    part: tuple[tuple[int, int], tuple[int, int]]
    how: str = "mean"  # over all heads: "mean", "maximum" or "rollout"
    layers: range = range(6)  # the layers that the sentence is about
    every: dict[bool, np.ndarray] = field(default_factory=dict)  # weights of all heads, for every `how`
    allowed: dict[tuple[bool, int, int], np.ndarray] = field(default_factory=dict)

    def _trace(self, old: bool):
        return self.runs[old]

    def _weights(self, old: bool) -> np.ndarray:
        view = self.standard if old else self.now
        return self._trace(old).weights(self.layer, self.head, view.row, view.masks).numpy().astype(np.float64)

    @cached_property
    def w(self) -> np.ndarray:
        return self._weights(False)

    @cached_property
    def w0(self) -> np.ndarray:
        return self._weights(True)

    def _open(self, old: bool, layer: int, head: int) -> np.ndarray:
        view = self.standard if old else self.now
        key = old, layer, head if view.masks.heads else 0  # otherwise all heads have the same mask
        if key not in self.allowed:
            self.allowed[key] = self._trace(old).allowed(layer, view.row, view.masks, head=head).numpy()
        return self.allowed[key]

    @property
    def open(self) -> np.ndarray:
        return self._open(False, self.layer, self.head)

    @property
    def open0(self) -> np.ndarray:
        return self._open(True, self.layer, self.head)

    @property
    def keep(self) -> np.ndarray:
        return self.now.run.batch.keep[self.now.row].numpy()

    @property
    def ids(self) -> np.ndarray:
        return self.now.run.batch.ids[self.now.row].numpy()

    @property
    def pieces(self) -> tuple[str, ...]:
        return self.now.run.batch.pieces[self.now.row]

    @property
    def real(self) -> np.ndarray:
        return np.flatnonzero(self.keep)

    def _logs(self, old: bool) -> np.ndarray:
        logits = self._trace(old).logits[self.now.row].numpy().astype(np.float64)
        logits = logits - logits.max(-1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(-1, keepdims=True))

    @cached_property
    def logs(self) -> np.ndarray:
        return self._logs(False)

    @cached_property
    def logs0(self) -> np.ndarray:
        return self._logs(True)

    def _losses(self, logs: np.ndarray) -> np.ndarray:
        losses = np.full(len(self.ids), np.nan)
        for position in self.real[1:]:
            losses[position] = -logs[position - 1, self.ids[position]]
        return losses

    @cached_property
    def loss(self) -> np.ndarray:
        return self._losses(self.logs)

    @cached_property
    def loss0(self) -> np.ndarray:
        return self._losses(self.logs0)

    @cached_property
    def change(self) -> np.ndarray:
        return self.loss - self.loss0

    def looking(self, first: int) -> np.ndarray:
        """Return the real queries that attend to something, from the row's `first`-th on."""
        return np.array([query for query in self.real[first:] if self.w[query].sum() > 0], int)

    def share(self, weights: np.ndarray, first: int = 0) -> float:
        """Return the mean over queries of the row sums of weights [Q,K]."""
        return float(weights[self.looking(first)].sum(-1).mean())

    @property
    def later(self) -> float:
        return self.share(np.triu(self.w, 1) * self.keep)

    @property
    def padding(self) -> float:
        return self.share(self.w * ~self.keep)

    def repeats(self) -> list[tuple[int, int]]:
        """Return (query, key): key followed the last earlier occurrence of the query's token, two or more back."""
        found = []
        for query in self.looking(1):
            before = [key for key in range(query) if self.ids[key] == self.ids[query]]
            if before and before[-1] + 1 < query - 1:
                found.append((query, before[-1] + 1))
        return found

    def knows(self, old: bool) -> set[int]:
        """Return the tokens that reach, through all layers, the position that predicts them."""
        reach = np.eye(len(self.ids), dtype=bool)
        for layer in range(6):
            look = np.any([self._open(old, layer, head) for head in range(6)], axis=0)
            reach = reach | ((look.astype(int) @ reach.astype(int)) > 0)
        return {int(one) for one in self.real[1:] if reach[one - 1, one]}

    @cached_property
    def windows(self) -> list[np.ndarray]:
        """Whether any head may attend, as bool [T,T] for each layer."""
        return [np.any([self._open(False, layer, head) for head in range(6)], axis=0) for layer in range(6)]

    @cached_property
    def reached(self) -> list[np.ndarray]:
        """bool [T,T]: what each token can depend on after one layer, after two, … Its own state is always kept."""
        found = [np.eye(len(self.ids), dtype=bool)]
        for window in self.windows:
            found.append(found[-1] | (window.astype(int) @ found[-1].astype(int) > 0))
        return found[1:]

    def _every(self, old: bool) -> np.ndarray:
        """Return all weights, [L,H,Q,K], cached."""
        if old not in self.every:
            trace, view = self._trace(old), self.standard if old else self.now
            heads = [trace.weights(*head, view.row, view.masks).numpy() for head in np.ndindex(6, 6)]
            self.every[old] = np.stack(heads).reshape(6, 6, *heads[0].shape)
        return self.every[old]

    def maps(self, *, old: bool) -> np.ndarray:
        """Return [L,T], the query's weights over all heads in each layer of `layers`; a rollout up to its end."""
        every = self._every(old)
        found = every.max(1) if self.how == "maximum" else every.mean(1)
        if self.how == "rollout":
            steps = [one + np.eye(len(self.ids)) for one in found]
            steps = [one / one.sum(1, keepdims=True) for one in steps]
            found = [np.linalg.multi_dot([*steps[layer::-1], np.eye(len(self.ids))]) for layer in range(6)]
        return np.stack([one[self.at] * (layer in self.layers) for layer, one in enumerate(found)])

    @cached_property
    def readings(self) -> np.ndarray:
        """[L+1,V]: log-probabilities of the next token from the query's state before each layer and after the last."""
        network, states = self.now.model.network, []
        before = lambda _, given: states.append(given[0])  # noqa: E731
        hooks = [block.register_forward_pre_hook(before) for block in network.blocks]
        hooks.append(network.norm.register_forward_pre_hook(before))
        with torch.inference_mode():
            self.now.model.run(self.now.run.batch, self.now.masks)
            for hook in hooks:
                hook.remove()
            rows = [network.unembedding(network.norm(state[self.now.row, self.at])) for state in states]
        return torch.stack(rows).log_softmax(-1).double().numpy()

    @cached_property
    def effects(self) -> np.ndarray:
        """[L,H]: nats by which the loss of the most likely token after the query rises without each head alone."""
        now, found = self.now, np.zeros((6, 6))
        target = int(self.logs[self.at].argmax())
        for layer, head in np.ndindex(6, 6):

            def edit(attention: str, at: int, record: object, output: torch.Tensor, off=(layer, head)) -> torch.Tensor:
                output = output.clone()
                if at == off[0]:
                    output[now.row, off[1]] = 0
                return output

            trace = now.model.run(now.run.batch, now.run.spec, edit)
            logits = trace.logits[now.row, self.at].double()
            found[layer, head] = self.logs[self.at, target] - float(logits.log_softmax(-1)[target])
        return found

    @property
    def shown(self) -> np.ndarray:
        """Whether each cell of the part shown is allowed."""
        return self.open[slice(*self.part[0]), slice(*self.part[1])]

    def position_of(self, token: str, position: str) -> int:
        assert self.pieces[int(position)] == token
        return int(position)
