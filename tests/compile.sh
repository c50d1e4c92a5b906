#!/bin/sh
# The compile matrix: gcc and clang x c99, c11, c17, c++11, c++20, every warning an error. Prints TAP.
# A compiler that is not there makes its tests fail.
#
#     sh tests/compile.sh        the implementation with each compiler and standard but c17, which is c11; all headers and
#                                macros as C by gcc and as C++ by clang, each part by one of the two
#     sh tests/compile.sh all    all of it with each of them, and seeds of the simulator by gcc and by clang
cd "$(dirname "$0")/.." || exit 1
work=${BUILD:-build}/compile
rm -rf "$work"
mkdir -p "$work"
all=$work # the sources; each part of the matrix has a folder $work of its own
every=${1:-}

warnings='-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wcast-qual -Werror'
hiredis_cflags=$(pkg-config --cflags hiredis 2>/dev/null)
tls_cflags=$(pkg-config --cflags hiredis_ssl 2>/dev/null || echo "-isystem $PWD/build/hiredis/include")
hiredis_libs=$(pkg-config --libs hiredis 2>/dev/null || echo -lhiredis)
. tests/tap.sh

# refuses TEXT COMMAND...: the command fails and says TEXT.
refuses() {
    text=$1
    shift
    if "$@" 2>"$work/refusal"; then
        echo "it compiled"
        return 1
    fi
    grep -F "$text" "$work/refusal" || { cat "$work/refusal"; return 1; }
}

# compile FLAGS... SOURCE, with the compiler, standard and warnings at hand
compile() {
    # shellcheck disable=SC2086  # lists of words
    $compiler $language -std=$standard $warnings -pthread $hiredis_cflags $loop_cflags -I"$all/warned" -I. -Iadapters "$@"
}

# As users have it: rlock.h is silent about functions that nobody uses. To us the compiler names them.
mkdir -p "$work/warned"
sed '/ignored "-Wunused-function"/d' rlock.h >"$work/warned/rlock.h"
compile_as_users() {
    # shellcheck disable=SC2086
    $compiler $language -std=$standard $warnings -pthread $hiredis_cflags $loop_cflags -I. -Iadapters "$@"
}

# The same with a hiredis that has TLS, or with one of before.
compile_tls() {
    (hiredis_cflags=$tls_cflags && compile "$@")
}

# link PROGRAM OBJECTS AND LIBRARIES..., then run it
link() {
    program=$1
    shift
    $compiler -pthread -o "$program" "$@" && "$program"
}

exports() {
    # C++ compilers put hidden words of their own beside code that destroys things when an exception passes.
    nm --defined-only --extern-only "$1" | awk 'NF == 3 { print $3 }' |
        grep -v -x -e DW.ref.__gxx_personality_v0 -e __clang_call_terminate | sort
}

# Every exported symbol of an object is a function that the header declares, and every one of those is there.
exports_are_public() {
    exports "$1" >"$work/exported"
    sed -n 's/^RLOCK_API .*[ *]\(rlock_[a-z0-9_]*\)(.*/\1/p' rlock.h | sort -u >"$work/declared"
    [ -s "$work/declared" ] && diff "$work/declared" "$work/exported" &&
        ! grep -v '^rlock_' "$work/exported"
}

knows_no_hiredis() {
    nm --undefined-only "$1" >"$work/undefined" && [ -s "$work/undefined" ] && ! grep -i redis "$work/undefined"
}

asks_for_no_thread() {
    nm --undefined-only "$1" >"$work/undefined" && [ -s "$work/undefined" ] &&
        ! grep -e pthread -e 'getaddrinfo$' "$work/undefined"
}

cat >"$work/declarations.c" <<'C'
#include "rlock.h"
#include "rlock.h"
typedef int rlock_is_an_owner[sizeof(rlock_event) > 0 ? 1 : -1];
C

cat >"$work/implementation.c" <<'C'
#define RLOCK_IMPLEMENTATION
#include "rlock.h"
#include "rlock.h"
C

cat >"$work/main.c" <<'C'
#include "rlock.h"
#include <string.h>
int main(void) {
    rlock_client *client = NULL;
    rlock_config config;
    memset(&config, 0, sizeof config);
    rlock_free(NULL);
    return rlock_client_new(&client, &config) == RLOCK_ERR_ARG && strcmp(rlock_strerror(RLOCK_OK), "ok") == 0 ? 0 : 1;
}
C

