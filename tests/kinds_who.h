/* kinds_who.h - who holds a key and who waits for it, in the words of their clients
 *
 * Part of kinds.c.
 */
#ifndef TESTS_KINDS_WHO_H
#define TESTS_KINDS_WHO_H

#if RLOCK__HAS_DESCRIPTIONS

static struct {
    int told, status;
    size_t count;
    bool listed, waits[RLOCK__WHO_MAX];
    int64_t left_ms[RLOCK__WHO_MAX], holders;
    char token[RLOCK__WHO_MAX][64], description[RLOCK__WHO_MAX][RLOCK__LINE], untold[RLOCK__LINE];
} list;

static void on_list(rlock_client *client, const rlock_info *info, void *user) {
    size_t i;

    assert_non_null(client);
    assert_null(user);
    list.told++;
    list.status = info->status;
    list.listed = info->who != NULL;
    list.count = info->who_count;
    list.holders = info->holders;
    snprintf(list.untold, sizeof list.untold, "%s", info->untold ? info->untold : "");
    for (i = 0; i < info->who_count; i++) {
        const rlock_who *who = &info->who[i];

        assert_int_equal(who->token[who->token_len], 0);
        snprintf(list.token[i], sizeof list.token[i], "%s", who->token);
        snprintf(list.description[i], sizeof list.description[i], "%s",
                 who->description ? who->description : "none");
        list.waits[i] = who->waits;
        list.left_ms[i] = who->left_ms;
    }
}

static int is_listed(void *arg) {
    (void)arg;
    return list.told;
}

static void described(rlock_client *client, const rlock_options *options) {
    memset(&list, 0, sizeof list);
    assert_int_equal(rlock_describe(client, options, on_list, NULL), RLOCK_OK);
    assert_int_equal(list.told, 0);
    assert_true(kit_until(is_listed, NULL, 5000));
    assert_int_equal(list.told, 1);
}

static void described_as(rlock_client *client, rlock_kind kind) {
    rlock_options options = of_kind(kind, kind == RLOCK_KIND_SEMAPHORE ? 2 : 0, 0);

    described(client, &options);
    assert_int_equal(list.status, RLOCK_OK);
}

static rlock_client *client_described(const char *description) {
    rlock_config config = kit_config(&server);
    rlock_client *client;

    config.description = description;
    client = kit_client(&config);
    assert_non_null(client);
    return client;
}

/* True if row i is of that client, and holds or waits. */
static bool row_is(size_t i, const rlock_client *client, bool waits, const char *description) {
    return strncmp(list.token[i], rlock_client_id(client), 36) == 0 && list.token[i][36] == ':' &&
           list.waits[i] == waits && strcmp(list.description[i], description) == 0;
}

static void holders_and_waiters_are_listed_with_their_words(void **state) {
    static const char words[] = "web-3, pid 4711, 100% n\xc3\xa4"
                                "chtlich";
    rlock_client *asks = client_new(), *one = client_described(words), *two = client_described("x"),
                 *none = client_new();
    struct owner *a = owner_of(one, RLOCK_KIND_FAIR), *b = owner_of(two, RLOCK_KIND_FAIR),
                 *c = owner_of(none, RLOCK_KIND_FAIR);

    (void)state;
    described_as(asks, RLOCK_KIND_FAIR);
    assert_true(list.listed);
    assert_int_equal(list.count, 0);
    assert_string_equal(list.untold, "");
    assert_int_equal(owner_acquire(a, 0, 60000), RLOCK_OK);
    stands_in_queue(b, 1);
    stands_in_queue(c, 2);
    described_as(asks, RLOCK_KIND_FAIR);
    assert_int_equal(list.count, 3);
    assert_true(row_is(0, one, false, words));
    assert_in_range(list.left_ms[0], 50000, 60000);
    assert_true(row_is(1, two, true, "x"));
    assert_true(row_is(2, none, true, "none"));
    assert_int_equal(list.left_ms[1], -1);
    assert_string_equal(list.untold, "");
}

/* Those of more than one permit stand elsewhere in the key than those of one. */
static void each_holder_of_a_semaphore_is_listed(void **state) {
    rlock_client *one = client_described("heavy"), *two = client_described("light");
    struct owner *heavy = permit(one, 5, 3), *light = permit(two, 5, 1);
    rlock_options options = of_kind(RLOCK_KIND_SEMAPHORE, 5, 1);

    (void)state;
    assert_int_equal(owner_acquire(heavy, 0, 60000), RLOCK_OK);
    assert_int_equal(owner_acquire(light, 0, 30000), RLOCK_OK);
    described(two, &options);
    assert_int_equal(list.count, 2);
    assert_true(row_is(0, one, false, "heavy"));
    assert_true(row_is(1, two, false, "light"));
    assert_in_range(list.left_ms[0], 50000, 60000);
    assert_in_range(list.left_ms[1], 20000, 30000);
}

