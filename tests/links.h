/* links.h - small servers with one key each, and links to them that delay, break and execute late
 * what was sent on them
 *
 * A suite defines SERVERS, CLIENTS (how many open a server at most) and HANDLES, includes
 * scripted.h, and has its loop in g.loop.
 */

#ifndef TESTS_LINKS_H
#define TESTS_LINKS_H

#define MESSAGES 512

struct tiny {           /* a server */
    const void *client; /* whose token it is, until expires_us */
    uint64_t token;
    int64_t expires_us;
    int64_t clock_off_us; /* of the clock that it makes fencing tokens of */
    uint64_t fence;       /* the last one */
    bool frozen;
};

struct message {
    bool used, executed, haunted; /* haunted: when it ran, an older one could still come */
    rlock_request *request;       /* NULL: nobody waits for the answer any more */
    uint8_t op;
    uint16_t fences;
    uint64_t token;
    int64_t lease_ms, due_us;
    uint64_t order;
    unsigned epoch;
    rlock_answer answer;
};

struct link { /* of one client to one server */
    struct tiny *server;
    rlock_client *client;
    const rlock_store_events *events;
    void *owner;
    rlock_timer timer;
    rlock_link queue; /* what cannot leave */
    struct message messages[MESSAGES];
    int top; /* behind the last one that may be used */
    int64_t last_us;
    uint64_t orders;
    unsigned epoch;
    bool up, told; /* as it is, and as the client was told */
    bool tracks, woken;
};

static struct {
    struct tiny servers[SERVERS];
    struct link links[CLIENTS][SERVERS];
    rlock_store stores[SERVERS];
    rlock_client *clients[CLIENTS];
    struct owner *owners[CLIENTS * HANDLES];
    uint64_t seed;
    int grants, losses, wipes;
    bool pushes; /* the servers tell who waits */
} s;

static int64_t chance(int64_t limit) {
    return (int64_t)(virtual_random(&s.seed) % (uint64_t)limit);
}

/* Whether something of an older connection can still be executed. */
static bool link_haunted(const struct link *link) {
    int i;
    for (i = 0; i < link->top; i++) {
        const struct message *message = &link->messages[i];
        if (message->used && !message->executed && message->epoch != link->epoch) {
            return true;
        }
    }
    return false;
}

/* A fencing token, as Redis and PostgreSQL make it. */
static uint64_t link_fence(struct tiny *server, uint16_t fences) {
    uint64_t clock_us = (uint64_t)(g.loop.now_us + server->clock_off_us);
    uint64_t first = server->fence + 1 > clock_us ? server->fence + 1 : clock_us;
    server->fence = first + fences - 1u;
    return first;
}

static void link_wake(const struct tiny *server) {
    int i;
    for (i = 0; i < CLIENTS && s.pushes; i++) {
        struct link *link = &s.links[i][server - s.servers];
        if (link->tracks && link->client != NULL) {
            link->woken = true;
            rlock_timer_set(link->client, &link->timer, g.loop.now_us);
        }
    }
}

static void link_execute(struct link *link, struct message *message) {
    struct tiny *server = link->server;
    rlock_answer *answer = &message->answer;
    bool held = server->expires_us > g.loop.now_us;
    bool mine = held && server->client == link->client && server->token == message->token;
    int64_t end_us = g.loop.now_us + message->lease_ms * 1000;
    *answer = scripted_done();
    message->executed = true;
    message->haunted = link_haunted(link);
    if (message->op == RLOCK_OP_ACQUIRE && held && !mine) {
        *answer = scripted_held((server->expires_us - g.loop.now_us + 999) / 1000);
    } else if (message->op != RLOCK_OP_ACQUIRE && !mine) {
        *answer = held ? scripted_plain(RLOCK_OUTCOME_STOLEN) : scripted_plain(RLOCK_OUTCOME_GONE);
    } else if (message->op == RLOCK_OP_RELEASE) {
        server->expires_us = 0;
        link_wake(server);
    } else {
        server->client = link->client;
        server->token = message->token;
        server->expires_us = mine && server->expires_us > end_us ? server->expires_us : end_us;
        answer->fence = message->fences ? link_fence(server, message->fences) : 0;
    }
}

static void link_arm(struct link *link) {
    int64_t due_us = link->up != link->told || (link->woken && link->up) ? g.loop.now_us : -1;
    int i;
    for (i = 0; i < link->top; i++) {
        const struct message *message = &link->messages[i];
        if (message->used && (due_us < 0 || message->due_us < due_us)) {
            due_us = message->due_us;
        }
    }
    while (link->top > 0 && !link->messages[link->top - 1].used) {
        link->top--;
    }
    rlock_timer_set(link->client, &link->timer, due_us);
}

static void link_send(struct link *link, rlock_request *request) {
    struct message *message = link->messages;
    while (message->used) {
        message++;
        assert_true(message < link->messages + MESSAGES);
    }
    link->top += message == link->messages + link->top;
    memset(message, 0, sizeof *message);
    message->used = true;
    message->request = request;
    message->op = request->op;
    message->token = request->token;
    message->lease_ms = request->lease_ms;
    message->fences = request->op == RLOCK_OP_ACQUIRE ? request->fences : 0;
    message->epoch = link->epoch;
    message->order = ++link->orders;
    message->due_us = g.loop.now_us + 100 + chance(chance(20) == 0 ? 60000 : 3000);
    if (message->due_us <= link->last_us) {
        message->due_us = link->last_us + 1; /* a connection keeps the order */
    }
    link->last_us = message->due_us;
    request->sent_us = g.loop.now_us;
    request->store.stage = 2;
    if (request->op == RLOCK_OP_ACQUIRE && !request->store.note) {
        request->store.note = link->epoch;
    }
}

