/* faults.c - every fault provoked for real: a server that refuses, stalls, dies or lies, and a
 * network that loses, cuts and delays
 *
 * The expectations are the cells of FAULT x OPERATION in rlock.h. The tests stand in the
 * faults_*.h, by subject; their list, and what the process is made to lack, stand here.
 */
#include <hiredis/async.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>

static unsigned memory_lasts;    /* the number of the allocation that fails; 0 = none does */
static bool memory_stays_out;    /* the allocations after it fail too */
static unsigned commands_last;   /* the number of the command that hiredis refuses; 0 = none */
static bool no_boottime;         /* a kernel without CLOCK_BOOTTIME */
static bool no_getrandom;        /* ... and without that */
static unsigned clocks_read[16]; /* by their numbers */
/* what a kernel gives a fork */
static enum pages { PAGES, NO_PAGES, NONE_SHARED, PAGES_STAY, PAGES_SAID, PAGES_RACE } pages;

static void *memory_get(size_t size) {
    static bool out;

    if (memory_lasts > 0) {
        out = --memory_lasts == 0;
    } else {
        out = out && memory_stays_out;
    }
    return out ? NULL : malloc(size);
}

static int clock_get(clockid_t id, struct timespec *now) {
    if (no_boottime && id == CLOCK_BOOTTIME) {
        return -1;
    }
    clocks_read[id]++;
    return clock_gettime(id, now);
}

static ssize_t random_get(void *bytes, size_t size, unsigned flags) {
    return no_getrandom ? -1 : getrandom(bytes, size, flags);
}

static void *page_map(void *at, size_t size, int access, int flags, int fd, off_t offset);

/* Before Linux 4.14 a page is not cleared in a fork; qemu-user says that it will be, and is not. */
static int page_advise(void *at, size_t size, int advice) {
    return pages == PAGES_STAY ? -1 : pages == PAGES_SAID ? 0 : madvise(at, size, advice);
}

static bool peers_are_hidden; /* a connection that is reset has none */

static int peer_name(int fd, struct sockaddr *peer, socklen_t *len) {
    return peers_are_hidden ? -1 : getpeername(fd, peer, len);
}

/* hiredis refuses a command for which it gets no memory. */
static int command_add(redisAsyncContext *ac, redisCallbackFn *fn, void *data, const char *command,
                       size_t len) {
    bool refused = commands_last > 0 && --commands_last == 0;

    return refused ? REDIS_ERR : redisAsyncFormattedCommand(ac, fn, data, command, len);
}

static int command_append(redisContext *c, const char *command, size_t len) {
    bool refused = commands_last > 0 && --commands_last == 0;

    return refused ? REDIS_ERR : redisAppendFormattedCommand(c, command, len);
}

/* Whether this machine has ::1: as it is; no version 6; no such address; or it has. */
static enum sixes { SIX_AS_IT_IS, NO_SIX, SIX_WITHOUT_ADDRESS, SIX } sixes;

static int socket_get(int family, int type, int protocol) {
    return sixes == NO_SIX ? -1 : socket(sixes == SIX_AS_IT_IS ? family : AF_INET, type, protocol);
}

static int address_get(int fd, const struct sockaddr *address, socklen_t len) {
    return sixes == SIX_AS_IT_IS ? bind(fd, address, len) : sixes == SIX ? 0 : -1;
}

#include "clustered.h"

#define RLOCK_MALLOC(n) memory_get(n)
#define RLOCK_FREE(p) free(p)
#define clock_gettime(id, now) clock_get(id, now)
#define getrandom(bytes, size, flags) random_get(bytes, size, flags)
#define redisAsyncFormattedCommand command_add
#define redisAppendFormattedCommand command_append
#define getpeername(fd, peer, len) peer_name(fd, peer, len)
#define socket(family, type, protocol) socket_get(family, type, protocol)
#define bind(fd, address, len) address_get(fd, address, len)
#define mmap(at, size, access, flags, fd, offset) page_map(at, size, access, flags, fd, offset)
#define madvise(at, size, advice) page_advise(at, size, advice)
#define RLOCK_IMPLEMENTATION
#include "rlock.h"
#undef clock_gettime
#undef getrandom
#undef redisAsyncFormattedCommand
#undef redisAppendFormattedCommand
#undef getpeername
#undef socket
#undef bind
#undef mmap
#undef madvise

