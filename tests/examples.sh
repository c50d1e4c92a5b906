#!/bin/sh
# Runs every example against a private server and checks what it says. Prints lines `ok N - ...` or `not ok N - ...`.
# RLOCK_EXAMPLES is the folder of the programs.
cd "$(dirname "$0")/.." || exit 1
if [ -z "${RLOCK_SOCKET:-}" ] || [ "${1:-}" != --inside ]; then
    exec tools/with-server sh tests/examples.sh --inside
fi
bin=${RLOCK_EXAMPLES:-build/examples}
cli=${RLOCK_REDIS_CLI:-redis-cli}
. tests/tap.sh
own_folder example
out=$work/said
said=$out
: >"$out"

# server FOLDER [ARGUMENT...]: another private server, with a socket in that folder, which it makes
server() {
    folder=$1
    shift
    mkdir -p "$folder"
    "${RLOCK_REDIS_SERVER:-redis-server}" "$@" --unixsocket "$folder/socket" --dir "$folder" --save "" --appendonly no \
        >"$folder/log" 2>&1 &
    pid=$!
    others="$others $pid"
    waits answers "$folder/socket"
}

answers() {
    [ "$("$cli" -s "$1" ping 2>/dev/null)" = PONG ]
}

# run COMMAND...: its words are kept for `says`
run() {
    echo "$*" >>"$out.ran"
    timeout 40 "$@" >"$out" 2>&1
}

# says LINE...: these lines, as patterns, in this order, the words of the last run begin with
says() {
    for line in "$@"; do
        printf '%s\n' "$line"
    done | awk -v out="$out" '
        { if ((getline said <out) <= 0 || said !~ ("^" $0 "$")) { exit 1 } }'
}

gone() {
    [ "$("$cli" -s "$RLOCK_SOCKET" exists "$1")" = 0 ]
}

is_held() {
    ! gone "$1"
}

# What a killed process has left runs out with its lease and its turns.
goes() {
    waits gone "$1"
}

# It takes 5 s, and is looked at below.
timeout 40 "$bin/cares" redis://nowhere.invalid >"$out.nobody" 2>&1 &
nobody=$!

check "hello: acquires, works and releases" run "$bin/hello"
check "hello: says so" says 'acquired stock:42' 'released stock:42: ok'
check "hello: leaves no key behind" gone stock:42

no_socket() {
    ! RLOCK_URL=unix://$out.nowhere run "$bin/hello" &&
        grep -q '^cannot acquire stock:42: the server was not reached$' "$out" && grep -q 'No such file' "$out"
}
check "hello: without a server it says so, and why, and fails" no_socket

held_by_other() {
    "$cli" -s "$RLOCK_SOCKET" set stock:42 another px 60000 >/dev/null
    ! run "$bin/hello" && says 'cannot acquire stock:42: held by another for the whole wait' && is_held stock:42
}
check "hello: another's lock is waited for, and left alone" held_by_other
"$cli" -s "$RLOCK_SOCKET" del stock:42 >/dev/null

key_deleted() {
    timeout 40 "$bin/hello" 20 >"$out" 2>&1 &
    hello=$!
    waits is_held stock:42
    sleep 0.3 # holds older than 100 ms are watched
    "$cli" -s "$RLOCK_SOCKET" del stock:42 >/dev/null
    ! wait $hello && says 'acquired stock:42' 'lost stock:42: deleted'
}
check "hello: is told when its key is deleted, and fails" key_deleted

check "own_loop: a select loop of one's own is enough" run "$bin/own_loop"
check "own_loop: says so" says 'acquired own-loop: ok' 'released own-loop: ok'
check "own_loop: leaves no key behind" gone own-loop

# The server by TCP, and a file hosts of its own, in which redis is a name: as in a container.
port=$("$cli" -s "$RLOCK_SOCKET" config get port | tail -n 1)
printf '127.0.0.1 localhost\n127.0.0.1 redis\n' >"$out.hosts"
with_hosts() {
    # shellcheck disable=SC2016  # for the shell inside
    run unshare -rm sh -c 'mount --bind "$0" /etc/hosts && exec "$@"' "$out.hosts" "$@"
}
if with_hosts true; then
    check "cares: finds the server by its name, without a thread" with_hosts "$bin/cares" "redis://redis:$port"
    check "cares: says so" says 'acquired cares: ok'
    check "hello: finds the server by its name" with_hosts env RLOCK_URL="redis://redis:$port" "$bin/hello"
    check "hello: says so" says 'acquired stock:42' 'released stock:42: ok'