# Every macro overridden; the program says which of them was never used.
cat >"$work/macros.c" <<'C'
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int allocated, freed, asked_time, asked_random;

static void *my_malloc(size_t size) {
    allocated++;
    return malloc(size);
}

static void my_free(void *memory) {
    freed++;
    free(memory);
}

static int64_t my_now_us(void) {
    asked_time++;
    return 1000000;
}

static int my_random(void *bytes, size_t size) {
    asked_random++;
    memset(bytes, 7, size);
    return 1;
}

#define RLOCK_API extern __attribute__((visibility("hidden")))
#define RLOCK_ASSERT(x) ((x) ? (void)0 : abort())
#define RLOCK_MALLOC(n) my_malloc(n)
#define RLOCK_FREE(p) my_free(p)
#define RLOCK_NOW_US() my_now_us()
#define RLOCK_RANDOM(p, n) my_random((p), (n))
#define RLOCK_IMPLEMENTATION
#include "rlock.h"

static void *open_loop(void *ctx, rlock_client *client) {
    (void)client;
    return ctx;
}

static int watch(void *state, rlock_io *io, int fd, unsigned events) {
    (void)state, (void)io, (void)fd, (void)events;
    return -1;
}

static void set_timer(void *state, int64_t delay_us) {
    (void)state, (void)delay_us;
}

static void close_loop(void *state) {
    (void)state;
}

int main(void) {
    rlock_client *client = NULL;
    rlock_store *store = NULL;
    rlock_config config;
    int status = rlock_memory_new(&store);

    memset(&config, 0, sizeof config);
    config.loop.ctx = &config;
    config.loop.open = open_loop;
    config.loop.watch = watch;
    config.loop.set_timer = set_timer;
    config.loop.close = close_loop;
    config.store = store;
    if (status == RLOCK_OK) {
        status = rlock_client_new(&client, &config);
    }
    rlock_client_free(client);
    rlock_memory_free(store);
    printf("status %d, malloc %d, free %d, now %d, random %d\n", status, allocated, freed, asked_time, asked_random);
    return status == RLOCK_OK && allocated > 0 && allocated == freed && asked_time > 0 && asked_random > 0 ? 0 : 1;
}
C

cat >"$work/half.c" <<'C'
#include <stdlib.h>
#define RLOCK_MALLOC(n) malloc(n)
#define RLOCK_IMPLEMENTATION
#include "rlock.h"
C

# hiredis from elsewhere: by the macro, or because it is included already.
cat >"$work/elsewhere.h" <<'C'
#define ELSEWHERE
#include <hiredis/async.h>
C
cat >"$work/named.c" <<'C'
#define RLOCK_HIREDIS_ASYNC "elsewhere.h"
#define RLOCK_IMPLEMENTATION
#include "rlock.h"
#ifndef ELSEWHERE
#error "it was not asked for"
#endif
C
cat >"$work/before.c" <<'C'
#include <sys/time.h>
#ifdef __cplusplus
extern "C" {
#endif
#include <hiredis/async.h>
#ifdef __cplusplus
}
#endif
#define RLOCK_HIREDIS_ASYNC "nowhere.h"
#define RLOCK_IMPLEMENTATION
#include "rlock.h"
C

# Without threads none of the adapters but libuv's resolves names.
cat >"$work/no_threads.c" <<'C'
#include "rlock.h"
#include <stdio.h>
rlock_loop loop_of_file_one(void);
int main(void) {
    return loop_of_file_one().resolve == NULL ? 0 : 1;
}
C

# The loops that are there, and what they need.
adapters='libev libuv libevent poll' loop_cflags='' loop_libs='-lev -luv -levent_core'
for module in glib-2.0:glib libsystemd:sd_event; do
    if pkg-config --exists ${module%:*}; then
        adapters="$adapters ${module#*:}"
        loop_cflags="$loop_cflags $(pkg-config --cflags ${module%:*} | sed 's/-I/-isystem /g')"
        loop_libs="$loop_libs $(pkg-config --libs ${module%:*})"
    else
        echo "# there is no ${module%:*}: its adapter is not compiled"
    fi
