/* ------------------------------------------------------------------------------------------------
 * >>question - questions about a key, independent of any hold
 */

#ifndef RLOCK_LOCK_QUESTION_H
#define RLOCK_LOCK_QUESTION_H

#include "public/head.h"
#include "public/status.h"
#include "public/store.h"
#include "public/lock.h"
#include "base/platform.h"
#include "base/list.h"
#include "runtime/client.h"
#include "runtime/who.h"
#include "lock/claim.h"
#include "lock/gate.h"
#include "lock/mode.h"
#include "lock/life.h"

/* A question about a key. It is no claim: it leaves nothing at the server. */
typedef struct rlock__question {
    rlock_request request;
    rlock_terms terms;
    rlock_link link; /* in the client's questions */
    rlock_timer timer;
    rlock__ready ready;
    rlock__gate *gate;
    rlock_info_callback *done;
    void *user;
    rlock_info info;
    char *words; /* info.token or info.text; with info.who all of them */
    bool out;    /* the request is with the store */
} rlock__question;

static void rlock__question_free(rlock__question *question) {
    RLOCK_ASSERT(!question->out || question->gate->client->life == RLOCK__CLOSED);
    rlock__list_remove(&question->link);
    rlock__list_remove(&question->ready.link);
    rlock_timer_drop(question->gate->client, &question->timer);
    rlock__gate_unref(question->gate);
    rlock__dealloc(question->words);
    rlock__dealloc(question);
}

static void rlock__question_deliver(rlock__ready *ready, char **words) {
    rlock__question *question = RLOCK__OF(ready, rlock__question, ready);
    rlock_client *client = question->gate->client;
    rlock_info_callback *done = question->done;
    void *user = question->user;
    rlock_info info = question->info;
    RLOCK_ASSERT(client->depth && !question->out);
    *words = question->words;
    question->words = NULL;
    rlock__question_free(question);
    rlock__shutdown_end(client, RLOCK_OK);
    rlock__leave(client);
    if (done) {
        done(client, &info, user);
    }
}

/* Keeps what an answer points to. False: no memory. */
static bool rlock__question_keep(rlock__question *question, const rlock_info *info) {
    question->info = *info;
    question->info.text = NULL;
#if RLOCK__HAS_DESCRIPTIONS
    if (question->request.flags & RLOCK_REQUEST_DESCRIBE) {
        if (!info->who && !info->untold && (info->holders > 0 || info->waiters > 0)) {
            question->info.untold = RLOCK__TEXT("this store does not list holders");
        }
        question->words = rlock__who_copy(question->gate->client, &question->info);
        return question->words != NULL;
    }
#endif
    question->words = info->token ? rlock__copy(info->token, info->token_len) : NULL;
    question->info.token = question->words;
    return !info->token || question->words;
}

static void rlock__question_end(rlock__question *question, int status, const rlock_info *info,
                                const char *text) {
    rlock_client *client = question->gate->client;
    RLOCK_ASSERT(rlock__list_empty(&question->ready.link));
    RLOCK_ASSERT(!question->out);
    RLOCK_ASSERT(!info == (status != RLOCK_OK));
    if (info && !rlock__question_keep(question, info)) {
        question->info.token_len = 0;
        status = RLOCK_ERR_NOMEM;
    } else if (!info) {
        rlock__set_text(client, &question->words, text);
        question->info.text = question->words;
    }
    question->info.status = status;
    rlock_timer_set(client, &question->timer, -1);
    rlock__list_append(&client->ready, &question->ready.link);
}

/* Checks the holds of this key after a forced release by this client: no store reports that. */
static void rlock__gate_forced(rlock__gate *gate, const void *with) {
    rlock__claim *held = NULL;
    (void)with;
    while ((held = rlock__claim_next(gate, held, RLOCK__HOLDING)) != NULL) {
        rlock__holding_check(held);
    }
    rlock__mode_of(gate)->wake(gate, RLOCK__HINT_OURS);
}

