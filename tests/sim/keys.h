/* keys.h - the keys of a simulated world, and who may change them
 *
 * The oracle reads the servers, which no client can: whose token stands at a key, until when, who
 * holds and who waits in its line, and by whom that was changed. A mutex is changed by its owner
 * alone. Of a queued kind a script may give a hold to who is first in the line, for one turn, and
 * may take it back in the same script if nobody hears; there are never more out than there are
 * permits at the time, and nobody passes who is before it. All of that is checked at each write,
 * also of a script that goes on.
 */

#ifndef SIM_KEYS_H
#define SIM_KEYS_H

#include "world.h"

#define SIM_ACTORS 12
#define SIM_HANDS 400
#define SIM_SLOTS 8
#define SIM_TOKENS 20000
#define SIM_CHAINS 1024
#define SIM_PASSED 20
#define SIM_SET 3       /* keys of one handle */
#define SIM_MEMBERS 400 /* in the line of a key and among its holders */
#define SIM_PERMITS 3   /* of a semaphore on a key of another kind */
#define SIM_FENCES 64
#define SIM_QUESTIONS 512
#define SIM_LEAVES_US 2500000 /* until a client leaves who is not the primary any more, ... */
#define SIM_FAULT_US 4000000  /* ... if nothing went wrong for so long */
#define SIM_MARKER "rlock:quarantine"
#define SIM_LATE_US 2000 /* how late a loop with nothing else to do may tell a loss */

struct token { /* a value that was seen at a key */
    char text[64];
    struct token *next;  /* of its chain */
    bool theirs;         /* a stranger's */
    bool is_void;        /* a rule was broken while it was there, ... */
    bool lawless;        /* ... against which no quarantine helps */
    int64_t order;       /* of its coming to the key, among the tokens of that */
    int64_t hold_order;  /* the same of its youngest hold */
    int64_t began_order; /* the same of when it began to hold, however often it asked since */
    uint64_t ordered;    /* of a queued kind: the script in which `order` was given to it */
    uint64_t fence;      /* of that */
    struct hand *holder; /* who was granted it and did not release; NULL = nobody */
    int grants;          /* how many holds it made, one after the other; ... */
    int handed;          /* ... of these without the server, since it granted it last */
    int64_t asked_us;    /* when that was asked for, as the client says, by its own clock */
    int64_t told_us;     /* when that was told */
    int64_t released_us; /* when who had it let go of it, ... */
    bool renewed;        /* ... and had renewed it */
    int64_t longest_ms;  /* of the leases asked for in these holds */
    int64_t away_us;     /* since when the server has not had it; -1 = has it */
    int64_t forced_us;   /* when it was taken away by force; 0 = never */
    int line;            /* by which it was put there, or made to last longer */
    int64_t forgot_us;   /* until when it would be there, had its server not forgotten it */
    double aside;        /* as an old primary has it: until when; 0 = it has not */
    int64_t aside_us;    /* since when it has it, in true time; 0 = never */
    int64_t alone_us;    /* since when it holds and no handle has it; 0 = not so */
    bool parted;         /* it is void only because an old primary goes on with it */
    int64_t both_us;     /* until when two primaries have it that go on apart; 0 = they have not */
    bool old_only;       /* ... since only the old one had it when they parted */
    bool stays; /* its client may have given it back to an old primary, or been told by a replica
                            that it is gone */
    int64_t back_us; /* by so much the server's clock was set back since it came */

    /* Of a queued kind; next_...: as the server has it now, while the two are compared. */
    char sort; /* what belongs together on one key: f, w or s */
    int64_t weight;
    int64_t ends_ms, next_ms; /* until when it holds, by the server's clock; 0 = it does not */
    double place, next_place; /* in the line; 0 = it does not stand there */
    int64_t came_us;          /* when it came to one of the two */
    int64_t permits;          /* that there were when it came to hold */
    uint64_t script, skipped; /* in which it came to hold; in which nobody heard its call */
    bool offered;             /* it holds for a turn, and has not asked since */
    bool half;                /* ... as the server has it, perhaps another one by now */
    bool called;              /* ... and its client was told */
    bool kept;                /* it was there when its client went */
    bool late;                /* its client had given it up unanswered when it came */
};

enum slot_kind { SLOT_MUTEX, SLOT_FAIR, SLOT_SHARED, SLOT_SEMAPHORE, SLOT_KINDS };

struct slot { /* one key of one server */
    struct sim_server *server;
    const char *key;     /* the caller's */
    struct token *there; /* NULL = nothing */
    int64_t since_us;    /* since when */
    int64_t expires_us;  /* by the server's clock; -1 = never */
    int64_t changes;
    struct token *last;     /* that made the youngest hold */
    struct token *aside;    /* that an old primary has */
    bool torn;              /* some of its keys are at a node, some at the next */
    char keeper[37];        /* the client that holds it to the end */
    int64_t free_since_us;  /* nobody's, and somebody waits; -1 = not so */
    int passed[SIM_ACTORS]; /* how often it went to others while this client waited */
    char fence_key[40];
    uint64_t fence; /* the counter's value; 0 = not known */

    /* Of a queued kind. */
    enum slot_kind kind;
    char queue_key[40];
    int64_t permits; /* in the options */
    int64_t in_force, next_in_force;
    int64_t queue_until_us; /* of the whole line, by the server's clock; -1 = it is not there */
    bool foreign;           /* something that is no lock stands there ... */
    int strangers;          /* ... or members that are nobody's are among the holders */
    bool odd_line;          /* the line is of another type, or has such members */
    bool odd_fence;         /* so has the counter a value that is not ours */
    struct token *members[SIM_MEMBERS];
    int member_count;
    struct token *last_read;                 /* of the youngest hold beside which others may be */
    int64_t changed_us;                      /* when somebody last came or went */
    const struct token *missed[SIM_MEMBERS]; /* whose offers, that passed, were taken away ... */
    int missed_count;
    uint64_t missed_in;   /* ... and in which script */
    uint64_t script;      /* that touched it last ... */
    bool left, unoffered; /* ... and took somebody away; and there is room for the first in line */
    struct fence {
        uint64_t value;
        char client_id[37];
        bool used;
        int64_t order;    /* of its counting, among the tokens' */
        uint64_t script;  /* in which it was counted, ... */
        int64_t at_ms;    /* ... and when */
    } fences[SIM_FENCES]; /* given out last */
    unsigned fence_count;
};

struct actor { /* a client */
    rlock_client *client;
    struct sim_process *process;
    struct sim_server *server;
    char id[37];
    int64_t command_timeout_ms;
    int64_t calls;
    int64_t longest_ms; /* of the leases that were asked for */
    rlock_wire wire;
    int handovers;            /* how often a hold may be handed on */
    bool closing, done, gone; /* shutdown was called, has called back; it was freed */
    bool draining, cut;       /* what was called is a drain; and then a shutdown */
    bool last;                /* shutdown was called when nothing went wrong any more */
    int shutdown_status;
    int forces[SIM_SLOTS];  /* asked for, and perhaps to be done yet */
    int permits[SIM_SLOTS]; /* changes of the number, likewise */
};

struct hand { /* a handle, and what it was told */
    rlock *lock;
    struct actor *actor;
    struct slot *slot;
    int number;
    rlock_kind kind;
    int64_t weight;
    uint64_t owner;
    struct slot *slots[SIM_SET]; /* all of its keys; the first is `slot` */
    int slot_count;
    bool fencing, reentrant, watched;
    bool once, once_next; /* its acquire does not wait; that which follows a release */
    bool gone;            /* freed */
    bool holds;
    bool releasing;
    int pending[RLOCK_LOST + 1];
    struct token *token;
    int64_t longest_ms;            /* of the leases asked for in this hold */
    int64_t max_hold_ms, since_us; /* how long a hold may be; since when it is */
    int64_t overdue_us; /* since when its deadline has passed and it was not told; -1 = not so */
    int64_t waiting_us; /* since when it waits */
    int64_t ends_us;    /* by then its acquire has to end; -1 = it may wait for ever */
    bool leaves;        /* it renews its hold once more before it lets go, as programs do */
    bool renewed;       /* its hold was renewed by hand */
    void (*react)(struct hand *hand, const rlock_event *event);
};