static void link_answer(struct link *link, struct message *message) {
    rlock_request *request = message->request;
    rlock_answer answer = message->answer;
    message->used = false;
    if (request == NULL || !link->up || message->epoch != link->epoch) {
        return;
    }
    answer.settled =
        !request->store.note || request->store.note == link->epoch || !message->haunted;
    request->store.note = answer.settled ? 0 : request->store.note;
    link->events->answered(link->owner, request, &answer);
}

static void link_iterates(struct link *link) {
    rlock_answer answer = scripted_fault(RLOCK_FAULT_UNKNOWN, NULL);
    int i;
    answer.settled = false;
    link->told = link->up;
    if (link->up) {
        link->epoch++;
        link->last_us = g.loop.now_us;
        link->events->up(link->owner, NULL);
        link->events->pushing(link->owner, NULL, s.pushes ? RLOCK_PUSH_CHANGES : 0u);
        while (!rlock__list_empty(&link->queue)) {
            rlock_request *request = RLOCK__OF(link->queue.next, rlock_request, store.link);
            rlock__list_remove(&request->store.link);
            link_send(link, request);
        }
        return;
    }
    for (i = 0; i < link->top; i++) {
        rlock_request *request = link->messages[i].request;
        if (link->messages[i].used && request != NULL) { /* some of it comes later than it should */
            link->messages[i].request = NULL;
            link->messages[i].due_us += chance(2) * chance(400000);
            link->events->answered(link->owner, request, &answer);
        }
    }
    link->events->down(link->owner, NULL, RLOCK_FAULT_DOWN, "the link is cut");
}

/* What is due next; a server that stands still puts off what it has not executed. */
static struct message *link_first(struct link *link) {
    struct message *first = NULL;
    int i;
    for (i = 0; i < link->top; i++) {
        struct message *message = &link->messages[i];
        if (!message->used || message->due_us > g.loop.now_us) {
            continue;
        }
        if (!message->executed && link->server->frozen) {
            message->due_us = g.loop.now_us + 1000;
        } else if (first == NULL || message->due_us < first->due_us ||
                   (message->due_us == first->due_us && message->order < first->order)) {
            first = message;
        }
    }
    return first;
}

static void link_fire(rlock_timer *timer) {
    struct link *link = RLOCK__OF(timer, struct link, timer);
    struct message *first;
    if (link->up != link->told) {
        link_iterates(link);
    }
    while ((first = link_first(link)) != NULL) {
        if (first->executed) {
            link_answer(link, first);
        } else {
            link_execute(link, first);
            first->due_us = g.loop.now_us + 50 + chance(2000);
        }
    }
    if (link->woken && link->up) {
        link->woken = false;
        link->events->woken(link->owner, NULL, 0);
    }
    link_arm(link);
}

static int link_open(const rlock_store *store, rlock_client *client,
                     const struct rlock_config *config, const rlock_store_events *events,
                     void *owner, void **state) {
    int number = (int)(store - s.stores), place = 0;
    struct link *link;
    while (place < CLIENTS - 1 && s.links[place][number].client != NULL) {
        place++;
    }
    link = &s.links[place][number];
    assert_null(link->client);
    memset(link, 0, sizeof *link);
    (void)config;
    link->server = &s.servers[number];
    link->client = client;
    link->events = events;
    link->owner = owner;
    link->up = true;
    rlock__list_init(&link->queue);
    SAME(rlock_timer_add(client, &link->timer, link_fire), RLOCK_OK);
    link_arm(link);
    *state = link;
    return RLOCK_OK;
}

static void link_close(void *state) {
    struct link *link = (struct link *)state;
    rlock_timer_drop(link->client, &link->timer);
    link->client = NULL;
}

static void link_submit(void *state, rlock_request *request) {
    struct link *link = (struct link *)state;
    request->store.stage = 1;
    if (link->up && link->told) {
        link_send(link, request);
        link_arm(link);
    } else {
        rlock__list_append(&link->queue, &request->store.link);
    }
}

static bool link_forget(void *state, rlock_request *request) {
    struct link *link = (struct link *)state;
    int i;
    bool sent = request->store.stage == 2;
    for (i = 0; sent && i < link->top; i++) {
        if (link->messages[i].request == request) {
            link->messages[i].request = NULL;
        }
    }
    if (!sent) {
        rlock__list_remove(&request->store.link);
    }
    return sent;
}

static void link_watch(void *state, const char *key, size_t len, bool on) {
    (void)key, (void)len;
    ((struct link *)state)->tracks = on;
}

static void link_flush(void *state) {
    (void)state;
}

static const rlock_store *link_store(int number) {
    rlock_store *store = &s.stores[number];
    store->open = link_open;
    store->close = link_close;
    store->submit = link_submit;
    store->forget = link_forget;
    store->track = link_watch;
    store->flush = link_flush;
    return store;
}

static void storm_link(int client, int server, bool up) {
    struct link *link = &s.links[client][server];
    link->up = up;
    rlock_timer_set(link->client, &link->timer, g.loop.now_us);
}

#endif /* TESTS_LINKS_H */
