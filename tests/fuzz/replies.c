/* replies.c - reply trees of any shape, through the guard into the reply section
 *
 * hiredis is not linked to these clients: the functions below, of the same names, take its place.
 * They keep the order of its callbacks, and make whatever tree the input asks for: every type that
 * hiredis knows, strings with NULs, numbers at their limits, arrays in arrays, errors of every
 * kind, and no reply at all. Each goes through the functions that rlock puts before hiredis' own,
 * as a parser would call them; what they let through goes to the callback that waits. So each
 * operation and each step of the handshake meets all that can come. Blocks have the size of what is
 * in them: a read too far is seen.
 */

#include "play.h"

#include <fcntl.h>

#define FAKES 256
#define AWAITED 256

struct awaited {
    redisCallbackFn *fn;
    void *data;
};

struct fake {              /* a connection */
    redisAsyncContext *ac; /* NULL = freed */
    struct awaited awaited[AWAITED];
    int first, count;
    struct awaited listener; /* of SUBSCRIBE */
    int answers;             /* that are due to it */
    bool up, planned;
};

static struct fake fakes[FAKES];
static int fake_count, fake_fd = -1;
static uint64_t fences;

/* ------------------------------------------------------------------------------------------------
 * Trees.
 */

static redisReply *reply_new(int type) {
    redisReply *reply = (redisReply *)calloc(1, sizeof *reply);
    reply->type = type;
    return reply;
}

static redisReply *reply_text(int type, const char *text, size_t size) {
    redisReply *reply = reply_new(type);
    reply->str = (char *)malloc(size + 1);
    if (size > 0) {
        memcpy(reply->str, text, size);
    }
    reply->str[size] = 0;
    reply->len = (__typeof__(reply->len))size;
    return reply;
}

static redisReply *reply_number(long long number) {
    redisReply *reply = reply_new(REDIS_REPLY_INTEGER);
    reply->integer = number;
    return reply;
}

static void reply_room(redisReply *reply, size_t elements) {
    reply->elements = elements;
    reply->element = elements > 0 ? (redisReply **)calloc(elements, sizeof *reply->element) : NULL;
}

static void reply_free(redisReply *reply) {
    size_t i;
    for (i = 0; reply != NULL && i < reply->elements; i++) {
        reply_free(reply->element[i]);
    }
    if (reply != NULL) {
        free(reply->element);
        free(reply->str);
        free(reply);
    }
}

static redisReply *some_text(int type) {
    static const char *const words[] = {"OK",
                                        "",
                                        "0",
                                        "1",
                                        "9999999999999999999",
                                        "18446744073709551616",
                                        "00000000000000000000",
                                        "message",
                                        "subscribe",
                                        "unsubscribe",
                                        "smessage",
                                        "sunsubscribe",
                                        "__redis__:invalidate",
                                        "redisson_lock__channel:{a}",
                                        "redisson_lock__channel:",
                                        "{a}",
                                        "NOSCRIPT no such script",
                                        "NOAUTH",
                                        "WRONGPASS",
                                        "NOPERM",
                                        "LOADING",
                                        "BUSY",
                                        "READONLY",
                                        "OOM",
                                        "MOVED 1",
                                        "WRONGTYPE",
                                        "ERR",
                                        "ERR unknown command",
                                        "ERR max number of clients reached",
                                        "ERR does not exist",
                                        "ERR script: NOPERM",
                                        "run_id:",
                                        "run_id:1111111111111111111111111111111111111111"};
    unsigned kind = take(48);
    size_t size = 0;
    const char *bytes = NULL;
    if (kind < sizeof words / sizeof words[0]) {
        return reply_text(type, words[kind], strlen(words[kind]));
    }
    size = take(64);
    bytes = take_bytes(&size);
    return reply_text(type, bytes, size);
}

static long long some_number(void) {
    static const int64_t numbers[] = {1,         0,        -1, -2, 2, 7, 50, INT64_MAX / 2000,
                                      INT64_MAX, INT64_MIN};
    return take_of(numbers, 10);
}

/* The types of RESP2 and, from 9 on, of RESP3. hiredis makes no others, and hands over no array
 * that it has not filled. */