/* Gives no page, or gives one while another thread makes its own. */
static void *page_map(void *at, size_t size, int access, int flags, int fd, off_t offset) {
    if (pages == PAGES_RACE) {
        pages = PAGES;
        rlock__process();
    }
    if (pages == NO_PAGES || (pages == NONE_SHARED && (flags & MAP_SHARED) != 0)) {
        return MAP_FAILED;
    }
    return mmap(at, size, access, flags, fd, offset);
}

#include "kit.h"
#include "whole.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>

#define TIMEOUT_MS 100    /* of a command, so that a dead server is noticed soon */
#define PATIENCE_MS 10000 /* of a command that is answered, also on a busy machine */
#define WATCHDOG_MS 2400  /* a third of it is shorter than each fault, the rest is longer */
#define FAULT_MS 900      /* the length of a fault that comes and goes */

static struct server server;

#include "wires.h"

static rlock_client *client_with(const char *path, rlock_wire wire, int64_t timeout_ms) {
    rlock_config config = kit_config(&server);
    rlock_client *client;

    config.unix_path = path;
    config.wire = wire;
    config.username = "locker";
    config.password = "secret";
    config.command_timeout_ms = timeout_ms;
    config.watchdog_lease_ms = WATCHDOG_MS;
    client = kit_client(&config);
    assert_non_null(client);
    return client;
}

static rlock_client *client_at(const char *path, rlock_wire wire) {
    return client_with(path, wire, TIMEOUT_MS);
}

/* The store of the server that a client has, or of its only node. */
static rlock__redis *redis_of(const rlock_client *client) {
    return clustered() ? ((rlock__cluster *)client->store_state)->nodes[0]->redis
                       : (rlock__redis *)client->store_state;
}

static void user_may_do_everything(void) {
    tell(ask(&server, "ACL SETUSER locker reset on >secret ~* &* +@all"));
}

#include "faults_server.h"
#include "faults_proxy.h"
#include "faults_liars.h"
#include "faults_stage.h"
#include "faults_replies.h"
#include "faults_batches.h"
#include "faults_connecting.h"
#include "faults_quarantine.h"
#include "faults_wait.h"
#include "faults_push.h"
#include "faults_process.h"
#include "faults_refusals.h"
#include "faults_identity.h"
#include "faults_sentinel.h"
#include "faults_cluster.h"
#include "faults_secrets.h"
#include "faults_credentials.h"
#include "faults_who.h"

/* ---- the group ---- */

static int group_begins(void **state) {
    char path[128];
    (void)state;
    if (server_start(&server, NULL) != 0 || kit_open() != 0) {
        return -1;
    }
    snprintf(path, sizeof path, "%s/proxy", server.dir);
    proxy_starts(path, server.socket);
    return 0;
}

static int group_ends(void **state) {
    (void)state;
    if (proxy_pid > 0) { /* it is 0 without a server, and that would mean the whole group */
        kill(proxy_pid, SIGKILL);
        waitpid(proxy_pid, NULL, 0);
    }
    kit_close();
    kit_hand_drop();
    server_stop(&server);
    return 0;
}

static int test_begins(void **state) {
    (void)state;
    proxy->mode = PASS;
    proxy_cuts(); /* the proxy may still hold the last test's bytes */
    tell(ask(&server, "FLUSHALL"));
    user_may_do_everything();
    return 0;
}

/* Undoes what a failed test has left. */
static int test_ends(void **state) {
    (void)state;
    server_resume(&server);
    if (server.pid == 0 && server_restart(&server) != 0) {
        return -1;
    }
    if (busy_hand != NULL) {
        busy_ends();
    }
    if (access(server.socket, F_OK) != 0) {
        socket_returns();
    }
    memory_lasts = commands_last = 0;
    memory_stays_out = no_boottime = no_getrandom = false;
    pages = PAGES;
    sixes = SIX_AS_IT_IS;
    kit_reset();
    stage_ends();
    liars_end();
    proxy->mode = PASS;
    readonly_ends();
    no_replicas_ends();
    memory_is_back();
    connections_are_let_in();
    return 0;
}

