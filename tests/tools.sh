#!/bin/sh
# The tools in tools/ that change files, run programs or end them. Prints TAP.
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=tests/tap.sh
. tests/tap.sh
own_folder tools

# --- make cli, tools/sizes ---

# calls_made FLAGS: whether calls.h, of which the program is made, is made anew with these flags of stores
calls_made() {
    before=$(stat -c %y "$work/cli/cli/calls.h" 2>/dev/null)
    env -u MAKEFLAGS make -s BUILD="$work/cli" store_flags="$1" "$work/cli/cli/calls.h" || return 1
    [ "$(stat -c %y "$work/cli/cli/calls.h")" != "$before" ]
}

# A library that is found is a flag.
make_cli_sees_a_library_that_came() {
    calls_made -DNONE && calls_made -DONE_CAME && ! calls_made -DONE_CAME
}

# It is enough that this compiler is asked.
sizes_are_those_of_the_compiler() {
    printf '#!/bin/sh\necho "$@" >>"%s/asked"\necho 7.7.7\nexec gcc "$@"\n' "$work" >"$work/other-cc"
    chmod +x "$work/other-cc"
    CC=$work/other-cc tools/sizes --check >"$work/said"
    cat "$work/said"
    grep -q -e -dumpfullversion "$work/asked"
}

# --- tools/apart ---

# Who runs this suite may have been refused one, and then tools/apart asks and says no more.
namespaces() {
    [ -z "${APART_REFUSED:-}" ] && ! tools/apart true 2>&1 | grep -q 'no pid namespace'
}

# The number of a process outside means another one inside, or nobody.
signal_to_a_number_outside_changes_nothing() {
    sleep 60 &
    outside=$! others=$!
    tools/apart sh -c "kill -KILL $outside" && return 1
    kill -TERM $outside
    wait $outside
    [ $? = 143 ] && others=
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
    apart=$! others=$!
    until [ -s "$mark" ]; do sleep 0.05; done
    [ -n "$(living "$mark")" ] || { echo 'it never ran'; return 1; }
    kill -"$1" $apart
    wait $apart
    others=
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

closed_standard_input_is_an_empty_one() {
    tools/apart sh -c 'cat && exit 40' <&-
    [ $? = 40 ]
}

# As the folder of the project, of what is built, or of a server may be.
what_is_below_shared_memory_is_seen() {
    folder=$(mktemp -d /dev/shm/rlock-XXXXXX) || return 1
    here=$PWD
    echo words >"$folder/file"
    {
        tools/apart cat "$folder/file"
        BUILD=$folder tools/apart sh -c 'cat "$BUILD/file"'
        (cd "$folder" && "$here/tools/apart" cat file)
    } >"$work/seen" 2>&1
    rm -rf "$folder"
    cat "$work/seen"
    [ "$(cat "$work/seen")" = "$(printf 'words\nwords\nwords')" ]
}

# What is in the temporary files of one is seen in another that it starts.
files_of_the_outer_one_are_seen() {
    inner='cat "$1"; echo "$TMPDIR"'
    tools/apart sh -c 'echo words >"$TMPDIR/file"; tools/apart sh -c "$1" sh "$TMPDIR/file"' sh "$inner" >"$work/seen" ||
        return 1
    cat "$work/seen"
    [ "$(head -n 1 "$work/seen")" = words ] && [ ! -e "$(tail -n 1 "$work/seen")" ]
}

# So it is where the system refuses, and where there is no setpriv.
refused_namespace_is_said_once() {
    for missing in unshare setpriv; do
        mkdir -p "$work/no-$missing"
        printf '#!/bin/sh\nexit 127\n' >"$work/no-$missing/$missing"
        chmod +x "$work/no-$missing/$missing"
        lines=$(env -u APART_REFUSED PATH="$work/no-$missing:$PATH" tools/apart tools/apart sh -c 'echo ran' 2>&1)
        echo "$lines"
        [ "$(echo "$lines" | grep -c '^apart: no pid namespace')" = 1 ] && [ "$(echo "$lines" | wc -l)" = 2 ] &&
            [ "$(echo "$lines" | tail -n 1)" = ran ] || return 1
    done
}

if namespaces; then
    check signal_to_a_number_outside_changes_nothing signal_to_a_number_outside_changes_nothing
    check suite_that_was_killed_leaves_no_process_and_no_file killed_leaves_nothing KILL
    check suite_that_was_ended_leaves_no_process_and_no_file killed_leaves_nothing TERM
    check command_that_ends_leaves_no_process_and_no_file command_that_ends_leaves_nothing
    check standard_input_and_status_are_those_of_the_command standard_input_and_status_are_the_commands
    check closed_standard_input_is_an_empty_one closed_standard_input_is_an_empty_one
    check temporary_files_of_an_outer_command_are_seen_by_an_inner_one files_of_the_outer_one_are_seen
else
    echo 'not applicable: namespaces, this system refuses them'
fi
check what_is_below_shared_memory_is_seen what_is_below_shared_memory_is_seen
check refused_namespace_is_said_once refused_namespace_is_said_once

# --- tests/private.h ---

# is_in PROCESS STATES: it is there, in one of these states of /proc/PID/status.
is_in() {
    grep -qs "^State:[[:space:]]*[$2]" "/proc/$1/status"
}

# A program with a Redis that stands still: its number and its folder are in the file "server".
starts_a_private_server() {
    cat >"$work/private.c" <<'END'
#include "server.h"
static struct server s;
int main(void) {
    if (server_start(&s, NULL) != 0) {
        return 1;
    }
    server_pause(&s);
    printf("%d %s\n", (int)s.pid, s.dir);
    fflush(stdout);
    return pause();
}
END
    "${CC:-cc}" -std=c99 -D_GNU_SOURCE -Itests -o "$work/private" "$work/private.c" || return 1
    rm -f "$work/server"
    PATH="$PWD/build/bin:$PATH" "$work/private" >"$work/server" &
    program=$! others=$!
    until [ -s "$work/server" ]; do
        kill -0 $program || return 1
        sleep 0.05
    done
    read -r server folder <"$work/server"
    others="$program $server"
}

# private_server_ends SIGNAL: after a program that got this one; its folder goes too if the program could see to it.
private_server_ends() {
    starts_a_private_server || return 1
    is_in "$server" T || { echo 'it does not stand still'; return 1; }
    [ -d "$folder" ] || return 1
    kill -"$1" $program
    wait $program
    tries=0
    while is_in "$server" RSDT && [ $tries -lt 100 ]; do sleep 0.1; tries=$((tries + 1)); done
    is_in "$server" RSDT && return 1
    others=
    [ "$1" = TERM ] && [ -d "$folder" ] && return 1
    rm -rf "$folder"
}

check private_server_that_stands_still_ends_with_its_program_and_its_folder private_server_ends TERM
check private_server_that_stands_still_ends_with_a_program_that_is_killed private_server_ends KILL

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
    ends_with 1 '1 passed, 1 failed' && grep -q '^    ended after [0-9]* s, far above its budget$' "$work/said" &&
        dies "$work/hangs"
}

