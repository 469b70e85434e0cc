"""What a training run consists of, taken apart: tensors on one side, the rest as JSON.

No pickle: what is read back cannot run code, and a file of tensors is the tensors' bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from slurm_ltgf.errors import InputError

T = TypeVar("T")


class Unsaveable(InputError):
    """Something in the state is neither tensor nor number, text, list or dictionary: which."""


def take_apart(value: Any, tensor: Callable[[Any], int | None], path: str = "") -> Any:
    """A state as what JSON can hold.

    Args:
        value: nested dictionaries, lists and tuples of numbers, texts and tensors.
        tensor: the number of a tensor, None for anything else.
        path: of the value, for the error.

    Raises:
        Unsaveable: something of another type is in it.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    number = tensor(value)
    if number is not None:
        return {"tensor": number}
    if isinstance(value, Mapping):
        return {
            "dict": [
                [take_apart(k, tensor, path), take_apart(v, tensor, f"{path}.{k}")]
                for k, v in value.items()
            ]
        }
    if isinstance(value, tuple | list):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [take_apart(v, tensor, f"{path}[{i}]") for i, v in enumerate(value)]}
    if hasattr(value, "tolist") and not hasattr(value, "to_local"):
        return take_apart(value.tolist(), tensor, path)
    raise Unsaveable(
        f"{path.lstrip('.')}: a {type(value).__name__} cannot be saved; give Stage objects whose"
        " state_dict() is made of tensors, numbers, texts, lists and dictionaries"
    )


def put_together(value: Any, tensor: Callable[[int], Any]) -> Any:
    """What `take_apart` was given."""
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensor(content)
    if kind == "dict":
        return {put_together(k, tensor): put_together(v, tensor) for k, v in content}
    made = [put_together(v, tensor) for v in content]
    return tuple(made) if kind == "tuple" else made


def leaves(value: Any, kind: type[T]) -> Iterator[T]:
    """All values of a type in nested dictionaries, lists and tuples."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from leaves(one, kind)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from leaves(one, kind)
