/* rlock_elect.h - elects a leader, for rlock.h on any loop
 * SPDX-License-Identifier: MIT
 *
 *     static void on_lead(rlock_election *election, const rlock_event *event, void *user) {
 *         ... this process leads: begin
 *     }
 *     static void on_step_down(rlock_election *election, const rlock_event *event, void *user) {
 *         ... it steps down: stop at once
 *     }
 *
 *     rlock_options options = {0};
 *     rlock_election *election;
 *     options.key = "leader";
 *     status = rlock_elect(&election, client, &options, on_lead, on_step_down, NULL);
 *     ... at the end of the program rlock_client_shutdown, then
 *     rlock_elect_free(election);
 *     rlock_client_free(client);
 *
 * Every process that may lead does this on the same key. An election is a handle that acquires
 * for as long as it lives: it campaigns, leads, steps down and campaigns again. The lease decides
 * how long there is no leader after one died, and how long one leads on without its server:
 * config.watchdog_lease_ms, 30 s unless you set it.
 *
 * GUARANTEED
 *
 *     - It leads by a hold of the key: on_lead is called when that is granted, on_step_down when it
 *       is lost, by its local deadline at the latest, even with the network dead.
 *     - on_step_down is called once for each on_lead, unless the election or its client is freed
 *       before. It is called before on_lead is called again; and if the process resigns, the
 *       release is sent when on_step_down has returned (or runs the loop).
 *     - No error that time or an operator can fix ends it: after RLOCK_ERR_AUTH, _WRONG_TYPE,
 *       _SERVER, _NOMEM and each other one that an acquire may end with it pauses and tries again,
 *       0.1 s later at first, then twice as long up to 2 s, each shortened at random by up to
 *       half. A server that is away, loading, full or read-only is waited for without a pause.
 *       After a loss it pauses once, so that others come first.
 *     - Only the end of its client ends it, or rlock_elect_resign. A leader that is shut down steps
 *       down with RLOCK_REASON_CLOSED.
 *     - No callback runs inside a call of this header, and none after rlock_elect_free. Each call
 *       may be made from each callback, rlock_elect_free of the election whose callback runs
 *       included. After fork() the child's calls return RLOCK_ERR_STATE or false, and do nothing.
 *
 * What rlock.h does not guarantee is not guaranteed here either: a leader that was paused for
 * longer than its lease may go on for a moment. Let what it changes check a fencing token.
 *
 * The log of the client has a line for each change, and one when campaigning begins to fail:
 * "6fb2c1d0: election: leads". Everything here is static inline, and knows of rlock.h no more than
 * it declares.
 */

#ifndef RLOCK_ELECT_H
#define RLOCK_ELECT_H

#include <stdlib.h>
#include <string.h>

#include "rlock.h"

#define RLOCK_ELECT_PAUSE_MS 100      /* the first pause */
#define RLOCK_ELECT_PAUSE_MAX_MS 2000 /* the longest one */

/* One candidate: rlock_elect makes it, rlock_elect_free frees it. */
typedef struct rlock_election rlock_election;

/* An event lives until the callback returns. It is, in
 * on_lead: RLOCK_ACQUIRED with RLOCK_OK; fence and remaining_ms as in rlock_event.
 * on_step_down: RLOCK_LOST, with the reason; or RLOCK_RELEASED, because it resigns.
 * done of rlock_elect_resign: RLOCK_RELEASED, with the status. */
typedef void rlock_elect_callback(rlock_election *election, const rlock_event *event, void *user);

enum { /* what an election does */
       RLOCK__ELECT_CAMPAIGNS,
       RLOCK__ELECT_PAUSES, /* ... and goes on by itself: a plan of the client's */
       RLOCK__ELECT_LEADS,
       RLOCK__ELECT_LEAVES, /* it resigns, or has */
       RLOCK__ELECT_OVER    /* its client is shut down */
};

struct rlock_election {
    rlock_timer timer; /* first: a pointer to it is one to the election */
    rlock_client *client;
    rlock *lock;
    rlock_elect_callback *on_lead, *on_step_down, *done;
    void *user, *done_user;
    int64_t pause_ms; /* the next */
    int phase, status;
    int releases;       /* under way, of one that resigns */
    bool settled;       /* the loop has run since on_lead was called, and it led still; ... */
    bool blocked;       /* ... it did not, which was logged */
    bool resigns;       /* or has */
    bool inside, freed; /* the frame below still needs it; ... and is to free it */
    char text[128];
};

static inline void rlock__elect_log(const rlock_election *election, int level, const char *what,
                                    const char *detail) {
    char words[64] = "election: ";
    strncat(words, what, sizeof words - strlen(words) - 1);
    rlock_client_log(election->client, level, words, detail);
}