else
    echo "not applicable: a server by its name, this machine lets nobody mount a file hosts"
fi
cares_finds_nothing() {
    ! wait $nobody && cat "$out.nobody" >"$out" && grep -q '^acquired cares: the server was not reached' "$out" &&
        grep -q "the host's name was not found" "$out"
}
check "cares: a server whose name is not found is not reached" cares_finds_nothing

check "no_server: runs" run "$bin/no_server"
check "no_server: two handles contend, the lease ends, the other gets it" says \
    'alice: acquired: ok.*' 'bob:   tried once: held by another for at most 500 ms' \
    'alice: lost before it was released.*' "bob:   acquired: ok, fence higher than alice's" 'bob:   released: ok'

check "file_store: a store of one's own, in files" run "$bin/file_store"
check "file_store: processes exclude each other, and one that is killed lets go" says \
    'one holds the lock for 500 ms, and is killed' '2 of 2 others are done, the number is 200 of 200' 'rlock 1 -'

check "watchdog: runs" run "$bin/watchdog"
check "watchdog: outlives the lease, and is told when it was frozen and another took over" says \
    'A: acquired: ok' 'A: worked for three leases; held now: yes' 'A is frozen, B waits' 'B: acquired: ok'
check "watchdog: the frozen one is told that it lost" \
    grep -q '^A: notified: lost before it was released; held now: no$' "$out"
check "watchdog: leaves no key behind" gone watchdog

# Two machines at a time, of which one writes.
two_report() {
    timeout 40 "$bin/report" "$out.archive" >"$out.other" 2>&1 &
    other=$!
    run "$bin/report" "$out.archive" && wait $other
}
check "report: two machines end" two_report
each_page_once() {
    [ "$(cut -d, -f1 "$out.archive" | tr '\n' ' ')" = 'page 1 page 2 page 3 ' ] &&
        [ "$(cat "$out" "$out.other" | grep -c '^page [123] is written$')" = 3 ]
}
check "report: each page is written once" each_page_once
check "report: leaves no key behind" gone nightly
check "tested: ten nights of the report, without a server" run "$bin/tested"
ten_nights() {
    [ "$(grep -c '^ok ' "$out")" = 10 ] && [ "$(wc -l <"$out")" = 11 ]
}
check "tested: none of them fails" ten_nights
check "tested_live: a night on the loop of the program, without a server" run "$bin/tested_live"
check "tested_live: the lock is lost, and each page is written once" says 'page 1 is written' 'lost the lock: stolen' \
    'the server is back, and the thief is gone' 'page 2 is written' 'page 3 is written' 'each page once'

check "leader: runs" run "$bin/leader"
four_leaders() {
    [ "$(grep -c 'leads after' "$out")" = 4 ] && [ "$(grep 'leads after' "$out" | cut -c1-9 | sort -u | wc -l)" = 4 ]
}
check "leader: four gateways lead, one after the other is killed" four_leaders
check "leader: leaves no key behind" gone leader

gate() {
    "$cli" -s "$RLOCK_SOCKET" acl setuser gate "$@" >/dev/null
}

# Nobody may do anything for a while: the leader steps down, nobody leads. Then they may again.
rights_are_taken() {
    gate on '>secret' '~*' '&*' +@all || return 1
    RLOCK_URL=unix://gate:secret@$RLOCK_SOCKET "$bin/leader" 60 >"$out" 2>"$out.errors" &
    leader=$!
    others=$leader
    appears ' leads$' 1 "$out" && gate -@all && appears ' steps down: expired$' 1 "$out" && sleep 1.5 &&
        [ "$(grep -c ' leads$' "$out")" = 1 ] && gate +@all && appears ' leads$' 2 "$out"
    again=$?
    kill $leader
    wait $leader && others= && [ $again = 0 ]
}
check "leader: leads again when a right that was taken away is given back" rights_are_taken
check "leader: says why it could not meanwhile" \
    grep -q 'election: failed, will retry: the user or a certificate is refused$' "$out.errors"
