"""Whatever the documentation, a docstring or an error text tells a user to import is there."""

import ast
import builtins
import doctest
import functools
import importlib
import json
import pathlib
import re

import jax
import numpy as np
import optax
import pytest

import fisher8_jax
from tests.places import LIBRARY, ROOT, name_of
from tests.test_public_api import PUBLIC

PAGES = [
    ROOT / "README.md",
    ROOT / "benchmarks" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
PAGES = [page for page in PAGES if not {"_build", "gallery"} & set(page.parts)]
# Needs a package that the tests do not install; `make suites` runs it.
ELSEWHERE = ROOT / "examples" / "skpro_regressor.py"
PROGRAMS = sorted(
    {*(ROOT / "docs" / "gallery_source").rglob("*.py"), *(ROOT / "examples").glob("*.py")}
    - {ELSEWHERE}
)

SIMPLE_NAMES = {
    *(name.rpartition(".")[2] for name in PUBLIC),
    *dir(fisher8_jax.Gaussian),  # an error may name a method that a distribution has or lacks
    *dir(builtins),
}
# What a user passes has the name of an argument: `predict`, `network`, `optimizer`.
ARGUMENTS = {
    node.arg
    for path in LIBRARY
    for node in ast.walk(ast.parse(path.read_text()))
    if isinstance(node, ast.arg)
}
MODULES = {
    "fisher8_jax": fisher8_jax,
    "jax": jax,
    "jnp": jax.numpy,
    "lax": jax.lax,
    "np": np,
    "optax": optax,
}


def import_statements(source: str) -> list[str]:
    """Every import of a program, however deep it stands, as a line of its own."""
    nodes = ast.walk(ast.parse(source))
    return [ast.unparse(node) for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


def docstrings(path: pathlib.Path) -> list[str]:
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, owners)]
    return [text for node in nodes if (text := ast.get_docstring(node))]


def examples_of(docstring: str) -> str:
    return "\n".join(example.source for example in doctest.DocTestParser().get_examples(docstring))


def texts_of_errors(path: pathlib.Path) -> list[str]:
    """The texts below every `raise` and of constants in capitals that error texts quote."""
    tree = ast.parse(path.read_text())
    named = [
        n for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]).isupper()
    ]
    parts = [node for node in ast.walk(tree) if isinstance(node, ast.Raise)] + named
    return [_text(node) for part in parts for node in ast.walk(part) if _is_text(node)]


def _is_text(node: ast.AST) -> bool:
    is_string = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return is_string or isinstance(node, ast.JoinedStr)


def _text(node: ast.AST) -> str:
    """A string with `x` in the place of what is formatted into it."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(v) if _is_text(v) else "x" for v in node.values)
    return node.value


def in_backticks(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", text)


@functools.cache
def run_import(statement: str) -> None:
    assert "fisher8_jax._" not in statement, f"{statement} is private"
    assert not re.match(r"from fisher8_jax\S*\._|import fisher8_jax\S*\._", statement), statement
    exec(statement, {})


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_imports_of_pages(page):
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.S):
        for statement in import_statements(block):
            run_import(statement)


NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=name_of)
def test_imports_of_notebooks(notebook):
    cells = json.loads(notebook.read_text())["cells"]
    for cell in cells:
        if cell["cell_type"] == "code":
            for statement in import_statements("".join(cell["source"])):
                run_import(statement)


@pytest.mark.parametrize("program", PROGRAMS, ids=name_of)
def test_imports_of_programs(program):
    for statement in import_statements(program.read_text()):
        run_import(statement)


@pytest.mark.parametrize("path", LIBRARY, ids=name_of)
def test_imports_in_docstrings(path):
    for docstring in docstrings(path):
        for statement in import_statements(examples_of(docstring)):
            run_import(statement)


def test_imports_in_prose_and_error_texts():
    texts = [page.read_text() for page in PAGES]
    texts += [text for path in LIBRARY for text in (*docstrings(path), *texts_of_errors(path))]
    found = {code for text in texts for code in in_backticks(text)}
    statements = {code for code in found if re.match(r"(from [\w.]+ )?import [\w., ]+$", code)}
    assert statements
    for statement in statements:
        run_import(statement)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_dotted_names_in_prose_exist(page):
    """`fisher8_jax.subpackage.name` on a page exists."""
    for code in in_backticks(re.sub(r"```.*?```", "", page.read_text(), flags=re.S)):
        if re.fullmatch(r"fisher8_jax(\.\w+)+", code):
            assert not re.search(r"\._(?!_)", code), f"{code} is private"
            resolve(code)


@pytest.mark.parametrize("path", LIBRARY, ids=name_of)
def test_names_in_error_texts_are_public(path):
    """An error that recommends `name(...)` or `module.name` recommends something that exists."""
    for text in texts_of_errors(path):
        for code in in_backticks(text):
            for name in recommended(code):
                if "." in name:
                    resolve(name)
                else:
                    assert name in SIMPLE_NAMES, f"`{code}` recommends {name}, which is not public"


def recommended(code: str) -> set[str]:
    """Functions that a piece of code calls, classes it names, attributes of known modules."""
    try:
        nodes = list(ast.walk(ast.parse(code.strip(), mode="eval")))
    except SyntaxError:
        return set()
    called = {
        node.func.id
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    classes = {n.id for n in nodes if isinstance(n, ast.Name) and re.match(r"[A-Z]\w*[a-z]", n.id)}
    dotted = {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)}
    known = {name for name in dotted if re.fullmatch(rf"({'|'.join(MODULES)})(\.\w+)+", name)}
    return (called | classes | known) - ARGUMENTS


def resolve(dotted: str) -> object:
    top, *parts = dotted.split(".")
    value = MODULES[top]
    for part in parts:
        if not hasattr(value, part):  # a module that its package does not import by itself
            importlib.import_module(f"{value.__name__}.{part}")
        value = getattr(value, part)
    return value


def test_the_functions_of_the_losses_are_functions():
    from fisher8_jax.losses import natural_gradient, nll, unit_variance

    for loss in (unit_variance, natural_gradient, nll):
        assert callable(loss), loss
        assert loss.__name__ in fisher8_jax.losses.LOSSES