/* Notes how the last attempt to lead ended; a change for the worse is logged. */
static inline void rlock__elect_note(rlock_election *election, int status, const char *text) {
    bool news = status != election->status;
    election->status = status;
    election->text[0] = 0;
    if (text != NULL) {
        strncat(election->text, text, sizeof election->text - 1);
    }
    if (news && status != RLOCK_OK && status != RLOCK_ERR_CLOSED) {
        rlock__elect_log(election, RLOCK_LOG_WARNING, "failed, will retry", rlock_strerror(status));
    }
}

static inline void rlock__elect_wait(rlock_election *election, int64_t ms) {
    rlock_timer_set(election->client, &election->timer,
                    ms < 0 ? -1 : rlock_client_clock_us(election->client) + ms * 1000);
}

static inline void rlock__elect_phase(rlock_election *election, int phase) {
    bool paused = election->phase == RLOCK__ELECT_PAUSES, pauses = phase == RLOCK__ELECT_PAUSES;
    election->phase = phase;
    if (paused != pauses) {
        rlock_client_plans(election->client, pauses);
    }
}

static inline void rlock__elect_pause(rlock_election *election) {
    int64_t ms = election->pause_ms;
    rlock__elect_phase(election, RLOCK__ELECT_PAUSES);
    election->pause_ms = ms < RLOCK_ELECT_PAUSE_MAX_MS / 2 ? 2 * ms : RLOCK_ELECT_PAUSE_MAX_MS;
    ms -= (int64_t)(rlock_client_random(election->client) % (uint64_t)(ms / 2 + 1));
    rlock__elect_wait(election, ms);
}

/* It will not lead again. */
static inline void rlock__elect_end(rlock_election *election, int phase, int status) {
    rlock__elect_phase(election, phase);
    rlock__elect_wait(election, -1);
    rlock__elect_note(election, status, NULL);
}

/* --- resigning --- */

static inline void rlock__elect_resigned(rlock_election *election, int status) {
    rlock_event told;
    memset(&told, 0, sizeof told);
    told.kind = RLOCK_RELEASED;
    told.status = status;
    if (election->done != NULL) {
        election->done(election, &told, election->done_user);
    }
}

static inline void rlock__elect_on_released(rlock *lock, const rlock_event *event, void *user) {
    rlock_election *election = (rlock_election *)user;
    (void)lock;
    if (--election->releases == 0) {
        rlock__elect_resigned(election, event->status);
    }
}

/* A leader that resigns was asked to acquire once more, which needs no server, and this is the
 * callback of that: it runs in a dispatch of its own, as on_step_down has to. What is released here
 * is sent at the end of the dispatch. So it is submitted first: an exception out of on_step_down
 * does not keep the lead. If the hold was lost meanwhile, on_lost is not called any more. */
static inline void rlock__elect_on_leaving(rlock *lock, const rlock_event *event, void *user) {
    rlock_election *election = (rlock_election *)user;
    rlock_event told;
    memset(&told, 0, sizeof told);
    told.kind = RLOCK_RELEASED;
    told.status = event->status;
    told.fence = rlock_fence(lock);
    while (election->releases < 2 &&
           rlock_release(lock, rlock__elect_on_released, election) == RLOCK_OK) {
        election->releases++;
    }
    election->on_step_down(election, &told, election->user);
}

/* --- campaigning and leading --- */

static inline void rlock__elect_on_acquired(rlock *lock, const rlock_event *event, void *user) {
    rlock_election *election = (rlock_election *)user;
    (void)lock;
    if (event->status == RLOCK_OK) {
        rlock__elect_phase(election, RLOCK__ELECT_LEADS);
        election->settled = false;
        rlock__elect_wait(election, event->remaining_ms / 2);
        rlock__elect_note(election, RLOCK_OK, NULL);
        rlock__elect_log(election, RLOCK_LOG_INFO, "leads", NULL);
        if (!rlock_client_forked(election->client)) { /* by the hook `log` */
            election->on_lead(election, event, election->user);
        }
    } else if (election->resigns) {
        rlock__elect_resigned(election, RLOCK_OK);
    } else if (event->status == RLOCK_ERR_CLOSED) {
        rlock__elect_end(election, RLOCK__ELECT_OVER, RLOCK_ERR_CLOSED);
    } else {
        rlock__elect_pause(election);
        rlock__elect_note(election, event->status, event->text);
    }
}

static inline int rlock__elect_campaign(rlock_election *election) {
    int status =
        rlock_acquire(election->lock, RLOCK_FOREVER, 0, rlock__elect_on_acquired, election);
    if (status == RLOCK_OK) { /* it campaigns well if it still does after the longest pause */
        rlock__elect_phase(election, RLOCK__ELECT_CAMPAIGNS);
        rlock__elect_wait(election, election->status != RLOCK_OK ? RLOCK_ELECT_PAUSE_MAX_MS : -1);
    }
    return status;
}

