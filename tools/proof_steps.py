"""The steps of the proof, and the pieces that they are cut into: read by tools/proof.

A piece is a command that ends. It has passed if it returns 0 and prints its figure. It depends on the files that it
reads: what its programs are compiled from, the scripts that it runs, and the Makefile. tools/proof takes a digest of
their names and contents. A document or an adapter counts only where a piece reads it.
"""
import collections
import fnmatch
import functools
import os
import re

import kit
import planted

# What the proof and its pieces write themselves. No digest has these files.
WRITTEN = ['docs/proof.md', 'tests/proof.tsv', 'tests/sim/found', 'tests/mutants/caught.txt']
SEEDS, SEEDS_IN_A_PIECE = 1000000, 50000
SECONDS = 120      # of each fuzzer and each kind of chaos
BUGS_IN_A_PIECE = 50
SLICES = 4         # of torture
ENGINES = ['mariadb', 'postgres', 'zookeeper']

# command: what a person types to run all of it. scope: what it needs of tools/setup. figures: patterns of the lines
# that are its result, or of the parts of them in parentheses. The first one has to be there and stands in the table of
# docs/proof.md, the others below it. behind: it runs at the lowest priority beside pieces that wait. lacking: what its
# last line says where the machine cannot run it.
Step = collections.namedtuple('Step', 'name command scope pieces figures behind lacking', defaults=(False, None))

# seconds: how long it takes, until it has passed once. reads: a function that returns the files. text: what else it
# depends on. finds: it draws seeds at random; those that fail are listed in tests/sim/found, and it has passed. waits:
# for clocks and servers, as in tests/suites; what computes does not.
Piece = collections.namedtuple('Piece', 'name command seconds reads text finds waits', defaults=('', False, False))

# What a script reads by names that it makes up.
MADE_UP = {'tests/compile.sh': ['adapters/*']}

RESULT = r'^(\d+ passed, \d+ failed)$'
PLANTED = [r'^(?:(\d+ left out)\n)?(\d+ planted, \d+ caught, \d+ missed)$', r'^missed, as is known: .*$']


@functools.lru_cache(None)
def tracked():
    return frozenset(kit.git('ls-files', '-z').split('\0')) - {''} - set(WRITTEN)


@functools.lru_cache(None)
def named_in(path):
    """The tracked files that a file names: includes and quoted documents in C, imports of Python, in a script of the
    shell all names."""
    with open(os.path.join(kit.ROOT, path), encoding='utf-8', errors='replace') as file:
        text = file.read()
    here = os.path.dirname(path)
    if path.endswith('.py') or re.match(r'#!.*python', text):
        names, folders = re.findall(r'^(?:from|import) (\w+)', text, re.M), [here, 'tests']
        names = [name + '.py' for name in names]
    elif re.search(r'\.(c|cc|h|hpp)$', path):
        names = re.findall(r'^\s*#\s*include\s*[<"]([^>"\n]+)', text, re.M)
        names += re.findall(r'"(docs/[\w-]+\.md)"', text)
        folders = [here, '', 'adapters', 'tests', 'tests/sim', 'stores', 'examples']
    else:
        names, folders = re.findall(r'[\w./-]+', text) if path.endswith('.sh') else [], ['']
    found = set()
    for name in names:
        places = [os.path.normpath(os.path.join(folder, name)) for folder in folders]
        found.update([place for place in places if place in tracked() and place != path][:1])
    return found


@functools.lru_cache(None)
def files_of(*patterns):
    """The files that match, and all that these name, directly or not. rlock.h counts as the parts that make it."""
    found, left = set(), {path for path in tracked() for pattern in patterns if fnmatch.fnmatchcase(path, pattern)}
    while left:
        path = left.pop()
        if path == 'rlock.h':
            found.update(other for other in tracked() if other.startswith('src/'))
        elif path not in found:
            found.add(path)
            if not path.startswith('src/'):
                left |= named_in(path) - found
    return frozenset(found)


def reads(*patterns):
    """A function, because the tests that catch a bug may be others when the piece was run."""
    patterns = sorted({'Makefile', 'tools/apart', 'tools/join', *patterns})
    return lambda: files_of(*patterns)


# --- the suites ---

@functools.lru_cache(None)
def suites(*groups):
    return [suite for suite in kit.suites() if suite.group in groups]