static void rlock__question_answered(rlock__question *question, const rlock_answer *answer) {
    const rlock__gate *gate = question->gate;
    RLOCK_ASSERT(question->request.op >= RLOCK_OP_INSPECT);
    RLOCK_ASSERT(!question->out);
    if (answer->outcome == RLOCK_OUTCOME_DONE && answer->info) {
        rlock__question_end(question, RLOCK_OK, answer->info, NULL);
        if (question->request.op == RLOCK_OP_FORCE) {
            rlock__key_each(gate->client, gate->item.key, gate->item.key_len, rlock__gate_forced,
                            NULL);
        }
    } else if (answer->outcome == RLOCK_OUTCOME_FAULT) {
        rlock__question_end(question, rlock__on_fault[answer->fault][RLOCK__IN_ATTEMPT], NULL,
                            answer->text);
    } else {
        rlock__question_end(question, RLOCK_ERR_SERVER, NULL, "unexpected reply");
    }
}

/* Takes the request back from the store; true: it may have been executed. */
static bool rlock__question_recall(rlock__question *question) {
    const rlock_client *client = question->gate->client;
    RLOCK_ASSERT(question->out);
    question->out = false;
    return client->store->forget(client->store_state, &question->request);
}

static void rlock__question_fire(rlock_timer *timer) {
    rlock__question *question = RLOCK__OF(timer, rlock__question, timer);
    rlock_client *client = question->gate->client;
    bool sent = rlock__question_recall(question);
    rlock_fault fault = client->up ? RLOCK_FAULT_DOWN : client->fault;
    if (sent) {
        fault = RLOCK_FAULT_UNKNOWN;
    }
    rlock__question_end(question, rlock__on_fault[fault][RLOCK__IN_ATTEMPT], NULL,
                        sent ? NULL : rlock__unsent_text(client));
}

/* Ends the questions that are not answered: nobody waits for longer. */
static void rlock__questions_overdue(rlock_client *client) {
    rlock_link *at = client->questions.next;
    for (; RLOCK__HAS_KINDS && at != &client->questions; at = at->next) {
        rlock__question *question = RLOCK__OF(at, rlock__question, link);
        if (rlock__list_empty(&question->ready.link)) {
            rlock__question_fire(&question->timer);
        }
    }
}

/* There is no connection for a part of the keys: ends the questions that are not answered. */
static void rlock__questions_down(rlock_client *client, const rlock_part *part, rlock_fault fault,
                                  const char *text) {
    rlock_link *at = client->questions.next;
    for (; RLOCK__HAS_KINDS && at != &client->questions; at = at->next) {
        rlock__question *question = RLOCK__OF(at, rlock__question, link);
        if (rlock__list_empty(&question->ready.link) && rlock__gate_in(question->gate, part)) {
            bool sent = rlock__question_recall(question);
            rlock_fault why = sent ? RLOCK_FAULT_UNKNOWN : fault;
            rlock__question_end(question, rlock__on_fault[why][RLOCK__IN_ATTEMPT], NULL, text);
        }
    }
}

static int rlock__ask(rlock__gate *gate, const rlock_terms *terms, rlock_op op, uint8_t flags,
                      uint64_t number, rlock_info_callback *done, void *user) {
    rlock_client *client = gate->client;
    rlock__question *question = (rlock__question *)rlock__alloc(sizeof *question);
    RLOCK_ASSERT(op >= RLOCK_OP_INSPECT);
    RLOCK_ASSERT(client->life == RLOCK__LIVE && gate->references);
    if (!question || rlock_timer_add(client, &question->timer, rlock__question_fire) != RLOCK_OK) {
        rlock__dealloc(question);
        return RLOCK_ERR_NOMEM;
    }
    gate->references++;
    question->gate = gate;
    question->done = done;
    question->user = user;
    question->info.position = -1;
    question->ready.of = RLOCK__OF_QUESTION;
    rlock__list_init(&question->ready.link);
    rlock__list_init(&question->link);
    rlock__list_append(&client->questions, &question->link);
    rlock__request_init(&question->request, gate, gate->kind ? &question->terms : NULL);
    if (gate->kind) {
        question->terms = *terms;
        question->terms.lens = gate->kind->lens;
    }
    question->request.op = (uint8_t)op;
    question->request.flags = flags;
    question->request.token = op == RLOCK_OP_INSPECT ? number : 0;
    question->request.permits = op == RLOCK_OP_SET_PERMITS ? (uint32_t)number : 0;
    question->request.due_us = client->now_us;
    rlock_timer_set(client, &question->timer,
                    rlock__add_ms(client->now_us, client->command_timeout_ms));
    question->out = client->unsent = true;
    client->store->submit(client->store_state, &question->request);
    return RLOCK_OK;
}

#endif /* RLOCK_LOCK_QUESTION_H */
