/* A client process of tests/chaos.c: two handles for each key, which acquire, work on a fenced
 * resource, renew, release, cancel and free by dice, and write down each hold that they believe
 * in. */
#ifndef RLOCK_TESTS_CHAOS_CLIENT_H
#define RLOCK_TESTS_CHAOS_CLIENT_H

#include "chaos_world.h"

#define TURN_MS 4
#define ROOMS 4 /* connections: two sites, two wires */

enum contender_state { IDLE, WAITING, HOLDING, LEAVING };

struct contender {
    rlock *lock;
    enum contender_state state;
    bool renewing, opened, probing;
    uint32_t hold;
    uint64_t fence, version; /* of the resource, as this hold knows it */
    int64_t lease_ms, deadline_us, leave_us, next_us, work_us;
    int64_t late_us; /* past the deadline, in turns that this process really had */
};

static struct slot *me;
static int my_number;
static struct contender contenders[HANDLES];
static rlock_client *rooms[ROOMS];
static int rooms_closed;
static uint32_t my_probe;

static inline int key_of(const struct contender *c) {
    return (int)(c - contenders) / PER_KEY;
}

/* Every second handle has short leases that nobody renews, and often outstays them: that is when a
 * deadline counts. */
static inline bool is_stubborn(const struct contender *c) {
    return (c - contenders) % PER_KEY != 0;
}

/* A record is whole before it counts. */
static inline void writes_down(const struct contender *c, int kind, int why, int64_t at_us) {
    struct record *r;

    while (me->head - __atomic_load_n(&me->tail, __ATOMIC_ACQUIRE) >= RING) {
        server_sleep_ms(1);
    }
    r = &me->ring[me->head % RING];
    memset(r, 0, sizeof *r);
    r->at_us = at_us;
    r->deadline_us = c->deadline_us;
    r->fence = c->fence;
    r->hold = c->hold;
    r->late_us = (int32_t)c->late_us;
    r->kind = (uint8_t)kind;
    r->key = (uint8_t)key_of(c);
    r->handle = (uint8_t)(c - contenders);
    r->why = (uint8_t)why;
    __atomic_store_n(&me->head, me->head + 1, __ATOMIC_RELEASE);
}

static inline void goes_idle(struct contender *c, int64_t rest_us) {
    c->state = IDLE;
    c->renewing = c->probing = false;
    c->next_us = kit_now_us() + rest_us;
}

/* ------------------------------------------------------------------------------------------------
 * The resource: it refuses a number smaller than the greatest it has seen
 */

static inline void resource_locks(int key, bool on) {
    struct flock byte;

    memset(&byte, 0, sizeof byte);
    byte.l_type = on ? F_WRLCK : F_UNLCK;
    byte.l_whence = SEEK_SET;
    byte.l_start = key;
    byte.l_len = 1;
    while (fcntl(world_fd, F_SETLKW, &byte) != 0 && errno == EINTR) {
    }
}

/* One write, and before the first of a hold one reading of what was there. False = refused. */
static inline bool resource_takes(struct contender *c) {
    struct resource *r = &world->resource[key_of(c)];
    int wrong = -1;
    bool taken;

    resource_locks(key_of(c), true);
    taken = c->fence >= r->highest;
    if (!taken) {
        r->refused++;
    } else {
        if (c->fence > r->highest) {
            r->highest = c->fence;
            r->slot = (uint32_t)my_number;
            r->hold = c->hold;
        } else if (r->slot != (uint32_t)my_number || r->hold != c->hold) {
            wrong = WRONG_SAME_FENCE;
        }
        if (!c->opened) {
            c->opened = true;
            c->version = r->version;
        }
        if (c->version != r->version) {
            wrong = WRONG_UPDATE;
        }
        r->accepted++;
        c->version = ++r->version; /* last: a kill before it is a write that never was */
    }
    resource_locks(key_of(c), false);
    if (wrong >= 0) {
        writes_down(c, RECORD_WRONG, wrong, kit_now_us());
    }
    return taken;
}

/* Looks whether it holds, then writes. Now and then it sleeps in between, as a process does that is
 * paged out: then only the fence can help. */
