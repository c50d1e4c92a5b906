/* How does a server with an event loop of its own lock? A module of nginx: a location runs for one
 * request at a time on all machines, and one worker of all leads. README.md has the directives. */
#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

/* Another module may have an rlock of its own, of another version. */
#define RLOCK_API extern __attribute__((visibility("hidden")))
#define RLOCK_IMPLEMENTATION
#include "rlock_nginx.h"
#include "rlock_elect.h"

typedef struct {
    ngx_str_t server; /* rlock_server */
    ngx_str_t elect;  /* rlock_elect */
    ngx_uint_t locks; /* there is a location with a lock */
    ngx_msec_t tried; /* the longest rlock_lease of those that a client has taken */

    /* of this worker */
    rlock_client *client;  /* NULL: it is made when it is needed */
    rlock_client *leaving; /* is being shut down */
    rlock_election *election;
    ngx_uint_t requests; /* those that have a lock or wait for one */
    ngx_uint_t exiting;
} ngx_http_rlock_main_conf_t;

typedef struct {
    ngx_http_complex_value_t *key; /* rlock; NULL: off */
    ngx_msec_t wait;               /* rlock_wait */
    ngx_msec_t lease;              /* rlock_lease; 0: that of the client */
    ngx_uint_t busy;               /* rlock_busy */
} ngx_http_rlock_loc_conf_t;

typedef struct ngx_http_rlock_waiter_s ngx_http_rlock_waiter_t;

/* A request, or one of its subrequests, that stands still. */
struct ngx_http_rlock_waiter_s {
    ngx_http_request_t *request;
    ngx_http_rlock_waiter_t *next;
};

/* One key of a request and its subrequests, from its acquire to the end of the request. It is found
 * among the cleanups of their pool, for an internal redirect clears the contexts of modules. */
typedef struct {
    ngx_http_request_t *request; /* the main one */
    ngx_http_rlock_main_conf_t *rmcf;
    ngx_http_rlock_waiter_t *waiters;
    ngx_str_t key;
    rlock *lock;
    ngx_uint_t busy;
    ngx_int_t rc; /* NGX_AGAIN: waiting, NGX_DECLINED: held, else the status to answer with */
} ngx_http_rlock_ctx_t;

