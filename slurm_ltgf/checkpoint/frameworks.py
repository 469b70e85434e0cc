"""Callbacks for trainers that own the loop: Lightning's and Hugging Face's.

    trainer = lightning.Trainer(callbacks=[lightning_callback(ckpt)])
    trainer.fit(model, ckpt_path=lightning_path(ckpt))

    trainer = transformers.Trainer(..., callbacks=[transformers_callback(ckpt)])
    trainer.train(resume_from_checkpoint=transformers_path(ckpt))

Each is imported only when its function is called.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
from pathlib import Path
from typing import Any

from slurm_ltgf.checkpoint.session import Session

_LIGHTNING, _TRANSFORMERS, _RANDOM = "lightning.ckpt", "trainer", "random-{}.pt"


def lightning_path(ckpt: Session) -> str | None:
    """What Trainer.fit(ckpt_path=...) continues from; None at a fresh start."""
    return str(ckpt.last / _LIGHTNING) if ckpt.last else None


def lightning_callback(ckpt: Session) -> Any:
    """A callback for Lightning's Trainer: saves when asked, and ends the training if it must.

    The random generators' states are saved and brought back too, which Lightning does not do.
    Steps are the trainer's global_step; a batch in which it does not advance is no boundary.
    """
    base: Any = _first_of("lightning.pytorch", "pytorch_lightning").Callback
    rank = ckpt.place.rank

    class Checkpointed(base):  # type: ignore[misc]
        """Asks at every step's end."""

        _is_begun = False

        def on_train_batch_start(self, trainer: Any, pl_module: Any, *args: Any) -> None:
            """The first: what was drawn before, to begin the data loader, is not drawn again."""
            path = ckpt.last / _RANDOM.format(rank) if ckpt.last else None
            if not self._is_begun and path is not None and path.exists():
                _set_random(path)
            self._is_begun = True

        def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
            """A step boundary."""
            step = int(trainer.global_step)
            if not ckpt.requested(step):
                return
            with ckpt.commit(step) as folder:
                trainer.save_checkpoint(folder / _LIGHTNING)
                _save_random(folder / _RANDOM.format(rank))
            if ckpt.must_stop:
                trainer.should_stop = True

    return Checkpointed()


def transformers_path(ckpt: Session) -> str | None:
    """What Trainer.train(resume_from_checkpoint=...) continues from; None at a fresh start."""
    return str(ckpt.last / _TRANSFORMERS) if ckpt.last else None


def transformers_callback(ckpt: Session) -> Any:
    """A callback for Hugging Face's Trainer: has it save when asked, and takes its files over.

    Every rank links the files that the trainer wrote into output_dir, so they are there once; the
    trainer's own rotation (save_total_limit) may remove its names for them.
    """
    base: Any = importlib.import_module("transformers").TrainerCallback

    class Checkpointed(base):  # type: ignore[misc]
        """Asks at every step's end; commits when the trainer has saved."""

        _is_due = False

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
            """A step boundary."""
            if ckpt.requested(int(state.global_step)):
                self._is_due = control.should_save = True
            return control

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
            """The trainer has written its files, on this rank."""
            if not self._is_due:
                return control
            self._is_due = False
            step = int(state.global_step)
            with ckpt.commit(step) as folder:
                _link(Path(args.output_dir) / f"checkpoint-{step}", folder / _TRANSFORMERS)
            if ckpt.must_stop:
                control.should_training_stop = True
            return control

    return Checkpointed()


def _first_of(*names: str) -> Any:
    for name in names[:-1]:
        with contextlib.suppress(ImportError):
            return importlib.import_module(name)
    return importlib.import_module(names[-1])


def _link(source: Path, target: Path) -> None:
    """The same files under another name; copies on another file system. Ranks do it at once."""
    for root, _, names in os.walk(source):
        folder = target / Path(root).relative_to(source)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in names:
            with contextlib.suppress(FileExistsError):
                _link_file(Path(root) / name, folder / name)


def _link_file(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError:
        fresh = target.with_name(f".{target.name}.{os.getpid()}")
        shutil.copy2(source, fresh)
        fresh.rename(target)


def _save_random(path: Path) -> None:
    import torch

    from slurm_ltgf.checkpoint.randomness import random_states

    torch.save(random_states(), path)


def _set_random(path: Path) -> None:
    import torch

    from slurm_ltgf.checkpoint.randomness import set_random_states

    set_random_states(torch.load(path, weights_only=False))
