/* unit_questions.h - questions about a key, and forced releases */
#ifndef TESTS_UNIT_QUESTIONS_H
#define TESTS_UNIT_QUESTIONS_H

static struct {
    int count;
    rlock_info info;
    char token[64], text[64];
    void (*react)(void);
} told;

static void on_info(rlock_client *client, const rlock_info *info, void *user) {
    assert_ptr_equal(client, g.client);
    assert_ptr_equal(user, &told);
    SAME(virtual_depth, 0);
    assert_true(g.loop.entered);
    told.count++;
    told.info = *info;
    snprintf(told.token, sizeof told.token, "%s", info->token != NULL ? info->token : "");
    snprintf(told.text, sizeof told.text, "%s", info->text != NULL ? info->text : "");
    if (info->token != NULL) {
        SAME(info->token[info->token_len], 0);
    }
    if (told.react != NULL) {
        told.react();
    }
}

static rlock_answer scripted_info(rlock_info *info) {
    rlock_answer answer = scripted_done();
    memset(info, 0, sizeof *info);
    info->holders = 2;
    info->left_ms = 1500;
    info->waiters = 3;
    info->permits = 4;
    info->position = 1;
    info->token = "who?me";
    info->token_len = 6;
    answer.info = info;
    return answer;
}

static void ask_about(rlock_kind kind, const char *key) {
    rlock_options options;
    g.kind = kind;
    options = options_for(key);
    memset(&told, 0, sizeof told);
    SAME(rlock_inspect(g.client, &options, on_info, &told), RLOCK_OK);
    SAME(told.count, 0);
    need(RLOCK_OP_INSPECT);
}

static void question_is_answered_once_with_what_the_server_said(void **state) {
    rlock_info info;
    rlock_options options;
    (void)state;
    ask_about(RLOCK_KIND_FAIR, "key");
    reply(RLOCK_OP_INSPECT, scripted_info(&info));
    SAME(told.count, 1);
    SAME(told.info.status, RLOCK_OK);
    SAME(told.info.holders, 2);
    SAME(told.info.left_ms, 1500);
    SAME(told.info.waiters, 3);
    SAME(told.info.permits, 4);
    SAME(told.info.position, 1);
    SAME(told.info.token_len, 6);
    assert_string_equal(told.token, "who?me");
    options = options_for("key");
    SAME(rlock_force_release(g.client, &options, on_info, &told), RLOCK_OK);
    SAME(rlock_force_release(g.client, &options, NULL, NULL), RLOCK_OK);
    reply(RLOCK_OP_FORCE, scripted_info(&info));
    reply(RLOCK_OP_FORCE, scripted_info(&info));
    SAME(told.count, 2);
    g.kind = RLOCK_KIND_SEMAPHORE;
    options = options_for("key");
    SAME(rlock_set_permits(g.client, &options, 9, on_info, &told), RLOCK_OK);
    SAME(need(RLOCK_OP_SET_PERMITS)->permits, 9);
    reply(RLOCK_OP_SET_PERMITS, scripted_info(&info));
    SAME(told.count, 3);
    run_ms(5000);
    SAME(told.count, 3);
    SAME(g.client->gates.count, 0);
}

/* While handles want a key as different things, each release searches for the others. */
static void question_leaves_nothing_behind_that_each_release_would_look_for(void **state) {
    struct owner *sets[2];
    rlock_info info;
    (void)state;
    (void)kind_holder(RLOCK_KIND_MUTEX, "key", FOR_LONG);
    SAME(g.client->mixed, 0);
    ask_about(RLOCK_KIND_FAIR, "key");
    SAME(g.client->mixed, 1);
    reply(RLOCK_OP_INSPECT, scripted_info(&info));
    SAME(g.client->mixed, 0);
    sets[0] = of_keys("a", "key", "c");
    sets[1] = of_keys("c", "key", "a");
    SAME(g.client->mixed, 4);
    owner_free(sets[0]);
    SAME(g.client->mixed, 1);
    owner_free(sets[1]);
    SAME(g.client->mixed, 0);
}

