'use strict';
// redlock on ioredis, at one server. It asks every 200 +- 100 ms, its default, but without an end.
const Redlock = require('redlock').default;

class Lock {
    constructor(redlock, key) {
        this.redlock = redlock;
        this.key = key;
    }

    async acquire() {
        this.held = await this.redlock.acquire([this.key], 30000);
    }

    release() {
        return this.held.release();
    }
}

require('./work.js')((redis) => {
    const redlock = new Redlock([redis], { retryCount: -1 });
    return (key) => new Lock(redlock, key);
});
