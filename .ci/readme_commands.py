"""Print the n-th marked block of README.md, so that the README and CI cannot drift apart.

A block is marked by an HTML comment on the line before its fence, which readers do not see:

    <!-- bash 1 -->
    ```bash
    ...
    ```

Usage: `python .ci/readme_commands.py 1` prints the first command block, `... 1 python` the first
script.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"
BLOCK = re.compile(
    r"^<!-- (?P<language>\w+) (?P<number>\d+) -->\n```(?P=language)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def marked_block(text: str, number: int, language: str = "bash") -> str:
    """Return the body of block `number` of `language`; numbers are those written in the comments.

    Raises
    ------
    LookupError
        If the block is missing, or marked twice.
    """
    found = [
        match["body"]
        for match in BLOCK.finditer(text)
        if match["language"] == language and int(match["number"]) == number
    ]
    if len(found) != 1:
        raise LookupError(
            f"README.md has {len(found)} blocks marked '<!-- {language} {number} -->'; exactly one "
            "is needed, directly above its fence"
        )
    return found[0]


def main(arguments: list[str]) -> int:
    """Print the block that the command line asks for; return the exit status."""
    if len(arguments) not in (1, 2) or not arguments[0].isdigit():
        print("usage: readme_commands.py NUMBER [LANGUAGE]", file=sys.stderr)
        return 2
    try:
        block = marked_block(README.read_text(encoding="utf-8"), int(arguments[0]), *arguments[1:])
    except LookupError as error:
        print(error, file=sys.stderr)
        return 1
    print(block, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
