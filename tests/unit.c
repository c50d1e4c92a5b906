/* unit.c - the core of rlock.h on a virtual clock and a scripted store
 *
 * Nothing here waits for a real clock or a socket. The tests stand in the unit_*.h, by subject;
 * their list stands here. The two tables of the header, STATE x CALL and FAULT x OPERATION, are
 * written out again in unit_tables.h, one test for each cell.
 */

#define RLOCK_IMPLEMENTATION
#ifndef TESTS_JOINED /* an rlock.h of some parts has that of Redis */
#define RLOCK_NO_REDIS
#endif
#define RLOCK__RING_MIN 8 /* a ring from so few holds on */
#define RLOCK__FLIGHTS 16 /* so few are kept for requests */
#include "scripted.h"
#include "rlock_elect.h"

#include <sys/wait.h>
#include <unistd.h>

#include "unit_fixture.h"
#include "unit_tables.h"
#include "unit_validity.h"
#include "unit_holding.h"
#include "unit_waiting.h"
#include "unit_hand_over.h"
#include "unit_orphans.h"
#include "unit_nested.h"
#include "unit_ending.h"
#include "unit_tokens.h"
#include "unit_arguments.h"
#include "unit_keys.h"
#include "unit_loop.h"
#include "unit_callbacks.h"
#include "unit_reports.h"
#include "unit_fork.h"
#include "unit_queued.h"
#include "unit_sets.h"
#include "unit_questions.h"
#include "unit_memory.h"
#include "unit_follow.h"
#include "unit_deadline.h"
#include "unit_elect.h"
#include "unit_hook.h"
#include "unit_credentials.h"

/* The list of tests: those of the files above, and one for each cell of the three tables. A test
 * that needs a part of rlock.h is in the list where that part is in the build. */

#define TESTS_MAX 900
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define ELECTION(name) cmocka_unit_test_setup_teardown(name, setup_election, teardown_election)
#define HOOKED(name) cmocka_unit_test_setup_teardown(name, setup_hooked, teardown)
#define CREDENTIALS(name) cmocka_unit_test_setup_teardown(name, setup_credentials, teardown)
#define LOGGED(name) cmocka_unit_test_setup_teardown(name, setup_logged, teardown)
#define STOPPED(name) cmocka_unit_test_setup_teardown(name, setup_stopped, teardown)

