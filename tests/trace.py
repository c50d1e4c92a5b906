#!/usr/bin/python3
"""Reads a trace of adapters/rlock_trace.h as chrome://tracing does, and says what is wrong with it.

    tests/trace.py FILE    prints how many of each event there are, by phase and name

It is one JSON array; on each track a slice ends before the one around it; times do not go back; a wait or a hold is as
long as the report says that ended it; each track has one name, and there is one process for each client.
"""
import collections
import json
import sys


def fail(words, event=None):
    sys.exit('%s: %s' % (words, json.dumps(event)))


def check(events):
    stacks, last, names = collections.defaultdict(list), {}, {}
    for event in events:
        track = event['pid'], event['tid']
        for member in 'ph', 'pid', 'tid', 'ts', 'name', 'args':
            if member not in event:
                fail('no ' + member, event)
        if event['ph'] == 'M':
            if (track[:1] if event['name'] == 'process_name' else track) in names:
                fail('a second name', event)
            names[track[:1] if event['name'] == 'process_name' else track] = event['args']['name']
            continue
        if track not in names or track[:1] not in names:
            fail('a track without a name', event)
        if event['ts'] < last.get(track, 0):
            fail('the time goes back', event)
        last[track] = event['ts']
        if event['ph'] == 'B':
            stacks[track].append(event)
        elif event['ph'] == 'E':
            if not stacks[track] or stacks[track][-1]['name'] != event['name']:
                fail('an end without its begin', event)
            began = stacks[track].pop()
            span_us = event['args'].get('span_us')
            if span_us is not None and span_us != event['ts'] - began['ts']:
                fail('a slice that is not as long as its report says', event)
        elif event['ph'] != 'i' or event['s'] != 't':
            fail('an event of no known phase', event)
    for track, stack in stacks.items():
        if stack:
            fail('a begin without its end', stack[-1])
    return names


def main():
    with open(sys.argv[1], encoding='utf-8') as file:
        events = json.load(file)
    names = check(events)
    counts = collections.Counter('%s %s' % (event['ph'], event['name']) for event in events if event['ph'] != 'M')
    for name, count in sorted(counts.items()):
        print(name, count)
    for track in sorted(names):
        if len(track) == 2:
            print('track', ascii(names[track]))


if __name__ == '__main__':
    main()