enum form { TEXT, NUMBER, LIST, NOTHING };

static const struct {
    int type;
    enum form form;
} kinds[] = {{REDIS_REPLY_STATUS, TEXT},
             {REDIS_REPLY_STRING, TEXT},
             {REDIS_REPLY_ARRAY, LIST},
             {REDIS_REPLY_INTEGER, NUMBER},
             {REDIS_REPLY_NIL, NOTHING},
             {REDIS_REPLY_ERROR, TEXT},
             {REDIS_REPLY_STATUS, TEXT},
             {9, LIST},
             {10, LIST},
             {11, LIST},
             {12, LIST},
             {13, TEXT},
             {14, TEXT}};

static enum form form_of(int type) {
    size_t i = 0;
    while (kinds[i].type != type) {
        i++;
    }
    return kinds[i].form;
}

static redisReply *some_tree(int depth) {
    unsigned kind = take(sizeof kinds / sizeof kinds[0]);
    redisReply *reply;
    size_t i;
    if (kinds[kind].form == TEXT) {
        return some_text(kinds[kind].type);
    }
    reply = reply_new(kinds[kind].type);
    if (kinds[kind].form == NUMBER) {
        reply->integer = some_number();
    } else if (kinds[kind].form == LIST && depth > 0) {
        reply_room(reply, take(6));
        for (i = 0; i < reply->elements; i++) {
            reply->element[i] = some_tree(depth - 1);
        }
    }
    return reply;
}

static redisReply *message(const struct fake *fake, const char *kind, redisReply *payload) {
    bool channels = rlock__by_channel(((rlock__conn *)fake->ac->data)->redis);
    const char *channel = channels ? RLOCK__CHANNEL_HEAD "{a}" : "__redis__:invalidate";
    redisReply *reply = reply_new(REDIS_REPLY_ARRAY);
    reply_room(reply, 3);
    reply->element[0] = reply_text(REDIS_REPLY_STRING, kind, strlen(kind));
    reply->element[1] = reply_text(REDIS_REPLY_STRING, channel, strlen(channel));
    reply->element[2] = payload;
    return reply;
}

/* What a server would say to a handshake, by its step. */
static redisReply *proper_handshake(const rlock__conn *conn) {
    static const char info[] = "# Server\r\nrun_id:0123456789012345678901234567890123456789\r\n";
    redisReply *reply;
    switch (conn->step) {
    case RLOCK__STEP_ID: return reply_number(7);
    case RLOCK__STEP_KILL: return reply_number(1);
    case RLOCK__STEP_SERVER: return reply_text(REDIS_REPLY_STRING, info, sizeof info - 1);
    case RLOCK__STEP_NATIVE:
        reply = reply_new(REDIS_REPLY_ARRAY);
        reply_room(reply, 1);
        reply->element[0] = reply_new(take(2) != 0 ? REDIS_REPLY_NIL : REDIS_REPLY_ARRAY);
        return reply;
    default: return reply_text(REDIS_REPLY_STATUS, "OK", 2);
    }
}

static redisReply *proper_answer(const rlock__command *command) {
    const rlock_request *request = command->requests[0];
    char fence[24] = "0";
    if (command->count > 1) { /* a word for each; 0 = ask for it alone */
        char words[RLOCK__BATCH];
        memset(words, '1', sizeof words);
        words[take(command->count)] = take(2) != 0 ? '0' : '1';
        return reply_text(REDIS_REPLY_STRING, words, command->count);
    }
    if (command->op != RLOCK_OP_ACQUIRE || request == NULL) {
        return reply_number(1);
    }
    if (request->store.own[RLOCK__ENCODING] == RLOCK__AS_PLAIN) {
        return take(2) != 0 ? reply_new(REDIS_REPLY_NIL) : reply_text(REDIS_REPLY_STATUS, "OK", 2);
    }
    if (request->fences) {
        snprintf(fence, sizeof fence, "%llu", (unsigned long long)++fences);
    }
    return reply_text(REDIS_REPLY_STRING, fence, strlen(fence));
}

