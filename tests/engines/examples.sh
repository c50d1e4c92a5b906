#!/bin/sh
# Runs the examples with their locks in another engine, and checks what they say: tests/engines/examples.sh ENGINE WITH.
# WITH is the program that starts such an engine, RLOCK_EXAMPLES the folder of the examples, RLOCK the program rlock. Their
# own data is in a private Redis. Then a program that is built without that engine. Prints TAP.
cd "$(dirname "$0")/../.." || exit 1
engine=$1
bin=${RLOCK_EXAMPLES:-build/examples}
if [ "${2:-}" != --inside ]; then
    exec tools/with-server "$2" "$engine" sh "$0" "$engine" --inside
fi
. tests/tap.sh
own_folder engine
out=$work/said

# says PATTERN... -- COMMAND...: it ends well, and each pattern is a line that it says
says() {
    : >"$work/patterns"
    while [ "$1" != -- ]; do
        printf '%s\n' "$1" >>"$work/patterns"
        shift
    done
    shift
    timeout 120 "$@" >"$out" 2>&1
    status=$?
    cat "$out"
    while IFS= read -r pattern; do
        grep -qE "^$pattern$" "$out" || { echo "no line is $pattern"; return 1; }
    done <"$work/patterns"
    return $status
}

# refuses PATTERN -- COMMAND...: it fails, and says so
refuses() {
    ! says "$@" && grep -qE "^$1$" "$out"
}

in_redis() {
    RLOCK_URL=$RLOCK_DATA "$@"
}

check "hello acquires and releases" says 'acquired stock:42' 'released stock:42: ok' -- "$bin/hello"
held_there_only() {
    "${RLOCK:-build/cli/rlock}" stock:42 -- sh -c 'echo held; exec sleep 60' >"$work/holder" 2>&1 &
    others=$!
    appears held 1 "$work/holder" && in_redis says 'acquired stock:42' -- "$bin/hello" && refuses 'cannot acquire stock:42: .*' -- "$bin/hello"
    status=$?
    kill $others
    wait $others
    others=
    return $status
}
check "hello waits for who holds it there, and not in Redis" held_there_only
check "own_loop acquires and releases" says 'acquired own-loop: ok' 'released own-loop: ok' -- "$bin/own_loop"
check "watchdog outlives the lease, and is told of its loss" says 'A: worked for three leases; held now: yes' 'B: acquired: ok' \
    'A: notified: lost before it was released; held now: no' -- "$bin/watchdog"
check "leader: each of four gateways leads" says 'gateway [1-4] leads after .*' '  it is the last, and gives the lead away' -- "$bin/leader"
check "signup is exact to the last place" says '40 registered: exact' -- "$bin/signup"
check "turns: in the order in which they asked" says 'in the order in which they asked' -- "$bin/turns"
check "config: nobody reads half a change" says 'half a change was read 0 times' -- "$bin/config"
check "cpp_callback acquires and releases" says 'acquired: ok' 'released: ok' -- "$bin/cpp_callback"
check "cpp_await: two coroutines take turns" says 'A: works' 'B: works' -- "$bin/cpp_await"
check "cpp_asio acquires and releases" says 'acquired' 'released: ok' -- "$bin/cpp_asio"
check "operator sees who holds, and takes it away" says 'take away: ok, 1 held, .* waiting' 'B: released: ok' -- "$bin/operator"
check "report: each page is written once" says 'page 1 is written' 'page 3 is written' -- "$bin/report" "$work/archive"
if [ "$engine" = zookeeper ]; then
    check "transfer: several keys are refused" refuses '.*one key.*' -- "$bin/transfer"
else
    check "transfer: nothing is lost" says '400 transfers by 4 processes, total 6000 of 6000: nothing is lost' -- "$bin/transfer"
fi
check "stock is exact with the lock" says 'with the lock   : 300 sold of 300 .*: exact' -- "$bin/stock" --lock
check "stock is oversold without the lock" says 'without the lock: .* OVERSOLD BY [0-9]+' -- "$bin/stock" --no-lock

book=$bin/cookbook
check "cookbook/worker: a job is done, with a fence" says 'one: the balance is 10' -- "$book/worker" one 10
check "cookbook/worker: a job twice is done once" says 'one: done before' -- "$book/worker" one 10
check "cookbook/once runs the job" says 'ran' -- "$book/once" report monday echo ran
check "cookbook/once: not again in the same period" says 'report of monday is done already' -- "$book/once" report monday echo ran
check "cookbook/keyed: jobs of each key end" says 'end ann.*' 'end bob.*' -- "$book/keyed" ann bob ann
check "cookbook/cache: the value is made once" says '20 of 20 answered.*made 1 times.*' -- "$book/cache" "$work/cache" 20
hand_over() {
    "$book/graceful" >"$out" 2>&1 &
    others=$!
    appears works 1 "$out" && kill $others && wait $others && others= && grep -qx 'leaves: ok' "$out"
}
check "cookbook/graceful: SIGTERM ends the work in hand" hand_over
leads() {
    "$book/lead" >"$out" 2>&1 &
    others=$!
    appears '^leads, fence [1-9]' 1 "$out" && kill $others && wait $others && others= && grep -qx 'leaves: ok' "$out"
}
check "cookbook/lead leads, and hands over" leads

sells() {
    "$bin/shop/shop" --port 0 --workers 2 >"$out" 2>&1 &
    others=$!
    appears 'The shop is open' 1 "$out" || return 1
    address=$(sed -n 's/.*The shop is open: //p' "$out")
    python3 -c 'import sys, urllib.request as u; print(u.urlopen(u.Request(sys.argv[1], method="POST")).read())' \
        "${address}buy?lock=1"
    status=$?
    kill $others
    wait $others
    others=
    return $status
}
check "shop sells with its locks there, and its stock in a Redis" sells

built_without() {
    make -s NO_STORES=1 CFLAGS=-O0 BUILD="$work/build" "$work/build/cli/rlock" "$work/build/examples/hello" || return 1
    "$work/build/cli/rlock" k -- true >"$out" 2>&1
    [ $? = 125 ] && cat "$out" && grep -q 'was built without' "$out" && grep -q 'Build it with' "$out" &&
        "$work/build/cli/rlock" --version | grep -q '; no PostgreSQL; no ZooKeeper' &&
        refuses 'cannot begin: bad argument' -- "$work/build/examples/hello" && grep -q 'RLOCK_WITH_POSTGRES' "$out"
}
check "rlock and hello that were built without it say so, and how to build them" built_without

tap_ends