# killed_runner_leaves_nothing SIGNAL
killed_runner_leaves_nothing() {
    mark=$work/run-by-$1
    table "lasts | touch \"\$TMPDIR/file\"; echo \"\$TMPDIR\" >'$mark'; sh -c 'sleep 1000; : $mark' & wait | 100"
    SUITES=$suites tools/run-tests BUILD="$work/built" &
    runner=$! others=$!
    until [ -s "$mark" ]; do sleep 0.05; done
    kill -"$1" $runner
    wait $runner
    others=
    dies "$mark" && [ ! -e "$(cat "$mark")/file" ]
}

killed_build_leaves_nothing() {
    mkdir -p "$work/slow"
    printf '#!/bin/sh\nsh -c "touch %s/builds; sleep 1000; : %s/builds"\n' "$work" "$work" >"$work/slow/make"
    chmod +x "$work/slow/make"
    table 'never | $BUILD/tests/never | 9'
    SUITES=$suites PATH=$work/slow:$PATH tools/run-tests BUILD="$work/built" &
    runner=$! others=$!
    until [ -e "$work/builds" ]; do sleep 0.05; done
    kill -TERM $runner
    wait $runner
    others=
    dies "$work/builds"
}

# As its servers end and its folder goes where no namespace sees to it, after the shell that started it is gone.
ended_suite_has_time_to_clean_up() {
    printf '%s\n' 'trap "sleep 0.5; touch \"$0.clean\"; exit 143" TERM' 'touch "$0.began"' 'sleep 1000 & wait' >"$work/cleans"
    table "cleans | sh $work/cleans; true | 9"
    APART_REFUSED=1 SUITES=$suites tools/run-tests BUILD="$work/built" &
    runner=$! others=$!
    until [ -e "$work/cleans.began" ]; do sleep 0.05; done
    kill -TERM $runner
    wait $runner
    others=
    dies "$work/cleans" && [ -e "$work/cleans.clean" ]
}

test_of_several_programs_is_refused() {
    table 'both | sh -c "echo ok 1 - a; echo 1..1"; sh -c "echo ok 1 - b; echo 1..1" | 9'
    runs both/a
    ends_with 1 '0 passed, 1 failed' && grep -qx 'no test of both can be run alone: it is several programs' "$work/said"
}

shards_are_run_each() {
    table 'parts | SHARDS=3 sh -c "echo not applicable: x, y; echo ok 1 - \$RLOCK_TEST_SHARD; echo 1..1" | 9'
    runs
    ends_with 0 '3 passed, 0 failed' && grep -q '^parts .*  1 not applicable$' "$work/said" &&
        cat "$work"/built/log/parts-?.log | grep -c '^ok 1 - [123]/3$' | grep -qx 3
}

one_at_a_time() {
    alone="mkdir '$work/alone' && sleep 0.3 && rmdir '$work/alone' && echo 'ok 1 - one' && echo 1..1"
    table "first | $alone | 9" "second | $alone | 9" "third | $alone | 9"
    ALONE=1 runs
    ends_with 0 '3 passed, 0 failed'
}

what_a_row_names_is_built_first() {
    mkdir -p "$work/bin"
    printf '#!/bin/sh\necho "$*" >>%s/made\n' "$work" >"$work/bin/make"
    chmod +x "$work/bin/make"
    table "two | echo \"ok 1 - \$(wc -l <$work/made) \$BUILD/tests/a \$BUILD/asan/tests/b\"; echo 1..1 | 9" \
        'other | $BUILD/tests/other | 9'
    PATH=$work/bin:$PATH runs CC=any two
    cat "$work/made"
    ends_with 0 '1 passed, 0 failed' && grep -q "^ok 1 - 2 " "$work/built/log/two.log" &&
        grep -q " CC=any $work/built/tests/a$" "$work/made" && ! grep -q other "$work/made" &&
        grep -q " CC=any $work/built/asan/tests/b SANITIZE=1$" "$work/made"
}

check every_kind_of_failure_is_one every_kind_of_failure_is_one
check suite_that_hangs_is_ended_after_many_times_its_budget suite_that_hangs_is_ended
if namespaces; then
    check runner_that_was_killed_leaves_nothing_of_its_suite killed_runner_leaves_nothing KILL
    check runner_that_was_ended_leaves_nothing_of_its_suite killed_runner_leaves_nothing TERM
fi
check runner_that_was_ended_while_it_builds_leaves_nothing killed_build_leaves_nothing
check suite_that_is_ended_has_time_to_clean_up ended_suite_has_time_to_clean_up
check one_test_of_a_suite_of_several_programs_is_refused test_of_several_programs_is_refused
check shards_of_a_suite_are_run_each shards_are_run_each
check suites_run_one_at_a_time_if_asked one_at_a_time
check what_a_row_names_is_built_before_it_runs what_a_row_names_is_built_first

# --- tools/join ---

# tree_to_join NAME: a copy of what tools/join reads and writes, and of the Makefile; its name is in $tree.
tree_to_join() {
    tree=$work/$1
    mkdir -p "$tree/tools" "$tree/docs" "$tree/tests"
    cp -R Makefile src rlock.h rlock.c rlock.hpp rlock_testing.h "$tree"
    cp tools/join "$tree/tools"
}

# replace FILE LINE NEW: the line, of which there is one, becomes another.
replace() {
    [ "$(grep -cxF -e "$2" "$1")" = 1 ] && awk -v old="$2" -v new="$3" '{ print $0 == old ? new : $0 }' "$1" >"$1.new" && mv "$1.new" "$1"
}

