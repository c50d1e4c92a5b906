#!/bin/sh
# The tools in tools/ that change files, run programs or end them. Prints TAP.
cd "$(dirname "$0")/.." || exit 1
work=${BUILD:-build}/tools-suite
rm -rf "$work"
mkdir -p "$work"
# shellcheck source=tests/tap.sh
. tests/tap.sh

# --- tools/apart ---

namespaces() {
    tools/apart true 2>&1 | grep -q 'no pid namespace'
    [ $? = 1 ]
}

# The number of a process outside means another one inside, or nobody.
signal_to_a_number_outside_changes_nothing() {
    sleep 60 &
    outside=$!
    tools/apart sh -c "kill -KILL $outside" 2>/dev/null && echo 'the signal was sent'
    kill -0 $outside || return 1
    kill $outside
}

# living WORD: the processes that have this word in their command lines.
living() {
    for process in /proc/[0-9]*/cmdline; do
        case $(tr '\0' ' ' <"$process") in *"$1"*) echo "$process" ;; esac
    done 2>/dev/null
}

# dies WORD: within ten seconds no process has this word in its command line.
dies() {
    tries=0
    while [ -n "$(living "$1")" ] && [ $tries -lt 100 ]; do sleep 0.1; tries=$((tries + 1)); done
    [ -z "$(living "$1")" ]
}

# killed_leaves_nothing SIGNAL: a command that made a file and started a process, which started another, is ended.
killed_leaves_nothing() {
    mark=$work/left-by-$1
    tools/apart sh -c 'touch "$TMPDIR/file"; echo "$TMPDIR" >"$1"; sh -c "sleep 1000; : $1" & wait' sh "$mark" &
    apart=$!
    until [ -s "$mark" ]; do sleep 0.05; done
    [ -n "$(living "$mark")" ] || { echo 'it never ran'; return 1; }
    kill -"$1" $apart
    wait $apart
    dies "$mark" && [ ! -e "$(cat "$mark")/file" ]
}

command_that_ends_leaves_nothing() {
    tools/apart sh -c 'sh -c "sleep 1000; : $1" & echo "$TMPDIR" >"$1"; touch "$TMPDIR/file"; exit 7' sh "$work/left"
    [ $? = 7 ] && [ -z "$(living "$work/left")" ] && [ ! -e "$(cat "$work/left")/file" ]
}

standard_input_and_status_are_the_commands() {
    [ "$(echo words | tools/apart cat)" = words ] || return 1
    tools/apart sh -c 'exit 42'
    [ $? = 42 ] || return 1
    tools/apart tools/apart sh -c 'exit 41'
    [ $? = 41 ]
}

refused_namespace_is_said_once() {
    # What is in /dev/shm would not be seen inside.
    folder=$(mktemp -d /dev/shm/rlock-XXXXXX) || return 1
    here=$PWD
    lines=$(cd "$folder" && "$here/tools/apart" "$here/tools/apart" sh -c 'echo ran' 2>&1)
    rm -rf "$folder"
    echo "$lines"
    [ "$(echo "$lines" | grep -c '^apart: no pid namespace')" = 1 ] && [ "$(echo "$lines" | tail -n 1)" = ran ]
}

if namespaces; then
    check signal_to_a_number_outside_changes_nothing signal_to_a_number_outside_changes_nothing
    check suite_that_was_killed_leaves_no_process_and_no_file killed_leaves_nothing KILL
    check suite_that_was_ended_leaves_no_process_and_no_file killed_leaves_nothing TERM
    check command_that_ends_leaves_no_process_and_no_file command_that_ends_leaves_nothing
    check standard_input_and_status_are_those_of_the_command standard_input_and_status_are_the_commands
else
    echo 'not applicable: namespaces, this system refuses them'
fi
check refused_namespace_is_said_once refused_namespace_is_said_once

# --- tools/run-tests ---

# table ROW...: a table of suites of its own, each row without what it proves.
table() {
    suites=$work/suites
    echo '# test, waits' >"$suites"
    for row; do echo "$row | nothing" >>"$suites"; done
}

# runs WORD...: tools/run-tests on that table. Leaves its status and what it printed.
runs() {
    SUITES=$suites tools/run-tests BUILD="$work/built" "$@" >"$work/said" 2>&1
    status=$?
    cat "$work/said"
}

# ends_with STATUS LINE
ends_with() {
    [ $status = "$1" ] && [ "$(tail -n 1 "$work/said")" = "$2" ]
}

