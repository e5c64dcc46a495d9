"""The rules of the house, executable: what test_tidy.py applies to the tree and to planted breaches.

Each rule is a function from parsed modules to breaches; a breach is one line, ``file:line: rule: what to do``.  To let
a new room of mdt in, put its name into LAYERS.
"""

from __future__ import annotations

import ast
import io
import re
import statistics
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

LAYERS: tuple[tuple[str, ...], ...] = (
    ("display", "errors", "limits"),
    ("arguments", "filters", "option", "progress", "stores"),
    ("config", "logs", "parquet", "schema"),
    ("hudi",),
    ("metadata",),
    ("commit", "plan"),
    ("create_table", "scan"),
    ("write",),
    ("services",),
    ("engines",),
    ("changes", "query", "source", "spark", "table", "testing"),
    ("cli", "__main__", "__init__"),
)
"""Packages of mdt and modules beside them.  Each may import from its own row (without cycles) and from the rows before it."""

MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60
FUNCTION_LINES_MEDIAN_MAX = 8
FUNCTION_LINES_P90_MAX = 25

ONLY_IN = {
    "pyspark": ("mdt/engines/spark/",),
    "py4j": ("mdt/engines/spark/",),
    "hypothesis": ("indexes/testing.py", "indexes/key_testing.py"),
}
"""Third-party package -> the only places of mdt and indexes that may import it; elsewhere for annotations only, under
``if TYPE_CHECKING``."""

PRIVATE = ("mdt/engines/spark/private.py", "tests/engines/spark/test_private.py")
"""The module that touches what other packages do not promise to keep, and its test; elsewhere its functions are called.
Of pyarrow nothing private is touched; what is known of the layout of its files stands in mdt/parquet/footer.py."""

INTERNALS = (
    "pyspark.java_gateway", "pyspark.serializers", "pyspark.sql.classic", "pyspark.sql.pandas", "pyspark.util", "pyspark.worker",
    "py4j.clientserver", "py4j.java_gateway", "pyarrow.lib",
)  # fmt: skip
"""Modules of other packages that are private though their names do not say so."""

DOCUMENTED = {"_asdict", "_exit", "_fields", "_make", "_replace"}
"""Names of the standard library that begin with an underscore and are public."""

JAVA_LINES_MAX = 300
LATE_IMPORTS = {
    "mdt/changes.py": "pyspark takes a second",
    "mdt/display.py": "html's tables of entities take a millisecond",
    "mdt/hudi/v6.py": "who only reads needs no Avro",
    "mdt/metadata/attachments.py": "plans need no pyarrow.parquet",
    "mdt/metadata/locate.py": "tables with key parts of their own need neither lmdb nor sorted maps",
    "mdt/progress.py": "rich takes longer to load than most calls take",
    "mdt/query.py": "an open needs no planner, no filter and no reader; pyspark takes a second",
    "mdt/source/": "pyspark takes a second",
    "mdt/stores/storage.py": "local tables need neither obstore nor lmdb",
    "mdt/table/": "who only reads loads no writer and no service; pyspark takes a second",
}
"""Modules and rooms that may import inside functions -> why that pays; tests/metadata/test_metadata_scale.py counts what is loaded when."""

OUTSIDE_WORLD = ("mdt/stores/", "mdt/cli/", "mdt/__main__.py")
"""Where the clock, randomness, files and the environment may be touched."""

IMPORTS_NEVER = {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "subprocess", "pandas"}
IMPORTS_OUTSIDE = {"os", "time", "random", "secrets", "shutil", "glob"}
CALLS_NEVER = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "builtins.eval", "builtins.exec"}
CALLS_OUTSIDE = {
    "open", "io.open", "uuid.uuid1", "uuid.uuid4", "date.today", "datetime.now", "datetime.utcnow", "datetime.today",
    "datetime.datetime.now", "datetime.datetime.utcnow", "datetime.date.today",
}  # fmt: skip

