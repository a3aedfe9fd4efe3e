"""Runs the program rowmill, which the package carries."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any, Callable


class RowmillError(RuntimeError):
    """An error of the program. Its text is the message of the program.

    code is the exit code: 2 wrong use, 3 the job failed, 8 no server answers; see
    ``rowmill --help``.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def find_program() -> str:
    """Returns the path of the program: ROWMILL_BINARY, else the file of the package, else a
    program in PATH."""
    named = os.environ.get("ROWMILL_BINARY")
    if named:
        return named
    beside = [Path(sysconfig.get_path("scripts")), Path(__file__).parents[1] / "bin"]
    for folder in beside:
        if (folder / "rowmill").is_file():
            return str(folder / "rowmill")
    found = shutil.which("rowmill")
    if found is None:
        raise RowmillError("the program rowmill was not found; install a wheel of this platform, or set ROWMILL_BINARY", 1)
    return found


def run(arguments: list[str], show: bool = True) -> str:
    """Runs the program with these arguments and returns its output. It shows the messages of
    the program unless show is false. After KeyboardInterrupt it waits until the program has
    stopped in order."""
    command = [find_program(), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stderr is not None and process.stdout is not None
        messages: list[str] = []
        line = _new_line() if show else (lambda text, ends: None)
        try:
            for text in process.stderr:
                text = text.rstrip("\n")
                progress = _PROGRESS.match(text) is not None
                line(text, not progress)
                if not progress:
                    messages.append(text)
            output = process.stdout.read()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            process.stderr.read()
            process.wait()
            raise
        code = process.wait()
    if code != 0:
        raise RowmillError(_error_of(messages), code)
    return output


# A line of progress, such as "running   45%  22,600/50,000 rows  2.6k rows/s  0:11 left".
_PROGRESS = re.compile(r"(upload|download|submitted|starting|running|cancelling|succeeded|failed|cancelled) +(\d+%|[A-Z])")


def _error_of(messages: list[str]) -> str:
    """Returns the error of the program: the messages from the last that begins with its name."""
    for at in reversed(range(len(messages))):
        if messages[at].startswith("rowmill: "):
            return "\n".join(messages[at:]).removeprefix("rowmill: ")
    return "\n".join(messages[-3:]) or "the program ended without a message"


def _new_line() -> Callable[[str, bool], None]:
    """Returns a function that shows a message, or a line of progress that the next one
    replaces: as a widget in a notebook, else on standard error."""
    try:
        from IPython.core.getipython import get_ipython

        shell: Any = get_ipython()  # type: ignore[no-untyped-call, unused-ignore]
    except ImportError:
        shell = None
    if shell is not None and hasattr(shell, "kernel"):
        return _notebook_line()
    live = sys.stderr.isatty()

    def show(text: str, ends: bool) -> None:
        if live:
            sys.stderr.write(f"\r\x1b[K{text}" + ("\n" if ends else ""))
        elif ends:
            sys.stderr.write(text + "\n")
        sys.stderr.flush()

    return show


def _notebook_line() -> Callable[[str, bool], None]:
    from IPython.display import HTML, display

    handle: Any = None

    def show(text: str, ends: bool) -> None:
        nonlocal handle
        if ends:
            print(text, file=sys.stderr)
            return
        percent = re.search(r"(\d+)%", text)
        bar = f'<progress max="100" value="{percent.group(1)}"></progress> ' if percent else ""
        content = HTML(bar + text.replace("&", "&amp;").replace("<", "&lt;"))  # type: ignore[no-untyped-call, unused-ignore]
        if handle is None:
            handle = display(content, display_id=True)  # type: ignore[no-untyped-call, unused-ignore]
        else:
            handle.update(content)

    return show
