'use strict';
// The work of redlock.js and semaphore.js, which only say how their lock is taken: peer.py tells what is measured.
const fs = require('fs');
const readline = require('readline');
const Redis = require('ioredis');

const IN_FLIGHT = 64; // of what is not measured
const WARM_MS = 500;

const now = () => process.hrtime.bigint(); // CLOCK_MONOTONIC
const seconds = (since) => Number(now() - since) / 1e9;
const sleep = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });
const say = (name, value, unit) => fs.writeSync(1, `${name} ${value} ${unit}\n`);

function cpu() {
    const used = process.cpuUsage();
    return used.user + used.system;
}

function rss() {
    global.gc(); // node --expose-gc; what the first leaves the second finds
    global.gc();
    return process.memoryUsage().rss;
}

async function pairs(make, inFlight, measured) {
    let done = 0;
    for (let i = 0; i < inFlight; i++) {
        (async (lock) => {
            for (;;) {
                await lock.acquire();
                await lock.release();
                done++;
            }
        })(make(`pairs:${i}`));
    }
    await sleep(WARM_MS);
    const doneThen = done, cpuThen = cpu(), then = now();
    await sleep(measured * 1000);
    const count = done - doneThen;
    say('pairs', count / seconds(then), '1/s');
    say('cpu', (cpu() - cpuThen) / count, 'us/pair');
}

async function waiters(make, count, limit, again) {
    const since = new Array(count).fill(0n); // it waits since; 0 = not now
    let sections = 0, handovers = 0, served = 0, held = 0, longest = 0, last = -1, finish;
    const finished = new Promise((resolve) => { finish = resolve; });

    async function waiter(i) {
        const lock = make('one');
        let mine = 0;
        do {
            since[i] = now();
            await lock.acquire();
            if (held++ !== 0) throw new Error('two holders');
            longest = Math.max(longest, seconds(since[i]));
            since[i] = 0n;
            sections++;
            handovers += last !== i;
            last = i;
            served += mine++ === 0;
            held--;
            await lock.release();
        } while (again);
        if (served === count) finish();
    }

    const warm = make('warm');
    await warm.acquire();
    await warm.release();
    const start = now();
    for (let i = 0; i < count; i++) waiter(i);
    await Promise.race([finished, sleep(limit * 1000)]);
    const elapsed = seconds(start);
    for (const t of since) if (t !== 0n) longest = Math.max(longest, seconds(t));
    say('sections', sections / elapsed, '1/s');
    say('handovers', handovers / elapsed, '1/s');
    say('elapsed', elapsed, 's');
    say('served', served, `of_${count}`);
    say('longest', longest * 1000, 'ms');
}

async function memory(make, count) {
    const locks = new Array(2 * count).fill(null);
    let next = 0;

    async function hold(upto) {
        const one = async () => {
            while (next < upto) {
                const lock = locks[next] = make(`memory:${next++}`);
                await lock.acquire();
            }
        };
        await Promise.all(Array.from({ length: IN_FLIGHT }, one));
    }

    await hold(count);
    const before = rss();
    await hold(2 * count);
    say('memory', (rss() - before) / count, 'bytes/lock');
}

async function obey(make) {
    const lock = make('one');
    for await (const word of readline.createInterface({ input: process.stdin })) {
        const then = now();
        await lock[word]();
        say(word, word === 'release' ? then : now(), 'ns');
    }
}

// connect(redis) gives make(key), which gives an object with acquire() and release().
module.exports = async function work(connect) {
    const [socket, what, a, b, c] = process.argv.slice(2);
    const redis = new Redis(socket);
    const make = connect(redis);
    if (what === 'pairs') await pairs(make, +a, +b);
    else if (what === 'waiters') await waiters(make, +a, +b, c === 'again');
    else if (what === 'memory') await memory(make, +a);
    else await obey(make);
    process.exit(0);
};