static void holder_of_a_mutex_is_listed_on_each_wire(void **state) {
    rlock_config config = kit_config(&server);
    rlock_wire wire;

    (void)state;
    config.description = "the one";
    for (wire = RLOCK_WIRE_STRING; wire <= RLOCK_WIRE_REDISSON; wire++) {
        rlock_client *client;
        struct owner *o;

        if (wire == RLOCK_WIRE_REDISSON && !RLOCK__HAS_REDISSON) {
            break;
        }
        config.wire = wire;
        client = kit_client(&config);
        o = owner_new(client, "k");
        assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_OK);
        described_as(client, RLOCK_KIND_MUTEX);
        assert_int_equal(list.count, 1);
        assert_true(row_is(0, client, false, "the one"));
        assert_int_equal(owner_release(o), RLOCK_OK);
    }
}

static void holder_that_is_not_connected_or_of_others_has_no_words(void **state) {
    rlock_client *client = client_described("me");

    (void)state;
    tell(ask(&server, "SET k 00000000-0000-4000-8000-000000000000:7 PX 60000"));
    described_as(client, RLOCK_KIND_MUTEX);
    assert_int_equal(list.count, 1);
    assert_string_equal(list.description[0], "none");
    assert_string_equal(list.token[0], "00000000-0000-4000-8000-000000000000:7");
    tell(ask(&server, "SET k me"));
    described_as(client, RLOCK_KIND_MUTEX);
    assert_int_equal(list.count, 1);
    assert_string_equal(list.token[0], "me");
    assert_int_equal(list.left_ms[0], -1);
}

static void server_that_lists_no_clients_says_why(void **state) {
    rlock_config config = kit_config(&server);
    rlock_client *client;
    struct owner *o;

    (void)state;
    tell(ask(&server, "ACL SETUSER blind on >p ~* &* +@all -client|list"));
    config.username = "blind";
    config.password = "p";
    config.description = "unseen";
    client = kit_client(&config);
    o = owner_new(client, "k");
    assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_OK);
    described_as(client, RLOCK_KIND_MUTEX);
    assert_int_equal(list.count, 1);
    assert_int_equal(list.holders, 1);
    assert_true(row_is(0, client, false, "none"));
    assert_non_null(strstr(list.untold, "NOPERM"));
    assert_null(strchr(list.untold, '\n'));
    tell(ask(&server, "ACL DELUSER blind"));
}

/* Whoever may connect may take a name of this form. */
static void foreign_names_come_without_control_bytes_and_passwords(void **state) {
    static const struct {
        const char *name, *shown;
    } rows[] = {{"rlock:%s:%%1b[31mred%%0a", "\\x1b[31mred\\x0a"},
                {"rlock:%s:%%e2%%80%%aeback", "\\xe2\\x80\\xaeback"},
                {"rlock:%s:of-the-server", "***"},
                {"rlock:%s:%%00%%zz%%4", "%00%zz%4"},
                {"rlock:%s:", "none"},
                {"rlock:", "none"},
                {"rlock:%.35s", "none"},
                {"rlock:%s", "none"}};
    rlock_config config = kit_config(&server);
    rlock_client *asks;
    struct owner *o = owner_new(client_new(), "k");
    const char *id = rlock_client_id(kit_clients[kit_client_count - 1]);
    size_t i;

    (void)state;
    tell(ask(&server, "ACL SETUSER locker reset on >of-the-server ~* &* +@all"));
    config.username = "locker";
    config.password = "of-the-server";
    asks = kit_client(&config);
    assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_OK);
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        char name[128];

        snprintf(name, sizeof name, rows[i].name, id);
        tell(ask(&server, "CLIENT SETNAME %s", name));
        described_as(asks, RLOCK_KIND_MUTEX);
        assert_int_equal(list.count, 1);
        assert_string_equal(list.description[0], rows[i].shown);
    }
    kit_hand_drop();
    tell(ask(&server, "ACL DELUSER locker"));
}