# One line is another, one is new, one is gone: each is told with the part that it belongs to.
edit_in_the_joined_header_is_refused() {
    tree_to_join edited
    line='    RLOCK_ASSERT(list != from);'
    replace "$tree/rlock.h" "$line" '    RLOCK_ASSERT(list == from);' || return 1
    last=$(grep -n 'int rlock_acquire(rlock \*lock.*,$' "$tree/rlock.h" | tail -n 1 | cut -d : -f 1)
    sed -i "${last}i int planted;" "$tree/rlock.h"
    cp "$tree/rlock.h" "$tree/kept.h"
    for words in '' --lines; do
        # shellcheck disable=SC2086  # no word, or one
        "$tree/tools/join" $words >"$tree/said" 2>&1 && { echo "it went on: $words"; return 1; }
        cmp "$tree/rlock.h" "$tree/kept.h" || return 1
        cat "$tree/said"
        grep -qx "rlock.h:[0-9]*, in src/base/list.h:$(grep -nxF -e "$line" src/base/list.h | cut -d : -f 1)" "$tree/said" &&
            grep -qxF -e "    +    RLOCK_ASSERT(list == from);" "$tree/said" && grep -qxF -e "    -$line" "$tree/said" &&
            grep -qx "rlock.h:$last, in src/lock/api_handle.h:[0-9]*" "$tree/said" && grep -qxF '    +int planted;' "$tree/said" &&
            [ "$(wc -l <"$tree/said")" = 7 ] || return 1
    done
    "$tree/tools/join" --check | grep -q '^rlock.h is not what src/ makes'
}

edit_is_discarded_by_force() {
    tree_to_join forced
    echo 'int planted;' >>"$tree/rlock.h"
    "$tree/tools/join" && return 1
    "$tree/tools/join" --force && cmp "$tree/rlock.h" rlock.h && "$tree/tools/join" && "$tree/tools/join" --check
}

# Neither a part that was edited nor one that is joined already is in the way.
edit_of_a_part_is_joined() {
    tree_to_join part
    replace "$tree/src/base/list.h" '    RLOCK_ASSERT(list != from);' '    RLOCK_ASSERT(from != list);' || return 1
    "$tree/tools/join" && "$tree/tools/join" && grep -qxF '    RLOCK_ASSERT(from != list);' "$tree/rlock.h"
}

# Each line stands where it is said to come from, but for what an include of a script becomes, and for the comment in which
# contents are listed.
lines_are_those_of_the_joined_header() {
    tools/join --lines >"$work/lined" || return 1
    grep -v '^#line ' "$work/lined" >"$work/without"
    sed '$d' rlock.h | cmp - "$work/without" || return 1
    awk '
        /^#line / { at = $2; part = substr($3, 2, length($3) - 2); directives++; made = 0; next }
        made { next }
        {
            while (read[part] < at && (getline text[part] <part) > 0) read[part]++
            made = text[part] ~ /^#include "lua\/|^ \*     \{public\}$/
            if (!made && (read[part] != at || text[part] != $0)) { print part ":" at " is no " $0; wrong = 1 }
            at++
        }
        END { exit wrong || directives < 50 }' "$work/lined"
}

# By the rules of the Makefile, in a program of a test: what does not compile, then what an assertion says.
faults_name_the_part_and_its_line() {
    tree_to_join faults
    printf '%s\n' '#define RLOCK_NO_REDIS' '#define RLOCK_IMPLEMENTATION' '#include "rlock.h"' 'int main(void) {' \
        '    rlock_link list;' '    rlock__list_init(&list);' '    rlock__list_move(&list, &list);' '}' >"$tree/tests/fault.c"
    replace "$tree/Makefile" 'WARNINGS       = -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror' 'WARNINGS = -w' || return 1
    number=$(grep -nxF '    RLOCK_ASSERT(list != from);' src/base/list.h | cut -d : -f 1)
    make_fault() {
        MAKEFLAGS='' make -s -C "$tree" BUILD=build CFLAGS=-O0 build/tests/fault >"$tree/said" 2>&1
    }
    make_fault || { cat "$tree/said"; return 1; }
    (cd "$tree" && build/tests/fault) >"$tree/said" 2>&1 && { echo 'no assertion failed'; return 1; }
    cat "$tree/said"
    grep -q "src/base/list.h:$number: .*list != from" "$tree/said" || return 1
    sed -i "${number}s/.*/    planted;/" "$tree/src/base/list.h"
    make_fault && { echo 'it compiles: an edit of a part is not seen'; return 1; }
    cat "$tree/said"
    grep -q "^src/base/list.h:$number:[0-9]*: error: .*planted" "$tree/said"
}

# A program is not compiled anew for a part that is only newer.
only_a_part_that_changed_is_compiled() {
    tree_to_join newer
    printf '%s\n' '#include "rlock.h"' 'int main(void) { return 0; }' >"$tree/tests/newer.c"
    for turn in 1 2; do
        MAKEFLAGS='' make -s -C "$tree" BUILD=build build/tests/newer || return 1
        [ -e "$tree/mark" ] || touch -r "$tree/build/tests/newer" "$tree/mark"
        [ -z "$(find "$tree/build/tests/newer" -newer "$tree/mark")" ] || { echo "compiled in turn $turn"; return 1; }
        touch "$tree/src/base/list.h"
    done
}

check edit_in_the_joined_header_is_refused_and_named_with_its_part edit_in_the_joined_header_is_refused
check edit_in_the_joined_header_is_discarded_by_force edit_is_discarded_by_force
check edit_of_a_part_is_joined edit_of_a_part_is_joined
check line_directives_tell_the_part_and_the_line_of_every_line lines_are_those_of_the_joined_header
check compiler_and_assertion_name_the_part_and_its_own_line faults_name_the_part_and_its_line
check only_a_part_that_changed_is_compiled only_a_part_that_changed_is_compiled

# --- tools/quick ---

