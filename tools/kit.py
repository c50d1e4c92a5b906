"""What the tools in Python share: where the project is, how programs are run and ended, what git knows.

A program that is started here runs in a namespace of its own (tools/apart), so that nothing it started outlives it.
"""
import collections
import os
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
APART = os.path.join(ROOT, 'tools', 'apart')

running = set()  # programs that were started and not ended


def environment(**more):
    """That of a shell in which make was not called, with the servers that tools/setup put into build/."""
    kept = {name: value for name, value in os.environ.items() if name not in ('MAKEFLAGS', 'MFLAGS', 'MAKELEVEL')}
    kept['PATH'] = os.path.join(ROOT, 'build', 'bin') + ':' + kept['PATH']
    kept.update(more)
    return kept


def start(words, output, folder=ROOT, **more):
    """Starts a program apart, in a session of its own; what it prints goes to a file, or where this tool prints. It
    ends with the thread that started it, also if this tool is killed."""
    dying = ['setpriv', '--pdeathsig', 'KILL'] if shutil.which('setpriv') else []
    process = subprocess.Popen([*dying, APART, *words], cwd=folder, env=environment(**more), stdin=subprocess.DEVNULL,
                               stdout=output, stderr=output, start_new_session=True)
    running.add(process)
    return process


def ended(process):
    """Returns nothing while a program runs; then its exit status, and the seconds that processors worked for it and
    for all that it started."""
    number, status, used = os.wait4(process.pid, os.WNOHANG)
    if number == 0:
        return None
    running.discard(process)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, used.ru_utime + used.ru_stime


def end(process):
    """Ends a program and all that it started. Where there are no namespaces a suite ends its servers and removes its
    files itself, for which it has five seconds, even if the shell that started it is gone."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        until = time.monotonic() + 5
        try:
            os.killpg(process.pid, how)
            while time.monotonic() < until:
                process.poll()  # else it stays in its group
                os.killpg(process.pid, 0)
                time.sleep(0.02)
        except ProcessLookupError:  # nobody is left in the group
            break
    process.poll()
    running.discard(process)


def end_all(number, _):
    for process in list(running):
        end(process)
    os._exit(128 + number)


def end_with_this_tool():
    """A signal that ends this tool ends what it started."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end_all)


Row = collections.namedtuple('Row', 'name command seconds proves group computes')


def suites():
    """The rows of tests/suites, in their order; its head says what they mean. SUITES names another table."""
    rows, group, how = [], '', ''
    with open(os.environ.get('SUITES') or os.path.join(ROOT, 'tests', 'suites'), encoding='utf-8') as table:
        for line in table:
            section = re.match(r'# ([\w-]+), (computes|waits)$', line)
            cells = [cell.strip() for cell in line.split(' | ')]
            if section:
                group, how = section.groups()
            elif line.strip() and not line.startswith('#'):
                if len(cells) != 4 or not cells[2].isdigit() or not group:
                    sys.exit('tests/suites: not a row of four cells in a section: ' + line.strip())
                rows.append(Row(cells[0], cells[1], int(cells[2]), cells[3], group, how == 'computes'))
    return rows


def programs(command):
    """The programs that the command of a suite names, as $BUILD/tests/unit: those that make has to build."""
    return re.findall(r'\$BUILD/[\w./-]*\w', command)


def output_or_nothing(*words):
    """What a command prints, without the last line's end; nothing if it fails or there is none."""
    try:
        done = subprocess.run(words, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, errors='replace', check=False)
    except OSError:
        return ''
    return done.stdout.rstrip('\n') if done.returncode == 0 else ''


def output_or_end(*words):
    """What a command prints. If it fails there is no answer, and the tool ends."""
    done = subprocess.run(words, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                          check=False)
    if done.returncode != 0:
        sys.exit('%s: %s failed' % (os.path.basename(sys.argv[0]), ' '.join(words)))
    return done.stdout


def git(*words):
    return output_or_end('git', *words)


def length(seconds):
    return '%d min %02d s' % divmod(round(seconds), 60)
