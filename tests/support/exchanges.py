"""Exchanges without a dispatcher."""

from __future__ import annotations

from proxy.request import attempt
from proxy.request.attempt import Next, Outcome, Situation, what_follows
from proxy.request.exchange import Exchange, labelled


class Told:
    """Keeps the outcomes that it is told; the client gets replies and errors, and nothing is tried again."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []

    def ended(self, exchange: Exchange, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        match what_follows(outcome, Situation(has_login=bool(exchange.session.identity))):
            case Next.REPLY:
                assert isinstance(outcome, attempt.Replied | attempt.Deposed | attempt.CursorMissing)
                if outcome.raw is None:
                    exchange.reply(outcome.document)
                else:
                    exchange.relayed(outcome.raw)
            case Next.FINISH:
                exchange.done()
            case Next.REFUSE:
                assert isinstance(outcome, attempt.Refused)
                exchange.refuse(outcome.error)
            case Next.REFUSE_RETRYABLY:
                assert isinstance(outcome, attempt.Refused | attempt.Unreachable)
                exchange.refuse(labelled(outcome.error, exchange.command))
            case Next.CLOSE | Next.REPORT_AND_CLOSE:
                exchange.close()
