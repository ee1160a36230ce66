"""Compiles the modules that every measurement passes, where mypyc and a C compiler are at hand.

Without them the modules run as they are; so they do in an editable installation, where they may change, and with
``TSPROXY_COMPILE=0`` in the environment.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from setuptools import Extension, setup

# Never the interpreted form of the kernel: compiled modules that call the kernel would be bound to it.
HOT_MODULES = (
    "catalog/bounded.py",
    "catalog/bson/raw.py",
    "catalog/buckets/memory.py",
    "catalog/buckets/open_bucket.py",
    "catalog/buckets/queued_work.py",
    "catalog/buckets/stats.py",
    "catalog/buckets/write_batch.py",
    "catalog/catalog.py",
    "catalog/commit/commit_outcome.py",
    "catalog/commit/commit_tasks.py",
    "catalog/commit/committer.py",
    "catalog/commit/empty_timestamps.py",
    "catalog/commit/number_set.py",
    "catalog/commit/precedence.py",
    "catalog/commit/reclaiming.py",
    "catalog/commit/round.py",
    "catalog/commit/sending.py",
    "catalog/commit/statements.py",
    "catalog/commit/tenure.py",
    "catalog/growth/back_off.py",
    "catalog/growth/backlog.py",
    "catalog/growth/growth.py",
    "catalog/growth/join_obstacles.py",
    "catalog/growth/lookup_cost.py",
    "catalog/growth/scatter.py",
    "catalog/growth/segments.py",
    "catalog/identity.py",
    "catalog/namespaces.py",
    "catalog/parts.py",
    "catalog/placement.py",
    "catalog/ports.py",
    "proxy/backend/bucket_writes.py",
    "proxy/backend/write_numbers.py",
    "proxy/backend/bulk_write.py",
    "proxy/backend/namespace_registry.py",
    "proxy/backend/parts/join_operations.py",
    "proxy/backend/parts/readings.py",
    "proxy/backend/request_places.py",
    "proxy/backend/service.py",
    "proxy/backend/service_connection.py",
    "proxy/clients/connection.py",
    "proxy/clients/dispatch.py",
    "proxy/clients/handlers.py",
    "proxy/clients/measuring.py",
    "proxy/clients/turns.py",
    "proxy/inserts/asked_insert.py",
    "proxy/inserts/catalog_staging.py",
    "proxy/inserts/coalesced_command.py",
    "proxy/inserts/coalesced_sending.py",
    "proxy/inserts/coalescing.py",
    "proxy/inserts/held_insert.py",
    "proxy/inserts/ingest.py",
    "proxy/inserts/insert_command.py",
    "proxy/inserts/insert_reply.py",
    "proxy/inserts/insert_templates.py",
    "proxy/inserts/native_inserts.py",
    "proxy/inserts/native_staging.py",
    "proxy/inserts/paced_replies.py",
    "proxy/inserts/plain_insert.py",
    "proxy/inserts/series_order.py",
    "proxy/inserts/slices.py",
    "proxy/inserts/small_inserts.py",
    "proxy/inserts/sought_insert.py",
    "proxy/inserts/staging.py",
    "proxy/inserts/write_errors.py",
    "proxy/inserts/write_strategy.py",
    "proxy/observe/histograms.py",
    "proxy/observe/request_meter.py",
    "proxy/process/process_ids.py",
    "proxy/readers/active_readers.py",
    "proxy/reads/cursor_names.py",
    "proxy/reads/cursor_stream.py",
    "proxy/reads/inline_reads.py",
    "proxy/reads/inline_reply.py",
    "proxy/reads/plain_read.py",
    "proxy/reads/plan_cache.py",
    "proxy/reads/plan_context.py",
    "proxy/reads/plan_slots.py",
    "proxy/reads/plan_templates.py",
    "proxy/relay/plain_relay.py",
    "proxy/request/authorisation.py",
    "proxy/request/command.py",
    "proxy/request/command_clock.py",
    "proxy/request/exchange.py",
    "proxy/request/fair_queue.py",
    "proxy/request/field_types.py",
    "proxy/request/needs.py",
    "proxy/request/recognition.py",
    "proxy/request/refusal.py",
    "proxy/request/router.py",
    "proxy/request/session.py",
    "proxy/request/session_fields.py",
    "proxy/request/slow_threshold.py",
    "proxy/upstream/back_pressure.py",
    "proxy/upstream/connection.py",
    "proxy/upstream/sink.py",
    "proxy/wire/framing.py",
    "proxy/wire/message.py",
    "proxy/wire/op_msg.py",
    "proxy/wire/reader.py",
    "proxy/wire/request_ids.py",
    "rewrite/commands/aggregate.py",
    "rewrite/commands/count.py",
    "rewrite/commands/distinct.py",
    "rewrite/commands/distinct_on_view.py",
    "rewrite/commands/find.py",
    "rewrite/commands/reading.py",
    "rewrite/stages/constants.py",
    "rewrite/stages/dependencies.py",
    "rewrite/stages/distinct.py",
    "rewrite/stages/draft.py",
    "rewrite/stages/empty_names.py",
    "rewrite/stages/expressions.py",
    "rewrite/stages/group.py",
    "rewrite/stages/hazards.py",
    "rewrite/stages/joins.py",
    "rewrite/stages/lastpoint.py",
    "rewrite/stages/limit.py",
    "rewrite/stages/match.py",
    "rewrite/stages/measurement_bounds.py",
    "rewrite/stages/meta_fields.py",
    "rewrite/stages/meta_paths.py",
    "rewrite/stages/pipeline.py",
    "rewrite/stages/predicate.py",
    "rewrite/stages/rows.py",
    "rewrite/stages/scope.py",
    "rewrite/stages/shaping.py",
    "rewrite/stages/time_bounds.py",
    "rewrite/stages/total.py",
    "rewrite/stages/unions.py",
)


def compiled_modules() -> list[Extension]:
    """The extensions to build; none where they cannot be."""
    if os.environ.get("TSPROXY_COMPILE") == "0" or not {"bdist_wheel", "build_ext"} & set(sys.argv):
        return []
    try:
        from mypyc.build import mypycify
    except ImportError:
        return []
    # Types of dependencies, which need not be installed for a build, make no faster code.
    flags = ["--ignore-missing-imports", f"--cache-dir={os.devnull}"]
    try:
        extensions: list[Extension] = mypycify([*flags, *HOT_MODULES], opt_level="2", multi_file=True)
    except SystemExit as error:
        sys.stderr.write(f"tsproxy is installed without compiled modules: mypyc said {error}\n")
        return []
    return extensions


os.chdir(Path(__file__).parent)
setup(ext_modules=compiled_modules())
