"""A report as data: sections of paragraphs, tables and figures, as Markdown, a page, or printed."""

import base64
import dataclasses
import functools
import html
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import rich.table
from rich import box
from rich.text import Text

from benchmarks.machinery.console import console

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 96rem; margin: 2rem auto; padding: 0 1rem;
       color: #1a1a1a; background: #fff; }
h1, h2, h3 { line-height: 1.2; }
p { max-width: 60rem; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #ccc; }
table { border-collapse: collapse; margin: 1rem 0; font-size: 0.8rem; display: block;
        overflow-x: auto; font-variant-numeric: tabular-nums; }
th, td { padding: 0.2rem 0.6rem; border-bottom: 1px solid #e3e3e3; text-align: left;
         white-space: nowrap; }
th { border-bottom: 2px solid #999; }
img { max-width: 100%; height: auto; }
nav a { margin-right: 1rem; }
"""


@dataclasses.dataclass(frozen=True)
class Paragraph:
    """Text; `**bold**` and `code` are understood."""

    text: str


@dataclasses.dataclass(frozen=True)
class Table:
    """A caption, a header and rows of text, each as long as the header."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def __post_init__(self) -> None:
        # A cell left out would put all that follow under another heading.
        for row in self.rows:
            if len(row) != len(self.header):
                raise ValueError(
                    f"A row of {self.caption!r} has {len(row)} cells for {len(self.header)} "
                    f"columns: {list(row)}."
                )


@dataclasses.dataclass(frozen=True)
class Figure:
    """A PNG picture with a file name and words for those who do not see it.

    It is drawn when it is written: who wants the tables alone does not wait for it.
    """

    name: str
    draw: Callable[[], bytes]
    caption: str

    @functools.cached_property
    def png(self) -> bytes:
        """Drawn once, in the style of all pictures."""
        from benchmarks.machinery.figures import style  # matplotlib is needed here alone

        with style():
            return self.draw()


Block = Paragraph | Table | Figure


@dataclasses.dataclass(frozen=True)
class Section:
    """One experiment in the report."""

    title: str
    blocks: Sequence[Block]


def to_markdown(title: str, sections: Sequence[Section], pictures: Path | None) -> str:
    """Markdown; pictures are written into the folder `pictures`, None leaves them out."""

    def place(figure: Figure) -> str | None:
        if pictures is None:
            return None
        pictures.mkdir(parents=True, exist_ok=True)
        (pictures / f"{figure.name}.png").write_bytes(figure.png)
        return f"{pictures.name}/{figure.name}.png"

    return _markdown(title, sections, place)


def to_html(title: str, sections: Sequence[Section]) -> str:
    """One page with everything in it."""
    from markdown_it import MarkdownIt

    def place(figure: Figure) -> str:
        return f"data:image/png;base64,{base64.b64encode(figure.png).decode()}"

    parser = MarkdownIt("js-default")  # escapes HTML, knows tables
    tokens = parser.parse(_markdown("", sections, place))
    for opening, text in itertools.pairwise(tokens):
        if opening.type == "heading_open":
            opening.attrSet("id", _anchor(text.content))
    body = parser.renderer.render(tokens, parser.options, {})
    links = "".join(f'<a href="#{_anchor(s.title)}">{html.escape(s.title)}</a>' for s in sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>"
        f"<h1>{html.escape(title)}</h1><nav>{links}</nav>{body}</body></html>\n"
    )


def print_section(found: Section | None) -> int:
    """A section on the terminal; the exit code of a command that was asked for it."""
    if found is None:
        console.print("There are no results yet.")
        return 1
    print_blocks(found.blocks)
    return 0


def print_blocks(blocks: Iterable[Block]) -> None:
    """Paragraphs and tables on the terminal; a table that is too wide continues below itself."""
    for block in blocks:
        if isinstance(block, Paragraph):
            console.print(_plain(block.text), markup=False, soft_wrap=False)
        elif isinstance(block, Table):
            for index, columns in enumerate(_parts(block, console.width)):
                title = _plain(block.caption) if index == 0 else None
                console.print(_printed(block, columns, title), soft_wrap=False)


def _markdown(title: str, sections: Sequence[Section], place) -> str:
    parts = [f"# {title}"] if title else []
    for section in sections:
        parts.append(f"## {section.title}")
        parts.extend(_markdown_block(block, place) for block in section.blocks)
    return "\n\n".join(part for part in parts if part) + "\n"


def _markdown_block(block: Block, place) -> str:
    if isinstance(block, Paragraph):
        return block.text
    if isinstance(block, Figure):
        where = place(block)
        return f"![{block.caption}]({where})\n\n{block.caption}" if where else ""
    return f"**{block.caption}**\n\n" + "\n".join(table_lines(block))


def table_lines(table: Table) -> list[str]:
    """Header and rows in Markdown, without the caption."""
    rows = [table.header, ["---"] * len(table.header), *table.rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]


def _parts(table: Table, width: int) -> Iterator[list[int]]:
    """Groups of columns that fit side by side, the first column in every group."""
    lines = [table.header, *table.rows]
    sizes = [3 + max(len(_plain(line[i])) for line in lines) for i in range(len(table.header))]
    group = [0]
    for index in range(1, len(sizes)):
        if len(group) > 1 and sum(sizes[i] for i in group) + sizes[index] > width:
            yield group
            group = [0]
        group.append(index)
    yield group


def _printed(table: Table, columns: list[int], title: str | None) -> rich.table.Table:
    printed = rich.table.Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1), title_style="bold")
    for index in columns:
        printed.add_column(Text(_plain(table.header[index])))
    for row in table.rows:
        printed.add_row(*(Text(_plain(row[i]), "bold" if "**" in row[i] else "") for i in columns))
    return printed


def _plain(text: str) -> str:
    return text.replace("**", "").replace("`", "")


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
