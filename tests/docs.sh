#!/bin/sh
# The man pages and the HTML that tools/docs makes of headers and of pages in Markdown. What users can name is collected in other ways than it does: headers
# by `make install`, macros by the preprocessor, functions and types by what the compiler says of them. Prints TAP.
cd "$(dirname "$0")/.." || exit 1
work=${BUILD:-build}/docs-test
rm -rf "$work"
mkdir -p "$work/none" "$work/names"
: >"$work/lacking"
pages=$work/pages
. tests/tap.sh

# installed DOCS: what `make install` puts into $work/tree with the pages of that folder, if it has any.
installed() {
    rm -rf "$work/tree"
    make -s install BUILD="$1" DESTDIR="$work/tree" PREFIX=/usr
}

libraries=
for library in hiredis glib-2.0 libsystemd libubox; do
    libraries="$libraries $(pkg-config --cflags $library 2>/dev/null)"
done

# What the system's hiredis has no header for is that of tools/setup.
on_header() {
    printf '#include "%s"\n' "$1" >"$work/one.c"
    shift
    # shellcheck disable=SC2086  # a list of words
    CPATH=build/hiredis/include gcc -x c -std=gnu99 -I"$work/tree/usr/include" $libraries "$@" "$work/one.c"
}

# Of an adapter whose loop is not on this machine nothing can be collected.
lacks() {
    lacking=$(on_header "$1" -E -o "$work/macros" 2>&1 | sed -n 's/.*fatal error: \(.*\): No such file.*/\1/p')
    case $lacking in
        '' | rlock*) return 1 ;;
    esac
    echo "not applicable: the names of $1, there is no $lacking" >>"$work/lacking"
}

public() {
    grep -E '^(rlock|RLOCK)(_[A-Za-z0-9]|$)'
}

macros() {
    on_header "$1" -E -dM -P -w >"$work/macros" && sed -n 's/^#define \([A-Za-z0-9_]*\).*/\1/p' "$work/macros" |
        public | grep -v '_H$'
    return 0
}

functions() {
    on_header "$1" -fsyntax-only -w -aux-info "$work/functions" &&
        grep -oE '[^a-z_]rlock_?[a-z0-9_]* \(' "$work/functions" | tr -d ' (*' | public
}

# What a header does not show to its users has no members: `typedef struct name name;`.
of_no_opaque_one() {
    awk -v header="$work/tree/usr/include/$1" '
        BEGIN { while ((getline line <header) > 0) if (split(line, word, /[ ;]/) && line ~ /^typedef struct [a-z_]+ [a-z_]+;$/) hidden[word[3]] }
        !(NF == 2 && $1 in hidden)'
}

# Types and the values of enums, one by one; members as "struct member".
types() {
    on_header "$1" -g -fno-eliminate-unused-debug-types -c "-o$work/types.o" &&
        readelf --debug-dump=info "$work/types.o" | awk '
            /DW_TAG_/ { tag = $NF; depth = $1 }
            /DW_AT_name/ {
                if (tag ~ /structure|union/) whole = $NF
                if (tag ~ /typedef|enumerator/) print $NF
                if (tag ~ /member/ && depth ~ /^<2>/) print whole, $NF
            }' | public | of_no_opaque_one "$1"
}

