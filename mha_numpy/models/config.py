"""The config.json that stands beside a model's params."""

from pathlib import Path
from typing import Any, Never

from mha_numpy.errors import FileError
from mha_numpy.weights.files import read_json

ACTIVATIONS = {
    "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu",
}  # fmt: skip


class ModelConfig:
    """What config.json says, read with an eye on what can be computed here.

    Parameters
    ----------
    folder : path
        Where config.json is.

    Raises
    ------
    FileError
        There is no such file, or it is not JSON.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "config.json"
        self.values = read_json(self.path)

    def __getitem__(self, name: str) -> Any:
        """Return a value that must be there."""
        if name not in self.values:
            self.refuse(name, "a value", "none")
        return self.values[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Return a value, or the default where there is none."""
        return self.values.get(name, default)

    def check(self, name: str, expected: Any) -> None:
        """Raise a FileError where the config says something else than what is computed here."""
        if self.get(name, expected) != expected:
            self.refuse(name, repr(expected), repr(self.values[name]))

    def activation(self, name: str, default: str) -> str:
        """Return the name that an activation has here."""
        theirs = self.get(name, default)
        if theirs not in ACTIVATIONS:
            self.refuse(name, f"one of {tuple(ACTIVATIONS)}", repr(theirs))
        return ACTIVATIONS[theirs]

    def refuse(self, name: str, expected: str, got: str) -> Never:
        """Raise the FileError of a value that does not fit."""
        raise FileError(f"{self.path}: {name}: expected {expected}; got {got}")
