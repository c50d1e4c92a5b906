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

# killed_leaves_nothing SIGNAL: a command that made a file and started a process, which started another, is ended.
killed_leaves_nothing() {
    mark=$work/left-by-$1
    tools/apart sh -c 'touch "$TMPDIR/file"; echo "$TMPDIR" >"$1"; sh -c "sleep 1000; : $1" & wait' sh "$mark" &
    apart=$!
    until [ -s "$mark" ]; do sleep 0.05; done
    [ -n "$(living "$mark")" ] || { echo 'it never ran'; return 1; }
    kill -"$1" $apart
    wait $apart
    tries=0
    while [ -n "$(living "$mark")" ] && [ $tries -lt 100 ]; do sleep 0.1; tries=$((tries + 1)); done
    [ -z "$(living "$mark")" ] && [ ! -e "$(cat "$mark")/file" ]
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

tap_ends