static void *ngx_http_rlock_create_main_conf(ngx_conf_t *cf);
static char *ngx_http_rlock_init_main_conf(ngx_conf_t *cf, void *conf);
static void *ngx_http_rlock_create_loc_conf(ngx_conf_t *cf);
static char *ngx_http_rlock_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child);
static char *ngx_http_rlock(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static char *ngx_http_rlock_server(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static ngx_int_t ngx_http_rlock_add_variables(ngx_conf_t *cf);
static ngx_int_t ngx_http_rlock_init(ngx_conf_t *cf);
static ngx_int_t ngx_http_rlock_init_process(ngx_cycle_t *cycle);
static void ngx_http_rlock_exit_process(ngx_cycle_t *cycle);

static ngx_conf_num_bounds_t ngx_http_rlock_busy_bounds = {ngx_conf_check_num_bounds, 400, 599};

static ngx_command_t ngx_http_rlock_commands[] = {

    {ngx_string("rlock_server"), NGX_HTTP_MAIN_CONF | NGX_CONF_TAKE1, ngx_http_rlock_server,
     NGX_HTTP_MAIN_CONF_OFFSET, offsetof(ngx_http_rlock_main_conf_t, server), NULL},

    {ngx_string("rlock_elect"), NGX_HTTP_MAIN_CONF | NGX_CONF_TAKE1, ngx_conf_set_str_slot,
     NGX_HTTP_MAIN_CONF_OFFSET, offsetof(ngx_http_rlock_main_conf_t, elect), NULL},

    {ngx_string("rlock"),
     NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF | NGX_CONF_TAKE1, ngx_http_rlock,
     NGX_HTTP_LOC_CONF_OFFSET, 0, NULL},

    {ngx_string("rlock_wait"),
     NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF | NGX_CONF_TAKE1,
     ngx_conf_set_msec_slot, NGX_HTTP_LOC_CONF_OFFSET, offsetof(ngx_http_rlock_loc_conf_t, wait),
     NULL},

    {ngx_string("rlock_lease"),
     NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF | NGX_CONF_TAKE1,
     ngx_conf_set_msec_slot, NGX_HTTP_LOC_CONF_OFFSET, offsetof(ngx_http_rlock_loc_conf_t, lease),
     NULL},

    {ngx_string("rlock_busy"),
     NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF | NGX_CONF_TAKE1,
     ngx_conf_set_num_slot, NGX_HTTP_LOC_CONF_OFFSET, offsetof(ngx_http_rlock_loc_conf_t, busy),
     &ngx_http_rlock_busy_bounds},

    ngx_null_command};

static ngx_http_module_t ngx_http_rlock_module_ctx = {
    ngx_http_rlock_add_variables, /* preconfiguration */
    ngx_http_rlock_init,          /* postconfiguration */

    ngx_http_rlock_create_main_conf, /* create main configuration */
    ngx_http_rlock_init_main_conf,   /* init main configuration */

    NULL, /* create server configuration */
    NULL, /* merge server configuration */

    ngx_http_rlock_create_loc_conf, /* create location configuration */
    ngx_http_rlock_merge_loc_conf   /* merge location configuration */
};

ngx_module_t ngx_http_rlock_module = {NGX_MODULE_V1,
                                      &ngx_http_rlock_module_ctx,  /* module context */
                                      ngx_http_rlock_commands,     /* module directives */
                                      NGX_HTTP_MODULE,             /* module type */
                                      NULL,                        /* init master */
                                      NULL,                        /* init module */
                                      ngx_http_rlock_init_process, /* init process */
                                      NULL,                        /* init thread */
                                      NULL,                        /* exit thread */
                                      ngx_http_rlock_exit_process, /* exit process */
                                      NULL,                        /* exit master */
                                      NGX_MODULE_V1_PADDING};

/* ---- the client of a worker ---- */

static void ngx_http_rlock_log(void *user, int level, const char *line) {
    static const ngx_uint_t levels[] = {NGX_LOG_ERR, NGX_LOG_WARN, NGX_LOG_INFO};

    (void)user;
    ngx_log_error(levels[level], ngx_cycle->log, 0, "rlock %s", line);
}

static void ngx_http_rlock_conf_log(void *user, int level, const char *line) {
    (void)level;
    ngx_conf_log_error(NGX_LOG_EMERG, user, 0, "%s", line);
}

/* Returns the client, or NULL. */
static rlock_client *ngx_http_rlock_client(ngx_http_rlock_main_conf_t *rmcf) {
    rlock_config config;
    int rc;

    if (rmcf->client == NULL) {
        ngx_memzero(&config, sizeof(rlock_config));
        config.loop = rlock_nginx_loop(ngx_cycle->log);
        config.url = (const char *)rmcf->server.data;
        config.log = ngx_http_rlock_log;
        rc = rlock_client_new(&rmcf->client, &config);
        if (rc != RLOCK_OK) {
            ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0, "rlock_client_new() failed: %s",
                          rlock_strerror(rc));
        }
    }
    return rmcf->client;
}

/* The variable asks. The client's log tells of each change. */
static void ngx_http_rlock_turn(rlock_election *election, const rlock_event *event, void *user) {
    (void)election;
    (void)event;
    (void)user;
}

static ngx_int_t ngx_http_rlock_campaign(ngx_http_rlock_main_conf_t *rmcf, ngx_log_t *log) {
    rlock_options options;
    rlock_client *client = ngx_http_rlock_client(rmcf);
    int rc;

    if (client == NULL) {
        return NGX_ERROR;
    }
    ngx_memzero(&options, sizeof(rlock_options));
    options.key = (const char *)rmcf->elect.data;
    options.key_len = rmcf->elect.len;
    rc = rlock_elect(&rmcf->election, client, &options, ngx_http_rlock_turn, ngx_http_rlock_turn,
                     NULL);
    if (rc != RLOCK_OK) {
        ngx_log_error(NGX_LOG_EMERG, log, 0, "rlock_elect() failed: %s", rlock_strerror(rc));
        return NGX_ERROR;
    }
    return NGX_OK;
}

static void ngx_http_rlock_leave(ngx_http_rlock_main_conf_t *rmcf);

static void ngx_http_rlock_left(rlock_client *client, int status, void *user) {
    ngx_http_rlock_main_conf_t *rmcf = user;

    if (status != RLOCK_OK) {
        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      "rlock: the server did not confirm each release, leases may have to end");
    }
    rmcf->leaving = NULL;
    rlock_client_free(client);
    ngx_http_rlock_leave(rmcf);
}

