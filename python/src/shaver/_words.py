"""Puts the messages of the program into the words of Python."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from . import _scratch

# A command that a message quotes, which stays as it is.
_COMMAND = r"\bshaver (?:dataset import [a-z]+|(?:dataset|model|scores|job) [a-z-]+|[a-z]+) --"

# A command, or a flag.
_FLAG = re.compile(rf'"{_COMMAND}[^"]*"|{_COMMAND}[a-z-]+(?: --[a-z-]+)*|(?<![\w-])(give )?--([a-z][a-z-]*)(?![\w-])')

# What a message says of a state dict that leaves something open, with the JSON that says it.
_STATEMENT = re.compile(r"(?:write \S+\.json with what is true|add what is true to \S+\.json), for example \{(.*?)\}")

_EXPORT = re.compile(r"export the model to ONNX \(shaver model export-help --for [\w-]+\)")

_FIELD_SIZES = re.compile(r'write \S+\.json with a line like \{"(\w+)": (.*?)\}')


def in_python(message: str, names: Mapping[str, str], given: Collection[str] = ()) -> str:
    """Returns a message with parameters instead of flags, and with what a temporary file holds
    instead of its path. names are the parameters by flag, where the names differ. given are texts
    of the caller, such as the path --help, which stay as they are."""
    kept = [re.escape(text) for text in given if "--" in text]
    parts = re.split(f"({'|'.join(kept)})", _contents(message)) if kept else [_contents(message)]
    parts[::2] = [_parameters(part, names) for part in parts[::2]]
    return "".join(parts)


def _parameters(message: str, names: Mapping[str, str]) -> str:
    def parameter(found: re.Match[str]) -> str:
        if found[2] is None:
            return found[0]
        name = names.get(found[2], found[2].replace("-", "_"))
        return f"give {name}=True" if found[1] else name

    return _FLAG.sub(parameter, message.replace("unknown flag:", "unknown parameter:"))


def _contents(message: str) -> str:
    if not _scratch.used() or str(_scratch.scratch()) not in message:
        return message
    folder = re.escape(str(_scratch.scratch())) + r"[\\/]"

    def row(found: re.Match[str]) -> str:
        # Line 1 of a CSV file is the header, and rows count from 0.
        what, line = _scratch.content(found[1]), int(found[2])
        return what if line == 1 else f"{what}: row {line - 2}"

    message = re.sub(folder + r"(\d+)[\\/]rows\.csv:(\d+)", row, message)
    message = re.sub(folder + r'(\d+)[\\/][^\s:"\',;)]*', lambda found: _scratch.content(found[1]), message)
    message = re.sub(folder + r"scores-\w+\.arrow", "the scores", message)
    message = re.sub(r"\b(?:the )?(\w+) the \1\b", r"the \1", message)  # "dataset the dataset"
    message = _STATEMENT.sub(lambda found: "give shaver.Model what is true, for example " + re.sub(r'"(\w+)": ', r"\1=", found[1]), message)
    message = _EXPORT.sub("use shaver.Model(module, example_inputs=...), which exports the module to ONNX", message)
    return _FIELD_SIZES.sub(r"pass \1=\2", message)
