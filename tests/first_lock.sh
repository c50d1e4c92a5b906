#!/bin/sh
# Runs each command of docs/first-lock.md as a reader types it, in one shell, and compares what is printed with what the
# page says. Prints lines `ok N - ...` or `not ok N - ...`.
cd "$(dirname "$0")/.." || exit 1
cli=${RLOCK_REDIS_CLI:-redis-cli}
page=docs/first-lock.md
. tests/tap.sh
own_folder first-lock
others=

# The folder has what the commands name, and a build/ of its own. A block of the page that begins with "acquired" is what
# the commands before it print; every other indented block is typed.
typed() {
    mkdir -p "$work/build/bin" "$work/tmp" || return 1
    ln -s "$PWD/rlock.h" "$PWD/adapters" "$PWD/examples" "$PWD/tools" "$work" || return 1
    ln -s "$(command -v "${RLOCK_REDIS_SERVER:-redis-server}")" "$work/build/bin/redis-server" || return 1
    ln -s "$(command -v "$cli")" "$work/build/bin/redis-cli" || return 1
    awk -v folder="$work" '
        /^```/ { code = !code }
        code || !/^    / {
            if (inside == "typed") {
                if (waits) print "until [ \"$(redis-cli -s \"$socket\" ping 2>/dev/null)\" = PONG ]; do sleep 0.05; done"
                print "echo \"# end " blocks "\""
            }
            inside = ""; waits = 0; next
        }
        inside == "" { inside = /^    acquired / ? "said" : "typed"; if (inside == "typed") blocks++ }
        { sub(/^    /, "") }
        inside == "said" { print > folder "/said." blocks; next }
        /^socket=/ { waits = 1 }
        { print }' "$page" >"$work/typed" || return 1
    (cd "$work" && unset RLOCK_URL RLOCK_SOCKET && { echo "trap 'kill -9 \$server 2>/dev/null' EXIT"; cat typed; } >script &&
        TMPDIR=$work/tmp FAKETTY=1 timeout 200 stdbuf -oL sh script) >"$work/printed" 2>&1 </dev/null
    status=$?
    cat "$work/printed"
    return $status
}

# Times, paths and what names a client differ. "..." stands for more lines of the log, and more may stand around each that
# the page shows, because both connections hear of the end of the server. What came before the lines of the page is not
# compared.
compared() {
    /usr/bin/python3 - "$work" <<'END'
import glob, re, sys
folder = sys.argv[1]
parts = re.split(r'# end (\d+)\n', open(folder + '/printed').read())
printed = dict(zip(parts[1::2], parts[0::2]))
pages = sorted(glob.glob(folder + '/said.*'))
if len(printed) < 8 or len(pages) < 6:
    sys.exit('only %d blocks of commands ended, and the page has only %d of output' % (len(printed), len(pages)))
LOG = r'(log: .*\n)*'
wrong = 0
for path in pages:
    number = path.rsplit('.', 1)[1]
    pattern = ''
    for line in open(path).read().splitlines():
        if line == '...':
            pattern += LOG
            continue
        line = re.escape(line).replace(r'\:', ':')
        line = re.sub(r'^\d\d:\d\d:\d\d$', r'[0-9:]{8}', line)
        line = re.sub(r'^log:\\? [0-9a-f]{8}:\\? connection\\ to\\ \S*/server:',
                      r'log: [0-9a-f]{8}: connection to \\S*/server:', line) + r'\n'
        pattern += LOG + line + LOG if line.startswith('log:') else line
    said = ''.join(line + '\n' for line in printed.get(number, '').splitlines() if line != 'Killed')
    if 'integer' in pattern:  # redis-cli and the holder hear from the server at once
        said = re.sub(r'(lost .*\n)(\(integer\) 1\n)', r'\2\1', said)
    if not re.search('(^|\n)' + pattern + r'\Z', said):
        print('block %s of the commands does not print this: %s' % (number, pattern))
        wrong += 1
sys.exit(wrong)
END
}

# With the header and the flags of each row of the table of loops a program that calls the row's function is made. A loop
# that is not on this machine is left out.
loops_link() {
    awk -F' *[|] *' '$3 ~ /^`rlock_.*[.]h`$/ { print $3 "|" $4 "|" $(NF - 1) }' "$page" | tr -d '`' >"$work/loops"
    linked=
    while IFS='|' read -r header call flags; do
        function=${call%%(*}
        printf '#include <stdio.h>\n#define RLOCK_IMPLEMENTATION\n#include "rlock.h"\n#include "%s"\n' "$header" >"$work/loop.c"
        printf 'int main(void) { printf("%%p", (void *)&%s); return 0; }\n' "$function" >>"$work/loop.c"
        sh -c "cc -w -I. -Iadapters $work/loop.c -o $work/loop -lhiredis $flags" >"$work/cc" 2>&1 ||
            grep 'fatal error: .*: No such file' "$work/cc" | grep -v 'error: rlock' || { cat "$work/cc"; return 1; }
        [ -s "$work/cc" ] || linked="$linked $function"
    done <"$work/loops"
    echo "linked:$linked"
    [ "$(wc -l <"$work/loops")" -ge 7 ] || return 1
    case $linked in *rlock_libev_loop*rlock_poll_loop*) ;; *) return 1 ;; esac
}

check "docs/first-lock.md: its commands run" typed
check "docs/first-lock.md: they print what it says" compared
check "docs/first-lock.md: each row of its table of loops makes a program" loops_link
tap_ends