/* Shuts the client down when the worker is exiting and no request needs it. One whose connection
 * was accepted before may still come: it gets a client of its own. */
static void ngx_http_rlock_leave(ngx_http_rlock_main_conf_t *rmcf) {
    int rc;

    if (!rmcf->exiting || rmcf->requests || rmcf->client == NULL || rmcf->leaving != NULL) {
        return;
    }
    rmcf->leaving = rmcf->client;
    rmcf->client = NULL;
    rc = rlock_client_shutdown(rmcf->leaving, 0, ngx_http_rlock_left, rmcf);
    if (rc != RLOCK_OK) {
        ngx_http_rlock_left(rmcf->leaving, rc, rmcf);
    }
}

/* nginx closes its idle connections when it begins to exit. This one is there for nothing else. */
static void ngx_http_rlock_exiting(ngx_event_t *rev) {
    ngx_connection_t *c = rev->data;
    ngx_http_rlock_main_conf_t *rmcf = c->data;

    ngx_close_connection(c);
    rmcf->exiting = 1;
    if (rmcf->election != NULL) {
        (void)rlock_elect_resign(rmcf->election, NULL, NULL);
    }
    ngx_http_rlock_leave(rmcf);
}

static ngx_int_t ngx_http_rlock_watch_exit(ngx_http_rlock_main_conf_t *rmcf, ngx_log_t *log) {
    ngx_connection_t *c;
    ngx_socket_t s = ngx_socket(AF_UNIX, SOCK_STREAM, 0);

    if (s == (ngx_socket_t)-1) {
        ngx_log_error(NGX_LOG_EMERG, log, ngx_socket_errno, ngx_socket_n " failed");
        return NGX_ERROR;
    }
    c = ngx_get_connection(s, log);
    if (c == NULL) {
        ngx_close_socket(s);
        return NGX_ERROR;
    }
    c->data = rmcf;
    c->read->handler = ngx_http_rlock_exiting;
    c->read->log = log;
    c->write->log = log;
    c->idle = 1;
    return NGX_OK;
}

static ngx_int_t ngx_http_rlock_init_process(ngx_cycle_t *cycle) {
    ngx_http_rlock_main_conf_t *rmcf =
        ngx_http_cycle_get_module_main_conf(cycle, ngx_http_rlock_module);

    if (rmcf == NULL || rmcf->server.len == 0 ||
        (ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE)) {
        return NGX_OK;
    }
    if (ngx_http_rlock_watch_exit(rmcf, cycle->log) != NGX_OK) {
        return NGX_ERROR;
    }
    return rmcf->elect.len ? ngx_http_rlock_campaign(rmcf, cycle->log) : NGX_OK;
}

/* Releases what is held with one write; what that does not reach ends by its lease. */
static void ngx_http_rlock_exit_process(ngx_cycle_t *cycle) {
    ngx_http_rlock_main_conf_t *rmcf =
        ngx_http_cycle_get_module_main_conf(cycle, ngx_http_rlock_module);

    if (rmcf != NULL) {
        rlock_elect_free(rmcf->election);
        rlock_client_free(rmcf->client);
        rlock_client_free(rmcf->leaving);
    }
}

/* ---- the lock of a request ---- */

static void ngx_http_rlock_cleanup(void *data) {
    ngx_http_rlock_ctx_t *ctx = data;

    rlock_free(ctx->lock); /* gives a hold, or the waiting for one, up */
    ctx->rmcf->requests--;
    ngx_http_rlock_leave(ctx->rmcf);
}