done
if [ -n "$UBOX" ] || [ -e /usr/include/libubox/uloop.h ]; then
    adapters="$adapters uloop" loop_cflags="$loop_cflags ${UBOX:+-isystem $UBOX/include}"
    loop_libs="$loop_libs ${UBOX:+-L$UBOX/lib -Wl,-rpath,$UBOX/lib} -lubox"
else
    echo '# there is no libubox: the adapter of uloop is not compiled'
fi
for adapter in $adapters; do
    case $adapter in uloop) argument= ;; *) argument=NULL ;; esac
    for file in one two; do
        cat >"$work/$adapter-$file.c" <<C
#include "rlock_$adapter.h"
#include "rlock_$adapter.h"
rlock_loop loop_of_file_$file(void);
rlock_loop loop_of_file_$file(void) {
    return rlock_${adapter}_loop($argument);
}
C
    done
done

cat >"$work/loop_check.c" <<'C'
#include "rlock_loop_check.h"
#include "rlock_loop_check.h"
#include "rlock_poll.h"
static void run(void *loop, int ms) {
    rlock_poll_once((rlock_poll *)loop, ms);
}
int main(void) {
    rlock_poll *loop = rlock_poll_new();
    rlock_loop_check_options options;
    int failed;
    memset(&options, 0, sizeof options);
    options.loop = rlock_poll_loop(loop);
    options.run = run;
    options.user = loop;
    failed = rlock_loop_check(&options, stdout);
    rlock_poll_free(loop);
    return failed;
}
C

for file in one two; do
    cat >"$work/tls-$file.c" <<C
#include "rlock_tls.h"
#include "rlock_tls.h"
rlock_tls *tls_of_file_$file(const rlock_tls_options *options);
rlock_tls *tls_of_file_$file(const rlock_tls_options *options) {
    return rlock_tls_new(options, NULL, 0);
}
C
done

for file in one two; do
    cat >"$work/elect-$file.c" <<C
#include "rlock_elect.h"
#include "rlock_elect.h"
int elect_of_file_$file(rlock_client *client, rlock_elect_callback *told);
int elect_of_file_$file(rlock_client *client, rlock_elect_callback *told) {
    rlock_election *election;
    rlock_options options;
    int status;
    memset(&options, 0, sizeof options);
    status = rlock_elect(&election, client, &options, told, told, NULL);
    rlock_elect_free(election);
    return status;
}
C
done
# The kit for tests: a program of two files that both use it, of which one has the implementation.
cat >"$work/testing-one.c" <<'C'
#include "rlock_testing.h"
#include "rlock_testing.h"
int steal_in_another_file(rlock_testing *t);
int steal_in_another_file(rlock_testing *t) {
    return rlock_testing_steal(t, "key");
}
C

cat >"$work/testing-two.c" <<'C'
#define RLOCK_IMPLEMENTATION
#define RLOCK_NO_REDIS
#include "rlock_testing.h"
int steal_in_another_file(rlock_testing *t);
int main(void) {
    rlock_testing *t = rlock_testing_new(NULL);
    int status = steal_in_another_file(t), holders = rlock_testing_holders(t, "key");
    rlock_testing_free(t);
    return status == RLOCK_OK && holders == 1 ? 0 : 1;
}
C
for hook in metrics trace; do
    for file in one two; do
        cat >"$work/$hook-$file.c" <<C
#include "rlock_$hook.h"
#include "rlock_$hook.h"
void hook_of_file_$file(rlock_config *config);
void hook_of_file_$file(rlock_config *config) {
    config->on_event = rlock_${hook}_report;
}
C
    done
done

# hiredis 0.14 as far as rlock_tls.h reads it
mkdir -p "$work/old/hiredis"
echo '#define HIREDIS_MAJOR 0' >"$work/old/hiredis/async.h"

