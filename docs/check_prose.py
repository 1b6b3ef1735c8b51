"""Check the prose of documents, docstrings, comments and messages: plain words, no endless sentences, short lines.

In the product also that names, of files too, are of plain words.

`make check` runs this file over the repository; `python docs/check_prose.py FILE…` checks some files. Each finding is
printed as `file:line: what is wrong, and what to write`. Code in Markdown, and names between backquotes, are not prose.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PACKAGES = ("sparktxn/", "scala-free-python-datasource/", "examples/")
PRODUCT = ("sparktxn/", "scala-free-python-datasource/")

COLUMNS_MAX = 120
CELL_SENTENCES_MAX = 2
SENTENCE_WORDS_MAX = 35

ACTOR = "the actor: a writer, a reader, the vacuum, the owner, the caller"
WORDS = {
    r"told|tells?|telling": "returns, reports, raises, says",
    r"for ?ever": "permanently, without end",
    r"mend(?:s|ed|ing)?": "fix",
    r"besides?": "alongside, concurrently, next to, apart from",
    r"at the (?:most|least)": "at most, at least",
    r"what is there": "existing",
    r"news": "new records, new entries",
    r"(?:stands?|stood|standing) for": "replaces, means, contains",
    r"looks? at": "reads, checks",
    r"(?:a|every|each|one|two|of|between) looks?": "a poll, a check",
    r"(?:is|are|was|were|be) through with": "has finished",
    r"(?:goes|go|going|went|gone) on with": "continues",
    r"nobody|somebody|anybody|everybody|whoever|whomever|no one|someone|anyone": ACTOR,
    r"himself|herself|one's": "itself, its, the caller's",
}
BANNED = [(re.compile(rf"\b(?:{word})\b", re.IGNORECASE), plain) for word, plain in WORDS.items()]
BANNED.append((re.compile(r"(?:^|[.;:(] )(Who|who) (?![^.;]*\?)"), ACTOR))
BANNED.append((re.compile(r"(?:^|[.;:(] |\n)(Else|So it does)\b"), "the condition, or Otherwise"))
_COMPARED = (
    "longer|more|less|fewer|other|later|earlier|older|newer|sooner|slower|faster|quicker|better|worse"
    "|larger|smaller|greater|higher|lower|further|need|matter"
)
_IS_NO = rf"(?<![Tt]here )\b(?:is|are|was|were)\s+no\s+(?!(?:{_COMPARED})\b)[\w'-]+"
BANNED.append((re.compile(_IS_NO), "is not a"))
DIALECT = re.compile(
    r"looks?|looked|looking|told|untold|tells|telling|besides?|mends?|mended|mending|goodbye"
    r"|stands?|standing|stood|house|errands?|company"
)
NOT_PROSE = re.compile(r"`[^`]*`|\]\([^)\s]*\)|https?://\S+|<!--.*?-->|<a id=[^>]*>", re.DOTALL)
ITEM = re.compile(r"^\s*(?:[-*+]|\d+\.)\s+|^\s*\w+:\s*$", re.MULTILINE)
SENTENCE_END = re.compile(r"(?<=[.!?])[)\"'*_]*\s+(?=[^a-z])|\n\s*\n|:\s*\n")


class Prose(NamedTuple):
    """Some text of a file that is prose, from `line` on; `kind` is markdown, docstring, comment or message."""

    line: int
    text: str
    kind: str


def prose_of_markdown(text: str) -> Iterator[Prose]:
    """Return the paragraphs, items, headings and rows of tables; leave out fenced code."""
    block: list[str] = []
    start, fenced = 1, False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        is_fence = line.lstrip().startswith("```")
        alone = fenced or is_fence or line.startswith(("|", "#")) or not line.strip()
        if block and (alone or re.match(ITEM, line)):
            yield Prose(start, "\n".join(block), "markdown")
            block = []
        if is_fence:
            fenced = not fenced
        elif not fenced and line.strip():
            if alone:
                yield Prose(number, line, "row" if line.startswith("|") else "heading")
            else:
                start = start if block else number
                block.append(line)


def without_examples(docstring: str) -> str:
    """Return the docstring with empty lines in the place of literal blocks (after ``::``) and of doctests."""
    lines, block, is_doctest = [], -1, False
    for line in docstring.splitlines():
        indent = len(line) - len(line.lstrip())
        if line.strip() and indent <= block:
            block = -1
        is_doctest = bool(line.strip()) and (is_doctest or line.lstrip().startswith(">>>"))
        lines.append("" if block >= 0 or is_doctest else line)
        if block < 0 and line.endswith("::"):
            block = indent
    return "\n".join(lines)


def prose_of_python(text: str, has_messages: bool) -> Iterator[Prose]:
    """Return comments and docstrings, and with `has_messages` all other texts of more than one word."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not re.match(r"#\s*(?:type:|noqa|pragma|!)", token.string):
            yield Prose(token.start[0], token.string.lstrip("# "), "comment")
    nodes = list(ast.walk(ast.parse(text)))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            if id(node) in docstrings:
                yield Prose(node.lineno, without_examples(node.value), "docstring")
            elif has_messages:
                yield Prose(node.lineno, node.value, "message")