/* What cannot be on a cluster, and why. */
#define NO_BATCHES "renewals of a node go alone, since their keys are of several slots"
#define NO_REPLICAOF "a node becomes no replica so, and a replica of a cluster says MOVED"
#define NO_CLUSTER "of a client that takes a node for a server"
static const struct clustered_skip skipped[] = {
    {"renewals_of_a_batch_*", NO_BATCHES},
    {"renewal_that_is_forgotten_leaves_its_batch_in_order", NO_BATCHES},
    {"batch_*", NO_BATCHES},
    {"read_only_server_refuses_for_now", NO_REPLICAOF},
    {"server_that_may_not_write_is_left", NO_REPLICAOF},
    {"renewal_that_changes_nothing_is_refused_by_a_replica", NO_REPLICAOF},
    {"servers_that_never_write_are_not_stormed", NO_REPLICAOF},
    {"answers_behind_a_refusal_to_write_are_read", NO_REPLICAOF},
    {"replica_is_followed_by_the_next", NO_REPLICAOF},
    {"replica_is_not_used", NO_REPLICAOF},
    {"real_replica_is_not_used", NO_REPLICAOF},
    {"writable_replica_that_hides_info_is_not_used", NO_REPLICAOF},
    {"role_is_told_by_hello_where_info_is_refused", NO_REPLICAOF},
    {"primary_that_was_demoted_is_left_by_all", NO_REPLICAOF},
    {"replica_that_cannot_mark_is_followed_by_the_next_address", NO_CLUSTER},
    {"server_that_refuses_for_now_is_kept", NO_CLUSTER},
    {"node_that_serves_other_keys_is_seldom_left", NO_CLUSTER},
    {"keys_of_two_slots_are_refused_and_leave_nothing", NO_CLUSTER},
    {"refused_handshake_is_done_without_or_ends_the_connection", "it has a database, and replicas"},
    {"question_that_is_cut_off_is_asked_again", "a node is asked when its slots are known"},
    {"push_connection_that_has_the_new_ones_is_kept", "it looks at what a server's store has"},
    {"time_for_replicas_is_bounded", "it looks at what a server's store has"},
    {"server_killed_without_data_notifies_the_holder",
     "a node that starts says CLUSTERDOWN for two seconds, and so to the check of the hold"},
    {NULL, NULL},
};

#define TEST(f) cmocka_unit_test_setup_teardown(f, test_begins, test_ends)