static redisReply *proper_reply(const struct fake *fake) {
    const struct awaited *awaited = &fake->awaited[fake->first];
    if (fake->listener.fn != NULL) {
        return message(fake, "subscribe", reply_number(1));
    }
    if (awaited->fn == rlock__on_reply) {
        return proper_answer((const rlock__command *)awaited->data);
    }
    if (awaited->fn == rlock__on_handshake) {
        return proper_handshake((const rlock__conn *)fake->ac->data);
    }
    return reply_text(REDIS_REPLY_STATUS, "OK", 2);
}

/* What a listener may hear, or nearly so. */
static redisReply *some_message(const struct fake *fake) {
    redisReply *reply;
    switch (take(5)) {
    case 4: return message(fake, take(2) != 0 ? "smessage" : "ssubscribe", some_tree(2));
    case 0: return message(fake, "message", reply_new(REDIS_REPLY_NIL));
    case 1: return message(fake, "message", some_tree(2));
    case 2:
        reply = message(fake, "message", some_text(REDIS_REPLY_STRING));
        reply_free(reply->element[1]);
        reply->element[1] = some_text(REDIS_REPLY_STRING);
        return reply;
    default: return some_tree(3);
    }
}

/* ------------------------------------------------------------------------------------------------
 * The parser: what makes the objects, and what calls that.
 */

static void *make_in(const redisReadTask *task, redisReply *reply) {
    if (task->parent != NULL) {
        ((redisReply *)task->parent->obj)->element[task->idx] = reply;
    }
    return reply;
}

static void *make_string(const redisReadTask *task, char *text, size_t size) {
    return make_in(task, reply_text(task->type, text, size));
}

#if HIREDIS_MAJOR >= 1
typedef size_t elements_of;
#else
typedef int elements_of;
#endif

static void *make_array(const redisReadTask *task, elements_of elements) {
    redisReply *reply = reply_new(task->type);
    reply_room(reply, (size_t)elements);
    return make_in(task, reply);
}

static void *make_integer(const redisReadTask *task, long long value) {
    redisReply *reply = reply_number(value);
    return make_in(task, reply);
}

static void *make_nil(const redisReadTask *task) {
    return make_in(task, reply_new(REDIS_REPLY_NIL));
}

/* Makes the same tree once more, with the connection's functions; false if they refuse. `parent` is
 * NULL at the root, whose object is left in *root. */
static bool make_tree(const redisReader *reader, const redisReply *tree, redisReadTask *parent,
                      int idx, redisReply **root) {
    redisReplyObjectFunctions *make = reader->fn;
    redisReadTask task;
    size_t i;
    bool made;
    memset(&task, 0, sizeof task);
    task.type = tree->type;
    task.idx = idx;
    task.parent = parent;
    task.privdata = reader->privdata;
    switch (form_of(tree->type)) {
    case TEXT: task.obj = make->createString(&task, tree->str, (size_t)tree->len); break;
    case NUMBER: task.obj = make->createInteger(&task, tree->integer); break;
    case NOTHING: task.obj = make->createNil(&task); break;
    case LIST:
        task.elements = (__typeof__(task.elements))tree->elements;
        task.obj = make->createArray(&task, (elements_of)tree->elements);
    }
    *root = parent == NULL ? (redisReply *)task.obj : *root;
    made = task.obj != NULL;
    for (i = 0; i < tree->elements && made; i++) {
        made = make_tree(reader, tree->element[i], &task, (int)i, root);
    }
    return made;
}

/* ------------------------------------------------------------------------------------------------
 * hiredis.
 */

static struct fake *fake_of(const redisAsyncContext *ac) {
    int i = fake_count - 1;
    while (i >= 0 && fakes[i].ac != ac) {
        i--;
    }
    if (i < 0) {
        sim_failed("a connection is used after it was freed");
    }
    return &fakes[i];
}

static void fake_iteration(void *object);

static void fake_plan(struct fake *fake) {
    static const int64_t delays_us[] = {200, 10, 30000, 60000};
    if (!fake->planned) {
        fake->planned = true;
        sim_at(sim.now_us + take_of(delays_us, 4), fake_iteration, fake);
    }
}

