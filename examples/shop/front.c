/* front.c - what the browser asks, and the live events that tell it what happens */
#define _GNU_SOURCE 1
#include <arpa/inet.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <event2/listener.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include "page.h"
#include "shop.h"

#define TICK_MS 100
#define RATE_TICKS 10    /* over which hand-overs a second are counted */
#define LINES_MAX 60     /* of the log, for a page that is opened later */
#define BEHIND_MAX 65536 /* bytes that a page may be behind before it misses something */

typedef struct line {
    unsigned number;
    char text[256]; /* as JSON */
} line;

typedef struct watcher { /* a page that hears the live events */
    struct watcher *next;
    struct evhttp_request *request;
    char *seen; /* the newest state that it was sent */
} watcher;

static struct evhttp *http;
static struct evconnlistener *listener;
static struct event *tick, *stop_over;
static watcher *watchers;
static line lines[LINES_MAX];
static unsigned lines_count;
static struct {
    int64_t at_ms;
    uint64_t holds;
} rates[RATE_TICKS];
static int64_t opened_ms;

/* --- live events --- */

/* A page that does not read misses some of it: false. */
static bool stream(watcher *w, struct evbuffer *text) {
    struct evhttp_connection *connection = evhttp_request_get_connection(w->request);
    struct bufferevent *out = connection ? evhttp_connection_get_bufferevent(connection) : NULL;

    if (!out || evbuffer_get_length(bufferevent_get_output(out)) >= BEHIND_MAX) {
        return false;
    }
    evhttp_send_reply_chunk(w->request, text);
    return true;
}

static void send_line(watcher *w, const line *l) {
    struct evbuffer *text = evbuffer_new();

    evbuffer_add_printf(text, "id: %u\nevent: line\ndata: %s\n\n", l->number, l->text);
    stream(w, text);
    evbuffer_free(text);
}

void tell(const char *kind, const char *format, ...) {
    line *l = &lines[lines_count % LINES_MAX];
    char text[192];
    watcher *w;
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    l->number = ++lines_count;
    snprintf(l->text, sizeof l->text, "{\"ms\":%lld,\"kind\":\"%s\",\"text\":\"%s\"}",
             (long long)(now_ms() - opened_ms), kind, text);
    for (w = watchers; w != NULL; w = w->next) {
        send_line(w, l);
    }
}

static int handovers_a_second(void) {
    static unsigned ticks;
    unsigned now = ticks++ % RATE_TICKS;
    int64_t since, new_ms = now_ms();
    uint64_t holds = crew_holds();
    double rate;

    since = new_ms - rates[now].at_ms; /* the oldest: it is overwritten */
    rate = rates[now].at_ms && since > 0 ? (double)(holds - rates[now].holds) * 1000 / (double)since
                                         : 0;
    rates[now].at_ms = new_ms;
    rates[now].holds = holds;
    return (int)(rate + 0.5);
}

/* Writes the state of everything, as JSON. */
static void put_state(struct evbuffer *out, int rate) {
    int64_t over = sale.sold - shop.stock;
    int i, waiting = 0;

    for (i = 0; i < shop.workers; i++) {
        waiting += BOARD_GET(board->places[i].waiting);
    }
    evbuffer_add_printf(out,
                        "{\"sale\":%u,\"lock\":%s,\"running\":%s,\"of\":%d,\"left\":%lld,"
                        "\"sold\":%lld,\"over\":%lld,\"buyers\":%d,\"done\":%d,\"rate\":%d,"
                        "\"waiting\":%d,\"lost\":%d,\"refused\":%d,\"server\":\"%s\",\"ours\":%s,"
                        "\"holder\":%d,\"holds\":\"%s\",\"waits\":\"%s\",\"workers\":[",
                        sale.number, sale.with_lock ? "true" : "false",
                        sale.opening || sale.running ? "true" : "false", shop.stock,
                        (long long)sale.left, (long long)sale.sold,
                        (long long)(over > 0 ? over : 0), shop.buyers, sale.done, rate, waiting,
                        sale.lost, sale.refused, sale_server(), server_is_ours() ? "true" : "false",
                        crew_holder() + 1, sale_holder(), sale_waiter());
    for (i = 0; i < shop.workers; i++) {
        const place *p = &board->places[i];
        evbuffer_add_printf(
            out,
            "%s{\"state\":\"%s\",\"holding\":%d,\"waiting\":%d,\"holds\":%u,\"sold\":%u,"
            "\"token\":\"%llu\"}",
            i ? "," : "", crew_state(i), BOARD_GET(p->holding), BOARD_GET(p->waiting),
            BOARD_GET(p->holds), BOARD_GET(p->sold), (unsigned long long)BOARD_GET(p->fence));
    }
    evbuffer_add_printf(out, "]}");
}