static ngx_http_rlock_ctx_t *ngx_http_rlock_find(ngx_http_request_t *r, ngx_str_t *key) {
    ngx_http_rlock_ctx_t *ctx;
    ngx_pool_cleanup_t *cln;

    for (cln = r->pool->cleanup; cln != NULL; cln = cln->next) {
        if (cln->handler == ngx_http_rlock_cleanup) {
            ctx = cln->data;
            if (ctx->key.len == key->len && ngx_memcmp(ctx->key.data, key->data, key->len) == 0) {
                return ctx;
            }
        }
    }
    return NULL;
}

#define NGX_HTTP_RLOCK_SHOWN 1024 /* of a line of the log, which has 2048 */

/* Returns a key for a line of the log, which its client may not end: as the access log has it,
 * where \xNN is a byte, and cut to the room that there is. */
static ngx_str_t ngx_http_rlock_shown(const ngx_str_t *key, u_char room[NGX_HTTP_RLOCK_SHOWN]) {
    ngx_str_t shown;
    u_char *p = room, c;
    size_t i;

    for (i = 0; i < key->len && p + 4 <= room + NGX_HTTP_RLOCK_SHOWN; i++) {
        c = key->data[i];
        if (c < 0x20 || c >= 0x7f || c == '"' || c == '\\') {
            p = ngx_sprintf(p, "\\x%02Xd", (unsigned)c);
        } else {
            *p++ = c;
        }
    }
    shown.data = room;
    shown.len = (size_t)(p - room);
    return shown;
}

/* What a request is answered with whose acquire ended so. */
static ngx_int_t ngx_http_rlock_answer(ngx_http_rlock_ctx_t *ctx, int status, const char *text) {
    ngx_log_t *log = ctx->request->connection->log;
    u_char room[NGX_HTTP_RLOCK_SHOWN];
    ngx_str_t key = ngx_http_rlock_shown(&ctx->key, room);

    switch (status) {
    case RLOCK_OK: return NGX_DECLINED;
    case RLOCK_ERR_BUSY:
    case RLOCK_ERR_TIMEOUT:
        ngx_log_error(NGX_LOG_WARN, log, 0, "rlock \"%V\" is busy", &key);
        return (ngx_int_t)ctx->busy;
    default:
        ngx_log_error(NGX_LOG_ERR, log, 0, "rlock \"%V\" cannot be acquired: %s%s%s", &key,
                      rlock_strerror(status), text ? ": " : "", text ? text : "");
        return NGX_HTTP_SERVICE_UNAVAILABLE;
    }
}

/* Ends a request, whatever it is doing: with no answer, or one that is cut off. */
static void ngx_http_rlock_terminate(ngx_http_request_t *r) {
    r->main->count++; /* else the cleanup of an upstream would close it, or keep the connection */
    ngx_http_finalize_request(r->main, NGX_ERROR);
}

/* The requests go on where they stood: with ngx_http_rlock_handler. */
static void ngx_http_rlock_acquired(rlock *lock, const rlock_event *event, void *user) {
    ngx_http_rlock_ctx_t *ctx = user;
    ngx_http_rlock_waiter_t *w = ctx->waiters;
    ngx_connection_t *c = ctx->request->connection;
    ngx_http_request_t *r;

    (void)lock;
    ngx_http_set_log_request(c->log, ctx->request);
    ctx->rc = ngx_http_rlock_answer(ctx, event->status, event->text);
    ctx->waiters = NULL;
    for (; w != NULL; w = w->next) {
        r = w->request;
        r->write_event_handler = ngx_http_core_run_phases;
        if (r == r->main) {
            r->read_event_handler = ngx_http_block_reading;
        }
        if ((r == r->main && ngx_handle_read_event(c->read, 0) != NGX_OK) ||
            ngx_http_post_request(r, NULL) != NGX_OK) {
            ngx_http_rlock_terminate(r);
            break;
        }
    }
    ngx_http_run_posted_requests(c);
}