/* Whether an acquire is pending that neither waits for a release nor has ended untold. */
static inline bool hand_asks_now(const struct hand *hand) {
    const rlock__op *op;
    int asks = hand->pending[RLOCK_ACQUIRED];
    for (op = hand->lock->ops; op != NULL; op = op->next) {
        asks -= op->ready.event == RLOCK_ACQUIRED;
    }
    return asks > 0;
}

struct question { /* about a key */
    struct actor *actor;
    struct slot *slot;
    struct hand *hand; /* whose place was asked for, or NULL */
    rlock_op op;
    int number;
    uint64_t token; /* of that hand */
    int64_t asked_us;
    int64_t most_holders, most_waiters; /* that there were since */
    bool answered;
    void (*react)(struct question *question);
};

static struct {
    struct actor actors[SIM_ACTORS];
    struct hand hands[SIM_HANDS];
    struct slot slots[SIM_SLOTS];
    struct question questions[SIM_QUESTIONS];
    struct token *chains[SIM_CHAINS];
    struct token tokens[SIM_TOKENS];
    int actor_count, hand_count, slot_count, question_count, token_count;
    int64_t orders; /* of tokens coming to keys */
    bool refusing;  /* servers may refuse commands */
    bool starved;   /* there was no memory, perhaps for the words of an event */
    int calls;      /* public calls on the stack */
    bool stranger;  /* a command under way is a stranger's */
    bool settled;   /* nothing goes wrong any more */
    bool quiet;     /* nothing goes wrong at all: nothing is late or lost, or asked twice */
    bool keeping;   /* holds are kept until their clients go */
    bool blind;     /* the locks are in a store that cannot be read from outside */
    bool deceived;  /* servers lie: holds may overlap, and fences fall */
    bool quorum;    /* the servers are one quorum */
    bool set_back; /* a server's clock was: where a fence counter is lost, it carries on no order */
    bool moved; /* the primary changed, or a replica is asked: an answer may be another machine's */
    int64_t
        quarantine_ms;   /* of all clients: what a server forgets is granted to nobody; 0 = none */
    int64_t lawless_us;  /* when a stranger last took a key away; 0 = never */
    int replicas;        /* so many have what a handle claims; 0 = perhaps none */
    int64_t named_us;    /* since when every Sentinel names the primary; 0 = not all do */
    int64_t fault_us;    /* when anything else last went wrong */
    int64_t trouble_us;  /* when something last went wrong on purpose */
    int64_t forgot_us;   /* when a key was last forgotten; 0 = never */
    struct actor *frees; /* is being freed by the program as if it had crashed */
    uint64_t operations; /* accepted, and callbacks */
    uint64_t voids;
} oracle;

static struct {                         /* of all worlds */
    uint64_t ended[RLOCK_LOST + 1][16]; /* by kind and -status */
    uint64_t lost[8];                   /* by reason */
    uint64_t overlaps;                  /* of void tokens, told apart by their fences */
    uint64_t handed_on;                 /* holds, to another handle */
    uint64_t given, kept;               /* a key that was handed on: to, or from, who waits */
    uint64_t refused[16];               /* calls, by -status */
    uint64_t from_callback;             /* calls made from inside a callback */
    uint64_t flavours[MODEL_FLAVOURS];  /* servers of worlds */
    uint64_t delifeqs;                  /* releases without a script */
    uint64_t mgets;                     /* batches of renewals */
    uint64_t slots[SLOT_KINDS];         /* keys of worlds */
    uint64_t granted[5], sets;          /* holds, by kind; and of several keys */
    uint64_t beside;                    /* readers beside their own writer */
    uint64_t followed;                  /* acquires that wait for a release */
    uint64_t stepped_down;              /* ... who waited in the line before it was granted */
    uint64_t handed_renewed;            /* holds handed on by who had renewed them */
    uint64_t lined, offered, claimed;   /* who came into the line, was given a turn, and took it */
    uint64_t skipped, turns, dropped;   /* nobody heard; a turn passed; it weighs too much now */
    uint64_t forgotten;                 /* places, with their line */
    uint64_t forced, permits;           /* holds taken away by force; numbers of permits changed */
    uint64_t meetings, met;             /* handles of another kind than their key; their holds */
    uint64_t strangers, expelled;       /* members that are nobody's; of those in lines, removed */
    uint64_t odd_fences, full;          /* fence counters that are not ours; servers full and old */
    uint64_t asked[6][16], unanswered;  /* questions, by rlock_op and -status; all that failed */
    uint64_t quorums, votes_granted;    /* worlds with a quorum; holds there */
    uint64_t votes_lost, votes_back;    /* forgotten by their servers; given again */
    uint64_t thin, votes_overlaps;      /* holds that went on without a minority; overlaps */
    uint64_t forks;                     /* inside callbacks */
    uint64_t proxied;                   /* servers behind a proxy */
    uint64_t named;                     /* worlds whose Sentinels have names */
    uint64_t deployments, promoted;     /* worlds with replicas; primaries that changed, ... */
    uint64_t told_none, told_more;      /* names not found, and with several addresses */
    uint64_t tails, split, aside;       /* ... what was lost, ... went on; writes there */
    uint64_t quarantines, guarded;      /* worlds with a quarantine; holds forgotten there */
    uint64_t clusters, moved, asks;     /* worlds with a cluster; what its nodes said: ... */
    uint64_t again, arrived, replaced;  /* ... TRYAGAIN; slots that moved; nodes replaced */
    uint64_t synced, unsynced, saved;   /* worlds with WAIT; those with too few; holds promoted */
    uint64_t cut;                       /* renewals of what a clock set back made longer */
} seen;

/* ------------------------------------------------------------------------------------------------
 * What the servers have.
 */

static inline bool slot_queued(const struct slot *slot) {
    return slot->kind != SLOT_MUTEX;
}

/* The milliseconds of the server's clock. */
static inline int64_t slot_now_ms(const struct slot *slot) {
    return sim_local_us(&slot->server->clock) / 1000;
}

/* Which script this is, among those of all servers: a slot goes from one to another. */
static inline uint64_t slot_script(const struct slot *slot) {
    uint64_t server = (uint64_t)(slot->server - sim.servers);
    return slot->server->model->scripts_run * (sizeof sim.servers / sizeof *sim.servers) + server;
}

/* A rule was broken for it. */
static inline void token_void(struct token *token) {
    token->is_void = true;
    token->parted = false;
}

/* What stands there is void; its holder cannot know it yet. */
static inline void slot_forgets(struct slot *slot) {
    struct token *token = slot->there;
    int64_t end_us =
        slot->expires_us < 0 ? INT64_MAX : sim_true_us(&slot->server->clock, slot->expires_us);
    token_void(token);
    if (end_us > sim.now_us && !token->theirs) {
        token->forgot_us = end_us > token->forgot_us ? end_us : token->forgot_us;
        oracle.forgot_us = sim.now_us;
        seen.votes_lost += oracle.quorum;
    }
}