/* Sends the state to the pages that were sent another one. */
static void show_state(int rate) {
    struct evbuffer *state = evbuffer_new(), *text = evbuffer_new();
    const char *words;
    watcher *w;

    put_state(state, rate);
    evbuffer_add(state, "", 1);
    words = (const char *)evbuffer_pullup(state, -1);
    for (w = watchers; w != NULL && words != NULL; w = w->next) {
        if (w->seen == NULL || strcmp(w->seen, words) != 0) {
            evbuffer_add_printf(text, "data: %s\n\n", words);
            if (stream(w, text)) {
                free(w->seen);
                w->seen = strdup(words);
            }
            evbuffer_drain(text, evbuffer_get_length(text));
        }
    }
    evbuffer_free(text);
    evbuffer_free(state);
}

void front_answer(struct evhttp_request *request, int code, const char *words) {
    struct evbuffer *body = evbuffer_new();

    evhttp_add_header(evhttp_request_get_output_headers(request), "Content-Type",
                      "text/plain; charset=utf-8");
    evhttp_add_header(evhttp_request_get_output_headers(request), "Cache-Control", "no-store");
    evbuffer_add_printf(body, "%s\n", words);
    evhttp_send_reply(request, code, NULL, body);
    evbuffer_free(body);
}

/* --- what the browser asks --- */

/* Whether there are not two of a header. */
static bool is_single(struct evkeyvalq *headers, const char *name) {
    struct evkeyval *at;
    int count = 0;

    TAILQ_FOREACH(at, headers, next) {
        count += evutil_ascii_strcasecmp(at->key, name) == 0;
    }
    return count <= 1;
}

/* Whether a Host, which may end in a port, is a name of this machine for itself. */
static bool is_local(const char *host) {
    char name[64];
    unsigned char bytes[4];
    const char *end = host[0] == '[' ? strchr(host, ']') : NULL;
    int length = end ? (int)(end + 1 - host) : (int)strcspn(host, ":");

    snprintf(name, sizeof name, "%.*s", length, host);
    return evutil_ascii_strcasecmp(name, "localhost") == 0 || strcmp(name, "[::1]") == 0 ||
           (inet_pton(AF_INET, name, bytes) == 1 && bytes[0] == 127);
}

/* A page of another site may send a request here, too. It has another Origin than our Host; or a
 * name of its own that was made to point here, which the shop knows if it listens to this machine
 * alone. What two programs may read differently is nothing that a browser sends. */
static bool is_for_us(struct evhttp_request *request) {
    struct evkeyvalq *headers = evhttp_request_get_input_headers(request);
    const char *origin = evhttp_find_header(headers, "Origin");
    const char *host = evhttp_find_header(headers, "Host");
    bool alone = strncmp(shop.address, "127.", 4) == 0 || strcmp(shop.address, "::1") == 0 ||
                 strcmp(shop.address, "localhost") == 0;

    if (!is_single(headers, "Host") || !is_single(headers, "Origin") ||
        !is_single(headers, "Content-Length") ||
        (evhttp_find_header(headers, "Content-Length") &&
         evhttp_find_header(headers, "Transfer-Encoding"))) {
        evhttp_add_header(evhttp_request_get_output_headers(request), "Connection", "close");
        front_answer(request, 400, "this has two lengths, hosts or origins");
        return false;
    }
    if ((alone && host && !is_local(host)) ||
        (origin &&
         (!host || strncmp(origin, "http://", 7) != 0 || strcmp(origin + 7, host) != 0))) {
        front_answer(request, 403, "this is for the shop's own page");
        return false;
    }
    return true;
}

static bool is_asked_by_us(struct evhttp_request *request) {
    if (evhttp_request_get_command(request) != EVHTTP_REQ_POST) {
        evhttp_add_header(evhttp_request_get_output_headers(request), "Allow", "POST");
        front_answer(request, 405, "POST this");
        return false;
    }
    return true;
}

