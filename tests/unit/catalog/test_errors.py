from __future__ import annotations

from catalog.errors import BackendUnavailable, CommandError, code_name


def test_a_reply_has_the_servers_fields_in_its_order() -> None:
    error = CommandError(72, "no", labels=("a",), details={"x": 1})
    assert list(error.reply().items()) == [
        ("ok", 0.0), ("errmsg", "no"), ("code", 72), ("codeName", "InvalidOptions"), ("x", 1), ("errorLabels", ["a"]),
    ]  # fmt: skip
    assert "errorLabels" not in CommandError(72, "no").reply()


def test_w90_a_write_error_has_the_servers_fields_in_its_order() -> None:
    error = CommandError(121, "Document failed validation", details={"errInfo": {}})
    assert list(error.write_error(3).items()) == [
        ("index", 3), ("code", 121), ("errmsg", "Document failed validation"), ("errInfo", {}),
    ]  # fmt: skip


def test_codes_without_a_name_are_locations() -> None:
    assert (code_name(13), code_name(40433)) == ("Unauthorized", "Location40433")
    assert str(CommandError(40433, "x")) == "Location40433 (40433): x"


def test_drivers_retry_when_the_backend_is_gone() -> None:
    gone = BackendUnavailable("gone")
    assert (gone.code, gone.labels, gone.fails_command) == (6, ("RetryableWriteError",), True)
    assert not CommandError(6, "x").fails_command