static inline void oracle_void(struct sim_server *server) {
    int i, k;
    for (i = 0; i < oracle.slot_count; i++) {
        struct slot *slot = &oracle.slots[i];
        if (slot->server == server && slot->there != NULL) {
            slot_forgets(slot);
        }
        for (k = 0; k < slot->member_count && slot->server == server; k++) {
            token_void(slot->members[k]);
        }
    }
    oracle.voids++;
}

static inline bool oracle_is(const char *name, const char *key, size_t len) {
    return strlen(name) == len && memcmp(name, key, len) == 0;
}

/* Whose key, or one beside it, this is. */
static inline struct slot *oracle_slot(struct sim_server *server, const char *key, size_t len) {
    int i;
    for (i = 0; i < oracle.slot_count; i++) {
        struct slot *slot = &oracle.slots[i];
        if ((slot->server == server || sim.cluster.on) &&
            (oracle_is(slot->key, key, len) || oracle_is(slot->fence_key, key, len) ||
             (slot_queued(slot) && oracle_is(slot->queue_key, key, len)))) {
            return slot;
        }
    }
    return NULL;
}

static inline bool oracle_expired(const struct slot *slot) {
    return slot->expires_us >= 0 && slot->expires_us <= slot->server->model->wall_us;
}

/* Reads a key of a slot, in a cluster wherever it is. */
static inline bool slot_get(const struct slot *slot, const char *key, struct model_value *value) {
    bool found = false;
    int i;
    if (!sim.cluster.on) {
        return model_get(slot->server->model, slot->server->database, key, strlen(key), value);
    }
    for (i = 0; i < sim.server_count && !found; i++) {
        sim_server_clock(&sim.servers[i]);
        found = model_get(sim.servers[i].model, 0, key, strlen(key), value);
    }
    return found;
}

/* The token that stands there, or "" */
static inline int64_t oracle_read(const struct slot *slot, char text[64]) {
    struct model_value value;
    const char *bytes = NULL;
    size_t size = 0;
    text[0] = 0;
    if (!slot_get(slot, slot->key, &value)) {
        return -1;
    }
    if (value.type == MODEL_STRING) {
        bytes = value.bytes;
        size = value.size;
    } else if (value.type == MODEL_HASH && value.count > 0) {
        bytes = value.fields[0].name.at;
        size = value.fields[0].name.size;
    } else {
        bytes = "?";
        size = 1;
    }
    snprintf(text, 64, "%.*s", (int)size, bytes);
    return value.expires_us;
}

/* Where the chain of a token's like begins. */
static inline struct token **oracle_chain(const char *text) {
    uint64_t hash = 0;
    for (; *text; text++) {
        hash = hash * 31 + (unsigned char)*text;
    }
    return &oracle.chains[sim_mix(hash) % SIM_CHAINS];
}

/* NULL = it was never seen. */
static inline struct token *oracle_known(const char *text) {
    struct token *token = *oracle_chain(text);
    while (token != NULL && strcmp(token->text, text) != 0) {
        token = token->next;
    }
    return token;
}

static inline struct token *oracle_token(const char *text) {
    struct token *token = oracle_known(text), **chain;
    if (token == NULL) {
        if (oracle.token_count == SIM_TOKENS) {
            sim_failed("more than %d tokens", SIM_TOKENS);
        }
        token = &oracle.tokens[oracle.token_count++];
        memset(token, 0, sizeof *token);
        snprintf(token->text, sizeof token->text, "%s", text);
        token->away_us = -1;
        chain = oracle_chain(text);
        token->next = *chain;
        *chain = token;
    }
    return token;
}

static inline bool oracle_owns(const struct sim_line *line, const struct token *token) {
    return strncmp(token->text, line->client_id, 36) == 0;
}

/* The client of a connection, or NULL. */
static inline const struct actor *oracle_actor(const struct sim_line *by) {
    int i;
    for (i = 0; i < oracle.actor_count; i++) {
        if (strcmp(oracle.actors[i].id, by->client_id) == 0) {
            return &oracle.actors[i];
        }
    }
    return NULL;
}

/* Whether this client may be taking a hold of the key away by force. */
static inline bool oracle_forces(const struct slot *slot, const struct sim_line *by) {
    const struct actor *actor = oracle_actor(by);
    return actor != NULL && actor->forces[slot - oracle.slots] > 0;
}

static inline void oracle_force(struct token *token) {
    token_void(token);
    token->forced_us = sim.now_us;
    token->lawless = true;
    seen.forced++;
}

/* Whether a fence counter has a value that no client may go on from. */
static inline bool fence_is_odd(const struct slot *slot) {
    struct model_value value;
    char text[24];
    if (!slot_get(slot, slot->fence_key, &value)) {
        return false;
    }
    snprintf(text, sizeof text, "%.*s", value.type == MODEL_STRING ? (int)value.size : 0,
             value.type == MODEL_STRING ? value.bytes : "");
    return strspn(text, "0123456789") != strlen(text) || text[0] == 0 ||
           strtoull(text, NULL, 10) >= UINT64_C(9007199254740992);
}

/* The counter of a key's fences: it only rises, if it is not lost. */
static inline void oracle_fence_touched(struct slot *slot, const struct sim_line *by) {
    struct model_value value;
    struct fence *fence;
    uint64_t now = 0;
    if (slot_get(slot, slot->fence_key, &value) && value.type == MODEL_STRING && value.size < 20) {
        char digits[24];
        snprintf(digits, sizeof digits, "%.*s", (int)value.size, value.bytes);
        now = strtoull(digits, NULL, 10);
    }
    if (by != NULL && (slot->odd_fence || now >= UINT64_C(9007199254740992))) {
        sim_failed("%s changes the fence of %s, which is no number of ours", by->client_id,
                   slot->key);
    }
    if (by != NULL && now <= slot->fence) {
        sim_failed("the fence of %s goes from %llu to %llu", slot->key,
                   (unsigned long long)slot->fence, (unsigned long long)now);
    }
    slot->fence = now;
    if (by != NULL && slot->there != NULL && slot->there->is_void && oracle_owns(by, slot->there)) {
        slot->there->order = ++oracle.orders; /* it came back with an earlier state: granted anew */
    }
    if (by != NULL && slot_queued(slot)) {
        fence = &slot->fences[slot->fence_count++ % SIM_FENCES];
        fence->value = now;
        fence->used = false;
        fence->order = ++oracle.orders;
        fence->script = slot_script(slot);
        fence->at_ms = slot_now_ms(slot);
        memcpy(fence->client_id, by->client_id, sizeof fence->client_id);
    }
}

/* Whether a renewal may cut a time to live to this: only that which a clock set back made longer,
 * and not below the longest lease that is known to be claimed. */
static inline bool oracle_cuts(const struct slot *slot, const struct token *token, int64_t end_ms) {
    return slot->server->back_us > 0 && sim_renews(slot->server) &&
           end_ms >= slot_now_ms(slot) + token->longest_ms;
}

/* What is renewed ends within the longest lease that its client ever asked for, whatever the clock
 * of the server did before. The end of a queued hold is another one each time. */
static inline void oracle_renews(const struct slot *slot, const struct sim_line *by,
                                 struct token *token, int64_t end_ms) {
    const struct actor *actor = oracle_actor(by);
    if (actor == NULL || !sim_renews(slot->server)) {
        return;
    }
    if (end_ms > slot_now_ms(slot) + actor->longest_ms + slot_queued(slot)) {
        sim_failed("a renewal leaves %s to %s for %lld ms, who asked for %lld at most", slot->key,
                   token->text, (long long)(end_ms - slot_now_ms(slot)),
                   (long long)actor->longest_ms);
    }
    seen.cut += token->back_us > 0;
    token->back_us = 0;
}

static inline bool token_late(const struct sim_line *by, const struct token *token);

