#!/bin/sh
# Puts rlock into a program by each build that it is made for, and runs the program: examples/hello.c on a private server,
# and examples/no_server.c where no hiredis is to be found. Prints TAP. A tool that is not there makes its tests fail.
#
#     sh tests/builds.sh        CMake's add_subdirectory and find_package, Meson, pkg-config, make install, two hiredis
#     sh tests/builds.sh all    and FetchContent, the Debian packages, and the program rlock as it is installed
cd "$(dirname "$0")/.." || exit 1
if [ -z "${RLOCK_URL:-}" ] || [ "${2:-}" != --inside ]; then
    exec tools/with-server sh tests/builds.sh "${1:-}" --inside
fi
every=$1
unset MAKEFLAGS MFLAGS MAKEOVERRIDES DESTDIR CMAKE_PREFIX_PATH PKG_CONFIG_PATH # this is nobody's recursive make
source=$PWD
mkdir -p "${BUILD:-build}/builds"
work=$(cd "${BUILD:-build}/builds" && pwd)
rm -rf "$work"
mkdir -p "$work/nothing"
out=$work/output
version=$(sed -n 's/^#define RLOCK_VERSION "\(.*\)"/\1/p' rlock.h)
. tests/tap.sh

# refuses TEXT COMMAND...: the command fails and says TEXT.
refuses() {
    text=$1
    shift
    if "$@" >"$work/refusal" 2>&1; then
        echo "it did not fail"
        return 1
    fi
    tr -s ' \n' '  ' <"$work/refusal" | grep -F "$text" || { cat "$work/refusal"; return 1; }
}

# runs PROGRAM: its exit status; its words are in $work/said.
runs() {
    timeout 40 "$1" >"$work/said" 2>&1
    status=$?
    cat "$work/said"
    return $status
}

# The programs, as they say that they did what they are for.
acquires() {
    runs "$1" && grep -qx 'released stock:42: ok' "$work/said"
}

works_in_memory() {
    runs "$1" && grep -qx 'bob:   released: ok' "$work/said" && ldd "$1" >"$work/said" && ! grep hiredis "$work/said"
}

# quoted LANGUAGE: the block of docs/embedding.md in that language
quoted() {
    awk -v fence="\`\`\`$1" '$0 == fence { on = 1; next } /^```$/ { on = 0 } on' docs/embedding.md
}

# user FOLDER: a program's source, with the CMakeLists.txt and meson.build of docs/embedding.md, and rlock where these look for it
user() {
    mkdir -p "$1/subprojects"
    cp examples/hello.c examples/no_server.c "$1"
    sed '/RLOCK_IMPLEMENTATION/d' examples/hello.c >"$1/linked.c"
    ln -s "$source" "$1/rlock"
    ln -s "$source" "$1/subprojects/rlock"
    quoted cmake >"$1/CMakeLists.txt"
    quoted meson >"$1/meson.build"
}

# in_memory FILE: the same for the program that needs neither a server nor libev
in_memory() {
    sed -i "s/hello/no_server/g; s/ ev)/)/; /find_library/d; s/, libev\]/]/" "$1"
}

cmake_build() {
    folder=$1
    shift
    cmake -S "$folder" -B "$folder/build" "$@" && cmake --build "$folder/build"
}

# by_cmake NAME LINES ARGUMENTS...: the page's way with LINES instead of its add_subdirectory
by_cmake() {
    way="CMake, $1" lines=$2
    at=$work/cmake-$1
    shift 2
    for program in hello no_server; do
        user "$at/$program"
        printf '%s\n' "$lines" >"$at/lines"
        sed -i -e "/^add_subdirectory(rlock)/{r $at/lines" -e 'd}' "$at/$program/CMakeLists.txt"
    done
    in_memory "$at/no_server/CMakeLists.txt"
    check "$way: examples/hello.c is built" cmake_build "$at/hello" "$@"
    check "$way: it acquires and releases" acquires "$at/hello/build/hello"
    PKG_CONFIG_LIBDIR=$work/nothing
    export PKG_CONFIG_LIBDIR # from here on there is no hiredis, as far as builds ask
    check "$way: without Redis no hiredis is asked for" cmake_build "$at/no_server" -DRLOCK_NO_REDIS=ON "$@"
    check "$way: the program locks in memory, and links none" works_in_memory "$at/no_server/build/no_server"
    check "$way: with Redis it is missed in plain words" \
        refuses 'rlock needs hiredis' cmake "$at/no_server/build" -DRLOCK_NO_REDIS=OFF
    unset PKG_CONFIG_LIBDIR
}

