"""What is different in the differential suite with native access, where the server does what the proxy does otherwise.

``make test-native`` runs it. Tests are named by file and name, with their parameters or without; their failures are
strict. Modules about what only the proxy's own buckets have are left out.
"""

from __future__ import annotations

from collections.abc import Mapping

_DELETES = "U8: the server refuses deletes whose query is not on the meta field"
_WRONG = "H2-H4: the server's own plan returns other rows; natively nothing inhibits it"
_COLLATION = "Q7: the server ignores the collation of the command on the bounds of buckets"
_LATE = "W50: the server does not find buckets for late measurements, so they have new ones"
_KEPT = "W37: natively an unordered insert stores the current time instead of an empty timestamp"
_COMPUTED = "H12, H13: the server computes fields in front of the unpacking; natively nothing inhibits it"
_ONE_ANSWER = "H14: the server keeps what a join finds for the first row"
_BEHIND_UNIONS = "H15: the server moves stages into the pipeline of a union"
_COUNTED = "W95: 6.0.5 counts documents of an ordered insert that it does not store"

_BEHIND_A_MATCH = (
    "$match,$match0",
    "$match,$match1",
    "$match,$match,$match",
    "$match,$sort,$match",
    "$sort,$match,$match",
    "$set,$match,$match",
    "$match,$unwind,$match",
    "$match,$project,$match",
    "$set,$match",
)
"""Inner pipelines in which a stage moves, by the names of their tests."""
_ONLY_IN_A_JOIN = ("$match,$limit,$match", "$sort,$set,$limit", "$set,$sort,$limit", "$match")