static bool wants_lock(struct evhttp_request *request) {
    const char *query = evhttp_uri_get_query(evhttp_request_get_evhttp_uri(request));
    struct evkeyvalq parameters;
    const char *value;
    bool wants;

    if (query == NULL || evhttp_parse_query_str(query, &parameters) != 0) {
        return true;
    }
    value = evhttp_find_header(&parameters, "lock");
    wants = value == NULL || strcmp(value, "0") != 0;
    evhttp_clear_headers(&parameters);
    return wants;
}

static void on_rush(struct evhttp_request *request, void *user) {
    bool with_lock = wants_lock(request);
    (void)user;

    if (!is_asked_by_us(request)) {
        return;
    }
    if (sale.running || sale.opening) {
        front_answer(request, 409, "A rush is on already");
    } else if (!sale_open(true, with_lock)) {
        front_answer(request, 503, "There is no connection to Redis");
    } else {
        tell("sale", "%d buyers want %d pieces, %s the lock", shop.buyers, shop.stock,
             with_lock ? "with" : "without");
        front_answer(request, 200, "The rush begins");
    }
}

static void on_reset(struct evhttp_request *request, void *user) {
    (void)user;
    if (!is_asked_by_us(request)) {
        return;
    }
    if (!sale_open(false, false)) {
        front_answer(request, 503, "There is no connection to Redis");
        return;
    }
    tell("sale", "The shelf is full again: %d pieces", shop.stock);
    front_answer(request, 200, "Reset");
}

static void on_freeze(struct evhttp_request *request, void *user) {
    (void)user;
    if (!is_asked_by_us(request)) {
        return;
    }
    if (!sale_is_busy() || !sale.with_lock) {
        front_answer(request, 409, "No worker holds the lock: start a rush with it first");
        return;
    }
    BOARD_SET(board->fault, FAULT_FREEZE);
    front_answer(request, 200, "The next holder that is about to write is frozen");
}

static void on_kill(struct evhttp_request *request, void *user) {
    (void)user;
    if (!is_asked_by_us(request)) {
        return;
    }
    if (sale_is_busy()) {
        BOARD_SET(board->fault, FAULT_KILL);
        front_answer(request, 200, "The next worker that is about to write is killed");
    } else if (crew_kill_one()) {
        front_answer(request, 200, "A worker is killed");
    } else {
        front_answer(request, 409, "No worker is there");
    }
}

static void on_stop_over(evutil_socket_t fd, short what, void *user) {
    (void)fd, (void)what, (void)user;
    server_stop(false);
    tell("fault", "Redis goes on, with all its data");
}

static void on_stop(struct evhttp_request *request, void *user) {
    const struct timeval pause = {STOP_MS / 1000, STOP_MS % 1000 * 1000};
    (void)user;

    if (!is_asked_by_us(request)) {
        return;
    }
    if (!server_is_ours() || server_is_stopped()) {
        front_answer(request, 409,
                     server_is_stopped() ? "It is stopped" : "This Redis is not the shop's own");
        return;
    }
    server_stop(true);
    event_add(stop_over, &pause);
    tell("fault", "Redis is stopped for %d s", STOP_MS / 1000);
    front_answer(request, 200, "Redis is stopped");
}

static void on_buy(struct evhttp_request *request, void *user) {
    (void)user;
    if (is_asked_by_us(request) && !sale_serve(request, wants_lock(request))) {
        front_answer(request, 503, "no worker is there");
    }
}

static void on_page(struct evhttp_request *request, void *user) {
    struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
    struct evbuffer *body = evbuffer_new();
    (void)user;

    evhttp_add_header(headers, "Content-Type", "text/html; charset=utf-8");
    evhttp_add_header(headers, "Cache-Control", "no-store");
    evhttp_add_header(headers, "Content-Security-Policy",
                      "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
                      "connect-src 'self'; img-src data:");
    evbuffer_add_reference(body, page, sizeof page, NULL, NULL);
    evhttp_send_reply(request, 200, NULL, body);
    evbuffer_free(body);
}

/* libevent frees the request with its connection, unless that was lost while the reply went on. */
static void on_watcher_gone(struct evhttp_connection *connection, void *user) {
    watcher **at, *w = user;
    (void)connection;

    for (at = &watchers; *at != w; at = &(*at)->next) {
    }
    *at = w->next;
    if (evhttp_request_get_connection(w->request) == NULL) {
        evhttp_request_free(w->request);
    }
    free(w->seen);
    free(w);
}

