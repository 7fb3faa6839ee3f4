"""Models: files, state dicts and modules of torch."""

from __future__ import annotations

import inspect
import json
import logging
import os
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union, cast

from . import _html, _tensors
from ._command import Flag, document
from ._errors import BadInputError
from ._scratch import delete_with, fresh

if TYPE_CHECKING:
    import torch

Source = Union[str, "os.PathLike[str]", _tensors.StateDict, "torch.nn.Module"]
"""What a model is made from: the path of a file, a state dict or a module of torch."""

ModelLike = Union["Model", Source]
"""What functions take as a model. Anything except a Model becomes one, with its defaults."""

# Modules whose effect the state dict does not show. The kinds that are read from a state dict
# have ReLU only.
_KINDS_HAVE = {"ReLU", "Sigmoid"}

# What messages say of a state dict that is of no kind.
_UNKNOWN = re.compile(r"\btensor \S+ (?:is missing|has shape)|recogni[sz]e|holds no|no tensors")

NAMES = {"model-output": "output"}  # parameters of Model by flag, where the names differ

# Operators of an exported program that read rows of a table, which is their first argument, and
# operators whose result has the same elements as their first argument.
_LOOK_UPS = {"embedding", "embedding_bag", "_embedding_bag", "_embedding_bag_forward_only", "index", "index_select"}
_SAME_ELEMENTS = {"alias", "clone", "contiguous", "detach", "dropout", "to", "_to_copy", "view", "reshape"}

# Bytes of tensors that an .onnx file holds, which has at most 2 GB. More are in a second file.
_LARGEST_GRAPH = 1 << 30