check "leader: every lead that was told has its end" \
    sh -c '[ "$(grep -c " leads$" "$1")" = "$(grep -c " steps down" "$1")" ]' - "$out"
"$cli" -s "$RLOCK_SOCKET" acl deluser gate >/dev/null

check "signup: runs" run "$bin/signup"
check "signup: is exact to the last place, though a process is killed" says \
    '200 people, 40 places, 1 of 4 processes killed' '40 registered: exact' '[0-9]+ forms filled in for nothing'
check "signup: leaves no key behind" goes event

check "turns: runs" run "$bin/turns"
each_knows_its_place() {
    [ "$(grep -c '^ticket [1-9], at counter [1-3]: [0-8] before it$' "$out")" = 9 ]
}
in_turn() {
    [ "$(sed -n 's/^ticket \(.\) is served$/\1/p' "$out" | tr -d '\n')" = 134679 ]
}
check "turns: who waits knows how many are before it" each_knows_its_place
check "turns: in the order of asking, the tickets of the killed are passed over" in_turn
check "turns: leaves no key behind" goes office

check "config: runs" run "$bin/config"
check "config: many read at a time, beside a writer that steps down, and nobody half a change" says \
    '20 changes; a reader together with a reader: yes, with the writer that stepped down: yes' \
    'half a change was read 0 times'
check "config: leaves no key behind" gone config

check "transfer: runs" run "$bin/transfer"
check "transfer: two accounts at a time, in any order: no deadlock, the total stays" says \
    '400 transfers by 4 processes, total 6000 of 6000: nothing is lost'
check "transfer: leaves no key behind" gone account:0

check "cpp_callback: runs" run "$bin/cpp_callback"
check "cpp_callback: acquires and releases" says 'acquired: ok' 'released: ok'
check "cpp_await: runs" run "$bin/cpp_await"
take_turns() {
    [ "$(grep -c '^A: works$' "$out")" = 3 ] && [ "$(grep -c '^B: works$' "$out")" = 3 ]
}
check "cpp_await: two coroutines work three times each" take_turns
check "cpp_asio: runs" run "$bin/cpp_asio"
check "cpp_asio: acquires, works and releases" says 'acquired' 'held now: yes' 'released: ok'
check "cpp_asio: leaves no key behind" goes stock:42
no_server_throws() {
    ! RLOCK_URL=unix://$out.nowhere run "$bin/cpp_asio" && grep -q '^cannot acquire: the server was not reached: ' "$out"
}
check "cpp_asio: without a server it says so, and why, and fails" no_server_throws

check "operator: runs" run "$bin/operator"
taken_away() {
    for line in '  by [0-9a-f-]*:1 for [0-9]* s more' 'look: ok, 1 held, 1 waiting' \
        'take away: ok, 1 held, 0 waiting' 'look again: ok, 0 held, 0 waiting'; do
        grep -qx "$line" "$out" || return 1
    done
}
check "operator: sees who holds, takes it away" taken_away
check "operator: the worker is told" grep -q '^A: stops: lost before it was released (taken away)$' "$out"
check "operator: who waited is served" grep -q '^B: released: ok$' "$out"
check "operator: leaves no key behind" gone nightly-report

check "stock: ends without the lock" run "$bin/stock" --no-lock
check "stock: is oversold without the lock, and says by how much" grep -q 'OVERSOLD BY [1-9]' "$out"
check "stock: ends well with the lock" run "$bin/stock" --lock
check "stock: is exact with the lock" grep -q '^with the lock .*: 300 sold of 300 .*: exact$' "$out"
check "stock: leaves no lock behind" gone sale:lock
check "stock: ends without the lock in memory" run "$bin/stock" --memory --no-lock
check "stock: is oversold without the lock in memory" grep -q 'OVERSOLD BY [1-9]' "$out"
check "stock: ends well with the lock in memory" run "$bin/stock" --memory --lock
check "stock: is exact with the lock in memory" grep -q '^with the lock .*: 300 sold of 300 .*: exact$' "$out"

