"""Check the rules that no linter knows: what the files of this repository may contain.

* no path of somebody's machine and no word of somebody's development environment: what is written
  here must make sense on any machine;
* one idea per file: none over 500 lines; no file over 2 MiB;
* no module named `utils`: a name says what is inside;
* text ends with one newline and has no trailing blanks or conflict markers.

Looks at the files that git tracks and at new ones that it does not ignore. Usage:
`python .ci/check_text.py [ROOT]`. Prints one line per finding; the exit status says whether there
was one.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

MAX_LINES = 500
MAX_BYTES = 2 << 20
# Written so that this file does not contain what it looks for.
MACHINE_PATH = re.compile(
    r"(?<![\w.$~}/])/(?:home|root|Users|work|farm|mnt|scratch|tmp|private)/[\w.$]"
)
ENVIRONMENT_WORD = re.compile(
    r"\b(?:C[E]O|steering[ ]repo|bash[_]jobs|work[ ]?place|shared[/](?:design|conformance|data|"
    r"prototype)|issue #?\d+)\b"
)
CONFLICT = re.compile(r"^(?:<{7}|>{7}) ")
LICENCES = {"LICENSE-APACHE", "LICENSE-MIT"}


def files_of(root: Path) -> list[Path]:
    """Return the files of the work tree that belong, or are about to belong, to the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return sorted(path for name in listed.split("\0") if name and (path := root / name).is_file())


def findings(path: Path, name: str) -> Iterator[str]:
    """Yield one line per broken rule of the file at `path`, called `name` in the messages."""
    content = path.read_bytes()
    if len(content) > MAX_BYTES:
        yield f"{name}: {len(content)} bytes; the limit is {MAX_BYTES}"
    if path.stem in {"util", "utils"} or path.parent.name in {"util", "utils"}:
        yield f"{name}: name the module after what is inside it"
    if b"\0" in content:
        return
    text = content.decode("utf-8")
    lines = text.splitlines()
    if len(lines) > MAX_LINES:
        yield f"{name}: {len(lines)} lines; the limit is {MAX_LINES}"
    if text and (not text.endswith("\n") or text.endswith("\n\n")):
        yield f"{name}:{len(lines)}: must end with exactly one newline"
    for number, line in enumerate(lines, start=1):
        if line != line.rstrip() and path.name not in LICENCES:
            yield f"{name}:{number}: trailing blanks"
        if CONFLICT.match(line):
            yield f"{name}:{number}: conflict marker"
        for rule, meaning in (
            (MACHINE_PATH, "path of one machine"),
            (ENVIRONMENT_WORD, "word of one development environment"),
        ):
            if found := rule.search(line):
                yield f"{name}:{number}: {meaning}: {found[0]!r}"


def main(arguments: list[str]) -> int:
    """Check one work tree; return the exit status."""
    root = Path(arguments[0] if arguments else ".").resolve()
    files = files_of(root)
    broken = [line for path in files for line in findings(path, str(path.relative_to(root)))]
    for line in broken:
        print(line)
    print(f"text rules: {len(files)} files, {len(broken)} findings")
    return 1 if broken or not files else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