/* A mutex was changed: who may do that, and to what? */
static inline void oracle_mutex_touched(struct slot *slot, struct sim_line *by) {
    struct token *before = slot->there;
    char text[64];
    int64_t expires_us;
    bool same, force;
    slot->changes++;
    expires_us = oracle_read(slot, text);
    same = before != NULL && strcmp(before->text, text) == 0;
    if (before != NULL && oracle_expired(slot)) {
        before = NULL;
    }
    force = by != NULL && before != NULL && text[0] == 0 && oracle_forces(slot, by);
    if (by != NULL && before != NULL && !oracle_owns(by, before) && !force) {
        sim_failed("%s changes key %s, which is %s's", by->client_id, slot->key, before->text);
    }
    if (by != NULL && same && before != NULL && oracle_owns(by, before)) {
        oracle_renews(slot, by, before, (expires_us - 1) / 1000);
    }
    if (by != NULL && same && before != NULL && slot->expires_us >= 0 &&
        expires_us < slot->expires_us && !oracle_cuts(slot, before, (expires_us - 1) / 1000)) {
        sim_failed("the time of %s is shortened by %lld us", slot->key,
                   (long long)(slot->expires_us - expires_us));
    }
    if (before != NULL && by == NULL && oracle.stranger) {
        slot_forgets(slot);
        before->lawless = true;
        oracle.lawless_us = sim.now_us;
    }
    if (force) {
        oracle_force(before);
    }
    sim_trace("  server %d: %s is %s until %lld", slot->server->number, slot->key,
              text[0] ? text : "free", (long long)expires_us);
    slot->expires_us = expires_us;
    if (!same || before == NULL) {
        slot->there = text[0] ? oracle_token(text) : NULL;
        slot->since_us = sim.now_us;
        if (slot->there != NULL) {
            seen.votes_back += oracle.quorum && by != NULL && slot->there->order != 0;
            slot->there->order = ++oracle.orders;
            slot->free_since_us = -1;
            slot->there->theirs = by == NULL;
            slot->there->late = token_late(by, slot->there);
            if (by != NULL && !oracle_owns(by, slot->there)) {
                sim_failed("%s puts the token of %s", by->client_id, slot->there->text);
            }
        }
    }
    if (slot->there != NULL && by != NULL) {
        slot->there->line = by->number;
    }
}

/* ------------------------------------------------------------------------------------------------
 * What the servers have of a queued kind: holders and a line, both sorted sets.
 */

/* Whether a member is one of ours. */
static inline bool queue_is_ours(const char *member, size_t size) {
    return size > 38 && member[36] == ':' && strchr("fws", member[size - 1]) != NULL;
}

/* How many there are for a token, all in all. */
static inline int64_t queue_permits(const struct slot *slot, char sort, int64_t in_force) {
    int64_t permits = slot->kind == SLOT_SEMAPHORE ? in_force : SIM_PERMITS;
    return sort == 'f' ? 1 : sort == 'w' ? 1000000000 : permits;
}

/* The token of a member, <client>:<number>:<weight><sort>. */
static inline struct token *queue_token(struct slot *slot, const char *member, size_t size) {
    struct token *token = NULL;
    size_t length = size;
    char text[64];
    int i;
    while (size > 0 && member[size - 1] != ':') {
        size--;
    }
    if (size < 2 || size > sizeof text) {
        sim_failed("%s has a member that nobody made", slot->key);
    }
    snprintf(text, sizeof text, "%.*s", (int)size - 1, member);
    for (i = 0; i < slot->member_count && token == NULL; i++) {
        token = strcmp(slot->members[i]->text, text) == 0 ? slot->members[i] : NULL;
    }
    if (token == NULL) {
        token = oracle_token(text);
        if (slot->member_count == SIM_MEMBERS) {
            sim_failed("more than %d wait for %s", SIM_MEMBERS, slot->key);
        }
        slot->members[slot->member_count++] = token;
        token->next_ms = 0;
        token->next_place = 0;
    }
    token->weight = atoll(member + size);
    token->sort = member[length - 1];
    return token;
}

static inline void queue_read_holders(struct slot *slot) {
    struct model_value value;
    size_t i;
    slot->next_in_force = slot->permits;
    slot->foreign = false;
    slot->strangers = 0;
    if (!slot_get(slot, slot->key, &value)) {
        return;
    }
    slot->foreign = value.type != MODEL_ZSET;
    for (i = 0; i < value.count && !slot->foreign; i++) {
        const struct model_field *field = &value.fields[i];
        if (field->name.size > 8 && memcmp(field->name.at, "permits:", 8) == 0) {
            char digits[24];
            snprintf(digits, sizeof digits, "%.*s", (int)field->name.size - 8, field->name.at + 8);
            slot->next_in_force = atoll(digits);
        } else if (!queue_is_ours(field->name.at, field->name.size)) {
            slot->strangers++;
        } else {
            struct token *token = queue_token(slot, field->name.at, field->name.size);
            double ends = field->score < 0 ? -field->score : field->score;
            token->next_ms = (int64_t)(ends + 0.5); /* that of an offer is between two */
            token->half = (double)token->next_ms != ends;
            if ((field->score < 0) != (token->weight > 1 || token->sort == 'f')) {
                sim_failed("%s holds with a score of the wrong sign", token->text);
            }
        }
    }
    slot->foreign = slot->foreign || slot->strangers > 0;
}

static inline void queue_read(struct slot *slot) {
    struct model_value value;
    size_t i;
    int k;
    slot->queue_until_us = -1;
    slot->odd_line = false;
    for (k = 0; k < slot->member_count; k++) {
        slot->members[k]->next_ms = 0;
        slot->members[k]->next_place = 0;
    }
    queue_read_holders(slot);
    if (!slot_get(slot, slot->queue_key, &value)) {
        return;
    }
    slot->odd_line = value.type != MODEL_ZSET;
    slot->queue_until_us = value.type == MODEL_ZSET ? value.expires_us : -1;
    for (i = 0; i < value.count && value.type == MODEL_ZSET; i++) {
        const struct model_field *field = &value.fields[i];
        if (queue_is_ours(field->name.at, field->name.size)) {
            queue_token(slot, field->name.at, field->name.size)->next_place = field->score;
        } else {
            slot->odd_line = true;
        }
    }
}

/* The first in line of those for whom there are enough permits at all. */
static inline struct token *queue_head(const struct slot *slot) {
    struct token *head = NULL;
    int i;
    for (i = 0; i < slot->member_count; i++) {
        struct token *token = slot->members[i];
        if (token->place > 0 && token->weight <= queue_permits(slot, token->sort, slot->in_force) &&
            (head == NULL || token->place < head->place)) {
            head = token;
        }
    }
    return head;
}

/* What those weigh together who hold. */
static inline int64_t queue_used(const struct slot *slot) {
    int64_t used = 0, now_ms = slot_now_ms(slot);
    int i;
    for (i = 0; i < slot->member_count; i++) {
        used += slot->members[i]->ends_ms > now_ms ? slot->members[i]->weight : 0;
    }
    return used;
}

/* A token that holds or stands in line, or NULL. */
static inline struct token *queue_token_of(const struct slot *slot, const char *client_id,
                                           uint64_t number) {
    char text[64];
    int i;
    snprintf(text, sizeof text, "%.36s:%llu", client_id, (unsigned long long)number);
    for (i = 0; i < slot->member_count; i++) {
        if (strcmp(slot->members[i]->text, text) == 0) {
            return slot->members[i];
        }
    }
    return NULL;
}