# All of rlock.hpp, and of rlock_asio.hpp with Asio and with Boost, whose headers come with those of Asio.
cat >"$work/cxx.cc" <<'C'
#include "rlock.hpp"
#include "rlock.hpp"
rlockpp::result all_of(rlockpp::lock &lock);
rlockpp::result all_of(rlockpp::lock &lock) {
    using namespace std::chrono_literals;
    auto hold = lock.acquire(5s, 1s);
    lock.acquire(rlockpp::forever, [](rlockpp::hold) {});
    lock.renew(2min, [](const rlockpp::result &) {});
    return hold.await_resume().release().await_resume();
}
C
cat >"$work/asio.cc" <<'C'
#include "rlock_asio.hpp"
#include "rlock_asio.hpp"
rlock_loop all_of(rlockpp::lock &lock, rlockpp::client &client);
rlock_loop all_of(rlockpp::lock &lock, rlockpp::client &client) {
    static rlockpp::net::io_context io;
    static rlockpp::net::any_io_executor executor = io.get_executor();
    rlockpp::async_acquire(lock, rlockpp::forever, [](rlockpp::hold) {});
    rlockpp::async_release(lock, [](rlockpp::result) {});
    rlockpp::async_shutdown(client, rlockpp::milliseconds(5), [](rlockpp::result) {});
    return lock ? rlockpp::asio_loop(io) : rlockpp::asio_loop(executor);
}
C

# What a build that leaves something out says of what it was asked for: one URL, or two keys.
cat >"$all/asked.c" <<'C'
#define RLOCK_IMPLEMENTATION
#include "rlock.h"
#include "rlock_poll.h"
#include <stdio.h>
static void told(void *user, int level, const char *line) {
    (void)user;
    (void)level;
    puts(line);
}
int main(void) {
    static const char *const keys[] = {"a", "b"};
    rlock_poll *loop = rlock_poll_new();
    rlock_config config;
    rlock_options options;
    rlock_client *client = NULL;
    rlock_store *store = NULL;
    rlock *lock = NULL;
    memset(&config, 0, sizeof config);
    memset(&options, 0, sizeof options);
    config.loop = rlock_poll_loop(loop);
    config.log = told;
    config.url = "redis://h";
    if (rlock_client_new(&client, &config) == RLOCK_OK || rlock_memory_new(&store) != RLOCK_OK) {
        return 1;
    }
    config.url = NULL;
    config.store = store;
    options.keys = keys;
    options.key_count = 2;
    if (rlock_client_new(&client, &config) != RLOCK_OK) {
        return 2;
    }
    if (rlock_new(&lock, client, &options) == RLOCK_OK) {
        puts("two keys");
    }
    rlock_free(lock);
    rlock_client_free(client);
    rlock_memory_free(store);
    rlock_poll_free(loop);
    return 0;
}
C
# joined_is_compiled PARTS...: an rlock.h with these parts alone becomes the code that their macros make of the whole one.
joined_is_compiled() {
    # shellcheck disable=SC2086
    with=$(echo $* | tr ' ' ,) macros=$(for part in "$@"; do echo "-DRLOCK_WITH_$part"; done | tr a-z A-Z)
    tools/join --minimal ${with:+--with $with} >"$work/joined.h" &&
        printf '#define RLOCK_IMPLEMENTATION\n#include "%s"\n' "$PWD/$work/joined.h" >"$work/joined.c" &&
        compile $posix -Os -DNDEBUG -c -o "$work/joined.o" "$work/joined.c" &&
        compile $posix -Os -DNDEBUG -DRLOCK_MINIMAL $macros -c -o "$work/whole.o" "$all/implementation.c" &&
        [ "$(size "$work/joined.o" | awk 'NR > 1 { print $1, $2 }')" = "$(size "$work/whole.o" | awk 'NR > 1 { print $1, $2 }')" ]
}

# The parts that head.h knows.
parts=$(sed -n 's/^#define RLOCK__HAS_\([A-Z]*\) 1$/\1/p' src/public/head.h | grep -vx REDIS)

asked() { # MACROS... -- THE LINES THAT IT SAYS
    macros=
    while [ "$1" != -- ]; do
        macros="$macros $1"
        shift
    done
    shift
    # shellcheck disable=SC2086
    compile $posix $macros -o "$work/asked" "$all/asked.c" $hiredis_libs && "$work/asked" | sed 's/^[0-9a-f]*: //' >"$work/said" || return 1
    printf '%s\n' "$@" | diff - "$work/said"
}

# mine NUMBER: without `all`, of what costs much C takes what is odd, and C++ what is even.
mine() {
    case $every-$standard in
        -c99) [ $(($1 % 2)) = 1 ] ;;
        -c++11) [ $(($1 % 2)) = 0 ] ;;
    esac
}

