/* ------------------------------------------------------------------------------------------------
 * >>settings - the numbers of a configuration: their names, limits and defaults, once
 */

#ifndef RLOCK_RUNTIME_SETTINGS_H
#define RLOCK_RUNTIME_SETTINGS_H

#include "public/head.h"
#include "public/client.h"
#include "public/lock.h"
#include "base/platform.h"

enum { RLOCK__INT, RLOCK__INT64, RLOCK__STRING, RLOCK__WIRE, RLOCK__YES_NO };

typedef struct rlock__setting { /* a field of rlock_config; zero stands for its default */
    const char *name;
    int32_t most; /* of a number, with least and standard */
    uint16_t standard;
    uint16_t at; /* its offset */
    int8_t least;
    uint8_t type;
} rlock__setting;

#define RLOCK__SETTING(name, type, least, most, standard) \
    { #name, most, standard, offsetof(rlock_config, name), least, type }

static const rlock__setting rlock__settings[] = {
    RLOCK__SETTING(watchdog_lease_ms, RLOCK__INT64, RLOCK_LEASE_MIN_MS, RLOCK_LEASE_MAX_MS, 30000),
    RLOCK__SETTING(command_timeout_ms, RLOCK__INT64, 1, RLOCK_LEASE_MAX_MS, 1000),
    RLOCK__SETTING(poll_ms, RLOCK__INT64, 1, RLOCK_LEASE_MAX_MS, 250),
    RLOCK__SETTING(drift_permille, RLOCK__INT, 1, 500, 10),
    RLOCK__SETTING(handovers, RLOCK__INT, -1, 4096, 256),
#if RLOCK__HAS_REPLICAS || !RLOCK__HAS_REDIS || RLOCK__HAS_URL /* which may set them in vain */
    RLOCK__SETTING(quarantine_ms, RLOCK__INT64, RLOCK_LEASE_MIN_MS, RLOCK_LEASE_MAX_MS, 0),
    RLOCK__SETTING(replicas, RLOCK__INT, 1, 100, 0),
    RLOCK__SETTING(replicas_ms, RLOCK__INT64, 1, RLOCK_LEASE_MAX_MS, 0),
#endif
};

#define RLOCK__SETTINGS (int)(sizeof rlock__settings / sizeof rlock__settings[0])

RLOCK__NOINLINE static int64_t rlock__number(const rlock_config *config,
                                             const rlock__setting *row) {
    const char *field = (const char *)config + row->at;
    RLOCK_ASSERT(row->type <= RLOCK__INT64);
    return row->type == RLOCK__INT64 ? *(const int64_t *)(const void *)field
                                     : *(const int *)(const void *)field;
}

RLOCK__NOINLINE static void rlock__set_number(rlock_config *config, const rlock__setting *row,
                                              int64_t value) {
    char *field = (char *)config + row->at;
    RLOCK_ASSERT(row->type <= RLOCK__INT64);
    if (row->type == RLOCK__INT64) {
        *(int64_t *)(void *)field = value;
    } else {
        *(int *)(void *)field = (int)value;
    }
}

static bool rlock__within(int64_t value, int64_t least, int64_t most) {
    RLOCK_ASSERT(least <= most);
    return value == 0 || (value >= least && value <= most);
}

/* Appends to the n bytes of a line what the limits of a number are. */
static void rlock__line_limits(char *line, size_t n, const rlock__setting *row) {
    RLOCK_ASSERT(row->least <= row->most);
    n = rlock__line_number(line, n, " must be ", row->least);
    rlock__line_number(line, n, " to ", row->most);
}

/* Returns what is wrong with what the settings for replicas and quarantine are together, or NULL;
 * puts the default that depends on another setting. */
static const char *rlock__replicas_fault(rlock_config *config) {
#if RLOCK__HAS_REPLICAS || !RLOCK__HAS_REDIS
    if (config->quarantine_ms && config->watchdog_lease_ms > config->quarantine_ms) {
        return RLOCK__TEXT("config.watchdog_lease_ms is above config.quarantine_ms");
    }
    if (!config->replicas_ms) {
        config->replicas_ms = config->command_timeout_ms < 4 ? 1 : config->command_timeout_ms / 4;
    }
    return config->replicas && config->replicas_ms > config->command_timeout_ms / 3
               ? RLOCK__TEXT("config.replicas: config.command_timeout_ms must be at least three "
                             "times config.replicas_ms, which is at least 1")
               : NULL;
#else
    return config->replicas || config->replicas_ms || config->quarantine_ms
               ? RLOCK__NEEDS("config.replicas or config.quarantine_ms", "RLOCK_WITH_REPLICAS")
               : NULL;
#endif
}

/* Checks the numbers, then puts the defaults where there are none. False: the line says what is
 * wrong. */
static bool rlock__numbers_resolve(rlock_config *config, char *line) {
    const rlock__setting *row;
    const char *wrong;
    for (row = rlock__settings; row < rlock__settings + RLOCK__SETTINGS; row++) {
        int64_t value = rlock__number(config, row);
        if (!rlock__within(value, row->least, row->most)) {
            rlock__line_limits(line, rlock__line_add(line, 0, "config.", row->name), row);
            return false;
        }
        rlock__set_number(config, row, value ? value : row->standard);
    }
    RLOCK_ASSERT(config->command_timeout_ms > 0 && config->poll_ms > 0);
    wrong = rlock__replicas_fault(config);
    if (wrong) {
        rlock__line_add(line, 0, wrong, "");
    }
    return wrong == NULL;
}

#endif /* RLOCK_RUNTIME_SETTINGS_H */
