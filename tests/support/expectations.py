"""Where a native collection of another version is not what 6.0.5 is, so that a test of equality must fail there.

Tests are named by file and name, with their parameters or without. The failures are strict: a test that passes after
all is an error, and the entry goes.
"""

from __future__ import annotations

from collections.abc import Mapping

_MIXED = "V2: 5.0 puts values of any type into one bucket, the proxy opens another (W47)"
_REFUSED = "V1: 5.0.4 refuses updates and deletes; test_other_versions.py tests those of the proxy"
_CODES = "V1: 5.0 has other codes for some refusals, and the proxy passes them on"
_LEGACY = "V1: 5.0 still understands legacy opcodes; the proxy refuses them as 6.0 does"
_ONE_SIDED = "Q12: 5.0 does not say whether times out of range are stored, so one bound alone does not bound ids"
_STRICT = "V1: 5.0 refuses strict clients the stage of the view (323), the proxy as well"

BEFORE_6_0: Mapping[str, str] = {
    "test_aggregate.py::test_refusals": _CODES,
    "test_aggregate.py::test_distant_times_of_relayed_inserts_are_found": "H2: 5.0 loses its own rows there",
    "test_buckets.py::test_before_1970_starts_are_earlier_than_the_measurements": "H2: 5.0 loses its own rows there",
    "test_buckets.py::test_collections_without_meta_field": _MIXED,
    **{
        f"test_buckets.py::test_values_of_one_field[{kind}-{kernel}]": _MIXED
        for kind in ("null and numbers", "object, array, scalar", "empty names inside", "types that change below")
        for kernel in ("interpreted", "compiled")
    },
    "test_buckets.py::test_series_of_measurements[odd names-compiled]": _MIXED,
    "test_buckets.py::test_series_of_measurements[odd names-interpreted]": _MIXED,
    "test_count.py::test_compressed_bucket_without_count": "W9: 5.0 does not compress",
    "test_count.py::test_counts": "V1: 5.0 refuses another collation than the collection's (167); the proxy counts",
    "test_count.py::test_refusals": _CODES,
    "test_ddl.py::test_c24_drop_counts_the_indexes_of_buckets": "V1: no indexes on measurements",
    "test_delete.py::test_u5_deletes_by_the_meta_field": _REFUSED,
    **{
        f"test_explain.py::test_indexed_reads_do_not_scan[{case}-IXSCAN]": "V1: no indexes on measurements"
        for case in ("{'v': -1}-{'v': {'$gt': 230}}", "{'v': 1}-{'v': {'$lt': 9}}", "{'v': 1}-{'v': {'$in': [3, 4]}}")
    },
    **{
        f"test_explain.py::test_indexed_reads_do_not_scan[None-{bound}-CLUSTERED_IXSCAN]": _ONE_SIDED
        for bound in ("{'t': {'$gte': DatetimeMS(1700777600000)}}", "{'t': {'$lt': DatetimeMS(1700003600000)}}")
    },
    "test_explain.py::test_latest_of_each_series_by_index": "V2: the last point is a matter of 6.0",
    "test_find.py::test_collation_of_the_collection": "V1: 5.0 refuses another collation (167); the proxy finds",
    "test_find.py::test_hints_in_the_users_schema": "I11: 5.0 knows no hints by key; the proxy does",
    "test_find.py::test_refusals": _CODES,
    "test_indexes.py::test_i11_hints": _REFUSED,
    "test_mongosh.py::test_helpers_say_what_they_say_on_mongod_itself": _REFUSED,
    "test_indexes.py::test_x1_create_indexes_in_a_transaction_and_commit_quorum": _CODES,
    **{
        f"test_update.py::{name}": _REFUSED
        for name in (
            "test_u1_to_u4_statements",
            "test_u1_without_a_meta_field_nothing_can_be_updated",
            "test_ordered_and_unordered_commands",
            "test_u2_objects_inside_operands_are_operands",
            "test_u4_compressed_buckets_count_their_measurements",
            "test_x2_retryable_updates_are_refused",
            "test_u6_updated_buckets_take_only_what_belongs_to_them",
        )
    },
    **{
        f"test_part_store.py::{test}-{segments}]": _REFUSED
        for segments in ("in one segment", "in two segments")
        for write in ("all are deleted", "the meta value is changed")
        for test in (
            f"test_a_join_undoes_no_native_write[mongod-{write}",
            f"test_a_join_undoes_no_native_write[mongod, alone-{write}",
            f"test_a_join_undoes_no_native_write[replica_set-{write}",
            f"test_a_prepared_join_undoes_no_native_write[{write}-mongod",
            f"test_a_prepared_join_undoes_no_native_write[{write}-mongod, alone",
        )
    },
    **{
        f"test_part_store.py::test_who_meets_a_prepared_join_waits_and_finds_all_rows_in_one_document[{case}]": _REFUSED
        for segments in ("in one segment", "in two segments")
        for case in (
            f"a delete-replica_set-{segments}",
            f"a delete in another order-replica_set-{segments}",
            f"a change of meta-replica_set-{segments}",
        )
    },
    **{
        f"test_refused_neighbours.py::test_w66_only_the_writer_of_what_is_refused_fails[{bad}]": "V1: no such indexes"
        for bad in (1, 4)
    },
    **{
        "test_native_access.py::"
        f"test_w66_what_the_server_finds_in_a_bucket_is_told_to_its_writer_only[{server}]": "V1: no such indexes"
        for server in ("mongod", "replica_set")
    },
    "test_latest.py::test_q23_one_bucket_of_each_series_is_unpacked": "V2: $top is a matter of 5.2",
    "test_strict_api.py::test_cursors_of_strict_clients": _STRICT,
    "test_strict_api.py::test_strict_drivers_read_in_transactions": _STRICT,
    "test_compressed_buckets.py::test_a_change_that_compares_equal_is_a_change": "W9: 5.0 has no compressed buckets",
    "test_relay_hostile.py::test_proxy_answers_as_mongod[security token]": "V1: 5.0 knows no such section",
    **{
        f"test_relay_hostile.py::test_proxy_answers_as_mongod[{name}]": _LEGACY
        for name in (
            "OP_UPDATE", "OP_INSERT", "OP_GET_MORE", "OP_DELETE", "OP_KILL_CURSORS",
            "query ping", "query insert", "query collection",
        )
    },
}  # fmt: skip
"""Test → why it must fail on 5.0."""