static inline void rlock__elect_fire(rlock_timer *timer) {
    rlock_election *election = (rlock_election *)(void *)timer;
    int status = RLOCK_OK;
    if (election->phase == RLOCK__ELECT_LEADS) {
        if (rlock_is_held(election->lock)) {
            election->pause_ms = RLOCK_ELECT_PAUSE_MS;
            election->settled = true;
            election->blocked = false;
        }
        return;
    }
    if (election->phase == RLOCK__ELECT_PAUSES) {
        status = rlock__elect_campaign(election);
    } else {
        election->pause_ms = RLOCK_ELECT_PAUSE_MS;
        rlock__elect_note(election, RLOCK_OK, NULL);
    }
    if (status == RLOCK_ERR_NOMEM) {
        rlock__elect_pause(election);
        rlock__elect_note(election, status, NULL);
    } else if (status != RLOCK_OK) {
        rlock__elect_end(election, RLOCK__ELECT_OVER, status);
    } else if (election->status == RLOCK_OK) {
        rlock__elect_log(election, RLOCK_LOG_INFO, "campaigns", NULL);
    }
}

static inline void rlock__elect_on_lost(rlock *lock, const rlock_event *event, void *user) {
    rlock_election *election = (rlock_election *)user;
    bool resigns = election->resigns; /* since the loss, and before this */
    (void)lock;
    if (event->reason != RLOCK_REASON_EXPIRED) { /* else another term may end like this one */
        election->pause_ms = RLOCK_ELECT_PAUSE_MS;
    }
    if (event->reason == RLOCK_REASON_CLOSED) {
        rlock__elect_end(election, RLOCK__ELECT_OVER, RLOCK_ERR_CLOSED);
    } else if (!resigns) {
        rlock__elect_pause(election);
    }
    if (event->reason == RLOCK_REASON_EXPIRED && !election->settled && !election->blocked) {
        election->blocked = true;
        rlock__elect_log(election, RLOCK_LOG_WARNING, "steps down",
                         "expired: the loop did not run from on_lead to the end of the lease");
    } else {
        rlock__elect_log(election, RLOCK_LOG_INFO, "steps down", rlock_reason_str(event->reason));
    }
    if (rlock_client_forked(election->client)) {
        return;
    }
    election->inside = resigns; /* an exception leaves it so: that costs `done`, and the memory */
    election->on_step_down(election, event, election->user);
    if (!resigns) {
        return; /* it may be freed */
    }
    election->inside = false;
    if (election->freed) {
        free(election);
    } else if (!rlock_client_forked(election->client)) {
        rlock__elect_resigned(election, RLOCK_ERR_LOST);
    }
}

/* --- the functions --- */

/* Frees an election in any state: no more callbacks come, not even on_step_down, and if it leads,
 * the lead is released in the background. NULL is allowed. Free it before its client or
 * after it. In a forked child it does nothing. */
static inline void rlock_elect_free(rlock_election *election) {
    if (election == NULL || rlock_client_forked(election->client)) {
        return;
    }
    rlock__elect_phase(election, RLOCK__ELECT_OVER);
    rlock_timer_drop(election->client, &election->timer);
    rlock_free(election->lock); /* keeps the client's memory until here */
    if (election->inside) {
        election->freed = true;
    } else {
        free(election);
    }
}

/* Makes an election, which campaigns from then on. The options are copied; on_lost and reentrant
 * belong to the election and must not be set, `user` is not read. Any kind may lead: with a
 * RLOCK_KIND_SEMAPHORE as many lead as it has permits. on_lead and on_step_down are required.
 * Errors: RLOCK_ERR_ARG (an argument is NULL; options that rlock_new refuses; on_lost or reentrant
 * is set), RLOCK_ERR_CLOSED (the client is being shut down), RLOCK_ERR_NOMEM, RLOCK_ERR_STATE (a
 * forked child). */