# A machine that has nothing but what `make quick` needs: all other programs, and libraries, are not found. Nothing is
# asked for there. Without cmocka that, and nothing else, is.
quick_needs_and_fetches_only_what_its_suites_need() {
    tree_to_join quick
    mkdir -p "$tree/bin"
    for name in sh dirname mkdir mktemp rm mv cat touch cmp sed grep tail sort tr find getconf as ld make; do
        printf '#!/bin/sh\nexec %s "$@"\n' "$(command -v $name)" >"$tree/bin/$name"
    done
    cat >"$tree/bin/gcc" <<EOF
#!/bin/sh
case " \$* " in *' -E '*) grep -q -e hiredis -e event -e 'uv.h' -e openssl \${REFUSED:+-e \$REFUSED} && exit 1 ;; esac
case " \$* " in *' -lhiredis '*) exit 1 ;; esac
exec $(command -v gcc) "\$@"
EOF
    chmod +x "$tree"/bin/*
    cp tools/quick tools/setup "$tree/tools"
    cp -R tests/*.h tests/unit.c tests/seam.c tests/memory.c "$tree/tests"
    cp -R adapters "$tree"
    (
        unset MAKEFLAGS BUILD
        PATH=$tree/bin
        cd "$tree" || exit 1
        REFUSED=cmocka tools/setup quick >said && exit 1
        grep -q 'dnf install libcmocka-devel $' said || exit 1
        tools/setup test >said && exit 1
        grep -q ' valgrind ' said || exit 1
        make quick
    ) >"$tree/output" 2>&1 || { cat "$tree/output" "$tree/said"; return 1; }
    cat "$tree/output"
    [ "$(grep -c '^[a-z]*: [0-9]* tests passed$' "$tree/output")" = 3 ] && [ "$(wc -l <"$tree/output")" = 3 ]
}

edit_in_the_joined_header_is_refused_by_quick() {
    echo 'int planted;' >>"$tree/rlock.h"
    (unset MAKEFLAGS BUILD; make -C "$tree" quick) >"$tree/output" 2>&1 && return 1
    cat "$tree/output"
    grep -q '^    +int planted;' "$tree/output" && ! grep -q ': [0-9]* tests passed$' "$tree/output"
}

check quick_needs_and_fetches_only_what_its_suites_need quick_needs_and_fetches_only_what_its_suites_need
check edit_in_the_joined_header_is_refused_by_quick edit_in_the_joined_header_is_refused_by_quick

# --- tools/lint ---

# planted FILE OLD NEW WORDS: in a copy of the tree, OLD of that file becomes NEW; lint says no more and no less than WORDS.
planted() {
    cp "$tree/$1" "$tree/kept"
    replace "$tree/$1" "$2" "$3" || { echo "$1 has no such line: $2"; return 1; }
    "$tree/tools/lint" settings >"$tree/said"
    cp "$tree/kept" "$tree/$1"
    sed -n 's/^# //p' "$tree/said" >"$tree/found"
    printf "$4" | diff - "$tree/found" || { echo "planted: $3"; return 1; }
}

settings_that_differ_are_reported() {
    tree_to_join settings
    cp tools/lint "$tree/tools"
    cp tests/tap.sh "$tree/tests"
    cp docs/*.md "$tree/docs"
    cp tests/url.c tests/unit_arguments.h "$tree/tests"
    "$tree/tools/lint" settings || return 1
    client='src/public/client.h (the comment of config.url)' page=docs/set-up-the-server.md
    url='tests/url.c (each_form_means_what_its_fields_mean)'
    row='    RLOCK__SETTING(replicas, RLOCK__INT, 1, 100, 0),'
    planted src/runtime/settings.h "$row" '' "src/runtime/settings.h has no replicas
$client names what is no parameter: replicas
$page names what is no parameter: replicas
$url names what is no parameter: replicas\n" || return 1
    planted src/store/redis/url.h '    RLOCK__SETTING(prefix, RLOCK__STRING, 0, 0, 0),' '    {"fresh", 0, 0, 0, 0, RLOCK__YES_NO},' \
        "$(for where in "$client" "$page" "$url"; do
            printf '%s does not name the parameter fresh\\n%s names what is no parameter: prefix\\n' "$where" "$where"
        done)" || return 1
    planted src/public/client.h '    int replicas;' '    int replicas, fresh;' "docs/: no page names rlock_config's fresh
src/runtime/settings.h has no fresh
tests/unit_arguments.h tries no limit of fresh
tests/url.c does not read fresh\n" || return 1
    planted "$page" '| `client_name`, `prefix` | texts, as in the fields |' '| `prefix`, `fresh` | texts |' \
        "$page does not name the parameter client_name\n$page names what is no parameter: fresh\n" || return 1
    planted tests/url.c '        {"redis://h?client_name=a%26b+c&prefix=p%3a", "host=h name=a&b+c prefix=p:"},' \
        '        {"redis://h?client_name=a%26b+c", "host=h name=a&b+c"},' "$url does not name the parameter prefix\n"
}

# words_refused WORDS: lint refuses these in the copied tree, and no others: each with its file, and what is better.
words_refused() {
    "$tree/tools/lint" words >"$tree/said"
    sed -nE 's/^# //; s/: ".*": better: /: /p' "$tree/said" >"$tree/found"
    printf "$1" | diff - "$tree/found"
}

# Also where a phrase is cut by the end of a line, or of a literal. Right English, code and the licence are no such words.
lint_refuses_the_words_of_its_list() {
    tree_to_join words
    cp tools/lint tools/words tools/texts "$tree/tools"
    cp tests/tap.sh "$tree/tests"
    cp LICENSE README.md "$tree"
    words_refused '' || return 1
    printf 'People who wait.\n\n    anew\n\nIt is `anew`, [it](anew.md).\n\nA server\nwho waits.\n' >"$tree/docs/page.md"
    printf '/* It is made anew. */\nint x = %s; /* %s */ const char *y = "is let "\n    "go";\n' "'\"'" "it's" >"$tree/src/public/new.h"
    printf '/* It is made anew. */\nint anew; const char *z = "made anew";\n' >"$tree/src/base/new.h"
    words_refused 'src/base/new.h: again\nsrc/public/new.h: is released\nsrc/public/new.h: again\ndocs/page.md: that\n'
}

# anchors_refused PATH LINE WORDS: with this line at its end, lint refuses these anchors of that file.
anchors_refused() {
    cp "$tree/$1" "$tree/kept" 2>/dev/null || : >"$tree/kept"
    printf '%s\n' "$2" >>"$tree/$1"
    /usr/bin/python3 "$tree/tools/pages.py" >"$tree/found"
    cp "$tree/kept" "$tree/$1"
    printf "$3" | diff - "$tree/found" || { echo "planted in $1: $2"; return 1; }
}

