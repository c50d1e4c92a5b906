#!/bin/sh
# What stands around the program rlock says the same as the program: its help, its manual, its completions, and
# docs/command-line.md, whose commands are run on a private server. Prints TAP. RLOCK is the program.
cd "$(dirname "$0")/.." || exit 1
if [ -z "${RLOCK_URL:-}" ] || [ "${1:-}" != --inside ]; then
    exec tools/with-server sh tests/cli_doc.sh --inside
fi
rlock=${RLOCK:-${BUILD:-build}/cli/rlock}
case $rlock in /*) ;; *) rlock=$PWD/$rlock ;; esac
page=docs/command-line.md
. tests/tap.sh
own_folder cli-doc

# --- what can be given ---

# The options that the program knows, each with a = if it takes an argument; the other ways to say them follow.
options_of_program() {
    sed -n 's/.*{"\([a-z-]*\)", required_argument.*/--\1=/p; s/.*{"\([a-z-]*\)", no_argument.*/--\1/p' cli/rlock.c
    grep -o '"+[a-zA-Z:]*"' cli/rlock.c | tr -d '"+' | sed 's/[a-zA-Z]:*/-&\n/g' | tr : = | grep .
}

options_of_help() {
    "$rlock" --help | sed -n '/^ *-/p' | sed 's/redis.*//' | grep -oE -e '(^| )--?[a-zA-Z][a-z-]*( [A-Z0-9][A-Z0-9a-z,]*)?' |
        sed -E 's/^ //; s/ .*/=/'
}

# Of "-w, --wait 10s" the short one takes an argument too.
options_of_manual() {
    sed -n 's/^\.It \(Fl .*\)/\1/p' cli/rlock.1 | sed 's/ , /\n/g; s/^Fl -/Fl --/; s/\nFl -/\nFl --/g' |
        sed -n 's/^Fl \(--[a-z-]*\)$/\1/p; s/^Fl \(--[a-z-]*\) Ar.*/\1=/p; s/^Fl \([a-zA-Z]\)$/-\1/p; s/^Fl \([a-zA-Z]\) Ar.*/-\1=/p'
}

options_of_bash() {
    with=$(sed -n '/-u | --url | /,/) i=/p' cli/rlock.bash | grep -oE -e '(^| )--?[a-zA-Z][a-z-]*')
    for option in $(grep "options+*='" cli/rlock.bash | grep -oE -e "[ ']--?[a-zA-Z][a-z-]*" | tr -d "'"); do
        printf '%s%s\n' "$option" "$(echo "$with" | grep -qx -e " *$option" && echo "=")"
    done
}

options_of_zsh() {
    grep -oE -e "\{-[a-zA-Z],--[a-z-]*=?\}|[')]--[a-z-]*=?\[" cli/rlock.zsh |
        sed -E "s/^[')](--[a-z-]*=?)\[/\1/; s/^\{(-.),(--[a-z-]*=)\}/\1=\n\2/; s/^\{(-.),(--[a-z-]*)\}/\1\n\2/"
}

# A short option has the argument of the long one: the help says it once.
same_options() {
    options_of_program | sort -u >"$work/known"
    [ "$(wc -l <"$work/known")" -ge 20 ] || return 1
    case $1 in
        help)
            "options_of_$1" | sort -u | sed '/^-[a-zA-Z]=*$/s/=$//' >"$work/said"
            sed -i '/^-[a-zA-Z]=*$/s/=$//' "$work/known"
            ;;
        *) "options_of_$1" >"$work/said" ;;
    esac
    sort -u "$work/known" >"$work/known.sorted"
    sort -u "$work/said" | diff "$work/known.sorted" -
}

help_fits() {
    "$rlock" --help >"$work/help" && [ "$(wc -l <"$work/help")" -le 23 ] && ! grep -nE '.{81}' "$work/help" &&
        grep -q '^usage: rlock ' "$work/help"
}