static inline void works(struct contender *c) {
    if (!rlock_is_held(c->lock)) {
        return;
    }
    if (dice(1000) == 0 && load32(&world->calm) % 2 == 0) {
        me->naps++;
        server_sleep_ms((long)dice_between(c->lease_ms / 4, c->lease_ms * 3 / 2));
    }
    if (!resource_takes(c)) {
        bool valid = kit_now_us() < c->deadline_us && rlock_is_held(c->lock);

        writes_down(c, RECORD_REFUSED, valid, kit_now_us());
    }
}

/* ------------------------------------------------------------------------------------------------
 * What the library tells
 */

static inline void on_told(rlock *lock, const rlock_event *event, void *user) {
    struct contender *c = (struct contender *)user;
    int64_t now = kit_now_us();

    if (c->state != WAITING || event->kind != RLOCK_ACQUIRED) {
        writes_down(c, RECORD_WRONG, WRONG_CALLBACK, now);
        return;
    }
    me->operations[0]++;
    if (event->status != RLOCK_OK) {
        bool refused = event->status == RLOCK_ERR_BUSY || event->status == RLOCK_ERR_TIMEOUT;

        goes_idle(c, dice(refused ? 10000 : 300000));
        return;
    }
    c->state = HOLDING;
    c->hold = ++me->holds;
    c->fence = rlock_fence(lock);
    c->deadline_us = now + rlock_remaining_ms(lock) * 1000; /* asked after `now`: never too late */
    c->late_us = c->work_us = 0;
    c->opened = false;
    c->leave_us = now + (dice(is_stubborn(c) ? 3 : 8) == 0
                             ? 1000 * (c->lease_ms + 1000) /* outstays its lease */
                         : dice(3) == 0 ? dice(100000)
                                        : dice(10000));
    writes_down(c, RECORD_ACQUIRED, 0, now);
}

static inline void on_renewed(rlock *lock, const rlock_event *event, void *user) {
    struct contender *c = (struct contender *)user;

    (void)lock, (void)event;
    if (!c->renewing) {
        writes_down(c, RECORD_WRONG, WRONG_CALLBACK, kit_now_us());
    }
    me->operations[1]++;
    c->renewing = false;
}

static inline void on_left(rlock *lock, const rlock_event *event, void *user) {
    struct contender *c = (struct contender *)user;

    (void)lock, (void)event;
    if (c->state != LEAVING) {
        writes_down(c, RECORD_WRONG, WRONG_CALLBACK, kit_now_us());
        return;
    }
    me->operations[2]++;
    goes_idle(c, dice(30000));
}

static inline void on_lost(rlock *lock, const rlock_event *event, void *user) {
    struct contender *c = (struct contender *)user;

    (void)lock;
    if (c->state != HOLDING) {
        writes_down(c, RECORD_WRONG, WRONG_CALLBACK, kit_now_us());
        return;
    }
    writes_down(c, RECORD_ENDED, (int)event->reason, kit_now_us());
    goes_idle(c, dice(100000));
}

static inline void on_line(void *user, int level, const char *line) {
    (void)user;
    if (level <= RLOCK_LOG_WARNING) {
        snprintf(me->words, sizeof me->words, "%s", line);
    }
}

/* ------------------------------------------------------------------------------------------------
 * What a handle does next
 */

static inline void called(struct contender *c, int status) {
    if (status != RLOCK_OK) {
        writes_down(c, RECORD_WRONG, WRONG_CALL, kit_now_us());
    }
}

static inline bool makes_handle(struct contender *c) {
    static const int watchdogs[] = {RLOCK_WATCHDOG_AUTO, RLOCK_WATCHDOG_ON, RLOCK_WATCHDOG_OFF};
    const struct chaos_key *key = &chaos_keys[key_of(c)];
    rlock_options options;

    memset(&options, 0, sizeof options);
    options.key = key->name;
    options.kind = key->kind;
    options.permits = key->permits;
    options.weight = key->weight;
    options.fencing = true;
    options.watchdog = is_stubborn(c) ? RLOCK_WATCHDOG_OFF : watchdogs[dice(3)];
    options.on_lost = on_lost;
    options.user = c;
    return rlock_new(&c->lock, rooms[key->site * 2 + (int)key->wire], &options) == RLOCK_OK;
}