# By the rules of GitHub: lower case, no punctuation, a hyphen for each space, -1 for a second one. A fence has no heading.
lint_refuses_an_anchor_that_no_heading_has() {
    tree=$work/anchors
    mkdir -p "$tree/docs" "$tree/src/base" "$tree/tools"
    cp tools/lint tools/pages.py "$tree/tools"
    printf '# A page\n\n## Its `rlock_new`, *all* (and more)!\n\n## Twice\n\n## Twice\n\n```\n# none\n```\n' >"$tree/docs/page.md"
    echo '[one](docs/page.md#its-rlock_new-all-and-more)' >"$tree/README.md"
    echo '/* docs/page.md#twice-1. */' >"$tree/src/base/new.h"
    anchors_refused README.md 'And [two](docs/page.md#twice-1 "with a title"), [a](docs/page.md#a-page).' '' || return 1
    anchors_refused README.md '[three](docs/page.md#twice-2)' 'README.md: no #twice-2 in docs/page.md\n' || return 1
    anchors_refused docs/page.md '[here](#none), [there](#twice)' 'docs/page.md: no #none in docs/page.md\n' || return 1
    anchors_refused docs/page.md '[up](../README.md#top)' 'docs/page.md: no #top in README.md\n' || return 1
    anchors_refused src/base/new.h '/* See docs/page.md#Twice. */' 'src/base/new.h: no #Twice in docs/page.md\n' || return 1
    mkdir "$tree/tests" && cp tests/tap.sh "$tree/tests" || return 1
    echo '[three](docs/page.md#twice-2)' >>"$tree/README.md"
    "$tree/tools/lint" links >"$tree/said"
    grep -qx '# README.md: no #twice-2 in docs/page.md' "$tree/said" || { cat "$tree/said"; return 1; }
}

# The whole in src/ has the same name as what is made of it.
diffs_hide_the_joined_header_alone() {
    mkdir -p "$work/repository/src"
    git -C "$work/repository" init -q && cp .gitattributes "$work/repository" || return 1
    git -C "$work/repository" check-attr diff merge -- rlock.h src/rlock.h >"$work/attributes"
    cat "$work/attributes"
    [ "$(grep -c '^rlock.h: .*: unset$' "$work/attributes")" = 2 ] &&
        [ "$(grep -c '^src/rlock.h: .*: unspecified$' "$work/attributes")" = 2 ]
}

check diffs_hide_the_joined_header_alone diffs_hide_the_joined_header_alone
check settings_and_parameters_that_differ_are_reported settings_that_differ_are_reported
check lint_refuses_the_words_of_its_list lint_refuses_the_words_of_its_list
check lint_refuses_an_anchor_that_no_heading_has lint_refuses_an_anchor_that_no_heading_has

# --- tools/mutants ---

# row NAME RULE FILE LINE...: a row of planted bugs.
row() {
    printf '[%s]\n%s\n%s\n' "$1" "$2" "$3"
    shift 3
    printf '%s\n' "$@"
    echo
}

copy=$work/planted

# A tree with a part, and a row that can be planted in it.
make_copy() {
    rm -rf "$copy"
    mkdir -p "$copy/tools" "$copy/tests/mutants" "$copy/src"
    cp tools/mutants tools/planted.py tools/kit.py tools/apart "$copy/tools"
    printf 'if (one) {\n    two();\n}\nif (three) {\n    two();\n}\n' >"$copy/src/part.h"
    row stands-once 'It stands there once.' src/part.h '- if (three) {' '- two();' '+ if (!three) {' '+     two();' \
        >"$copy/tests/mutants/well.txt"
}

# refused WORDS: the rows on standard input are refused, with these words; without them nothing is.
refused() {
    make_copy
    "$copy/tools/mutants" --check || { echo 'what is well is refused'; return 1; }
    cat >"$copy/tests/mutants/wrong.txt"
    said=$("$copy/tools/mutants" --check) && { echo 'it is not refused'; return 1; }
    echo "$said"
    echo "$said" | grep -qF "$1"
}

stands_twice() {
    row here 'It stands there twice.' src/part.h '- two();' '+ three();' |
        refused 'wrong.txt:1: [here]: src/part.h has these lines 2 times: src/part.h:2, 5'
}

stands_nowhere() {
    row here 'It stands nowhere.' src/part.h '- if (one) {' '- }' '+ if (two) {' |
        refused 'wrong.txt:1: [here]: src/part.h has no such lines: if (one) {'
}

file_is_not_there() {
    row here 'Its file is not there.' src/other.h '- two();' '+ three();' |
        refused 'wrong.txt:1: [here]: there is no src/other.h'
}

name_is_doubled() {
    row stands-once 'It has the name of another one.' src/part.h '- if (one) {' '+ if (two) {' |
        refused 'wrong.txt:1: [stands-once] stands at tests/mutants/well.txt:1 too'
}

rule_is_missing() {
    printf '[here]\nsrc/part.h\n- if (one) {\n+ if (two) {\n' | refused 'wrong.txt:1: [here] has no rule'
}

nothing_is_changed() {
    row here 'It changes nothing.' src/part.h '- if (one) {' '+ if (one) {' |
        refused 'wrong.txt:1: [here]: src/part.h stays as it is'
}

places_overlap() {
    row here 'Two places are one.' src/part.h '- if (one) {' '- two();' src/part.h '- if (one) {' '+ if (two) {' |
        refused 'wrong.txt:1: [here]: two places in src/part.h overlap at line 1'
}

# The indentation of what is found does not count, that of what is put does.
planted_as_it_stands() {
    make_copy
    row here 'It is planted.' src/part.h '- if (one) {' '-         two();' '+ if (one) {' '+   three();' \
        >"$copy/tests/mutants/other.txt"
    "$copy/tools/mutants" --plant here || return 1
    printf 'if (one) {\n  three();\n}\nif (three) {\n    two();\n}\n' | diff - "$copy/src/part.h"
}

