/* unit_sets.h - gates: what a key is wanted as; and several keys in one lock */
#ifndef TESTS_UNIT_SETS_H
#define TESTS_UNIT_SETS_H

static struct owner *of_keys(const char *a, const char *b, const char *c) {
    const char *keys[3];
    rlock_options options;
    keys[0] = a, keys[1] = b, keys[2] = c;
    g.kind = RLOCK_KIND_MUTEX;
    options = options_for(NULL);
    options.keys = keys;
    options.key_count = c != NULL ? 3 : b != NULL ? 2 : 1;
    return handle_with(&options);
}

static struct owner *weighs(uint32_t permits, uint32_t weight) {
    rlock_options options;
    g.kind = RLOCK_KIND_SEMAPHORE;
    options = options_for("key");
    options.permits = permits;
    options.weight = weight;
    return handle_with(&options);
}

/* Owners and weights are properties of handles; readers and writers share one queue. */
static void same_key_is_another_gate_only_where_the_server_has_another_line(void **state) {
    struct owner *handles[10];
    int i, k, n = 0;
    (void)state;
    handles[n++] = kind_handle(RLOCK_KIND_MUTEX, "key");
    handles[n++] = kind_handle(RLOCK_KIND_FAIR, "key");
    handles[n++] = kind_handle(RLOCK_KIND_READ, "key");
    handles[n++] = weighs(3, 1);
    handles[n++] = weighs(4, 1);
    handles[n++] = of_keys("key", "b", NULL);
    handles[n++] = of_keys("b", "key", NULL);
    handles[n++] = of_keys("key", "b", "c");
    handles[n++] = of_keys("key", "bb", NULL);
    handles[n++] = of_keys("key", "d", NULL);
    for (i = 0; i < n; i++) {
        for (k = 0; k < i; k++) {
            assert_true(handles[i]->lock->gate != handles[k]->lock->gate);
        }
    }
    assert_ptr_equal(of_keys("key", NULL, NULL)->lock->gate, handles[0]->lock->gate);
    assert_ptr_equal(kind_handle(RLOCK_KIND_WRITE, "key")->lock->gate, handles[2]->lock->gate);
    assert_ptr_equal(owned(RLOCK_KIND_READ, "key", 7)->lock->gate, handles[2]->lock->gate);
    assert_ptr_equal(owned(RLOCK_KIND_WRITE, "key", 8)->lock->gate, handles[2]->lock->gate);
    assert_ptr_equal(weighs(3, 0)->lock->gate, handles[3]->lock->gate);
    assert_ptr_equal(weighs(3, 2)->lock->gate, handles[3]->lock->gate);
    assert_ptr_equal(of_keys("key", "b", "c")->lock->gate, handles[7]->lock->gate);
}

/* However many owners and weights wait, one waiter looks after the queue. */
static void waiters_with_an_owner_or_a_weight_of_their_own_cost_what_one_does(void **state) {
    enum { MANY_OWNERS = 100 };
    int kind, i, before;
    (void)state;
    for (kind = 0; kind < 2; kind++) {
        struct owner *owners[MANY_OWNERS];
        for (i = 0; i < MANY_OWNERS; i++) {
            owners[i] = kind == 0 ? owned(RLOCK_KIND_READ, "key", (uint64_t)i + 1)
                                  : weighs(1000, (uint32_t)i + 1);
            SAME(owner_acquire(owners[i], RLOCK_FOREVER, 1000), RLOCK_OK);
            idle();
            answer_to(owners[i], scripted_held(FOR_LONG));
        }
        SAME(g.client->gates.count, 1);
        always(RLOCK_OP_ACQUIRE, scripted_held(FOR_LONG));
        before = asked(RLOCK_OP_ACQUIRE);
        run_ms(5000);
        BETWEEN(asked(RLOCK_OP_ACQUIRE) - before, 9, 10);
        g.store.automatic[RLOCK_OP_ACQUIRE] = false;
        for (i = 0; i < MANY_OWNERS; i++) {
            owner_free(owners[i]);
        }
        scripted_settle(&g.store);
        memset(g.store.automatic, 0, sizeof g.store.automatic);
        SAME(g.client->gates.count, 0);
        g.loop.owned = 0;
        anew();
    }
}