LAYOUTS = "mdt/hudi/layout.py"
"""The module that knows which layouts there are; everybody else asks it for that of a table."""
NAMES_OF_HUDI = ("mdt/hudi/", "mdt/metadata/paths.py")
"""Where names of Hudi's directory are made: those of the timeline by a layout, of nothing but the properties in the other place."""
TIMELINE_NAME = re.compile(
    r"\.hoodie/(?!\.mdt)|\.(requested|inflight|deltacommit|replacecommit)\b|^\.(commit|compaction|clean|rollback)\b"
)

BANNED_CLASS = re.compile(r"(Manager|Utils?|Helpers?|Impl)$|^_?Base(?!File)[A-Z]")
BANNED_NAME = re.compile(r"(^|_)(manager|utils?|helpers?|impl)$")
UNFINISHED = re.compile(r"\b(TO[D]O|FIX[M]E|XX[X]|HA[C]K)\b")
MACHINE_PATH = re.compile(r"(?<![\w.$}/])/(home|root|work|Users|tmp|opt|mnt)/\w")
PRAGMA = re.compile(r"^\s*(type:|noqa|fmt:|ruff:|mypy:|pragma|!)")

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
    return [Module(file.relative_to(root).as_posix(), file.read_text(encoding="utf-8")) for file in files]


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
    package = module.name.split(".") if module.path.endswith("__init__.py") else module.name.split(".")[:-1]
    return ".".join([*package[: len(package) - node.level + 1], *([node.module] if node.module else [])])


def layer(name: str) -> int | None:
    """Return the row of LAYERS for a dotted name of mdt, or None."""
    part = (name.split(".") + ["__init__"])[1]
    return next((row for row, names in enumerate(LAYERS) if part in names), None)


def layers(modules: list[Module]) -> Iterator[str]:
    """A module of mdt imports from its own row of LAYERS and from lower rows; indexes imports nothing of mdt."""
    known = {module.name for module in modules}
    for module in modules:
        own = layer(module.name) if module.name.split(".")[0] == "mdt" else -1
        if own is None:
            yield module.at(1, "layers", f"{module.name} has no row in LAYERS of tests/tidy.py")
            continue
        for line, name in imports(module, known):
            row = layer(name) if name.split(".")[0] == "mdt" else -1
            if row is None or row > own:
                yield module.at(line, "layers", f"{module.name} may not import {name}, which is a layer above it")


def cycles(modules: list[Module]) -> Iterator[str]:
    """The import graph has no cycles."""
    known = {module.name for module in modules}
    left = {m.name: {n for _, n in imports(m, known) if n in known and n != m.name} for m in modules}
    while free := {name for name, needs in left.items() if not needs & left.keys()}:
        left = {name: needs for name, needs in left.items() if name not in free}
    needed = {need for needs in left.values() for need in needs}
    for module in modules:
        if module.name in left and module.name in needed:
            way = sorted(left[module.name] & left.keys())
            yield module.at(1, "cycles", f"{module.name} imports itself by way of {way}")


def late_imports(modules: list[Module]) -> Iterator[str]:
    """Imports stand at the top of a module, but for what LATE_IMPORTS names."""
    for module in modules:
        if module.path.startswith(tuple(LATE_IMPORTS)):
            continue
        late = {node for function in module.functions for node in ast.walk(function)}
        for node in late:
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield module.at(node.lineno, "late imports", "import at the top, or say in LATE_IMPORTS why not")


def home(path: str, places: tuple[str, ...]) -> bool:
    """Return whether ``path`` is one of ``places`` or in one of them."""
    return any(path == place or (place.endswith("/") and path.startswith(place)) for place in places)


def banned_imports(modules: list[Module]) -> Iterator[str]:
    """No pickle, shell or pandas; clock, randomness and files in OUTSIDE_WORLD; Spark in mdt/engines/spark."""
    for module in modules:
        unseen = lines_for_type_checkers(module)
        for line, name in imports(module, set()):
            top = name.split(".")[0]
            inside = not home(module.path, OUTSIDE_WORLD)
            temporary = top == "tempfile" and not home(module.path, (*OUTSIDE_WORLD, "mdt/engines/spark/"))
            if top in IMPORTS_NEVER or (top in IMPORTS_OUTSIDE and inside) or temporary:
                yield module.at(line, "imports", f"{top} may not be imported here")
            elif top in ONLY_IN and not home(module.path, ONLY_IN[top]) and line not in unseen:
                yield module.at(line, "imports", f"{top} belongs into {', '.join(ONLY_IN[top])}")