/* More than a hundred of each are counted, and not listed. */
static void long_lists_are_cut(void **state) {
    rlock_client *client = client_new();
    rlock_options options = of_kind(RLOCK_KIND_SEMAPHORE, 120, 1);
    int i;

    (void)state;
    for (i = 0; i < 120; i++) {
        assert_int_equal(owner_acquire(permit(client, 120, 1), 0, 60000), RLOCK_OK);
    }
    described(client, &options);
    assert_int_equal(list.holders, 120);
    assert_int_equal(list.count, 100);
}

static void question_for_words_of_a_wrong_kind_ends_as_another(void **state) {
    rlock_client *client = client_new();
    rlock_options options = of_kind(RLOCK_KIND_FAIR, 0, 0);

    (void)state;
    tell(ask(&server, "LPUSH k 1"));
    described(client, &options);
    assert_int_equal(list.status, RLOCK_ERR_WRONG_TYPE);
    assert_int_equal(list.count, 0);
    assert_int_equal(rlock_describe(client, &options, NULL, NULL), RLOCK_ERR_ARG);
    assert_int_equal(rlock_describe(NULL, &options, on_list, NULL), RLOCK_ERR_ARG);
}

/* What has no description says no name; what has a name of its own keeps it. */
static void names_of_connections_are_as_configured(void **state) {
    rlock_config config = kit_config(&server);
    const char *clients;
    char name[128];

    (void)state;
    assert_int_equal(owner_acquire(owner_new(client_new(), "k"), 0, 60000), RLOCK_OK);
    assert_null(strstr(str(ask(&server, "CLIENT LIST")), "name=rlock"));
    config.client_name = "billing";
    assert_int_equal(owner_acquire(owner_new(kit_client(&config), "l"), 0, 60000), RLOCK_OK);
    assert_non_null(strstr(str(ask(&server, "CLIENT LIST")), " name=billing "));
    config.client_name = NULL;
    config.description = "a b%";
    assert_int_equal(owner_acquire(owner_new(kit_client(&config), "m"), 0, 60000), RLOCK_OK);
    snprintf(name, sizeof name, " name=rlock:%s:a%%20b%%25 ",
             rlock_client_id(kit_clients[kit_client_count - 1]));
    clients = str(ask(&server, "CLIENT LIST"));
    assert_non_null(strstr(clients, name));
}

#if RLOCK__HAS_MEMORY
/* The rest of the answer is that of any question. */
static void store_that_lists_nobody_says_so(void **state) {
    rlock_config config = kit_config(&server);
    rlock_store *store;
    rlock_client *client;
    struct owner *o;

    (void)state;
    assert_int_equal(rlock_memory_new(&store), RLOCK_OK);
    config.unix_path = NULL;
    config.store = store;
    client = kit_client(&config);
    described_as(client, RLOCK_KIND_FAIR);
    assert_string_equal(list.untold, "");
    o = owner_of(client, RLOCK_KIND_FAIR);
    assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_OK);
    described_as(client, RLOCK_KIND_FAIR);
    assert_int_equal(list.holders, 1);
    assert_false(list.listed);
    assert_int_equal(list.count, 0);
    assert_string_equal(list.untold, RLOCK__TEXT("this store does not list holders"));
    kit_reset();
    rlock_memory_free(store);
}
#endif

#if RLOCK__HAS_TEXTS
static void description_that_is_none_is_refused(void **state) {
    static char long_one[130];
    static const struct {
        const char *text, *name, *says;
    } rows[] = {{"", NULL, "config.description: expected 1 to 128 bytes"},
                {long_one, NULL, "config.description: expected 1 to 128 bytes"},
                {"a\nb", NULL, "config.description: expected"},
                {"\xc3", NULL, "config.description: expected"},
                {"a\xe2\x80\xae", NULL, "config.description: expected"},
                {"a", "b", "config.description cannot be combined with config.client_name"}};
    rlock_config config = kit_config(&server);
    rlock_client *client;
    size_t i;

    (void)state;
    memset(long_one, 'x', 129);
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        kit_log_text[0] = '\0';
        config.description = rows[i].text;
        config.client_name = rows[i].name;
        assert_int_equal(rlock_client_new(&client, &config), RLOCK_ERR_ARG);
        assert_non_null(strstr(kit_log_text, rows[i].says));
    }
    config.client_name = NULL;
    config.description = long_one + 1;
    assert_non_null(kit_client(&config));
}
#endif

#endif /* RLOCK__HAS_DESCRIPTIONS */

#endif
