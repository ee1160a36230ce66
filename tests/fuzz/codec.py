"""Coverage-guided fuzzing of everything that reads a client's bytes before a backend is asked.

``python -m tests.fuzz.codec CORPUS [libFuzzer options]`` with the extra ``fuzz``. Whatever the bytes are, there is a
command, or an error for the client, or the end of the connection; never another exception, and never a document
that the bytes do not hold.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(
    include=["proxy.wire", "proxy.request.command", "proxy.request.session_fields", "proxy.inserts.insert_command"]
):
    from catalog.errors import CommandError
    from catalog.kernel import parse_measurement
    from proxy.inserts.insert_command import parse_insert
    from proxy.request.command import Command, parse_command, parse_legacy_command
    from proxy.request.login import speculates_with_certificate
    from proxy.request.session_fields import Undecodable, take_apart
    from proxy.wire import op_compressed, op_query
    from proxy.wire.errors import ProtocolError
    from proxy.wire.limits import MAX_MESSAGE_SIZE_BYTES
    from proxy.wire.message import Message, Opcode
    from proxy.wire.reader import MessageReader

from tests.fuzz.seeds import seeds


def parsed(message: Message) -> Command | None:
    """As the dispatcher does it."""
    if message.opcode == Opcode.COMPRESSED:
        message = op_compressed.unwrap(message, MAX_MESSAGE_SIZE_BYTES)
    if message.opcode == Opcode.MSG:
        return parse_command(message)
    if message.opcode == Opcode.QUERY:
        query = op_query.parse(message)
        if query.database is not None:
            return parse_legacy_command(message, query.database, query.command)
    return None


def judge(command: Command) -> None:
    """What the rest of the proxy reads of a command."""
    whole = command.message.raw
    for _, documents in command.sequences:
        assert all(document in whole for document in documents)
    assert command.body in whole
    speculates_with_certificate(command)
    insert = parse_insert(command, retryable_writes=True)
    for document in insert.documents if insert is not None else ():
        assert document in whole
        parse_measurement(document, b"t", b"m")
    take_apart(command.body, command.sequences)


def one_input(data: bytes) -> None:
    """Feed the bytes in two pieces and look at every message."""
    reader = MessageReader()
    try:
        for piece in (data[: len(data) // 2], data[len(data) // 2 :]):
            reader.feed(piece)
            while (message := reader.next()) is not None:
                command = parsed(message)
                if command is not None:
                    judge(command)
    except (ProtocolError, CommandError, Undecodable):
        return


def main() -> None:
    """Put the valid messages into the corpus, then let libFuzzer go."""
    corpus = Path(sys.argv[1])
    corpus.mkdir(parents=True, exist_ok=True)
    for number, raw in enumerate(seeds()):
        (corpus / f"seed{number}").write_bytes(raw)
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
