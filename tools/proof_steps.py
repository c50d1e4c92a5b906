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

# What the proof and its pieces write themselves. No digest has these files.
WRITTEN = ['docs/proof.md', 'tests/proof.tsv', 'tests/sim/found', 'tests/mutants/caught.txt']
SEEDS, SEEDS_IN_A_PIECE = 1000000, 50000
SECONDS = 120      # of each fuzzer and each kind of chaos
BUGS_IN_A_PIECE = 50
SLICES = 4         # of torture
ENGINES = ['mariadb', 'postgres', 'zookeeper']

# command: what a person types to run all of it. scope: what it needs of tools/setup. figures: patterns of the lines
# that are its result, or of the parts of them in parentheses. The first one has to be there and stands in the table of
# docs/proof.md, the others below it. waits: it leaves the processors to others, since it waits for servers and clocks.
# behind: it runs at the lowest priority beside others. lacking: what it prints where the machine cannot run it.
Step = collections.namedtuple('Step', 'name command scope pieces figures waits behind lacking',
                              defaults=(False, False, None))

# seconds: how long it takes, until it has passed once. reads: a function that returns the files. text: what else it
# depends on. finds: it draws seeds at random; those that fail are listed in tests/sim/found, and it has passed.
Piece = collections.namedtuple('Piece', 'name command seconds reads text finds', defaults=('', False))

RESULT = r'^(\d+ passed, \d+ failed)$'


@functools.lru_cache(None)
def tracked():
    return frozenset(kit.git('ls-files', '-z').split('\0')) - {''} - set(WRITTEN)


@functools.lru_cache(None)
def named_in(path):
    """The tracked files that a file names: includes of C, imports of Python, in a script of the shell all names."""
    with open(os.path.join(kit.ROOT, path), encoding='utf-8', errors='replace') as file:
        text = file.read()
    here = os.path.dirname(path)
    if path.endswith('.py'):
        names, folders = re.findall(r'^(?:from|import) (\w+)', text, re.M), [here]
        names = [name + '.py' for name in names]
    elif re.search(r'\.(c|cc|h|hpp)$', path):
        names = re.findall(r'^\s*#\s*include\s*[<"]([^>"\n]+)', text, re.M)
        folders = [here, '', 'adapters', 'tests', 'tests/sim', 'stores', 'examples']
    else:
        names, folders = re.findall(r'[\w./-]+', text) if path.endswith('.sh') else [], ['']
    found = set()
    for name in names:
        places = [os.path.normpath(os.path.join(folder, name)) for folder in folders]
        found.update([place for place in places if place in tracked()][:1])
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
    patterns = sorted({'Makefile', 'tools/apart', *patterns})
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
        for name in (word, re.sub(r'-[a-z]+$', '', word)):  # what follows a hyphen is how it is compiled
            found += [path for path in (name, name + '.c', name + '.cc') if path in tracked()]
        if os.path.isdir(os.path.join(kit.ROOT, word)):
            found.append(word + '/*')
    return found


def suite_piece(suite):
    return Piece(suite.name, 'tools/run-tests ' + suite.name, suite.seconds + 120,
                 reads('tools/run-tests', 'tools/kit.py', *sources(suite.command)), suite.command)


# --- planted bugs ---

Bug = collections.namedtuple('Bug', 'name text files')


@functools.lru_cache(None)
def planted():
    """The rows of each file of tests/mutants/."""
    subjects = {}
    folder = os.path.join(kit.ROOT, 'tests', 'mutants')
    for file in sorted(os.listdir(folder)):
        if not file.endswith('.txt') or file == 'caught.txt':
            continue
        with open(os.path.join(folder, file), encoding='utf-8') as text:
            rows = re.split(r'^\[(.+)\]\n', text.read(), flags=re.M)[1:]
        subjects[file[:-len('.txt')]] = [
            Bug(name, row.strip(), [line for line in row.split('\n') if line in tracked()])
            for name, row in zip(rows[::2], rows[1::2])]
    return subjects


@functools.lru_cache(None)
def caught():
    """The suite that caught each bug last."""
    path = os.path.join(kit.ROOT, 'tests', 'mutants', 'caught.txt')
    if not os.path.exists(path):
        return {}
    with open(path, encoding='utf-8') as text:
        return {name: suite.replace('-asan', '') for name, suite in
                re.findall(r'^([\w-]+) +\| +([\w-]+)', text.read(), re.M)}


def catchers(bugs):
    """Patterns of the tests that caught these bugs last; all tests, where that is not known of each."""
    engine = any(file.startswith('stores/') for bug in bugs for file in bug.files)
    programs = {suite.name: sources(suite.command) for suite in suites('stores' if engine else 'test', 'proof')}
    found = [programs.get(caught().get(bug.name)) for bug in bugs]
    if None in found or [] in found:
        found = [['tests/engines/*.c' if engine else 'tests/*.c', 'tests/sim/sim.c']]
    return sorted({pattern for patterns in found for pattern in patterns})


def bug_piece(name, bugs, seconds):
    def read():
        files = [file for bug in bugs for file in bug.files]
        return reads('tools/mutants', 'tools/kit.py', 'tools/join', 'src/*', *files, *catchers(bugs))()
    return Piece(name, 'tools/mutants ' + ' '.join(bug.name for bug in bugs), 60 + seconds * len(bugs), read,
                 '\n'.join('[%s]\n%s' % (bug.name, bug.text) for bug in bugs))


