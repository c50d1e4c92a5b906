# shellcheck shell=sh
# What the suites that are shell scripts share: sourced by them, after $work, a folder of their own, is made. Their last
# line is tap_ends.
count=0 failed=0

# check NAME COMMAND...: one test; what a failing command said follows as comments.
check() {
    count=$((count + 1))
    title=$1
    shift
    if "$@" >"$work/output" 2>&1; then
        echo "ok $count - $title"
    else
        echo "not ok $count - $title"
        sed 's/^/# /' "$work/output" | tail -n 60
        failed=$((failed + 1))
    fi
}

# silent COMMAND...: the command succeeds and says nothing.
silent() {
    said=$("$@" 2>&1) && [ -z "$said" ] && return 0
    echo "$said"
    return 1
}

# tap_ends: prints how many tests there were. False if one has failed.
tap_ends() {
    echo "1..$count"
    [ $failed = 0 ]
}