# The macros that leave something out or put something else in, and the adapters in programs of two files.
macros_of_row() {
    check "$me: minimal: it says so" asked -DRLOCK_MINIMAL -DRLOCK_WITH_TEXTS -DRLOCK_WITH_MEMORY -- \
        "config.url needs RLOCK_WITH_URL" "several options.keys need RLOCK_WITH_KINDS"
    check "$me: minimal without Redis: it says so" asked -DRLOCK_NO_REDIS -DRLOCK_MINIMAL -DRLOCK_WITH_TEXTS -DRLOCK_WITH_MEMORY -- \
        "config.url: unsupported scheme in this build, which has RLOCK_NO_REDIS" \
        "several options.keys need RLOCK_WITH_KINDS"
    check "$me: minimal" compile $posix -DRLOCK_MINIMAL -c -o "$work/minimal.o" "$all/implementation.c"
    number=0
    for part in $parts; do
        number=$((number + 1))
        mine $number || continue
        check "$me: minimal with $part" compile $posix -DRLOCK_MINIMAL "-DRLOCK_WITH_$part" -O2 -fsyntax-only "$all/implementation.c"
    done
    if mine 1; then
        check "$me: joined with no part is what RLOCK_MINIMAL compiles" joined_is_compiled
        check "$me: joined with two parts is what their macros compile" joined_is_compiled kinds url
    fi
    check "$me: minimal without Redis" compile_as_users $posix -DRLOCK_NO_REDIS -DRLOCK_MINIMAL -O2 -fsyntax-only "$all/implementation.c"
    for gone in KINDS URL SENTINEL CLUSTER REPORTS; do
        check "$me: RLOCK_NO_$gone names what took its place" refuses "RLOCK_MINIMAL and RLOCK_WITH" compile $posix "-DRLOCK_NO_$gone" \
            -fsyntax-only "$all/implementation.c"
    done
    check "$me: every macro overridden" compile $posix -DRLOCK_NO_REDIS -c -o "$work/macros.o" "$all/macros.c"
    check "$me: every macro is used" link "$work/macros" "$work/macros.o"
    check "$me: with the Redis store too" compile $posix -fsyntax-only "$all/macros.c"
    check "$me: all static, and nobody uses it: no warning" compile_as_users $posix -DRLOCK_API=static \
        -DRLOCK_NO_REDIS -DRLOCK_IMPLEMENTATION -fsyntax-only "$all/declarations.c"
    check "$me: all static and minimal: no warning" compile_as_users $posix -DRLOCK_API=static \
        -DRLOCK_NO_REDIS -DRLOCK_MINIMAL -DRLOCK_IMPLEMENTATION -fsyntax-only "$all/declarations.c"
    check "$me: optimised" compile $posix -O2 -c -o "$work/optimised.o" "$all/implementation.c"
    check "$me: RLOCK_HIREDIS_ASYNC names the header of hiredis" compile $posix -I"$all" -fsyntax-only "$all/named.c"
    check "$me: hiredis that is included already is not again" compile $posix -fsyntax-only "$all/before.c"
    echo 'int main(void) { return 0; }' >"$work/empty.c"
    for adapter in $adapters; do
        check "$me: the adapter of $adapter in one file" \
            compile $posix -c -o "$work/one.o" "$all/$adapter-one.c"
        check "$me: the adapter of $adapter in another" \
            compile $posix -c -o "$work/two.o" "$all/$adapter-two.c"
        compile -c -o "$work/empty.o" "$work/empty.c"
        # shellcheck disable=SC2086
        check "$me: the two files with the adapter of $adapter as one program" link "$work/two_files" \
            "$work/empty.o" "$work/one.o" "$work/two.o" "$work/implementation.o" $loop_libs $hiredis_libs
        [ "$adapter" = libuv ] && continue # threads are libuv's own
        check "$me: the adapter of $adapter without threads" \
            compile $posix -DRLOCK_NO_THREADS -c -o "$work/one.o" "$all/$adapter-one.c"
        check "$me: without threads the adapter of $adapter asks for none" asks_for_no_thread "$work/one.o"
        compile -c -o "$work/no_threads.o" "$all/no_threads.c"
        # shellcheck disable=SC2086
        check "$me: without threads the adapter of $adapter resolves no name" link "$work/no_threads" \
            "$work/no_threads.o" "$work/one.o" "$work/implementation.o" $loop_libs $hiredis_libs
    done
}