int main(int argc, char **argv) {
    struct CMUnitTest tests[] = {
        /* This one is first: the library finds it out once and keeps it. */
        TEST(fork_is_seen_whatever_the_kernel_can_do),
        TEST(missing_socket_is_no_connection),
        TEST(refused_port_is_no_connection),
        TEST(silent_listener_is_no_connection),
        TEST(wrong_password_is_reported),
        TEST(missing_password_is_reported),
        TEST(first_connect_is_retried_until_the_server_is_there),
        TEST(read_only_server_refuses_for_now),
        TEST(server_without_replicas_refuses_for_now),
        TEST(server_busy_with_a_script_refuses_for_now),
        TEST(server_out_of_memory_refuses_acquires_alone),
        TEST(permission_taken_in_mid_run_is_reported),
        TEST(password_changed_in_mid_run_is_reported),
        TEST(stopped_server_makes_each_operation_unknown),
        TEST(unreachable_server_is_no_connection),
        TEST(server_with_too_many_clients_refuses_for_now),
        TEST(full_server_is_reported_with_its_words_every_time),
        ON_EACH_WIRE(key_of_another_type_is_refused_or_lost_and_left_alone),
        ON_EACH_WIRE(server_killed_without_data_notifies_the_holder),
        TEST(release_finds_its_server_again),
        TEST(server_stopped_for_3_s_ends_short_holds_and_spares_long_ones),
        ON_EACH_WIRE(connections_may_be_killed_in_every_state),
        TEST(paused_clients_are_waited_for),
        TEST(loading_server_is_waited_for),
        TEST(black_holed_holder_is_notified_by_its_deadline),
        TEST(black_holed_renewal_and_release_are_unknown),
        ON_EACH_WIRE(replies_split_at_every_byte_are_understood),
        TEST(validity_counts_from_the_sending),
        ON_EACH_WIRE(reply_after_its_own_deadline_is_refused),
        ON_EACH_WIRE(unanswered_acquire_is_retried_and_granted_once),
        ON_EACH_WIRE(unanswered_try_is_unknown_and_cleaned_up),
        TEST(unanswered_release_is_sent_again),
        ON_EACH_WIRE(acquire_that_an_old_connection_still_carries_is_waited_for),
        ON_EACH_WIRE(lies_grant_nothing),
        TEST(lies_answer_no_question),
        TEST(unexpected_reply_ends_the_connection),
        TEST(message_of_an_unknown_shape_ends_the_connection),
        TEST(proxy_that_closes_at_a_step_of_the_handshake_is_no_connection),
        TEST(server_that_closes_at_once_is_not_stormed),
        ON_EACH_WIRE(refusal_inside_a_script_is_reported_in_every_wording),
        ON_EACH_WIRE(tracking_refused_for_a_moment_is_asked_for_again),
        TEST(wrong_reply_is_no_answer_and_ends_the_connection),
        TEST(fence_of_a_queued_kind_is_as_exact_and_may_have_its_mark),
        TEST(server_that_never_knows_a_script_is_not_asked_for_ever),
        TEST(release_by_one_command_is_as_exact_as_by_script),
        TEST(release_by_one_command_is_given_up_for_good_by_a_refusal),
        TEST(release_by_one_command_is_known_of_a_connection_only),
        TEST(last_write_of_a_client_is_no_single_command),
        TEST(error_inside_a_script_is_what_it_says_inside),
        TEST(name_of_a_user_or_a_key_is_no_code),
        ON_EACH_WIRE(users_and_keys_with_the_names_of_codes_are_reported_as_any_other),
        TEST(renewals_of_a_batch_are_as_exact_as_alone),
        TEST(batch_that_the_server_never_knows_is_not_asked_for_ever),
        TEST(batch_without_an_answer_is_unknown_for_each),
        TEST(batch_has_room_for_what_is_alike),
        TEST(renewal_that_is_forgotten_leaves_its_batch_in_order),
        TEST(batch_outlives_its_handles_and_its_client),
        TEST(batch_for_which_there_is_no_memory_goes_alone_or_ends),
        TEST(batch_needs_no_memory_that_was_not_there_before),
        TEST(password_alone_is_sent_alone),
        TEST(refused_handshake_is_done_without_or_ends_the_connection),
        TEST(proxy_that_refuses_in_its_own_words_serves),
        TEST(role_is_told_by_hello_where_info_is_refused),
        TEST(handshake_leaves_together),
        TEST(lost_connection_is_killed_only_where_the_server_is_known_to_be_the_same),
        TEST(long_words_are_cut),
        TEST(server_that_left_is_quoted_though_a_write_found_out),
        TEST(connect_that_hangs_ends_after_the_command_timeout),
        TEST(name_that_the_loop_refuses_to_resolve_is_no_connection),
        TEST(name_that_takes_long_is_reported_and_waited_for),
        TEST(client_may_be_freed_by_a_callback_when_its_name_is_answered),
        TEST(address_of_version_6_needs_no_resolver),
        TEST(address_of_version_6_keeps_its_scope),
        TEST(path_that_is_too_long_for_a_socket_is_refused),
        TEST(descriptor_that_the_loop_does_not_watch_is_no_connection),
        TEST(push_connection_goes_where_the_other_went),
        TEST(name_that_was_answered_late_and_led_nowhere_is_given_up),
        TEST(address_that_refuses_is_followed_by_the_next_at_once),
        TEST(addresses_that_all_refuse_are_one_failure),
        TEST(address_that_is_silent_is_followed_by_the_next_after_a_moment),
        TEST(patience_with_a_silent_address_grows_up_to_the_command_timeout),
        TEST(walk_that_takes_long_is_reported_on_its_way),
        TEST(refused_password_is_reported_without_trying_other_addresses),
        TEST(server_that_is_not_ready_is_followed_by_the_next),
        TEST(replica_is_followed_by_the_next),
        TEST(last_good_address_serves_while_the_resolver_fails),
        TEST(tracking_is_asked_for_again_however_it_failed),
        TEST(client_may_be_freed_while_its_tracking_is_not_answered),
        TEST(process_that_slept_over_an_unanswered_tracking_recovers),
        TEST(tracking_answered_for_a_connection_that_went_is_none),
        ON_EACH_WIRE(server_that_hides_client_ids_is_polled_or_listened_to),
        TEST(messages_of_tracking_wake_only_the_waiters_of_their_keys),
        TEST(messages_of_channels_wake_only_whom_they_name),
        TEST(key_that_is_wanted_before_channels_work_is_listened_to_later),
        TEST(message_that_is_not_a_notification_wakes_no_waiter),
        TEST(subscription_to_a_channel_that_is_not_ours_ends_the_connection),
        TEST(waiter_that_may_not_listen_to_its_own_channel_hears_of_changes_and_polls_for_its_turn),
        TEST(who_may_not_listen_to_changes_polls_for_its_turn_and_is_called_neither),
        TEST(message_of_a_short_channel_wakes),
        TEST(server_that_unsubscribes_us_is_polled),
        TEST(message_that_answers_no_subscription_ends_the_connection),
        TEST(head_of_a_huge_array_ends_the_connection),
        TEST(answer_that_came_while_the_process_slept_is_taken),
        TEST(release_that_was_slept_over_ends_once),
        TEST(lease_asked_for_in_a_long_callback_counts_from_its_end),
        TEST(renewal_near_its_deadline_goes_before_an_acquire),
        TEST(every_failing_allocation_is_survived_on_redis),
        TEST(every_command_that_hiredis_refuses_is_survived),
        TEST(client_without_random_bytes_is_refused),
        TEST(client_needs_no_file_for_random_bytes),
        TEST(kernel_without_boottime_gets_the_monotonic_clock),
        TEST(child_that_returns_to_hiredis_closes_nothing),
        TEST(child_that_returns_to_hiredis_writes_nothing),
        TEST(keys_of_two_slots_are_refused_and_leave_nothing),
        TEST(command_that_the_server_does_not_know_leaves_nothing),
        TEST(script_that_the_server_never_runs_leaves_no_place),
        TEST(server_that_forbids_time_in_scripts_says_so_and_keeps_nothing),
        TEST(words_that_are_not_known_may_stand_for_anything),
        TEST(refusal_for_now_is_tried_again_and_leaves_nothing),
        TEST(error_inside_the_script_of_a_queue_is_cleaned_up_behind),
        TEST(only_a_restart_makes_sure_that_nothing_comes_late),
        TEST(restart_of_another_server_makes_nothing_sure),
        TEST(address_that_moved_once_does_not_hinder_later_kills),
        TEST(unanswered_change_by_an_operator_is_killed_before_anything_else),
        TEST(push_connection_at_another_server_is_not_used),
        TEST(server_that_may_not_write_is_left),
        TEST(server_that_refuses_for_now_is_kept),
        TEST(answers_behind_a_refusal_to_write_are_read),
        TEST(answer_that_comes_after_a_refusal_to_write_counts),
        TEST(servers_that_never_write_are_not_stormed),
        TEST(node_that_serves_other_keys_is_seldom_left),
        TEST(replica_is_not_used),
        TEST(real_replica_is_not_used),
        TEST(writable_replica_that_hides_info_is_not_used),
        TEST(renewal_that_changes_nothing_is_refused_by_a_replica),
        TEST(primary_that_was_demoted_is_left_by_all),
        TEST(sentinel_says_where_the_primary_is),
        TEST(primary_that_moved_is_followed_within_a_second),
        TEST(primary_that_moved_to_another_port_is_followed),
        TEST(address_of_a_sentinel_is_mapped_to_an_address_or_kept),
        TEST(older_configuration_moves_nothing),
        TEST(sentinel_without_an_answer_is_followed_by_the_next),
        TEST(silence_of_all_sentinels_is_reported),
        TEST(holders_go_on_without_sentinels),
        TEST(sentinel_that_comes_back_behind_moves_nothing),
        TEST(sentinels_that_were_recreated_are_followed_though_one_is_lost),
        TEST(sentinel_that_lies_is_left_for_another),
        TEST(sentinel_that_lied_and_went_away_is_left),
        TEST(hidden_epoch_is_done_without),
        TEST(epoch_that_is_not_known_is_done_without),
        TEST(address_of_the_same_epoch_is_for_the_next_attempt),
        TEST(address_that_changes_between_two_answers_is_not_believed),
        TEST(client_is_freed_under_a_question),
        TEST(each_gets_its_own_password_alone),
        TEST(password_that_the_sentinels_refuse_is_reported),
        TEST(names_of_sentinels_and_primaries_are_resolved),
        TEST(addresses_of_the_name_of_a_sentinel_are_tried),
        TEST(address_instead_of_a_name_is_used_at_once),
        TEST(late_address_of_another_name_is_not_used),
        TEST(name_that_hangs_delays_no_other_name_of_the_primary),
        TEST(names_that_hang_are_bounded),
        TEST(name_that_hangs_hides_no_other_sentinel),
        TEST(name_of_a_sentinel_that_comes_after_its_turn_is_used),
        TEST(number_does_not_wait_for_the_name_before),
        TEST(name_that_is_reported_while_a_sentinel_is_asked_leads_nowhere),
        TEST(addresses_of_a_sentinel_are_tried_until_one_answers),
        TEST(sentinel_of_two_addresses_is_one_opinion),
        TEST(client_may_be_freed_at_each_step_to_the_primary),
        TEST(log_may_fork_at_each_step_to_the_primary),
        TEST(memory_may_fail_at_each_step_to_the_primary),
        TEST(sentinels_of_a_configuration_are_checked),
        TEST(other_fields_beside_sentinels_are_checked),
        TEST(key_that_no_node_has_is_refused_for_now),
        TEST(slots_that_no_node_has_any_more_come_back),
        TEST(map_that_is_none_is_asked_for_again),
        TEST(map_that_is_refused_is_reported),
        TEST(seed_that_has_no_map_is_passed_over),
        TEST(map_without_slots_changes_nothing),
        TEST(map_that_is_older_than_a_redirection_is_asked_for_again),
        TEST(what_nodes_say_of_nodes_is_mapped),
        TEST(node_that_is_left_may_speak_in_that_turn),
        TEST(node_that_waits_for_replicas_is_not_left),
        TEST(grant_that_was_given_back_leaves_no_doubt),
        TEST(grant_on_the_way_is_given_back_on_the_way),
        TEST(grant_on_the_way_is_let_go_though_memory_is_refused),
        TEST(node_whose_name_is_looked_up_is_not_left),
        TEST(name_that_hangs_hides_no_other_node_of_a_cluster),
        TEST(question_for_the_map_that_is_lost_is_asked_again),
        TEST(client_that_ends_while_it_asks_for_the_map_leaves_nothing),
        TEST(nodes_of_a_large_cluster_are_all_served),
        TEST(redirection_that_is_none_is_not_followed),
        TEST(node_that_is_asked_hears_asking_before_each_command),
        TEST(request_that_asks_waits_at_the_node_that_was_named),
        TEST(request_that_was_led_to_a_dead_node_comes_back),
        TEST(request_that_waits_moves_with_its_slot),
        TEST(command_that_is_refused_behind_its_asking_ends_the_connection),
        TEST(every_failing_allocation_on_the_way_to_a_node_is_survived),
        TEST(question_that_is_refused_by_hiredis_is_asked_again),
        TEST(node_that_is_lost_often_gets_new_epochs),
        TEST(clusters_of_a_configuration_are_checked),
        TEST(seeds_of_a_store_are_checked),
        ON_EACH_WIRE(nothing_is_granted_in_quarantine),
        TEST(no_kind_is_granted_in_quarantine),
        TEST(quarantine_keeps_what_is_held),
        TEST(quarantine_lets_a_hold_be_handed_over),
        TEST(server_that_cannot_tell_grants_no_lock),
        TEST(server_that_can_tell_again_serves_at_once),
        TEST(replica_that_cannot_mark_is_left),
        TEST(replica_that_cannot_mark_is_followed_by_the_next_address),
        TEST(nonsense_for_an_answer_is_the_longest_quarantine),
        TEST(quarantine_is_asked_for_with_the_handshake),
        TEST(quarantine_may_end_without_a_connection),
        TEST(lease_above_the_quarantine_is_refused),
        TEST(key_of_the_marker_is_refused),
        TEST(attempt_waits_until_the_node_was_asked),
        TEST(node_that_said_moved_is_asked_once_more),
        TEST(question_that_is_cut_off_is_asked_again),
        TEST(node_is_notified_of_what_is_known_of_it),
        TEST(asking_may_be_cut_off),
        TEST(sharded_channel_without_memory_is_asked_for_again),
        TEST(sharded_message_of_another_shape_ends_the_connection),
        TEST(node_whose_slots_become_known_in_its_handshake_is_asked_after_it),
        TEST(node_without_slots_may_say_moved),
        TEST(grants_of_one_turn_are_asked_about_once),
        TEST(grant_that_is_not_copied_is_given_back),
        TEST(renewal_that_is_not_copied_does_not_count),
        TEST(renewals_of_a_batch_are_synced_each),
        TEST(refused_wait_is_said_once_and_grants_nothing),
        TEST(grant_that_is_cut_off_is_cleaned_up),
        TEST(grant_whose_give_back_is_lost_is_not_released_late),
        TEST(waiter_may_leave_while_its_grant_is_synced),
        TEST(grant_may_be_cut_off_while_it_is_given_back),
        TEST(wait_that_cannot_be_sent_leaves_nothing),
        TEST(question_is_out_once_at_a_time),
        TEST(load_on_a_slow_replica_ends_no_hold),
        TEST(load_without_replicas_is_refused_in_time),
        TEST(waiters_are_granted_soon_after_a_replica_is_back),
        TEST(grant_between_two_questions_is_not_forgotten),
        TEST(client_that_is_freed_during_a_wait_releases_its_holds),
        TEST(client_that_is_freed_without_a_wait_releases_once),
        TEST(client_without_its_push_connection_is_freed_during_a_wait),
        TEST(first_question_waits_for_the_push_connection),
        TEST(time_for_replicas_is_bounded),
        TEST(redirection_may_have_more_words),
        TEST(node_without_a_name_has_its_address_behind),
        TEST(node_that_is_being_connected_to_is_not_left),
        TEST(node_that_may_grant_nothing_is_not_asked_for_the_map),
        TEST(node_whose_connection_is_broken_is_not_asked_for_the_map),
        TEST(node_that_owes_a_map_is_not_asked_for_another),
        TEST(name_of_a_node_that_cannot_be_looked_up_is_reported),
        TEST(row_of_the_first_map_without_memory_is_read_from_the_next),
        TEST(hold_is_kept_while_its_key_cannot_be_watched),
        TEST(waiter_may_leave_while_no_node_has_its_key),
        TEST(key_that_a_server_refuses_a_cluster_refuses),
        TEST(store_of_the_user_goes_before_a_cluster),
        TEST(port_of_a_name_that_is_not_found_is_not_shown),
        TEST(secret_that_a_server_repeats_is_shown_nowhere),
        TEST(secret_that_a_server_of_a_quorum_repeats_is_shown_nowhere),
        TEST(secret_that_sentinels_repeat_is_shown_nowhere),
        TEST(secret_that_nodes_repeat_is_shown_nowhere),
        TEST(words_of_tls_are_shown_like_a_servers),
        TEST(host_that_is_longer_than_an_address_is_a_name),
        TEST(localhost_is_reached_whatever_version_6_is_here),
        TEST(name_is_asked_for_again_after_a_lack_of_memory),
        TEST(name_that_is_reported_twice_is_taken_once),
        TEST(name_of_a_later_sentinel_is_found_among_all),
        TEST(name_that_is_wanted_again_is_waited_for_again),
        TEST(client_whose_store_gets_no_memory_is_refused),
        TEST(cluster_that_gets_no_memory_is_refused),
        TEST(node_whose_replicas_are_not_asked_yet_is_not_left),
        TEST(client_that_listens_to_sharded_channels_is_freed_during_a_wait),
        TEST(hook_may_fork_while_the_nodes_are_closed),
        TEST(answer_before_the_new_rights_counts_unless_they_are_the_reason),
        TEST(release_before_the_new_rights_ends_as_it_is_answered),
        TEST(credentials_that_follow_each_other_are_accepted_once),
        TEST(wrong_answer_to_new_credentials_ends_the_connection),
        TEST(push_connection_that_has_the_new_ones_is_kept),
        TEST(new_credentials_hurry_only_who_was_refused_the_old_ones),
        TEST(client_that_could_not_send_new_credentials_may_be_freed_at_once),
        TEST(credentials_for_which_there_is_no_memory_are_refused),
        TEST(credentials_that_cannot_be_sent_are_those_of_the_next_connection),
        TEST(list_is_as_long_as_it_is_well_formed),
        TEST(list_of_a_server_that_says_more_is_cut),
        TEST(list_that_is_refused_comes_with_the_first_reason),
        TEST(list_that_is_cut_off_is_an_unknown_answer),
        TEST(client_may_be_freed_while_a_list_is_asked_for),
        TEST(list_for_which_there_is_no_memory_is_refused_or_left_out),
    };

    return clustered_run("faults", tests, sizeof tests / sizeof *tests, skipped, group_begins,
                         group_ends, argc > 1 ? argv[1] : NULL);
}