/* The handle whose acquire has this token, or NULL. */
static inline struct hand *queue_hand(const struct token *token) {
    int i;
    for (i = 0; i < oracle.hand_count; i++) {
        struct hand *hand = &oracle.hands[i];
        if (!hand->gone && !hand->actor->gone && hand->lock->claim != NULL &&
            strncmp(hand->actor->id, token->text, 36) == 0 &&
            hand->lock->claim->token == strtoull(token->text + 37, NULL, 10)) {
            return hand;
        }
    }
    return NULL;
}

/* A writer of the same client holds, beside which this reader may. */
static inline bool queue_beside(const struct slot *slot, const struct token *token) {
    int64_t now_ms = slot_now_ms(slot);
    int i;
    for (i = 0; i < slot->member_count && token->sort == 'w' && token->weight == 1; i++) {
        const struct token *other = slot->members[i];
        if (other->weight > 1 && other->ends_ms > now_ms &&
            strncmp(other->text, token->text, 36) == 0) {
            return true;
        }
    }
    return false;
}

/* Nobody of another kind holds, nor does anything that is not ours stand there. */
static inline void queue_check_alone(const struct slot *slot, const struct token *token) {
    static const char sorts[] = {'?', 'f', 'w', 's'}; /* [slot_kind] */
    int64_t now_ms = slot_now_ms(slot);
    int i;
    for (i = 0; i < slot->member_count; i++) {
        const struct token *other = slot->members[i];
        if (other->ends_ms > now_ms && other->sort != token->sort) {
            sim_failed("%s and %s hold %s as two kinds", token->text, other->text, slot->key);
        }
    }
    seen.met += token->sort != sorts[slot->kind];
}

/* Somebody comes to hold: itself, if nobody is before it, or who is first, for one turn. */
static inline void queue_check_new(struct slot *slot, struct sim_line *by, struct token *token) {
    const struct token *head = queue_head(slot);
    const struct actor *actor = oracle_actor(by);
    int64_t used = queue_used(slot) + token->weight;
    int64_t turn_ms = actor != NULL ? actor->command_timeout_ms : 0;
    int64_t permits = queue_permits(slot, token->sort, slot->next_in_force);
    bool beside = queue_beside(slot, token);
    if (!oracle_owns(by, token) &&
        (token != head || token->next_ms > slot_now_ms(slot) + turn_ms)) {
        sim_failed("%s gives %s to %s, who is not next, or for too long", by->client_id, slot->key,
                   token->text);
    }
    if (oracle_owns(by, token) && head != NULL && head != token && !beside) {
        sim_failed("%s takes %s before %s, who is first", token->text, slot->key, head->text);
    }
    if (used > permits && !beside) {
        sim_failed("%s takes %lld of %s, of which %lld of %lld are out", token->text,
                   (long long)token->weight, slot->key, (long long)(used - token->weight),
                   (long long)permits);
    }
    queue_check_alone(slot, token);
    seen.beside += used > permits;
}

/* An offer that had passed stands there until there is room for others. A clock that is set back
 * lets it hold again; meanwhile its waiter has joined the line, is first there, and is offered a
 * turn. */
static inline bool queue_offers_anew(const struct slot *slot, const struct token *token) {
    return token->back_us > 0 && token->offered && token->half && token == queue_head(slot);
}

static inline void queue_check_holder(struct slot *slot, struct sim_line *by, struct token *token) {
    int64_t now_ms = slot_now_ms(slot);
    bool was = token->ends_ms > now_ms, is = token->next_ms > now_ms;
    bool own = oracle_owns(by, token);
    if (was && !is && oracle_forces(slot, by) &&
        !(token->offered && token->script == slot->script)) {
        oracle_force(token);
    } else if (was && !is && !own) {
        if (!token->offered || token->script != slot->script) {
            sim_failed("%s takes %s away from %s", by->client_id, slot->key, token->text);
        }
        token->skipped = slot->script;
        seen.skipped++;
        if (oracle.quiet) {
            sim_failed("%s is skipped, who would hear a call", token->text);
        }
    } else if (was && is && token->next_ms != token->ends_ms) {
        bool cut = token->next_ms >= now_ms + token->longest_ms; /* of an offer, or of a step */
        if (own) {
            oracle_renews(slot, by, token, token->next_ms);
        } else if (queue_offers_anew(slot, token)) {
            token->script = slot->script;
            return;
        }
        if (!own || (token->next_ms < token->ends_ms && token->script != slot->script && !cut)) {
            sim_failed("%s makes %s's hold of %s shorter or longer, by %lld ms", by->client_id,
                       token->text, slot->key, (long long)(token->next_ms - token->ends_ms));
        }
    } else if (!was && is) {
        queue_check_new(slot, by, token);
    }
}

/* True if this script took away an offer to the same client, which let it pass. */
static inline bool queue_let_pass(const struct slot *slot, const struct token *token) {
    int i;
    for (i = 0; i < slot->missed_count && slot->missed_in == slot->script; i++) {
        if (strncmp(slot->missed[i]->text, token->text, 36) == 0) {
            return true;
        }
    }
    return false;
}

static inline void queue_check_waiter(struct slot *slot, struct sim_line *by, struct token *token) {
    const struct hand *hand;
    bool was = token->place > 0, is = token->next_place > 0, own = oracle_owns(by, token);
    int i;
    if (was && !is && !own && token->ends_ms <= slot_now_ms(slot) &&
        token->skipped != slot->script) {
        if (token->weight <= queue_permits(slot, token->sort, slot->in_force) &&
            !queue_let_pass(slot, token)) {
            sim_failed("%s puts %s out of the line of %s", by->client_id, token->text, slot->key);
        }
        seen.dropped++;
    }
    if (was && is && (int64_t)token->place != (int64_t)token->next_place) {
        sim_failed("%s gives %s another place", by->client_id, token->text);
    }
    if (was || !is) {
        return;
    }
    hand = queue_hand(token);
    if (!own || (hand != NULL && hand->once)) {
        sim_failed("%s puts %s in line, who did not ask for that", by->client_id, token->text);
    }
    for (i = 0; i < slot->member_count; i++) {
        if (slot->members[i]->next_place >= token->next_place && slot->members[i] != token) {
            sim_failed("%s does not go to the end of the line", token->text);
        }
    }
    seen.lined++;
}

/* The line is forgotten when nobody has asked for long. */
static inline void queue_forgotten(const struct slot *slot, struct token *token) {
    const struct hand *hand = queue_hand(token);
    if (oracle.quiet && hand != NULL && hand_asks_now(hand) && token->place > 0) {
        sim_failed("the line of %s is forgotten, where %s stands", slot->key, token->text);
    }
    seen.forgotten += token->place > 0;
    token->place = 0;
}

/* What nobody's script did: time passed, or a stranger was there. */
static inline void queue_check_gone(struct slot *slot, struct token *token) {
    bool was = token->ends_ms > slot_now_ms(slot);
    if (oracle.stranger) { /* who makes it something else leaves its line */
        if ((was && token->next_ms == 0) || slot->foreign) {
            token_void(token);
            token->lawless = true;
        }
    } else if (was && token->next_ms == 0 && !oracle.refusing) { /* PEXPIRE was refused */
        sim_failed("%s is forgotten before %s's lease is over", slot->key, token->text);
    } else if (token->place > 0 && token->next_place == 0) {
        queue_forgotten(slot, token);
    }
}

/* The number of permits is changed by who was asked to. */
static inline void queue_check_permits(const struct slot *slot, const struct sim_line *by) {
    const struct actor *actor = oracle_actor(by);
    if (slot->next_in_force != slot->in_force &&
        (actor == NULL || actor->permits[slot - oracle.slots] == 0)) {
        sim_failed("%s changes the permits of %s from %lld to %lld", by->client_id, slot->key,
                   (long long)slot->in_force, (long long)slot->next_in_force);
    }
}

