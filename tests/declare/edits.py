"""Edits of definitions, and whether each changes what they do: the fixture table of `test_fingerprint.py`.

An edit is a name, the code before and after it, and whether it counts. The code defines `t`: a function, an object, or the
text of a SQL task. What follows a line `#: name` is the module of that name instead of the workflow's own.

Run as a program, it prints the fingerprints of all of them as JSON.
"""

# ruff: noqa: E501
from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import kilonova as kn
from kilonova.declare.fingerprint import fingerprint

Edit = tuple[str, str, str, bool]

HELPERS = "import helpers\ndef t(a): return helpers.clean(a)\n#: helpers\n"
RULE = "class Rule:\n    {0}\n    def keep(self, n): return n > {1}\ndef t(a): return a.where(Rule().keep(3))"
SCALED = """
import functools
def scaled(by):
    def decorated(function):
        @functools.wraps(function)
        def inner(*args): return function(*args) * by
        return inner
    return decorated
@scaled({0})
def t(a): return a
"""
UDF = """
from pyspark.sql.functions import udf
from pyspark.sql.types import IntegerType, StringType
@udf({0}())
def u(x): return x
def t(a): return a.select(u("x"))
"""
LIKE = "SELECT * FROM {{a}} WHERE x LIKE '{0}'"
MERGE = """
{0}
class Fn:
    def __init__(self, n): self.n = n
    def merge(self, base, delta): return combined(base, delta, N, self.n)
    def chain(self, first, second): return second
def combined(*parts): return {1}
N = {2}
t = Fn({3})
"""

