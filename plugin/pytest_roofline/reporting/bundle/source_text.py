"""Python files without names: strings and comments are rewritten, code is not."""

import io
import tokenize

from .redacting import Redactor

_TEXT = {"STRING", "COMMENT", "FSTRING_MIDDLE"}


def redacted_source(redactor: Redactor, text: str) -> str | None:
    """A file with every name in its strings and comments replaced; None where its code itself holds one.

    Identifiers stay, or the program would be another; a file whose identifiers name somebody cannot be given away.
    """
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    parts, position = [], 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
            kind = tokenize.tok_name[token.type]
            if kind == "NAME" and redactor.text(token.string) != token.string:
                return None
            if kind not in _TEXT:
                continue
            begin = starts[token.start[0] - 1] + token.start[1]
            end = starts[token.end[0] - 1] + token.end[1]
            parts += [text[position:begin], redactor.text(text[begin:end])]
            position = end
    except (tokenize.TokenError, SyntaxError, IndexError):
        return None
    return "".join(parts) + text[position:]