_EMPTY = "W93: later releases summarise a field without a name in a bucket without meta, the proxy does not"
_PATH = "C3: later releases cannot run any stage but a match on such a time field"

AFTER_6_0_5: Mapping[str, str] = {
    "test_aggregate.py::test_refusals": "C23: $collStats with count works",
    "test_buckets.py::test_before_1970_starts_are_earlier_than_the_measurements": "W32: native rounds down as well",
    "test_buckets.py::test_collections_without_meta_field": _EMPTY,
    "test_buckets.py::test_series_of_measurements[odd names-compiled]": _EMPTY,
    "test_buckets.py::test_series_of_measurements[odd names-interpreted]": _EMPTY,
    "test_ddl.py::test_c23_commands_that_are_not_for_time_series_collections": "C23: validate works",
    "test_delete.py::test_c3_odd_names_of_time_and_meta_field[fields0]": _PATH,
    "test_delete.py::test_c3_odd_names_of_time_and_meta_field[fields1]": _PATH,
    "test_relay_hostile.py::test_proxy_answers_as_mongod[compressed, announced too large]": "as strict as the proxy",
}
"""Test → why it must fail on later releases of 6.0."""

_SIZES = "W46: 7.0 counts the summaries as well, and names of fields once"
_REOPENS = "W50: 7.0 comes back to buckets that it left, the kernel alone does not"
_INDEX = "I1: 7.0 makes an index on meta and time by itself"

_COUNTERS = "W83: 7.0 has more counters"
_THERE = "C6: 7.0 accepts a create of what is there already"
_MECHANISM = "7.0 names the missing mechanism (334)"
_ON_A_SET = "under Wine the server is one of a set, which needs no applyOps"
_IN_PLACE = "7.0 joins no parts on a standalone"