class Model:
    """A click model, as it was when the object was made.

    ``source`` is one of these:

    - the path of a .pth, .safetensors or .onnx file, or its URL;
    - a state dict, whose values are arrays of numpy or tensors of torch;
    - a module of torch. Without ``example_inputs`` its state dict is read, so it must be of a
      kind that shaver recognises. With them it is exported to ONNX, so it may be any model.

    ``field_dims``, ``field_names``, ``kind`` and ``activation`` say what a state dict does not
    say; docs/guide/models.md describes them. ``example_inputs`` are the arguments of a call of the
    module with two rows or more. ``input_names`` are their names, by default those of the
    parameters of ``forward``. ``output`` names the output of a model with several.

    The source is read once, so a later change of a module does not change the Model. Raises
    BadInputError if shaver does not recognise the model.
    """

    path: str  # file that the commands read; that of a model in memory lives as long as the Model
    source: Source  # what the model was made from
    document: dict[str, Any]  # facts, as shaver model inspect -o json prints them
    read_whole: dict[str, str]  # tensors of an exported module that another operator than a look-up reads, and its name

    def __init__(
        self,
        source: Source,
        *,
        field_dims: Sequence[int] | None = None,
        field_names: Sequence[str] | None = None,
        kind: str | None = None,
        activation: str | None = None,
        example_inputs: Sequence[torch.Tensor] | None = None,
        input_names: Sequence[str] | None = None,
        output: str | None = None,
    ) -> None:
        self.source = source
        self._output = output
        self._pruned: dict[str, Any] | None = None
        self.read_whole: dict[str, str] = {}
        stated = {
            "kind": kind,
            "field_dims": None if field_dims is None else [int(size) for size in field_dims],
            "field_names": None if field_names is None else list(field_names),
            "activation": activation,
        }
        stated = {key: value for key, value in stated.items() if value is not None}
        if isinstance(source, (str, os.PathLike)):
            self.path = str(os.fspath(source))
            if stated or example_inputs is not None:
                raise BadInputError(f"{self.path}: field_dims, kind and example_inputs are for models in memory; write a JSON file next to the checkpoint")
        elif is_module(source):
            module = cast("torch.nn.Module", source)
            if example_inputs is None:
                _check_activations(module)
                self.path = _write_state(module.state_dict(), stated, "the module")
            elif stated:
                raise BadInputError("example_inputs export the module to ONNX, which needs no field_dims, field_names, kind or activation")
            else:
                self.path, self.read_whole = _export(module, example_inputs, input_names)
        elif isinstance(source, Mapping):
            self.path = _write_state(source, stated, "the state dict")
        else:
            raise BadInputError(f"the model is a {type(source).__name__}, expected a path, a state dict or a torch.nn.Module")
        if not isinstance(source, (str, os.PathLike)):
            delete_with(self, self.path)
        try:
            self.document = document(["model", "inspect"], {"model_output": output}, paths=[self.path], names=NAMES)
        except BadInputError as error:
            if isinstance(source, (str, os.PathLike)) or example_inputs is not None or "example_inputs" in error.message or not _UNKNOWN.search(error.message):
                raise
            what, give = ("module", "give") if is_module(source) else ("state dict", "give the module and")
            raise BadInputError(
                f"the {what} is of no kind that shaver reads from a state dict: {give} example_inputs, which are the arguments of a call with "
                f"two rows or more, as in shaver.Model(module, example_inputs=(...)), which exports it to ONNX. For a kind, {error.message}"
            ) from None

    @classmethod
    def of(cls, model: ModelLike, field_dims: Sequence[int] | None = None) -> Model:
        """Returns a model as a Model. field_dims are for a model in memory without them."""
        if isinstance(model, Model):
            return model
        if isinstance(model, (str, os.PathLike)):
            return cls(model)
        return cls(model, field_dims=field_dims)

    @property
    def digest(self) -> str:
        """Identity of the model, which depends on the tensors only."""
        return str(self.document["digest"])

    @property
    def flags(self) -> dict[str, Flag]:
        """The flags --model and --model-output of a command."""
        return {"model": self.path, "model_output": self._output}

    @property
    def is_onnx(self) -> bool:
        """Whether the commands read an .onnx file."""
        return self.path.endswith(".onnx")

    def replaced(self, path: str, source: Source, pruned: dict[str, Any]) -> Model:
        """Returns a model that is made from source, whose file is at path already. pruned is the
        document of the command that pruned it."""
        other = object.__new__(Model)
        other.path, other.source, other._output, other.read_whole = path, source, self._output, self.read_whole
        other.document = document(["model", "inspect"], {"model_output": self._output}, paths=[path], names=NAMES)
        other._pruned = pruned
        return other

    @property
    def kept(self) -> int | None:
        """Number of entries of the table that pruning kept. None if the model is not pruned, or if
        neither prune returned it nor its file is compact, so that nothing says so."""
        facts = self._pruned if self._pruned is not None else self.document
        return None if facts.get("kept") is None else int(facts["kept"])

    @property
    def sparsity(self) -> float | None:
        """Portion of the entries of the table that pruning dropped, or None as for kept."""
        if self._pruned is not None:
            return float(self._pruned["sparsity"])
        return None if self.kept is None else 1 - self.kept / int(self.document["parameters"])

    def _facts(self) -> str:
        fields = self.document["fields"]  # a number, or with an .onnx file a list
        count = len(fields) if isinstance(fields, list) else fields
        text = f"{self.document['architecture']}, {count} fields, {self.document['parameters']:,} parameters"
        if self.kept is None or self.sparsity is None:
            return text
        return f"{text}, pruned: {self.kept:,} kept, sparsity {self.sparsity:.4g}"

    def __repr__(self) -> str:
        return f"Model({self._facts()})"

    def _repr_html_(self) -> str:
        fields = self.document["fields"]
        if isinstance(fields, list):
            tables = ((field["name"], field["rows"], ", ".join(table["name"] for table in field["tables"])) for field in fields)
            return _html.page("Model", self._facts(), _html.table(["field", "features", "tables"], tables))
        stored = self.document.get("stored") or []
        if len(stored) != len(self.document["field_dims"]):
            return _html.page("Model", self._facts(), _html.table(["field", "features"], enumerate(self.document["field_dims"])))
        rows = [(i, size, field["kept"], field["bytes"]) for i, (size, field) in enumerate(zip(self.document["field_dims"], stored, strict=True))]
        return _html.page("Model", self._facts(), _html.table(["field", "features", "entries kept", "bytes"], rows))