/* Another may hold the lock now. What the request asks an upstream server for is given up. */
static void ngx_http_rlock_lost(rlock *lock, const rlock_event *event, void *user) {
    ngx_http_rlock_ctx_t *ctx = user;
    ngx_http_request_t *r = ctx->request;
    ngx_connection_t *c = r->connection;
    u_char room[NGX_HTTP_RLOCK_SHOWN];
    ngx_str_t key = ngx_http_rlock_shown(&ctx->key, room);

    (void)lock;
    ctx->rc = NGX_HTTP_SERVICE_UNAVAILABLE;
    ngx_http_set_log_request(c->log, r);
    ngx_log_error(NGX_LOG_ERR, c->log, 0, "rlock \"%V\" is lost: %s%s%s", &key,
                  rlock_reason_str(event->reason), event->text ? ": " : "",
                  event->text ? event->text : "");
    if (!r->header_sent) {
        r->headers_out.status = NGX_HTTP_SERVICE_UNAVAILABLE; /* in the access log */
    }
    ngx_http_rlock_terminate(r);
    ngx_http_run_posted_requests(c);
}

static ngx_int_t ngx_http_rlock_wait(ngx_http_request_t *r, ngx_http_rlock_ctx_t *ctx) {
    ngx_http_rlock_waiter_t *w;

    for (w = ctx->waiters; w != NULL; w = w->next) {
        if (w->request == r) {
            return NGX_AGAIN;
        }
    }
    w = ngx_palloc(r->pool, sizeof(ngx_http_rlock_waiter_t));
    if (w == NULL) {
        return NGX_ERROR;
    }
    w->request = r;
    w->next = ctx->waiters;
    ctx->waiters = w;
    if (r == r->main) { /* a client that goes away ends the request */
        if (ngx_handle_read_event(r->connection->read, 0) != NGX_OK) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
        r->read_event_handler = ngx_http_test_reading;
    }
    r->write_event_handler = ngx_http_request_empty_handler;
    return NGX_AGAIN;
}

static ngx_int_t ngx_http_rlock_acquire(ngx_http_request_t *r, ngx_str_t *key) {
    ngx_http_rlock_main_conf_t *rmcf = ngx_http_get_module_main_conf(r, ngx_http_rlock_module);
    ngx_http_rlock_loc_conf_t *rlcf = ngx_http_get_module_loc_conf(r, ngx_http_rlock_module);
    ngx_pool_cleanup_t *cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_rlock_ctx_t));
    ngx_http_rlock_ctx_t *ctx;
    rlock_options options;
    rlock_client *client = ngx_http_rlock_client(rmcf);
    int rc;

    if (cln == NULL || client == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    ctx = cln->data;
    ngx_memzero(ctx, sizeof(ngx_http_rlock_ctx_t));
    ctx->request = r->main;
    ctx->rmcf = rmcf;
    ctx->key = *key;
    ctx->busy = rlcf->busy;
    ctx->rc = NGX_AGAIN;

    ngx_memzero(&options, sizeof(rlock_options));
    options.key = (const char *)key->data;
    options.key_len = key->len;
    options.watchdog_lease_ms = (int64_t)rlcf->lease;
    options.on_lost = ngx_http_rlock_lost;
    options.user = ctx;
    rc = rlock_new(&ctx->lock, client, &options);
    if (rc == RLOCK_OK) {
        cln->handler = ngx_http_rlock_cleanup;
        rmcf->requests++;
        rc = rlock_acquire(ctx->lock, (int64_t)rlcf->wait, 0, ngx_http_rlock_acquired, ctx);
    }
    if (rc != RLOCK_OK) {
        ctx->rc = ngx_http_rlock_answer(ctx, rc, NULL);
        return ctx->rc;
    }
    return ngx_http_rlock_wait(r, ctx);
}