/* What open questions may say of a key. */
static inline void queue_counted(const struct slot *slot, struct question *question) {
    int64_t holders = 0, waiters = 0, now_ms = slot_now_ms(slot);
    int i;
    for (i = 0; i < slot->member_count; i++) {
        holders += slot->members[i]->ends_ms > now_ms;
        waiters += slot->members[i]->place > 0;
    }
    holders += slot->strangers;                  /* one that is not found out counts as a hold */
    waiters += slot->odd_line ? SIM_MEMBERS : 0; /* whoever they are */
    if (holders > question->most_holders) {
        question->most_holders = holders;
    }
    if (waiters > question->most_waiters) {
        question->most_waiters = waiters;
    }
}

static inline void queue_count(const struct slot *slot) {
    int i;
    for (i = 0; i < oracle.question_count; i++) {
        if (!oracle.questions[i].answered && oracle.questions[i].slot == slot) {
            queue_counted(slot, &oracle.questions[i]);
        }
    }
}

/* The server runs something that its client gave up for want of an answer. */
static inline bool token_late(const struct sim_line *by, const struct token *token) {
    const struct hand *hand = queue_hand(token);
    const struct actor *actor = by != NULL ? oracle_actor(by) : NULL;
    return (hand == NULL || !hand_asks_now(hand)) && actor != NULL &&
           sim.now_us > by->sent_us + actor->command_timeout_ms * 1000;
}

/* What was compared is so from now on. */
static inline void queue_commit(struct slot *slot, const struct sim_line *by) {
    int64_t now_ms = slot_now_ms(slot);
    int i, kept = 0;
    for (i = 0; i < slot->member_count; i++) {
        struct token *token = slot->members[i];
        bool was = token->ends_ms > now_ms, is = token->next_ms > now_ms;
        bool own = by != NULL && oracle_owns(by, token);
        if (is && (!was || (own && token->next_ms != token->ends_ms))) {
            token->order = ++oracle.orders;
            token->ordered = slot->script;
            token->began_order = was ? token->began_order : token->order;
            seen.offered += !own;
            seen.claimed += own && token->offered;
            token->line = own ? by->number : token->line;
            token->offered = !own;
            token->called = !own && token->place == (double)(int64_t)token->place;
        }
        if (!was && !is && token->ends_ms != 0 && token->next_ms == 0 && token->half) {
            seen.turns += token->offered;
            slot->missed_count = slot->missed_in == slot->script ? slot->missed_count : 0;
            slot->missed_in = slot->script;
            if (slot->missed_count < SIM_MEMBERS) {
                slot->missed[slot->missed_count++] = token;
            }
        }
        if (was != is || (token->place > 0) != (token->next_place > 0)) {
            token->late = token_late(by, token);
            slot->changed_us = token->came_us = sim.now_us;
        }
        slot->left = slot->left || (was && !is && by != NULL);
        if (!was && is) {
            token->script = slot->script;
            token->permits = queue_permits(slot, token->sort, slot->next_in_force);
            token->forced_us = 0; /* it asked once more, as if nothing had been */
        }
        token->ends_ms = token->next_ms;
        token->place = token->next_place;
        token->offered = token->offered && token->ends_ms != 0;
        if (token->ends_ms != 0 || token->place > 0) {
            slot->members[kept++] = token;
        }
    }
    slot->member_count = kept;
    queue_count(slot);
    seen.permits += slot->in_force != slot->next_in_force;
    slot->in_force = slot->next_in_force;
}

/* Where somebody is taken away, who is first is served in the same script, if there is room. */
static inline void queue_served(struct slot *slot) {
    if (slot->unoffered && !oracle.refusing) {
        sim_failed("there is room for who is first in line for %s, and it is not called",
                   slot->key);
    }
    slot->unoffered = false;
}

static inline void queue_trace(const struct slot *slot) {
    int i;
    sim_trace("  server %d: %s, %lld of %lld out", slot->server->number, slot->key,
              (long long)queue_used(slot), (long long)slot->in_force);
    for (i = 0; i < slot->member_count && sim.tracing; i++) {
        const struct token *token = slot->members[i];
        sim_trace("      %s, weight %lld, place %g, holds for %lld ms more%s", token->text,
                  (long long)token->weight, token->place,
                  token->ends_ms != 0 ? (long long)(token->ends_ms - slot_now_ms(slot)) : 0,
                  token->offered ? ", offered" : "");
    }
}

static inline void queue_touched(struct slot *slot, struct sim_line *by) {
    const struct token *head;
    int strangers = slot->strangers;
    bool foreign = slot->foreign, odd_line = slot->odd_line;
    uint64_t script = slot_script(slot);
    int64_t queue_until_us = slot->queue_until_us;
    int i, count;
    bool over = queue_until_us >= 0 && queue_until_us <= slot->server->model->wall_us;
    slot->changes++;
    if (slot->script != script || by == NULL) {
        queue_served(slot);
        slot->script = script;
        slot->left = false;
    }
    queue_read(slot);
    if (by != NULL && (slot->strangers != strangers || slot->foreign != foreign)) {
        sim_failed("%s changes what is not ours in %s", by->client_id, slot->key);
    }
    seen.expelled += by != NULL && odd_line && !slot->odd_line;
    count = slot->member_count;
    for (i = 0; i < count; i++) {
        if (by != NULL) {
            if (over) { /* time passed, and this is the first to see it */
                queue_forgotten(slot, slot->members[i]);
            }
            queue_check_holder(slot, by, slot->members[i]);
            queue_check_waiter(slot, by, slot->members[i]);
        } else {
            queue_check_gone(slot, slot->members[i]);
        }
    }
    if (by != NULL) {
        queue_check_permits(slot, by);
    }
    queue_commit(slot, by);
    queue_trace(slot);
    head = queue_head(slot);
    /* A script that finds a fence counter that is not ours ends at once, also if the counter is put
     * right before the next one: who is first asks by itself. */
    slot->unoffered =
        by != NULL && slot->left && head != NULL && !slot->foreign && !slot->odd_line &&
        !slot->odd_fence &&
        queue_used(slot) + head->weight <= queue_permits(slot, head->sort, slot->in_force);
}

/* ------------------------------------------------------------------------------------------------
 * A deployment whose primary changes. The oracle goes on with what the new one has. What was lost
 * with a tail, or may be changed at an old primary that goes on, is void; nothing else is.
 */

/* What an old primary has of a token; 0 = nothing. */
static inline double aside_until(const struct sim_server *server, const struct slot *slot,
                                 const struct token *token) {
    struct model_value value;
    size_t i, length = strlen(token->text);
    if (!model_get(server->model, server->database, slot->key, strlen(slot->key), &value)) {
        return 0;
    }
    if (value.type == MODEL_STRING) {
        bool same = value.size == length && memcmp(value.bytes, token->text, length) == 0;
        return same ? (double)value.expires_us : 0;
    }
    for (i = 0; i < value.count && value.type != MODEL_LIST; i++) {
        const struct model_field *field = &value.fields[i];
        if (field->name.size >= length && memcmp(field->name.at, token->text, length) == 0 &&
            (field->name.size == length || field->name.at[length] == ':')) {
            double score = field->score < 0 ? -field->score : field->score;
            return value.type == MODEL_ZSET ? score * 1000 : (double)value.expires_us;
        }
    }
    return 0;
}

/* Until when, in true time, an old primary that goes on has a key for a token; 0 = none has. */
static inline int64_t aside_until_us(const struct slot *slot, const struct token *token) {
    int64_t until_us = 0;
    int i;
    for (i = 0; i < sim.server_count; i++) {
        if (sim_is_old(&sim.servers[i])) {
            until_us = sim_true_us(&sim.servers[i].clock,
                                   (int64_t)aside_until(&sim.servers[i], slot, token));
        }
    }
    return until_us;
}

