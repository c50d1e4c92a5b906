/* ngx_rlock_check_module.c - rlock_loop_check.h inside nginx.
 *
 * With $NGX_RLOCK_CHECK (which the configuration has to keep: env NGX_RLOCK_CHECK) the first worker
 * runs the checks on its own loop when it begins, writes what they say into that file, and a last
 * line. With accept_mutex that worker has the mutex, and so what is ready is posted. */
#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>

#define RLOCK_API extern __attribute__((visibility("hidden")))
#define RLOCK_IMPLEMENTATION
#include "rlock_nginx.h"
#include "rlock_loop_check.h"

static void ngx_rlock_check_over(ngx_event_t *ev) {
    (void)ev;
}

static void ngx_rlock_check_run(void *user, int ms) {
    ngx_event_t *ev = user;

    ngx_add_timer(ev, (ngx_msec_t)ms);
    ngx_process_events_and_timers((ngx_cycle_t *)ngx_cycle);
    if (ev->timer_set) {
        ngx_del_timer(ev);
    }
}

static bool ngx_rlock_check_alive(void *user) {
    (void)user;
    return ngx_event_no_timers_left() != NGX_OK;
}

static ngx_int_t ngx_rlock_check_init_process(ngx_cycle_t *cycle) {
    static ngx_connection_t ident; /* for the debug log */
    const char *path = getenv("NGX_RLOCK_CHECK");
    rlock_loop_check_options options;
    ngx_event_t over;
    FILE *out;

    if (path == NULL || ngx_process != NGX_PROCESS_WORKER) {
        return NGX_OK;
    }
    if (ngx_worker != 0) {
        ngx_accept_disabled = NGX_MAX_INT32_VALUE; /* it does not take the accept_mutex */
        return NGX_OK;
    }
    out = fopen(path, "w");
    if (out == NULL) {
        return NGX_ERROR;
    }
    ngx_memzero(&over, sizeof(ngx_event_t));
    over.handler = ngx_rlock_check_over;
    over.log = cycle->log;
    over.data = &ident;
    ngx_memzero(&options, sizeof options);
    options.loop = rlock_nginx_loop(cycle->log);
    options.run = ngx_rlock_check_run;
    options.alive = ngx_rlock_check_alive;
    options.user = &over;
    fprintf(out, "failed %d\n", rlock_loop_check(&options, out));
    fclose(out);
    return NGX_OK;
}

static ngx_core_module_t ngx_rlock_check_module_ctx = {ngx_string("rlock_check"), NULL, NULL};

ngx_module_t ngx_rlock_check_module = {
    NGX_MODULE_V1,
    &ngx_rlock_check_module_ctx,
    NULL, /* directives */
    NGX_CORE_MODULE,
    NULL, /* init_master */
    NULL, /* init_module */
    ngx_rlock_check_init_process,
    NULL, /* init_thread */
    NULL, /* exit_thread */
    NULL, /* exit_process */
    NULL, /* exit_master */
    NGX_MODULE_V1_PADDING,
};