redisAsyncContext *redisAsyncConnect(const char *ip, int port) {
    static redisReplyObjectFunctions make;
    redisAsyncContext *ac = (redisAsyncContext *)calloc(1, sizeof *ac);
    struct fake *fake = &fakes[fake_count];
    (void)ip;
    (void)port;
    if (fake_count++ == FAKES) {
        sim_failed("more than %d connections", FAKES);
    }
    memset(fake, 0, sizeof *fake);
    fake->ac = ac;
    ac->c.reader = (redisReader *)calloc(1, sizeof *ac->c.reader);
    make.createString = make_string;
    make.createArray = make_array;
    make.createInteger = make_integer;
    make.createNil = make_nil;
    ac->c.reader->fn = &make;
    ac->c.fd = fake_fd;
    ac->errstr = ac->c.errstr;
    if (take(16) == 15) {
        ac->err = REDIS_ERR_IO;
        snprintf(ac->c.errstr, sizeof ac->c.errstr, "Connection refused");
    } else {
        fake_plan(fake);
    }
    return ac;
}

redisAsyncContext *redisAsyncConnectUnix(const char *path) {
    return redisAsyncConnect(path, 0);
}

int redisAsyncSetConnectCallback(redisAsyncContext *ac, redisConnectCallback *fn) {
    ac->onConnect = fn;
    return REDIS_OK;
}

int redisAsyncSetDisconnectCallback(redisAsyncContext *ac, redisDisconnectCallback *fn) {
    ac->onDisconnect = fn;
    return REDIS_OK;
}

/* As in hiredis: all callbacks without a reply, then the hooks, then the memory. */
void redisAsyncFree(redisAsyncContext *ac) {
    struct fake *fake = fake_of(ac);
    while (fake->count > 0) {
        struct awaited awaited = fake->awaited[fake->first];
        fake->first = (fake->first + 1) % AWAITED;
        fake->count--;
        awaited.fn(ac, NULL, awaited.data);
    }
    if (fake->listener.fn != NULL) {
        fake->listener.fn(ac, NULL, fake->listener.data);
    }
    if (ac->ev.cleanup != NULL) {
        ac->ev.cleanup(ac->ev.data);
    }
    if (ac->onDisconnect != NULL && fake->up) {
        ac->onDisconnect(ac, ac->err == 0 ? REDIS_OK : REDIS_ERR);
    }
    fake->ac = NULL;
    free(ac->c.reader);
    free(ac);
}

int redisAsyncFormattedCommand(redisAsyncContext *ac, redisCallbackFn *fn, void *data,
                               const char *command, size_t size) {
    static redisCallback somebody;
    struct fake *fake = fake_of(ac);
    struct awaited awaited = {fn, data};
    if (fn == rlock__on_message) { /* (UN)SUBSCRIBE */
        ac->c.flags |= REDIS_SUBSCRIBED;
        fake->listener = awaited;
        fake->answers++;
    } else {
        ac->replies.head = &somebody;
        if (fake->count == AWAITED) {
            sim_failed("more than %d commands under way", AWAITED);
        }
        fake->awaited[(fake->first + fake->count++) % AWAITED] = awaited;
    }
    ac->ev.addWrite(ac->ev.data);
    if (ac->data != NULL) {
        play_written(rlock_client_id(((rlock__conn *)ac->data)->redis->client), command, size);
    }
    fake_plan(fake);
    return REDIS_OK;
}

/* Of S(UN)SUBSCRIBE hiredis knows nothing, and waits for no answer. */
int redisAppendFormattedCommand(redisContext *c, const char *command, size_t size) {
    int i = fake_count - 1;
    (void)command;
    (void)size;
    while (i > 0 && (fakes[i].ac == NULL || &fakes[i].ac->c != c)) {
        i--;
    }
    fake_plan(&fakes[i]);
    return REDIS_OK;
}

/* An error of the connection, which hiredis frees then. */
static void fake_fails(redisAsyncContext *ac, int error, const char *text) {
    ac->err = error;
    snprintf(ac->c.errstr, sizeof ac->c.errstr, "%s", text);
    redisAsyncFree(ac);
}