def is_module(value: object) -> bool:
    """Reports whether value is a module of torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def _check_activations(module: torch.nn.Module) -> None:
    for name, part in module.named_modules():
        kind = type(part)
        if kind.__module__ == "torch.nn.modules.activation" and kind.__name__ not in _KINDS_HAVE:
            raise BadInputError(
                f"{name} is a {kind.__name__}, which the state dict does not show and no kind of shaver has: "
                "use shaver.Model(module, example_inputs=...), which exports the module to ONNX"
            )


def _write_state(state: _tensors.StateDict, stated: Mapping[str, object], content: str) -> str:
    """Writes a state dict, and next to it what it does not say. Messages call it content."""
    path = _tensors.write(fresh("model", content), state)
    if stated:
        path.with_suffix(".json").write_text(json.dumps(stated), encoding="utf-8")
    return str(path)


def _export(module: torch.nn.Module, inputs: Sequence[torch.Tensor], names: Sequence[str] | None) -> tuple[str, dict[str, str]]:
    """Exports a module to ONNX, in the mode of evaluation. Returns the file, and the names of the
    tensors that another operator than a look-up reads, with the name of that operator."""
    import torch

    inputs = tuple(inputs)
    if not inputs or not all(isinstance(value, torch.Tensor) and value.dim() > 0 for value in inputs):
        raise BadInputError("example_inputs: expected tensors, whose first axis is the rows")
    if names is None:
        names = list(inspect.signature(module.forward).parameters)[: len(inputs)]
    if len(names) != len(inputs):
        raise BadInputError(f"{len(names)} input_names for {len(inputs)} example_inputs")
    inputs = tuple(value.detach().clone() for value in inputs)  # the exporter makes one input of a tensor that is given twice
    path = fresh("model.onnx", "the exported module")
    size = sum(tensor.nbytes for tensor in module.state_dict().values())
    training = [part for part in module.modules() if part.training]
    module.eval()
    exporter = logging.getLogger("torch.onnx")
    level = exporter.level
    exporter.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            batch = torch.export.Dim("batch")
            program = torch.onnx.export(
                module,
                inputs,
                str(path),
                dynamo=True,
                verbose=False,
                external_data=size > _LARGEST_GRAPH,
                input_names=list(names),
                output_names=["output"],
                dynamic_shapes=_shapes(module, [{0: batch} for _ in inputs]),
            )
    except ImportError as error:
        raise BadInputError(f"exporting the module to ONNX needs the packages onnx and onnxscript: {error}") from error
    except Exception as error:
        raise BadInputError(f"torch.onnx.export: {error}") from error
    finally:
        exporter.setLevel(level)
        for part in training:
            part.training = True
    return str(path), _read_whole(getattr(program, "exported_program", None))


def _read_whole(program: Any) -> dict[str, str]:
    """Returns the tensors of an exported program that another operator than a look-up reads, with
    the name of the operator. The exporter may store what that operator makes of a tensor, which
    then does not change with it."""
    if program is None:
        return {}
    names = {**program.graph_signature.inputs_to_parameters, **program.graph_signature.inputs_to_buffers}
    found = {}
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in names and (reader := _reader(node)) is not None:
            found[names[node.name]] = reader
    return found


def _reader(node: Any) -> str | None:
    """Returns the name of an operator other than a look-up that reads a node, or None."""
    for user in node.users:
        name = str(user.target).removeprefix("aten.").split(".")[0]
        first = len(user.args) > 0 and user.args[0] is node and all(arg is not node for arg in user.args[1:])
        if first and name in _LOOK_UPS:
            continue
        reader = _reader(user) if first and name in _SAME_ELEMENTS else name
        if reader is not None:
            return reader
    return None


def _shapes(module: torch.nn.Module, shapes: list[Any]) -> tuple[Any, ...]:
    """Returns the shapes of the arguments as torch.export takes them: those of *args are a tuple."""
    parameters = list(inspect.signature(module.forward).parameters.values())
    single = [p for p in parameters if p.kind is not p.VAR_POSITIONAL]
    if len(single) == len(parameters):
        return tuple(shapes)
    return (*shapes[: len(single)], tuple(shapes[len(single) :]))
