/* How much memory do a client and a handle need, and how much stack? The whole program runs on a
 * stack that was painted before: where the paint is gone, somebody was. The loop, hiredis and the
 * C library are in it; the same pair by hand is beside it. */
#include "by_hand.h"

#include <malloc.h>
#include <ucontext.h>

#define STACK_SIZE 262144
#define PAINT 0xa5

static struct server server;
static unsigned char stack[STACK_SIZE];
static ucontext_t main_context, painted_context;
static struct hand hand;
static struct hand_lock hand_lock;
static rlock_client *client;
static rlock *lock;

static double memory(void) {
    struct mallinfo2 info = mallinfo2();

    return (double)(info.uordblks + info.hblkhd);
}

static void on_released(rlock *l, const rlock_event *event, void *user) {
    (void)l, (void)user;
    if (event->status != RLOCK_OK) {
        bench_fail(rlock_strerror(event->status));
    }
    ev_break(EV_DEFAULT, EVBREAK_ALL);
}

static void on_acquired(rlock *l, const rlock_event *event, void *user) {
    (void)event;
    rlock_release(l, on_released, user);
}

static void pair(void) {
    rlock_acquire(lock, 0, 0, on_acquired, NULL);
    ev_run(EV_DEFAULT, 0);
}

static void on_deleted(redisAsyncContext *ac, void *raw, void *data) {
    (void)ac, (void)raw, (void)data;
    ev_break(EV_DEFAULT, EVBREAK_ALL);
}

static void on_set(redisAsyncContext *ac, void *raw, void *data) {
    (void)ac, (void)raw;
    hand_release((struct hand_lock *)data, on_deleted, data);
}

static void pair_by_hand(void) {
    hand_acquire(&hand_lock, on_set, &hand_lock);
    ev_run(EV_DEFAULT, 0);
}

static double stack_of(void (*work)(void)) {
    size_t untouched = 0;

    memset(stack, PAINT, sizeof stack);
    getcontext(&painted_context);
    painted_context.uc_stack.ss_sp = stack;
    painted_context.uc_stack.ss_size = sizeof stack;
    painted_context.uc_link = &main_context;
    makecontext(&painted_context, work, 0);
    swapcontext(&main_context, &painted_context);
    while (stack[untouched] == PAINT) {
        untouched++;
    }
    return (double)(sizeof stack - untouched);
}

int main(int argc, char **argv) {
    double empty;

    bench_arguments(argc, argv);
    bench_server(&server);
    hand_connect(&hand, &server, false); /* before the others: libev makes its tables now */
    hand_lock_init(&hand_lock, &hand, "bench:00000000000001");
    bench_line("size", "stack_hand", stack_of(pair_by_hand), "bytes");
    empty = memory();
    client = bench_client(&server, false, 0);
    bench_line("size", "client", memory() - empty, "bytes");
    lock = bench_lock(client, "bench:00000000000001", NULL, NULL);
    bench_line("size", "stack", stack_of(pair), "bytes");
    bench_line("size", "connected", memory() - empty, "bytes");
    empty = memory();
    bench_lock(client, "bench:00000000000002", NULL, NULL);
    bench_line("size", "handle", memory() - empty, "bytes");
    server_stop(&server);
    return 0;
}