def findings_in_definitions(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line, finding) for names in dialect."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                pass
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                pass
            case ast.ExceptHandler(name=name) | ast.alias(asname=name) | ast.keyword(arg=name):
                pass
            case ast.MatchAs(name=name) | ast.MatchStar(name=name) | ast.MatchMapping(rest=name):
                pass
            case _:
                continue
        for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name or ""):
            if DIALECT.fullmatch(word.lower()):
                yield node.lineno, f"{name!r}: a name without {word.lower()!r}"


def findings_in_name(path: str) -> Iterator[tuple[int, str]]:
    """Yield (line, finding) for folders and files of the product whose names have words of the dialect."""
    for word in re.findall(r"[a-z]+", path.partition("/")[2]):
        if DIALECT.fullmatch(word):
            yield 1, f"{path!r}: a name without {word!r}"


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Return each sentence with the number of line breaks before it."""
    at = 0
    for piece in [*SENTENCE_END.finditer(text), None]:
        end = piece.end() if piece else len(text)
        yield text.count("\n", 0, at), text[at:end]
        at = end


def findings_in(prose: Prose) -> Iterator[tuple[int, str]]:
    """Return (line, finding) for each banned word, long sentence and full cell of a piece of prose."""
    text = NOT_PROSE.sub(lambda code: "``" + "\n" * code[0].count("\n"), prose.text)
    for pattern, plain in BANNED:
        for match in pattern.finditer(text):
            yield prose.line + text.count("\n", 0, match.start()), f"{match[0].strip()!r}: write {plain}"
    if prose.kind == "row":
        for cell in re.split(r"(?<!\\)\|", text)[1:-1]:
            count = sum(1 for _, sentence in sentences(cell.strip()) if sentence.strip())
            if count > CELL_SENTENCES_MAX:
                yield prose.line, f"a cell of {count} sentences: at most {CELL_SENTENCES_MAX}"
    parts = re.split(r"(?<!\\)\|", text) if prose.kind == "row" else [text]
    for part in parts:
        for after, sentence in sentences(part):
            for item in ITEM.split(sentence):
                words = sum(1 for word in item.split() if re.search(r"\w", word))
                if words > SENTENCE_WORDS_MAX and prose.kind in ("markdown", "row", "docstring"):
                    yield prose.line + after, f"a sentence of {words} words: at most {SENTENCE_WORDS_MAX}"


def findings(name: str, text: str) -> list[tuple[int, str]]:
    """Return all findings in the text of one file, by line."""
    found: list[tuple[int, str]] = []
    if name.endswith(".md"):
        pieces = prose_of_markdown(text)
        found += [
            (number, f"{len(line)} columns: at most {COLUMNS_MAX}")
            for number, line in enumerate(text.splitlines(), 1)
            if len(line) > COLUMNS_MAX and not line.startswith("|")
        ]
    else:
        pieces = prose_of_python(text, name.startswith(PACKAGES))
        if name.startswith(PRODUCT):
            found += findings_in_definitions(text)
            found += findings_in_name(name)
    for piece in pieces:
        found += findings_in(piece)
    return sorted(found)


def main(arguments: list[str]) -> int:
    """Print the findings in the named files, or in all files; return 1 if there are some."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md", "*.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    checked = listed.stdout.split()
    named = [Path(name).resolve().relative_to(ROOT).as_posix() for name in arguments]
    found = False
    for name in named or checked:
        for line, finding in findings(name, (ROOT / name).read_text()):
            found = True
            print(f"{name}:{line}: {finding}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