# --- CMake ---

by_cmake add_subdirectory 'add_subdirectory(rlock)'
user "$work/cmake-parts/hello"
check "CMake, a mutex with config.url: examples/hello.c is built" cmake_build "$work/cmake-parts/hello" -DRLOCK_PARTS=url,texts
check "CMake, a mutex with config.url: it acquires and releases" acquires "$work/cmake-parts/hello/build/hello"
has_parts() { # FOLDER: its build was told of RLOCK_MINIMAL and of two parts
    grep -rqs -e '-DRLOCK_MINIMAL.*-DRLOCK_WITH_KINDS.*-DRLOCK_WITH_URL' "$1"
}
check "CMake, parts: they are named to the compiler" cmake_build "$work/cmake-parts/hello" -DRLOCK_PARTS=kinds,url
check "CMake, parts: each of them" has_parts "$work/cmake-parts/hello/build"
mkdir -p "$work/joined"
tools/join --minimal --with url,texts >"$work/joined/rlock.h"
check "rlock.h with config.url and sentences alone: examples/hello.c is built" \
    gcc -I"$work/joined" -Iadapters -o "$work/joined/hello" examples/hello.c -lev -lhiredis -pthread
check "rlock.h with config.url and sentences alone: it acquires and releases" acquires "$work/joined/hello"
tar -czf "$work/rlock.tar.gz" --transform 's|^|rlock-1/|' CMakeLists.txt LICENSE rlock.h rlock.c adapters stores tools
[ -z "$every" ] || by_cmake FetchContent "include(FetchContent)
FetchContent_Declare(rlock URL \"$work/rlock.tar.gz\")
FetchContent_MakeAvailable(rlock)"

prefix=$work/prefix
check "make install" make install PREFIX="$prefix" BUILD="$work/none"
by_cmake find_package 'find_package(rlock 0.1 REQUIRED)' -DCMAKE_PREFIX_PATH="$prefix"

# linked LINE ARGUMENTS...: no file of the program makes the code
linked() {
    at=$work/linked-$count
    user "$at"
    sed -i "s/^add_subdirectory(rlock).*/$1/; s/hello\.c/linked.c/; s/rlock::rlock/rlock::implementation/" "$at/CMakeLists.txt"
    shift
    cmake_build "$at" "$@" && acquires "$at/build/hello"
}
check "CMake, add_subdirectory: rlock::implementation has the code" linked 'add_subdirectory(rlock)'
check "CMake, find_package: rlock::implementation has the code" linked 'find_package(rlock REQUIRED)' -DCMAKE_PREFIX_PATH="$prefix"

# Exceptions of callbacks pass through it: what it does then has a personality of its own in the object.
unwinds() {
    nm -u "$1" >"$work/undefined" && cat "$work/undefined" && grep -q _personality_v0 "$work/undefined"
}
check "CMake: the code of rlock::implementation lets exceptions pass" unwinds "$(echo "$work"/linked-*/build/librlock.a)"

only_cxx() {
    at=$work/only_cxx
    user "$at"
    {
        echo 'cmake_minimum_required(VERSION 3.14)'
        echo 'project(hello CXX)'
        echo "$1"
        echo 'add_executable(hello main.cc)'
        echo 'target_compile_features(hello PRIVATE cxx_std_17)'
        echo 'target_link_libraries(hello PRIVATE rlock::implementation)'
    } >"$at/CMakeLists.txt"
    sed '/RLOCK_IMPLEMENTATION/d' examples/cpp_callback.cc >"$at/main.cc"
    shift
    cmake_build "$at" "$@" && runs "$at/build/hello" && grep -qx 'released: ok' "$work/said"
}
check "CMake, find_package: a project that is C++ alone has rlock::implementation" \
    only_cxx 'find_package(rlock REQUIRED)' -DCMAKE_PREFIX_PATH="$prefix"

too_new() {
    user "$work/too_new"
    sed -i 's/^add_subdirectory(rlock).*/find_package(rlock 99 REQUIRED)/' "$work/too_new/CMakeLists.txt"
    refuses 'compatible with requested version "99"' cmake -S "$work/too_new" -B "$work/too_new/build" -DCMAKE_PREFIX_PATH="$prefix"
}
check "CMake, find_package: a version that is newer than the one installed is not found" too_new

# A project that has hiredis in itself, by the names that it has in its own folder.
own_hiredis() {
    user "$work/own"
    mkdir "$work/own/deps" && cp "$(pkg-config --variable=includedir hiredis | sed 's|/hiredis$||')"/hiredis/*.h "$work/own/deps" &&
        echo 'add_library(hiredis INTERFACE)' >"$work/own/deps/CMakeLists.txt" &&
        echo 'target_link_libraries(hiredis INTERFACE -lhiredis)' >>"$work/own/deps/CMakeLists.txt" &&
        sed -i 's/^add_subdirectory(rlock)/add_subdirectory(deps)\n&/' "$work/own/CMakeLists.txt" &&
        PKG_CONFIG_LIBDIR=$work/nothing cmake_build "$work/own" &&
        grep -r --include='*.d' own/deps/async.h "$work/own/build" && acquires "$work/own/build/hello"
}
check "CMake: a target hiredis of the project is taken, with the headers beside it" own_hiredis

# --- Meson ---

meson_build() {
    meson setup "$1/build" "$1" && ninja -C "$1/build"
}
meson_in_memory() {
    PKG_CONFIG_LIBDIR=$work/nothing meson_build "$work/meson/no_server"
}
for program in hello no_server; do
    user "$work/meson/$program"
done
in_memory "$work/meson/no_server/meson.build"
sed -i "s/dependency('rlock')/dependency('rlock', default_options: 'no_redis=true')/" "$work/meson/no_server/meson.build"
echo "executable('linked', 'linked.c', dependencies: [dependency('rlock-implementation'), libev])" >>"$work/meson/hello/meson.build"
check "Meson, subproject: examples/hello.c is built" meson_build "$work/meson/hello"
check "Meson, subproject: it acquires and releases" acquires "$work/meson/hello/build/hello"
check "Meson, subproject: so does one that has the code of rlock-implementation" acquires "$work/meson/hello/build/linked"
check "Meson, subproject: the code of rlock-implementation lets exceptions pass" \
    unwinds "$work/meson/hello/build/subprojects/rlock/librlock.a"
check "Meson, subproject, parts: they are named to the compiler" \
    meson setup --wipe "$work/meson/hello/build" "$work/meson/hello" -Drlock:parts=kinds,url
check "Meson, subproject, parts: each of them" has_parts "$work/meson/hello/build"
check "Meson, subproject: without Redis no hiredis is asked for" meson_in_memory
check "Meson, subproject: the program locks in memory, and links none" works_in_memory "$work/meson/no_server/build/no_server"

# --- pkg-config ---

# compile MODULE SOURCE PROGRAM LIBRARIES...: with what pkg-config says
compile() {
    module=$1 file=$2 program=$3
    shift 3
    flags=$(pkg-config --cflags --libs "$module") || return 1
    # shellcheck disable=SC2086  # a list of words
    ${CC:-cc} -Wall -Wextra -Werror "$file" -o "$program" $flags "$@"
}
# by_pkg_config NAME FOLDER: with the modules in FOLDER
by_pkg_config() {
    PKG_CONFIG_LIBDIR=$2:$(pkg-config --variable=pc_path pkg-config)
    export PKG_CONFIG_LIBDIR
    at=$work/pkg-config-$(echo "$1" | tr -dc a-z)
    check "$1: examples/hello.c is built" compile rlock examples/hello.c "$at-hello" -lev
    check "$1: it acquires and releases" acquires "$at-hello"
    check "$1: the version is that of rlock.h" test "$(pkg-config --modversion rlock rlock-no-redis | uniq)" = "$version"
    PKG_CONFIG_LIBDIR=$2
    check "$1: without Redis no hiredis is asked for" compile rlock-no-redis examples/no_server.c "$at-no_server"
    check "$1: the program locks in memory, and links none" works_in_memory "$at-no_server"
    check "$1: with Redis it is asked for" refuses "'hiredis'" pkg-config --cflags --print-errors rlock
    unset PKG_CONFIG_LIBDIR
}
by_pkg_config pkg-config "$prefix/share/pkgconfig"

prefix_with_a_space() {
    make install PREFIX="$work/a prefix" BUILD="$work/none" && (
        PKG_CONFIG_LIBDIR="$work/a prefix/share/pkgconfig"
        export PKG_CONFIG_LIBDIR
        [ "$(pkg-config --variable=includedir rlock-no-redis)" = "$work/a prefix/include" ] &&
            eval "${CC:-cc} examples/no_server.c -o $work/spaced $(pkg-config --cflags --libs rlock-no-redis)"
    ) && works_in_memory "$work/spaced"
}
check "pkg-config: a prefix may have a space in it" prefix_with_a_space

# --- what is installed, and taken away again ---

licence_is_there() {
    cmp LICENSE "$prefix/share/doc/rlock/LICENSE"
}
check "the licence is installed" licence_is_there
stores_are_there() {
    for file in stores/*; do
        case $file in *.h) there=include ;; *) there=share/rlock ;; esac
        cmp "$file" "$prefix/$there/${file##*/}" || return 1
    done
}
check "the stores of other engines are installed, and their SQL" stores_are_there
same_by_cmake() {
    cmake -S . -B "$work/alone" -DCMAKE_INSTALL_PREFIX="$prefix" && DESTDIR="$work/by_cmake" cmake --install "$work/alone" &&
        [ -s "$work/by_cmake$prefix/include/rlock.h" ] && diff -r "$prefix" "$work/by_cmake$prefix"
}
check "cmake --install puts the same files there" same_by_cmake
leaves_nothing() {
    there="$work/a folder"
    make install DESTDIR="$there" PREFIX=/opt BUILD="$work/none" && echo theirs >"$there/opt/include/theirs.h" &&
        make uninstall DESTDIR="$there" PREFIX=/opt && (cd "$there" && find . -type f; find . -name '*rlock*') >"$work/left" &&
        cat "$work/left" && [ "$(cat "$work/left")" = ./opt/include/theirs.h ]
}
check "make uninstall leaves nothing but what others put there" leaves_nothing