# The programs of docs/cookbook.md, as many at a time as it takes. Their leases are of a second.
book=$bin/cookbook
soon=unix://$RLOCK_SOCKET?watchdog_lease_ms=1000
worker() {
    RLOCK_URL=$soon timeout 40 "$book/worker" "$@"
}
worker one 10 >"$out.workers" 2>&1 && worker one 10 >>"$out.workers" 2>&1
worker late 5 3 >"$out.late" 2>&1 & # it stops for 3 s, and its lease ends after one: looked at below
late=$!
appears begins 1 "$out.late" && worker next 7 >>"$out.workers" 2>&1 &
next=$!
once() {
    RLOCK_URL=$soon timeout 40 "$book/once" "$@"
}
one_of_two() {
    : >"$out"
    once report monday sh -c "sleep 0.3; echo ran >>$out.job" >>"$out" 2>&1 &
    first=$!
    once report monday sh -c "sleep 0.3; echo ran >>$out.job" >>"$out" 2>&1 && wait $first &&
        [ "$(cat "$out.job")" = ran ] && grep -qx 'report of monday is done already' "$out"
}
check "cookbook/once: of two machines one runs the job" one_of_two
once_a_period() {
    once report monday sh -c "echo ran >>$out.job" >"$out" 2>&1 && once report tuesday sh -c "echo ran >>$out.job" &&
        [ "$(grep -c ran "$out.job")" = 2 ]
}
check "cookbook/once: again in the next period, not in the same" once_a_period
fails() {
    ! once report friday false >"$out" 2>&1 && once report friday sh -c "echo failed >>$out.job" && grep -q failed "$out.job"
}
check "cookbook/once: a job that failed is run by the next machine" fails
dies() {
    RLOCK_URL=$soon "$book/once" report sunday sh -c "echo begun >>$out.job; sleep 3" >"$out" 2>&1 &
    first=$!
    appears begun 1 "$out.job" && kill -9 $first && once report sunday sh -c "echo instead >>$out.job" &&
        grep -q instead "$out.job"
}
check "cookbook/once: a job whose machine died is run by the next" dies

one_at_a_time() {
    : >"$out"
    RLOCK_URL=$soon timeout 40 "$book/keyed" ann bob ann carl ann bob >>"$out" 2>&1 &
    first=$!
    RLOCK_URL=$soon timeout 40 "$book/keyed" carl ann bob ann carl ann >>"$out" 2>&1 && wait $first &&
        awk '$1 == "begin" { bad += open[$2]++ > 0; beside += now++ > 0; jobs++ }
            $1 == "end" { open[$2]--; now-- }
            END { exit !(jobs == 12 && !bad && beside > 0) }' "$out"
}
check "cookbook/keyed: jobs of one key never at a time, of different keys side by side" one_at_a_time

stampede() {
    : >"$out"
    timeout 40 "$book/cache" "$out.cache" 20 >>"$out" 2>&1 &
    first=$!
    timeout 40 "$book/cache" "$out.cache" 20 >>"$out" 2>&1 && wait $first &&
        [ "$(grep -c '^20 of 20 answered' "$out")" = 2 ] && [ "$(grep -c 'made 1 times' "$out")" = 1 ] &&
        [ "$(grep -c 'made 0 times' "$out")" = 1 ]
}
check "cookbook/cache: 40 requests of two processes at once, and the value is made once" stampede
check "cookbook/cache: releases" goes answer

# Its lease is of 30 s, which nobody waits for here.
hand_over() {
    "$book/graceful" >"$out" 2>&1 &
    first=$!
    others=$first
    appears works 1 "$out" || return 1
    "$book/graceful" >"$out.next" 2>&1 &
    second=$!
    others="$first $second"
    sleep 0.3 # it waits, or will: both are well
    kill $first && wait $first && appears works 1 "$out.next" && kill $second && wait $second && others= &&
        says works 'finished its piece' 'stops: closed' 'leaves: ok'
}
check "cookbook/graceful: SIGTERM ends the work in hand, and who waits goes on at once" hand_over
check "cookbook/graceful: leaves no key behind" gone shift