static const struct CMUnitTest singles[] = {
    CASE(second_renewal_is_refused),
    CASE(release_cancels_renewal_by_hand),
    CASE(release_when_the_server_said_lost_and_on_lost_was_not_called),
    CASE(renewal_that_was_answered_before_its_callback_is_canceled_by_a_release),
    STOPPED(outage_before_the_first_connect_ends_a_try_and_no_wait),
    CASE(wait_whose_last_answer_was_held_ends_as_timeout_after_faults),
    CASE(release_that_was_refused_and_then_answered_has_the_words_of_its_answer),
    CASE(release_that_is_out_at_its_deadline_has_no_words_of_an_earlier_refusal),
    CASE(grant_that_came_too_late_has_no_words_of_an_earlier_refusal),
    CASE(answer_that_is_none_to_an_acquire_has_words),
    CASE(what_was_not_sent_over_a_connection_that_is_up_says_so),
    CASE(loss_has_the_words_of_the_part_that_its_key_is_in),
    CASE(hold_that_expires_tells_what_kept_it_from_being_renewed),
    CASE(until_is_sent_plus_lease_minus_drift_minus_two_ms),
    CASE(drift_of_the_configuration_shortens_validity),
    CASE(validity_counts_from_the_send_not_from_the_call_or_the_answer),
    CASE(retry_counts_from_its_own_send),
    CASE(renewal_counts_from_its_send),
    CASE(remaining_is_read_from_a_fresh_clock),
    CASE(clock_that_steps_back_does_not_lengthen_a_hold),
    CASE(clock_that_steps_back_under_a_busy_owner_costs_one_look),
    CASE(clock_that_steps_back_makes_no_wait_longer),
    CASE(late_grant_is_refused_and_asked_for_again),
    CASE(late_grant_of_a_single_try_is_refused_and_given_back),
    CASE(validity_is_read_again_before_acquired_is_delivered),
    CASE(expiry_is_settled_before_a_renewal_that_came_too_late),
    CASE(expiry_is_settled_before_what_a_socket_brings),
    CASE(paused_watchdog_hold_is_lost_before_its_renewal_is_read),
    STOPPED(remaining_time_is_never_negative_while_the_clock_goes_on),
    CASE(clock_of_its_own_is_the_one_that_never_steps),
    CASE(watchdog_renews_at_a_third_of_the_lease),
    CASE(renewal_that_may_come_late_cuts_no_longer_lease_that_is_reported),
    CASE(watchdog_tries_faster_near_the_deadline),
    CASE(lost_comes_exactly_at_the_local_deadline_with_the_store_silent),
    CASE(lost_comes_at_the_deadline_while_the_connection_is_down),
    CASE(loss_during_an_outage_tells_why_there_is_no_connection),
    CASE(nothing_is_renewed_after_release),
    CASE(renewals_by_watchdog_on_off_auto),
    CASE(watchdog_keeps_the_shortest_lease_with_the_largest_drift),
    CASE(max_hold_ends_the_hold_as_expired),
    CASE(longer_renewal_by_hand_moves_the_deadline_when_it_is_answered),
    CASE(shorter_renewal_by_hand_lowers_the_deadline_at_the_call),
    CASE(shorter_renewal_by_hand_stays_lowered_when_the_watchdogs_is_answered),
    CASE(lease_of_a_renewal_by_hand_is_the_watchdogs_from_then_on),
    CASE(deadline_lowered_by_hand_stays_when_its_renewal_fails),
    CASE(renewal_with_lease_0_asks_for_the_lease_the_hold_has),
    CASE(key_that_is_gone_is_lost_as_deleted),
    CASE(key_of_another_is_lost_as_stolen),
    CASE(renewal_answered_held_by_another_is_lost_as_stolen),
    CASE(hold_that_is_lost_by_an_unsure_answer_is_cleaned_up),
    CASE(renewal_by_hand_of_a_lost_hold_ends_as_lost_and_tells_lost_once),
    CASE(push_for_its_key_makes_a_holder_look_at_once),
    CASE(push_for_any_key_makes_a_holder_look_at_once),
    CASE(push_for_another_key_asks_nothing),
    CASE(holders_are_checked_when_the_connection_is_back),
    CASE(lost_never_comes_after_a_release_was_called),
    CASE(release_after_the_deadline_and_before_lost_ends_as_released_with_lost),
    CASE(release_of_what_the_server_no_longer_had_is_not_held_with_the_reason),
    CASE(many_holds_are_renewed_together_none_of_them_late),
    CASE(hold_among_many_is_renewed_no_more_once_released),
    CASE(holds_among_many_are_lost_at_their_deadlines),
    CASE(many_holds_survive_a_sleep_longer_than_the_ring),
    CASE(loss_is_reported_before_the_end_that_a_socket_brings),
    CASE(hold_that_lives_longer_is_watched_and_looked_at_once),
    CASE(push_behind_a_renewal_is_looked_at_once_it_is_answered),
    CASE(push_behind_a_renewal_that_fails_is_looked_at_soon),
    CASE(first_refusal_of_a_waiter_is_retried_only_without_push),
    CASE(change_while_the_first_refusal_was_on_its_way_is_not_missed),
    CASE(waiter_that_cannot_be_notified_asks_anew_when_it_can),
    CASE(many_watched_keys_are_asked_for_now_and_then_and_few_are_not),
    CASE(waiters_are_served_in_order_and_only_the_head_asks),
    CASE(waiters_of_different_keys_do_not_wait_for_each_other),
    CASE(first_try_is_plain_and_the_next_one_watches),
    CASE(push_wakes_the_sleeping_head),
    CASE(push_while_a_try_is_out_makes_it_try_again_at_once),
    CASE(own_release_wakes_the_next_waiter_without_a_push),
    CASE(sleeper_tries_again_when_the_holders_lease_is_over),
    CASE(waiters_try_again_when_the_connection_is_back),
    CASE(head_polls_with_back_off_up_to_poll_ms_where_nothing_is_pushed),
    CASE(push_that_stops_turns_sleepers_into_pollers),
#if RLOCK__HAS_KINDS
    CASE(place_in_a_line_is_asked_for_again_when_calls_can_be_heard),
#endif
    CASE(wait_ends_as_timeout_at_its_end_for_head_and_others),
    CASE(cancel_of_the_head_promotes_the_next),
    CASE(canceled_has_no_words_of_the_server),
    CASE(cancel_of_a_sleeping_head_makes_the_next_ask),
    CASE(waiters_that_come_and_go_behind_a_sleeping_head_ask_nothing),
    CASE(fault_that_ends_the_head_lets_the_next_ask),
    CASE(single_try_is_busy_with_the_time_the_holder_has_left),
    CASE(single_try_behind_a_sleeping_waiter_is_busy_at_once),
    STOPPED(single_try_behind_another_before_the_first_connect_is_busy),
    CASE(wait_that_ends_while_its_try_is_out_is_unknown),
    CASE(waiter_and_holder_look_when_push_is_back),
    CASE(grant_that_was_lost_before_its_callback_keeps_its_place),
    CASE(grant_that_was_lost_before_its_callback_ends_if_memory_is_out),
    CASE(unknown_stays_the_last_word_when_the_connection_is_gone),
    CASE(every_waiter_is_notified_that_the_server_refuses_this_user),
    CASE(hold_goes_on_to_the_next_in_line_without_the_server),
    CASE(old_hold_is_not_handed_on_when_the_clock_comes_round),
    CASE(hold_goes_on_a_bounded_number_of_times_and_then_others_come_first),
    CASE(push_does_not_end_the_pause_for_the_sake_of_others),
    CASE(pause_for_the_sake_of_others_has_an_end),
    CASE(fences_rise_with_each_hold_that_goes_on),
    CASE(hold_without_a_fence_does_not_go_on_to_who_wants_one_nor_back),
    CASE(hold_with_too_little_left_does_not_go_on),
    CASE(hold_goes_on_only_to_who_asked_for_about_so_long_a_lease),
    CASE(renewals_do_not_keep_the_key_in_this_process),
    CASE(waiter_that_was_refused_before_the_release_asks_again),
    CASE(client_gives_way_where_a_hold_was_too_old_to_be_handed_on),
    CASE(hold_that_was_acquired_again_resets_its_hand_overs),
    CASE(hold_limited_by_its_handle_does_not_go_on_to_one_that_is_not),
    CASE(hold_whose_renewal_is_out_does_not_go_on),
    CASE(hold_that_went_on_with_a_shorter_lease_ends_by_it),
    CASE(hold_that_went_on_is_renewed_for_its_new_handle),
    CASE(hold_that_went_on_and_was_not_reported_is_given_back_by_cancel_and_free),
    CASE(former_handle_may_be_freed_or_acquire_again),
    CASE(acquire_after_a_release_is_sent_when_that_is_answered),
    CASE(acquire_after_a_release_tries_once_if_it_may_not_wait),
    CASE(wait_of_an_acquire_after_a_release_counts_from_the_call),
    CASE(acquire_after_a_release_ends_with_what_holds_that_up),
    CASE(acquire_after_a_release_ends_without_text_if_there_was_none),
    CASE(acquire_after_a_release_that_fails_is_made_all_the_same),
    CASE(canceled_acquire_after_a_release_is_reported_and_may_be_made_again),
    CASE(shutdown_ends_an_acquire_after_a_release_as_closed),
    CASE(freed_handle_with_an_acquire_after_its_release_tells_nothing),
    CASE(acquire_after_a_release_without_memory_is_refused_or_ends_as_such),
    CASE(lost_hold_that_is_released_may_be_acquired_again_at_once),
    CASE(nested_hold_that_is_released_whole_may_be_acquired_again_at_once),
    CASE(other_threads_see_the_deadline_from_the_grant_to_the_release),
    CASE(other_threads_see_a_renewal_and_a_shorter_lease),
    CASE(other_threads_see_no_deadline_after_a_loss_or_a_free),
    CASE(other_threads_see_a_hold_that_is_handed_on_at_one_handle),
    CASE(other_threads_do_not_wait_for_a_writer_that_is_stopped),
    CASE(watchdog_lease_of_the_options_is_what_lease_0_means),
    CASE(hold_that_went_on_and_is_found_gone_before_its_callback_is_asked_for),
    CASE(sure_that_is_judged_when_the_answer_is_read_leaves_an_orphan),
    CASE(clean_up_that_is_given_up_wakes_the_next_waiter),
#if RLOCK__HAS_KINDS
    CASE(token_that_is_spent_is_let_go_and_another_one_is_asked_for),
#endif
    CASE(token_that_is_spent_is_let_go_after_any_fault),
    CASE(waiter_whose_token_is_spent_stays_the_first),
    CASE(acquire_whose_token_is_spent_ends_when_it_was_to_end),
    CASE(token_that_is_spent_is_let_go_without_memory_too),
    CASE(orphan_is_released_until_a_sure_answer),
    CASE(orphan_is_released_until_one_lease_later_when_no_answer_is_sure),
    CASE(unsure_clean_up_ends_a_longest_lease_and_a_command_timeout_later),
    CASE(unsure_clean_up_is_not_shortened_by_a_refusal_before_it),
    CASE(refused_clean_up_goes_on_for_the_longest_lease),
#if RLOCK__HAS_KINDS
    CASE(refused_clean_up_of_a_waiter_goes_on_for_as_long_as_its_position),
    CASE(refused_release_of_a_queued_kind_goes_on_for_its_lease),
#endif
    CASE(orphan_is_not_given_up_while_the_server_cannot_be_asked),
    CASE(end_of_a_clean_up_is_not_counted_while_the_server_cannot_be_asked),
    CASE(attempt_that_may_still_be_executed_is_cleaned_up_after_held),
    CASE(acquire_that_never_left_needs_no_clean_up),
    CASE(acquire_that_never_left_does_not_report_that_another_has_it),
    CASE(key_that_was_held_before_is_not_held_for_that),
    CASE(who_waits_behind_a_holder_of_its_client_ends_as_timeout),
    CASE(try_that_ended_unknown_is_cleaned_up),
    CASE(release_that_is_never_answered_ends_unknown_at_the_deadline),
    CASE(acquire_after_cancel_has_a_token_of_its_own),
    CASE(freed_holder_is_released_in_the_background),
    CASE(old_tokens_are_cleaned_up_before_anybody_asks),
    CASE(acquire_answered_with_nonsense_is_cleaned_up),
    CASE(acquire_that_was_surely_not_executed_leaves_nothing),
    CASE(try_that_was_surely_not_executed_says_nothing_of_the_one_before),
    CASE(reentrant_hold_counts_up_and_down_without_a_round_trip),
    CASE(reentrant_acquire_with_a_longer_lease_asks_for_it),
    CASE(nested_acquire_with_lease_0_gives_the_hold_a_watchdog),
    CASE(watchdog_of_a_hold_with_a_long_lease_begins_at_once),
    CASE(nested_acquire_that_fails_gives_no_watchdog),
    CASE(loss_sets_a_reentrant_count_to_zero),
    CASE(release_while_a_nested_acquire_is_asked_for_cancels_it),
    CASE(release_in_the_turn_of_a_nested_acquire_cancels_it),
    CASE(reentrant_acquire_of_a_lost_hold_is_refused),
    CASE(nested_acquire_of_a_callback_ends_in_the_next_turn),
    CASE(nested_release_needs_no_memory),
#if RLOCK__HAS_TOKENS
    CASE(release_after_is_a_renewal_for_the_rest_which_also_cuts),
    CASE(release_after_gives_a_shorter_lease_the_whole_rest),
    CASE(release_after_a_time_that_is_over_is_a_release),
    CASE(time_counts_from_the_first_acquire_and_ends_with_the_last_release),
    CASE(unanswered_renewal_of_what_stays_is_repeated_for_the_rest),
    CASE(what_stays_ends_at_its_deadline_and_is_deleted_when_its_time_is_over),
    CASE(what_was_to_stay_and_is_not_there_ends_as_not_held),
    CASE(what_was_to_stay_where_something_else_is_ends_as_not_held),
    CASE(refused_last_renewal_leaves_a_doubt_unless_it_was_not_executed),
    CASE(what_stays_is_not_handed_on_and_the_next_waiter_asks_the_server),
    CASE(freed_client_submits_the_renewal_of_what_stays_once_more),
    CASE(store_that_keeps_nothing_refuses_what_is_to_stay),
    CASE(times_out_of_range_are_refused_and_the_hold_stays),
    CASE(lost_hold_is_reported_by_its_release_after),
    CASE(token_is_the_clients_id_the_number_and_the_fence),
    CASE(texts_that_are_no_token_are_refused),
    CASE(adopted_hold_is_asked_for_by_a_renewal_and_is_like_any_other),
    CASE(hold_that_is_not_there_is_not_adopted_and_nothing_is_released),
    CASE(fault_ends_an_adoption_as_one_attempt_and_releases_nothing),
    CASE(adoption_without_an_answer_ends_by_the_command_timeout),
    CASE(adoption_without_a_connection_ends_with_the_fault_of_that),
    CASE(lost_connection_ends_an_adoption),
    CASE(adoption_that_comes_too_late_does_not_count),
    CASE(canceled_adoption_releases_nothing),
    CASE(client_that_is_freed_during_an_adoption_forgets_it),
    CASE(client_that_is_freed_before_the_callback_of_an_adoption_leaves_it),
    CASE(waiter_learns_from_an_adoption_that_the_key_is_held),
    CASE(every_failing_allocation_of_an_adoption_is_survived),
    CASE(waiter_behind_an_adoption_that_is_canceled_asks_the_server),
    CASE(what_stays_after_an_unanswered_renewal_is_unknown),
    CASE(what_stays_is_sure_while_a_check_is_out),
    CASE(hold_whose_token_is_out_is_not_handed_on),
    CASE(adoption_that_is_canceled_before_its_callback_releases_nothing),
    CASE(shutdown_ends_an_adoption_and_releases_what_was_adopted),
    CASE(handle_that_is_freed_while_it_adopts_releases_nothing),
    CASE(adopted_hold_that_is_lost_is_reported_and_released),
    CASE(adopted_hold_can_be_left_and_given_away_once_more),
    CASE(fence_comes_with_the_token_where_one_is_wanted),
    CASE(notification_of_an_own_token_is_not_that_of_an_adopted_one),
#if RLOCK__HAS_KINDS
    CASE(adopted_hold_that_others_share_is_registered_by_a_look),
#endif
#endif
    CASE(shutdown_ends_tells_releases_and_is_done),
    CASE(shutdown_without_an_answer_is_done_with_timeout),
    CASE(shutdown_of_an_idle_client_is_done_in_a_turn_of_its_own),
    CASE(shutdown_lets_a_release_under_way_end),
    CASE(shutdown_ends_a_nested_acquire_as_closed),
    CASE(ended_shutdown_leaves_nothing_on_the_loop),
    CASE(client_that_is_shut_down_may_be_freed_in_done_or_after_its_handles),
    CASE(shutdown_ends_a_release_that_is_not_answered_before_it_is_done),
    CASE(shutdown_is_done_after_an_acquire_that_would_follow),
    CASE(drain_lets_holders_finish_and_refuses_acquires),
    CASE(drain_of_an_idle_client_is_a_shutdown),
    CASE(drain_that_takes_too_long_ends_in_a_shutdown),
    CASE(drain_waits_for_a_release_as_long_as_a_shutdown_does),
    CASE(shutdown_cuts_a_drain_short_and_each_is_notified_once),
    CASE(drain_lets_a_holder_acquire_once_more),
    CASE(drain_ends_a_grant_that_was_not_reported_as_closed),
    CASE(drain_in_a_callback_ends_the_grant_that_was_to_be_reported_next),
    CASE(drain_that_is_cut_short_needs_no_callback),
    CASE(shutdown_in_a_callback_is_done_behind_what_follows_the_next_one),
    CASE(shutdown_fires_no_timer_that_one_before_it_has_stopped),
    CASE(client_keeps_its_loop_while_anything_is_held_wanted_or_owed),
    CASE(client_with_a_plan_or_a_store_that_cleans_up_is_not_idle),
    CASE(client_free_in_every_state_tells_nothing_and_handles_survive),
    CASE(client_free_sends_the_release_of_what_is_held),
    CASE(client_free_before_their_callbacks_leaks_nothing),
    CASE(handle_free_in_every_state_tells_nothing),
    CASE(free_of_null_is_allowed),
    STOPPED(store_that_does_not_open_fails_the_client),
    STOPPED(loop_that_does_not_open_and_missing_random_bytes_fail_the_client),
    STOPPED(bad_configurations_are_refused_with_a_log_line),
    STOPPED(null_arguments_of_the_client_are_refused),
    CASE(bad_options_are_refused),
    CASE(long_words_of_a_store_are_cut_in_the_log),
    CASE(longest_key_and_hash_tags_are_allowed),
    CASE(bad_leases_and_waits_are_refused_and_change_nothing),
    CASE(absurd_wait_does_not_overflow),
    CASE(absurd_limit_of_a_hold_does_not_overflow),
    CASE(null_handles_are_refused),
    STOPPED(arguments_that_no_other_test_gives),
    CASE(key_is_copied_with_every_byte_and_a_nul_behind_it),
    CASE(fence_is_the_servers_and_asked_for_only_when_wanted),
    CASE(every_token_is_new_and_the_client_id_is_a_uuid),
    CASE(keys_are_unwatched_when_no_handle_needs_them),
    CASE(keys_whose_hashes_collide_are_different_locks),
    CASE(keys_that_are_one_chain_in_a_client_are_none_in_another),
    CASE(each_byte_of_a_key_counts_in_its_hash),
#if RLOCK__HAS_MEMORY
    STOPPED(two_grants_of_one_moment_have_two_fences),
    STOPPED(keys_that_nobody_wants_any_more_leave_the_store_inside_the_process),
#endif
    CASE(batch_sets_the_timer_twice_at_most_and_leaves_no_turn_in_vain),
    CASE(what_is_submitted_is_flushed_before_the_loop_sleeps),
    CASE(descriptor_of_a_store_reaches_the_loop_and_its_events_the_store),
    CASE(early_and_spurious_timer_entries_are_harmless),
    CASE(event_of_a_descriptor_that_a_timer_just_forgot_is_dropped),
    CASE(timer_that_is_due_again_at_once_waits_for_the_next_turn),
    CASE(nothing_follows_a_timer_that_freed_the_client),
    CASE(heap_of_timers_gives_its_room_back),
    CASE(timers_that_are_due_again_at_once_keep_no_loss_waiting),
    CASE(freed_handle_is_not_notified_of_what_was_ready_in_the_same_entry),
    CASE(cancel_after_an_undelivered_grant_gives_it_back),
    CASE(what_callbacks_add_waits_for_the_next_turn),
    CASE(callbacks_may_be_left_out_where_the_header_says_so),
    CASE(loop_that_is_run_inside_a_callback_goes_on),
    CASE(loss_is_reported_by_a_loop_that_is_run_inside_a_callback),
    CASE(client_may_be_freed_in_a_loop_inside_a_callback),
#if RLOCK__HAS_KINDS
    CASE(what_a_callback_jumped_over_comes_in_the_next_turn),
#endif
    CASE(rest_of_a_batch_comes_after_a_jump_that_left_nothing_else_to_do),
    CASE(turns_are_snapshots_again_after_a_jump),
    CASE(callback_that_freed_its_client_may_go_on_calling),
    CASE(last_handle_and_client_are_freed_in_a_callback),
    CASE(stats_count_what_happened_and_what_is),
    CASE(every_hold_that_was_acquired_is_counted_once_as_released_or_lost),
    CASE(every_status_has_its_text),
    CASE(version_is_one_as_text_and_as_number),
    CASE(every_reason_and_kind_has_its_word),
    CASE(child_that_returns_from_the_callback_it_forked_in_does_nothing),
    CASE(child_that_returns_from_a_hook_it_forked_in_does_nothing),
    CASE(child_of_the_close_at_the_end_of_a_shutdown_is_not_notified_of_it),
    CASE(after_fork_the_child_is_refused_and_sends_nothing),
    CASE(child_that_returns_from_a_timer_it_forked_in_hears_of_no_name),
    CASE(after_fork_the_child_hears_no_event_and_nests_nothing),
    CASE(after_fork_a_client_of_the_childs_own_brings_none_of_the_parents_back),
#if RLOCK__HAS_KINDS
    CASE(each_waiter_of_a_queued_kind_asks_for_itself_at_once),
    CASE(single_try_of_a_queued_kind_asks_the_server_not_to_stand_in_line),
    CASE(who_leaves_the_line_is_taken_out_of_it),
    CASE(who_never_came_into_the_line_need_not_be_taken_out),
    CASE(waiter_that_never_came_into_the_line_does_not_report_that_another_has_it),
    CASE(who_is_called_asks_again_with_its_token),
    CASE(who_is_called_while_its_try_is_out_asks_once_more),
    CASE(notification_of_an_unknown_waiter_is_ignored),
    CASE(holder_who_is_called_looks),
    CASE(first_of_the_line_looks_again_after_half_a_turn),
    CASE(next_of_the_line_takes_over_the_looking),
    CASE(grant_behind_the_first_changes_nothing_for_it),
    CASE(waiter_whose_try_failed_is_asked_for_again_wherever_it_stands),
    CASE(first_of_the_line_polls_where_nobody_is_called),
    CASE(first_of_the_line_polls_twice_a_turn_at_least),
    CASE(all_in_line_ask_when_calls_begin_or_end),
    CASE(try_that_was_out_when_calls_began_is_asked_for_once_more),
    CASE(changes_wake_no_one_in_line_and_any_change_all),
    CASE(change_makes_look_who_holds_alone_and_no_one_who_shares),
    CASE(who_shares_and_cannot_be_called_is_registered_by_a_look),
    CASE(change_makes_no_holder_of_a_semaphore_look_however_few_permits_it_has),
    CASE(holders_of_one_key_are_lost_renewed_and_released_one_by_one),
    CASE(freed_holder_leaves_the_others_theirs),
    CASE(holder_may_free_the_others_when_all_are_lost),
    CASE(shutdown_notifies_every_holder_and_every_one_in_line),
    CASE(client_free_releases_every_hold_and_place_and_notifies_nobody),
    CASE(connection_that_comes_and_goes_with_many_holders_and_waiters),
    CASE(refused_user_ends_every_waiter_of_the_line),
    CASE(late_grant_behind_the_first_is_asked_for_again_at_once),
    CASE(grant_that_expires_before_its_callback_is_asked_for_again),
    CASE(call_before_the_callback_of_a_grant_makes_it_look),
    CASE(nothing_is_handed_on_of_a_queued_kind),
    CASE(release_names_who_asks_right_behind_it),
    CASE(release_names_nobody_who_has_no_place_or_asks_just_now),
    CASE(release_that_is_sent_again_names_no_waiter),
    CASE(own_release_makes_the_first_of_the_line_ask_where_nobody_is_called),
    CASE(one_fence_is_asked_for_by_each_of_a_queued_kind),
    CASE(reader_names_the_writer_of_its_owner_while_that_holds),
#if RLOCK__HAS_TOKENS
    CASE(reader_does_not_name_a_writer_that_another_client_began),
#endif
    CASE(reader_in_line_asks_as_soon_as_its_writer_is_granted),
    CASE(set_that_loses_a_key_lets_the_others_go_and_a_single_one_nothing),
    CASE(same_key_is_another_gate_only_where_the_server_has_another_line),
    CASE(waiters_with_an_owner_or_a_weight_of_their_own_cost_what_one_does),
    CASE(heavy_first_of_the_line_does_not_look_for_who_is_lighter),
    CASE(place_of_a_freed_handle_is_given_back_by_its_weight),
    CASE(gates_of_one_key_may_be_freed_in_any_order),
    CASE(many_keys_of_many_sets_are_found_when_the_table_grows),
#endif
    CASE(change_of_a_key_wakes_no_waiter_of_a_key_with_the_same_hash),
#if RLOCK__HAS_KINDS
    CASE(each_key_of_a_set_wakes_who_waits_for_it),
    CASE(each_key_of_a_set_makes_its_holder_look),
    CASE(release_of_a_set_wakes_who_waits_for_one_of_its_keys_and_back),
    CASE(key_is_watched_until_no_gate_of_it_wants_to_know),
    CASE(set_is_refused_for_one_key_that_the_store_refuses),
    CASE(question_is_answered_once_with_what_the_server_said),
    CASE(shutdown_is_done_after_the_questions),
    CASE(question_leaves_nothing_behind_that_each_release_would_look_for),
    CASE(question_ends_by_each_fault_as_a_single_try_does),
    CASE(question_without_an_answer_ends_after_a_command_timeout),
    CASE(questions_end_when_the_connection_does),
    CASE(answered_question_is_not_ended_again),
    CASE(question_that_was_answered_is_not_ended_by_the_end_of_a_shutdown),
    CASE(question_for_whose_timer_there_is_no_memory_is_not_asked),
    CASE(question_of_a_freed_client_is_not_answered),
    CASE(client_may_be_freed_or_asked_in_the_callback_of_a_question),
    CASE(position_is_asked_with_the_token_of_who_waits),
    CASE(position_is_asked_without_a_token_when_the_wait_is_over),
#if RLOCK__HAS_TOKENS
    CASE(position_is_asked_without_a_token_while_another_clients_is_adopted),
#endif
    CASE(position_of_who_does_not_wait_in_a_line_is_not_asked),
#endif
    CASE(wrong_options_are_refused_by_handles_and_questions),
#if RLOCK__HAS_KINDS
    CASE(questions_that_cannot_be_asked_are_refused),
#endif
    CASE(nothing_is_allocated_between_acquire_and_release_once_warm),
    CASE(held_key_takes_no_more_than_384_bytes),
    CASE(what_only_waiters_need_is_not_kept_for_each_hold),
    CASE(release_needs_no_memory),
    CASE(releases_of_many_need_no_memory),
    CASE(request_without_memory_is_made_soon),
    CASE(request_that_there_was_never_memory_for_ends_as_such),
    STOPPED(acquire_is_refused_by_each_allocation_that_fails),
    CASE(freed_handles_give_back_what_was_kept_for_them),
    STOPPED(every_failing_allocation_is_survived_and_leaks_nothing),
    STOPPED(tables_that_cannot_grow_cost_a_status_and_nothing_else),
#if RLOCK__HAS_KINDS
    cmocka_unit_test(every_failing_allocation_of_the_kinds_is_survived),
#endif
    ELECTION(leader_leads_from_its_grant_and_again_after_a_loss),
    ELECTION(leader_steps_down_exactly_at_the_local_deadline_with_the_store_silent),
    ELECTION(who_lost_the_lead_campaigns_after_a_pause_so_that_others_come_first),
    ELECTION(fence_is_that_of_the_term_and_0_without_the_lead),
#if RLOCK__HAS_KINDS
    ELECTION(every_kind_may_lead_and_resign),
#endif
    ELECTION(leader_that_was_stopped_for_longer_than_its_lease_knows_at_once),
    ELECTION(leader_whose_callback_blocks_is_warned_of_and_campaigns_more_and_more_seldom),
    ELECTION(lead_goes_from_one_election_of_a_client_to_the_other_when_it_resigns),
    ELECTION(every_error_of_an_acquire_is_survived),
    ELECTION(every_error_of_a_renewal_costs_the_term_at_most),
    ELECTION(pauses_double_up_to_two_seconds_and_begin_anew_with_a_term),
    ELECTION(campaign_that_lasts_is_a_good_one),
    ELECTION(acquire_for_which_there_is_no_memory_is_tried_again),
#if RLOCK__HAS_TEXTS
    ELECTION(log_says_each_change_once_and_no_failure_twice),
#endif
    ELECTION(leader_that_resigns_steps_down_before_its_release_leaves),
    ELECTION(candidate_that_does_not_lead_resigns_without_stepping_down),
    ELECTION(grant_that_was_not_delivered_is_released_on_resign),
    ELECTION(release_that_is_not_answered_ends_a_resignation_as_unknown),
    ELECTION(who_loses_the_lead_while_it_resigns_steps_down_once),
    ELECTION(leader_that_lost_unknowingly_resigns_and_is_notified_of_both),
    ELECTION(election_freed_between_two_callbacks_of_one_moment_is_notified_no_more),
    ELECTION(shutdown_of_the_client_ends_each_election),
    ELECTION(shutdown_while_a_leader_resigns_notifies_each_once),
    ELECTION(drain_waits_for_a_leader_and_ends_the_others),
    ELECTION(election_keeps_its_loop_also_when_it_pauses),
    ELECTION(resignation_of_a_leader_that_is_being_shut_down_reports_both),
    ELECTION(election_that_is_freed_in_any_state_is_notified_of_nothing_more),
    ELECTION(client_that_is_freed_in_any_state_tells_nothing_more),
    ELECTION(every_call_may_be_made_from_every_callback),
    ELECTION(release_goes_out_though_step_down_did_not_return),
    ELECTION(wrong_arguments_of_an_election_are_refused),
    ELECTION(done_of_a_resignation_may_be_left_out),
    ELECTION(election_without_memory_is_refused_or_goes_on),
    ELECTION(election_without_memory_for_its_timer_is_not_made),
    ELECTION(child_of_a_leader_does_not_lead_and_touches_nothing),
    ELECTION(child_of_a_log_line_does_not_hear_that_it_leads_or_steps_down),
    ELECTION(child_of_a_step_down_does_not_hear_of_the_resignation),
    ELECTION(random_answers_tell_each_lead_and_each_end_once),
#if RLOCK__HAS_REPORTS
    HOOKED(hold_is_reported_from_its_acquire_to_its_release_with_its_times),
    HOOKED(renewal_that_failed_before_is_reported_as_late_as_it_is),
    HOOKED(renewal_by_hand_without_a_watchdog_is_late_since_it_was_asked_for),
    HOOKED(local_hand_over_is_reported_with_how_long_it_took),
    HOOKED(loss_is_reported_with_its_reason_and_the_last_fault),
    HOOKED(shutdown_is_reported_as_the_loss_of_each_hold_and_the_end_of_each_wait),
    HOOKED(acquire_without_a_hold_is_reported_once_with_how_it_ended),
    HOOKED(grant_that_was_cancelled_before_its_callback_is_reported_as_no_hold),
    HOOKED(grant_that_came_too_late_is_reported_neither_as_held_nor_as_lost),
    HOOKED(free_of_a_handle_is_reported_as_the_end_of_what_it_did),
    HOOKED(grant_of_a_handle_that_was_freed_before_its_callback_is_reported_as_none),
    HOOKED(free_of_a_client_is_reported_as_the_end_of_all_that_it_did),
    HOOKED(release_that_the_server_did_not_know_is_reported_before_its_callback),
    HOOKED(nested_acquires_and_releases_are_not_reported),
    HOOKED(store_reports_its_connections_and_the_rest_is_filled_in),
#if RLOCK__HAS_KINDS
    HOOKED(secret_is_in_no_event_and_no_report),
#endif
    HOOKED(secrets_that_overlap_are_hidden_whole),
    HOOKED(foreign_text_is_shown_as_what_it_is),
    HOOKED(each_kind_of_report_has_a_word),
    HOOKED(hook_costs_no_clock_no_memory_and_no_request),
    HOOKED(handle_without_memory_for_its_reports_is_not_made),
    HOOKED(child_that_returns_from_a_report_it_forked_in_does_nothing),
    HOOKED(child_that_an_acquire_after_a_release_made_is_not_notified_of_that_release),
    HOOKED(child_that_the_report_of_a_loss_made_is_notified_of_no_other_loss),
    HOOKED(renewal_that_is_answered_before_the_callback_of_the_grant_is_not_reported),
#endif
#if RLOCK__HAS_CREDENTIALS
    CREDENTIALS(new_credentials_reach_the_store_and_are_flushed),
    CREDENTIALS(credentials_that_cannot_be_taken_are_refused_with_a_log_line),
    CREDENTIALS(credentials_need_memory_and_a_client_that_is_open),
    CREDENTIALS(old_and_new_passwords_are_hidden_and_older_ones_forgotten),
    CREDENTIALS(password_that_is_in_use_at_sentinels_stays_hidden),
    CREDENTIALS(wait_that_ends_before_newer_ones_are_tried_does_not_report_auth),
    CREDENTIALS(credentials_may_be_set_from_a_callback),
#endif
    CASE(words_of_the_last_fault_are_reported_though_the_connection_is_back),
    CASE(words_of_a_fault_do_not_go_on_with_the_hold),
    CASE(words_of_a_renewal_that_failed_are_reported_until_one_succeeds),
    CASE(loss_to_something_that_is_no_lock_has_the_words_of_the_server),
    LOGGED(refused_renewal_is_logged_once_a_hold_and_once_for_all_holds),
#if RLOCK__HAS_KINDS && RLOCK__HAS_TEXTS
    LOGGED(options_that_are_refused_are_logged_by_their_names),
#endif
    LOGGED(first_call_in_a_forked_child_is_logged_and_no_other_one),
    LOGGED(call_in_a_child_of_who_freed_the_client_is_not_logged),
    LOGGED(log_has_a_user_of_its_own_if_one_is_given),
};

