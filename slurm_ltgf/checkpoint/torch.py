"""PyTorch's fast path: GPU memory to pinned host memory at PCIe speed, and from there to disk.

    from slurm_ltgf import checkpoint
    from slurm_ltgf.checkpoint.torch import Stage

    stage = Stage(model=model, optimizer=optimizer, scheduler=scheduler)
    ckpt = checkpoint.session(pause=stage.pause, resume=stage.resume)
    if ckpt.last:
        stage.load(ckpt.last)
    for step in range(ckpt.step, steps):
        train(step)
        if step == ckpt.step:
            stage.prepare()                   # now the optimizer has its tensors: pin memory, ahead
        if ckpt.requested(step + 1):
            with ckpt.commit(step + 1) as folder:
                stage.save(folder)
            if ckpt.must_stop:
                break

`pause` copies all tensors to the host and gives the GPU's memory back; `resume` takes it again and
copies them back: the same tensors, the same bits. Each rank saves its own tensors, the states of
its random generators too, as `rank-N.bin`, their bytes, and `rank-N.json`, what they mean.
Addresses change in a pause: not for CUDA graphs. Works on CPU tensors too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from slurm_ltgf.checkpoint.arena import Arena, aligned
from slurm_ltgf.checkpoint.layout import Layout, Piece, bytes_of, pieces_of
from slurm_ltgf.checkpoint.place import here
from slurm_ltgf.checkpoint.randomness import random_states, set_random_states
from slurm_ltgf.checkpoint.transfer import Transfer, read, write
from slurm_ltgf.checkpoint.tree import leaves, put_together, take_apart
from slurm_ltgf.errors import InputError

#: So much is written or read while the next part is copied.
PART_BYTES = 256 << 20
_FORMAT = 1


class OtherModel(InputError):
    """A checkpoint has other tensors than the model it is to be loaded into: which."""


class Stage:
    """The tensors of one rank, and pinned memory for them.

    Args:
        parts: what has a state: modules, optimizers, anything with state_dict and load_state_dict.
        rank: in the files' names; default from the environment.
    """

    def __init__(self, *, rank: int | None = None, **parts: Any) -> None:
        self._parts = parts
        self._rank = here().rank if rank is None else rank
        self._arena: Arena | None = None
        self._stream: Any = None
        self._paused: list[Piece] = []

    @property
    def is_paused(self) -> bool:
        """Whether the GPU's memory was given back."""
        return bool(self._paused)

    def prepare(self) -> int:
        """Take and pin memory for all tensors there are now, in the background; how many bytes.

        Call it once the optimizer has made its own tensors, after the first step.
        """
        self.resume()
        pieces = self._everything()
        self._reserve(pieces)
        return sum(piece.size for piece in pieces)

    # --- in place ---------------------------------------------------------------------------------

    def pause(self) -> None:
        """Copy all tensors to the host and give the GPU's memory back."""
        if self._paused:
            return
        pieces = [piece for piece in self._everything() if piece.is_on_gpu]
        self._copy_out(pieces)
        self._release(pieces)

    def resume(self) -> None:
        """Take the GPU's memory again and copy all tensors back; nothing if there was no pause.

        Raises:
            torch.OutOfMemoryError: somebody else has it; call it again.
        """
        arena = self._arena
        for piece in self._paused:
            piece.storage.resize_(piece.size)
        with self._side_stream():
            for piece in self._paused:
                assert arena is not None
                bytes_of(piece).copy_(arena.view(piece.begin, piece.size), non_blocking=True)
        self._wait()
        self._paused = []

    def _release(self, pieces: list[Piece]) -> None:
        self._paused = pieces
        for piece in pieces:
            piece.storage.resize_(0)
        if pieces:
            torch.cuda.empty_cache()

    # --- to disk ----------------------------------------------------------------------------------

    def save(self, folder: Path, *, release: bool = False) -> None:
        """Write everything into a checkpoint's folder; the GPU is done long before the disk is.

        release: give the GPU's memory back as soon as it is copied; then `resume` before training.

        Raises:
            OSError: the disk refuses.
            Unsaveable: a part's state holds something else than tensors and plain values.
        """
        self.resume()
        layout = Layout()
        state = {name: part.state_dict() for name, part in self._parts.items()}
        content = take_apart({"parts": state, "random": random_states()}, layout.number)
        arena = self._reserve(layout.pieces)
        with (
            (folder / f"rank-{self._rank}.bin").open("wb", buffering=0) as file,
            Transfer(lambda begin, size: write(file, arena.buffer(begin, size)), PART_BYTES) as out,
        ):
            self._copy_out(layout.pieces, copied=out.reached)
            if release:
                self._release([piece for piece in layout.pieces if piece.is_on_gpu])
            out.finish(layout.size)
        index = {"format": _FORMAT, "size": layout.size, "state": content, **layout.keys()}
        (folder / f"rank-{self._rank}.json").write_text(json.dumps(index))

    def load(self, folder: Path, *, rank: int | None = None) -> None:
        """Bring everything back from a checkpoint's folder.

        rank: whose files, if not this rank's.

        Raises:
            OSError: it cannot be read.
            OtherModel: the model's tensors are others.
        """
        self.resume()
        name = f"rank-{self._rank if rank is None else rank}"
        index = json.loads((folder / f"{name}.json").read_text())
        if index["format"] != _FORMAT:
            raise OtherModel(f"{folder / name}.json: format {index['format']}, not {_FORMAT}")
        saved = Layout.of(index)
        arena = self._reserve(saved.pieces).ready()
        with (
            (folder / f"{name}.bin").open("rb", buffering=0) as file,
            Transfer(lambda begin, size: read(file, arena.buffer(begin, size)), PART_BYTES) as got,
        ):
            state = put_together(index["state"], lambda number: saved.tensor(number, arena))
            got.reached(saved.size)
            self._bring_in(state["parts"], saved, got.wait_for)
            got.finish(saved.size)
        for part, content in state["parts"].items():
            self._load_part(self._parts[part], content)
        set_random_states(state["random"])

    def _bring_in(self, parts: Any, saved: Layout, arrived: Callable[[int], None]) -> None:
        """Copy modules' tensors to where they belong, each as soon as it was read."""
        if set(parts) != set(self._parts):
            raise OtherModel(f"the checkpoint has {sorted(parts)}, not {sorted(self._parts)}")
        with self._side_stream(), torch.no_grad():
            for name, part in self._parts.items():
                if not isinstance(part, torch.nn.Module):
                    continue
                live = part.state_dict()
                _compare(name, live, parts[name])
                for key, tensor in live.items():
                    if isinstance(tensor, torch.Tensor):
                        arrived(saved.end_of(parts[name][key]))
                        tensor.copy_(parts[name][key], non_blocking=True)
        self._wait()

    def _load_part(self, part: Any, content: Any) -> None:
        """Other parts; an optimizer's tensors keep their own types, which PyTorch would change."""
        if isinstance(part, torch.nn.Module):
            if not all(isinstance(value, torch.Tensor) for value in content.values()):
                part.load_state_dict(content)
            return
        part.load_state_dict(_copied(content))
        if not isinstance(part, torch.optim.Optimizer):
            return
        parameters = [one for group in part.param_groups for one in group["params"]]
        numbers = [number for group in content["param_groups"] for number in group["params"]]
        for number, parameter in zip(numbers, parameters, strict=True):
            for key, value in content["state"].get(number, {}).items():
                if isinstance(value, torch.Tensor):
                    device = part.state[parameter][key].device
                    part.state[parameter][key] = value.to(device, copy=True)

    # --- memory -----------------------------------------------------------------------------------

    def _everything(self) -> list[Piece]:
        """All memory that tensors of the parts have, gradients too."""
        layout = Layout()
        for part in self._parts.values():
            for tensor in leaves(part.state_dict(), torch.Tensor):
                layout.number(tensor)
            if isinstance(part, torch.nn.Module):
                for parameter in part.parameters():
                    layout.number(parameter.grad)
        return layout.pieces

    def _reserve(self, pieces: list[Piece]) -> Arena:
        size = max((piece.begin + aligned(piece.size) for piece in pieces), default=0)
        if self._arena is None or self._arena.size < size:
            if self._arena is not None:
                self._arena.close()
                self._arena = None
            pin = torch.cuda.is_available() and torch.cuda.is_initialized()
            self._arena = Arena(size, pin=pin, say=_say)
        return self._arena

    def _copy_out(
        self, pieces: list[Piece], copied: Callable[[int], None] = lambda end: None
    ) -> None:
        """Device to host, on a stream of its own. copied: told how far it has got."""
        arena = self._reserve(pieces).ready()
        marks: list[tuple[Any, int]] = []
        last = 0
        with self._side_stream():
            for piece in pieces:
                for begin, size in pieces_of(piece, PART_BYTES):
                    at = piece.begin + begin
                    source = bytes_of(piece)[begin : begin + size]
                    arena.view(at, size).copy_(source, non_blocking=True)
                    if at + size - last >= PART_BYTES:
                        last = at + size
                        marks.append((self._mark(), last))
            end = pieces[-1].begin + aligned(pieces[-1].size) if pieces else 0
            marks.append((self._mark(), end))
        for mark, reached in marks:
            if mark is not None:
                mark.synchronize()
            copied(reached)

    def _mark(self) -> Any:
        return self._stream.record_event() if self._stream is not None else None

    def _side_stream(self) -> Any:
        if not torch.cuda.is_initialized():
            return torch.no_grad()
        if self._stream is None:
            self._stream = torch.cuda.Stream()
        self._stream.wait_stream(torch.cuda.current_stream())
        return torch.cuda.stream(self._stream)

    def _wait(self) -> None:
        if self._stream is not None:
            self._stream.synchronize()


def _compare(name: str, live: Any, saved: Any) -> None:
    """Raise if a module's tensors are not those of the checkpoint."""
    missing, extra = sorted(set(live) - set(saved)), sorted(set(saved) - set(live))
    if missing or extra:
        raise OtherModel(f"{name}: not in the checkpoint: {missing[:5]}; only there: {extra[:5]}")
    for key, tensor in live.items():
        if isinstance(tensor, torch.Tensor) and tensor.shape != saved[key].shape:
            raise OtherModel(
                f"{name}.{key}: {list(tensor.shape)}, in the checkpoint {list(saved[key].shape)}"
            )


def _copied(value: Any) -> Any:
    """The same with tensors of its own: the arena is written again at the next save."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {key: _copied(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_copied(one) for one in value)
    return value


def _say(line: str) -> None:
    sys.stderr.write(f"ltgf checkpoint: {line}\n")


__all__ = ["OtherModel", "Stage"]
