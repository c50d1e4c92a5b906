"""The planted bugs, rows of tests/mutants/, and what caught each last: read by tools/mutants and by the proof.

How a row is written stands at the head of tools/mutants.
"""
import collections
import glob
import os
import re

import kit

ROWS = 'tests/mutants'
CAUGHT = os.path.join(kit.ROOT, ROWS, 'caught.txt')
NOTHING = 'nothing'  # in caught.txt, in place of a suite: a bug that is known to be missed

Row = collections.namedtuple('Row', 'name rule places where')  # where: its file and line
Place = collections.namedtuple('Place', 'file find put')


def parse(text, file):
    """The rows of a file, and what is wrong with how they are written."""
    rows, wrong = [], []
    for number, line in enumerate(text.split('\n'), 1):
        where = '%s:%d' % (file, number)
        last = rows[-1] if rows else Row('', '', [], where)
        place = last.places[-1] if last.places else None
        if re.fullmatch(r'\[.*\]', line):
            rows.append(Row(line[1:-1], '', [], where))
            if not re.fullmatch(r'[a-z0-9-]+', line[1:-1]):
                wrong.append('%s: a name has small letters, digits and hyphens' % where)
        elif not line:
            pass
        elif not last.name:
            wrong.append('%s: no name in [] stands above this line' % where)
        elif re.match('[-+]( |$)', line):
            if not place:
                wrong.append('%s: no file stands above this line' % where)
            elif line[0] == '+':
                place.put.append(line[2:])
            elif place.put:
                wrong.append('%s: a line to find stands behind one to put; another place begins with its file' % where)
            else:
                place.find.append(line[2:])
        elif not last.rule:
            rows[-1] = last._replace(rule=line)
        else:
            last.places.append(Place(line, [], []))
    return rows, wrong


def read_rows():
    """All rows in the order of their files, and what is wrong with them."""
    rows, wrong, seen = [], [], {}
    for path in sorted(glob.glob(os.path.join(kit.ROOT, ROWS, '*.txt'))):
        if path == CAUGHT:
            continue
        with open(path, encoding='utf-8') as text:
            more, said = parse(text.read(), os.path.relpath(path, kit.ROOT))
        rows += more
        wrong += said
    for row in rows:
        if row.name in seen:
            wrong.append('%s: [%s] stands at %s too' % (row.where, row.name, seen[row.name]))
        seen[row.name] = row.where
        if not re.fullmatch(r'[^.]\S*( .*)?\.', row.rule) or '. ' in row.rule:
            wrong.append('%s: [%s] has no rule, one sentence that ends with a full stop' % (row.where, row.name))
        if not row.places:
            wrong.append('%s: [%s] names no file' % (row.where, row.name))
    return rows, wrong


def group(row):
    return 'stores' if row.places[0].file.startswith('stores/') else 'core'


def read_caught():
    """What caught each bug last: lines `name | suite | test`, or `name | nothing | why that is known`."""
    try:
        with open(CAUGHT, encoding='utf-8') as text:
            return {name: (suite, test) for name, suite, test in
                    (line.rstrip('\n').split(' | ', 2) for line in text if line != '\n')}
    except FileNotFoundError:
        return {}