/* A token at an old primary: what it makes may be beside anything. */
static inline void aside_token(const struct sim_server *server, const struct slot *slot,
                               const char *text) {
    struct token *token = oracle_token(text);
    double until = aside_until(server, slot, token);
    if (until != token->aside) {
        if (token->aside <= (double)server->model->wall_us) {
            token->order = token->began_order = ++oracle.orders;
            token->aside_us = sim.now_us;
        }
        token->aside = until;
        token->is_void = true;
        seen.aside++;
    }
}

/* A client whose command timeout is too short for its network may never get anything. */
static inline bool oracle_patient(const struct actor *actor) {
    return actor->command_timeout_ms * 1000 > 4 * sim.weather.slow_us + 8 * sim.weather.split_us;
}

/* Where the Sentinels know better, nobody stays with an old primary who can hear them. */
static inline void aside_left(const struct sim_server *server, const struct sim_line *by) {
    int64_t paused_us = by != NULL && by->seat != NULL ? by->seat->process->paused_until_us : 0;
    const struct actor *actor = by != NULL ? oracle_actor(by) : NULL;
    if (by != NULL && (actor == NULL || oracle_patient(actor)) && oracle.named_us != 0 &&
        by->sent_us > oracle.named_us + SIM_LEAVES_US && by->sent_us > paused_us + SIM_LEAVES_US &&
        by->sent_us > oracle.fault_us + SIM_FAULT_US) {
        sim_failed("%s writes to server %d, which is not the primary, as every Sentinel says",
                   by->client_id, server->number);
    }
}

/* An old primary counted a fence: whoever it is for may have asked for a hold that both have, and
 * that lasts longer already, so that nothing else changed. It is of the other counter now. */
static inline void aside_counted(struct slot *slot, const struct sim_line *by) {
    int i;
    if (slot->there != NULL && oracle_owns(by, slot->there)) {
        slot->there->parted = false;
    }
    for (i = 0; i < slot->member_count; i++) {
        if (oracle_owns(by, slot->members[i])) {
            slot->members[i]->parted = false;
        }
    }
}

/* The token of a handle's claim, as the servers have it. */
static inline void hand_text(const struct hand *hand, char text[64]) {
    snprintf(text, 64, "%.36s:%s%llu", hand->actor->id, oracle.quorum ? "all " : "",
             (unsigned long long)hand->lock->claim->token);
}

/* NULL = it has no claim, or no server ever had that. */
static inline struct token *hand_token(const struct hand *hand) {
    char text[64];
    if (hand->gone || hand->lock->claim == NULL) {
        return NULL;
    }
    hand_text(hand, text);
    return oracle_known(text);
}

/* An old primary no longer has a hold, since that was taken away by force. Whoever was granted it
 * goes on until its client hears of that, and no quarantine is in the way of the next. */
static inline void aside_forced(const struct sim_server *server, const struct slot *slot) {
    int i, k;
    for (i = 0; i < oracle.hand_count; i++) {
        const struct hand *hand = &oracle.hands[i];
        struct token *token = hand_token(hand);
        for (k = 0; k < hand->slot_count && token != NULL; k++) {
            bool had = token->aside != 0 || token->both_us > 0 || token->old_only;
            if (hand->slots[k] == slot && token->is_void && !token->lawless && had &&
                aside_until(server, slot, token) == 0) {
                token_void(token); /* what was granted there may be longer than at the new one */
                token->lawless = true;
                seen.forced++;
            }
        }
    }
}

static inline void aside_touched(const struct sim_server *server, const struct sim_line *by,
                                 const char *key, size_t len) {
    struct slot *slot = oracle_slot(sim.primary, key, len);
    struct model_value value;
    char text[64];
    size_t i;
    if (slot != NULL && by != NULL && oracle_is(slot->fence_key, key, len)) {
        aside_counted(slot, by);
    }
    if (slot != NULL && slot->aside != NULL && oracle_is(slot->fence_key, key, len)) {
        slot->aside->order = ++oracle.orders; /* it is granted once more */
    }
    if (slot == NULL || !oracle_is(slot->key, key, len)) {
        return;
    }
    if (by != NULL && oracle_forces(slot, by)) {
        aside_forced(server, slot);
    }
    if (slot->aside != NULL) {
        slot->aside->aside = aside_until(server, slot, slot->aside);
        slot->aside = slot->aside->aside != 0 ? slot->aside : NULL;
    }
    if (!model_get(server->model, server->database, key, len, &value)) {
        return;
    }
    if (value.type == MODEL_STRING) {
        snprintf(text, sizeof text, "%.*s", (int)value.size, value.bytes);
        aside_token(server, slot, text);
        slot->aside = oracle_token(text);
    }
    for (i = 0; i < value.count && value.type != MODEL_LIST; i++) {
        const struct model_field *field = &value.fields[i];
        size_t size = field->name.size;
        while (value.type == MODEL_ZSET && size > 0 && field->name.at[size - 1] != ':') {
            size--;
        }
        size -= value.type == MODEL_ZSET && size > 0;
        if (size > 36 && size < sizeof text) {
            snprintf(text, sizeof text, "%.*s", (int)size, field->name.at);
            aside_token(server, slot, text);
        }
    }
}

/* Until when, in true time, both primaries have a token. Each argument is until when one of them
 * has it, by the server's clock: 0 = it has not, -1 = without an end. */
static inline int64_t promoted_until_us(const struct slot *slot, int64_t old_us, int64_t new_us) {
    int64_t both_us = old_us < 0 || (new_us >= 0 && new_us < old_us) ? new_us : old_us;
    return both_us < 0 ? INT64_MAX : both_us > 0 ? sim_true_us(&slot->server->clock, both_us) : 0;
}

/* What becomes of a token whose key, or place, is the same at the new primary, or is not. */
static inline void promoted_token(struct token *token, bool same, bool splits, int64_t both_us) {
    token->both_us = splits ? both_us : 0;
    token->parted = same && splits && (token->parted || !token->is_void);
    token->is_void = token->is_void || splits || !same;
}

static inline void promoted_mutex(struct slot *slot, bool splits) {
    struct token *before = slot->there;
    char text[64];
    int64_t expires_us = oracle_read(slot, text), both_us = 0;
    bool same = before != NULL ? strcmp(before->text, text) == 0 && slot->expires_us == expires_us
                               : text[0] == 0;
    if (before != NULL && oracle_expired(slot)) {
        same = text[0] == 0;
        before = NULL;
    }
    seen.tails += !same;
    if (before != NULL) {
        if (strcmp(before->text, text) == 0) {
            both_us = promoted_until_us(slot, slot->expires_us, expires_us);
        }
        promoted_token(before, same, splits, both_us);
        before->old_only = splits && both_us == 0;
    }
    slot->there = text[0] ? oracle_token(text) : NULL;
    slot->since_us = same ? slot->since_us : sim.now_us;
    slot->expires_us = expires_us;
    if (slot->there != NULL && !same) {
        promoted_token(slot->there, same, splits, both_us);
    }
}

static inline void promoted_queue(struct slot *slot, bool splits) {
    int i, kept = 0;
    queue_served(slot);
    queue_read(slot);
    for (i = 0; i < slot->member_count; i++) {
        struct token *token = slot->members[i];
        bool same = token->ends_ms == token->next_ms &&
                    (int64_t)(token->place * 1e6) == (int64_t)(token->next_place * 1e6);
        seen.tails += !same;
        promoted_token(token, same, splits,
                       promoted_until_us(slot, token->ends_ms * 1000, token->next_ms * 1000));
        token->old_only = splits && token->ends_ms != 0 && token->next_ms == 0;
        token->came_us = same ? token->came_us : sim.now_us;
        token->ends_ms = token->next_ms;
        token->place = token->next_place;
        if (token->ends_ms != 0 || token->place > 0) {
            slot->members[kept++] = token;
        }
    }
    slot->member_count = kept;
    slot->in_force = slot->next_in_force;
    slot->unoffered = slot->left = false;
    slot->changed_us = sim.now_us;
    queue_count(slot);
}