every_kind_of_failure_is_one() {
    table 'good | echo "ok 1 - one"; echo 1..1 | 9' \
        'fails | echo "not ok 1 - one"; echo 1..1 | 9' \
        'skips | echo "ok 1 - one # SKIP not today"; echo 1..1 | 9' \
        'skips-too | echo "[==========] Running 1 test(s)."; echo "[  SKIPPED ] 1 test(s)." | 9' \
        'crashes | echo "[==========] Running 3 test(s)."; kill -SEGV $$ | 9' \
        'stops-early | echo "ok 1 - one"; echo 1..2 | 9' \
        'says-no-plan | echo "ok 1 - one" | 9' \
        'status | echo "ok 1 - one"; echo 1..1; exit 3 | 9' \
        'empty | true | 9'
    runs
    ends_with 1 '4 passed, 10 failed' || return 1
    for name in fails skips skips-too stops-early says-no-plan status empty; do
        grep -qE "^$name +[0-9] passed +1 failed " "$work/said" || { echo "$name has not failed"; return 1; }
    done
    runs good
    ends_with 0 '1 passed, 0 failed' || return 1
    runs good better
    ends_with 1 '0 passed, 1 failed'
}

suite_that_hangs_is_ended() {
    table "hangs | echo 'ok 1 - one'; sleep 1000 & sh -c 'sleep 1000; : $work/hangs' | 1"
    runs
    ends_with 1 '1 passed, 1 failed' && grep -q '^    ended after four times its budget$' "$work/said" && dies "$work/hangs"
}

# killed_runner_leaves_nothing SIGNAL
killed_runner_leaves_nothing() {
    mark=$work/run-by-$1
    table "lasts | touch \"\$TMPDIR/file\"; echo \"\$TMPDIR\" >'$mark'; sh -c 'sleep 1000; : $mark' & sleep 1000; : $mark | 100"
    SUITES=$suites tools/run-tests BUILD="$work/built" &
    runner=$!
    until [ -s "$mark" ]; do sleep 0.05; done
    kill -"$1" $runner
    wait $runner
    dies "$mark" && [ ! -e "$(cat "$mark")/file" ]
}

shards_are_run_each() {
    table 'parts | SHARDS=3 sh -c "echo ok 1 - \$RLOCK_TEST_SHARD; echo 1..1" | 9'
    runs
    ends_with 0 '3 passed, 0 failed' && cat "$work"/built/log/parts-?.log | grep -c '^ok 1 - [123]/3$' | grep -qx 3
}

one_at_a_time() {
    alone="mkdir '$work/alone' && sleep 0.3 && rmdir '$work/alone' && echo 'ok 1 - one' && echo 1..1"
    table "first | $alone | 9" "second | $alone | 9" "third | $alone | 9"
    LANES=1 runs
    ends_with 0 '3 passed, 0 failed'
}

what_a_row_names_is_built_first() {
    mkdir -p "$work/bin"
    printf '#!/bin/sh\necho "$*" >>%s/made\n' "$work" >"$work/bin/make"
    chmod +x "$work/bin/make"
    table "two | echo \"ok 1 - \$(wc -l <$work/made) \$BUILD/tests/a \$BUILD/asan/tests/b\"; echo 1..1 | 9" \
        'other | $BUILD/tests/other | 9'
    PATH=$PWD/$work/bin:$PATH runs CC=any two
    cat "$work/made"
    ends_with 0 '1 passed, 0 failed' && grep -q "^ok 1 - 2 " "$work/built/log/two.log" &&
        grep -q " CC=any $work/built/tests/a$" "$work/made" && ! grep -q other "$work/made" &&
        grep -q " CC=any $work/built/asan/tests/b SANITIZE=1$" "$work/made"
}

check every_kind_of_failure_is_one every_kind_of_failure_is_one
check suite_that_hangs_is_ended_after_four_times_its_budget suite_that_hangs_is_ended
if namespaces; then
    check runner_that_was_killed_leaves_nothing_of_its_suite killed_runner_leaves_nothing KILL
    check runner_that_was_ended_leaves_nothing_of_its_suite killed_runner_leaves_nothing TERM
fi
check shards_of_a_suite_are_run_each shards_are_run_each
check suites_run_one_at_a_time_if_asked one_at_a_time
check what_a_row_names_is_built_before_it_runs what_a_row_names_is_built_first

tap_ends