static void question_ends_by_each_fault_as_a_single_try_does(void **state) {
    int fault;
    (void)state;
    for (fault = 0; fault < FAULTS; fault++) {
        ask_about(RLOCK_KIND_FAIR, "key");
        reply(RLOCK_OP_INSPECT, scripted_fault((rlock_fault)fault, "words of the server"));
        SAME(told.count, 1);
        SAME(told.info.status, fault_operation[fault][TRY]);
        SAME(told.info.position, -1);
        SAME(told.info.holders, 0);
        assert_string_equal(told.text, "words of the server");
    }
    ask_about(RLOCK_KIND_FAIR, "key");
    reply(RLOCK_OP_INSPECT, scripted_done()); /* with nothing in it */
    SAME(told.info.status, RLOCK_ERR_SERVER);
    assert_string_equal(told.text, "unexpected reply");
    ask_about(RLOCK_KIND_FAIR, "key");
    reply(RLOCK_OP_INSPECT, scripted_held(5));
    SAME(told.info.status, RLOCK_ERR_SERVER);
}

static void question_without_an_answer_ends_after_a_command_timeout(void **state) {
    (void)state;
    ask_about(RLOCK_KIND_FAIR, "key"); /* sent */
    run_ms(999);
    SAME(told.count, 0);
    run_ms(2);
    SAME(told.count, 1);
    SAME(told.info.status, RLOCK_ERR_UNKNOWN);
    g.store.unsent = true;
    ask_about(RLOCK_KIND_FAIR, "key");
    run_ms(1001);
    SAME(told.count, 1);
    SAME(told.info.status, RLOCK_ERR_CONN);
    scripted_down(&g.store, RLOCK_FAULT_AUTH, "NOAUTH");
    ask_about(RLOCK_KIND_FAIR, "key");
    run_ms(1001);
    SAME(told.info.status, RLOCK_ERR_AUTH);
    assert_string_equal(told.text, "NOAUTH");
    scripted_up(&g.store); /* those words are not of this fault */
    ask_about(RLOCK_KIND_FAIR, "key");
    run_ms(1001);
    SAME(told.info.status, RLOCK_ERR_CONN);
    assert_string_equal(told.text, UNSENT);
}

static void questions_end_when_the_connection_does(void **state) {
    int sent;
    (void)state;
    for (sent = 0; sent < 2; sent++) {
        g.store.unsent = sent == 0;
        ask_about(RLOCK_KIND_FAIR, "key");
        scripted_down(&g.store, RLOCK_FAULT_DOWN, "refused");
        SAME(told.count, 1);
        SAME(told.info.status, sent ? RLOCK_ERR_UNKNOWN : RLOCK_ERR_CONN);
        assert_string_equal(told.text, "refused");
    }
    run_ms(5000);
    SAME(told.count, 1);
}

static void answer_and_down(void) {
    g.store.events->down(g.store.owner, NULL, RLOCK_FAULT_DOWN, "refused");
}

/* A question that is answered and not reported yet is not changed by what comes meanwhile. */
static void answered_question_is_not_ended_again(void **state) {
    rlock_info info;
    (void)state;
    ask_about(RLOCK_KIND_FAIR, "key");
    told.react = answer_and_down;
    scripted_answer(&g.store, need(RLOCK_OP_INSPECT), scripted_info(&info));
    scripted_push(&g.store, SCRIPTED_DOWN)->answer = scripted_fault(RLOCK_FAULT_DOWN, "refused");
    idle();
    SAME(told.count, 1);
    SAME(told.info.status, RLOCK_OK);
    run_ms(5000);
    SAME(told.count, 1);
}

/* The loop stalled: its answer and the end of the shutdown's time are found in one turn. */
static void question_that_was_answered_is_not_ended_by_the_end_of_a_shutdown(void **state) {
    rlock_info info;
    (void)state;
    ask_about(RLOCK_KIND_FAIR, "key");
    SAME(rlock_client_shutdown(g.client, 500, on_done, &g), RLOCK_OK);
    scripted_answer(&g.store, need(RLOCK_OP_INSPECT), scripted_info(&info));
    stall_ms(600);
    idle();
    SAME(told.count, 1);
    SAME(told.info.status, RLOCK_OK);
    SAME(told.info.holders, 2);
    SAME(g.done_count, 1);
}