EDITS: list[Edit] = [
    # form only
    ("comments", "def t(a): return a", "# why\ndef t(a): return a  # so", False),
    ("formatting", "def t(a): return a.x( 1,2 )", "def t(\n    a,\n):\n    return (a.x(1, 2))", False),
    ("docstring", "def t(a):\n    'one'\n    return a", "def t(a):\n    'two'\n    return a", False),
    (
        "docstring of an inner function",
        "def t(a):\n    def f():\n        'x'\n        return a\n    return f()",
        "def t(a):\n    def f():\n        return a\n    return f()",
        False,
    ),
    ("docstring of a class", RULE.format("'one'", 1), RULE.format("'two'", 1), False),
    (
        "docstring of a property",
        "class P:\n    @property\n    def n(self):\n        'one'\n        return 1\ndef t(a): return P().n",
        "class P:\n    @property\n    def n(self):\n        'two'\n        return 1\ndef t(a): return P().n",
        False,
    ),
    ("docstring of a module", "'one'\ndef t(a): return a", "'two'\ndef t(a): return a", False),
    ("annotations", "def t(a: int) -> int: return a", "def t(a): return a", False),
    (
        "annotation of a variable",
        "def t(a):\n    n: int = 1\n    return n",
        "def t(a):\n    n = 1\n    return n",
        False,
    ),
    ("quotes", "def t(a): return 'x'", 'def t(a): return "x"', False),
    ("place in the file", "def t(a): return a", "import os\n\n\nN = 1\n\n\ndef t(a): return a", False),
    ("an unused global", "N = 1\ndef t(a): return a", "N = 2\ndef t(a): return a", False),
    (
        "an unused function of a module",
        HELPERS + "def clean(a): return a\ndef other(): return 1",
        HELPERS + "def clean(a): return a\ndef other(): return 2",
        False,
    ),
    ("comments in a module", HELPERS + "def clean(a): return a", HELPERS + "# why\ndef clean(a):\n    return a", False),
    ("order of a set", "N = {'a', 'b', 'c'}\ndef t(a): return N", "N = {'c', 'a', 'b'}\ndef t(a): return N", False),
    ("order of a set within", "def t(a): return a in {'a', 'b'}", "def t(a): return a in {'b', 'a'}", False),
    (
        "order of frozen sets of tuples",
        "N = frozenset([('a', 1), ('b', 2)])\ndef t(a): return N",
        "N = frozenset([('b', 2), ('a', 1)])\ndef t(a): return N",
        False,
    ),
    (
        "order of attributes",
        "class P: pass\np = P()\np.a, p.b = 1, 2\ndef t(a): return p",
        "class P: pass\np = P()\np.b, p.a = 2, 1\ndef t(a): return p",
        False,
    ),
    (
        "order of methods",
        "class P:\n    def f(self): return 1\n    def g(self): return 2\ndef t(a): return P()",
        "class P:\n    def g(self): return 2\n    def f(self): return 1\ndef t(a): return P()",
        False,
    ),
    ("order of keyword defaults", "def t(a, *, b=1, c=2): return a", "def t(a, *, b=(1), c=2): return a", False),
    ("a constant that is computed", "N = 1 + 1\ndef t(a): return N", "N = 2\ndef t(a): return N", False),
    # the function itself
    ("body", "def t(a): return a", "def t(a): return a.b", True),
    ("constant", "def t(a): return 1", "def t(a): return True", True),
    ("text", "def t(a): return 'a b'", "def t(a): return 'a  b'", True),
    ("text of several lines", "def t(a): return '''a\n b'''", "def t(a): return '''a\n  b'''", True),
    ("default", "def t(a, n=1): return n", "def t(a, n=2): return n", True),
    ("keyword default", "def t(a, *, n=1): return n", "def t(a, *, n=2): return n", True),
    (
        "default that is a function",
        "def f(): return 1\ndef t(a, g=f): return g()",
        "def f(): return 2\ndef t(a, g=f): return g()",
        True,
    ),
    ("lambda", "t = lambda a: a + 1", "t = lambda a: a + 2", True),
    (
        "one lambda of two on a line",
        "u, t = lambda a: a + 1, lambda a: a + 1",
        "u, t = lambda a: a + 1, lambda a: a + 2",
        True,
    ),
    (
        "the other lambda of two on a line",
        "u, t = lambda a: a + 1, lambda a: a + 1",
        "u, t = lambda a: a + 2, lambda a: a + 1",
        False,
    ),
    (
        "inner function",
        "def t(a):\n    def f(): return 1\n    return f()",
        "def t(a):\n    def f(): return 2\n    return f()",
        True,
    ),
    (
        "decorator of an inner function",
        "def t(a):\n    @a.udf('int')\n    def f(): return 1\n    return f",
        "def t(a):\n    @a.udf('string')\n    def f(): return 1\n    return f",
        True,
    ),
    (
        "field of an inner dataclass",
        "def t(a):\n    class P:\n        n: int = 1\n    return P",
        "def t(a):\n    class P:\n        n: str = 1\n    return P",
        True,
    ),
    # what it refers to
    ("global", "N = 1\ndef t(a): return N", "N = 2\ndef t(a): return N", True),
    ("element of a set", "N = {'a', 'b'}\ndef t(a): return N", "N = {'a', 'c'}\ndef t(a): return N", True),
    ("order of a list", "N = ['a', 'b']\ndef t(a): return N", "N = ['b', 'a']\ndef t(a): return N", True),
    (
        "order of a dictionary",
        "N = {'a': 1, 'b': 2}\ndef t(a): return a.select(*N)",
        "N = {'b': 2, 'a': 1}\ndef t(a): return a.select(*N)",
        True,
    ),
    ("type of a constant", "N = 1\ndef t(a): return N", "N = 1.0\ndef t(a): return N", True),
    (
        "pattern",
        "import re\nN = re.compile('a')\ndef t(a): return N",
        "import re\nN = re.compile('a', re.I)\ndef t(a): return N",
        True,
    ),
    (
        "decimal",
        "from decimal import Decimal\nN = Decimal('1.0')\ndef t(a): return N",
        "from decimal import Decimal\nN = Decimal('1.1')\ndef t(a): return N",
        True,
    ),
    (
        "partial",
        "from functools import partial\nt = partial(max, 1)",
        "from functools import partial\nt = partial(max, 2)",
        True,
    ),
    (
        "cached function",
        "from functools import cache\n@cache\ndef f(n): return 1\ndef t(a): return f(a)",
        "from functools import cache\n@cache\ndef f(n): return 2\ndef t(a): return f(a)",
        True,
    ),
    (
        "function that it calls",
        "def f(): return 1\ndef t(a): return f()",
        "def f(): return 2\ndef t(a): return f()",
        True,
    ),
    (
        "function that an inner one calls",
        "def f(): return 1\ndef t(a): return [f() for _ in a]",
        "def f(): return 2\ndef t(a): return [f() for _ in a]",
        True,
    ),
    (
        "function that calls back",
        "def f(n): return t(n)\ndef t(a): return f(1)",
        "def f(n): return t(n - 1)\ndef t(a): return f(1)",
        True,
    ),
    (
        "closure",
        "def make(n):\n    def t(a): return n\n    return t\nt = make(1)",
        "def make(n):\n    def t(a): return n\n    return t\nt = make(2)",
        True,
    ),
    (
        "function in a closure",
        "def make(f):\n    return lambda a: f(a)\ndef g(a): return 1\nt = make(g)",
        "def make(f):\n    return lambda a: f(a)\ndef g(a): return 2\nt = make(g)",
        True,
    ),
    # decorators
    ("argument of a decorator", SCALED.format(1), SCALED.format(2), True),
    ("type of a UDF", UDF.format("IntegerType"), UDF.format("StringType"), True),
    ("body of a UDF", UDF.format("IntegerType"), UDF.format("IntegerType").replace("return x", "return x + 1"), True),
    (
        "decorator",
        "def twice(f): return lambda a: f(f(a))\n@twice\ndef t(a): return a",
        "def twice(f): return lambda a: f(a)\n@twice\ndef t(a): return a",
        True,
    ),
    # modules
    ("function of a module", HELPERS + "def clean(a): return 1", HELPERS + "def clean(a): return 2", True),
    (
        "function that this calls",
        HELPERS + "def clean(a): return f()\ndef f(): return 1",
        HELPERS + "def clean(a): return f()\ndef f(): return 2",
        True,
    ),
    (
        "constant of a module",
        "import helpers\ndef t(a): return helpers.N\n#: helpers\nN = 1",
        "import helpers\ndef t(a): return helpers.N\n#: helpers\nN = 2",
        True,
    ),
    (
        "module by another name",
        "import helpers as h\ndef t(a): return h.N\n#: helpers\nN = 1",
        "import helpers as h\ndef t(a): return h.N\n#: helpers\nN = 2",
        True,
    ),
    (
        "name of a module",
        "from helpers import f\ndef t(a): return f()\n#: helpers\ndef f(): return 1",
        "from helpers import f\ndef t(a): return f()\n#: helpers\ndef f(): return 2",
        True,
    ),
    (
        "module of a package",
        "import pack.inner\ndef t(a): return pack.inner.N\n#: pack.inner\nN = 1",
        "import pack.inner\ndef t(a): return pack.inner.N\n#: pack.inner\nN = 2",
        True,
    ),
    (
        "module that a module imports",
        "import helpers\ndef t(a): return helpers.other.N\n#: helpers\nimport other\n#: other\nN = 1",
        "import helpers\ndef t(a): return helpers.other.N\n#: helpers\nimport other\n#: other\nN = 2",
        True,
    ),
    (
        "module as a value",
        "import helpers\ndef t(a): return getattr(helpers, a)\n#: helpers\nN = 1",
        "import helpers\ndef t(a): return getattr(helpers, a)\n#: helpers\nN = 2",
        True,
    ),
    (
        "import within",
        "def t(a):\n    import helpers\n    return helpers.f()\n#: helpers\ndef f(): return 1",
        "def t(a):\n    import helpers\n    return helpers.f()\n#: helpers\ndef f(): return 2",
        True,
    ),
    (
        "name imported within",
        "def t(a):\n    from helpers import f as g\n    return g()\n#: helpers\ndef f(): return 1",
        "def t(a):\n    from helpers import f as g\n    return g()\n#: helpers\ndef f(): return 2",
        True,
    ),
    # classes and objects
    ("constant of a class", RULE.format("N = 1", 1), RULE.format("N = 2", 1), True),
    ("method", RULE.format("pass", 1), RULE.format("pass", 2), True),
    (
        "constant that a method uses",
        "LIMIT = 1\n" + RULE.format("pass", "LIMIT"),
        "LIMIT = 2\n" + RULE.format("pass", "LIMIT"),
        True,
    ),
    (
        "function that a method calls",
        "def f(): return 1\n" + RULE.format("pass", "f()"),
        "def f(): return 2\n" + RULE.format("pass", "f()"),
        True,
    ),
    (
        "base class",
        "class B:\n    N = 1\nclass C(B): pass\ndef t(a): return C.N",
        "class B:\n    N = 2\nclass C(B): pass\ndef t(a): return C.N",
        True,
    ),
    (
        "class of a module",
        "import helpers\nclass C(helpers.B): pass\ndef t(a): return C()\n#: helpers\nclass B:\n    def f(self): return 1",
        "import helpers\nclass C(helpers.B): pass\ndef t(a): return C()\n#: helpers\nclass B:\n    def f(self): return 2",
        True,
    ),
    (
        "static method",
        "class C:\n    @staticmethod\n    def f(): return 1\ndef t(a): return C.f()",
        "class C:\n    @staticmethod\n    def f(): return 2\ndef t(a): return C.f()",
        True,
    ),
    (
        "property",
        "class C:\n    @property\n    def f(self): return 1\ndef t(a): return C().f",
        "class C:\n    @property\n    def f(self): return 2\ndef t(a): return C().f",
        True,
    ),
    (
        "attribute of an object",
        "class C:\n    def __init__(self, n): self.n = n\nc = C(1)\ndef t(a): return c",
        "class C:\n    def __init__(self, n): self.n = n\nc = C(2)\ndef t(a): return c",
        True,
    ),
    (
        "object in slots",
        "class C:\n    __slots__ = ('n',)\nc = C()\nc.n = 1\ndef t(a): return c",
        "class C:\n    __slots__ = ('n',)\nc = C()\nc.n = 2\ndef t(a): return c",
        True,
    ),
    (
        "default of a dataclass",
        "from dataclasses import dataclass\n@dataclass\nclass C:\n    n: int = 1\ndef t(a): return C()",
        "from dataclasses import dataclass\n@dataclass\nclass C:\n    n: int = 2\ndef t(a): return C()",
        True,
    ),
    (
        "member of an enumeration",
        "from enum import Enum\nclass C(Enum):\n    A = 1\ndef t(a): return C.A",
        "from enum import Enum\nclass C(Enum):\n    A = 2\ndef t(a): return C.A",
        True,
    ),
    # merge functions
    ("comments of merge functions", MERGE.format("", 1, 1, 1), MERGE.format("# why", 1, 1, 1), False),
    ("function of merge", MERGE.format("", 1, 1, 1), MERGE.format("", 2, 1, 1), True),
    ("constant of merge", MERGE.format("", 1, 1, 1), MERGE.format("", 1, 2, 1), True),
    ("attribute of merge functions", MERGE.format("", 1, 1, 1), MERGE.format("", 1, 1, 2), True),
    # SQL
    ("white space of SQL", "t = 'SELECT *\\n  FROM   {a}'", "t = ' SELECT * FROM {a} '", False),
    ("comments of SQL", "t = 'SELECT * FROM {a}'", "t = 'SELECT * -- why\\n /* so */ FROM {a}'", False),
    ("white space in SQL's text", f't = "{LIKE.format("a b")}"', f't = "{LIKE.format("a  b")}"', True),
    ("a comment in SQL's text", f't = "{LIKE.format("a -- b")}"', f't = "{LIKE.format("a -- c")}"', True),
    (
        "escapes in SQL's text",
        f't = r"{LIKE.format("it" + chr(92) + chr(39) + "s  a")}"',
        f't = r"{LIKE.format("it" + chr(92) + chr(39) + "s a")}"',
        True,
    ),
    ("white space in SQL's names", "t = 'SELECT `a b` FROM {a}'", "t = 'SELECT `a  b` FROM {a}'", True),
    ("hint of SQL", "t = 'SELECT * FROM {a}'", "t = 'SELECT /*+ COALESCE(1) */ * FROM {a}'", True),
]


