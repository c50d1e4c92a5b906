/* unit_keys.h - keys, tokens and fencing tokens */
#ifndef TESTS_UNIT_KEYS_H
#define TESTS_UNIT_KEYS_H

static void key_is_copied_with_every_byte_and_a_nul_behind_it(void **state) {
    char key[] = {'a', '\0', (char)0xff, '\n', 'b'};
    static const char expected[] = {'a', '\0', (char)0xff, '\n', 'b', '\0'};
    rlock_options options = options_for(key);
    struct owner *owner;
    size_t length = 0;
    (void)state;
    options.key_len = sizeof key;
    owner = handle_with(&options);
    memset(key, 'x', sizeof key);
    assert_memory_equal(rlock_key(owner->lock, &length), expected, sizeof expected);
    SAME(length, 5);
    assert_non_null(rlock_key(owner->lock, NULL));
    SAME(owner_acquire(owner, 0, 1000), RLOCK_OK);
    idle();
    SAME(need(RLOCK_OP_ACQUIRE)->request->key_len, 5);
    assert_memory_equal(need(RLOCK_OP_ACQUIRE)->request->key, expected, 5);
}

static void fence_is_the_servers_and_asked_for_only_when_wanted(void **state) {
    rlock_options options = options_for("key");
    struct owner *owner;
    (void)state;
    options.fencing = true;
    owner = handle_with(&options);
    SAME(owner_acquire(owner, 0, 1000), RLOCK_OK);
    idle();
    SAME(need(RLOCK_OP_ACQUIRE)->request->fences, 1);
    reply(RLOCK_OP_ACQUIRE, scripted_fenced(UINT64_C(1763710000000000)));
    assert_true(owner->seen[RLOCK_ACQUIRED].fence == UINT64_C(1763710000000000));
    assert_true(rlock_fence(owner->lock) == UINT64_C(1763710000000000));
    SAME(owner_release(owner), RLOCK_OK);
    SAME(rlock_fence(owner->lock), 0);
    owner = handle("plain");
    SAME(owner_acquire(owner, 0, 1000), RLOCK_OK);
    idle();
    SAME(need(RLOCK_OP_ACQUIRE)->request->fences, 0);
}

static void every_token_is_new_and_the_client_id_is_a_uuid(void **state) {
    uint64_t tokens[20];
    int i, k;
    (void)state;
    SAME(strlen(rlock_client_id(g.client)), 36);
    SAME(rlock_client_id(g.client)[8], '-');
    for (i = 0; i < 20; i++) {
        struct owner *owner = holder("key", 1000);
        tokens[i] = scripted_last(&g.store, RLOCK_OP_ACQUIRE)->token;
        for (k = 0; k < i; k++) {
            assert_true(tokens[k] != tokens[i]);
        }
        SAME(owner_release(owner), RLOCK_OK);
        idle();
        reply(RLOCK_OP_RELEASE, scripted_done());
    }
}

static void keys_are_unwatched_when_no_handle_needs_them(void **state) {
    struct owner *owner = holder("a", 0);
    (void)state;
    scripted_settle(&g.store);
    run_ms(10000);
    SAME(owner_release(owner), RLOCK_OK);
    run_ms(1000);
    SAME(scripted_tracking(&g.store), 0);
}