static ngx_int_t ngx_http_rlock_handler(ngx_http_request_t *r) {
    ngx_http_rlock_loc_conf_t *rlcf = ngx_http_get_module_loc_conf(r, ngx_http_rlock_module);
    ngx_http_rlock_ctx_t *ctx;
    ngx_str_t key;

    if (rlcf->key == NULL) {
        return NGX_DECLINED;
    }
    if (ngx_http_complex_value(r, rlcf->key, &key) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    if (key.len == 0) {
        return NGX_DECLINED;
    }
    ctx = ngx_http_rlock_find(r, &key);
    if (ctx == NULL) {
        return ngx_http_rlock_acquire(r, &key);
    }
    if (ctx->rc == NGX_AGAIN) {
        return ngx_http_rlock_wait(r, ctx);
    }
    if (ctx->rc == NGX_DECLINED && !rlock_is_held(ctx->lock)) {
        return NGX_HTTP_SERVICE_UNAVAILABLE; /* ngx_http_rlock_lost is about to be called */
    }
    return ctx->rc;
}

/* ---- the variable ---- */

static ngx_int_t ngx_http_rlock_leads(ngx_http_request_t *r, ngx_http_variable_value_t *v,
                                      uintptr_t data) {
    ngx_http_rlock_main_conf_t *rmcf = ngx_http_get_module_main_conf(r, ngx_http_rlock_module);

    (void)data;
    v->len = 1;
    v->valid = 1;
    v->no_cacheable = 1;
    v->not_found = 0;
    v->data = (u_char *)(rlock_elect_leads(rmcf->election) ? "1" : "0");
    return NGX_OK;
}

static ngx_int_t ngx_http_rlock_add_variables(ngx_conf_t *cf) {
    static ngx_str_t name = ngx_string("rlock_leads");
    ngx_http_variable_t *v = ngx_http_add_variable(cf, &name, NGX_HTTP_VAR_NOCACHEABLE);

    if (v == NULL) {
        return NGX_ERROR;
    }
    v->get_handler = ngx_http_rlock_leads;
    return NGX_OK;
}

/* ---- the configuration ---- */

static void *ngx_http_rlock_create_main_conf(ngx_conf_t *cf) {
    return ngx_pcalloc(cf->pool, sizeof(ngx_http_rlock_main_conf_t));
}

static char *ngx_http_rlock_init_main_conf(ngx_conf_t *cf, void *conf) {
    ngx_http_rlock_main_conf_t *rmcf = conf;

    if (rmcf->server.len == 0 && (rmcf->locks || rmcf->elect.data != NULL)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "\"rlock\" and \"rlock_elect\" need a \"%s\"",
                           "rlock_server");
        return NGX_CONF_ERROR;
    }
    if (rmcf->elect.data != NULL && rmcf->elect.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "the key of \"rlock_elect\" is empty");
        return NGX_CONF_ERROR;
    }
    return NGX_CONF_OK;
}

static void *ngx_http_rlock_create_loc_conf(ngx_conf_t *cf) {
    ngx_http_rlock_loc_conf_t *conf = ngx_pcalloc(cf->pool, sizeof(ngx_http_rlock_loc_conf_t));

    if (conf == NULL) {
        return NULL;
    }
    conf->key = NGX_CONF_UNSET_PTR;
    conf->wait = NGX_CONF_UNSET_MSEC;
    conf->lease = NGX_CONF_UNSET_MSEC;
    conf->busy = NGX_CONF_UNSET_UINT;
    return conf;
}

/* Where the configuration is read, nginx has no timers yet. */
static void ngx_http_rlock_no_timer(void *state, int64_t delay_us) {
    (void)state;
    (void)delay_us;
}

/* Makes a client, which connects to nothing yet, to hear what is wrong with the URL, or with a
 * lease for it: 0 is that of the URL. */
static char *ngx_http_rlock_try(ngx_conf_t *cf, ngx_http_rlock_main_conf_t *rmcf,
                                ngx_msec_t lease) {
    rlock_client *client;
    rlock_config config;
    rlock_options options;
    rlock *lock = NULL;
    int rc;

    ngx_memzero(&config, sizeof(rlock_config));
    config.loop = rlock_nginx_loop(cf->log);
    config.loop.set_timer = ngx_http_rlock_no_timer;
    config.loop.idle = NULL;
    config.url = (const char *)rmcf->server.data;
    config.log = ngx_http_rlock_conf_log;
    config.log_user = cf;
    rc = rlock_client_new(&client, &config);
    if (rc != RLOCK_OK) {
        return NGX_CONF_ERROR;
    }
    ngx_memzero(&options, sizeof(rlock_options));
    options.key = "tried";
    options.watchdog_lease_ms = (int64_t)lease;
    rc = rlock_new(&lock, client, &options);
    rlock_free(lock);
    rlock_client_free(client);
    return rc == RLOCK_OK ? NGX_CONF_OK : NGX_CONF_ERROR;
}

