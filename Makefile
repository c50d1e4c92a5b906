# `make` lists the targets. Only make and a shell are assumed: tools/setup gets the rest, compiler included.

CC             = gcc
CXX            = g++
CFLAGS         = -O1 -g
WARNINGS       = -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror
HIREDIS_CFLAGS = $(shell pkg-config --cflags hiredis 2>/dev/null)
HIREDIS_LIBS   = $(or $(shell pkg-config --libs hiredis 2>/dev/null),-lhiredis)
PREFIX         = /usr/local
BUILD          = build

# SANITIZE=1 makes the same programs in a folder of their own, with AddressSanitizer and UBSan.
ifdef SANITIZE
out     := $(BUILD)/asan
variant := -fsanitize=address,undefined -fno-sanitize-recover -fno-omit-frame-pointer
else
out     := $(BUILD)
endif

# TLS needs hiredis 1.0: the system's, or else the one that tools/setup put there. Where there is none,
# tests/tls and examples/tls are left out.
TLS_HIREDIS = $(CURDIR)/build/hiredis
tls_system := $(shell pkg-config --exists hiredis_ssl openssl 2>/dev/null && echo yes)
tls_cflags  = $(if $(tls_system),$(shell pkg-config --cflags hiredis_ssl),-isystem $(TLS_HIREDIS)/include)
tls_libs    = $(if $(tls_system),$(shell pkg-config --libs hiredis_ssl),-L$(TLS_HIREDIS)/lib -Wl$(comma)-rpath$(comma)$(TLS_HIREDIS)/lib -lhiredis_ssl -lhiredis) -lssl -lcrypto
no_tls      = $(if $(tls_system)$(wildcard $(TLS_HIREDIS)/lib),,$(out)/tests/tls $(out)/examples/tls)
comma      := ,

# These need libpq.
pq_examples = $(addprefix $(out)/examples/,moving version)
no_pq      := $(if $(shell pkg-config --exists libpq 2>/dev/null && echo yes),,$(pq_examples))

# The module of nginx is built by nginx' own configure: that of Debian's nginx-dev, on the system or where tools/setup put
# it. nginx itself stands beside it.
nginx_src  := $(patsubst %/configure,%,$(firstword $(wildcard $(addsuffix /usr/share/nginx/src/configure,/. $(CURDIR)/build/nginx))))
nginx_made := $(BUILD)/examples/nginx

# The program is linked with the same hiredis. If that is the one in build/, what is installed is a second one, with the
# system's hiredis and without TLS.
cli_in_build  = $(if $(tls_system),,$(wildcard $(TLS_HIREDIS)/lib))
cli_installed = $(BUILD)/cli/$(if $(cli_in_build),system/)rlock

# The stores of other engines are in the program, the examples and the bench where their libraries are found; NO_STORES=1
# leaves them out. Debian's package of ZooKeeper's library has no file for pkg-config.
there        = $(shell pkg-config --exists $1 2>/dev/null && echo yes)
zookeeper_h  = $(wildcard $(addsuffix /include/zookeeper/zookeeper.h,/usr /usr/local))
store_names := $(if $(NO_STORES),,$(if $(call there,'libpq >= 14'),POSTGRES) \
    $(if $(and $(zookeeper_h),$(filter /%,$(shell $(CC) -print-file-name=libzookeeper_st.so))),ZOOKEEPER) \
    $(if $(and $(call there,'libmariadb >= 3.3'),$(wildcard stores/rlock_mariadb.h)),MARIADB))
store_flags := $(addprefix -DRLOCK_WITH_,$(store_names)) $(if $(store_names),-Istores) \
    $(subst -I,-isystem ,$(if $(filter POSTGRES,$(store_names)),$(shell pkg-config --cflags libpq)) \
    $(if $(filter MARIADB,$(store_names)),$(shell pkg-config --cflags libmariadb)))
store_libs  := $(if $(filter POSTGRES,$(store_names)),$(shell pkg-config --libs libpq)) \
    $(if $(filter ZOOKEEPER,$(store_names)),-lzookeeper_st) $(if $(filter MARIADB,$(store_names)),$(shell pkg-config --libs libmariadb))

