#!/bin/sh
# What is packed for Debian, and installed with the program. A part of tests/builds.sh, whose names it uses.
# shellcheck disable=SC2154  # they are set there

deb=$work/deb
debs=$work/deb-build
mkdir "$debs"
package() {
    make deb BUILD="$debs" && [ "$(ls "$debs"/*.deb | wc -l)" = 2 ] && dpkg-deb -x "$debs"/librlock-dev_*.deb "$deb"
}
check "make deb makes two packages" package
says_what_it_needs() {
    dpkg-deb -f "$debs"/librlock-dev_*.deb >"$work/control" && cat "$work/control" &&
        grep -qx "Version: $version-1" "$work/control" &&
        grep -qx 'Architecture: all' "$work/control" && grep -q '^Recommends: libhiredis-dev' "$work/control" &&
        ! grep '^Depends:' "$work/control" && ! dpkg-deb -c "$debs"/librlock-dev_*.deb | grep -v ' root/root '
}
check "librlock-dev says what it goes with, and depends on nothing" says_what_it_needs
has_the_rest() {
    (cd "$deb/usr" && find . -type f | grep -v share/doc | sort) >"$work/packed"
    (cd "$prefix" && find . -type f | grep -v share/doc | sort) >"$work/installed"
    diff "$work/packed" "$work/installed" && [ -s "$work/packed" ]
}
check "librlock-dev has what make install installs of the header" has_the_rest
# whole PACKAGE FOLDER: its licence and its sums are there, and no path of this machine
whole() {
    control=$debs/deb/$1/DEBIAN
    grep -q '^License: Expat' "$2/usr/share/doc/$1/copyright" && gzip -t "$2/usr/share/doc/$1"/*.gz &&
        ! grep -rlF "$source" "$2" "$control" && (cd "$2" && md5sum --quiet -c "$control/md5sums")
}
check "librlock-dev has its licence and its sums" whole librlock-dev "$deb"
PKG_CONFIG_SYSROOT_DIR=$deb
export PKG_CONFIG_SYSROOT_DIR
by_pkg_config 'the package' "$deb/usr/share/pkgconfig"
unset PKG_CONFIG_SYSROOT_DIR
check "the package: find_package finds it" linked 'find_package(rlock)' -DCMAKE_PREFIX_PATH="$deb/usr"

# --- the program ---

# A header that was installed without it is left alone: BUILD says where the program is.
at=$work/a\ program
installs_program() {
    make install BUILD="$debs" DESTDIR="$at" PREFIX=/opt && "$at/opt/bin/rlock" --version >"$work/said" &&
        grep -qx "rlock $version" "$work/said" && ! (readelf -d "$at/opt/bin/rlock" | grep -F "$source") &&
        cmp cli/rlock.1 "$at/opt/share/man/man1/rlock.1" &&
        cmp cli/rlock.bash "$at/opt/share/bash-completion/completions/rlock" &&
        cmp cli/rlock.zsh "$at/opt/share/zsh/site-functions/_rlock"
}
check "make install takes the program if it was built, with its manual and completions" installs_program
check "the program acquires, runs a command and releases" "$at/opt/bin/rlock" --try stock:42 -- true
takes_program_away() {
    make uninstall BUILD="$debs" DESTDIR="$at" PREFIX=/opt && ! find "$at" -type f | grep . && ! find "$at" -name '*rlock*' | grep .
}
check "make uninstall takes it away again" takes_program_away

depends_on_libraries() {
    dpkg-deb -f "$debs"/rlock_*.deb >"$work/control" && cat "$work/control" && dpkg-deb -x "$debs"/rlock_*.deb "$work/deb-cli" &&
        grep -qx "Version: $version-1" "$work/control" &&
        grep -qx "Architecture: $(dpkg --print-architecture)" "$work/control" &&
        grep -qE '^Depends: libc6 \(>= [^)]*\), libev4 \(>= [^)]*\), libhiredis[0-9.]+ \(>= ' "$work/control" &&
        ! dpkg-deb -c "$debs"/rlock_*.deb | grep -v ' root/root '
}
check "the package rlock is of this machine, and depends on the packages of its libraries" depends_on_libraries
packed_program() {
    "$work/deb-cli/usr/bin/rlock" --try stock:42 -- true && ! (readelf -d "$work/deb-cli/usr/bin/rlock" | grep -i -e rpath -e runpath) &&
        zcat "$work/deb-cli/usr/share/man/man1/rlock.1.gz" | cmp - cli/rlock.1 &&
        [ "$(cd "$work/deb-cli/usr" && find . -type f | grep -v share/doc | wc -l)" = 4 ]
}
check "the package rlock has the program, its manual and its completions" packed_program
check "the package rlock has its licence and its sums" whole rlock "$work/deb-cli"