# The copy with three programs: one is made of the part, one always fails, one is made of the part and fails.
make_hunted() {
    make_copy
    printf '#!/bin/sh\n' >"$copy/tools/join"
    chmod +x "$copy/tools/join"
    cat >"$copy/src/part.h" <<'END'
echo 1..2
if true; then
    echo 'ok 1 - first'
else
    echo 'not ok 1 - first'
fi
echo 'ok 2 - second'
END
    cat >"$copy/Makefile" <<'END'
program = mkdir -p $(@D); { echo '\#!/bin/sh'; $1; } >$@; chmod +x $@
$(BUILD)/tests/one: src/part.h
	$(call program,cat src/part.h)
$(BUILD)/tests/fails:
	$(call program,echo echo not ok 1 - always)
$(BUILD)/tests/fails-too: src/part.h
	$(call program,cat src/part.h; echo echo not ok 3 - always)
END
    row loud 'It is caught.' src/part.h '- if true; then' '+ if false; then' >"$copy/tests/mutants/well.txt"
    row silent 'It is not caught.' src/part.h "- echo 'ok 2 - second'" "+ echo 'ok 2 - third'" \
        >>"$copy/tests/mutants/well.txt"
    suite one
}

# suite PROGRAM: the copy has this suite alone.
suite() {
    printf '# test, waits\n%s | $BUILD/tests/%s | 5 | it\n' "$1" "$1" >"$copy/tests/suites"
}

hunted_bugs_are_reported() {
    make_hunted
    said=$("$copy/tools/mutants") && { echo 'the exit status is 0'; return 1; }
    echo "$said"
    echo "$said" | grep -q '^missed: silent: ' && [ "$(echo "$said" | tail -n 1)" = '2 planted, 1 caught, 1 missed' ] &&
        [ "$(cat "$copy/tests/mutants/caught.txt")" = 'loud | one | first' ] || return 1
    # What caught it is tried alone, and nothing else is compared with it.
    "$copy/tools/mutants" loud && ! "$copy/tools/mutants" silent || return 1
    # What is known to be missed is named, counted, and stays known.
    echo 'silent | nothing | nobody asks' >>"$copy/tests/mutants/caught.txt"
    said=$("$copy/tools/mutants" silent) || return 1
    echo "$said"
    echo "$said" | grep -qx 'missed, as is known: silent: nobody asks' &&
        [ "$(echo "$said" | tail -n 1)" = '1 planted, 0 caught, 1 missed' ] &&
        grep -qx 'silent | nothing | nobody asks' "$copy/tests/mutants/caught.txt"
}

bugs_that_no_program_here_has_are_counted() {
    make_hunted
    mkdir "$copy/adapters"
    echo 'if (one) {' >"$copy/adapters/rlock_uloop.h"
    row foreign 'It is not here.' adapters/rlock_uloop.h '- if (one) {' '+ if (two) {' >>"$copy/tests/mutants/well.txt"
    sed -i 's|/usr|/nowhere|g' "$copy/tools/mutants"
    said=$(unset UBOX; /usr/bin/python3 "$copy/tools/mutants" loud foreign) || return 1
    echo "$said"
    [ "$(echo "$said" | tail -n 2 | tr '\n' ' ')" = '1 left out 1 planted, 1 caught, 0 missed ' ]
}

# A set-up may fail without the bug too. It is no test: asked for by a name that is none, a program runs nothing.
failing_set_up_is_no_test() {
    make_hunted
    cat >"$copy/Makefile" <<'END'
$(BUILD)/tests/sets-up: src/part.h
	mkdir -p $(@D)
	{ echo '#!/bin/sh'; echo '[ -z "$$1" ] || exit 0'; sed 's/^/# /' src/part.h; \
		echo 'echo "[  FAILED  ] GROUP SETUP"; exit 1'; } >$@
	chmod +x $@
END
    suite sets-up
    said=$("$copy/tools/mutants" silent) && return 1
    echo "$said"
    echo "$said" | grep -q '^could not be tried: silent: .*sets-up: the run$' || return 1
    # Nor does it tell anything that a test is gone.
    echo 'silent | sets-up | gone' >"$copy/tests/mutants/caught.txt"
    "$copy/tools/mutants" silent | grep -q '^silent: the true program fails sets-up: gone as well'
}

failure_of_the_true_program_says_nothing() {
    make_hunted
    suite fails
    "$copy/tools/mutants" silent | grep -q '^missed: silent' || { echo 'what has no bug in it was asked'; return 1; }
    suite fails-too
    said=$("$copy/tools/mutants" silent)
    echo "$said"
    echo "$said" | grep -q '^could not be tried: silent: .*fails-too: always$'
}

changed_files_and_rows_are_drawn() {
    make_hunted
    printf 'if (one) {\n' >"$copy/src/other.h"
    row elsewhere 'It is elsewhere.' src/other.h '- if (one) {' '+ if (two) {' >"$copy/tests/mutants/more.txt"
    (
        cd "$copy" && git init -q . && git add -A &&
            git -c user.name=nobody -c user.email=nobody@localhost commit -qm all || exit 1
        [ -z "$(tools/mutants --since HEAD --list)" ] || { echo 'drawn though nothing was changed'; exit 1; }
        echo 'if (three) {' >>src/other.h
        [ "$(tools/mutants --since HEAD --list)" = elsewhere ] || { echo 'not that of the changed file'; exit 1; }
        sed -i 's/ok 2 - third/ok 2 - fourth/' tests/mutants/well.txt
        [ "$(tools/mutants --since HEAD --list | tr '\n' ' ')" = 'elsewhere silent ' ] || { echo 'not the row'; exit 1; }
        sed 's/elsewhere/another/' tests/mutants/more.txt >tests/mutants/new.txt
        [ "$(tools/mutants --since HEAD --list | tr '\n' ' ')" = 'elsewhere another silent ' ] ||
            { echo 'not a new file'; exit 1; }
        rm tests/mutants/new.txt
        [ "$(tools/mutants --sample 1 --list)" = "$(tools/mutants --sample 1 --list)" ] &&
            [ "$(tools/mutants --sample 2 --list | sort -u | wc -l)" = 2 ]
    )
}

check planted_bug_whose_lines_stand_twice_is_refused stands_twice
check planted_bug_whose_lines_stand_nowhere_is_refused stands_nowhere
check planted_bug_whose_file_is_not_there_is_refused file_is_not_there
check planted_bug_with_the_name_of_another_is_refused name_is_doubled
check planted_bug_without_a_rule_is_refused rule_is_missing
check planted_bug_that_changes_nothing_is_refused nothing_is_changed
check planted_bug_whose_places_overlap_is_refused places_overlap
check planted_bug_is_put_as_it_stands planted_as_it_stands
check planted_bug_that_is_missed_is_named_and_one_that_is_caught_is_noted hunted_bugs_are_reported
check planted_bug_is_not_caught_by_what_the_true_program_fails failure_of_the_true_program_says_nothing
check planted_bugs_of_what_was_changed_are_drawn changed_files_and_rows_are_drawn
check planted_bugs_that_no_program_here_has_are_counted bugs_that_no_program_here_has_are_counted
check planted_bug_is_not_caught_by_a_set_up_that_fails failing_set_up_is_no_test