subcommands_everywhere() {
    for word in $(sed -n '/subcommands\[\]/,/};/p' cli/rlock.c | grep -oE '"[a-z-]+"' | tr -d '"' | grep -v '^run$'); do
        grep -qw -e "$word" "$work/help" && grep -qx "\.It Cm $word" cli/rlock.1 && grep -qE "'.*\b$word\b.*'" cli/rlock.bash &&
            grep -q "^        '$word:" cli/rlock.zsh || echo "$word is not told everywhere"
    done
}

kinds_everywhere() {
    for word in mutex fair read write semaphore; do
        grep -qE -e "--kind .*\b$word\b" "$work/help" && grep -qx "\.It Cm $word" cli/rlock.1 &&
            grep -qE -e "--kind\) .*\b$word\b" cli/rlock.bash && grep -qE -e "--kind=.*\b$word\b" cli/rlock.zsh || echo "$word is not told everywhere"
        permits=
        [ "$word" != semaphore ] || permits=--permits=1
        "$rlock" --kind "$word" $permits --try "kind-$word" -- true || echo "$word does not work"
    done
    ! "$rlock" --kind none --try k -- true 2>/dev/null || echo 'another kind is known'
}

statuses_everywhere() {
    sed -n 's/^    CLI_[A-Z_]* = \(1[0-9]*\),.*/\1/p' cli/cli.h >"$work/statuses"
    [ "$(wc -l <"$work/statuses")" = 5 ] || echo 'five statuses'
    while read -r status; do
        grep -qw "$status" "$work/help" && grep -qx "\.It $status" cli/rlock.1 || echo "$status is not told"
    done <"$work/statuses"
}

# between OPTION LEAST MOST UNDER OVER: what the manual says of the limits
between() {
    for value in "$2" "$3"; do
        "$rlock" "$1" "$value" --version >/dev/null || return 1
    done
    for value in "$4" "$5"; do
        "$rlock" "$1" "$value" --version 2>"$work/said"
        [ $? = 125 ] && grep -q "^rlock: $1 $value: not a " "$work/said" || return 1
    done
}

check 'the help fits a screen of 24 lines and 80 columns, with a prompt' help_fits
for place in help manual bash zsh; do
    check "the options of the program are those of its $place" same_options $place
done
check 'each subcommand is in the help, the manual and the completions' silent subcommands_everywhere
check 'each kind is in the help, the manual and the completions, and works' silent kinds_everywhere
check 'each exit status is in the help and the manual' silent statuses_everywhere
check 'a lease is from 200 ms to 24 h' between --lease 200ms 24h 199ms 24.1h
check 'a wait is from 0 to 24 days' between --wait 0 24d -1 25d
check 'the grace is from 0 to 24 h' between --grace 0 24h -1 25h
check 'permits are from 1 to 1000000000' between --permits 1 1000000000 0 1000000001

# --- the manual and the completions ---

opens() {
    MANPAGER=cat MANWIDTH=80 man -l cli/rlock.1 2>&1 | tr -s ' \n' '  ' >"$work/opened"
    grep -qF 'rlock [options] key [--] command [argument ...]' "$work/opened" || { head -c 400 "$work/opened"; return 1; }
}
check 'mandoc finds no fault in the manual' silent mandoc -T lint -W warning cli/rlock.1
check 'groff finds no fault in the manual' silent groff -mandoc -Tutf8 -ww -z cli/rlock.1
check 'man opens the manual' opens