late_worker() {
    ! wait $late && wait $next && cat "$out.late" "$out.workers" >"$out" &&
        says 'late: begins' 'late: refused: a later worker was here' 'one: begins' 'one: the balance is 10' \
            'one: begins' 'one: done before' 'next: begins' 'next: the balance is 17'
}
check "cookbook/worker: a job twice is done once, and who was paused for too long changes nothing" late_worker

lead() {
    "$book/lead" >"$out.$1" 2>"$out.errors.$1" &
    eval "lead_$1=$!"
    others="$others $!"
}
three_lead() {
    lead a && appears '^leads, fence' 1 "$out.a" && lead b && appears 'election: campaigns' 1 "$out.errors.b" || return 1
    # shellcheck disable=SC2154  # lead_a and lead_b: by eval
    kill -9 "$lead_a"
    appears '^leads, fence' 1 "$out.b" && lead c && appears 'election: campaigns' 1 "$out.errors.c" &&
        kill "$lead_b" && wait "$lead_b" && appears '^leads, fence' 1 "$out.c" && kill "$lead_c" && wait "$lead_c" &&
        others= && cat "$out.b" "$out.c" >"$out" &&
        says 'leads, fence [0-9]+' 'steps down: closed' 'leaves: ok' 'leads, fence [0-9]+'
}
check "cookbook/lead: one leads, is killed, the next leads and hands over" three_lead
check "cookbook/lead: leaves no key behind" gone cookbook:leader

# Five servers of its own, of which two are killed while it works.
five_servers() {
    urls='' servers=''
    for i in 1 2 3 4 5; do
        server "$out.server.$i" --port 0 || return 1
        servers="$servers $pid"
        urls="$urls unix://$out.server.$i/socket"
    done
}

two_die() {
    five_servers || return 1
    # shellcheck disable=SC2086  # lists of words
    {
        timeout 40 "$bin/quorum" $urls >"$out" 2>/dev/null &
        quorum=$!
        sleep 1.5
        dead=${servers% * * *}
        kill -9 $dead
    }
    others=${servers#"$dead"}
    wait $quorum
}
check "quorum: two of five servers die while it holds" two_die
check "quorum: it does not notice" says 'acquired: ok' 'worked for 4 leases; held now: yes' 'released: ok'
nothing_left() {
    for i in 3 4 5; do
        [ "$("$cli" -s "$out.server.$i/socket" dbsize)" = 0 ] || return 1
    done
}
check "quorum: it leaves no key behind" nothing_left

# The commands of a how-to page: a program was run above, a question to the server is asked now.
commands_run() {
    sed -n "s#^    \(tools/with-server \)*build/examples/#$bin/#p; /^    redis-cli /{s|redis-cli |$cli -s $RLOCK_SOCKET |gp}" "docs/$1.md" >"$out.commands"
    [ -s "$out.commands" ] || return 1
    while read -r command; do
        case $command in
        "$bin"/*) grep -qx "$command" "$out.ran" ;;
        *) sh -c "$command" >"$out" 2>&1 </dev/null ;;
        esac || return 1
    done <"$out.commands"
}
for page in elect-a-leader limit-to-n operate testing-your-program use-from-cpp; do
    check "docs/$page.md: its commands run" commands_run "$page"
done

# The page on embedding: its commands, one after the other, in a folder of their own.
embeds() {
    mkdir -p "$out.embed/deps" || return 1
    # shellcheck disable=SC2046  # the words of a command
    hiredis=$(echo '#include <hiredis/async.h>' | cc $(pkg-config --cflags hiredis 2>/dev/null) -E -x c - |
        sed -n 's|^# 1 "\(.*/hiredis\)/async.h".*|\1|p' | head -n 1)
    ln -s "$hiredis" "$out.embed/deps/hiredis" || return 1
    awk '/^```/ { code = !code } !code && sub(/^    /, "")' docs/embedding.md | sed "s|path/to/rlock|$PWD|g" >"$out.commands"
    [ "$(wc -l <"$out.commands")" -ge 10 ] || return 1
    while IFS= read -r command; do
        (cd "$out.embed" && timeout 60 sh -c "$command" >"$out" 2>&1 </dev/null) ||
            { echo "$command" >>"$out"; return 1; }
    done <"$out.commands"
}
check "docs/embedding.md: its commands run" embeds