/* The clean-up of a freed handle names the weight with which it asked. */
static void place_of_a_freed_handle_is_given_back_by_its_weight(void **state) {
    struct owner *first = weighs(10, 1), *heavy = weighs(10, 7);
    (void)state;
    SAME(owner_acquire(first, RLOCK_FOREVER, 1000), RLOCK_OK);
    SAME(owner_acquire(heavy, RLOCK_FOREVER, 1000), RLOCK_OK);
    idle();
    answer_to(heavy, scripted_held(FOR_LONG));
    owner_free(heavy);
    (void)weighs(10, 3);
    SAME(need(RLOCK_OP_RELEASE)->request->terms->weight, 7);
    answer_to(first, scripted_done());
    assert_true(rlock_is_held(first->lock));
}

/* The number of permits may have been lowered: waiters that are too heavy for it have lost their
 * positions. Where nobody is notified, the first lighter one must not miss its offer. */
static void heavy_first_of_the_line_does_not_look_for_who_is_lighter(void **state) {
    static const uint32_t weights[] = {5, 7, 5, 2, 3, 2, 1};
    static const bool looks[] = {true, false, false, true, false, false, true};
    struct owner *line[7];
    int i;
    (void)state;
    scripted_pushing(&g.store, 0);
    for (i = 0; i < 7; i++) {
        line[i] = weighs(10, weights[i]);
        SAME(owner_acquire(line[i], RLOCK_FOREVER, 1000), RLOCK_OK);
        idle();
        answer_to(line[i], scripted_held(FOR_LONG));
    }
    run_ms(HALF_A_TIMEOUT + 2);
    for (i = 0; i < 7; i++) {
        SAME(out_of(line[i]) != NULL, looks[i]);
    }
}

static void gates_of_one_key_may_be_freed_in_any_order(void **state) {
    uint64_t seed;
    (void)state;
    for (seed = 1; seed < 60; seed++) {
        struct owner *handles[8];
        uint64_t dice = seed;
        int left = 8;
        handles[0] = kind_handle(RLOCK_KIND_MUTEX, "a");
        handles[1] = kind_handle(RLOCK_KIND_FAIR, "b");
        handles[2] = kind_handle(RLOCK_KIND_MUTEX, "c");
        handles[3] = of_keys("a", "b", "c");
        handles[4] = of_keys("c", "a", NULL);
        handles[5] = of_keys("b", "c", NULL);
        handles[6] = of_keys("c", "b", "a");
        handles[7] = kind_handle(RLOCK_KIND_READ, "a");
        while (left > 0) {
            int which = (int)(virtual_random(&dice) % (uint32_t)left);
            scripted_woken(&g.store, "a");
            scripted_woken(&g.store, "c");
            owner_free(handles[which]);
            handles[which] = handles[--left];
        }
        SAME(g.client->gates.count, 0);
        g.loop.owned = 0;
    }
}

static void many_keys_of_many_sets_are_found_when_the_table_grows(void **state) {
    static char keys_of[120][12];
    const char *keys[3];
    rlock_options options = options_for(NULL);
    int i;
    (void)state;
    options.keys = keys;
    options.key_count = 3;
    for (i = 0; i < 120; i++) {
        snprintf(keys_of[i], sizeof keys_of[i], "%d", i);
    }
    for (i = 0; i < 100; i++) {
        keys[0] = keys_of[i];
        keys[1] = keys_of[(i + 7) % 120];
        keys[2] = keys_of[119 - i == i || 119 - i == (i + 7) % 120 ? (i + 20) % 120 : 119 - i];
        (void)handle_with(&options);
    }
    SAME(g.client->gates.count, 300);
    for (i = 0; i < 100; i++) {
        owner_free(&g.loop.owners[(i * 37) % 100]);
    }
    SAME(g.client->gates.count, 0);
    scripted_woken(&g.store, "7");
    scripted_woken(&g.store, NULL);
}