# What one compiler makes of one standard.
row() {
    compiler=${1%:*} standard=${1#*:}
    posix=-D_POSIX_C_SOURCE=200809L
    language='-x c -Wdeclaration-after-statement' # some programs that vendor a header are compiled so
    case $standard in c++*) language='-x c++' ;; esac
    me="$compiler $standard"

    check "$me: the declarations, twice" compile -fsyntax-only "$all/declarations.c"
    check "$me: the implementation" compile $posix -c -o "$work/implementation.o" "$all/implementation.c"
    check "$me: it exports the public functions and nothing else" exports_are_public "$work/implementation.o"
    check "$me: a file that only uses it" compile $posix -c -o "$work/main.o" "$all/main.c"
    # shellcheck disable=SC2086
    check "$me: the two as one program" link "$work/program" "$work/main.o" "$work/implementation.o" $hiredis_libs
    case $every-$1 in all-* | *-gcc:c99 | *-clang++:c++11) headers_of_row "$1" ;; esac
}

# All that goes with the implementation.
headers_of_row() {
    check "$me: without Redis" compile $posix -DRLOCK_NO_REDIS -c -o "$work/no_redis.o" "$all/implementation.c"
    check "$me: without Redis it asks nothing of hiredis" knows_no_hiredis "$work/no_redis.o"
    check "$me: without Redis it links alone" link "$work/no_redis" "$work/main.o" "$work/no_redis.o"
    check "$me: assertions compiled out" compile $posix -DNDEBUG -fsyntax-only "$all/implementation.c"
    check "$me: RLOCK_MALLOC without RLOCK_FREE is refused" \
        refuses RLOCK_FREE compile $posix -fsyntax-only "$all/half.c"
    for adapter in $adapters; do
        check "$me: the adapter of $adapter alone" compile $posix -fsyntax-only "$all/$adapter-one.c"
    done

    check "$me: the election alone" compile -c -o "$work/elect-one.o" "$all/elect-one.c"
    check "$me: the election in another file" compile -c -o "$work/elect-two.o" "$all/elect-two.c"
    # shellcheck disable=SC2086
    check "$me: the two files with the election as one program" link "$work/elect" \
        "$work/elect-one.o" "$work/elect-two.o" "$work/main.o" "$work/implementation.o" $hiredis_libs
    check "$me: the kit for tests alone" compile $posix -c -o "$work/testing-one.o" "$all/testing-one.c"
    check "$me: the kit for tests without Redis" compile $posix -c -o "$work/testing-two.o" "$all/testing-two.c"
    check "$me: the kit for tests in two files" link "$work/testing" "$work/testing-one.o" "$work/testing-two.o"
    check "$me: the kit for tests without kinds" \
        compile $posix -DRLOCK_MINIMAL -DRLOCK_WITH_MEMORY -fsyntax-only "$all/testing-two.c"
    check "$me: the check of a loop" compile $posix -c -o "$work/loop_check.o" "$all/loop_check.c"

    for hook in metrics trace; do
        check "$me: the hook of $hook in one file" compile -Wswitch-enum -c -o "$work/$hook.o" "$all/$hook-one.c"
        check "$me: the hook of $hook in another" compile -O2 -c -o "$work/$hook.o" "$all/$hook-two.c"
    done
    check "$me: TLS alone" compile_tls $posix -c -o "$work/tls.o" "$all/tls-one.c"
    check "$me: TLS in another file" compile_tls $posix -c -o "$work/tls.o" "$all/tls-two.c"
    check "$me: TLS with an old hiredis is refused" \
        refuses 'use stunnel and config.unix_path' compile -I"$all/old" $posix -fsyntax-only "$all/tls-one.c"

    case $standard in
        c99 | c11 | c17)
            check "$me: without _POSIX_C_SOURCE it says what to define" \
                refuses _POSIX_C_SOURCE=200809L compile -fsyntax-only "$all/implementation.c" ;;
    esac
    case $standard in
        c++11)
            check "$me: no warning of a cast, in the implementation" \
                compile_as_users -Wold-style-cast $posix -fsyntax-only "$all/implementation.c"
            for adapter in $adapters; do
                check "$me: no warning of a cast, in the adapter of $adapter" \
                    compile -Wold-style-cast $posix -fsyntax-only "$all/$adapter-one.c"
            done
            check "$me: rlock.hpp says that it needs C++17" \
                refuses 'needs C++17' compile -fsyntax-only "$all/cxx.cc" ;;
    esac
    case $every-$1 in all-* | *-gcc:c99 | *-clang++:c++11) macros_of_row ;; esac
}