/* Another machine is the primary; who was it goes on with what it has, or does not. */
static inline void oracle_promoted(bool splits) {
    int i;
    for (i = 0; i < oracle.slot_count; i++) {
        struct slot *slot = &oracle.slots[i];
        slot->server = sim.primary;
        slot->fence = 0;
        slot->odd_fence = fence_is_odd(slot);
        if (slot_queued(slot)) {
            promoted_queue(slot, splits);
        } else {
            promoted_mutex(slot, splits);
        }
    }
    for (i = 0; i < oracle.actor_count; i++) {
        oracle.actors[i].server = sim.primary;
    }
    oracle.moved = true;
    seen.promoted++;
    seen.split += splits;
}

/* A token that the new primary has, for as long as the old one had it, is one again. What was given
 * back to the old one only is still there, for its lease. */
static inline void demoted_token(struct token *token, int64_t until_us) {
    if (token->parted && token->aside <= (double)until_us) {
        token->is_void = false;
    }
    token->parted = false;
    token->stays = true;
}

/* An old primary follows, and what it had is gone. */
static inline void oracle_demoted(void) {
    int i, k;
    for (i = 0; i < oracle.slot_count; i++) {
        struct slot *slot = &oracle.slots[i];
        if (slot->there != NULL) {
            demoted_token(slot->there, slot->expires_us < 0 ? INT64_MAX : slot->expires_us);
        }
        for (k = 0; k < slot->member_count; k++) {
            demoted_token(slot->members[k], slot->members[k]->ends_ms * 1000);
        }
    }
    for (i = 0; i < oracle.token_count; i++) {
        oracle.tokens[i].aside = 0;
    }
}

/* ---- a cluster: the oracle follows a key to the node that has it ---- */

/* All keys of a slot are at that node; what is not as it was is void. */
static inline void slot_arrives(struct slot *slot, struct sim_server *server) {
    slot->server = server;
    slot->torn = false;
    slot->fence = 0;
    slot->odd_fence = fence_is_odd(slot);
    if (slot_queued(slot)) {
        promoted_queue(slot, false);
    } else {
        promoted_mutex(slot, false);
    }
}

/* A key was changed, or one beside it. */
static inline void oracle_touched(struct sim_server *server, struct sim_line *by, const char *key,
                                  size_t len) {
    struct slot *slot = oracle_slot(server, key, len);
    if (sim_is_old(server)) {
        aside_left(server, by);
        aside_touched(server, by, key, len);
    }
    if (slot == NULL) {
        return;
    }
    if (sim.cluster.on && by != NULL) {
        slot->server = server;
    }
    if (oracle_is(slot->fence_key, key, len)) {
        oracle_fence_touched(slot, by);
    } else if (slot_queued(slot)) {
        queue_touched(slot, by);
    } else {
        oracle_mutex_touched(slot, by);
    }
}

/* A stranger's command, whose effects void what was there. A stranger does not follow ASK. */
static inline void oracle_stranger(struct sim_server *server, int count, const char *const w[]) {
    bool leaves = sim.cluster.on && count > 1 && sim_key_leaves(server, w[1], strlen(w[1]));
    oracle.stranger = true;
    sim_trace("a stranger: %s %s%s", w[0], count > 1 ? w[1] : "", leaves ? ", refused" : "");
    if (!leaves) {
        sim_stranger(server, count, w);
    }
    oracle.stranger = false;
}

/* After the server's data was lost or changed as a whole. */
static inline void queue_reread(struct slot *slot) {
    int i, kept = 0;
    queue_read(slot);
    for (i = 0; i < slot->member_count; i++) {
        struct token *token = slot->members[i];
        token->ends_ms = token->next_ms;
        token->place = token->next_place;
        token_void(token);
        token->back_us = slot->server->back_us; /* perhaps it was saved before that */
        token->came_us = sim.now_us;
        if (token->ends_ms != 0 || token->place > 0) {
            slot->members[kept++] = token;
        }
    }
    slot->member_count = kept;
    slot->in_force = slot->next_in_force;
    slot->unoffered = false;
    queue_count(slot);
}

static inline void oracle_reread(struct sim_server *server) {
    int i;
    for (i = 0; i < oracle.slot_count; i++) {
        struct slot *slot = &oracle.slots[i];
        char text[64];
        if (slot->server == server) {
            slot->fence = 0;
            slot->odd_fence = fence_is_odd(slot);
            if (oracle.set_back) {
                slot->last = slot->last_read = NULL;
            }
        }
        if (slot->server == server && slot_queued(slot)) {
            queue_reread(slot);
        } else if (slot->server == server) {
            slot->expires_us = oracle_read(slot, text);
            slot->there = text[0] ? oracle_token(text) : NULL; /* from earlier: no new order */
            if (slot->there != NULL) {
                token_void(slot->there);
                slot->there->back_us = server->back_us; /* perhaps it was saved before that */
            }
        }
    }
}

/* The clock of a server was set back. What is there ends as much later, also what is nobody's any
 * more: that is renewed by nobody. Where a fence counter was lost before, the next fence may be
 * below the last. */
static inline void oracle_set_back(const struct sim_server *server, int64_t by_us) {
    int i, k;
    for (i = 0; i < oracle.slot_count; i++) {
        struct slot *slot = &oracle.slots[i];
        if (slot->server != server) {
            continue;
        }
        if (slot->there != NULL) {
            slot->there->back_us += by_us;
        }
        for (k = 0; k < slot->member_count; k++) {
            slot->members[k]->back_us += by_us;
        }
        queue_count(slot); /* who was dead may hold again */
        if (slot->fence == 0) {
            slot->last = slot->last_read = NULL;
        }
    }
    oracle.set_back = true;
}

/* Whether clients may know that a server grants nothing yet: its marker is that of another process
 * or history, or too young. */
static inline bool oracle_quarantined(const struct sim_server *server) {
    const struct model *m = server->model;
    struct model_value value;
    char run[41], history[41];
    long long since_ms;
    if (oracle.quarantine_ms == 0) {
        return false;
    }
    if (!model_get(m, server->database, SIM_MARKER, strlen(SIM_MARKER), &value) ||
        value.type != MODEL_STRING ||
        sscanf(value.bytes, "%40s %40s %lld", run, history, &since_ms) != 3) {
        return true;
    }
    return memcmp(run, m->run_id, 40) != 0 ||
           (memcmp(history, m->replid, 40) != 0 && strspn(m->replid2, "0") < 40) ||
           sim_local_us(&server->clock) / 1000 <= since_ms + oracle.quarantine_ms;
}

/* An operator says that nobody can hold anything there. */
static inline void oracle_marks(struct sim_server *server) {
    char text[100];
    const char *words[] = {"SET", SIM_MARKER, text};
    snprintf(text, sizeof text, "%.40s %.40s 0", server->model->run_id, server->model->replid);
    oracle_stranger(server, 3, words);
}

/* The true time at which the server forgets the slot's token. */
static inline int64_t oracle_end_us(const struct slot *slot) {
    return slot->expires_us < 0 ? INT64_MAX : sim_true_us(&slot->server->clock, slot->expires_us);
}

#endif /* SIM_KEYS_H */
