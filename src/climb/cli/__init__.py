"""The command line. `verbs` lists the verbs; `run_command` runs one and maps errors to exit codes."""

from __future__ import annotations

import importlib
import io
import logging
import os
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise

from climb._version import __version__
from climb.cli.output import OneLine, print_error
from climb.errors import ClimbError, InputError

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
RESUMABLE = ("run", "learn", "bench", "tune")
"""Verbs whose command continues an interrupted one."""

MODULES = ("run", "bench", "pages", "models", "memory", "lists")
"""In the order of the help. Each module names its verbs in ``VERBS``."""
LESS_MEMORY = (
    "Stop other programs on the device (climb bench: a lower --per-device), or use less memory: --replay-batch 64, "
    "--image-size, --backbone resnet18"
)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 bad input, 130 interrupted."""
    _fill_closed_descriptors()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files or terminals may not be UTF-8
    sys.exit(run_command(sys.argv[1:] if argv is None else argv))


def _fill_closed_descriptors() -> None:
    """Send output to nowhere if it is closed, as by ``>&-``. Otherwise libraries would print into our next file."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def verbs() -> dict[str, Callable[..., None]]:
    """The functions of all verbs by name."""
    modules = [importlib.import_module(f"climb.cli.{name}") for name in MODULES]
    return {name: getattr(module, name) for module in modules for name in module.VERBS}


def run_command(argv: Sequence[str]) -> int:
    """Run one command; its exit code."""
    import tyro

    # A terminal has the live line; a log file gets one line per task.
    level = logging.WARNING if sys.stderr.isatty() else logging.INFO
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine("%(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
    try:
        if list(argv) == ["--version"]:
            print(f"climb {__version__}", flush=True)
            return DONE
        if odd := next((word for word in argv if "\0" in word), None):
            raise InputError(f"{odd!r} has a null character, which no path and no value may have")
        if argv[:1] != ["run"] and int(os.environ.get("WORLD_SIZE", "1")) > 1 and "TORCHELASTIC_RUN_ID" in os.environ:
            raise InputError("torchrun starts several processes; only 'climb run' trains one learner in all of them")
        from climb.cli.options import names_for_live_streams, names_of, tyro_command
        from climb.registry import load_file

        explained = argv[0] if {"-h", "--help"} & set(argv) else None
        for word, file in pairwise(argv if explained else ()):
            if word == "--import":
                load_file(file)  # its names belong to the help
        commands = {}
        for name, verb in verbs().items():
            names = names_for_live_streams if name == "learn" else names_of
            commands[name] = tyro_command(verb, names=names if name == explained else None)
        tyro.extras.subcommand_cli_from_dict(
            commands,
            prog="climb",
            description="Learn image representations from an unlabeled stream. One verb explained: climb VERB --help; "
            "the version: climb --version.",
            args=argv,
            config=(tyro.conf.DisallowNone, tyro.conf.OmitArgPrefixes),
            sort_subcommands=False,
        )
        sys.stdout.flush()  # later, an error would bypass our exit codes
    except InputError as error:
        print_error(error)
        return BAD_INPUT
    except BrokenPipeError:  # `climb methods | head`
        # Python would report an error when it closes the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except SystemExit as ended:  # rich turns a broken pipe into exit code 1
        if not isinstance(ended.__context__, BrokenPipeError) or argv[0] in RESUMABLE:
            raise
        return DONE
    except (ClimbError, OSError) as error:  # a full disk, a folder without permission
        print_error(error)
        return FAILED
    except RuntimeError as error:
        if type(error).__name__ != "OutOfMemoryError":  # torch's; torch may not be imported
            raise
        print_error(f"{'. '.join(str(error).split('. ')[:2])}. {LESS_MEMORY}")
        return FAILED
    except KeyboardInterrupt:
        continues = argv[:1] and argv[0] in RESUMABLE
        print_error(f"interrupted{'; the same command continues' if continues else ''}")
        return INTERRUPTED
    return DONE