static void on_events(struct evhttp_request *request, void *user) {
    struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
    const char *last =
        evhttp_find_header(evhttp_request_get_input_headers(request), "Last-Event-ID");
    struct evhttp_connection *connection = evhttp_request_get_connection(request);
    unsigned from = last ? (unsigned)strtoul(last, NULL, 10) : 0;
    watcher *w = calloc(1, sizeof *w);
    struct evbuffer *hello = evbuffer_new();
    (void)user;

    if (w == NULL) {
        evbuffer_free(hello);
        front_answer(request, 503, "out of memory");
        return;
    }
    w->request = request;
    w->next = watchers;
    watchers = w;
    evhttp_connection_set_closecb(connection, on_watcher_gone, w);
    evhttp_connection_set_timeout(connection, 86400); /* it sends nothing, and is not idle */
    evhttp_add_header(headers, "Content-Type", "text/event-stream");
    evhttp_add_header(headers, "Cache-Control", "no-store");
    evhttp_send_reply_start(request, 200, NULL);
    evbuffer_add_printf(hello, "retry: 500\n\n");
    stream(w, hello);
    evbuffer_free(hello);
    if (from > lines_count) {
        from = 0; /* it comes from an earlier run of the shop */
    }
    if (lines_count > LINES_MAX && from < lines_count - LINES_MAX) {
        from = lines_count - LINES_MAX;
    }
    for (; from < lines_count; from++) {
        send_line(w, &lines[from % LINES_MAX]);
    }
}

/* --- the process --- */

static void on_tick(evutil_socket_t fd, short what, void *user) {
    (void)fd, (void)what, (void)user;
    evconnlistener_enable(listener);
    sale_tick();
    show_state(handovers_a_second());
}

/* No descriptor is free: without a pause the loop would try again at once, and for ever. */
static void on_full(struct evconnlistener *full, void *user) {
    (void)user;
    evconnlistener_disable(full); /* a tick listens again */
}

typedef struct path {
    const char *path;
    void (*answers)(struct evhttp_request *, void *);
} path;

static void on_request(struct evhttp_request *request, void *user) {
    if (is_for_us(request)) {
        ((const path *)user)->answers(request, NULL);
    }
}

bool front_start(void) {
    static path paths[] = {{"/", on_page},           {"/events", on_events}, {"/rush", on_rush},
                           {"/reset", on_reset},     {"/freeze", on_freeze}, {"/kill", on_kill},
                           {"/stop-redis", on_stop}, {"/buy", on_buy}};
    const struct timeval period = {0, TICK_MS * 1000};
    struct evhttp_bound_socket *bound;
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    size_t i;

    opened_ms = now_ms();
    http = evhttp_new(base);
    evhttp_set_allowed_methods(http, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD | EVHTTP_REQ_POST);
    evhttp_set_max_headers_size(http, 16384);
    evhttp_set_max_body_size(http, 4096);
    for (i = 0; i < sizeof paths / sizeof *paths; i++) {
        evhttp_set_cb(http, paths[i].path, on_request, &paths[i]);
    }
    errno = 0;
    bound = evhttp_bind_socket_with_handle(http, shop.address, (ev_uint16_t)shop.port);
    if (bound == NULL) {
        fprintf(stderr, "shop: cannot listen on %s, port %d: %s\n", shop.address, shop.port,
                errno == 0 || errno == ENOENT ? "no such address" : strerror(errno));
        return false;
    }
    listener = evhttp_bound_socket_get_listener(bound);
    evconnlistener_set_error_cb(listener, on_full);
    getsockname(evhttp_bound_socket_get_fd(bound), (struct sockaddr *)&address, &length);
    shop.port =
        ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)(void *)&address)->sin6_port
                                            : ((struct sockaddr_in *)(void *)&address)->sin_port);
    stop_over = evtimer_new(base, on_stop_over, NULL);
    tick = event_new(base, -1, EV_PERSIST, on_tick, NULL);
    event_add(tick, &period);
    return true;
}

void front_end(void) {
    if (http != NULL) {
        evhttp_free(http);
    }
    if (tick != NULL) {
        event_free(tick);
        event_free(stop_over);
    }
}

/* SPDX-License-Identifier: MIT */
