"""How dense the lines are, a rule of the house: ``python tests/support/density.py`` prints the twenty
densest functions.

A conditional expression or a comprehension is one part more that a reader holds in mind while he
reads on.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tidy import Module, body_lines, home, load

CONDITIONALS_PER_1000_MAX = 23
COMPREHENSIONS_PER_1000_MAX = 34
DENSE_PARTS_MAX = 12
"""Conditional expressions and comprehensions per 1,000 lines of mdt and indexes, and in one
function: what holds today, to be lowered.  pyiceberg has 8 and 9 a thousand lines.
"""

GOAL = (15, 25)
REACHED = ("mdt/commit/", "mdt/hudi/")
"""Conditional expressions and comprehensions per 1,000 lines that every room shall have, and the
rooms that have no more.
"""

NESTED_STILL = ("mdt/metadata/",)
"""Where conditional expressions stand inside others; to be emptied."""

COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def conditionals(node: ast.AST) -> int:
    """Return how many conditional expressions stand in ``node``."""
    return sum(isinstance(part, ast.IfExp) for part in ast.walk(node))


def comprehensions(node: ast.AST) -> int:
    """Return how many comprehensions stand in ``node``."""
    return sum(isinstance(part, COMPREHENSIONS) for part in ast.walk(node))


def per_thousand_lines(modules: list[Module]) -> tuple[float, float]:
    """Return conditional expressions and comprehensions per 1,000 lines."""
    lines = sum(len(module.text.splitlines()) for module in modules) or 1
    counts = (
        sum(count(module.tree) for module in modules) for count in (conditionals, comprehensions)
    )
    some, others = (1000 * count / lines for count in counts)
    return some, others


def density(modules: list[Module]) -> Iterator[str]:
    """Lines are read once: few conditional expressions and comprehensions in all, and in one
    function; none of the former inside another.
    """
    found = per_thousand_lines(modules)
    if found[0] > CONDITIONALS_PER_1000_MAX or found[1] > COMPREHENSIONS_PER_1000_MAX:
        limit = f"{CONDITIONALS_PER_1000_MAX} / {COMPREHENSIONS_PER_1000_MAX}"
        yield (
            f"all: density: {found[0]:.1f} / {found[1]:.1f} conditional expressions /"
            f" comprehensions; at most {limit}"
        )
    for room in REACHED:
        found = per_thousand_lines([module for module in modules if module.path.startswith(room)])
        if found[0] > GOAL[0] or found[1] > GOAL[1]:
            yield f"{room}: density: {found[0]:.1f} / {found[1]:.1f}; at most {GOAL[0]} / {GOAL[1]}"
    for module in modules:
        for function in module.functions:
            parts = conditionals(function) + comprehensions(function)
            if parts > DENSE_PARTS_MAX:
                yield module.at(
                    function.lineno,
                    "density",
                    f"{function.name} has {parts} parts; name some of them",
                )
        for node in () if home(module.path, NESTED_STILL) else module.nodes:
            if isinstance(node, ast.IfExp) and any(
                isinstance(n, ast.IfExp) for n in (node.test, node.body, node.orelse)
            ):
                yield module.at(
                    node.lineno, "density", "a conditional expression inside another; write if"
                )


def densest(modules: list[Module], count: int = 20) -> list[str]:
    """Return the densest functions: parts and lines, and where they stand.  Short ones count as if
    they had three lines more.
    """
    found = []
    for module in modules:
        for function in module.functions:
            parts, lines = conditionals(function) + comprehensions(function), body_lines(function)
            found.append(
                (
                    parts / (lines + 3),
                    (
                        f"{parts:>3} in {lines:>2} lines  {module.path}:{function.lineno}"
                        f" {function.name}"
                    ),
                )
            )
    return [line for _, line in sorted(found, reverse=True)[:count]]


if __name__ == "__main__":
    product = load(Path(__file__).resolve().parents[2], "mdt", "indexes")
    some, others = per_thousand_lines(product)
    print(
        f"{some:.1f} conditional expressions, {others:.1f} comprehensions per 1,000 lines; the"
        " densest functions:"
    )
    print(*densest(product), sep="\n")
