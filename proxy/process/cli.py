"""The program ``tsproxy``. ``proxy.process.commands`` has its commands, ``proxy.process.exit_codes`` its exit codes.

What imports take long is imported only after signals are held back.
"""

from __future__ import annotations

import sys

from proxy.process import early_signals, interpreter


def main() -> None:
    """The console script."""
    if sys.argv[1:2] == ["serve"]:
        early_signals.hold()
        interpreter.begin()
    from proxy.process import standard_streams

    standard_streams.open_closed()
    try:
        from proxy.process.commands import cli

        cli(prog_name="tsproxy")
    except Exception as error:  # all that is known becomes a line and an exit code
        exit_code = _told(error)
        if exit_code is None:
            raise
        sys.exit(exit_code)
    finally:
        standard_streams.drop_unwritten()


def _told(error: Exception) -> int | None:
    """Tell the user what is wrong; returns the exit code. ``None``: nobody expects this error."""
    from catalog.errors import CommandError
    from proxy.observe import logs
    from proxy.process import fatal
    from proxy.process.exit_codes import ProcessFailed, exit_code_of
    from proxy.settings.config import ConfigurationError

    exit_code = exit_code_of(error)
    match error:
        case ConfigurationError() | ProcessFailed():
            fatal.say(error.problems, exit_code)
        case CommandError():
            fatal.say([error.message], exit_code)
        case _ if logs.is_json():
            fatal.say(["internal error"], exit_code, error)
        case _:
            return None
    return exit_code


if __name__ == "__main__":
    main()
