"""Stages inserts into virtual collections, as the access to them says: in the shared catalog, or natively.

``submit`` is synchronous and starts no task: it stages the documents (``proxy.inserts.staging``) and returns. The reply
is built when the last document is settled. Other inserts (with unknown fields, wrong types, in a
transaction …) are not handled here: they are relayed to the backend, which has the same collection.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from catalog.buckets.write_batch import CombineKey
from catalog.catalog import BucketCatalog
from catalog.commit.committer import Committer
from catalog.commit.restart_dedup import Found
from catalog.commit.statements import NETWORK_TIMEOUT, StatementLog, Transaction
from catalog.commit.tenure import SessionKey
from catalog.errors import BackendUnavailable, CommandError
from catalog.identity import Identity
from catalog.internal_errors import internal_error
from catalog.namespaces import Namespace, VirtualCollection
from proxy.inserts.asked_insert import AskedInsert
from proxy.inserts.catalog_staging import CatalogStaging
from proxy.inserts.held_insert import HeldInsert, HeldInserts, Pending, Recipient, StagedInsert
from proxy.inserts.insert_command import InsertCommand
from proxy.inserts.insert_port import PeerStatements
from proxy.inserts.insert_rates import InsertRates
from proxy.inserts.insert_reply import InsertReply
from proxy.inserts.insert_templates import InsertTemplate
from proxy.inserts.native_inserts import NativeInserts, Tried, count_plain
from proxy.inserts.paced_replies import PacedReplies
from proxy.inserts.plain_insert import PlainInsert
from proxy.inserts.slices import SliceResult, Slices
from proxy.inserts.small_inserts import SmallInserts
from proxy.inserts.sought_insert import SoughtInsert
from proxy.inserts.staging import LARGE_BYTES, Staging
from proxy.inserts.write_strategy import WriteStrategy
from proxy.request.attempt import NotTranslatable, Refused
from proxy.request.exchange import Exchange

STAGING = "staging measurements"


class InsertHandler:
    """Stages inserts of all clients."""

    def __init__(
        self,
        catalog: BucketCatalog,
        committer: Committer,
        statements: StatementLog,
        *,
        max_pending_bytes: int,
        max_pending_measurements: int = 200_000,
        retryable_writes: bool,
        strategy: WriteStrategy | None = None,
        may_insert: Callable[[Namespace], bool] = lambda namespace: True,
        slices: Slices | None = None,
        replies: PacedReplies | None = None,
    ) -> None:
        """Above either limit of unsettled documents, further inserts wait unstaged; see ``HeldInserts``.

        ``retryable_writes``: the backend supports retryable writes, so the proxy does too. ``strategy``: which inserts
        the backend carries out itself; by default none. ``may_insert``: see ``NativeInserts``.
        """
        self.committer = committer
        self.statements = statements
        self.retryable_writes = retryable_writes
        strategy = strategy or WriteStrategy("catalog", time.monotonic)
        self.native = NativeInserts(strategy, statements, committer.restart_dedup, may_insert)
        self.slices = slices or Slices()
        self.replies = replies or PacedReplies(committer.report)
        self.pending = Pending(max_pending_bytes, max_pending_measurements)
        self._held = HeldInserts(self.pending, committer.is_over)
        self._in_catalog = CatalogStaging(catalog, committer, statements, self.slices)
        self.native.relays_distant_times = self._in_catalog.will_hold_distant_times
        self._staging: Staging = self._in_catalog
        self.small: SmallInserts | None = None
        """Set if small inserts may be coalesced although others are staged in the catalog."""
        self.peer_statements: PeerStatements | None = None
        """Set while there are other processes, or were lately."""

    def ask_others(self, peers: PeerStatements | None) -> None:
        """Ask other processes about retryable statements from now on; ``None``: no longer."""
        self.peer_statements = peers

    def limit_rates(self, rates: InsertRates | None) -> None:
        """The rates of users or databases from now on; ``None``: without limits."""
        self.native.rates = rates

    def use(self, coalesced: Staging | None, small: SmallInserts | None = None) -> None:
        """Stage natively with ``coalesced`` from now on; ``None``: in the catalog, except what ``small`` takes."""
        self._staging = coalesced or self._in_catalog
        self.small = small
        self.native.coalesce(is_on=coalesced is not None)

    def limit(self, max_pending_bytes: int, max_pending_measurements: int) -> None:
        """Change the limits of unsettled documents, and stage waiting inserts for which there is room now."""
        self._held.limit(max_pending_bytes, max_pending_measurements)
        self._release_if_held()

    def documents_to_relay(
        self,
        exchange: Exchange,
        template: InsertTemplate,
        pieces: Sequence[bytes],
        start: int,
        size_bytes: int,
        session: bytes,
        txn_number: int | None,
    ) -> int:
        if size_bytes < self.native.fewest_bytes:
            return 0
        if self._concerned((session, exchange.session.identity), txn_number) is not None:
            return 0
        ordered = template.insert.ordered
        return self.native.takes(
            exchange, template.collection, size_bytes, pieces, start, session, txn_number, ordered=ordered
        )

    def relay_begins(self, exchange: Exchange, template: InsertTemplate, count: int, size_bytes: int) -> None:
        self.native.begin(exchange, template.collection, count, size_bytes)

    def relay_unseen(self, collection: VirtualCollection, documents: Sequence[bytes]) -> None:
        if not count_plain(documents, 0, collection):
            self._in_catalog.will_hold_distant_times(collection)

    def submit(
        self,
        exchange: Exchange,
        template: InsertTemplate,
        documents: Sequence[bytes],
        session: bytes,
        txn_number: int | None,
    ) -> None:
        client = (session, exchange.session.identity)
        if txn_number is not None and exchange.session.open_transactions.numbers:
            number = exchange.session.open_transactions.numbers.get(client)
            if number is not None:
                AskedInsert(self, exchange, template, documents, session, txn_number).meet(number)
                return
        # While too much is pending, it waits for its turn first, and others are asked then.
        peers = None if self.pending.is_full else self._concerned(client, txn_number)
        if peers is None or txn_number is None:
            self.submit_unasked(exchange, template, documents, session, txn_number)
        else:
            asked = AskedInsert(self, exchange, template, documents, session, txn_number)
            peers.ask(client, txn_number, asked.go_on, exchange.session.answered_seconds)

    def submit_unasked(
        self,
        exchange: Exchange,
        template: InsertTemplate,
        documents: Sequence[bytes],
        session: bytes,
        txn_number: int | None,
        *,
        is_asked: bool = False,
    ) -> None:
        """As ``submit``. ``is_asked``: others have just told what they know; if not, they are asked in its turn."""
        rates = self.native.rates
        if rates is not None and rates.holds(exchange, template, documents, session, txn_number, self._submit):
            return
        self._submit(exchange, template, documents, session, txn_number, is_asked=is_asked)

    def _concerned(self, client: SessionKey, txn_number: int | None) -> PeerStatements | None:
        """The other processes, if they must be asked about this number first."""
        peers = self.peer_statements
        if peers is None or txn_number is None or not peers.concerns(client, txn_number):
            return None
        return peers

    def _submit(
        self,
        exchange: Exchange,
        template: InsertTemplate,
        documents: Sequence[bytes],
        session: bytes,
        txn_number: int | None,
        *,
        is_asked: bool = False,
    ) -> None:
        if len(documents) == 1:
            is_staged = self._submit_one(exchange, template, documents[0], session, txn_number, is_asked=is_asked)
            if is_staged:
                return
        insert, client = template.command(documents, session, txn_number), exchange.session
        if self.native.coalesces:
            alone = insert.ordered and len(documents) > 1
            tried = self.native.tried((session, client.identity), txn_number, template.collection)
            if tried is Tried.PERHAPS and (alone or self.native.is_left_to_the_backend(insert.size_bytes)):
                self._seek(exchange, template, insert)
                return
            if alone and tried is not Tried.HERE:
                # It was kept waiting only by a limit of its client.
                self._relay(exchange, template, insert)
                return
        elif txn_number is not None:
            latest = self.statements.latest((session, client.identity))
            if latest is not None and latest.number == txn_number and latest.is_native:
                # A part of an insert that the backend has recorded; alone, it is too small to be relayed.
                self.relay_unseen(template.collection, documents)
                self._relay(exchange, template, insert)
                return
        self._take(exchange, template, insert, is_asked=is_asked)

    def _relay(self, exchange: Exchange, template: InsertTemplate, insert: InsertCommand) -> None:
        count, session = len(insert.documents), insert.session
        self.native.relayed(exchange.session.identity, count, session, insert.txn_number)
        exchange.end(NotTranslatable(template.collection))

    def _seek(self, exchange: Exchange, template: InsertTemplate, insert: InsertCommand) -> None:
        """Relay an insert that no process has executed in any other way; it counts as pending until that is known."""
        count, pending = len(insert.documents), self.pending
        assert insert.txn_number is not None

        def ended(answer: Found | CommandError) -> None:
            pending.take(-insert.size_bytes, -count)
            if isinstance(answer, CommandError):
                exchange.end(Refused(answer))
            elif transaction.is_native and not answer.written:
                self._relay(exchange, template, insert)
            else:
                self._take(exchange, template, insert)

        transaction = self.statements.transaction((insert.session, exchange.session.identity), insert.txn_number)
        pending.take(insert.size_bytes, count)
        sought = SoughtInsert(insert, template.collection, transaction, self._staging.restart_dedup, ended)
        self.slices.start(sought.steps(), self._staging.kick)

    def _take(
        self, exchange: Exchange, template: InsertTemplate, insert: InsertCommand, *, is_asked: bool = False
    ) -> None:
        client = exchange.session
        self.native.measure(exchange, template.collection, insert.size_bytes)
        recipient = Recipient(partial(self.replies.reply, exchange), client, exchange.queued, exchange)
        self.take(insert, template.collection, client.identity, recipient, is_asked=is_asked)

    def _submit_one(
        self,
        exchange: Exchange,
        template: InsertTemplate,
        document: bytes,
        session: bytes,
        txn_number: int | None,
        *,
        is_asked: bool,
    ) -> bool:
        """As ``submit``, for one document without an ``InsertCommand``; false, and no effect, if it needs one."""
        if self._held or self.pending.is_full or len(document) > LARGE_BYTES:
            return False
        if template.numbers_statements or not template.insert.expects_reply:
            return False
        identity = exchange.session.identity
        transaction: Transaction | None = None
        if txn_number is not None:
            client = (session, identity)
            if not is_asked and self._concerned(client, txn_number) is not None:
                return False
            try:
                transaction = self.statements.transaction(client, txn_number)
            except CommandError:
                return False
            if transaction.is_native or self._staging.may_be_written(transaction, template.collection):
                return False
        pending = self.pending
        pending.size_bytes += len(document)
        pending.measurements += 1
        writer = PlainInsert(self, exchange, template, len(document))
        staging = self._staging
        if self.small is not None and self.small.takes(template.collection, document):
            staging = self.small.staging
        try:
            staging.stage_one(template.collection, document, transaction, template.key(identity), writer)
        except CommandError as error:
            writer.settle((0,), error, None)
        except Exception as error:  # noqa: BLE001 - reported
            told = internal_error(STAGING, error)
            self.committer.report(error)
            writer.settle((0,), told, None)
        staging.kick()
        return True

    def uncommitted(self) -> tuple[int, int]:
        """Measurements that are staged and not settled, also in the reserve, and the bytes of their documents."""
        pending, reserve = self.pending, self._held.reserve
        return pending.measurements + reserve.measurements, pending.size_bytes + reserve.size_bytes

    def settled_one(self, size_bytes: int) -> None:
        """A single document of this size is settled; called by its writer."""
        pending = self.pending
        pending.size_bytes -= size_bytes
        pending.measurements -= 1
        if self._held:
            self._release()

    def take(
        self,
        insert: InsertCommand,
        collection: VirtualCollection,
        identity: Identity,
        reply: Recipient,
        *,
        is_asked: bool = False,
    ) -> None:
        """Stage an insert now or, while the limits are exceeded, when its turn comes; ``reply`` is called once.

        ``is_asked``: see ``submit_unasked``.
        """
        if self._held or self.pending.is_full:
            held = HeldInsert(insert, collection, identity, reply, self.committer.deadline_seconds())
            self._held.add(held, self._stage_held)
        else:
            self._stage(insert, collection, identity, reply, self.pending, is_asked=is_asked)

    def _stage(
        self,
        insert: InsertCommand,
        collection: VirtualCollection,
        identity: Identity,
        reply: Recipient,
        pending: Pending,
        *,
        is_asked: bool = False,
    ) -> None:
        staged = StagedInsert(pending, insert.size_bytes, len(insert.documents), reply, self._release_if_held)
        insert_reply = InsertReply(insert, staged.settled, staged.stored, reply)
        key = CombineKey(insert.write_concern, identity)
        staging, number = self._staging.stage(insert, collection, key, insert_reply), insert.txn_number
        if number is None:
            self.slices.start(self._stage_all(staging, insert_reply), self._staging.kick)
            return
        client = (insert.session, identity)
        peers = None if is_asked else self._concerned(client, number)
        if peers is not None:
            peers.ask(client, number, partial(self._asked, client, number, staging, insert_reply))
        else:
            self._stage_statements(client, number, staging, insert_reply)

    def _asked(
        self,
        client: SessionKey,
        number: int,
        staging: Iterator[SliceResult],
        insert_reply: InsertReply,
        error: CommandError | None,
    ) -> None:
        """Other processes were asked about a command that had to wait for its turn."""
        if error is None:
            latest = self.statements.latest(client)
            if latest is None or latest.number != number or not latest.is_native:
                self._stage_statements(client, number, staging, insert_reply)
                return
            # Only the backend can tell; it gets the command when the driver sends it again.
            error = BackendUnavailable("the statement was sent through another proxy", code=NETWORK_TIMEOUT)
        insert_reply.fail(error)
        insert_reply.staged()

    def _stage_statements(
        self, client: SessionKey, number: int, staging: Iterator[SliceResult], insert_reply: InsertReply
    ) -> None:
        transaction: Transaction | None = None
        try:
            transaction = self.statements.transaction(client, number)
            transaction.commands += 1
        except CommandError:
            pass  # ``staging`` raises it again
        self.slices.start(self._stage_all(staging, insert_reply, transaction), self._staging.kick)

    def _stage_all(
        self, staging: Iterator[SliceResult], insert_reply: InsertReply, transaction: Transaction | None = None
    ) -> Iterator[SliceResult]:
        try:
            yield from staging
        except CommandError as error:
            insert_reply.fail(error)
        except Exception as error:  # noqa: BLE001 - reported; what is staged already is settled all the same
            told = internal_error(STAGING, error)
            self.committer.report(error)
            insert_reply.fail(told)
        if transaction is not None:
            transaction.commands -= 1
        self._staging.kick()
        insert_reply.staged()

    def _release_if_held(self) -> None:
        if self._held:
            self._release()

    def _release(self) -> None:
        self._held.release(self._stage_held)

    def _stage_held(self, held: HeldInsert, pending: Pending) -> None:
        held.reply.waited(held.held_at_seconds)
        self._stage(held.insert, held.collection, held.identity, held.reply, pending)
