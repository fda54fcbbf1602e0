"""Drafts of declared channels, tasks and views, and expansion of bound workflowettes into them.

Attaching a port is renaming: a bound workflowette is expanded into drafts with unique names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kilonova.declare.composition import Composition, Parts, composed
from kilonova.declare.fingerprint import fingerprint, source_of
from kilonova.declare.pickling import pickled
from kilonova.declare.views import ViewDraft
from kilonova.errors import DeclarationError, KilonovaError, closest_name
from kilonova.model.binding import validate_attachment
from kilonova.model.channel import Channel
from kilonova.model.encoding import Custom
from kilonova.model.logic import Function, Sql
from kilonova.model.required_columns import RequiredColumn
from kilonova.model.task import Mode, Port, Production, Variant
from kilonova.query.syntax import channels_of, reading


@dataclass(slots=True, kw_only=True)
class DraftVariant:
    """Draft of a variant.

    Attributes:
        name: see `Variant`; this also applies to `ports` and `productions`.
        logic: its logic; a plain function until `pickle_functions` pickles it.
        fingerprint: the fingerprint of its logic.
        from_version: of a migration, the logic version from which it starts.
    """

    name: str
    ports: tuple[Port, ...]
    productions: tuple[Production, ...]
    logic: Callable[..., Any] | Function | Sql
    fingerprint: str = ""
    from_version: int | None = None

    def pickle_functions(self) -> None:
        """Pickle its function by value, with its current references.

        Raises:
            DeclarationError: it cannot be pickled.
        """
        if isinstance(self.logic, Composition):
            self.logic, self.fingerprint = composed(self.logic)
        elif not isinstance(self.logic, Function | Sql):
            self.logic, self.fingerprint = _kept(self.logic, self.logic)

    def variant(self) -> Variant:
        """Return the variant; its function must have been pickled."""
        assert isinstance(self.logic, Function | Sql)
        return Variant(
            name=self.name,
            ports=self.ports,
            productions=self.productions,
            logic=self.logic,
            fingerprint=self.fingerprint,
            from_version=self.from_version,
        )


@dataclass(frozen=True, slots=True)
class DraftTask:
    """Draft of a task, to which variants can be added."""

    writes: tuple[str, ...]
    variants: list[DraftVariant]
    parts: Parts | None = None
    requires: tuple[RequiredColumn, ...] = ()

    @property
    def modes(self) -> Mapping[str, set[Mode]]:
        """Modes in which it reads each channel."""
        found: dict[str, set[Mode]] = {}
        for variant in self.variants:
            for port in variant.ports:
                found.setdefault(port.channel, set()).add(port.mode)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundDraft:
    """Draft of a binding: a workflowette with channels for its ports.

    Attributes:
        name: the name of the binding.
        workflowette: the name of the workflowette.
        drafts: the declarations of the workflowette.
        ports: the channel for each port.
    """

    name: str
    workflowette: str
    drafts: Drafts
    ports: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Drafts:
    """Declarations by name, including the functions of custom encodings until they are pickled."""

    channels: dict[str, Channel] = field(default_factory=dict)
    tasks: dict[str, DraftTask] = field(default_factory=dict)
    views: dict[str, ViewDraft] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    bound: dict[str, BoundDraft] = field(default_factory=dict)
    encodings: dict[str, Any] = field(default_factory=dict)

    def pickle_functions(self) -> None:
        """Pickle by value all functions that are not pickled yet, with their current references.

        This is not done at their declaration, because they may refer to names defined further down in their module.

        Raises:
            DeclarationError: one cannot be pickled.
        """
        for bound in self.bound.values():
            try:
                bound.drafts.pickle_functions()
            except KilonovaError as error:
                raise error.with_context(binding=bound.name) from error.__cause__
        for name, draft in self.tasks.items():
            try:
                for variant in draft.variants:
                    variant.pickle_functions()
            except KilonovaError as error:
                raise error.with_context(task=name) from error.__cause__
        for name, channel in self.channels.items():
            if isinstance(channel.encoding, Custom) and channel.encoding.function in self.encodings:
                functions = self.encodings[channel.encoding.function]
                try:
                    function, digest = _kept(functions, _owner(functions))
                except KilonovaError as error:
                    raise error.with_context(channel=name) from error.__cause__
                known = custom_name(functions, digest)
                self.functions[known] = function
                self.channels[name] = replace(channel, encoding=replace(channel.encoding, function=known))
        self.encodings.clear()

    def bind(self, bound: BoundDraft) -> None:
        """Declare a binding of a workflowette.

        Raises:
            DeclarationError: the name is taken, there is no such port, or a required port is not attached.
        """
        if not bound.name.isidentifier():
            raise DeclarationError(
                f"{bound.name!r} is not a valid name",
                hint="Use letters, digits and underscores, starting with a letter",
            )
        if bound.name in self.bound:
            raise DeclarationError(
                "the binding is declared twice", binding=bound.name, hint="Rename or remove one of them"
            )
        flat = bound.drafts.expanded()
        if not flat.tasks and not flat.views:
            raise DeclarationError(
                f"the workflowette {bound.workflowette} has no tasks",
                binding=bound.name,
                hint="Declare its tasks before it is bound",
            )
        ports = [*flat.channels, *flat.views]
        for port in bound.ports:
            if port not in ports:
                raise DeclarationError(f"there is no port {port}", binding=bound.name, hint=closest_name(port, ports))
        written = flat.written()
        for port, channel in flat.channels.items():
            if channel.watch is not None:
                raise DeclarationError(
                    f"the port {port} watches a directory",
                    binding=bound.name,
                    hint="Declare the directory on the channel that is attached to the port",
                )
            if port not in written and port not in bound.ports:
                raise DeclarationError(
                    f"the port {port} is not attached to a channel",
                    binding=bound.name,
                    hint="Attach it, because no task of the workflowette writes it",
                )
        self.bound[bound.name] = bound

    def written(self) -> set[str]:
        """Return the channels that tasks and views write."""
        return {*(channel for draft in self.tasks.values() for channel in draft.writes), *self.views}

    def expanded(self) -> Drafts:
        """Return the drafts with all bindings expanded into channels, tasks and views.

        Raises:
            DeclarationError: names collide, or a channel does not fit its port.
        """
        whole = Drafts(dict(self.channels), dict(self.tasks), dict(self.views), dict(self.functions))
        for bound in self.bound.values():
            try:
                part = _attached(bound, self)
                for name in (*part.tasks, *part.views):
                    if name in whole.tasks or name in whole.views:
                        raise DeclarationError(
                            "the task is declared twice", task=name, hint="Rename or remove one of them"
                        )
            except KilonovaError as error:
                raise error.with_context(binding=bound.name) from error.__cause__
            for name, channel in part.channels.items():
                whole.channels.setdefault(name, channel)
            whole.tasks.update(part.tasks)
            whole.views.update(part.views)
            whole.functions.update(part.functions)
        return whole

    def tasks_of(self, bound: str) -> tuple[str, ...]:
        """Return the tasks and views of a bound workflowette."""
        part = _attached(self.bound[bound], self)
        return (*part.tasks, *part.views)


def _kept(item: Any, source: Callable[..., Any]) -> tuple[Function, str]:
    """Return a function or an object pickled by value, with a source, and its fingerprint.

    Raises:
        DeclarationError: it cannot be pickled, or has no source.
    """
    found = fingerprint(item)
    return Function(pickled=pickled(item), source=source_of(source), unseen=found.unseen), found.digest


def custom_name(functions: Any, digest: str) -> str:
    """Return the name of a custom encoding's functions, which contains their fingerprint."""
    return f"{_owner(functions).__name__}_{digest[:12]}"