# --- tools/proof ---

# A project with a small table of steps. Its pieces write into build/ran that they ran; they read the file a or b.
project=$work/project
new_project() {
    rm -rf "$project"
    mkdir -p "$project/tools" "$project/tests/sim" "$project/docs" "$project/build"
    cp tools/proof tools/proof_steps.py tools/planted.py tools/kit.py tools/apart "$project/tools"
    printf '#!/bin/sh\n' >"$project/tools/setup"
    chmod +x "$project/tools/setup"
    cat >>"$project/tools/proof_steps.py" <<'S'


def piece(name, seconds, file, command="echo '1 passed, 0 failed'", finds=False):
    return Piece(name, 'echo %s >>build/ran; %s' % (name, command), seconds, reads(file), finds=finds)


def steps():
    return [Step(name, 'make ' + name, 'test', pieces, [figure], lacking='knows no mirror') for name, figure, pieces in [
        ('two', RESULT, [piece('first', 1, 'a'), piece('second', 1, 'a')]),
        ('bad', RESULT, [piece('wrong', 1, 'b', 'echo it went wrong; exit 3'),
                         piece('status', 1, 'b', "echo '1 passed, 0 failed'; exit 3"), piece('silent', 1, 'b', ':')]),
        ('one', RESULT, [piece('other', 1, 'b')]),
        ('long', RESULT, [piece('endless', 1000, 'a', 'sleep 1004')]),
        ('tight', RESULT, [piece('tight', 45, 'a')]),
        ('moves', RESULT, [piece('commit', 1, 'a', "git commit -q --allow-empty -m moved; echo '1 passed, 0 failed'"),
                           piece('after', 1, 'a')]),
        ('edits', RESULT, [piece('other', 1, 'a', "echo changed >README.md; echo '1 passed, 0 failed'")]),
        ('spoils', RESULT, [piece('edit', 1, 'a', "echo changed >a; echo '1 passed, 0 failed'")]),
        ('lacks', RESULT, [piece('mirror', 1, 'a', 'echo it knows no mirror; exit 1'),
                           piece('wrong', 1, 'a', 'echo it knows no mirror; echo wrong; exit 1')]),
        ('seeds', r'^(\d+ seeds, \d+ violations)', [
            piece('seed', 1, 'a', 'echo seed 4711: two hold; echo 100 seeds, 1 violations; exit 1', True),
            piece('seeds', 1, 'a', 'echo seed 4712: two hold; echo 100 seeds, 60 violations; exit 1', True)])]]
S
    echo /build/ >"$project/.gitignore"
    echo __pycache__/ >>"$project/.gitignore"
    touch "$project/a" "$project/b" "$project/README.md" "$project/Makefile" "$project/tests/sim/found"
    (cd "$project" && git init -q && git config user.name test && git config user.email test@test &&
        git add -A && git commit -q -m first)
}

# change FILE TIME: it is another from a commit of that time on.
change() {
    (cd "$project" && echo "$2" >>"$1" && git add "$1" && GIT_COMMITTER_DATE=$2 git commit -q -m "another $1")
}

# proof OPTION...: it runs in the project.
proof() {
    (cd "$project" && tools/proof "$@")
}

# ran WORD...: these pieces were run, in this order, since it was asked last.
ran() {
    was=$(tr '\n' ' ' <"$project/build/ran" 2>/dev/null)
    rm -f "$project/build/ran"
    [ "$was" = "$*${*:+ }" ] || { echo "these were run: $was"; return 1; }
}

# recorded STEP PIECE RESULT
recorded() {
    awk -F '\t' -v step="$1" -v piece="$2" -v result="$3" \
        '$1 == step && $2 == piece && $3 == result { found = 1 } END { exit !found }' "$project/tests/proof.tsv" ||
        { echo "not so: $*"; cat "$project/tests/proof.tsv"; return 1; }
}

stalest_piece_goes_first() {
    new_project
    proof --only one >/dev/null && ran other || return 1
    proof --only one >/dev/null && ran || return 1
    change b '2031-01-01 00:00:00 +0000'
    proof --only one,two >/dev/null && ran first second other || return 1 # what never passed
    change b '2032-01-01 00:00:00 +0000'
    change a '2033-01-01 00:00:00 +0000'
    proof --only one,two >/dev/null && ran other first second || return 1 # what has been stale for longer
    sed -i '/\tsecond\t/s/\t20[0-9-]* /\t2001-01-01 /' "$project/tests/proof.tsv"
    change README.md '2034-01-01 00:00:00 +0000'
    proof --only two >/dev/null && ran || return 1
    proof --only two --minutes 1 >/dev/null && ran second first || return 1 # the longest ago
    proof --only two --minutes 1 >/dev/null && ran # on one commit a piece passes once
}

nothing_begins_that_cannot_end() {
    new_project
    began=$(date +%s)
    proof --only 'long,tight,two' --minutes 1 >/dev/null && ran first second || return 1
    [ $(($(date +%s) - began)) -lt 30 ] || return 1
    proof --only tight --minutes 2 >/dev/null && ran tight
}

interrupted_run_keeps_what_passed() {
    new_project
    (cd "$project" && exec tools/proof --only two,long) >/dev/null &
    run=$! others=$!
    tries=0
    until grep -q endless "$project/build/ran" 2>/dev/null || [ $tries = 200 ]; do sleep 0.1; tries=$((tries + 1)); done
    kill -TERM $run
    wait $run
    others=
    [ -z "$(living 'sleep 1004')" ] || { echo 'the piece still runs'; return 1; }
    ran first second endless || return 1
    recorded two first passed && recorded two second passed || return 1
    grep -q endless "$project/tests/proof.tsv" && return 1
    grep -q '2 passed, 0 failed' "$project/docs/proof.md" || return 1
    proof --only two >/dev/null && ran
}