def sources(command):
    """Patterns of what the command of a suite is compiled from and runs."""
    found = []
    for word in re.findall(r'[\w$./-]+', command):
        word = re.sub(r'^\$BUILD/(asan/)?', '', word)
        word = re.sub(r'^tests/parts/[a-z-]+/', 'tests/', word)  # the same, compiled with some parts alone
        # What follows a hyphen is how it is compiled, or with what: with loops_asio.cc.
        for name in (word, re.sub(r'-[a-z]+$', '', word), word.replace('-', '_')):
            found += [path for path in (name, name + '.c', name + '.cc') if path in tracked()]
        found += MADE_UP.get(word, [])
        if os.path.isdir(os.path.join(kit.ROOT, word)):
            found.append(word + '/*')
    return found


def suite_piece(suite):
    return Piece(suite.name, 'tools/run-tests ' + suite.name, suite.seconds + 120,
                 reads('tools/run-tests', *sources(suite.command)), suite.command, waits=not suite.computes)


# --- planted bugs ---

@functools.lru_cache(None)
def rows():
    """The planted bugs by the file that they stand in."""
    subjects = collections.defaultdict(list)
    for row in planted.read_rows()[0]:
        subjects[re.search(r'(\w[\w-]*)\.txt:', row.where).group(1)].append(row)
    return subjects


@functools.lru_cache(None)
def caught():
    """The program that caught each bug last, as tools/mutants calls it: that of a suite, or one of several."""
    return {name: stage.split(',')[0] for name, (stage, _) in planted.read_caught().items()}


def catchers(bugs):
    """Patterns of the tests that caught these bugs last; all tests, where that is not known of each."""
    engine = planted.group(bugs[0]) == 'stores'
    programs = {}
    for suite in suites(*(('stores', 'proof-stores') if engine else ('test',)), 'proof'):
        for program in kit.programs(suite.command):
            programs.setdefault(re.sub(r'^\$BUILD/(asan/)?tests/', '', program), sources(program))
        programs[suite.name] = sources(suite.command)
    found = [programs.get(caught().get(bug.name)) for bug in bugs]
    if None in found or [] in found:
        found = [['tests/engines/*.c'] if engine else ['tests/*.c', 'tests/*.cc', 'tests/sim/sim.c']]
    return sorted({pattern for patterns in found for pattern in patterns})


def bug_piece(name, bugs, seconds):
    def read():
        files = [place.file for bug in bugs for place in bug.places]
        return reads('tools/mutants', 'tests/suites', 'src/*', *files, *catchers(bugs))()
    return Piece(name, 'tools/mutants ' + ' '.join(bug.name for bug in bugs), 60 + seconds * len(bugs), read,
                 '\n'.join(repr(bug[:3]) for bug in bugs))