# --- Debian ---

[ -z "$every" ] || . tests/packages.sh

# --- hiredis of another version than its header ---

# Where the system's hiredis has no TLS, tools/setup put a newer one there; else there is one version only.
newer=$source/build/hiredis
to_newer="-L$newer/lib -Wl,-rpath,$newer/lib"
object() {
    ${CC:-cc} -std=gnu99 -I. -Iadapters "$@" -c examples/hello.c
}
# told HEADER LIBRARY PROGRAM: it says both versions and fails; nothing crashed.
told() {
    runs "$3"
    [ $? = 1 ] && grep -q "hiredis' header and library differ in version .*: header $1.*, library $2" "$work/said" &&
        grep -qx 'cannot begin: bad argument' "$work/said"
}
link() {
    # shellcheck disable=SC2086  # a list of words
    ${CC:-cc} -pthread -o "$@" -lev
}
if ! pkg-config --exists hiredis_ssl; then
    check "hiredis: a program with the old header" object -o "$work/old.o"
    check "hiredis: a program with the new header, by RLOCK_HIREDIS_ASYNC" \
        object "-DRLOCK_HIREDIS_ASYNC=\"$newer/include/hiredis/async.h\"" -o "$work/new.o"
    # shellcheck disable=SC2086
    {
        check "hiredis: new header and new library" link "$work/new" "$work/new.o" $to_newer -lhiredis
        check "hiredis: they acquire and release" acquires "$work/new"
        check "hiredis: old header, new library" link "$work/old-new" "$work/old.o" $to_newer -lhiredis
        check "hiredis: rlock_client_new says so, with both versions" told 0. '1.0 or later' "$work/old-new"
        check "hiredis: new header, old library" link "$work/new-old" "$work/new.o" -lhiredis
        check "hiredis: rlock_client_new says so too" told 1. '0.14 or earlier' "$work/new-old"
    }
fi

tap_ends