static inline void asks(struct contender *c, int64_t wait_ms, int64_t lease_ms) {
    c->lease_ms = lease_ms > 0 ? lease_ms : LEASE_MAX_MS;
    c->state = WAITING;
    called(c, rlock_acquire(c->lock, wait_ms, lease_ms, on_told, c));
}

static inline void waits_by_dice(struct contender *c) {
    int64_t how = dice(10);
    int64_t lease_ms = dice(4) == 0 ? 0 : dice_between(300, dice(4) > 0 ? 600 : LEASE_MAX_MS);

    if (is_stubborn(c)) {
        lease_ms = dice_between(150, 600);
    }
    asks(c, how == 0 ? 0 : how < 4 ? dice_between(100, 2000) : RLOCK_FOREVER, lease_ms);
}

/* Freed in whatever state: what was pending ends without a callback. */
static inline void starts_anew(struct contender *c) {
    int64_t now = kit_now_us();

    if (c->state == HOLDING) {
        writes_down(c, RECORD_ENDED, ENDING_FREED, now);
    }
    rlock_free(c->lock);
    goes_idle(c, dice(50000));
    if (!makes_handle(c)) {
        writes_down(c, RECORD_WRONG, WRONG_CALL, now);
    }
}

/* What the handle says it has left can only have grown. */
static inline void watches_deadline(struct contender *c, int64_t now, int64_t turn_us) {
    int64_t left_ms = rlock_remaining_ms(c->lock);

    if (left_ms > 0 && now + left_ms * 1000 > c->deadline_us + 2000) {
        c->deadline_us = now + left_ms * 1000;
        c->late_us = 0;
        writes_down(c, RECORD_EXTENDED, 0, now);
    }
    c->late_us += now > c->deadline_us ? turn_us : 0;
}

/* Never for less than it has: that would take back what is written down. */
static inline void renews(struct contender *c) {
    int64_t lease_ms = c->lease_ms + dice(300);
    int status;

    if (lease_ms > LEASE_MAX_MS || dice(2) == 0) {
        lease_ms = 0;
    }
    status = rlock_renew(c->lock, lease_ms, on_renewed, c);
    c->renewing = status == RLOCK_OK;
    c->lease_ms = lease_ms > 0 ? lease_ms : c->lease_ms;
    called(c, status == RLOCK_ERR_LOST ? RLOCK_OK : status); /* the deadline passed meanwhile */
}

static inline void holds_on(struct contender *c, bool calm, int64_t turn_us) {
    int64_t now = kit_now_us();

    watches_deadline(c, now, turn_us);
    if (now >= c->work_us) {
        works(c);
        c->work_us = now + dice(50000);
    }
    now = kit_now_us();
    if (c->probing ? load32(&world->probe) % 2 == 0 : calm || now >= c->leave_us) {
        writes_down(c, RECORD_ENDED, ENDING_RELEASED, now);
        c->state = LEAVING;
        called(c, rlock_release(c->lock, on_left, c));
    } else if (!c->renewing && !c->probing && !is_stubborn(c) && now < c->deadline_us &&
               dice(200) == 0) {
        renews(c);
    }
}

static inline void contender_iteration(struct contender *c, bool calm, int64_t turn_us) {
    switch (c->state) {
    case IDLE:
        if (!calm && kit_now_us() >= c->next_us) {
            waits_by_dice(c);
        }
        break;
    case WAITING:
        if (!calm && dice(2000) == 0) {
            called(c, rlock_cancel(c->lock));
        }
        break;
    case HOLDING: holds_on(c, calm, turn_us); break;
    case LEAVING: break;
    }
    if (!calm && dice(4000) == 0) {
        starts_anew(c);
    }
}

/* ------------------------------------------------------------------------------------------------
 * The process
 */

