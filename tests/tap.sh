# shellcheck shell=sh
# What the suites that are shell scripts share: sourced by them, and $work, a folder of their own, is made before the first
# test. Their last line is tap_ends.
count=0 failed=0 failures=

# own_folder NAME: makes $work. It goes when the suite ends, and with it the processes in $others, which would go on.
own_folder() {
    work=$(mktemp -d "${TMPDIR:-/tmp}/rlock-$1-XXXXXX") || exit 1
    others=
    # shellcheck disable=SC2086  # a list of numbers
    trap 'kill -9 $others 2>/dev/null; rm -rf "$work"' EXIT
    trap 'exit 143' HUP INT TERM
}

# check NAME COMMAND...: one test. What a failing command said follows as comments, and the file $said if there is one.
check() {
    count=$((count + 1))
    title=$1
    shift
    if "$@" >"$work/output" 2>&1; then
        echo "ok $count - $title"
    else
        echo "not ok $count - $title"
        cat "$work/output" ${said:+"$said"} | sed 's/^/# /' | tail -n 60
        failed=$((failed + 1))
        failures="$failures; $title"
    fi
}

# worker FUNCTION WORD...: one of those that share the words. Whoever makes the folder of a word has it.
worker() {
    function=$1
    shift
    for word in "$@"; do
        mkdir "$all/$word" 2>/dev/null || continue
        (work=$all/$word count=0 && "$function" "$word"; echo '# its end') >"$all/$word.said" 2>&1
    done
}

# side_by_side FUNCTION WORD...: calls FUNCTION WORD for each word, as many at a time as there are processors, each in a
# shell and with a folder $work of its own; $all is the folder of them all. What they print is printed in the order of
# the words, numbered through.
side_by_side() {
    all=$work workers=$(getconf _NPROCESSORS_ONLN)
    while [ "$workers" -gt 0 ]; do
        worker "$@" &
        workers=$((workers - 1))
    done
    wait
    shift
    for word in "$@"; do
        ended=
        while IFS= read -r line; do
            case $line in
                'ok '*) count=$((count + 1)) && echo "ok $count - ${line#* - }" ;;
                'not ok '*)
                    count=$((count + 1)) failed=$((failed + 1))
                    echo "not ok $count - ${line#* - }" ;;
                '# its end') ended=yes ;;
                *) echo "$line" ;;
            esac
        done <"$all/$word.said"
        [ -n "$ended" ] || check "$word comes to its end" false
    done
}

# silent COMMAND...: the command succeeds and says nothing.
silent() {
    words=$("$@" 2>&1) && [ -z "$words" ] && return 0
    echo "$words"
    return 1
}

# waits COMMAND...: tries the command until it succeeds, for 20 s.
waits() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ $tries -lt 400 ] || return 1
        sleep 0.05
    done
}

# has PATTERN COUNT FILE: so many lines of the file match, or more.
has() {
    [ "$(cat "$3" 2>/dev/null | grep -c "$1")" -ge "$2" ]
}

# appears PATTERN COUNT FILE: waits until the file has them.
appears() {
    waits has "$@"
}

# tap_ends: prints how many tests there were. False if one has failed.
tap_ends() {
    echo "1..$count"
    [ $failed = 0 ]
}
