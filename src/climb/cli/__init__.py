"""The command line: one file a verb, each verb one keyword-only function with the same names."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import ClassVar

from climb._version import __version__
from climb.errors import ClimbError, InputError

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
RESUMABLE = ("run", "learn", "bench", "tune")
"""Verbs that go on where they were interrupted; the others begin anew."""

LESS_MEMORY = (
    "Stop what else runs on the device (climb bench: a lower --per-device), or take less: --replay-batch 64, "
    "--image-size, --backbone resnet18"
)


class OneLine(logging.Formatter):
    """Messages as they are, but for control characters: a file's name may hold a line break, or move the cursor.

    >>> OneLine("%(message)s").format(logging.makeLogRecord({"msg": "passed over a\\x1b[2Jb\\nclimb: done"}))
    'passed over a\\\\x1b[2Jb\\\\x0aclimb: done'
    """

    CONTROLS: ClassVar = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code != 9}

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The message on one line."""
        return super().formatMessage(record).translate(self.CONTROLS)


def _tell(error: Exception) -> None:
    """Say what is wrong, without the control characters that a name in it may have; it may take several lines."""
    print("climb: " + "\n".join(line.translate(OneLine.CONTROLS) for line in str(error).split("\n")), file=sys.stderr)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 bad input, 130 interrupted."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file's name need not be UTF-8, nor a terminal
    sys.exit(run_command(sys.argv[1:] if argv is None else argv))


def verbs() -> dict[str, Callable[..., None]]:
    """Every verb by its name, in the order that people are shown them."""
    from climb.cli.bench import bench
    from climb.cli.data import data
    from climb.cli.doctor import doctor
    from climb.cli.embed import embed
    from climb.cli.export import export
    from climb.cli.learn import learn
    from climb.cli.methods import methods
    from climb.cli.probe import probe
    from climb.cli.recipes import recipes
    from climb.cli.report import report
    from climb.cli.run import run
    from climb.cli.search import search
    from climb.cli.serve import serve
    from climb.cli.table import table
    from climb.cli.tune import tune

    return {
        "run": run,
        "bench": bench,
        "tune": tune,
        "learn": learn,
        "report": report,
        "serve": serve,
        "table": table,
        "embed": embed,
        "probe": probe,
        "search": search,
        "export": export,
        "methods": methods,
        "recipes": recipes,
        "data": data,
        "doctor": doctor,
    }


def run_command(argv: Sequence[str]) -> int:
    """Run one command; its exit code."""
    import tyro

    # On a terminal the live line says it all; in a log file a line per task is what people look for.
    level = logging.WARNING if sys.stderr.isatty() else logging.INFO
    said = logging.StreamHandler(sys.stderr)
    said.setFormatter(OneLine("%(message)s"))
    logging.basicConfig(level=level, handlers=[said])
    try:
        if list(argv) == ["--version"]:
            print(f"climb {__version__}", flush=True)
            return DONE
        if argv[:1] != ["run"] and int(os.environ.get("WORLD_SIZE", "1")) > 1 and "TORCHELASTIC_RUN_ID" in os.environ:
            raise InputError(
                "torchrun starts several processes, of which 'climb run' makes one learner; no other verb does"
            )
        known = verbs()
        if {"-h", "--help"} & set(argv):
            from climb.cli.help_text import tell_all, tell_one

            if argv[0] in known:
                tell_one(known[argv[0]])
            else:
                tell_all(known.values())
        tyro.extras.subcommand_cli_from_dict(
            known,
            prog="climb",
            description="Learn image representations from an unlabeled stream. One verb explained: climb VERB --help; "
            "the version: climb --version.",
            args=argv,
            config=(tyro.conf.DisallowNone,),  # an option that is not given is left out, not called None
            sort_subcommands=False,
        )
        sys.stdout.flush()  # what goes wrong with it later, Python tells in its own way and with a code of its own
    except InputError as error:
        _tell(error)
        return BAD_INPUT
    except BrokenPipeError:  # `climb methods | head`: whoever read has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it closes the pipe
        return DONE
    except SystemExit as ended:  # rich catches the same and ends with 1: right where there may be work left to do
        if not isinstance(ended.__context__, BrokenPipeError) or argv[0] in RESUMABLE:
            raise
        return DONE
    except (ClimbError, OSError) as error:  # a full disk, a folder without permission
        _tell(error)
        return FAILED
    except RuntimeError as error:
        if type(error).__name__ != "OutOfMemoryError":  # torch's; not every verb has imported torch
            raise
        print(f"climb: {'. '.join(str(error).split('. ')[:2])}. {LESS_MEMORY}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        goes_on = argv[:1] and argv[0] in RESUMABLE
        print(f"climb: interrupted{'; the same command continues' if goes_on else ''}", file=sys.stderr)
        return INTERRUPTED
    return DONE