failed_piece_leaves_the_others_true() {
    new_project
    proof --only one,bad,two >"$work/said" && { echo 'it returned 0'; return 1; }
    ran first second wrong status silent other || return 1
    recorded bad wrong FAILED && recorded bad status FAILED && recorded bad silent FAILED || return 1
    recorded one other passed && recorded two first passed || return 1
    grep -q 'it went wrong' "$project/docs/proof.md" || return 1
    proof --stale >"$work/said"
    grep -q '^proof: bad: 3 failed$' "$work/said" && ! grep -qE '^proof: (one|two):' "$work/said" || return 1
    proof --only one,two,bad >/dev/null
    ran wrong status silent
}

changed_file_makes_its_step_stale_and_no_other() {
    new_project
    proof --only one,two >/dev/null || return 1
    change README.md '2031-01-01 00:00:00 +0000'
    proof --stale | grep -E '^proof: (one|two):' && return 1
    change b '2031-01-01 00:00:00 +0000'
    proof --stale | grep -E '^proof: (one|two):' >"$work/said"
    cat "$work/said"
    [ "$(cat "$work/said")" = 'proof: one: changed since: b' ]
}

seed_that_fails_is_listed_and_its_row_stays_true() {
    new_project
    proof --only seeds/seed >/dev/null && { echo 'it returned 0'; return 1; }
    recorded seeds seed passed || return 1
    grep -qE '^4711 [0-9a-f]{10} open two hold$' "$project/tests/sim/found" || return 1
    grep -q '^| 4711 |' "$project/docs/proof.md" || return 1
    proof --stale | grep -q 'not judged yet: 4711$' || return 1
    proof --only seeds/seeds >/dev/null # 60 that fail are no finding
    recorded seeds seeds FAILED && ! grep -q 4712 "$project/tests/sim/found"
}

proof_is_of_a_commit() {
    new_project
    echo edited >"$project/a"
    proof --only two 2>/dev/null && return 1
    ran || return 1
    new_project
    proof --only moves >"$work/said"
    ran commit && recorded moves commit passed && grep -q 'the commit has changed' "$work/said" || return 1
    new_project
    proof --only spoils >/dev/null
    ran edit && ! grep -q spoils "$project/tests/proof.tsv" 2>/dev/null || return 1
    new_project
    proof --only edits >/dev/null # what a piece does not read does not spoil it
    ran other && recorded edits other passed
}

piece_that_the_machine_cannot_run_has_not_passed() {
    new_project
    proof --only lacks/mirror >"$work/said" && { echo 'it returned 0'; return 1; }
    ran mirror && grep -qx 'lacks/mirror: not run: it knows no mirror' "$work/said" || return 1
    grep -q mirror "$project/tests/proof.tsv" 2>/dev/null && return 1
    proof --only lacks/wrong >/dev/null
    recorded lacks wrong FAILED
}

# In each line a step, a piece, or * for all of them, and files that it depends on.
what_pieces_read_is_in_their_digests() {
    /usr/bin/python3 -B -c '
import sys
sys.path.insert(0, "tools")
import proof_steps
steps = {step.name: step.pieces for step in proof_steps.steps()}
for name, wanted, *files in map(str.split, sys.stdin):
    pieces = [piece for piece in steps[name] if wanted in ("*", piece.name)]
    wrong = [file for piece in pieces for file in files if file not in piece.reads()]
    if wrong or not pieces:
        sys.exit("%s/%s does not depend on: %s" % (name, wanted, wrong))' <<'END'
suites compile-all adapters/rlock_poll.h
coverage all tests/interop.py tests/fixture.py tools/run-tests tools/kit.py
test-stores all tests/cli.py tests/fixture.py docs/postgresql.md docs/mariadb.md tools/calls
mutants * tests/suites tools/planted.py
mutants-stores * tests/suites tools/planted.py
torture * tools/join
END
}

# A runner that dies in each of these ways has not passed, whatever it said before.
matrix_counts_a_runner_that_dies() {
    rm -rf "$copy"
    mkdir -p "$copy/tools"
    cp tools/matrix "$copy/tools"
    echo 'stable=any work=$PWD/build/matrix; hiredis() { hiredis_version=1; }; find_mirror() { :; }' >"$copy/tools/unpack"
    while read -r words; do
        printf '#!/bin/sh\n%s\n' "${words%=*}" >"$copy/tools/run-tests"
        chmod +x "$copy/tools/run-tests"
        "$copy/tools/matrix" hiredis >"$work/said" 2>"$work/wrong"
        status=$?
        cat "$work/said" "$work/wrong"
        [ "$status $(tail -n 1 "$work/said")" = "${words#*=}" ] || { echo "not so: $words"; return 1; }
    done <<'END'
echo 3 passed, 0 failed=0 3 passed, 0 failed
echo 3 passed, 2 failed; exit 1=1 3 passed, 2 failed
echo Traceback; echo KeyError: 3 4 5; exit 1=1 0 passed, 1 failed
echo 3 passed, 0 failed; exit 1=1 0 passed, 1 failed
true=1 0 passed, 1 failed
END
}

# The reader goes before all is written.
list_may_be_cut() {
    tools/proof --list 2>"$work/said" | true
    cat "$work/said"
    [ ! -s "$work/said" ]
}

check stalest_piece_of_the_proof_goes_first stalest_piece_goes_first
check nothing_begins_that_cannot_end_in_time nothing_begins_that_cannot_end
check interrupted_proof_keeps_what_passed interrupted_run_keeps_what_passed
check failed_piece_leaves_the_others_true failed_piece_leaves_the_others_true
check changed_file_makes_its_step_stale_and_no_other changed_file_makes_its_step_stale_and_no_other
check seed_that_fails_is_listed_and_its_row_stays_true seed_that_fails_is_listed_and_its_row_stays_true
check proof_is_of_a_commit proof_is_of_a_commit
check piece_of_the_proof_that_the_machine_cannot_run_has_not_passed piece_that_the_machine_cannot_run_has_not_passed
check what_pieces_of_the_proof_read_is_in_their_digests what_pieces_read_is_in_their_digests
check make_cli_sees_a_library_that_came make_cli_sees_a_library_that_came
check sizes_are_those_of_the_compiler_CC sizes_are_those_of_the_compiler
check matrix_counts_a_runner_that_dies matrix_counts_a_runner_that_dies
check list_of_the_pieces_may_be_cut list_may_be_cut

tap_ends