def _owner(functions: Any) -> type[Any]:
    """Return the class of a custom encoding's functions, which may be given as a class or as an object."""
    return functions if isinstance(functions, type) else type(functions)


def _attached(bound: BoundDraft, around: Drafts) -> Drafts:
    """Return the declarations of a workflowette, under the names of the channels to which it is attached.

    Raises:
        DeclarationError: a channel does not fit its port, or a task reads something other than a port.
    """
    flat = bound.drafts.expanded()
    own = [*flat.channels, *flat.views]
    names = {name: bound.ports.get(name, f"{bound.name}__{name}") for name in own}
    for task, draft in flat.tasks.items():
        _check_own_channels((*draft.modes, *draft.writes), own, task)
    for view, query in flat.views.items():
        _check_own_channels(channels_of(query.query, own), own, view)
    written = flat.written()
    for name, port in flat.channels.items():
        channel = around.channels.get(names[name])
        if channel is not None:
            modes = (mode for draft in flat.tasks.values() for mode in draft.modes.get(name, ()))
            validate_attachment(port, channel, modes, name in written)
    return Drafts(
        {names[name]: replace(port, name=names[name]) for name, port in flat.channels.items() if name in written},
        {f"{bound.name}__{name}": _renamed(draft, names) for name, draft in flat.tasks.items()},
        {
            names[name]: replace(
                view,
                name=names[name],
                query=reading(view.query, names),
                source=None,
                requires=_attached_columns(view.requires, names),
            )
            for name, view in flat.views.items()
        },
        flat.functions,
    )


def _check_own_channels(read: Iterable[str], own: list[str], task: str) -> None:
    for name in read:
        if name not in own:
            raise DeclarationError(
                "the workflowette has no such port", task=task, channel=name, hint=closest_name(name, own)
            )


def _renamed(draft: DraftTask, names: Mapping[str, str]) -> DraftTask:
    return DraftTask(
        tuple(names[channel] for channel in draft.writes),
        [
            replace(variant, ports=tuple(replace(port, channel=names[port.channel]) for port in variant.ports))
            for variant in draft.variants
        ],
        requires=_attached_columns(draft.requires, names),
    )


def _attached_columns(required: Iterable[RequiredColumn], names: Mapping[str, str]) -> tuple[RequiredColumn, ...]:
    return tuple(replace(column, channel=names.get(column.channel, column.channel)) for column in required)