NATIVE: Mapping[str, str] = {
    "test_about_proxy.py::test_the_proxy_is_named_with_version_and_mode": "the mode is native",
    **{f"test_aggregate.py::test_groups_that_native_gets_wrong[group{number}]": _WRONG for number in range(4)},
    **{
        f"test_aggregate.py::test_h4_extremes_are_those_of_a_plain_collection[{kind}]": _WRONG
        for kind in ("documents", "arrays", "documents with nulls", "documents of documents")
    },
    "test_aggregate.py::test_times_far_from_now": _WRONG,
    "test_compressed_buckets.py::test_compressed_buckets_are_changed_and_deleted_from": _DELETES,
    **{
        f"test_computed_from_meta.py::test_h12_the_meta_field_computed_from_itself[{case}]": _COMPUTED
        for case in (
            "$set",
            "$set,$match0",
            "$set,$match,$group",
            "$set,$group",
            "$sort,$set,$match",
            "$unset,$set,$match",
            "$project,$set,$match",
            "$addFields,$addFields,$match",
            "$fill,$match",
        )
    },
    **{
        f"test_computed_from_meta.py::test_h13_a_projection_leaves_out_what_was_computed[{case}]": _COMPUTED
        for case in (
            "$set,$project0",
            "$set,$project1",
            "$set,$project2",
            "$addFields,$project",
            "$match,$set,$project",
            "$set,$project,$group",
        )
    },
    "test_count.py::test_collation_of_the_command": _COLLATION,
    "test_find.py::test_collation_of_the_command": _COLLATION,
    **{
        f"test_delete.py::{name}": _DELETES
        for name in (
            "test_u8_deletes_by_any_predicate",
            "test_u8_single_deletes",
            "test_u8_statements_of_all_kinds_in_one_command",
            "test_u8_collation_let_and_hint",
            "test_u8_without_a_meta_field",
            "test_w33_meta_that_is_missing_null_or_nested_stays_as_it_is",
            "test_c3_odd_names_of_time_and_meta_field",
            "test_u8_times_outside_of_32_bits",
            "test_u8_random_deletes",
            "test_u8_measurements_that_others_append_meanwhile_are_never_lost",
            "test_u8_find_and_remove",
            "test_x2_single_deletes_are_retryable",
            "test_x2_a_retried_find_and_remove_returns_what_it_removed",
            "test_w90_replies_on_a_replica_set",
            "test_a_late_copy_of_an_append_finds_no_room_in_a_bucket_that_lost_rows",
            "test_h10_names_that_occur_twice",
            "test_u8_a_removal_that_matches_nothing_waits_and_tells_the_time",
            "test_u8_more_matches_than_are_searched_for_at_once",
        )
    },
    "test_empty_timestamps.py::test_w37_rows_keep_it_joined_repacked_and_updated": _KEPT,
    **{
        f"test_joins.py::test_h14_each_row_gets_its_own[{stage}-x-{inner}]": _ONE_ANSWER
        for stage in ("the pipeline", "$unionWith", "$lookup")
        for inner in (*_BEHIND_A_MATCH, *(_ONLY_IN_A_JOIN if stage == "$lookup" else ()))
    },
    **{
        f"test_large_commands.py::{name}": _DELETES
        for name in (
            "test_deletes_take_what_they_take_from_a_plain_collection",
            "test_many_statements_do_what_they_do_one_by_one",
            "test_many_updates_of_meta_do_what_they_do_one_by_one",
        )
    },
    **{
        f"test_large_inserts.py::{name}": _COUNTED
        for name in (
            "test_replies_and_rows[700-(0,)-True]",
            "test_replies_and_rows[700-(333, 600)-True]",
            "test_replies_and_rows[10500-(10200,)-True]",
            "test_replies_and_rows[10500-(3, 9999, 10499)-True]",
            "test_retries[(333, 600)-True]",
        )
    },
    "test_latest.py::test_q23_h4_groups_of_a_sort_by_time": _WRONG,
    "test_made_again.py::test_deletes": _DELETES,
    **{
        f"test_operands.py::{name}": _WRONG
        for name in (
            "test_reads_find_what_they_find_in_a_plain_collection",
            "test_values_of_every_type_come_back_from_distinct",
        )
    },
    **{
        f"test_operands.py::{name}": _DELETES
        for name in (
            "test_constants_of_expressions_and_variables_are_what_they_are",
            "test_deletes_take_what_they_take_from_a_plain_collection",
            "test_one_is_deleted_only_if_one_is_in_a_plain_collection",
            "test_a_predicate_that_no_server_takes_is_refused_where_there_is_nothing",
        )
    },
    "test_other_versions.py::test_q16_arrays_among_other_values_are_found_by_their_elements": _DELETES,
    "test_other_versions.py::test_u3_u8_updates_of_meta_and_deletes_work_everywhere": _DELETES,
    "test_other_versions.py::test_w72_dropped_and_made_again_behind_the_proxys_back[no]": (
        "W72: the server makes an ordinary collection of what it does not know"
    ),
    "test_out_of_order.py::test_each_hour_has_one_bucket_where_a_native_collection_has_one_for_each_measurement": _LATE,
    "test_refused_neighbours.py::test_w95_what_a_failed_step_leaves_is_told": (
        "W95: the writes of buckets that fail there are not made"
    ),
    "test_strict_api.py::test_inserts_of_strict_clients_are_taken": "W81: measurements are not counted by the catalog",
    "test_transaction_fields.py::test_x2_a_number_outside_of_a_transaction_is_for_retryable_writes"
    "[{'findAndModify': 'x', 'query': {'v': 1}, 'remove': True}]": _DELETES,
    **{
        f"test_unions.py::test_h15_fields_computed_from_the_meta_field[{case}]": _BEHIND_UNIONS
        for case in (
            "$unionWith0",
            "$unionWith1",
            "$unionWith,$set,$match0",
            "$unionWith,$set,$group",
            "$unionWith,$set,$project",
            "$unionWith,$fill,$match",
            "$unionWith,$project",
        )
    },
    **{
        f"test_unions.py::test_h15_bounds_lose_no_rows[{case}]": _BEHIND_UNIONS
        for case in (
            "$unionWith,$match0",
            "$unionWith,$match1",
            "$unionWith,$match2",
            "$unionWith,$set,$match",
            "$unionWith,$match,$match1",
        )
    },
    "test_update.py::test_u2_objects_inside_operands_are_operands": "U2: the server reads operands as operators",
    "test_validate.py::test_servers_find_nothing_to_complain_of": "W81: the proxy makes no buckets, so it counts none",
}
"""Test → why it must fail with native access."""

ENDS_THE_SERVER: Mapping[str, str] = {
    "test_aggregate.py::test_h11_geo_near_with_the_name_of_the_index_on_id": (
        "H11: it ends the process of the server, which other tests need"
    ),
}
"""Test → why it is not even started with native access."""

LEFT_OUT = frozenset(
    {
        "test_cache_pressure.py",
        "test_empty_names.py",
        "test_growth_by_default.py",
        "test_growth_in_parts.py",
        "test_stats.py",
        "test_write_strategy.py",
    }
)
"""Modules about the proxy's own buckets: how they grow, when they are closed or not made, and how they are counted; and
about commands that a server does not survive (H17)."""


def ends_the_server(test: str) -> str | None:
    """Why ``test``, named as below, is not started with native access; ``None`` when it is."""
    return ENDS_THE_SERVER.get(test) or ENDS_THE_SERVER.get(test.partition("[")[0])


def native_difference(test: str) -> str | None:
    """Why ``test``, ``file.py::name[parameters]``, must fail with native access; ``None`` when it must not."""
    return NATIVE.get(test) or NATIVE.get(test.partition("[")[0])
