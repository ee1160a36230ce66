"""So many starts in a turn, and then in the order of asking."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from proxy.clients.turns import IN_ADVANCE_SECONDS, PROMPT_STARTS, START_BYTES, TURN_SECONDS, TurnLimits, Turns


class Connection:
    def __init__(self, turns: Turns, name: str, started: list[str], size_bytes: int = 100) -> None:
        self.size_bytes = size_bytes
        self.turns = turns
        self.name = name
        self.started = started
        self.since_seconds = -1.0

    def ask(self) -> None:
        is_heavy = self.name.isdigit()
        if self.turns.take(self, self.size_bytes, is_prompt=is_heavy or self.name.isupper(), is_heavy=is_heavy):
            self.started.append(self.name)

    def go_on(self, since_seconds: float) -> None:
        self.since_seconds = since_seconds
        self.started.append(self.name)


class Loop:
    def __init__(self, limit: int = 2, uncounted: int = 0) -> None:
        self.calls: list[Callable[[], None]] = []
        self.started: list[str] = []
        self.now_seconds = 0.0
        """Connections with capital letters as names have prompt commands; those with digits are heavy, too."""
        self.turns = Turns(self.calls.append, TurnLimits(limit, uncounted), lambda: self.now_seconds)

    def ask(self, names: str, size_bytes: int = 100) -> None:
        for name in names:
            Connection(self.turns, name, self.started, size_bytes).ask()

    def next_turn(self) -> str:
        calls, self.calls[:] = self.calls[:], []
        self.started.clear()
        for call in calls:
            call()
        return "".join(self.started)


def test_those_beyond_the_limit_come_next_turn_in_order() -> None:
    loop = Loop()
    loop.ask("abcde")
    assert loop.started == ["a", "b"]
    assert [loop.next_turn() for _ in range(3)] == ["cd", "e", ""]


def test_nobody_overtakes_those_who_wait() -> None:
    loop = Loop()
    loop.ask("abcde")
    assert loop.next_turn() == "cd"
    loop.ask("fg")
    assert [loop.next_turn() for _ in range(3)] == ["ef", "g", ""]


def test_a_turn_with_room_starts_at_once() -> None:
    loop = Loop()
    for _ in range(3):
        loop.ask("a")
        assert loop.started[-1] == "a"
        loop.next_turn()
    loop.ask("ab")
    assert loop.started == ["a", "b"]


def test_nothing_is_called_while_nobody_asks() -> None:
    loop = Loop()
    loop.ask("abc")
    for _ in range(4):
        loop.next_turn()
    assert loop.calls == []


def test_large_commands_count_as_several() -> None:
    """Two batches in one turn would leave the backend without work while both are staged."""
    loop = Loop()
    loop.ask("abc", size_bytes=START_BYTES)
    assert loop.started == ["a"]
    loop.ask("de")
    assert [loop.next_turn() for _ in range(4)] == ["b", "c", "de", ""]


def test_nothing_more_is_started_in_a_turn_that_took_long() -> None:
    """However few commands that were: the time that they took is what others wait for."""
    loop = Loop()
    loop.ask("a")
    loop.now_seconds += TURN_SECONDS
    loop.ask("bc")
    assert loop.started == ["a"]
    assert loop.next_turn() == "bc"


def test_commands_sent_in_advance_wait_behind_first_ones() -> None:
    """However many connections have more to start, who sends one command at a time does not wait for them."""
    loop = Loop()
    loop.ask("abc")
    for name in "xyz":
        loop.turns.wait(Connection(loop.turns, name, loop.started))
    loop.ask("d")
    assert [loop.next_turn() for _ in range(3)] == ["cdx", "yz", ""]


def test_one_with_commands_sent_in_advance_is_served_in_each_turn() -> None:
    loop = Loop()
    loop.ask("abcdefgh")
    for name in "xyz":
        loop.turns.wait(Connection(loop.turns, name, loop.started))
    assert [loop.next_turn() for _ in range(4)] == ["cdx", "efy", "ghz", ""]


def test_those_that_send_in_advance_have_less_of_a_turn_than_others() -> None:
    """Who floods the proxy gets what is left, in many short turns if nobody else has anything to do."""

    class Slow(Connection):
        def go_on(self, since_seconds: float) -> None:
            super().go_on(since_seconds)
            loop.now_seconds += IN_ADVANCE_SECONDS / 2

    loop = Loop(limit=10)
    for name in "vwxyz":
        loop.turns.wait(Slow(loop.turns, name, loop.started))
    assert [loop.next_turn() for _ in range(4)] == ["vw", "xy", "z", ""]


def test_further_starts_of_one_leave_less_for_others() -> None:
    loop = Loop()
    loop.ask("a")
    loop.turns.started(1)
    loop.ask("b")
    assert loop.started == ["a"]
    assert loop.next_turn() == "b"


def test_a_wait_counts_from_the_turn_in_which_it_began() -> None:
    loop = Loop()
    loop.now_seconds = 5.0
    loop.ask("ab")
    late = Connection(loop.turns, "late", loop.started)
    loop.now_seconds = 5.001
    late.ask()
    loop.now_seconds = 7.0
    assert loop.next_turn() == "late"
    assert abs(late.since_seconds - 5.0) < 1e-9
    waits = Connection(loop.turns, "waits", loop.started)
    loop.turns.wait(waits)
    loop.now_seconds = 9.0
    assert loop.next_turn() == "waits"
    assert abs(waits.since_seconds - 7.0) < 1e-9


def test_a_few_prompt_commands_start_beyond_the_limit() -> None:
    loop = Loop()
    loop.ask("abcdXY")
    assert loop.started == ["a", "b", "X", "Y"]
    assert loop.next_turn() == "cd"
    loop.ask("ABCDEFGHIJ")
    assert "".join(loop.started) == "cdABCDEFGH"
    assert loop.next_turn() == "IJ"


def test_a_large_prompt_command_waits_for_its_half_of_a_turn() -> None:
    loop = Loop()
    loop.ask("abc")
    loop.ask("X", size_bytes=START_BYTES * PROMPT_STARTS)
    assert loop.started == ["a", "b"]
    assert [loop.next_turn() for _ in range(2)] == ["Xc", ""]


def test_prompt_commands_that_wait_come_first_with_half_of_a_turn() -> None:
    loop = Loop(limit=4)
    loop.ask("abcdefghij")
    loop.ask("ABCDEFGHIJKLM")
    loop.started.clear()
    assert [loop.next_turn() for _ in range(4)] == ["IJef", "KLgh", "Mij", ""]


def test_prompt_commands_have_the_whole_turn_if_no_others_wait() -> None:
    loop = Loop(limit=4)
    loop.ask("abcdABCDEFGHIJKL")
    assert loop.next_turn() == "IJKL"


def test_prompt_commands_have_half_of_the_time_if_others_wait() -> None:
    loop = Loop(limit=100)

    class Slow(Connection):
        def go_on(self, since_seconds: float) -> None:
            super().go_on(since_seconds)
            loop.now_seconds += TURN_SECONDS / 4

    loop.ask("a")
    loop.now_seconds += TURN_SECONDS
    loop.ask("ABCDEFGH")
    loop.now_seconds += TURN_SECONDS
    for name in "bcXYZ":
        Slow(loop.turns, name, loop.started).ask()
    loop.started.clear()
    assert [loop.next_turn() for _ in range(3)] == ["XYbc", "Z", ""]


def test_prompt_commands_start_beyond_the_time_of_a_turn_for_half_a_turn() -> None:
    loop = Loop()
    loop.ask("a")
    loop.now_seconds += TURN_SECONDS
    loop.ask("X")
    loop.now_seconds += TURN_SECONDS / 2
    loop.ask("Y")
    assert loop.started == ["a", "X"]


@pytest.mark.parametrize(
    ("seconds", "size_bytes", "connections"),
    [(1.1 * TURN_SECONDS, 1_000, 12), (TURN_SECONDS / 10, 65 * START_BYTES, 2)],
)
def test_others_have_half_of_a_turn_whatever_prompt_commands_take(
    seconds: float, size_bytes: int, connections: int
) -> None:
    """Each of them may take more than a turn has, in time or in size, and another one always waits."""
    loop = Loop(limit=64)
    again: list[Connection] = []

    class Flood(Connection):
        def go_on(self, since_seconds: float) -> None:
            super().go_on(since_seconds)
            loop.now_seconds += seconds
            again.append(self)

        def ask(self) -> None:
            if self.turns.take(self, self.size_bytes, is_prompt=True):
                self.go_on(0.0)

    for _ in range(connections):
        Flood(loop.turns, "F", loop.started, size_bytes).ask()
    loop.ask("abcd")
    for _ in range(2):
        for each in [again.pop() for _ in range(len(again))]:
            each.ask()
        loop.next_turn()
        if "a" in loop.started:
            break
    assert loop.started[-4:] == list("abcd")


def test_heavy_connections_wait_behind_all_others() -> None:
    loop = Loop(limit=4)
    loop.ask("abcd123eX")
    assert "".join(loop.started) == "abcdX"
    assert [loop.next_turn() for _ in range(2)] == ["e123", ""]


def test_one_heavy_connection_is_served_in_each_turn() -> None:
    loop = Loop(limit=2)
    loop.ask("abcdefgh123")
    assert [loop.next_turn() for _ in range(4)] == ["cd1", "ef2", "gh3", ""]


def test_heavy_connections_do_not_overtake_each_other() -> None:
    loop = Loop(limit=2)
    loop.ask("ab12")
    assert loop.next_turn() == "12"
    loop.ask("345")
    loop.ask("c")
    assert loop.next_turn() == "c3"
    loop.ask("6")
    assert [loop.next_turn() for _ in range(3)] == ["45", "6", ""]


def test_a_few_commands_start_before_a_turn_begins() -> None:
    loop = Loop(uncounted=2)
    loop.ask("ab")
    assert loop.calls == []
    loop.ask("cdef")
    assert loop.started == list("abcd")
    assert [loop.next_turn() for _ in range(2)] == ["ef", ""]
    loop.ask("gh")
    assert loop.started == list("gh")
    assert loop.calls == []


@pytest.mark.parametrize(("name", "size_bytes"), [("1", 100), ("a", START_BYTES)])
def test_dear_commands_count_at_once(name: str, size_bytes: int) -> None:
    loop = Loop(uncounted=2)
    loop.ask(name, size_bytes)
    assert len(loop.calls) == 1


def test_a_turn_begins_after_a_command_that_held_the_loop() -> None:
    loop = Loop(uncounted=2)
    loop.ask("a")
    loop.turns.held()
    loop.ask("b")
    assert len(loop.calls) == 1
    assert loop.next_turn() == ""
    loop.ask("c")
    assert loop.calls == []


def test_those_who_wait_are_not_overtaken_by_uncounted_ones() -> None:
    loop = Loop(uncounted=2)
    loop.ask("abcdef")
    loop.started.clear()
    calls, loop.calls[:] = loop.calls[:], []
    calls[0]()
    loop.ask("g")
    assert loop.started == ["e", "f"]
    assert loop.next_turn() == "g"