/* Each question has a timer; the table of timers grows now and then. */
static void question_for_whose_timer_there_is_no_memory_is_not_asked(void **state) {
    rlock_options options;
    int i, none = 0;
    (void)state;
    (void)kind_handle(RLOCK_KIND_FAIR, "key"); /* the key is known, and stays so */
    options = options_for("key");
    memset(&told, 0, sizeof told);
    for (i = 0; i < 40; i++) {
        size_t live = virtual_memory.live;
        int status;
        virtual_memory.failed = false;
        virtual_memory.fail_at = 2; /* the one after the question itself */
        status = rlock_inspect(g.client, &options, on_info, &told);
        virtual_memory.fail_at = 0;
        SAME(status, virtual_memory.failed ? RLOCK_ERR_NOMEM : RLOCK_OK);
        if (virtual_memory.failed) {
            none++;
            SAME(virtual_memory.live, live);
            SAME(rlock_inspect(g.client, &options, on_info, &told), RLOCK_OK);
        }
    }
    BETWEEN(none, 1, 4);
    SAME(asked(RLOCK_OP_INSPECT), 40);
    scripted_settle(&g.store);
    SAME(told.count, 40);
}

static void question_of_a_freed_client_is_not_answered(void **state) {
    rlock_info info;
    (void)state;
    ask_about(RLOCK_KIND_FAIR, "key"); /* with the store */
    free_client();
    run_ms(5000);
    SAME(told.count, 0);
    start();
    ask_about(RLOCK_KIND_FAIR, "key"); /* answered, not reported */
    scripted_answer(&g.store, need(RLOCK_OP_INSPECT), scripted_info(&info));
    (void)virtual_earliest(&g.loop, INT64_MAX);
    g.loop.entered = true;
    rlock__settle(g.client);
    g.loop.entered = false;
    rlock__leave(g.client);
    free_client();
    run_ms(5000);
    SAME(told.count, 0);
    start();
}

static void free_the_client(void) {
    free_client();
}

static void ask_once_more(void) {
    rlock_options options = options_for("key");
    told.react = NULL;
    SAME(rlock_inspect(g.client, &options, on_info, &told), RLOCK_OK);
    SAME(told.count, 1);
}

static void client_may_be_freed_or_asked_in_the_callback_of_a_question(void **state) {
    rlock_info info;
    (void)state;
    ask_about(RLOCK_KIND_FAIR, "key");
    told.react = ask_once_more;
    reply(RLOCK_OP_INSPECT, scripted_info(&info));
    SAME(told.count, 1);
    reply(RLOCK_OP_INSPECT, scripted_info(&info));
    SAME(told.count, 2);
    ask_about(RLOCK_KIND_FAIR, "key");
    told.react = free_the_client;
    scripted_answer(&g.store, need(RLOCK_OP_INSPECT), scripted_info(&info));
    idle();
    SAME(told.count, 1);
    SAME(virtual_memory.live, 0);
    start();
}