def timeline_names(modules: list[Module]) -> Iterator[str]:
    """Names of instants and of their directory are made by a layout, which comes from LAYOUTS."""
    known = {module.name for module in modules}
    for module in modules:
        for line, name in imports(module, known):
            if re.fullmatch(r"mdt\.hudi\.v[0-9]+", name) and module.path != LAYOUTS:
                yield module.at(line, "layouts", f"ask mdt.hudi.layout.layout_of, not {name}")
        if home(module.path, NAMES_OF_HUDI):
            continue
        for node in module.nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and not is_prose(node.value):
                made = TIMELINE_NAME.search(node.value) is not None
            else:
                made = isinstance(node, ast.JoinedStr) and ast.unparse(node).startswith(("f'{HUDI}", "f'{paths.HUDI}"))
            if made:
                yield module.at(node.lineno, "layouts", "names of Hudi's directory are made by mdt.hudi.layout")


def is_prose(text: str) -> bool:
    """Return whether a text has words, as docstrings and messages have, and names of files have not."""
    return len(text.split()) > 1


def lines_for_type_checkers(module: Module) -> set[int]:
    """Return the lines under ``if TYPE_CHECKING``, which never run."""
    blocks = [n for n in module.tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    return {line for block in blocks for node in block.body for line in range(node.lineno, (node.end_lineno or 0) + 1)}


def banned_calls(modules: list[Module]) -> Iterator[str]:
    """No eval, exec, shell; no clock, randomness or files outside of OUTSIDE_WORLD; nothing unpickled by numpy.

    A generator of numpy with a seed is a pure function; a function of the module's own may be called ``open``.
    """
    for module in modules:
        own = {node.name for node in module.tree.body if isinstance(node, Function)}
        banned = CALLS_NEVER if home(module.path, OUTSIDE_WORLD) else CALLS_NEVER | (CALLS_OUTSIDE - own)
        for call in (node for node in module.nodes if isinstance(node, ast.Call)):
            name = ast.unparse(call.func)
            seeded = name.endswith("random.default_rng") and call.args
            if name in banned or (name.startswith(("np.random.", "numpy.random.")) and not seeded):
                yield module.at(call.lineno, "calls", f"{name}() may not be called here")
            if any(word.arg == "allow_pickle" for word in call.keywords):
                yield module.at(call.lineno, "calls", "allow_pickle may not be passed")


def module_lines(modules: list[Module]) -> Iterator[str]:
    """Modules have at most MODULE_LINES_MAX lines."""
    for module in modules:
        lines = len(module.text.splitlines())
        if lines > MODULE_LINES_MAX:
            yield module.at(lines, "lines", f"{lines} lines; at most {MODULE_LINES_MAX}: split by noun")


def function_lines(modules: list[Module]) -> Iterator[str]:
    """Functions have at most FUNCTION_LINES_MAX lines, signature and docstring included."""
    for module in modules:
        for function in module.functions:
            lines = (function.end_lineno or function.lineno) - function.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield module.at(function.lineno, "lines", f"{function.name} has {lines}; at most {FUNCTION_LINES_MAX}")


def body_lines(function: Function) -> int:
    """Return the lines of a function without its signature and docstring."""
    body = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
    return (body[-1].end_lineno or body[-1].lineno) - body[0].lineno + 1 if body else 0


def lengths(modules: list[Module]) -> tuple[float, float]:
    """Return the median and the 90th percentile of the lines in function bodies."""
    counts = sorted(body_lines(function) for module in modules for function in module.functions) or [0]
    return statistics.median(counts), counts[int(0.9 * (len(counts) - 1))]


def share_of_lengths(modules: list[Module]) -> Iterator[str]:
    """Half of the functions have at most FUNCTION_LINES_MEDIAN_MAX lines, nine in ten FUNCTION_LINES_P90_MAX."""
    median, p90 = lengths(modules)
    if median > FUNCTION_LINES_MEDIAN_MAX or p90 > FUNCTION_LINES_P90_MAX:
        limit = f"{FUNCTION_LINES_MEDIAN_MAX} / {FUNCTION_LINES_P90_MAX}"
        yield f"all: lines: function bodies have {median:g} / {p90:g} lines (median / 90 %); at most {limit}"


def docstrings(modules: list[Module]) -> Iterator[str]:
    """Public modules, classes, functions and methods say what they are; overrides inherit what the parent says."""
    classes = {n.name: n for m in modules for n in m.nodes if isinstance(n, ast.ClassDef)}
    for module in modules:
        if not ast.get_docstring(module.tree):
            yield module.at(1, "docstrings", "module without docstring")
        for node, inside in public(module.tree):
            if ast.get_docstring(node) or (inside and documented_above(inside, node.name, classes)) or derived(node):
                continue
            yield module.at(node.lineno, "docstrings", f"{node.name} has none")


def public(tree: ast.Module | ast.ClassDef) -> Iterator[tuple[Function | ast.ClassDef, ast.ClassDef | None]]:
    """Yield the public definitions of a module or class with the class they stand in."""
    for node in tree.body:
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
            yield node, tree if isinstance(tree, ast.ClassDef) else None
            if isinstance(node, ast.ClassDef):
                yield from public(node)


def derived(node: Function | ast.ClassDef) -> bool:
    """Return whether another definition of the same name documents ``node``: a setter, an overload."""
    names = [ast.unparse(decorator) for decorator in node.decorator_list]
    return any(name.endswith((".setter", ".deleter", "overload")) for name in names)


def documented_above(node: ast.ClassDef, method: str, classes: dict[str, ast.ClassDef]) -> bool:
    """Return whether an ancestor of ``node`` among ``classes`` documents ``method``."""
    for base in (classes.get(ast.unparse(base).split("[")[0].split(".")[-1]) for base in node.bases):
        if base is None or base is node:
            continue
        own = next((n for n in base.body if isinstance(n, Function) and n.name == method), None)
        if (own and ast.get_docstring(own)) or documented_above(base, method, classes):
            return True
    return False


def names(modules: list[Module]) -> Iterator[str]:
    """Names are nouns of the field, not Manager, Util, Helper, Impl or Base-something."""
    for module in modules:
        if BANNED_NAME.search(module.name.split(".")[-1]):
            yield module.at(1, "names", f"{module.name}: name it by what it holds")
        for node in module.nodes:
            pattern = BANNED_CLASS if isinstance(node, ast.ClassDef) else BANNED_NAME
            if isinstance(node, Function | ast.ClassDef) and pattern.search(node.name):
                yield module.at(node.lineno, "names", f"{node.name}: name it by what it is")


def comments(modules: list[Module]) -> Iterator[str]:
    """Comments are prose: finished work, and no code that somebody switched off."""
    for module in modules:
        for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
            if token.type == tokenize.COMMENT and is_code(token.string.lstrip("#").strip()):
                yield module.at(token.start[0], "comments", f"commented-out code: {token.string}")
    yield from marks(modules, UNFINISHED, "comments", "unfinished work goes into an issue")


def is_code(comment: str) -> bool:
    """Return whether a comment's text parses as a statement that prose would not be."""
    if PRAGMA.match(comment):
        return False
    try:
        body = ast.parse(comment + " pass" if comment.endswith(":") else comment).body
    except (SyntaxError, ValueError):
        return False
    return len(body) == 1 and any(matches(body[0]) for matches in (is_plain_code, is_block))


def is_plain_code(node: ast.stmt) -> bool:
    """Return whether a simple statement is more than words that happen to parse."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call | ast.Await)
    if isinstance(node, ast.Return | ast.AnnAssign):
        return node.value is not None and not isinstance(node.value, ast.Name)
    return isinstance(node, ast.Assign | ast.AugAssign | ast.ImportFrom | ast.Assert)


def is_block(node: ast.stmt) -> bool:
    """Return whether a statement is the head of a block: ``if a > b:``, ``def f():``."""
    if isinstance(node, ast.If | ast.While):
        return not isinstance(node.test, ast.Name)
    return isinstance(node, ast.For | ast.Try | Function | ast.ClassDef)


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
    """What other packages keep private, by a leading underscore or in INTERNALS, is touched in PRIVATE only.

    A private attribute is taken for another package's if no module outside of PRIVATE defines one of that name.
    """
    others = [module for module in modules if module.path not in PRIVATE]
    own = {name for module in others for name in defined(module)} | DOCUMENTED
    known = {module.name for module in modules}
    for module in others:
        for line, name in imports(module, known):
            parts = name.split(".")
            internal = any(name == one or name.startswith(one + ".") for one in INTERNALS)
            if internal or (parts[0] not in ("mdt", "indexes") and any(map(is_private, parts[1:]))):
                yield module.at(line, "private", f"{name} is no public module: import it in {PRIVATE[0]}")
        for line, name in touched(module):
            if is_private(name) and name not in own:
                yield module.at(line, "private", f"{name} is another package's own: touch it in {PRIVATE[0]}")


def is_private(name: str) -> bool:
    """Return whether a name begins with one underscore."""
    return name.startswith("_") and not name.startswith("__") and name != "_"


def defined(module: Module) -> Iterator[str]:
    """Yield the names that a module gives to functions, classes, variables and attributes of ``self`` and ``cls``."""
    for node in module.nodes:
        if isinstance(node, Function | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias) and node.asname:
            yield node.asname
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own(node.value):
            yield node.attr


def is_own(node: ast.expr) -> bool:
    """Return whether an expression is ``self`` or ``cls``."""
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def touched(module: Module) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of attributes, also of those that getattr, hasattr, setattr and delattr are given as text."""
    for node in module.nodes:
        if isinstance(node, ast.Attribute):
            yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
            ("getattr", "hasattr", "setattr", "delattr")
        ):
            texts = [given.value for given in node.args[:2] if isinstance(given, ast.Constant)]
            yield from ((node.lineno, text.split(".")[-1]) for text in texts if isinstance(text, str))