static inline rlock_client *opens_room(int room) {
    static const int64_t timeouts_ms[] = {300, 1000, 2000};
    enum site_name site = room < 2 ? KEPT : BROKEN;
    const struct line *line = &world->line[(int)site * 2 + my_number % 2];
    rlock_config config;
    rlock_client *client = NULL;

    memset(&config, 0, sizeof config);
    config.loop = rlock_poll_loop(kit_poll);
    config.wire = (rlock_wire)(room % 2);
    config.username = "locker";
    config.password = "secret";
    config.command_timeout_ms = timeouts_ms[my_number % 3];
    config.watchdog_lease_ms = LEASE_MAX_MS;
    config.log = on_line;
    config.port = line->port;
    config.unix_path = line->port == 0 ? line->path : NULL;
    if (site == KEPT &&
        my_number == 0) { /* one goes straight: it is there first when a lease ends */
        config.port = world->port[KEPT];
        config.unix_path = me->life % 2 == 0 ? world->socket[KEPT][0] : NULL;
    }
    return rlock_client_new(&client, &config) == RLOCK_OK ? client : NULL;
}

static inline void room_closed(rlock_client *client, int status, void *user) {
    (void)client, (void)status, (void)user;
    rooms_closed++;
}

/* Ends in good order: every holder is told CLOSED. */
static inline int client_ends(void) {
    int i;

    for (i = 0; i < ROOMS; i++) {
        if (rlock_client_shutdown(rooms[i], 500, room_closed, NULL) != RLOCK_OK) {
            return 3;
        }
    }
    while (rooms_closed < ROOMS) {
        if (!rlock_poll_once(kit_poll, TURN_MS)) {
            return 4; /* nothing to wait for, and not told */
        }
        me->turns++;
    }
    for (i = 0; i < HANDLES; i++) {
        if (contenders[i].state == HOLDING) {
            return 5;
        }
        rlock_free(contenders[i].lock);
    }
    for (i = 0; i < ROOMS; i++) {
        rlock_client_free(rooms[i]);
    }
    kit_close();
    return 0;
}

/* The probe: this process takes the broken keys and keeps them. */
static inline void client_probes(void) {
    int i;

    for (i = 0; i < HANDLES; i += PER_KEY) {
        if (contenders[i].state == IDLE && chaos_keys[key_of(&contenders[i])].site == BROKEN) {
            asks(&contenders[i], RLOCK_FOREVER, PROBE_LEASE_MS);
            contenders[i].probing = true;
        }
    }
}

static inline void client_turns(void) {
    int64_t last_us = kit_now_us();

    while (!load32(&world->stop) && !load32(&me->quit)) {
        uint32_t calm = load32(&world->calm), busy = 0;
        int64_t now, turn_us;
        int i;

        rlock_poll_once(kit_poll, TURN_MS);
        now = kit_now_us();
        turn_us = now - last_us < 20000 ? now - last_us : 20000; /* a stop is no lateness */
        last_us = now;
        if (load32(&world->probe) != my_probe) {
            my_probe = load32(&world->probe);
            if (my_probe % 2 != 0 && world->probe_slot == (uint32_t)my_number) {
                client_probes();
            }
        }
        for (i = 0; i < HANDLES; i++) {
            contender_iteration(&contenders[i], calm % 2 != 0, turn_us);
            busy += contenders[i].state != IDLE;
        }
        store32(&me->busy, busy);
        store32(&me->calm_seen, calm);
        __atomic_store_n(&me->turns, me->turns + 1, __ATOMIC_RELEASE);
    }
}

static inline int client_runs(int number) {
    int i;

    my_number = number;
    me = &world->slot[number];
    my_probe = load32(&world->probe);
    dice_seed(world->seed * 1000003 + (uint64_t)number * 1009 + me->life);
    if (kit_open() != 0) {
        return 2;
    }
    for (i = 0; i < ROOMS; i++) {
        rooms[i] = opens_room(i);
        if (rooms[i] == NULL) {
            return 2;
        }
    }
    for (i = 0; i < HANDLES; i++) {
        if (!makes_handle(&contenders[i])) {
            return 2;
        }
        goes_idle(&contenders[i], dice(100000));
    }
    client_turns();
    return client_ends();
}

#endif
