"""The Markdown pages of this tree, as lint and tools/docs read them: their headings, and the anchors these have.

    /usr/bin/python3 tools/pages.py    prints each anchor, of a link or in a comment, that no heading of its page has
"""
import glob
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LINK = re.compile(r'\]\(([^)\s]*)(?:\s+"[^"]*")?\)')
MENTION = re.compile(r'(?:docs/[a-z-]+|README|CHANGELOG|CONTRIBUTING)\.md#[^\s()<>"`,;:]*')
COMMENTED = ['*.[ch]*'] + ['%s/**/*' % folder for folder in ('src', 'adapters', 'stores', 'cli', 'examples')]


def read(path):
    with open(os.path.join(ROOT, path), encoding='utf-8', errors='replace') as file:
        return file.read()


def found(*patterns):
    """The files of these patterns, relative to the tree, in one order."""
    paths = {path for pattern in patterns for path in glob.glob(os.path.join(ROOT, pattern), recursive=True)}
    return sorted(os.path.relpath(path, ROOT) for path in paths if os.path.isfile(path))


def documents():
    folders = [name for name in os.listdir(ROOT) if name != 'build' and not name.startswith('.')]
    return found('*.md', *(name + '/**/*.md' for name in folders))


class Anchors:
    """Makes the anchors of one page as GitHub does: lower case, no punctuation, a hyphen for each space, and -1, -2 if
    there is one already."""

    def __init__(self):
        self.given = {}

    def of(self, heading, _separator='-'):
        plain = re.sub(r'[^\w\- ]', '', heading.strip().lower()).replace(' ', '-')
        anchor = plain
        while anchor in self.given:
            self.given[plain] += 1
            anchor = '%s-%d' % (plain, self.given[plain])
        self.given[anchor] = 0
        return anchor


def lines_of(text):
    """Its lines outside of fences."""
    fence = False
    for line in text.split('\n'):
        if line.lstrip().startswith('```'):
            fence = not fence
        elif not fence:
            yield line


def headings(text):
    """What headings say, without their marks."""
    for line in lines_of(text):
        heading = re.match(r' {0,3}#{1,6} +(.*?)(?: +#+)? *$', line)
        if heading:
            words = re.sub(r'!?\[([^]]*)\]\([^)]*\)', r'\1', heading.group(1))
            code = re.split(r'(`[^`]*`)', words)  # in code an underscore is no mark
            yield ''.join(part.strip('`') if part.startswith('`') else
                          re.sub(r'(?<!\w)([*_]+)(?=\S)(.*?)(?<=\S)\1(?!\w)', r'\2', part) for part in code)


def anchors(text):
    page = Anchors()
    return [page.of(heading) for heading in headings(text)] + re.findall(r'<a (?:id|name)="([^"]*)"', text)


def links(text):
    return [link for line in lines_of(text) for link in LINK.findall(line)]


def broken():
    """(where, anchor, page) for each anchor that leads nowhere."""
    known = {}

    def leads(page, anchor):
        if page not in known:
            known[page] = anchors(read(page))
        return anchor in known[page]

    for path in documents():
        for link in links(read(path)):
            to, _, anchor = link.partition('#')
            page = os.path.normpath(os.path.join(os.path.dirname(path), to)) if to else path
            if anchor and '://' not in link and page.endswith('.md') and os.path.exists(os.path.join(ROOT, page)):
                if not leads(page, anchor):
                    yield path, anchor, page
    for path in found(*COMMENTED):
        if not path.endswith('.md'):
            for mention in MENTION.findall(read(path)):
                page, _, anchor = mention.rstrip('.').partition('#')
                if os.path.exists(os.path.join(ROOT, page)) and not leads(page, anchor):
                    yield path, anchor, page


if __name__ == '__main__':
    lines = ['%s: no #%s in %s' % row for row in broken()]
    sys.stdout.write(''.join(line + '\n' for line in lines))