# completes LINE WORDS: what bash offers for a line. COMP_WORDS is split as readline does it.
completes() {
    # shellcheck disable=SC2016  # for the shell inside
    bash -c '. cli/rlock.bash
        _command_offset() { COMPREPLY=("command at ${COMP_WORDS[$1]}"); }
        COMP_LINE=$1 COMP_POINT=${#1}
        read -ra COMP_WORDS <<<"${1//:/ : }"
        [ "$1" = "${1% }" ] || COMP_WORDS+=("")
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _rlock
        echo "${COMPREPLY[@]}"' - "$1" >"$work/said" 2>&1
    [ "$(cat "$work/said")" = "$2" ] || { cat "$work/said"; return 1; }
}
bash_completes() {
    completes 'rlock f' force-release && completes 'rlock --fe' --fence-file && completes 'rlock elect --gr' --grace &&
        completes 'rlock --gr' '' && completes 'rlock --kind r' read && completes 'rlock KEY --kind=w' write &&
        completes 'rlock -u rediss' rediss:// && completes 'rlock -u redis:' // && completes 'rlock ls --js' --json &&
        completes 'rlock -u redis://h:1 KEY -- ca' 'command at ca' && completes 'rlock elect -l 5s KEY cat --he' 'command at cat'
}
check 'bash completes options, kinds, subcommands, and the command' bash_completes
if command -v zsh >/dev/null; then
    check 'zsh reads its completion' zsh -n cli/rlock.zsh
else
    echo 'not applicable: the completion of zsh, there is no zsh'
fi

# --- docs/command-line.md ---

# block LANGUAGE: the block of the page in that language
block() {
    awk -v fence="\`\`\`$1" '$0 == fence { on = 1; next } /^```$/ { on = 0 } on' "$page"
}

# tool NAME: a program of this name, whose text comes on standard input
mkdir "$work/bin"
tool() {
    { echo '#!/bin/sh'; cat; } >"$work/bin/$1"
    chmod +x "$work/bin/$1"
}
ln -s "$rlock" "$work/bin/rlock"
PATH=$work/bin:$PATH
cd "$work" || exit 1
page=$OLDPWD/$page

# three COMMAND STATUSES: on three machines, the clock of one of which is LATE seconds late; their exit statuses, in order
three() {
    pids=
    for machine in 1 2 3; do
        [ $machine != 3 ] || /bin/sleep "${LATE:-0}"
        sh -c "$1" >"said.$machine" 2>&1 &
        pids="$pids $!"
    done
    : >statuses
    for pid in $pids; do
        wait "$pid"
        echo $? >>statuses
    done
    [ "$(sort -n statuses | tr '\n' ' ')" = "$2 " ] || { cat statuses said.?; return 1; }
}

cron() {
    echo "echo ran >>nightly-report.ran" | tool nightly-report
    echo "echo ran >>fetch-feed.ran; /bin/sleep 1" | tool fetch-feed
    block crontab | sed -n 's/^[0-9*]/&/p' | cut -d ' ' -f 6- >cron.lines
    [ "$(wc -l <cron.lines)" = 2 ] || return 1
    LATE=1
    while read -r job; do
        three "$job" '0 124 124' && ! cat said.? | grep . || return 1
        LATE=0
    done <cron.lines
    [ "$(cat nightly-report.ran fetch-feed.ran | wc -l)" = 2 ]
}
check 'the crontab: one of three machines runs the job, the others exit with 124 and print nothing' cron

migrates() {
    {
        echo 'mkdir migrating || echo "two at a time" >>bad'
        echo '[ -e migrated ] || { sleep 0.2; echo once >>migrated; }'
        echo 'rmdir migrating'
    } | tool migrate
    echo 'echo serves' | tool server
    ln -s bin/migrate bin/server .
    command=$(grep '^    rlock --wait ' "$page")
    [ -n "$command" ] && three "$command" '0 0 0' && [ "$(cat migrated)" = once ] && [ ! -e bad ] &&
        [ "$(cat said.? | grep -cx serves)" = 3 ]
}
check 'the migration runs once, and the three servers start after it' migrates

# The script tells these apart.
tells() {
    block sh | sed 's/10m/200ms/' >script
    sh script >said && grep -qx 'migrated' said || return 1
    echo 'exit 1' | tool migrate
    sh script >said && grep -qx 'the migration failed' said || return 1
    RLOCK_URL=unix://$work/nowhere sh script >said 2>/dev/null && grep -q '^rlock failed' said || return 1
    rlock migrate -- sh -c 'echo held >held; exec sleep 30' &
    holder=$!
    others=$holder
    appears held 1 held || return 1
    sh script >said && grep -q '^others held the lock' said || return 1
    kill $holder
    wait $holder
    [ $? = 143 ] && others= || return 1
    echo "${RLOCK_REDIS_CLI:-redis-cli} -s '$RLOCK_SOCKET' del migrate; sleep 30" | tool migrate
    sh script 2>&1 >said | grep 'was lost' && grep -q '^the lock was lost' said
}
check 'the script of the page tells by the exit status what happened' tells

# Each step finds the key held, and after the last one it is free.
steps() {
    echo 'rlock --try staging -- true; [ $? = 124 ] && echo deployed' | tool deploy
    echo 'rlock --try staging -- true; [ $? = 124 ] && echo tested' | tool smoke-test
    ln -s bin/deploy bin/smoke-test .
    block bash >script
    sh script >said 2>&1 && [ "$(tr '\n' ' ' <said)" = 'deployed tested ' ] && rlock --try staging -- true || { cat said; return 1; }
}
check 'the steps of the page hold the key in between, and leave it free' steps

# The worker, on two machines, with a lease of a second. Its leader is killed, and the next one is stopped.
elects() {
    # shellcheck disable=SC2016  # for the worker
    echo 'echo "begins $RLOCK_FENCE"; exec sleep 60' | tool my-worker
    block ini | sed -n 's/^ExecStart=//p' | sed "s|/usr/local/bin/||; s/15s/1s/" >unit
    [ -s unit ] || return 1
    sh -c "exec $(cat unit)" >worker.1 2>&1 &
    first=$!
    others=$first
    appears begins 1 worker.1 || return 1
    sh -c "exec $(cat unit)" >worker.2 2>&1 &
    second=$!
    others="$first $second"
    sleep 0.5
    [ ! -s worker.2 ] && kill -9 $first && appears begins 1 worker.2 && kill $second && wait $second && others= &&
        cat worker.1 worker.2 && [ "$(cat worker.1 worker.2 | sort -c -k 2 -n && cat worker.? | wc -l)" = 2 ]
}
check 'the unit: one of two works; the other one takes over when it is killed, and ends well' elects

# systemd has no fault to find in the unit, but that the program is not installed.
unit_is_right() {
    block ini | sed "s|/usr/local/bin/rlock|$rlock|" >worker.service
    silent systemd-analyze verify --man=no "$work/worker.service"
}
if command -v systemd-analyze >/dev/null; then
    check 'systemd takes the unit' unit_is_right
else
    echo 'not applicable: the unit, there is no systemd-analyze'
fi

# The address, of two machines with a lease of a second; and the state that the page shows.
address() {
    for what in take drop; do
        echo "echo $what-\$MACHINE >>address.log" | tool $what-address
    done
    command=$(sed -n 's/^    rlock elect /rlock elect --state-file state /p' "$page" | sed 's/5s/1s/')
    MACHINE=a sh -c "exec $command" >address.a 2>&1 &
    first=$!
    others=$first
    appears take-a 1 address.log || return 1
    sed -n 's/.*`\({"key".*}\)`.*/\1/p' "$page" | grep -o '"[a-z]*":' >members
    [ -s members ] && grep -o '"[a-z]*":' state | diff members - && grep -q '"leads":true' state || return 1
    MACHINE=b sh -c "exec $command" >address.b 2>&1 &
    second=$!
    others="$first $second"
    kill $first && wait $first && appears take-b 1 address.log && kill $second && wait $second && others= &&
        [ "$(cat address.log | tr '\n' ' ')" = 'take-a drop-a take-b drop-b ' ]
}
check 'the address is dropped before another one takes it, and the state has the members of the page' address

looks() {
    rlock worker -- sh -c 'echo works >works; exec sleep 30' &
    holder=$!
    others=$holder
    appears works 1 works || return 1
    sed -n '/^## Who holds it/,$s/^    rlock /rlock /p' "$page" >commands
    [ "$(wc -l <commands)" = 3 ] || return 1
    while read -r command; do
        timeout 20 sh -c "$command" </dev/null || { echo "$command: $?"; return 1; }
    done <commands
    wait $holder
    [ $? = 123 ] && others=
}
check 'the questions of the page have an answer, and the holder is told that the lock was taken away' looks

tap_ends