static void position_is_asked_with_the_token_of_who_waits(void **state) {
    struct owner *waits = in_queue(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
    rlock_info info;
    (void)state;
    memset(&told, 0, sizeof told);
    SAME(rlock_queue_position(waits->lock, on_info, &told), RLOCK_OK);
    SAME(need(RLOCK_OP_INSPECT)->token, token_of(waits));
    reply(RLOCK_OP_INSPECT, scripted_info(&info));
    SAME(told.info.position, 1);
    SAME(rlock_queue_position(waits->lock, on_info, &told), RLOCK_OK);
    owner_free(waits); /* the question goes on without it */
    scripted_settle(&g.store);
    SAME(told.count, 2);
    run_ms(5000);
    SAME(told.count, 2);
    SAME(g.client->gates.count, 0);
}

static void ask_for_the_position_of_another(struct owner *owner, const rlock_event *event) {
    const struct owner *other = (const struct owner *)owner->context;
    (void)event;
    if (other->events == 0) {
        SAME(rlock_queue_position(other->lock, on_info, &told), RLOCK_OK);
    }
}

/* Two waits end in one dispatch: who has not heard so yet waits, for its callback, in no queue. */
static void position_is_asked_without_a_token_when_the_wait_is_over(void **state) {
    struct owner *waits[2];
    rlock_info info;
    int i;
    (void)state;
    memset(&told, 0, sizeof told);
    for (i = 0; i < 2; i++) {
        waits[i] = in_queue(RLOCK_KIND_FAIR, "key", 1000);
        waits[i]->react = ask_for_the_position_of_another;
    }
    waits[0]->context = waits[1];
    waits[1]->context = waits[0];
    run_ms(1000);
    SAME(waits[0]->events + waits[1]->events, 2);
    SAME(need(RLOCK_OP_INSPECT)->token, 0);
    reply(RLOCK_OP_INSPECT, scripted_info(&info));
    SAME(told.count, 1);
    scripted_settle(&g.store);
}

#if RLOCK__HAS_TOKENS
/* The number of an adopted token is one of another client's. */
static void position_is_asked_without_a_token_while_another_clients_is_adopted(void **state) {
    struct owner *owner = kind_handle(RLOCK_KIND_FAIR, "key");
    rlock_info info;
    (void)state;
    memset(&info, 0, sizeof info);
    memset(&told, 0, sizeof told);
    SAME(owner_adopt(owner, PROOF, 1000), RLOCK_OK);
    idle();
    SAME(need(RLOCK_OP_RENEW)->token, 17);
    SAME(rlock_queue_position(owner->lock, on_info, &told), RLOCK_OK);
    idle();
    SAME(need(RLOCK_OP_INSPECT)->token, 0);
    reply(RLOCK_OP_INSPECT, scripted_info(&info));
    SAME(told.count, 1);
    reply(RLOCK_OP_RENEW, scripted_plain(RLOCK_OUTCOME_GONE));
}
#endif

static void position_of_who_does_not_wait_in_a_line_is_not_asked(void **state) {
    struct owner *fair = kind_handle(RLOCK_KIND_FAIR, "key"), *mutex;
    (void)state;
    mutex = kind_handle(RLOCK_KIND_MUTEX, "other");
    SAME(owner_acquire(mutex, RLOCK_FOREVER, 1000), RLOCK_OK);
    SAME(rlock_queue_position(NULL, on_info, &told), RLOCK_ERR_ARG);
    SAME(rlock_queue_position(fair->lock, NULL, &told), RLOCK_ERR_ARG);
    SAME(rlock_queue_position(fair->lock, on_info, &told), RLOCK_ERR_STATE);
    SAME(rlock_queue_position(mutex->lock, on_info, &told), RLOCK_ERR_STATE);
    SAME(owner_acquire(fair, RLOCK_FOREVER, 1000), RLOCK_OK);
    SAME(rlock_client_shutdown(g.client, 0, NULL, NULL), RLOCK_OK);
    SAME(rlock_queue_position(fair->lock, on_info, &told), RLOCK_ERR_CLOSED);
    free_client();
    SAME(rlock_queue_position(fair->lock, on_info, &told), RLOCK_ERR_CLOSED);
    SAME(rlock_queue_position(mutex->lock, on_info, &told), RLOCK_ERR_STATE);
    start();
}

/* Returns options of which one thing is wrong, another one in each row. */
static rlock_options wrong_options(int row) {
    static const char *const keys[] = {"a", "b"}, *const alike[] = {"a", "a"},
                             *const hole[] = {"a", NULL}, *const empty[] = {"a", ""};
    static const size_t lens[] = {1, 0};
    rlock_options options;
    g.kind = row % 2 ? RLOCK_KIND_SEMAPHORE : RLOCK_KIND_MUTEX;
    options = options_for(row < 12 ? "key" : NULL);
    options.keys = row < 12 ? NULL : keys;
    options.key_count = row < 12 ? 0 : 2;
    switch (row) {
    case 0: options.permits = 1; break;
    case 1: options.permits = 0; break;
    case 2: options.weight = 1; break;
    case 3: options.permits = RLOCK_PERMITS_MAX + 1; break;
    case 4: options.owner = 1; break;
    case 5: options.weight = 3; break;
    case 6: options.kind = (rlock_kind)5; break;
    case 7: options.owner = 1; break;
    case 8: options.kind = (rlock_kind)-1; break;
    case 9: options.key = ""; break;
    case 10: options.key = NULL; break;
    case 11: options.keys = keys; break;
    case 12: options.key_count = 0; break;
    case 14: options.keys = alike; break;
    case 16: options.keys = hole; break;
    case 18: options.keys = empty; break;
    case 20: options.key_lens = lens; break;
    case 22: options.key_len = 1; break;
    case 24: options.key_count = RLOCK_KEYS_MAX + 1; break;
    default: break; /* odd rows: the kind, as several keys are for a MUTEX only */
    }
    return options;
}

static void wrong_options_are_refused_by_handles_and_questions(void **state) {
    int row;
    (void)state;
    memset(&told, 0, sizeof told);
    for (row = 0; row < 25; row++) {
        rlock_options options = wrong_options(row);
        rlock *lock = NULL;
        SAME(rlock_new(&lock, g.client, &options), RLOCK_ERR_ARG);
        assert_null(lock);
        SAME(rlock_inspect(g.client, &options, on_info, &told), RLOCK_ERR_ARG);
        SAME(rlock_force_release(g.client, &options, on_info, &told), RLOCK_ERR_ARG);
        SAME(rlock_set_permits(g.client, &options, 1, on_info, &told), RLOCK_ERR_ARG);
    }
    SAME(g.store.count, 0);
    SAME(g.client->gates.count, 0);
}

static const char *refuse_all(void *state, const char *key, size_t key_len,
                              const rlock_terms *terms, bool fencing) {
    (void)state, (void)key, (void)key_len, (void)terms, (void)fencing;
    return "not here";
}

static void questions_that_cannot_be_asked_are_refused(void **state) {
    const char *keys[2] = {"a", "b"};
    rlock_options options, several;
    (void)state;
    memset(&told, 0, sizeof told);
    g.kind = RLOCK_KIND_SEMAPHORE;
    options = options_for("key");
    g.kind = RLOCK_KIND_MUTEX;
    several = options_for(NULL);
    several.keys = keys;
    several.key_count = 2;
    SAME(rlock_inspect(NULL, &options, on_info, &told), RLOCK_ERR_ARG);
    SAME(rlock_inspect(g.client, NULL, on_info, &told), RLOCK_ERR_ARG);
    SAME(rlock_inspect(g.client, &options, NULL, &told), RLOCK_ERR_ARG);
    SAME(rlock_inspect(g.client, &several, on_info, &told), RLOCK_ERR_ARG);
    SAME(rlock_force_release(NULL, &options, on_info, &told), RLOCK_ERR_ARG);
    SAME(rlock_force_release(g.client, NULL, on_info, &told), RLOCK_ERR_ARG);
    SAME(rlock_force_release(g.client, &several, on_info, &told), RLOCK_ERR_ARG);
    SAME(rlock_set_permits(NULL, &options, 1, on_info, &told), RLOCK_ERR_ARG);
    SAME(rlock_set_permits(g.client, NULL, 1, on_info, &told), RLOCK_ERR_ARG);
    SAME(rlock_set_permits(g.client, &several, 1, on_info, &told), RLOCK_ERR_ARG);
    SAME(rlock_set_permits(g.client, &options, RLOCK_PERMITS_MAX + 1, on_info, &told),
         RLOCK_ERR_ARG);
    g.store.store.refuses = refuse_all;
    SAME(rlock_inspect(g.client, &options, on_info, &told), RLOCK_ERR_ARG);
    g.store.store.refuses = NULL;
    SAME(rlock_client_shutdown(g.client, 0, NULL, NULL), RLOCK_OK);
    SAME(rlock_inspect(g.client, &options, on_info, &told), RLOCK_ERR_CLOSED);
    SAME(rlock_set_permits(g.client, &options, 1, on_info, &told), RLOCK_ERR_CLOSED);
    SAME(g.store.count, 0);
    SAME(told.count, 0);
}

/* A shutdown is done when it is answered, or with what can be said when the time is over. */
static void shutdown_is_done_after_the_questions(void **state) {
    rlock_info info;
    int answered;
    (void)state;
    for (answered = 0; answered < 2; answered++) {
        ask_about(RLOCK_KIND_FAIR, "key");
        SAME(rlock_client_shutdown(g.client, 500, on_done, &g), RLOCK_OK);
        run_ms(400);
        SAME(g.done_count, answered);
        if (answered) {
            reply(RLOCK_OP_INSPECT, scripted_info(&info));
        } else {
            run_ms(101);
        }
        SAME(told.count, 1);
        SAME(told.info.status, answered ? RLOCK_OK : RLOCK_ERR_UNKNOWN);
        SAME(g.done_count, answered + 1);
        SAME(g.done_status, answered ? RLOCK_OK : RLOCK_ERR_TIMEOUT);
        free_client();
        start();
    }
}

#endif /* TESTS_UNIT_QUESTIONS_H */