def bug_pieces(group, seconds):
    """By fifties, in the order of each file: `redis 2` are the rows from the 51st on in tests/mutants/redis.txt."""
    for subject, bugs in rows().items():
        bugs = [bug for bug in bugs if planted.group(bug) == group]
        for start in range(0, len(bugs), BUGS_IN_A_PIECE):
            yield bug_piece('%s %d' % (subject, start // BUGS_IN_A_PIECE + 1),
                            bugs[start:start + BUGS_IN_A_PIECE], seconds)


# --- the others ---

def matrix_pieces():
    programs = {suite.name: suite for suite in suites('test', 'proof')}
    for line in kit.output_or_nothing('tools/matrix', '--list').split('\n'):
        combination, name = line.split()
        suite = programs[name]
        yield Piece('%s %s' % (combination, name), 'tools/matrix %s %s' % (combination, name), suite.seconds * 2 + 60,
                    reads('tools/matrix', 'tools/unpack', 'tools/run-tests', *sources(suite.command)),
                    suite.command, waits=not suite.computes)


def seed_pieces():
    folder = 'build/proof/sim'  # of its own, because others build programs meanwhile
    sim = 'make BUILD=%s %s/tests/sim/sim && %s/tests/sim/sim ' % (folder, folder, folder)
    read = reads('tests/sim/sim.c')
    yield Piece('again', sim + '--again tests/sim/seeds', 60, reads('tests/sim/sim.c', 'tests/sim/seeds'))
    for piece in range(SEEDS // SEEDS_IN_A_PIECE):
        yield Piece('fresh %02d' % (piece + 1), '%s--fresh %d --past %d' %
                    (sim, SEEDS_IN_A_PIECE, piece * SEEDS_IN_A_PIECE), 240, read, finds=True)


def one(command, seconds, read, waits=False):
    return [Piece('all', command, seconds, read, waits=waits)]


def steps():
    torture = 'make SANITIZE=1 build/asan/tests/sim/torture && build/asan/tests/sim/torture --slice %d %d'
    failover = 'make failover SECONDS=%d KIND=%s'
    of_stores = [pattern for suite in suites('stores') for pattern in sources(suite.command)]
    return [
        Step('test', 'make test', 'test', one('make test', 900, reads('*')), [RESULT]),
        Step('test-stores', 'make test-stores', 'stores', one('make test-stores', 900, reads(
            'tests/suites', 'tools/run-tests', 'tools/calls', 'stores/*', 'tests/engines/*.*', 'cli/*', 'examples/*',
            *of_stores), waits=True), [RESULT]),
        Step('suites', 'tools/run-tests --group proof', 'test', [suite_piece(suite) for suite in suites('proof')],
             [RESULT]),
        Step('suites-stores', 'tools/run-tests --group proof-stores', 'stores',
             [suite_piece(suite) for suite in suites('proof-stores')], [RESULT]),
        Step('mutants', 'make mutants', 'test', list(bug_pieces('core', 3)),
             PLANTED),
        Step('mutants-stores', 'make mutants-stores', 'stores', list(bug_pieces('stores', 10)),
             PLANTED),
        Step('sim', 'make sim SEEDS=1000000', 'test', list(seed_pieces()), [r'^(\d+ seeds, \d+ violations)'],
             behind=True),
        Step('torture', 'make torture', 'test',
             [Piece('slice %d' % (n + 1), torture % (n, SLICES), 300, reads('tests/sim/torture.c'))
              for n in range(SLICES)], [r'^# (\d+ runs);']),
        Step('fuzz', 'make fuzz', 'fuzz',
             [Piece(name, 'tools/fuzz %d %s' % (SECONDS, name), SECONDS + 60,
                    reads('tools/fuzz', 'tests/fuzz/%s.c' % name, 'tests/fuzz/corpus/%s/*' % name, 'tests/fuzz/*.dict'))
              for name in sorted(os.path.basename(path)[:-2] for path in tracked()
                                 if re.match(r'tests/fuzz/\w+\.c$', path))],
             [r'^\w+ +(\d+ executions) ', r'^\w+ +\d+ executions .*$']),
        Step('chaos', 'make chaos', 'test',
             one('make chaos SECONDS=%d' % SECONDS, SECONDS + 60, reads('tests/chaos.c'), waits=True),
             [r'^# seed \d+, \d+ s: (\d+ violations)$', r'^# (?:overlaps|greatest lateness).*$']),
        Step('chaos-stores', 'make chaos-stores', 'stores',
             [Piece(engine, 'make chaos-stores ENGINE=%s SECONDS=%d' % (engine, SECONDS), SECONDS + 120,
                    reads('tests/engines/%s_chaos.c' % engine, 'stores/rlock_%s.*' % engine), waits=True)
              for engine in ENGINES], [r'^(\d+ grants), .*; (\d+ overlaps), ']),
        Step('cli-chaos', 'make cli-chaos', 'test', one('make cli-chaos', 300, reads(
            'tests/cli.py', 'tests/beat.c', 'cli/rlock.c', 'tools/calls'), waits=True), [r'^# chaos: (.*), seed \d+$']),
        Step('failover', 'make failover', 'test',
             [Piece(kind, failover % (seconds, name), seconds + 30, reads('tests/failover.py', 'examples/leader.c'),
                    waits=True)
              for kind, name, seconds in (('primary', '', SECONDS), ('cluster', 'cluster', SECONDS),
                                          ('restarts', 'restarts', SECONDS * 3 // 2))],
             [r'^ok 1 - (the primary was killed \d+ times|both servers were restarted without data \d+ times)$',
              r'^# named after .*$', r'^# with.*$']),
        Step('moving', 'make moving', 'test', one('make moving SECONDS=%d' % SECONDS, SECONDS + 60,
                                                  reads('tests/stress.c'), waits=True),
             [r'^moving: .* (\d+ holds), .* (\d+ lost), ', r'^moving: .*$']),
        Step('coverage', 'make coverage', 'coverage', one('make coverage', 480, reads(
            'tools/coverage', 'tests/coverage-exceptions', 'tests/suites', 'tools/run-tests', 'adapters/*', 'tests/*.c',
            'tests/interop.py', 'tests/sim/*.c', 'tests/fuzz/*.c')), [r'^(lines [\d.]+ %.*)$']),
        Step('cross', 'make cross', 'cross', one('make cross', 150, reads(
            'tools/cross', 'tests/cross/*', 'tests/unit.c', 'tests/memory.c', 'tests/storm.c')),
             [RESULT, r'^# \w+: Thumb-2, .*$']),
        Step('matrix', 'make matrix', 'test', list(matrix_pieces()), [RESULT, r'^(?:hiredis|redis|valkey) .*$'],
             lacking=r'knows no mirror'),
    ]


def look_again():
    """Files may have changed."""
    for cached in (tracked, named_in, files_of, caught):
        cached.cache_clear()
