/* ------------------------------------------------------------------------------------------------
 * >>mode - which mode a gate has: its waiters contend, or queue
 */

#ifndef RLOCK_CORE_MODE_H
#define RLOCK_CORE_MODE_H

#include "public/head.h"
#include "public/status.h"
#include "public/store.h"
#include "base/platform.h"
#include "base/list.h"
#include "base/pool.h"
#include "core/client.h"
#include "core/claim.h"
#include "core/gate.h"
#include "core/contend.h"
#include "core/queue.h"

static const rlock__mode *rlock__mode_of(const rlock__gate *gate) {
    return rlock__queued(gate) ? &rlock__queueing : &rlock__contending;
}

static void rlock__gate_fire(rlock_timer *timer) {
    rlock__gate *gate = RLOCK__OF(timer, rlock__crowd, timer)->gate;
    rlock__mode_of(gate)->attempt(gate);
}

/* False: no memory for a crowd. */
static bool rlock__gate_crowd(rlock__gate *gate) {
    rlock_client *client = rlock__client_of(gate);
    rlock__crowd *crowd;
    if (gate->crowd != &client->nobody) {
        return true;
    }
    crowd = (rlock__crowd *)rlock__pool_take(&client->crowds, sizeof *crowd);
    if (crowd && rlock_timer_add(client, &crowd->timer, rlock__gate_fire) != RLOCK_OK) {
        rlock__crowd_put(client, crowd);
        crowd = NULL;
    }
    if (crowd) {
        rlock__list_init(&crowd->waiting);
        crowd->client = client;
        crowd->gate = gate;
        gate->crowd = crowd;
    }
    return crowd != NULL;
}

static void rlock__gate_wake_other(rlock__gate *gate, const void *with) {
    if (gate != with) {
        rlock__mode_of(gate)->wake(gate, RLOCK__HINT_OURS);
    }
}

/* The keys of this gate changed: others of this client may want one of them as something else. */
static void rlock__gate_wake_others(rlock__gate *gate) {
    const char *key;
    uint32_t i;
    for (i = 0; rlock__gate_key(gate, &key, i); i++) {
        rlock__key_each(rlock__client_of(gate), key, rlock__gate_key_len(gate, i),
                        rlock__gate_wake_other, gate);
    }
}

#endif /* RLOCK_CORE_MODE_H */