def bug_pieces(engine, seconds):
    """By fifties, in the order of each file: `redis 2` are the rows from the 51st on in tests/mutants/redis.txt."""
    for subject, bugs in planted().items():
        if engine == any(file.startswith('stores/') for bug in bugs for file in bug.files):
            for start in range(0, len(bugs), BUGS_IN_A_PIECE):
                yield bug_piece('%s %d' % (subject, start // BUGS_IN_A_PIECE + 1),
                                bugs[start:start + BUGS_IN_A_PIECE], seconds)


# --- the others ---

def matrix_pieces():
    programs = {suite.name: suite for suite in suites('test', 'proof')}
    for line in kit.said('tools/matrix', '--list').split('\n'):
        combination, name = line.split()
        suite = programs[name]
        yield Piece('%s %s' % (combination, name), 'tools/matrix %s %s' % (combination, name), suite.seconds * 2 + 60,
                    reads('tools/matrix', 'tools/unpack', 'tools/run-tests', 'tools/kit.py', *sources(suite.command)),
                    suite.command)


def seed_pieces():
    folder = 'build/proof/sim'  # of its own, because others build programs meanwhile
    sim = 'make BUILD=%s %s/tests/sim/sim && %s/tests/sim/sim ' % (folder, folder, folder)
    read = reads('tests/sim/sim.c')
    yield Piece('again', sim + '--again tests/sim/seeds', 60, reads('tests/sim/sim.c', 'tests/sim/seeds'))
    for piece in range(SEEDS // SEEDS_IN_A_PIECE):
        yield Piece('fresh %02d' % (piece + 1), '%s--fresh %d --past %d' %
                    (sim, SEEDS_IN_A_PIECE, piece * SEEDS_IN_A_PIECE), 240, read, finds=True)


def one(command, seconds, read):
    return [Piece('all', command, seconds, read)]


def steps():
    torture = 'make SANITIZE=1 build/asan/tests/sim/torture && build/asan/tests/sim/torture --slice %d %d'
    failover = 'make failover SECONDS=%d KIND=%s'
    of_stores = [pattern for suite in suites('stores') for pattern in sources(suite.command)]
    return [
        Step('test', 'make test', 'test', one('make test', 900, reads('*')), [RESULT], waits=True),
        Step('test-stores', 'make test-stores', 'stores', one('make test-stores', 900, reads(
            'tests/suites', 'tools/run-tests', 'tools/kit.py', 'stores/*', 'tests/engines/*.*', 'cli/*', 'examples/*',
            *of_stores)), [RESULT], waits=True),
        Step('suites', 'tools/run-tests --group proof', 'test', [suite_piece(suite) for suite in suites('proof')],
             [RESULT], waits=True),
        Step('mutants', 'make mutants', 'test', list(bug_pieces(False, 3)),
             [r'^(\d+ planted, \d+ caught, \d+ missed)$']),
        Step('mutants-stores', 'make mutants-stores', 'stores', list(bug_pieces(True, 10)),
             [r'^(\d+ planted, \d+ caught, \d+ missed)$']),
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
             [r'^\w+ +(\d+ executions) ', r'^\w+ +\d+ executions .*$'], waits=True),
        Step('chaos', 'make chaos', 'test',
             one('make chaos SECONDS=%d' % SECONDS, SECONDS + 60, reads('tests/chaos.c')),
             [r'^# seed \d+, \d+ s: (\d+ violations)$', r'^# (?:overlaps|greatest lateness).*$'], waits=True),
        Step('chaos-stores', 'make chaos-stores', 'stores',
             [Piece(engine, 'make chaos-stores ENGINE=%s SECONDS=%d' % (engine, SECONDS), SECONDS + 120,
                    reads('tests/engines/%s_chaos.c' % engine, 'stores/rlock_%s.*' % engine))
              for engine in ENGINES], [r'^(\d+ grants), .*; (\d+ overlaps), '], waits=True),
        Step('cli-chaos', 'make cli-chaos', 'test', one('make cli-chaos', 300, reads(
            'tests/cli.py', 'tests/beat.c', 'cli/rlock.c')), [r'^# chaos: (.*), seed \d+$'], waits=True),
        Step('failover', 'make failover', 'test',
             [Piece(kind, failover % (seconds, name), seconds + 30, reads('tests/failover.py', 'examples/leader.c'))
              for kind, name, seconds in (('primary', '', SECONDS), ('cluster', 'cluster', SECONDS),
                                          ('restarts', 'restarts', SECONDS * 3 // 2))],
             [r'^ok 1 - (the primary was killed \d+ times|both servers were restarted without data \d+ times)$',
              r'^# named after .*$', r'^# with.*$'], waits=True),
        Step('moving', 'make moving', 'test', one('make moving SECONDS=%d' % SECONDS, SECONDS + 60,
                                                  reads('tests/stress.c')),
             [r'^moving: .* (\d+ holds), .* (\d+ lost), ', r'^moving: .*$'], waits=True),
        Step('coverage', 'make coverage', 'coverage', one('make coverage', 480, reads(
            'tools/coverage', 'tests/coverage-exceptions', 'tests/suites', 'adapters/*', 'tests/*.c', 'tests/sim/*.c',
            'tests/fuzz/*.c')), [r'^(lines [\d.]+ %.*)$']),
        Step('cross', 'make cross', 'cross', one('make cross', 150, reads(
            'tools/cross', 'tests/cross/*', 'tests/unit.c', 'tests/memory.c', 'tests/storm.c')),
             [RESULT, r'^# \w+: Thumb-2, .*$']),
        Step('matrix', 'make matrix', 'test', list(matrix_pieces()), [RESULT, r'^(?:hiredis|redis|valkey) .*$'],
             waits=True, lacking=r'knows no mirror'),
    ]


def look_again():
    """Files may have changed."""
    for cached in (tracked, named_in, files_of, caught):
        cached.cache_clear()