headers_for_cxx() {
    compiler=${1%:*} standard=${1#*:} language=
    check "$compiler $standard: rlock.hpp" compile -Wold-style-cast -fsyntax-only "$all/cxx.cc"
    check "$compiler $standard: rlock_asio.hpp" compile -Wold-style-cast -fsyntax-only "$all/asio.cc"
    case $1 in clang++:c++20)
        check "$compiler $standard: rlock_asio.hpp on Boost" \
            compile -Wold-style-cast -DRLOCK_BOOST_ASIO -fsyntax-only "$all/asio.cc" ;;
    esac
}

# traces COMPILER: what 500 seeds of the simulator come to. The program $SIM is that of gcc, if it is up to date, and if
# rlock.h is what the parts make: $SIM is made of these.
traces() {
    sim=${SIM:-}
    if [ "$1" != gcc ] || [ ! -x "$sim" ] || [ -n "$(find rlock.h tests/*.h tests/sim -newer "$sim")" ] ||
        ! tools/join --check >/dev/null 2>&1; then
        sim=$work/sim
        # shellcheck disable=SC2086
        "$1" -std=c99 -O1 -D_GNU_SOURCE -I. -Itests -Itests/sim $hiredis_cflags $(pkg-config --cflags lua5.1) \
            -o "$sim" tests/sim/sim.c $hiredis_libs $(pkg-config --libs lua5.1) || return 1
    fi
    "$sim" --seeds 500 | sed -n 's/.*, hash //p' >"$work/hash"
    [ -s "$work/hash" ]
}

# traps TARGET: what fuzzers found, where clang traps what gcc does not see as undefined: an offset of a null pointer, say.
# shellcheck disable=SC2046,SC2086
traps() {
    clang -std=c99 -D_GNU_SOURCE -fsanitize=undefined -fsanitize-trap=undefined -I. -Itests -Itests/sim \
        $hiredis_cflags $(pkg-config --cflags lua5.1) -o "$work/traps" "tests/fuzz/$1.c" \
        $hiredis_libs $(pkg-config --libs lua5.1) && "$work/traps" "tests/fuzz/corpus/$1"
}

part() {
    case $1 in
        traps:*) check "what clang alone calls undefined is not done, in the corpus of ${1#*:}" traps "${1#*:}" ;;
        traces:*) check "500 seeds of the simulator, by ${1#*:}" traces "${1#*:}" ;;
        headers:*) headers_for_cxx "${1#*:}" ;;
        *) row "$1" ;;
    esac
}

# shellcheck disable=SC2086  # what `all` adds is two parts each, or none
side_by_side part ${every:+traces:clang traces:gcc} gcc:c99 clang++:c++11 gcc:c11 g++:c++11 g++:c++20 clang:c99 clang:c11 \
    clang++:c++20 traps:hostile traps:tape headers:g++:c++17 headers:g++:c++20 headers:clang++:c++17 headers:clang++:c++20 \
    ${every:+gcc:c17 clang:c17}

compiler=g++
# shellcheck disable=SC2086
{
    check "a C program on the C++ implementation" \
        link "$work/mixed" "$work/gcc:c99/main.o" "$work/g++:c++11/implementation.o" $hiredis_libs
    check "a C++ program on the C implementation" \
        link "$work/mixed" "$work/g++:c++11/main.o" "$work/gcc:c99/implementation.o" $hiredis_libs
    check "the check of a loop, as C++, passes that of rlock_poll.h" \
        link "$work/loop_check" "$work/clang++:c++11/loop_check.o" "$work/clang++:c++11/implementation.o" $hiredis_libs
    check "a clang program on the gcc implementation" \
        link "$work/mixed" "$work/clang:c11/main.o" "$work/gcc:c11/implementation.o" $hiredis_libs
}

# A seed of the simulator is the same run whoever compiled it.
[ -z "$every" ] || check "500 seeds of the simulator have one hash with gcc and with clang" \
    cmp "$work/traces:gcc/hash" "$work/traces:clang/hash"

tap_ends
