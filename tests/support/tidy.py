"""Rules of the house that no tool knows: what test_tidy.py applies to the tree and to planted
breaches.

What tools know stands in pyproject.toml: ruff (style, imports inside functions, the outside world,
code in comments) and import-linter (which room may import which).  Each rule here is a function
from parsed modules to breaches; a breach is one line, ``file:line: rule: what to do``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

MODULE_LINES_MAX = 700
PRIVATE = ("mdt/engines/spark/private.py", "tests/engines/spark/test_private.py")
"""The module that touches what other packages do not promise to keep, and its test; elsewhere its
functions are called. Of pyarrow nothing private is touched; what is known of the layout of its
files stands in mdt/parquet/footer.py.
"""

INTERNALS = (
    "pyspark.java_gateway",
    "pyspark.serializers",
    "pyspark.sql.classic",
    "pyspark.sql.pandas",
    "pyspark.util",
    "pyspark.worker",
    "py4j.clientserver",
    "py4j.java_gateway",
    "pyarrow.lib",
)
"""Modules of other packages that are private though their names do not say so."""

DOCUMENTED = {"_asdict", "_exit", "_fields", "_make", "_replace"}
"""Names of the standard library that begin with an underscore and are public."""

JAVA_LINES_MAX = 300
NAMES_OF_HUDI = ("mdt/hudi/", "mdt/metadata/files/paths.py")
"""Where names of Hudi's directory are made: those of the timeline by a layout, of nothing but the
properties in the other place.
"""
TIMELINE_NAME = re.compile(
    r"\.hoodie/(?!\.mdt)|\.(requested|inflight|deltacommit|replacecommit)\b|^\.(commit|compaction|clean|rollback)\b"
)

MACHINE_PATH = re.compile(r"(?<![\w.$}/])/(home|root|work|Users|tmp|opt|mnt)/\w")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One parsed source file; ``path`` is relative to the tree, with forward slashes."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @property
    def name(self) -> str:
        parts = self.path.removesuffix(".py").split("/")
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def functions(self) -> list[Function]:
        return [node for node in self.nodes if isinstance(node, Function)]

    def at(self, line: int, rule: str, text: str) -> str:
        return f"{self.path}:{line}: {rule}: {text}"


Rule = Callable[[list[Module]], Iterator[str]]


def load(root: Path, *folders: str) -> list[Module]:
    """Parse every Python file under ``folders`` of ``root``, sorted by path."""
    files = sorted(file for folder in folders for file in (root / folder).rglob("*.py"))
    return [
        Module(file.relative_to(root).as_posix(), file.read_text(encoding="utf-8"))
        for file in files
    ]


def check(modules: list[Module], *rules: Rule) -> list[str]:
    """Return the breaches of ``rules``."""
    return [breach for rule in rules for breach in rule(modules)]


def imports(module: Module, known: set[str]) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name) of every import, in functions and under TYPE_CHECKING too.

    ``from mdt import errors`` is an import of ``mdt.errors`` where that is a module in ``known``.
    """
    for node in module.nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = absolute(module, node)
            names = [f"{source}.{alias.name}" for alias in node.names]
            yield from ((node.lineno, name if name in known else source) for name in names)


def absolute(module: Module, node: ast.ImportFrom) -> str:
    """Return the dotted name that ``node`` imports from, relative dots resolved."""
    if not node.level:
        return node.module or ""
    package = (
        module.name.split(".")
        if module.path.endswith("__init__.py")
        else module.name.split(".")[:-1]
    )
    return ".".join(
        [*package[: len(package) - node.level + 1], *([node.module] if node.module else [])]
    )


def home(path: str, places: tuple[str, ...]) -> bool:
    """Return whether ``path`` is one of ``places`` or in one of them."""
    return any(
        path == place or (place.endswith("/") and path.startswith(place)) for place in places
    )


def timeline_names(modules: list[Module]) -> Iterator[str]:
    """Names of instants and of their directory are made by a layout."""
    for module in modules:
        if home(module.path, NAMES_OF_HUDI):
            continue
        for node in module.nodes:
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and not is_prose(node.value)
            ):
                made = TIMELINE_NAME.search(node.value) is not None
            else:
                made = isinstance(node, ast.JoinedStr) and ast.unparse(node).startswith(
                    ("f'{HUDI}", "f'{paths.HUDI}")
                )
            if made:
                yield module.at(
                    node.lineno, "layouts", "names of Hudi's directory are made by mdt.hudi.layout"
                )


def is_prose(text: str) -> bool:
    """Return whether a text has words, as docstrings and messages have, and names of files have
    not.
    """
    return len(text.split()) > 1


def module_lines(modules: list[Module]) -> Iterator[str]:
    """Modules have at most MODULE_LINES_MAX lines."""
    for module in modules:
        lines = len(module.text.splitlines())
        if lines > MODULE_LINES_MAX:
            yield module.at(
                lines, "lines", f"{lines} lines; at most {MODULE_LINES_MAX}: split by noun"
            )


def body_lines(function: Function) -> int:
    """Return the lines of a function without its signature and docstring."""
    body = (
        function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
    )
    return (body[-1].end_lineno or body[-1].lineno) - body[0].lineno + 1 if body else 0


def docstrings(modules: list[Module]) -> Iterator[str]:
    """Public modules, classes, functions and methods say what they are; overrides inherit what the
    parent says.
    """
    classes = {n.name: n for m in modules for n in m.nodes if isinstance(n, ast.ClassDef)}
    for module in modules:
        if not ast.get_docstring(module.tree):
            yield module.at(1, "docstrings", "module without docstring")
        for node, inside in public(module.tree):
            if (
                ast.get_docstring(node)
                or (inside and documented_above(inside, node.name, classes))
                or derived(node)
            ):
                continue
            yield module.at(node.lineno, "docstrings", f"{node.name} has none")