static void keys_whose_hashes_collide_are_different_locks(void **state) {
    struct virtual_twins twins = virtual_twins(&g.client->gates);
    struct owner *owners[VIRTUAL_TWINS];
    int i;
    (void)state;
    for (i = 0; i < VIRTUAL_TWINS; i++) {
        owners[i] = handle(twins.keys[i]);
        SAME(owner_acquire(owners[i], 0, 1000), RLOCK_OK);
        idle();
        assert_string_equal(need(RLOCK_OP_ACQUIRE)->key, twins.keys[i]);
        reply(RLOCK_OP_ACQUIRE, scripted_done());
        SAME(owners[i]->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    }
    for (i = 0; i < VIRTUAL_TWINS; i++) {
        assert_string_equal(rlock_key(owners[i]->lock, NULL), twins.keys[i]);
        assert_true(rlock_is_held(owners[i]->lock));
    }
}

static int longest_chain(const rlock__map *map) {
    int longest = 0;
    uint32_t i;
    for (i = 0; i < map->size; i++) {
        const rlock__item *item = map->buckets[i];
        int length = 0;
        for (; item != NULL; item = item->next) {
            length++;
        }
        longest = length > longest ? length : longest;
    }
    return longest;
}

/* Keys that collide in one client do not collide in the next one. */
static void keys_that_are_one_chain_in_a_client_are_none_in_another(void **state) {
    static char keys[64][16];
    int chosen, turn;
    uint32_t i;
    (void)state;
    for (chosen = 0, i = 0; chosen < 64; i++) {
        virtual_twin(keys[chosen], i);
        chosen += rlock__hash(&g.client->gates, keys[chosen], strlen(keys[chosen])) % 512 == 0;
    }
    for (turn = 0; turn < 2; turn++) {
        for (chosen = 0; chosen < 64; chosen++) {
            (void)handle(keys[chosen]);
        }
        BETWEEN(longest_chain(&g.client->gates), turn == 0 ? 64 : 1, turn == 0 ? 64 : 12);
        virtual_free_owners(&g.loop);
        restart_with_handovers(0);
        SAME(longest_chain(&g.client->gates), 0);
    }
}

static int chain_of(const char *what, size_t len, const rlock__map *map) {
    return (int)(rlock__hash(map, what, len) & 7);
}

/* The last bytes count as well, also where they do not fill a word. */
static void each_byte_of_a_key_counts_in_its_hash(void **state) {
    char key[16] = "fifteen letters";
    size_t len, at;
    (void)state;
    for (len = 1; len < sizeof key; len++) {
        for (at = 0; at < len; at++) {
            int change, seen = 0;
            for (change = 0; change < 64; change++) {
                key[at] = (char)(key[at] + 1);
                seen |= 1 << chain_of(key, len, &g.client->gates);
            }
            SAME(seen, 255);
        }
    }
}

/* --- the store inside the process --- */

#if RLOCK__HAS_MEMORY

#if RLOCK__HAS_MEMORY

static void start_in_memory(rlock_store **store) {
    SAME(rlock_memory_new(store), RLOCK_OK);
    g.config.store = *store;
    SAME(rlock_client_new(&g.client, &g.config), RLOCK_OK);
}

static void end_in_memory(rlock_store *store) {
    virtual_free_owners(&g.loop);
    free_client();
    rlock_memory_free(store);
    g.config.store = &g.store.store;
    start();
}

static void two_grants_of_one_moment_have_two_fences(void **state) {
    rlock_options options = options_for("a"), others = options_for("b");
    struct owner *a, *b;
    rlock_store *store;
    (void)state;
    start_in_memory(&store);
    options.fencing = others.fencing = true;
    a = handle_with(&options);
    b = handle_with(&others);
    SAME(owner_acquire(a, 0, 1000), RLOCK_OK);
    SAME(owner_acquire(b, 0, 1000), RLOCK_OK);
    idle();
    SAME(a->seen[RLOCK_ACQUIRED].at_us, b->seen[RLOCK_ACQUIRED].at_us);
    assert_true(rlock_fence(b->lock) > rlock_fence(a->lock));
    end_in_memory(store);
}

/* A hold of more than a moment is tracked: after its release the store must forget the key. */
static void keys_that_nobody_wants_any_more_leave_the_store_inside_the_process(void **state) {
    size_t live = 0;
    rlock_store *store;
    char key[8];
    int i;
    (void)state;
    start_in_memory(&store);
    for (i = 0; i < 60; i++) {
        struct owner *owner;
        snprintf(key, sizeof key, "%d", i);
        owner = handle(key);
        SAME(owner_acquire(owner, 0, 10000), RLOCK_OK);
        run_ms(200);
        SAME(owner_release(owner), RLOCK_OK);
        idle();
        SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
        owner_free(owner);
        if (i == 30) {
            live = virtual_memory.live;
        }
    }
    BETWEEN(virtual_memory.live, 1, live);
    end_in_memory(store);
}

#endif /* RLOCK__HAS_MEMORY */

#endif /* RLOCK__HAS_MEMORY */

#endif /* TESTS_UNIT_KEYS_H */