static struct CMUnitTest tests[TESTS_MAX];
static struct cell cells[TESTS_MAX];
static char names[TESTS_MAX][120];
static size_t count;

static void add_cell(CMUnitTestFunction function, int row, int column, rlock_kind kind) {
    assert_true(count < TESTS_MAX);
    cells[count].row = row;
    cells[count].column = column;
    cells[count].kind = kind;
    tests[count].name = names[count];
    tests[count].test_func = function;
    tests[count].setup_func = setup;
    tests[count].teardown_func = teardown;
    tests[count].initial_state = &cells[count];
    count++;
}

static const char *status_name(int status) {
    switch (status) {
#define RLOCK_X(name, value, text) \
    case RLOCK_##name: return #name;
        RLOCK_STATUS_MAP(RLOCK_X)
#undef RLOCK_X
    default: return "retry";
    }
}

/* The two tables hold for every kind: they are tested with one kind of each sort. */
static void add_tables_of(rlock_kind kind, const char *what) {
    int row, column;
    for (row = 0; row < STATES; row++) {
        for (column = 0; column < CALLS; column++) {
            snprintf(names[count], sizeof names[0], "%sin %s, %s returns %s", what,
                     state_names[row], call_names[column],
                     status_name(state_call[row][column].returns));
            add_cell(call_ends_as_its_cell_says, row, column, kind);
        }
    }
    for (row = 0; row < FAULTS; row++) {
        for (column = 0; column < OPERATIONS; column++) {
            snprintf(names[count], sizeof names[0], "%s%s makes %s %s %s", what, fault_names[row],
                     operation_names[column],
                     fault_operation[row][column] == RETRY ? "try again:" : "end as",
                     status_name(fault_operation[row][column]));
            add_cell(operation_ends_as_its_cell_says, row, column, kind);
            if (fault_operation[row][column] == RETRY) {
                snprintf(names[count], sizeof names[0], "%s%s that lasts ends %s at its deadline",
                         what, fault_names[row], operation_names[column]);
                add_cell(fault_that_lasts_ends_the_operation_at_its_deadline, row, column, kind);
            }
            if (fault_operation[RLOCK_FAULT_UNKNOWN][column] == RETRY) {
                snprintf(names[count], sizeof names[0], "%s%s after UNKNOWN has its words at %s",
                         what, fault_names[row], operation_names[column]);
                add_cell(fault_after_an_unanswered_attempt_ends_it_with_its_own_words, row, column,
                         kind);
            }
        }
    }
}

static void add_tables(void) {
    int row, column;
    add_tables_of(RLOCK_KIND_MUTEX, "");
    if (RLOCK__HAS_KINDS) {
        add_tables_of(RLOCK_KIND_FAIR, "fair: ");
        add_tables_of(RLOCK_KIND_SEMAPHORE, "semaphore: ");
    }
    for (row = 0; row < PLACES; row++) {
        for (column = 0; column < FUNCTIONS; column++) {
            snprintf(names[count], sizeof names[0], "%s may be called from the callback of %s",
                     function_names[column], place_names[row]);
            add_cell(function_may_be_called_from_the_callback_of_its_cell, row, column,
                     RLOCK_KIND_MUTEX);
        }
    }
}

int main(int argc, char **argv) {
    assert_true(sizeof singles / sizeof singles[0] < TESTS_MAX);
    memcpy(tests, singles, sizeof singles);
    count = sizeof singles / sizeof singles[0];
    add_tables();
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return _cmocka_run_group_tests("unit", tests, count, NULL, NULL);
}
