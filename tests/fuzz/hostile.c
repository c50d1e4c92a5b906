/* hostile.c - bytes from a hostile server, through the real hiredis into the store
 *
 * What a client writes is answered by the input: as a server would, so that connections get as far
 * as any, or so with a byte changed, or with bytes of the input instead, before or behind. In
 * between come bytes that nobody asked for, ends and resets. Afterwards the server is honest, or
 * silent, or hangs up at every word.
 */

#include "play.h"

enum { HONEST, SILENT, RUDE, MANNERS };

static unsigned manners; /* of the server when the input is over */

static void say_lines(struct sim_line *line, unsigned count) {
    size_t size;
    const char *bytes = take_lines(count, &size);
    if (size > 0) {
        sim_send(&line->down, bytes, size);
    }
}

static void say_bytes(struct sim_line *line, unsigned count) {
    size_t size = count;
    const char *bytes = take_bytes(&size);
    if (size > 0) {
        sim_send(&line->down, bytes, size);
    }
}

static void hang_up(struct sim_line *line) {
    if (line->peer != NULL) {
        model_leave(line->peer);
        sim_model_hang_up(line->server, line);
    }
}

/* As a server would answer; 0, or the byte of its answer that is changed, counted from 1. */
static void answer(struct sim_line *line, const char *bytes, size_t size, unsigned changed) {
    struct sim_piece **said = line->down.last, *piece;
    if (line->peer != NULL) {
        sim_server_clock(line->server);
        model_feed(line->peer, bytes, size);
    }
    for (piece = *said; piece != NULL && changed > 0; piece = piece->next) {
        if (changed <= piece->size) {
            size_t one = 1;
            const char *other = take_bytes(&one);
            piece->bytes[changed - 1] = one > 0 ? *other : 0;
        }
        changed = changed > piece->size ? changed - (unsigned)piece->size : 0;
    }
}

static void serve(struct sim_line *line, const char *bytes, size_t size) {
    play_written(line->client_id, bytes, size);
    if (tape.left == 0) {
        if (manners == HONEST) {
            answer(line, bytes, size, 0);
        } else if (manners == RUDE) {
            hang_up(line);
        }
        return;
    }
    switch (take(12)) {
    case 4: answer(line, bytes, size, 1 + take(64)); break;
    case 5: say_lines(line, 1); break;
    case 6: say_lines(line, 1 + take(8)); break;
    case 7: say_bytes(line, take(256)); break;
    case 8:
        say_lines(line, 1 + take(3));
        answer(line, bytes, size, 0);
        break;
    case 9:
        answer(line, bytes, size, 0);
        say_lines(line, 1 + take(3));
        break;
    case 10:
        say_lines(line, 1);
        hang_up(line);
        break;
    case 11: break;
    default: answer(line, bytes, size, 0);
    }
}

static void play_disturb(void) {
    struct sim_line *line = sim.lines;
    unsigned skip = take(4);
    while (line != NULL && (line->fd < 0 || line->state != SIM_UP || skip-- > 0)) {
        line = line->next;
    }
    if (line == NULL) {
        return;
    }
    switch (take(5)) {
    case 3: hang_up(line); break;
    case 4: sim_reset(line); break;
    case 2: say_bytes(line, take(256)); break;
    default: say_lines(line, 1 + take(8));
    }
}

static void play_begin(void) {
    unsigned kind = take(256);
    manners = kind % MANNERS;
    sim.serve = serve;
    sim.weather.split = (kind & 32) != 0 ? 2 : 0;
    sim.weather.split_us = 500;
    sim.servers[0].model->flavour = (kind & 64) != 0    ? MODEL_REDIS_5
                                    : (kind & 128) != 0 ? MODEL_VALKEY_9
                                                        : MODEL_REDIS_7;
}

static void play_over(void) {
}