tests    := $(patsubst %.c,$(out)/%,$(wildcard tests/*.c tests/sim/*.c tests/fuzz/*.c)) $(out)/tests/throws $(out)/tests/throws-c $(addprefix $(out)/tests/,cxx cxx-coroutines cxx-threads loops-asio)
benches  := $(patsubst %.c,$(out)/%,$(wildcard bench/*.c))
examples := $(patsubst %.c,$(out)/%,$(wildcard examples/*.c))
recipes  := $(patsubst %.c,$(out)/%,$(wildcard examples/cookbook/*.c))
cxx_examples := $(patsubst %.cc,$(out)/%,$(wildcard examples/*.cc))
version   = $(shell sed -n 's/^\#define RLOCK_VERSION "\(.*\)"/\1/p' rlock.h)
# Programs are compiled from a rlock.h in which #line directives name the parts in src/: compilers, assertions and
# debuggers tell the part and its own line. It is joined when a part was edited. The files that include rlock.h and stand
# beside it are looked for there too. LINED=. compiles the rlock.h that is committed, as where nothing can be joined.
LINED    := $(if $(and $(wildcard src/rlock.h),$(wildcard /usr/bin/python3)),$(BUILD)/lined,.)
lined    := $(addprefix $(LINED)/,rlock.h rlock.c rlock.hpp rlock_testing.h)
parts    := $(shell find src -type f 2>/dev/null)
# What a program includes is written down as it is compiled: it is made anew if one of these files changes.
follow    = -MMD -MP -MT $@ -MF $@.d
compile   = $(CC) -std=c99 $(CPPFLAGS) $(CFLAGS) $(WARNINGS) $(variant) $(HIREDIS_CFLAGS) -pthread -I$(LINED) -I. -Iadapters

# tools/setup puts a redis-server there if the system has none by that name.
export PATH := $(CURDIR)/build/bin:$(PATH)

# Scripts run in the simulator as they do in a server: by Lua 5.1.
LUA_CFLAGS = $(shell pkg-config --cflags lua5.1 2>/dev/null)
LUA_LIBS   = $(or $(shell pkg-config --libs lua5.1 2>/dev/null),-llua5.1)

# Programs are compiled on all cores, unless make was told how many to use.
cores = $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
build = $(MAKE) --no-print-directory $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(cores))

SEEDS   = 10000
SECONDS = 60

.PHONY: help demo demo-web quick test test-stores chaos-stores mutants-stores tests examples cli matrix sim mutants torture fuzz chaos cli-chaos failover moving coverage cross proof bench bench-stores bench-peers
.PHONY: always lined join docs lint format install install-cli uninstall deb clean

help:
	@echo 'make demo               set up what is missing, then show the lock at work (under a minute)'
	@echo 'make demo-web           the sale in a browser: PORT=8080, or any that is free; prints its address'
	@echo 'make quick              the first answer to an edit: three suites, in ten seconds'
	@echo 'make test               set up what is missing, then run every suite'
	@echo 'make examples           build the examples into build/examples/'
	@echo 'make cli                build the program rlock into build/cli/'
	@echo 'make tests              build the test programs; SANITIZE=1 builds them with sanitizers'
	@echo 'make test-stores        set up other engines, then run the suites of their stores'
	@echo 'make chaos-stores       SECONDS=120 for each engine, or for ENGINE=postgres: four processes on the same keys'
	@echo 'make mutants-stores     plant bugs in the stores of other engines: each must be caught by make test-stores'
	@echo 'make matrix             redis, kinds, loops and cluster on newer Redis and Valkey, with hiredis 1.x also'
	@echo '                        faults, sim, torture and fuzz, on Valkey 9 also model'
	@echo 'make sim                SEEDS=10000: that many programs and faults in a simulated world'
	@echo 'make mutants            plant bugs, one at a time: each must be caught'
	@echo 'make torture            fail every allocation, read, write and connect in turn'
	@echo 'make fuzz               SECONDS=60 for each fuzzer: hostile servers, replies, programs'
	@echo 'make chaos              SECONDS=60: real servers and processes, stopped, killed, cut off'
	@echo 'make cli-chaos          ROUNDS=500: three machines run rlock while all that it needs is killed or stopped;'
	@echo '                        ENGINE=postgres, mariadb or zookeeper: with their locks there'
	@echo 'make failover           SECONDS=120: leaders behind Sentinel, whose primary is killed every ten seconds;'
	@echo '                        KIND=cluster: their node of a cluster; KIND=restarts: a server that forgets'
	@echo 'make moving             SECONDS=60: 1,000 handles on a cluster, slots that move, nodes that are killed'
	@echo 'make coverage           lines and branches that the suites run, into build/coverage/'
	@echo 'make cross              the tests on 32-bit ARM, big-endian s390x and static musl'
	@echo 'make proof              all of these, longer, in pieces, into docs/proof.md: what is stale, until all is fresh;'
	@echo '                        MINUTES=30: the stalest first, for so long; ONLY=sim,mutants: of these steps'
	@echo 'make bench              what it costs, into bench/RESULTS.md (seven minutes); QUICK=1 only sees that it works;'
	@echo '                        ONLY=shares measures that program alone'
	@echo 'make bench-stores       locks in each engine beside the same by hand; all engines side by side,'
	@echo '                        into docs/stores.md; QUICK=1 only sees that it works'
	@echo 'make bench-peers        rlock beside other libraries at the same work, into bench/PEERS.md'
	@echo 'make join               make rlock.h of the parts in src/'
	@echo 'make docs               the man pages and the HTML of the headers, and all pages as HTML, into build/docs/'
	@echo 'make lint               the checks of style and of the documents'
	@echo 'make format             lay out the C files with clang-format, and join'
	@echo 'make install            PREFIX=/usr/local, DESTDIR: the headers, what pkg-config and CMake read; the pages of make docs and the program of make cli if they were made'
	@echo 'make uninstall          removes what make install put there'
	@echo 'make deb                the Debian packages librlock-dev and rlock, into build/'
	@echo 'make clean              remove build/'

# The recursive make starts after set-up: what it finds on the machine is what set-up left there.
demo:
	@tools/setup
	@echo 'Building the examples (build/examples/) ...'
	@+$(build) -s $(filter-out %/cares $(pq_examples) $(no_tls),$(examples))
	@tools/demo

# It has a server of its own, also where RLOCK_URL names one.
demo-web:
	@tools/setup web
	@echo 'Building the shop (build/examples/shop/) ...'
	@+$(build) -s $(BUILD)/examples/shop/shop
	@exec env RLOCK_URL= $(BUILD)/examples/shop/shop $(if $(PORT),--port $(PORT))

quick:
	@tools/setup quick
	@BUILD=$(BUILD) tools/quick

# MAKEOVERRIDES is what make was told on its command line, as CC=clang: tools/run-tests builds the programs with it.
test:
	@tools/setup test
	@tools/run-tests $(MAKEOVERRIDES)

# The stores of other engines, whose servers are large.
test-stores:
	@tools/setup stores
	@tools/run-tests --group stores $(MAKEOVERRIDES)

# Each engine has a program of this name and command line.
chaos_engines = $(patsubst %.c,$(BUILD)/asan/%,$(wildcard tests/engines/$(or $(ENGINE),*)_chaos.c))
chaos-stores: SECONDS = 120
chaos-stores:
	@tools/setup stores
	@+$(build) SANITIZE=1 $(chaos_engines)
	@status=0; for chaos in $(chaos_engines); do echo "# $$chaos"; tools/apart $$chaos $(SECONDS) || status=1; done; exit $$status

matrix:
	@tools/setup test
	@tools/matrix

# These set up what they need like `make test`. Whatever starts servers or ends processes runs in a namespace of its own.
sim:
	@tools/setup test
	@+$(build) $(BUILD)/tests/sim/sim
	@tools/apart $(BUILD)/tests/sim/sim --again tests/sim/seeds --seeds $(SEEDS) --fresh $$(($(SEEDS) / 4))

mutants:
	@tools/setup test
	@tools/mutants --group core

mutants-stores:
	@tools/setup stores
	@tools/mutants --group stores

torture:
	@tools/setup test
	@+$(build) SANITIZE=1 $(BUILD)/asan/tests/sim/torture
	@tools/apart $(BUILD)/asan/tests/sim/torture

fuzz:
	@tools/setup fuzz
	@tools/fuzz $(SECONDS)

chaos:
	@tools/setup test
	@+$(build) $(BUILD)/tests/chaos
	@tools/apart $(BUILD)/tests/chaos $(SECONDS)

cli-chaos: ROUNDS = 500
cli-chaos:
	@tools/setup test
	@+$(build) $(BUILD)/cli/rlock $(BUILD)/tests/beat
	@tools/apart /usr/bin/python3 tests/$(if $(ENGINE),engines/)cli.py $(BUILD)/cli/rlock $(BUILD)/tests/beat $(ENGINE) chaos $(ROUNDS)

failover: SECONDS = 120
failover:
	@tools/setup test
	@+$(build) $(BUILD)/examples/leader
	@tools/apart /usr/bin/python3 tests/failover.py $(BUILD)/examples/leader $(SECONDS) $(KIND)

moving:
	@tools/setup test
	@+$(build) $(BUILD)/tests/stress
	@tools/apart $(BUILD)/tests/stress moving $(SECONDS)

coverage:
	@tools/setup coverage
	@tools/coverage

cross:
	@tools/setup cross
	@tools/cross

proof:
	@tools/proof $(if $(MINUTES),--minutes $(MINUTES)) $(if $(ONLY),--only '$(ONLY)')

# What the servers of other engines cost depends on the disk that they write to.
on_disk = tools/apart env TMPDIR=$${TMPDIR:-/tmp}

bench:
	@tools/setup test
	@+$(build) $(if $(ONLY),$(out)/bench/$(ONLY),$(benches))
	@$(on_disk) tools/bench $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY)) $(if $(TURNS),--turns $(TURNS))

bench-stores:
	@tools/setup stores
	@+$(build) $(addprefix $(BUILD)/bench/engines/,postgres mariadb zookeeper stores)
	@$(on_disk) $(BUILD)/bench/engines/postgres
	@$(on_disk) $(BUILD)/bench/engines/mariadb
	@$(on_disk) $(BUILD)/bench/engines/zookeeper
	@$(on_disk) $(BUILD)/bench/engines/stores $(if $(QUICK),--quick) >$(BUILD)/bench/stores.md
	@cat $(BUILD)/bench/stores.md
	@$(if $(QUICK),,awk -v table=$(BUILD)/bench/stores.md '/bench-stores: end/ { off = 0 } !off { print } \
		/bench-stores: begin/ { off = 1; print ""; while ((getline line <table) > 0) print line; print "" }' \
		docs/stores.md >$(BUILD)/bench/stores.new && mv $(BUILD)/bench/stores.new docs/stores.md)

bench-peers:
	@tools/setup peers
	@+$(build) $(BUILD)/bench/peers/rlock
	@$(on_disk) tools/bench-peers

tests: $(filter-out $(no_tls),$(tests))

examples: $(filter-out $(no_tls) $(no_pq),$(examples)) $(recipes) $(cxx_examples) $(out)/examples/shop/shop $(if $(nginx_src),$(nginx_made)/ngx_http_rlock_module.so)

cli: $(sort $(out)/cli/rlock $(if $(SANITIZE),,$(cli_installed)))

ifneq ($(LINED),.)
# Programs are only compiled anew if a part was changed, not if its file is newer. Two makes may do this at a time,
# also in two pid namespaces.
$(LINED)/joined: $(parts) tools/join rlock.h
	@mkdir -p $(@D)
	@new=$$(mktemp $(@D)/rlock.h.XXXXXX) && tools/join --lines >$$new || { rm -f $$new; exit 1; }; \
	if cmp -s $$new $(@D)/rlock.h; then rm $$new; else mv $$new $(@D)/rlock.h; fi
	@touch $@

$(LINED)/rlock.h: $(LINED)/joined
	@test -e $@ || tools/join --lines >$@

$(filter-out %/rlock.h,$(lined)): $(LINED)/%: %
	@mkdir -p $(@D)
	@new=$$(mktemp $@.XXXXXX) && { echo '#line 1 "$<"'; cat $<; } >$$new && mv $$new $@
endif

# Of tools that compile themselves, or that call make several times at once.
lined: $(lined)

$(out)/tests/%: tests/%.c Makefile | $(lined)
	@mkdir -p $(@D)
	$(compile) $(follow) -D_GNU_SOURCE -Itests $(sim_flags) $(flags) -o $@ $< $(LDFLAGS) -lcmocka $(loops) $(HIREDIS_LIBS)

# The same programs with some parts of rlock.h alone: tests/parts/kinds-url/redis has RLOCK_WITH_KINDS and RLOCK_WITH_URL,
# minimal none, every all of them by name. joined-kinds-url has the rlock.h in which only these two stand, joined-minimal
# that with none. What only tests of other parts call is not used then.
parts_all     = $(shell sed -n 's/^\#define RLOCK__HAS_\([A-Z]*\) 1$$/\1/p' src/public/head.h | grep -vx REDIS)
parts_named   = $(filter-out joined minimal,$(subst -, ,$(notdir $(@D))))
parts_macros  = $(if $(filter every,$(parts_named)),$(parts_all),$(shell echo $(parts_named) | tr a-z A-Z))
parts_compile = $(compile) $(follow) -D_GNU_SOURCE -Itests -Wno-unused-function -o $@ tests/$(@F).c $(LDFLAGS) -lcmocka $(HIREDIS_LIBS)

$(out)/tests/parts/%: CFLAGS = -O0 -g
$(out)/tests/parts/tls/tls: HIREDIS_CFLAGS = $(tls_cflags)
$(out)/tests/parts/tls/tls: HIREDIS_LIBS = $(tls_libs)
$(out)/tests/parts/%: Makefile | $(lined)
	@mkdir -p $(@D)
	$(parts_compile) -DRLOCK_MINIMAL $(addprefix -DRLOCK_WITH_,$(parts_macros))

$(addprefix $(out)/tests/parts/joined-,minimal/rlock.h kinds-url/rlock.h): tools/join $(parts)
	@mkdir -p $(@D)
	@tools/join --minimal $(if $(parts_named),--with $(subst $() ,$(comma),$(parts_named))) >$@.new && mv $@.new $@

.SECONDEXPANSION:
$(out)/tests/parts/joined-%: private override LINED = $(@D)
$(out)/tests/parts/joined-%: $$(@D)/rlock.h Makefile | $(lined)
	$(parts_compile) -DTESTS_JOINED

# Not by the rules above, which take any name.
$(out)/tests/parts/%.d $(out)/tests/parts/joined-%.d: ;

# Exceptions cross the library compiled as C++, and as C.
throws = $(CXX) -std=c++11 $(CPPFLAGS) $(CFLAGS) $(WARNINGS) $(variant) -pthread -D_GNU_SOURCE -I$(LINED) -I. -Iadapters

$(out)/tests/throws: tests/throws.cc Makefile | $(lined)
	@mkdir -p $(@D)
	$(throws) $(follow) -o $@ $< $(LDFLAGS) -lcmocka

$(out)/tests/throws-c: tests/throws.cc $(LINED)/rlock.h Makefile | $(lined)
	@mkdir -p $(@D)
	$(compile) -D_GNU_SOURCE -fexceptions -DRLOCK_NO_REDIS -DRLOCK_IMPLEMENTATION -x c -c -o $@.o $(LINED)/rlock.h
	$(throws) $(follow) -DIMPLEMENTED_IN_C -o $@ $< $@.o $(LDFLAGS) -lcmocka

# rlock.hpp, with callbacks in C++17 and co_await in C++20; and the suite of the loops on Asio. Not optimised: templates
# take long.
cxx = $(CXX) $(CPPFLAGS) $(CFLAGS) $(WARNINGS) -Wold-style-cast $(variant) $(HIREDIS_CFLAGS) -pthread -D_GNU_SOURCE -I$(LINED) -I. -Iadapters -Itests

# cxx-threads is cxx-coroutines with ThreadSanitizer, which goes with no other one and knows no fences.
$(out)/tests/cxx-threads: variant = -fsanitize=thread -DASIO_DISABLE_FENCED_BLOCK
$(out)/tests/cxx $(out)/tests/cxx-coroutines $(out)/tests/cxx-threads: tests/cxx.cc Makefile | $(lined)
	@mkdir -p $(@D)
	$(cxx) -O0 -std=$(if $(filter %/cxx,$@),c++17,c++20) $(follow) -o $@ $< $(LDFLAGS) -lcmocka -luv $(HIREDIS_LIBS)

$(out)/tests/loops-asio: tests/loops.c tests/loops_asio.cc Makefile | $(lined)
	@mkdir -p $(@D)
	$(compile) -MMD -MP -MT $@ -MF $@.c.d -D_GNU_SOURCE -DWITH_ASIO -Itests -c -o $@.o tests/loops.c
	$(cxx) -O0 -std=c++17 $(follow) -o $@ tests/loops_asio.cc $@.o $(LDFLAGS) -lcmocka $(loops) $(HIREDIS_LIBS)

$(out)/tests/tls $(out)/examples/tls: HIREDIS_CFLAGS = $(tls_cflags)
$(out)/tests/tls $(out)/examples/tls: HIREDIS_LIBS = $(tls_libs)

# What waits for servers and clocks, or is over soon, need not be fast: with sanitizers it is compiled in a third of the
# time without optimisation.
$(addprefix $(BUILD)/asan/tests/,both cluster credentials faults kinds loops memory metrics quorum redis seam seeds sentinel stores testing \
    tls unit url) $(BUILD)/asan/tests/engines/% $(BUILD)/asan/tests/fuzz/% $(BUILD)/asan/examples/shop/shop: CFLAGS = -O0 -g

# libev exports libevent's old names: libevent has to come first. Loops that not every machine has are in the suite where
# they are found: GLib, sd-event, and uloop, whose libubox may also stand in a folder UBOX with include/ and lib/.
UBOX        ?=
uloop_there  = $(or $(UBOX),$(wildcard /usr/include/libubox/uloop.h /usr/local/include/libubox/uloop.h))
loops_flags  = $(if $(call there,glib-2.0),-DHAVE_GLIB $(subst -I,-isystem ,$(shell pkg-config --cflags glib-2.0)))
loops_flags += $(if $(call there,libsystemd),-DHAVE_SD_EVENT)
loops_flags += $(if $(uloop_there),-DHAVE_ULOOP $(if $(UBOX),-isystem $(UBOX)/include))
loops_libs   = $(if $(call there,glib-2.0),$(shell pkg-config --libs glib-2.0))
loops_libs  += $(if $(call there,libsystemd),$(shell pkg-config --libs libsystemd))
loops_libs  += $(if $(uloop_there),$(if $(UBOX),-L$(UBOX)/lib -Wl$(comma)-rpath$(comma)$(UBOX)/lib) -lubox)
$(out)/tests/testing: loops = -luv
$(out)/tests/loops: loops = -levent_core -luv -lev $(loops_libs)
$(out)/tests/loops: flags = $(loops_flags)
$(out)/tests/loops-asio: loops = -levent_core -luv -lev

$(out)/tests/sim/% $(out)/tests/fuzz/%: sim_flags = -Itests/sim $(LUA_CFLAGS)
$(out)/tests/sim/% $(out)/tests/fuzz/%: loops = $(LUA_LIBS)

# Each engine has its own library: the first word of a program's name says which.
engine = $(firstword $(subst _, ,$(@F)))
engine_flags_mariadb  = $(subst -I,-isystem ,$(shell pkg-config --cflags libmariadb))
engine_flags_postgres = $(subst -I,-isystem ,$(shell pkg-config --cflags libpq))
engine_libs_mariadb   = $(shell pkg-config --libs libmariadb)
engine_libs_postgres  = -lpq
engine_libs_zookeeper = -lzookeeper_st
engine_flags_moving = $(engine_flags_postgres)
engine_libs_moving   = -lpq
engine_flags_urls = $(store_flags)
engine_flags_with = $(store_flags)
engine_libs_urls  = $(store_libs)
engine_libs_with  = $(store_libs)
$(out)/tests/engines/%: flags = $(engine_flags_$(engine))
$(out)/tests/engines/%: loops = $(engine_libs_$(engine)) -levent_core -luv -lev
$(out)/tests/engines/postgres_tls: loops = -lpq -lssl -lcrypto

$(out)/examples/%: examples/%.c Makefile | $(lined)
	@mkdir -p $(@D)
	$(compile) $(follow) $(flags) -D_POSIX_C_SOURCE=200809L $(store_flags) -o $@ $< $(LDFLAGS) -lev $(loops) $(HIREDIS_LIBS) $(store_libs)

# They wait for what they show.
$(BUILD)/examples/%: CFLAGS = -O0 -g
$(out)/examples/cares: loops = -lcares
$(pq_examples): flags = $(shell pkg-config --cflags libpq)
$(pq_examples): loops = -lpq

# The implementation is compiled once for all of them, in a file of its own.
$(out)/examples/cookbook/rlock.o: $(LINED)/rlock.c Makefile | $(lined)
	@mkdir -p $(@D)
	$(compile) $(follow) -D_POSIX_C_SOURCE=200809L $(store_flags) -c -o $@ $<

$(out)/examples/cookbook/%: examples/cookbook/%.c $(out)/examples/cookbook/rlock.o Makefile | $(lined)
	@mkdir -p $(@D)
	$(compile) $(follow) -D_POSIX_C_SOURCE=200809L -o $@ $< $(out)/examples/cookbook/rlock.o $(LDFLAGS) -lev $(HIREDIS_LIBS) $(store_libs)

# The page is a part of the program: its bytes, as C.
$(out)/examples/shop/page.h: examples/shop/page.html Makefile
	@mkdir -p $(@D)
	@{ echo 'static const unsigned char page[] = {'; od -An -v -tx1 $< | sed 's/ *\([0-9a-f][0-9a-f]\)/0x\1,/g'; echo '};'; } >$@

$(out)/examples/shop/shop: $(wildcard examples/shop/*.[ch]) $(out)/examples/shop/page.h examples/data.h $(LINED)/rlock.h \
    adapters/rlock_libevent.h adapters/rlock_resolve.h $(out)/examples/cookbook/rlock.o Makefile | $(lined)
	$(compile) -D_POSIX_C_SOURCE=200809L -I$(@D) -o $@ $(filter %.c %.o,$^) $(LDFLAGS) -levent $(HIREDIS_LIBS) $(store_libs)

# The module, and beside it the one that runs the checks of its loop. Beside nginx' own warnings, which its headers bear,
# those of this project are asked for; then it is linked with hiredis as nginx links.
nginx_strict = $(CC) -std=gnu99 $(CPPFLAGS) $(WARNINGS) $(HIREDIS_CFLAGS) -pthread -fsyntax-only -I$(LINED) -I. -Iadapters -Iexamples/nginx \
    -isystem $(nginx_made) $(addprefix -isystem $(nginx_src)/src/,core event event/modules os/unix http http/modules http/v2)

ifeq ($(nginx_src),)
$(nginx_made)/ngx_http_rlock_module.so:
	@echo 'The module of nginx is not built, and its suite will fail: there is no nginx-dev, see tools/setup.'
else
$(nginx_made)/Makefile: $(nginx_src)/configure examples/nginx/config tests/nginx/config
	@mkdir -p $(@D)
	cd $(nginx_src) && bash -c '. ./conf_flags && ./configure "$${NGX_CONF_FLAGS[@]}" --with-cc="$(CC)" \
		--with-cc-opt="-fPIC -I$(abspath $(LINED)) $(HIREDIS_CFLAGS)" --builddir=$(abspath $(@D)) \
		--add-dynamic-module=$(CURDIR)/examples/nginx --add-dynamic-module=$(CURDIR)/tests/nginx' >$(abspath $(@D)).log || \
		{ tail -n 20 $(@D).log; rm -f $@; exit 1; }

$(nginx_made)/ngx_http_rlock_module.so: $(nginx_made)/Makefile $(wildcard examples/nginx/*.[ch] tests/nginx/*.c adapters/*.h) $(LINED)/rlock.h | $(lined)
	for file in examples/nginx/*.c tests/nginx/*.c; do $(nginx_strict) $$file || exit 1; done
	rm -f $(@D)/*.so $(@D)/addon/nginx/*.o
	$(MAKE) --no-print-directory -s -C $(nginx_src) -f $(abspath $<) modules
endif

$(out)/examples/%: examples/%.cc Makefile | $(lined)
	@mkdir -p $(@D)
	$(cxx) -std=$(if $(findstring callback,$@),c++17,c++20) $(store_flags) $(follow) -o $@ $< $(LDFLAGS) $(HIREDIS_LIBS) $(store_libs)

$(out)/cli/rlock: HIREDIS_CFLAGS = $(if $(no_tls),$(shell pkg-config --cflags hiredis 2>/dev/null),$(tls_cflags) -DWITH_TLS)
$(out)/cli/rlock: HIREDIS_LIBS = $(if $(no_tls),$(or $(shell pkg-config --libs hiredis 2>/dev/null),-lhiredis),$(tls_libs))

# What was found here: a library or a compiler that came or went since makes the program anew.
cli_with = $(CC) $(store_flags) $(HIREDIS_CFLAGS) $(HIREDIS_LIBS) $(tls_cflags) $(tls_libs)
$(out)/cli/stores: always
	@mkdir -p $(@D)
	@printf '%s\n' '$(cli_with)' | cmp -s - $@ || printf '%s\n' '$(cli_with)' >$@

# It loads the libraries of other engines when a URL names one: cli/engines.h.
$(out)/cli/calls.h: tools/calls $(wildcard stores/rlock_*.h) $(out)/cli/stores Makefile
	@mkdir -p $(@D)
	@CC='$(CC)' tools/calls $(store_flags) >$@ || { rm -f $@; exit 1; }

$(out)/cli/rlock $(out)/cli/system/rlock: cli/rlock.c $(out)/cli/calls.h Makefile | $(lined)
	@mkdir -p $(@D)
	$(compile) $(follow) -D_GNU_SOURCE $(store_flags) -Icli -I$(out)/cli -o $@ $< $(LDFLAGS) -lev $(HIREDIS_LIBS) $(if $(store_names),-ldl)

$(out)/bench/%: bench/%.c Makefile | $(lined)
	@mkdir -p $(@D)
	$(compile) $(follow) -O2 -D_GNU_SOURCE -Itests -o $@ $< $(LDFLAGS) -lev $(HIREDIS_LIBS)

$(out)/bench/engines/stores: bench/engines/stores.c Makefile | $(lined)
	@mkdir -p $(@D)
	$(compile) $(follow) -O2 -D_GNU_SOURCE -Itests $(store_flags) -o $@ $< $(LDFLAGS) $(HIREDIS_LIBS) $(store_libs)

$(out)/bench/engines/%: bench/engines/%.c Makefile | $(lined)
	@mkdir -p $(@D)
	$(compile) $(follow) -O2 -D_GNU_SOURCE -Itests $(engine_flags_$(engine)) -o $@ $< $(LDFLAGS) $(engine_libs_$(engine))

$(out)/bench/peers/%: bench/peers/%.c Makefile | $(lined)
	@mkdir -p $(@D)
	$(compile) $(follow) -O2 -D_GNU_SOURCE -o $@ $< $(LDFLAGS) -lev $(HIREDIS_LIBS)

# After a change of a part. Nothing else writes rlock.h: `make lint` fails until it is what src/ makes.
join:
	@tools/join

-include $(wildcard $(out)/*/*.d $(out)/*/*/*.d $(out)/*/*/*/*.d)

docs:
	@tools/docs $(BUILD)/docs

lint:
	@tools/lint

format:
	clang-format -i $$(tools/lint --formatted)
	@tools/join

# What is put into PREFIX, and what is taken away again: the second part is folders that are of rlock alone.
headers   = $(wildcard rlock*.h rlock*.hpp adapters/*.h adapters/*.hpp stores/*.h)
shared    = rlock.c $(wildcard stores/*.sql)
made      = share/pkgconfig/rlock.pc share/pkgconfig/rlock-no-redis.pc share/cmake/rlock/rlock-config-version.cmake
copied    = share/cmake/rlock/rlock-config.cmake share/doc/rlock/LICENSE $(addprefix share/rlock/,$(notdir $(shared)))
ours      = share/cmake/rlock share/rlock share/doc/rlock
put       = install -m 644
completions = share/bash-completion/completions share/zsh/site-functions
program   = bin/rlock share/man/man1/rlock.1 $(addsuffix /rlock,$(firstword $(completions))) $(addsuffix /_rlock,$(lastword $(completions)))
place     = $(DESTDIR)$(PREFIX)

install:
	install -d $(addprefix "$(place)"/,include share/pkgconfig $(ours))
	$(put) $(headers) "$(place)/include"
	$(put) tools/rlock-config.cmake "$(place)/share/cmake/rlock"
	$(put) $(shared) "$(place)/share/rlock"
	$(put) LICENSE "$(place)/share/doc/rlock"
	for file in $(made); do \
		sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(version)|' tools/$${file##*/}.in >"$(place)/$$file" && \
		chmod 644 "$(place)/$$file" || exit 1; \
	done
	if [ -d $(BUILD)/docs/man3 ]; then \
		mkdir -p "$(place)/share/man" && \
		cp -R $(BUILD)/docs/man3 $(BUILD)/docs/man7 "$(place)/share/man" && \
		cp -R $(BUILD)/docs/html "$(place)/share/doc/rlock"; fi
	if [ -x "$(cli_installed)" ]; then $(MAKE) --no-print-directory install-cli; fi

# The program, its manual and its completions; `make install` does this if the program was built.
install-cli:
	install -d $(addprefix "$(place)"/,bin share/man/man1 $(completions))
	install "$(cli_installed)" "$(place)/bin/rlock"
	$(put) cli/rlock.1 "$(place)/share/man/man1"
	$(put) cli/rlock.bash "$(place)/$(firstword $(completions))/rlock"
	$(put) cli/rlock.zsh "$(place)/$(lastword $(completions))/_rlock"

uninstall:
	rm -f $(addprefix "$(place)"/,$(addprefix include/,$(notdir $(headers))) $(made) $(copied) $(program))
	rm -f "$(place)"/share/man/man[37]/rlock*.[37] "$(place)"/share/man/man[37]/RLOCK*.[37]
	rm -rf "$(place)/share/doc/rlock/html"
	for folder in $(ours); do rmdir "$(place)/$$folder" 2>/dev/null || true; done

deb:
	@BUILD=$(BUILD) tools/deb

clean:
	rm -rf build