def public(
    tree: ast.Module | ast.ClassDef,
) -> Iterator[tuple[Function | ast.ClassDef, ast.ClassDef | None]]:
    """Yield the public definitions of a module or class with the class they stand in."""
    for node in tree.body:
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
            yield node, tree if isinstance(tree, ast.ClassDef) else None
            if isinstance(node, ast.ClassDef):
                yield from public(node)


def derived(node: Function | ast.ClassDef) -> bool:
    """Return whether another definition of the same name documents ``node``: a setter, an
    overload.
    """
    names = [ast.unparse(decorator) for decorator in node.decorator_list]
    return any(name.endswith((".setter", ".deleter", "overload")) for name in names)


def documented_above(node: ast.ClassDef, method: str, classes: dict[str, ast.ClassDef]) -> bool:
    """Return whether an ancestor of ``node`` among ``classes`` documents ``method``."""
    for base in (
        classes.get(ast.unparse(base).split("[")[0].split(".")[-1]) for base in node.bases
    ):
        if base is None or base is node:
            continue
        own = next((n for n in base.body if isinstance(n, Function) and n.name == method), None)
        if (own and ast.get_docstring(own)) or documented_above(base, method, classes):
            return True
    return False


def machine_paths(modules: list[Module]) -> Iterator[str]:
    """No path of somebody's machine stands in the source."""
    yield from marks(modules, MACHINE_PATH, "paths", "a path of one machine")


def marks(modules: list[Module], pattern: re.Pattern[str], rule: str, text: str) -> Iterator[str]:
    """Yield a breach for each line that ``pattern`` finds."""
    for module in modules:
        for number, line in enumerate(module.text.splitlines(), 1):
            if pattern.search(line):
                yield module.at(number, rule, f"{text}: {line.strip()}")


def private_names(modules: list[Module]) -> Iterator[str]:
    """What other packages keep private, by a leading underscore or in INTERNALS, is touched in
    PRIVATE only.

    A private attribute is taken for another package's if no module outside of PRIVATE defines one
    of that name.
    """
    others = [module for module in modules if module.path not in PRIVATE]
    own = {name for module in others for name in defined(module)} | DOCUMENTED
    known = {module.name for module in modules}
    for module in others:
        for line, name in imports(module, known):
            parts = name.split(".")
            internal = any(name == one or name.startswith(one + ".") for one in INTERNALS)
            if internal or (parts[0] not in ("mdt", "indexes") and any(map(is_private, parts[1:]))):
                yield module.at(
                    line, "private", f"{name} is no public module: import it in {PRIVATE[0]}"
                )
        for line, name in touched(module):
            if is_private(name) and name not in own:
                yield module.at(
                    line, "private", f"{name} is another package's own: touch it in {PRIVATE[0]}"
                )


def is_private(name: str) -> bool:
    """Return whether a name begins with one underscore."""
    return name.startswith("_") and not name.startswith("__") and name != "_"


def defined(module: Module) -> Iterator[str]:
    """Yield the names that a module gives to functions, classes, variables and attributes of
    ``self`` and ``cls``.
    """
    for node in module.nodes:
        if isinstance(node, Function | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias) and node.asname:
            yield node.asname
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and is_own(node.value)
        ):
            yield node.attr


def is_own(node: ast.expr) -> bool:
    """Return whether an expression is ``self`` or ``cls``."""
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def touched(module: Module) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of attributes, also of those that getattr, hasattr, setattr and delattr
    are given as text.
    """
    for node in module.nodes:
        if isinstance(node, ast.Attribute):
            yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
            ("getattr", "hasattr", "setattr", "delattr")
        ):
            texts = [given.value for given in node.args[:2] if isinstance(given, ast.Constant)]
            yield from (
                (node.lineno, text.split(".")[-1]) for text in texts if isinstance(text, str)
            )


def load_java(root: Path, *folders: str) -> list[Module]:
    """Read every Java file under ``folders`` of ``root``, sorted by path."""
    files = sorted(file for folder in folders for file in (root / folder).rglob("*.java"))
    return [
        Module(file.relative_to(root).as_posix(), file.read_text(encoding="utf-8"))
        for file in files
    ]


def java(modules: list[Module]) -> Iterator[str]:
    """A Java file says what it is, has one class, of its own name, and at most JAVA_LINES_MAX
    lines.
    """
    for module in modules:
        lines = len(module.text.splitlines())
        name = module.path.split("/")[-1].removesuffix(".java")
        types = re.findall(
            r"^\s*(?:\w+ )*(?:class|interface|enum) (\w+)[^;{]*\{", module.text, re.MULTILINE
        )
        if lines > JAVA_LINES_MAX:
            yield module.at(
                lines, "java", f"{lines} lines; at most {JAVA_LINES_MAX}: split by noun"
            )
        if not module.text.startswith(("// ", "/*")):
            yield module.at(1, "java", "say in a comment what it is, before the package")
        if types != [name]:
            yield module.at(
                1, "java", f"one class, called {name}; there are {', '.join(types) or 'none'}"
            )


PRODUCT_RULES: tuple[Rule, ...] = (timeline_names, docstrings)
"""For mdt and indexes."""
GENERAL_RULES: tuple[Rule, ...] = (module_lines, machine_paths, private_names)
"""For mdt, indexes, benchmarks and tests."""