compiles() {
    command=$(grep '^    cc .*examples/short.c' README.md | sed "s|-o short|-o $out.short|")
    [ -n "$command" ] && sh -c "$command" >"$out" 2>&1
}
runs() {
    command=$(grep '^    tools/with-server ' README.md | sed "s|\./short|$out.short|")
    [ -n "$command" ] && sh -c "$command" >"$out" 2>&1 && says 'acquired stock:42: ok'
}
check "README.md: its command compiles its program" compiles
check "README.md: its command runs it beside a private server" runs

cpp_compiles() {
    command=$(grep '^    g++ .*examples/cpp_callback.cc' docs/use-from-cpp.md | sed "s|-o cpp_callback|-o $out.cpp|")
    [ -n "$command" ] && sh -c "$command" >"$out" 2>&1 && run "$out.cpp" && rm "$out.cpp"
}
check "docs/use-from-cpp.md: its command compiles the first program" cpp_compiles

# The section on TLS of docs/set-up-the-server.md: its commands make certificates, its configuration a server.
tls_port=$((20000 + $(od -An -N2 -tu2 /dev/urandom) % 12000))
certificates() {
    mkdir "$out.tls" &&
        awk '/^    openssl / { on = 1 } on { print; on = /\\$/ }' docs/set-up-the-server.md >"$out.tls/make" &&
        (cd "$out.tls" && set -e && . ./make) >"$out" 2>&1 && [ -s "$out.tls/server.crt" ]
}
tls_server() {
    sed -n "s|/etc/redis|$out.tls|; s|6379|$tls_port|; s/^    \(port 0\|tls-.*\)$/\1/p" docs/set-up-the-server.md >"$out.tls/conf"
    server "$out.tls" "$out.tls/conf"
}
tls_compiles() {
    command=$(grep '^    cc .*examples/tls.c' docs/set-up-the-server.md | sed "s|-o tls|-o $out.tls/program|")
    [ -n "$command" ] && CPATH=build/hiredis/include LIBRARY_PATH=build/hiredis/lib sh -c "$command" >"$out" 2>&1 &&
        LD_LIBRARY_PATH=build/hiredis/lib "$out.tls/program" >"$out" 2>&1
    [ $? = 2 ] && grep -q '^usage' "$out"
}
by_tls() {
    run env RLOCK_URL=rediss://localhost:$tls_port "$bin/tls" "$@"
}
check "docs/set-up-the-server.md: its commands make certificates" certificates
check "docs/set-up-the-server.md: its configuration makes a server with TLS" tls_server
check "docs/set-up-the-server.md: its command compiles the program with TLS" tls_compiles
check "tls: acquires and releases" by_tls "$out.tls/ca.crt"
check "tls: says so" grep -qx 'released stock:42: ok' "$out"
refused() {
    by_tls "$out.tls/server.crt"
    [ $? = 1 ]
}
check "tls: trusts nobody else" refused
check "tls: says why" grep -q "^cannot acquire stock:42: .* the server's certificate is refused: self" "$out"

# The statements of the page on fencing, in SQLite: 7 reads and stops, 8 comes, then 7 writes, then 8.
row_is_protected() {
    run python3 - <<'END'
import re, sqlite3
create, claim, write = re.findall(r'```sql\n(.*?)```', open('docs/protect-a-row.md').read(), re.S)
table = sqlite3.connect(':memory:')
table.execute(create)
table.execute('INSERT INTO account (id, balance) VALUES (1, 100)')


def comes(fence):
    assert table.execute(claim, {'id': 1, 'fence': fence}).rowcount == 1
    return table.execute('SELECT balance FROM account').fetchone()[0]


def withdraws(fence, balance):
    return table.execute(write, {'id': 1, 'fence': fence, 'balance': balance - 10}).rowcount


seven, eight = comes(7), comes(8)
assert [withdraws(7, seven), withdraws(8, eight)] == [0, 1]
assert table.execute(claim, {'id': 1, 'fence': 7}).rowcount == 0
assert table.execute('SELECT balance, fence FROM account').fetchall() == [(90, 8)]
END
}
check "docs/protect-a-row.md: its statements refuse an old token" row_is_protected
tap_ends
