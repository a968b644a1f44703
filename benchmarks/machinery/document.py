"""A report as data: sections of paragraphs, tables and figures, rendered as Markdown and HTML."""

import base64
import dataclasses
import html
import re
from collections.abc import Sequence
from pathlib import Path

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 96rem; margin: 2rem auto; padding: 0 1rem;
       color: #1a1a1a; background: #fff; }
h1, h2, h3 { line-height: 1.2; }
p, figcaption { max-width: 60rem; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #ccc; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; font-size: 0.8rem;
        font-variant-numeric: tabular-nums; }
caption { text-align: left; padding: 0.5rem 0; font-weight: 600; }
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
    """A caption, a header and rows of text."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclasses.dataclass(frozen=True)
class Figure:
    """A PNG picture with a file name and words for those who do not see it."""

    name: str
    png: bytes
    caption: str


Block = Paragraph | Table | Figure


@dataclasses.dataclass(frozen=True)
class Section:
    """One experiment in the report."""

    title: str
    blocks: Sequence[Block]


def to_markdown(title: str, sections: Sequence[Section], pictures: Path | None) -> str:
    """Markdown; pictures are written into the folder `pictures`, None leaves them out."""
    parts = [f"# {title}"] if title else []
    for section in sections:
        parts.append(f"## {section.title}")
        parts.extend(_markdown_block(block, pictures) for block in section.blocks)
    return "\n\n".join(part for part in parts if part) + "\n"


def to_html(title: str, sections: Sequence[Section]) -> str:
    """One page with everything in it."""
    links = "".join(f'<a href="#{_anchor(s.title)}">{html.escape(s.title)}</a>' for s in sections)
    body = "".join(
        f'<h2 id="{_anchor(s.title)}">{html.escape(s.title)}</h2>'
        + "".join(_html_block(block) for block in s.blocks)
        for s in sections
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>"
        f"<h1>{html.escape(title)}</h1><nav>{links}</nav>{body}</body></html>\n"
    )


def _markdown_block(block: Block, pictures: Path | None) -> str:
    if isinstance(block, Paragraph):
        return block.text
    if isinstance(block, Figure):
        if pictures is None:
            return ""
        pictures.mkdir(parents=True, exist_ok=True)
        (pictures / f"{block.name}.png").write_bytes(block.png)
        return f"![{block.caption}]({pictures.name}/{block.name}.png)\n\n{block.caption}"
    rows = [block.header, ["---"] * len(block.header), *block.rows]
    lines = ("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
    return f"**{block.caption}**\n\n" + "\n".join(lines)


def _html_block(block: Block) -> str:
    if isinstance(block, Paragraph):
        return f"<p>{_inline(block.text)}</p>"
    if isinstance(block, Figure):
        data = base64.b64encode(block.png).decode()
        caption = html.escape(block.caption)
        image = f'<img src="data:image/png;base64,{data}" alt="{caption}">'
        return f"<figure>{image}<figcaption>{caption}</figcaption></figure>"
    head = "".join(f"<th>{_inline(cell)}</th>" for cell in block.header)
    rows = "".join(
        "<tr>" + "".join(f"<td>{_inline(cell)}</td>" for cell in row) + "</tr>"
        for row in block.rows
    )
    caption = f"<caption>{_inline(block.caption)}</caption>"
    return f'<div class="scroll"><table>{caption}<tr>{head}</tr>{rows}</table></div>'


def _inline(text: str) -> str:
    text = html.escape(text)
    text = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", text)
    return re.sub(r"`(.+?)`", r"<code>\1</code>", text)


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