static char *ngx_http_rlock_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child) {
    ngx_http_rlock_main_conf_t *rmcf =
        ngx_http_conf_get_module_main_conf(cf, ngx_http_rlock_module);
    ngx_http_rlock_loc_conf_t *prev = parent;
    ngx_http_rlock_loc_conf_t *conf = child;

    ngx_conf_merge_ptr_value(conf->key, prev->key, NULL);
    ngx_conf_merge_msec_value(conf->wait, prev->wait, 5000);
    ngx_conf_merge_msec_value(conf->lease, prev->lease, 0);
    ngx_conf_merge_uint_value(conf->busy, prev->busy, NGX_HTTP_SERVICE_UNAVAILABLE);
    if (conf->lease != 0 &&
        (conf->lease < RLOCK_LEASE_MIN_MS || conf->lease > RLOCK_LEASE_MAX_MS)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "\"rlock_lease\" must be between 10ms and 24h");
        return NGX_CONF_ERROR;
    }
    if (conf->lease > rmcf->tried && rmcf->server.len != 0) {
        if (ngx_http_rlock_try(cf, rmcf, conf->lease) != NGX_CONF_OK) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"rlock_lease\" %Mms is too long for the \"rlock_server\"",
                               conf->lease);
            return NGX_CONF_ERROR;
        }
        rmcf->tried = conf->lease;
    }
    return NGX_CONF_OK;
}

static char *ngx_http_rlock(ngx_conf_t *cf, ngx_command_t *cmd, void *conf) {
    ngx_http_rlock_loc_conf_t *rlcf = conf;
    ngx_http_rlock_main_conf_t *rmcf =
        ngx_http_conf_get_module_main_conf(cf, ngx_http_rlock_module);
    ngx_http_compile_complex_value_t ccv;
    ngx_str_t *value = cf->args->elts;

    (void)cmd;
    if (rlcf->key != NGX_CONF_UNSET_PTR) {
        return (char *)"is duplicate";
    }
    if (ngx_strcmp(value[1].data, "off") == 0) {
        rlcf->key = NULL;
        return NGX_CONF_OK;
    }
    rlcf->key = ngx_palloc(cf->pool, sizeof(ngx_http_complex_value_t));
    if (rlcf->key == NULL) {
        return NGX_CONF_ERROR;
    }
    ngx_memzero(&ccv, sizeof(ngx_http_compile_complex_value_t));
    ccv.cf = cf;
    ccv.value = &value[1];
    ccv.complex_value = rlcf->key;
    rmcf->locks = 1;
    return ngx_http_compile_complex_value(&ccv) == NGX_OK ? NGX_CONF_OK : NGX_CONF_ERROR;
}

static char *ngx_http_rlock_server(ngx_conf_t *cf, ngx_command_t *cmd, void *conf) {
    char *rv = ngx_conf_set_str_slot(cf, cmd, conf);

    return rv == NGX_CONF_OK ? ngx_http_rlock_try(cf, conf, 0) : rv;
}

static ngx_int_t ngx_http_rlock_init(ngx_conf_t *cf) {
    ngx_http_core_main_conf_t *cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    /* behind the access phase: who is refused there takes no lock, and no `satisfy any` goes round
     * this one */
    ngx_http_handler_pt *h = ngx_array_push(&cmcf->phases[NGX_HTTP_PRECONTENT_PHASE].handlers);

    if (h == NULL) {
        return NGX_ERROR;
    }
    *h = ngx_http_rlock_handler;
    return NGX_OK;
}

/* SPDX-License-Identifier: MIT */