SINCE_7_0: Mapping[str, str] = {
    "test_stats.py::test_c22_w80_collection_statistics": _COUNTERS,
    "test_stats.py::test_c23_the_stage_reports_the_proxys_counters": _COUNTERS,
    "test_out_of_order.py::test_each_hour_has_one_bucket_where_a_native_collection_has_one_for_each_measurement": (
        "W50: 7.0 comes back to buckets that it left"
    ),
    "test_update.py::test_u2_objects_inside_operands_are_operands": "replies of a set have a time of their own",
    "test_update.py::test_x1_no_updates_in_transactions": "a standalone refuses transactions, a set has them",
    "test_relay.py::test_replies_are_relayed_byte_for_byte": "replies of a set have a time of their own",
    "test_relay.py::test_hello_names_what_the_backend_can": "a set is shown as a mongos",
    "test_ruled_collections.py::test_an_ordinary_collection_stays_what_it_is": _THERE,
    "test_errors_counted.py::test_refusals_of_each_way_and_class": _THERE,
    "test_python.py::test_errors_reach_the_sync_client_as_the_servers_own": _THERE,
    "test_tracing.py::test_every_command_has_a_span_with_its_parts[more]": (
        "a cursor of a set may be on any member, so that the proxy looks at each getMore"
    ),
    "test_authentication.py::test_scram_logs_in[old-SCRAM-SHA-256]": _MECHANISM,
    "test_authentication.py::test_scram_logs_in[new-SCRAM-SHA-1]": _MECHANISM,
    "test_authentication.py::test_logout_ends_what_the_login_began": "7.0 has another text for this refusal",
    "test_authentication.py::test_one_login_at_a_time": "7.0 refuses a second login with 18",
    "test_own_steps.py::test_the_least_role_is_enough_for_every_command": "7.0 refuses bulkWrite with 13 here",
    "test_doctor.py::test_the_least_role_is_enough": _ON_A_SET,
    "test_growth.py::test_account_that_may_not_join_grows_buckets_in_place": _ON_A_SET,
    "test_growth.py::test_right_that_is_lost_later_ends_growth_in_parts": _ON_A_SET,
    "test_growth.py::test_account_that_may_join_and_ask_grows_buckets_in_parts_by_default": _IN_PLACE,
    **{name: reason for name, reason in AFTER_6_0_5.items() if not name.startswith("test_relay_hostile.py")},
    **{
        f"test_buckets.py::test_series_of_measurements[{case}-{kernel}]": reason
        for kernel in ("interpreted", "compiled")
        for case, reason in (
            ("backward", _REOPENS),
            ("backward in one command", _REOPENS),
            ("size, row by row", _SIZES),
            ("size, in one command", _SIZES),
            ("size, in commands of 100", _SIZES),
            ("large ones", _SIZES),
        )
    },
    "test_buckets.py::test_rows_per_bucket_and_reasons": _SIZES,
    **{
        f"test_buckets.py::test_time_fields_of_any_name[{name}-{kernel}]": "C3: its index on such a field is refused"
        for name in ("$t", "$")
        for kernel in ("interpreted", "compiled")
    },
    "test_ddl.py::test_c24_drop_counts_the_indexes_of_buckets": _INDEX,
    "test_delete.py::test_a_late_copy_of_an_append_finds_no_room_in_a_bucket_that_lost_rows": (
        "U8: from 7.0 the proxy does not close buckets that lost rows, because deletes of the server skip closed ones"
    ),
    "test_delete.py::test_u8_statements_of_all_kinds_in_one_command": "w: 2 is refused by a standalone alone",
    "test_find.py::test_refusals": "Q3: 7.0 has another code for ntoreturn (40415)",
    "test_indexes.py::test_i7_indexes_made_on_the_buckets": _INDEX,
    "test_ruled_collections.py::test_a_rule_that_the_backend_does_not_support_ends_the_start": "C44: 7.0 supports it",
    "test_types.py::test_values_of_every_type_before_the_login[hello]": (
        "7.0 refuses a maxAwaitTimeMS beyond its range (159); the proxy waits as long as it can, as 6.0"
    ),
}
"""Test → why it must fail from 7.0 on."""

ENDS_WINE: Mapping[str, str] = {
    "test_other_versions.py::test_w72_writers_go_on_while_the_collection_is_made_again": (
        "under Wine, a conflict of two creates ends the server with an access violation"
    ),
    **dict.fromkeys(
        (
            "test_growth_by_default.py::test_buckets_grow_in_parts_and_are_joined",
            "test_growth_by_default.py::test_a_cursor_past_the_proxy_meets_no_join",
        ),
        "under Wine, the server is too slow for the load that makes buckets grow in parts by default",
    ),
    **dict.fromkeys(
        (
            "test_doctor.py::test_a_standalone_needs_nothing",
            "test_pause.py::test_backend_is_restarted_without_an_error[standalone]",
            "test_pause.py::test_resume_needs_the_backend_unless_it_is_forced[standalone]",
        ),
        "it is about a standalone, which cannot be had under Wine",
    ),
    "test_workers.py::test_workers_are_restarted_one_after_the_other_and_nobody_notices": (
        "under Wine, the server ends without a word when many connections come and go"
    ),
    "test_process.py::test_with_a_backend_no_mongod_is_started": "the process of the server is one of Wine's",
    "test_unix_socket.py::test_everything_goes_over_the_socket": "a server for Windows has no such sockets",
}
"""Test → why it is not even started with a server under Wine."""


def not_started(test: str) -> str | None:
    """Why ``test``, named as below, is not started with a server under Wine; ``None`` when it is."""
    return ENDS_WINE.get(test) or ENDS_WINE.get(test.partition("[")[0])


def expected_failure(test: str, version: tuple[int, ...]) -> str | None:
    """Why ``test``, ``file.py::name[parameters]``, must fail on servers of ``version``; ``None`` when it must not."""
    table: Mapping[str, str] = {}
    if version < (6, 0, 0):
        table = BEFORE_6_0
    elif version >= (7, 0, 0):
        table = SINCE_7_0
    elif version > (6, 0, 5):
        table = AFTER_6_0_5
    return table.get(test) or table.get(test.partition("[")[0])