def fingerprint_of(code: str, place: Path) -> str:
    """Return the fingerprint of `t`, as code in a directory of its own defines it."""
    place.mkdir(parents=True)
    own, *others = code.split("#: ")
    (place / "flow.py").write_text(own)
    names = {"flow"}
    for other in others:
        name, _, text = other.partition("\n")
        file = place.joinpath(*name.split(".")).with_suffix(".py")
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        names |= {name, name.partition(".")[0]}
    sys.path.insert(0, str(place))
    try:
        importlib.invalidate_caches()
        t: Any = importlib.import_module("flow").t
        if isinstance(t, str):
            workflow = kn.Workflow("w")
            workflow.channel("a", "x string")
            workflow.sql("b", t, reads={"a": kn.New}, produces=kn.Delta)
            return workflow.declared().workflow.tasks[0].fingerprint
        found = fingerprint(t)
        assert not found.unseen, found.unseen
        return found.digest
    finally:
        sys.path.remove(str(place))
        for name in names:
            sys.modules.pop(name, None)


if __name__ == "__main__":
    base = Path(sys.argv[1])
    print(
        json.dumps(
            {
                name: [fingerprint_of(before, base / f"{n}b"), fingerprint_of(after, base / f"{n}a")]
                for n, (name, before, after, _) in enumerate(EDITS)
            }
        )
    )