static struct owner *sleeps_for(struct owner *owner) {
    SAME(owner_acquire(owner, RLOCK_FOREVER, 1000), RLOCK_OK);
    idle();
    while (out_of(owner) != NULL) { /* asked again after it is tracked */
        answer_to(owner, scripted_held(FOR_LONG));
    }
    return owner;
}

/* Each pair has one hash; the keys of the first pair have the same length too. */
static void change_of_a_key_wakes_no_waiter_of_a_key_with_the_same_hash(void **state) {
    int i;
    (void)state;
    for (i = 0; i < VIRTUAL_TWINS; i++) {
        struct virtual_twins twins = virtual_twins(&g.client->gates);
        struct owner *other = sleeps_for(kind_handle(RLOCK_KIND_MUTEX, twins.keys[i ^ 1]));
        struct owner *waits = sleeps_for(kind_handle(RLOCK_KIND_MUTEX, twins.keys[i]));
        scripted_woken(&g.store, twins.keys[i]);
        assert_non_null(out_of(waits));
        assert_null(out_of(other));
        anew();
    }
}

static void each_key_of_a_set_wakes_who_waits_for_it(void **state) {
    static const char *const keys[] = {"b", "a", "c"};
    char own[3][2] = {"a", "b", "c"};
    struct owner *set = sleeps_for(of_keys(own[0], own[1], own[2]));
    int i;
    (void)state;
    memset(own, 0, sizeof own); /* the handle has copies */
    for (i = 0; i < 3; i++) {
        int before = asked(RLOCK_OP_ACQUIRE);
        assert_true(scripted_tracks(&g.store, keys[i]));
        scripted_woken(&g.store, "d");
        SAME(asked(RLOCK_OP_ACQUIRE), before);
        scripted_woken(&g.store, keys[i]);
        SAME(asked(RLOCK_OP_ACQUIRE), before + 1);
        answer_to(set, scripted_held(FOR_LONG));
    }
    SAME(owner_cancel(set), RLOCK_OK);
    scripted_settle(&g.store);
    run_ms(100);
    SAME(scripted_tracking(&g.store), 0);
}

static void each_key_of_a_set_makes_its_holder_look(void **state) {
    static const char *const keys[] = {"a", "b", "c"};
    struct owner *set = of_keys("a", "b", "c");
    int i, looks;
    (void)state;
    grant(set, FOR_LONG);
    run_ms(200);
    for (i = 0; i < 3; i++) {
        looks = asked((rlock_op)SCRIPTED_LOOK);
        scripted_woken(&g.store, keys[i]);
        SAME(asked((rlock_op)SCRIPTED_LOOK), looks + 1);
    }
    g.store.checks_by_hand = true;
    scripted_woken(&g.store, "b");
    answer_to(set, scripted_plain(RLOCK_OUTCOME_GONE));
    SAME(set->seen[RLOCK_LOST].reason, RLOCK_REASON_DELETED);
    SAME(asked(RLOCK_OP_RELEASE), 1); /* the other keys are still at the server */
}

/* A lost key is gone from the server; the other keys of its set are not. */
static void set_that_loses_a_key_lets_the_others_go_and_a_single_one_nothing(void **state) {
    static const rlock_outcome ends[] = {RLOCK_OUTCOME_GONE, RLOCK_OUTCOME_STOLEN};
    static const rlock_reason reasons[] = {RLOCK_REASON_DELETED, RLOCK_REASON_STOLEN};
    int end, several;
    (void)state;
    for (end = 0; end < 2; end++) {
        for (several = 0; several < 2; several++) {
            struct owner *owner =
                several ? of_keys("a", "b", "c") : kind_handle(RLOCK_KIND_MUTEX, "a");
            grant(owner, FOR_LONG);
            SAME(owner_renew(owner, 0), RLOCK_OK);
            answer_to(owner, scripted_plain(ends[end]));
            SAME(owner->seen[RLOCK_LOST].reason, reasons[end]);
            SAME(asked(RLOCK_OP_RELEASE), several);
            SAME(stats().cleaning, several);
            anew();
        }
    }
}

