'use strict';
// The Mutex of redis-semaphore on ioredis. It asks every 10 ms, its default, but without an end.
const { Mutex } = require('redis-semaphore');

require('./work.js')((redis) => (key) => new Mutex(redis, key, { lockTimeout: 30000, acquireTimeout: Infinity }));