def load_java(root: Path, *folders: str) -> list[Module]:
    """Read every Java file under ``folders`` of ``root``, sorted by path."""
    files = sorted(file for folder in folders for file in (root / folder).rglob("*.java"))
    return [Module(file.relative_to(root).as_posix(), file.read_text(encoding="utf-8")) for file in files]


def java(modules: list[Module]) -> Iterator[str]:
    """A Java file says what it is, has one class, of its own name, and at most JAVA_LINES_MAX lines."""
    for module in modules:
        lines = len(module.text.splitlines())
        name = module.path.split("/")[-1].removesuffix(".java")
        types = re.findall(r"^\s*(?:\w+ )*(?:class|interface|enum) (\w+)[^;{]*\{", module.text, re.MULTILINE)
        if lines > JAVA_LINES_MAX:
            yield module.at(lines, "java", f"{lines} lines; at most {JAVA_LINES_MAX}: split by noun")
        if not module.text.startswith(("// ", "/*")):
            yield module.at(1, "java", "say in a comment what it is, before the package")
        if types != [name]:
            yield module.at(1, "java", f"one class, called {name}; there are {', '.join(types) or 'none'}")


PRODUCT_RULES: tuple[Rule, ...] = (
    layers,
    cycles,
    late_imports,
    banned_imports,
    banned_calls,
    timeline_names,
    docstrings,
    share_of_lengths,
)
"""For mdt and indexes."""
GENERAL_RULES: tuple[Rule, ...] = (module_lines, function_lines, names, comments, machine_paths, private_names)
"""For mdt, indexes, benchmarks and tests."""