/* Whether it is there. */
static bool fake_connects(struct fake *fake) {
    redisAsyncContext *ac = fake->ac;
    if (fake->up) {
        return true;
    }
    if (take(16) == 15) {
        snprintf(ac->c.errstr, sizeof ac->c.errstr, "Connection refused");
        ac->onConnect(ac, REDIS_ERR);
        fake_fails(ac, REDIS_ERR_IO, "Connection refused");
        return false;
    }
    fake->up = true;
    ac->onConnect(ac, REDIS_OK);
    return true;
}

void redisAsyncHandleWrite(redisAsyncContext *ac) {
    struct fake *fake = fake_of(ac);
    if (fake_connects(fake)) {
        ac->ev.delWrite(ac->ev.data);
        ac->ev.addRead(ac->ev.data);
    }
}

/* The next callback, or the listener. */
static struct awaited fake_next(struct fake *fake) {
    struct awaited awaited = fake->listener;
    if (awaited.fn == NULL) {
        awaited = fake->awaited[fake->first];
        fake->first = (fake->first + 1) % AWAITED;
        fake->ac->replies.head = --fake->count > 0 ? fake->ac->replies.head : NULL;
    } else if (fake->answers > 0) {
        fake->answers--;
    }
    return awaited;
}

/* Whether the connection outlives the tree. An error that answers no command ends it, as in
 * hiredis, which asserts that nothing else does that. */
static bool fake_reads(struct fake *fake, redisReply *tree) {
    redisAsyncContext *ac = fake->ac;
    redisReply *reply = NULL;
    bool made = make_tree(ac->c.reader, tree, NULL, -1, &reply);
    bool ends = !made || (fake->count == 0 && reply->type == REDIS_REPLY_ERROR);
    if (!ends && fake->count == 0 && fake->listener.fn == NULL) {
        sim_failed("a reply that nobody waits for gets through");
    }
    reply_free(tree);
    if (ends) {
        fake_fails(ac, made ? REDIS_ERR_OTHER : REDIS_ERR_OOM, made ? reply->str : "Out of memory");
    } else {
        struct awaited awaited = fake_next(fake);
        awaited.fn(ac, reply, awaited.data);
    }
    if (reply != NULL && reply->elements != RLOCK__IN_PLACE) {
        reply_free(reply);
    }
    return !ends;
}

void redisAsyncHandleRead(redisAsyncContext *ac) {
    struct fake *fake = fake_of(ac);
    unsigned mood = take(16);
    if (!fake_connects(fake)) {
        return;
    }
    if (mood == 15) {
        fake_fails(ac, REDIS_ERR_EOF, take(2) != 0 ? "ERR max number of clients reached" : "EOF");
        return;
    }
    while (fake->count + fake->answers > 0 && ac->data != NULL) {
        if (!fake_reads(fake, take(4) == 3 ? some_tree(3) : proper_reply(fake))) {
            return;
        }
    }
    while (tape.left > 0 && take(3) == 2 && ac->data != NULL) {
        if (!fake_reads(fake, fake->listener.fn != NULL ? some_message(fake) : some_tree(2))) {
            return;
        }
    }
}

/* ------------------------------------------------------------------------------------------------
 * The loop looks at a connection.
 */

static void fake_iteration(void *object) {
    struct fake *fake = (struct fake *)object;
    rlock__conn *conn = fake->ac != NULL ? (rlock__conn *)fake->ac->data : NULL;
    struct sim_seat *seat = sim.processes[0].seats;
    int i;
    fake->planned = false;
    while (conn != NULL && seat->client != conn->redis->client) {
        seat++;
    }
    for (i = 0; i < SIM_WATCHED && conn != NULL; i++) {
        if (seat->watched[i].io == &conn->io) {
            sim_enter(seat);
            rlock_on_io(&conn->io, seat->watched[i].events);
            sim_leave(seat);
            break;
        }
    }
}

static void play_disturb(void) {
    int i;
    for (i = 0; i < fake_count; i++) {
        if (fakes[i].ac != NULL && fakes[i].listener.fn != NULL) {
            fake_plan(&fakes[i]);
        }
    }
}

static void play_begin(void) {
    if (fake_fd < 0) {
        fake_fd = open("/dev/null", O_RDWR);
    }
    fake_count = 0;
    fences = 0;
}

static void play_over(void) {
}
