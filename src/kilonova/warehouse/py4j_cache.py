"""Cache of the classes and static methods that Py4J looks up in Java.

PySpark looks them up by name for each of its calls: a class that is imported with its package, such as `PythonUtils`,
by searching all jars for one package after another. Of a small run that is a sixth of Java's time.
"""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass, JavaMember, JVMView


class CachingJVMView(JVMView):  # type: ignore[misc]
    """View of a Java process that looks up each class once.

    Packages are looked up again: a class of the same name may be imported later.
    """

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if isinstance(found, JavaClass):
            found.__class__ = CachingJavaClass
            setattr(self, name, found)
        return found


class CachingJavaClass(JavaClass):  # type: ignore[misc]
    """Java class of which each static method is looked up once; fields are read again, as they may change."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if isinstance(found, JavaMember):
            setattr(self, name, found)
        return found


def cache_lookups(view: JVMView) -> None:
    """Cache what is looked up through a view of a Java process, as long as the view exists."""
    view.__class__ = CachingJVMView