/* Our own releases are not pushed: they wake our own waiters directly, whatever kind these want. */
static void release_of_a_set_wakes_who_waits_for_one_of_its_keys_and_back(void **state) {
    int way;
    (void)state;
    for (way = 0; way < 3; way++) {
        struct owner *set = of_keys("a", "b", "c"), *waits, *stranger;
        struct owner *holds = way == 0   ? set
                              : way == 1 ? kind_handle(RLOCK_KIND_MUTEX, "b")
                                         : of_keys("x", "c", NULL);
        int before;
        grant(holds, FOR_LONG);
        waits = sleeps_for(way == 0 ? kind_handle(RLOCK_KIND_MUTEX, "c") : set);
        stranger = sleeps_for(kind_handle(RLOCK_KIND_MUTEX, "d"));
        before = attempts_of(token_of(waits));
        SAME(owner_release(holds), RLOCK_OK);
        idle();
        reply(RLOCK_OP_RELEASE, scripted_done());
        SAME(attempts_of(token_of(waits)), before + 1);
        assert_null(out_of(stranger));
        anew();
    }
}

/* Two gates track one key: the first one that leaves does not make the other deaf. */
static void key_is_watched_until_no_gate_of_it_wants_to_know(void **state) {
    int way;
    (void)state;
    for (way = 0; way < 2; way++) {
        struct owner *set = sleeps_for(of_keys("a", "b", "c"));
        struct owner *single = sleeps_for(kind_handle(RLOCK_KIND_MUTEX, "b"));
        struct owner *leaves = way == 0 ? set : single, *stays = way == 0 ? single : set;
        SAME(owner_cancel(leaves), RLOCK_OK);
        scripted_settle(&g.store);
        memset(g.store.automatic, 0, sizeof g.store.automatic);
        assert_true(scripted_tracks(&g.store, "b"));
        SAME(scripted_tracks(&g.store, "a"), way == 1);
        sleeps_for(leaves); /* the key is tracked again */
        SAME(scripted_tracking(&g.store), 3);
        SAME(owner_cancel(leaves), RLOCK_OK);
        SAME(owner_cancel(stays), RLOCK_OK);
        scripted_settle(&g.store);
        memset(g.store.automatic, 0, sizeof g.store.automatic);
        run_ms(100);
        SAME(scripted_tracking(&g.store), 0);
        anew();
    }
}

static int keys_asked_for;

static const char *refuse_b(void *state, const char *key, size_t key_len, const rlock_terms *terms,
                            bool fencing) {
    (void)state, (void)fencing;
    assert_non_null(terms);
    SAME(key_len, 1);
    keys_asked_for++;
    return *key == 'b' ? "not this one" : NULL;
}

/* The store is asked about each key until it refuses one, and one line is logged. */
static void set_is_refused_for_one_key_that_the_store_refuses(void **state) {
    static const char *const keys[] = {"a", "b", "c"};
    rlock_options options;
    rlock *lock = NULL;
    int lines = g.log_lines;
    (void)state;
    g.store.store.refuses = refuse_b;
    options = options_for(NULL);
    options.keys = keys;
    options.key_count = 3;
    keys_asked_for = 0;
    SAME(rlock_new(&lock, g.client, &options), RLOCK_ERR_ARG);
    assert_null(lock);
    SAME(keys_asked_for, 2);
    SAME(g.log_lines, lines + 1);
    (void)of_keys("a", "c", "d");
    SAME(keys_asked_for, 5);
    SAME(g.log_lines, lines + 1);
    g.store.store.refuses = NULL;
}

#endif /* TESTS_UNIT_SETS_H */