static inline int rlock_elect(rlock_election **out, rlock_client *client,
                              const rlock_options *options, rlock_elect_callback *on_lead,
                              rlock_elect_callback *on_step_down, void *user) {
    rlock_election *election;
    rlock_options own;
    int status;
    if (out == NULL) {
        return RLOCK_ERR_ARG;
    }
    *out = NULL;
    if (client == NULL || options == NULL || on_lead == NULL || on_step_down == NULL ||
        options->on_lost != NULL || options->reentrant) {
        return RLOCK_ERR_ARG;
    }
    election = (rlock_election *)calloc(1, sizeof *election);
    if (election == NULL) {
        return RLOCK_ERR_NOMEM;
    }
    election->client = client;
    election->on_lead = on_lead;
    election->on_step_down = on_step_down;
    election->user = user;
    election->pause_ms = RLOCK_ELECT_PAUSE_MS;
    own = *options;
    own.on_lost = rlock__elect_on_lost;
    own.user = election;
    own.reentrant = true;
    status = rlock_new(&election->lock, client, &own);
    if (status == RLOCK_OK) {
        status = rlock_timer_add(client, &election->timer, rlock__elect_fire);
        if (status != RLOCK_OK) {
            rlock_free(election->lock);
        }
    }
    if (status != RLOCK_OK) {
        free(election);
        return status;
    }
    status = rlock__elect_campaign(election);
    if (status != RLOCK_OK) {
        rlock_elect_free(election);
        return status;
    }
    *out = election;
    rlock__elect_log(election, RLOCK_LOG_INFO, "campaigns", NULL);
    return RLOCK_OK;
}

/* Gives the lead away, or the campaign up: from this call on it does not lead. If it leads,
 * on_step_down is called, then the hold is released. Then `done` (may be NULL) is called: with
 * RLOCK_OK, also if it did not lead, or as rlock_release ends; after UNKNOWN or a fault the release
 * is repeated in the background. It does not campaign again: rlock_elect_free is what remains.
 * Errors: RLOCK_ERR_STATE (it resigned before; a forked child), RLOCK_ERR_CLOSED (its client was
 * freed or is being shut down: it has stepped down, or is about to), RLOCK_ERR_NOMEM (nothing is
 * changed), RLOCK_ERR_ARG (election is NULL). */
static inline int rlock_elect_resign(rlock_election *election, rlock_elect_callback *done,
                                     void *user) {
    int status = RLOCK_OK;
    if (election == NULL) {
        return RLOCK_ERR_ARG;
    }
    if (election->resigns || rlock_client_forked(election->client)) {
        return RLOCK_ERR_STATE;
    }
    if (election->phase == RLOCK__ELECT_LEADS) {
        status =
            rlock_acquire(election->lock, 0, RLOCK_LEASE_MIN_MS, rlock__elect_on_leaving, election);
        if (status == RLOCK_ERR_STATE) { /* it is lost, and on_lost was not called yet */
            status = RLOCK_OK;
        }
    } else {
        if (election->phase != RLOCK__ELECT_CAMPAIGNS) { /* for the callback of its end */
            status = rlock__elect_campaign(election);
        }
        if (status == RLOCK_OK) {
            status = rlock_cancel(election->lock);
        }
    }
    if (status == RLOCK_OK) {
        election->resigns = true;
        election->done = done;
        election->done_user = user;
        rlock__elect_end(election, RLOCK__ELECT_LEAVES, RLOCK_OK);
        rlock__elect_log(election, RLOCK_LOG_INFO, "resigns", NULL);
    }
    return status;
}

/* True if it leads now, by the local deadline of its hold and a fresh clock: ask before each piece
 * of work that only a leader may do. It sends nothing. False for NULL and in a forked child. */
static inline bool rlock_elect_leads(const rlock_election *election) {
    return election != NULL && election->phase == RLOCK__ELECT_LEADS &&
           rlock_is_held(election->lock);
}

/* Returns the fencing token of this term, larger than that of every earlier leader; 0 if it does
 * not lead, or without options.fencing. It sends nothing, and takes NULL. */
static inline uint64_t rlock_elect_fence(const rlock_election *election) {
    return rlock_elect_leads(election) ? rlock_fence(election->lock) : 0;
}

/* Returns RLOCK_OK if it leads, campaigns or has resigned and no attempt to lead has failed; the
 * error of the last one, if that failed; RLOCK_ERR_CLOSED once its client is being shut down. A
 * server that is away is waited for and is not an error here: see rlock_stats.up. *text (text may
 * be NULL) is what the server said, cut to 127 bytes, or "". It is valid until the next dispatch.
 * RLOCK_ERR_ARG if election is NULL. */
static inline int rlock_elect_status(const rlock_election *election, const char **text) {
    if (text != NULL) {
        *text = election != NULL ? election->text : "";
    }
    return election != NULL ? election->status : RLOCK_ERR_ARG;
}

#endif /* RLOCK_ELECT_H */

/*
 * Copyright (c) 2026 the rlock authors
 *
 * Permission is hereby granted, free of charge, to any person obtaining a copy
 * of this software and associated documentation files (the "Software"), to deal
 * in the Software without restriction, including without limitation the rights
 * to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
 * copies of the Software, and to permit persons to whom the Software is
 * furnished to do so, subject to the following conditions:
 *
 * The above copyright notice and this permission notice shall be included in all
 * copies or substantial portions of the Software.
 *
 * THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
 * IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
 * FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
 * AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
 * LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
 * OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
 * SOFTWARE.
 */