collect() {
    for path in "$work"/tree/usr/include/rlock*.h; do
        [ ! -e "stores/${path##*/}" ] || continue # they need libraries that are not here: told on pages of their own
        header=${path##*/}
        ! lacks "$header" || continue
        { macros "$header" && functions "$header" && types "$header"; } >"$work/names/$header" || return 1
        [ -s "$work/names/$header" ] || { echo "$header has no name"; return 1; }
    done
    cat "$work"/names/* | sort -u >"$work/all"
    for known in RLOCK_VERSION rlock_acquire rlock_tls_new rlock_config RLOCK_ERR_BUSY 'rlock_options key'; do
        grep -qx "$known" "$work/all" || { echo "$known was not found"; return 1; }
    done
}

# The macros that a user defines are in the head of rlock.h alone.
collect_settings() {
    sed -n '/^ \* CONFIGURATION MACROS/,/^ \*\//p' rlock.h | grep -oE '^ \*     RLOCK_[A-Z_]+' | tr -d ' *' >"$work/settings"
    [ "$(wc -l <"$work/settings")" -gt 8 ] && cat "$work/settings" >>"$work/all"
}

# told man|html: each name has a page of its own, or a place in one, with each member.
told() {
    /usr/bin/python3 - "$1" "$pages" "$work/all" <<'END'
import glob, os, re, sys
kind, pages, names = sys.argv[1:]
html = set(re.findall(r'id="([^"]*)"', ''.join(open(path).read() for path in glob.glob(pages + '/html/*.html'))))
for line in open(names):
    whole, _, member = line.strip().partition(' ')
    if kind == 'html':
        found = (whole + '.' + member if member else whole) in html
    else:
        paths = [path for path in (pages + '/man3/' + whole + '.3', pages + '/man7/' + whole + '.7') if os.path.exists(path)]
        found = paths and re.search(r'\b%s\b' % (member or whole), open(paths[0]).read())
    if not found:
        print(kind, 'does not tell of', whole, member)
END
}

# Each line of a comment, word by word. Banners and the head have words that the pages put in another way.
all_comments() {
    /usr/bin/python3 - "$pages/html" <<'END'
import glob, html, os, re, sys
def words(text):
    return ' ' + ' '.join(re.findall(r'[A-Za-z0-9_]+', text.replace('Errors', ''))).lower() + ' '
pages = ' '.join(open(path).read() for path in sorted(glob.glob(os.path.join(sys.argv[1], '*.html'))))
told = words(html.unescape(re.sub(r'<[^>]*>', ' ' , re.sub(r'</?(code|a|span)\b[^>]*>', '', pages))))
public = open('rlock.h').read().split('#ifdef RLOCK_IMPLEMENTATION')[0]
comments = re.findall(r'/\*.*?\*/', public.split('#define RLOCK_H')[1], re.S)
for comment in comments:
    for line in comment.split('\n'):
        if '>>' not in line and words(line).strip() and words(line) not in told and line != '/* RLOCK_H */':
            print('not told:', line)
if len(comments) < 150:
    print('only', len(comments), 'comments')
END
}

nothing_private() {
    ls "$pages/man3" "$pages/man7" | grep -iE '^rlock__|_H\.[37]$'
    grep -l 'OpenSSL takes any old error' "$pages"/html/*.html "$pages"/man7/*.7 # a comment of a private function
    grep -l 'id="[rR][lL][oO][cC][kK]__' "$pages"/html/*.html
    return 0
}

# Each link leads to a page, and a place in it, that is there; tags are closed in their order; nothing comes from outside,
# but a reader may follow a link to it. Each picture is there.
whole_html() {
    /usr/bin/python3 - "$pages/html" <<'END'
import glob, html.parser, os, re, sys
ids, links, pictures, found = {}, [], 0, 0
class Reader(html.parser.HTMLParser):
    def handle_starttag(self, tag, attributes):
        global pictures
        if tag not in ('meta', '!doctype', 'img', 'br', 'hr'):
            self.open.append(tag)
        for name, value in attributes:
            if name == 'id':
                if value in ids[self.page]:
                    print(self.page, 'has twice', value)
                ids[self.page].add(value)
            elif name == 'href' and tag == 'a':
                links.append((self.page, value))
            elif name == 'src' and tag == 'img':
                pictures += 1
                if not os.path.isfile(os.path.join(root, os.path.dirname(self.page), value)):
                    print(self.page, 'has no picture', value)
            elif name in ('src', 'href') or '://' in value:
                print(self.page, 'asks for', value)
    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            print(self.page, 'closes', tag, 'at', self.getpos())
root = sys.argv[1]
for path in sorted(glob.glob(os.path.join(root, '**', '*.html'), recursive=True)):
    reader = Reader()
    reader.page, reader.open = os.path.relpath(path, root), []
    ids[reader.page] = set()
    text = open(path, encoding='ascii').read()
    reader.feed(text)
    if reader.open or 'url(' in text or '@import' in text or '<script' in text:
        print(path, 'is not whole, or asks for more')
for page, link in links:
    if re.match(r'https?://', link):
        continue
    to, _, place = link.partition('#')
    found += 1
    to = os.path.normpath(os.path.join(os.path.dirname(page), to)) if to else page
    if to not in ids or (place and place not in ids[to]):
        print(page, 'has a dead link:', link)
if found < 500 or pictures < 4:
    print('only', found, 'links,', pictures, 'pictures')
END
}

# Each page in Markdown has its HTML, with a heading for each of its own, by the anchor of that; the contents list each page
# once. What they list is collected by the shell, not by tools/docs.
pages_are_there() {
    for page in README CHANGELOG CONTRIBUTING docs/*.md; do
        page=${page%.md}
        [ -s "$pages/html/$page.html" ] || { echo "no $page.html"; continue; }
        marks=$(awk '/^```/ { code = !code } !code && /^#+ /' "$page.md" | wc -l)
        [ "$(grep -c '<h[1-6] id="' "$pages/html/$page.html")" = "$marks" ] || echo "$page.html does not have $marks headings"
    done
    ls "$pages/html/docs" | grep -vE '\.html$' | while read -r picture; do
        cmp "docs/$picture" "$pages/html/docs/$picture"
    done
}

contents_list_each_page_once() {
    (cd "$pages/html" && find . -name '*.html' ! -path ./index.html) | sed 's|^\./||' | sort >"$work/there"
    sed '/<nav>/d' "$pages/html/index.html" | grep -o 'href="[^"]*"' | sed 's/^href="//; s/"$//' | sort >"$work/listed"
    diff "$work/there" "$work/listed"
    grep -o '<h2>[^<]*' "$pages/html/index.html" | sed 's/<h2>//' | tr '\n' ' ' | grep -qx 'Start Guides Reference Internals Headers ' ||
        echo 'the contents have other sections'
}

# A link between pages, with its anchor; one to a header; one to a file that is no page. A | of a table.
links_are_turned() {
    for line in 'README.html <a href="docs/guarantees.html#quarantine">' 'README.html <a href="rlock_h.html">' \
        'README.html <span title="bench/RESULTS.md">' 'docs/first-lock.html <a href="set-up-the-server.html#the-address-of-the-server">' \
        'docs/first-lock.html <a href="../rlock_h.html">' 'docs/guarantees.html <code>+command|info</code>' \
        'docs/first-lock.html <code><a href="../lock-api.html#rlock_acquire">rlock_acquire</a></code>'; do
        grep -qF "${line#* }" "$pages/html/${line%% *}" || echo "$line"
    done
}

lacking_library_is_named() {
    mkdir -p "$work/lacks"
    echo 'raise ImportError' >"$work/lacks/markdown.py"
    ! PYTHONPATH=$work/lacks tools/docs "$work/unmade" >"$work/told" 2>&1 && [ ! -e "$work/unmade" ] &&
        [ "$(wc -l <"$work/told")" = 1 ] && grep 'python3-markdown is missing' "$work/told"
}

no_link_dangles() {
    find "$pages" -type l ! -exec test -e {} \; -print
}

lints() {
    mandoc -T lint -W warning $(find "$pages/man3" "$pages/man7" -type f)
}

formats() {
    groff -man -Tutf8 -ww -z $(find "$pages/man3" "$pages/man7" -type f | sort)
}

# The same bytes in another order of hashing, another zone and another language.
same_twice() {
    PYTHONHASHSEED=7 TZ=JST-9 LC_ALL=C.UTF-8 tools/docs "$work/again" && diff -r "$pages" "$work/again"
}

dated() {
    SOURCE_DATE_EPOCH=82800 TZ=JST-9 tools/docs "$work/dated" && grep '^\.TH rlock 7 1970-01-01 ' "$work/dated/man7/rlock.7"
}

# opens PAGE WORDS: as a user does, and it says these words.
opens() {
    MANPAGER=cat MANWIDTH=100 man -l "$pages/$1" 2>&1 | tr -s ' \n' '  ' >"$work/opened"
    grep -qF "$2" "$work/opened" || { head -c 400 "$work/opened"; return 1; }
}

install_takes_pages() {
    mkdir -p "$work/built" && cp -R "$pages" "$work/built/docs" && installed "$work/built" &&
        grep -q '^\.TH rlock_acquire 3' "$work/tree/usr/share/man/man3/rlock_acquire.3" &&
        grep -q '^\.TH rlock_status 3' "$work/tree/usr/share/man/man3/RLOCK_ERR_BUSY.3" &&
        [ -s "$work/tree/usr/share/man/man7/rlock.7" ] && [ -s "$work/tree/usr/share/doc/rlock/html/index.html" ] &&
        [ -s "$work/tree/usr/share/doc/rlock/html/docs/states.svg" ]
}

# A PATH on which no python is.
install_needs_no_python() {
    rm -rf "$work/bin" && mkdir "$work/bin" &&
        for tool in sh sed mkdir cp mv rm rmdir ls cat chmod install head tr pkg-config grep getconf; do
            ln -s "$(command -v $tool)" "$work/bin/$tool" || return 1
        done
    make=$(command -v make)
    rm -rf "$work/tree"
    PATH=$PWD/$work/bin "$make" -s install BUILD="$work/none" DESTDIR="$work/tree" PREFIX=/usr &&
        [ -s "$work/tree/usr/include/rlock.h" ] && [ ! -e "$work/tree/usr/share/man/man3" ]
}

check 'tools/docs makes the pages' tools/docs "$pages"
check 'make install goes without pages and without python' install_needs_no_python
check 'the names of the installed headers are collected' collect
cat "$work/lacking"
check 'so are the macros that a user defines' collect_settings
check 'every public name has a man page, with each member' silent told man
check 'every public name is in the HTML, with each member' silent told html
check 'every comment of rlock.h is told' silent all_comments
check 'the sizes of docs/embedding.md are those that tools/sizes prints' silent tools/sizes --check
check 'nothing private has a page' silent nothing_private
check 'every page has words of its own' silent tools/docs --bare
check 'every link of the HTML leads somewhere, and nothing comes from outside' silent whole_html
check 'every page in Markdown is there, with its headings and pictures' silent pages_are_there
check 'the contents list every page once' silent contents_list_each_page_once
check 'links between pages and to headers lead there, others are plain text' silent links_are_turned
check 'a library that is missing is named in one line' lacking_library_is_named
check 'every second name of a man page leads to it' silent no_link_dangles
check 'mandoc finds no fault in the man pages' silent lints
check 'groff finds no fault in the man pages' silent formats
check 'man opens the overview' opens man7/rlock.7 'STATE x CALL What the call returns'
check 'man opens the overview by the name alone' opens man3/rlock.3 'STATE x CALL What the call returns'
check 'man opens a function' opens man3/rlock_acquire.3 'int rlock_acquire(rlock *lock, int64_t wait_ms'
check 'man opens a struct, each member with its comment' opens man3/rlock_event.3 'int64_t remaining_ms; ACQUIRED or RENEWED with OK'
check 'man opens a status by its own name' opens man3/RLOCK_ERR_BUSY.3 'RLOCK_ERR_BUSY = -1 held by another'
check 'the same headers and pages are the same bytes' same_twice
check 'SOURCE_DATE_EPOCH dates the pages' dated
check 'make install takes the pages that were made' install_takes_pages

tap_ends
