/* model_data.h - the commands of model.h that read and write keys */
#ifndef RLOCK_TESTS_MODEL_DATA_H
#define RLOCK_TESTS_MODEL_DATA_H

#include "model_store.h"

/* ---- commands: strings and times to live ---- */

static inline void model__do_get(struct model_request *r) {
    struct model_key *key = model__look(r, r->argv[1]);

    if (key == NULL) {
        model__put_null(r->m->out);
    } else if (model__typed(r, key, MODEL_STRING)) {
        model__put_bulk(r->m->out, key->value.at, key->value.size);
    }
}

static inline void model__do_mget(struct model_request *r) {
    int i;

    r->m->mgets++;
    model__put_count(r->m->out, '*', r->argc - 1);
    for (i = 1; i < r->argc; i++) {
        const struct model_key *key = model__look(r, r->argv[i]);

        if (key == NULL || key->type != MODEL_STRING) {
            model__put_null(r->m->out);
        } else {
            model__put_bulk(r->m->out, key->value.at, key->value.size);
        }
    }
}

struct model_set { /* the options of a SET */
    bool nx, xx, keep;
    int64_t unit; /* ms of one of the time given; 0 = none is given */
    struct model_arg time;
    int64_t amount; /* of that unit */
};

static inline bool model__set_options(struct model_request *r, struct model_set *set) {
    int i;

    memset(set, 0, sizeof *set);
    for (i = 3; i < r->argc; i++) {
        bool px = model__is(r->argv[i], "px"), ex = model__is(r->argv[i], "ex");

        if (model__is(r->argv[i], "nx") && !set->xx) {
            set->nx = true;
        } else if (model__is(r->argv[i], "xx") && !set->nx) {
            set->xx = true;
        } else if (model__is(r->argv[i], "keepttl") && set->unit == 0 &&
                   r->m->flavour != MODEL_REDIS_5) {
            set->keep = true;
        } else if ((px || ex) && !set->keep && set->unit == 0 && i + 1 < r->argc) {
            set->unit = px ? 1 : 1000;
            set->time = r->argv[++i];
        } else {
            return false;
        }
    }
    return true;
}

static inline void model__do_set(struct model_request *r) {
    struct model_key *key;
    struct model_set set;
    int64_t now_ms = model__now_ms(r->m);

    if (!model__set_options(r, &set)) {
        model__fail(r, MODEL__SYNTAX);
        return;
    }
    if (set.unit > 0 && !model__number(r, set.time, &set.amount)) {
        return;
    }
    if (set.unit > 0 && (set.amount <= 0 || set.amount > (INT64_MAX - now_ms) / set.unit)) {
        model__fail(r, "ERR invalid expire time in 'set' command");
        return;
    }
    key = model__look(r, r->argv[1]);
    if (key != NULL ? set.nx : set.xx) {
        model__put_null(r->m->out);
        return;
    }
    if (key == NULL) {
        key = model__create(r, r->argv[1], MODEL_STRING);
    }
    model__key_empty(key);
    key->type = MODEL_STRING;
    model__assign(&key->value, r->argv[2].at, r->argv[2].size);
    if (!set.keep) {
        key->expires_ms = set.unit > 0 ? now_ms + set.amount * set.unit : -1;
    }
    model__changed(r, r->argv[1]);
    model__say(r, "OK");
}

static inline void model__do_incr(struct model_request *r) {
    struct model_key *key = model__look(r, r->argv[1]);
    int64_t number = 0;
    char digits[24];

    if (!model__typed(r, key, MODEL_STRING) ||
        (key != NULL && !model__number(r, model__as_arg(&key->value), &number)) ||
        !model__sum(r, &number, 1)) {
        return;
    }
    if (key == NULL) {
        key = model__create(r, r->argv[1], MODEL_STRING);
    }
    model__assign(&key->value, digits, model__digits(digits, number));
    model__changed(r, r->argv[1]);
    model__count(r, number);
}

static inline void model__do_del(struct model_request *r) {
    int i, count = 0;

    for (i = 1; i < r->argc; i++) {
        count += model__drop(r, r->argv[i]);
    }
    model__count(r, count);
}

static inline void model__do_delifeq(struct model_request *r) {
    const struct model_key *key = model__look(r, r->argv[1]);
    bool is_it;

    r->m->delifeqs++;
    if (!model__typed(r, key, MODEL_STRING)) {
        return;
    }
    is_it = key != NULL && key->value.size == r->argv[2].size &&
            memcmp(key->value.at, r->argv[2].at, key->value.size) == 0;
    model__count(r, is_it && model__drop(r, r->argv[1]));
}

static inline void model__do_exists(struct model_request *r) {
    int i, count = 0;

    for (i = 1; i < r->argc; i++) {
        count += model__look(r, r->argv[i]) != NULL;
    }
    model__count(r, count);
}

static inline void model__do_type(struct model_request *r) {
    static const char *const names[] = {"string", "hash", "list", "zset"};
    const struct model_key *key = model__look(r, r->argv[1]);

    model__say(r, key != NULL ? names[key->type] : "none");
}

static inline void model__do_pttl(struct model_request *r) {
    const struct model_key *key = model__look(r, r->argv[1]);

    model__count(r, key == NULL           ? -2
                    : key->expires_ms < 0 ? -1
                                          : key->expires_ms - model__now_ms(r->m));
}

enum {
    MODEL_NX = 1,
    MODEL_XX = 2,
    MODEL_GT = 4,
    MODEL_LT = 8,
    MODEL_CH = 16,
    MODEL_INCR = 32,
    MODEL_EXPIRE_OPTIONS = MODEL_NX | MODEL_XX | MODEL_GT | MODEL_LT,
    MODEL_ZADD_OPTIONS = MODEL_EXPIRE_OPTIONS | MODEL_CH | MODEL_INCR
};

/* Returns the flag of an option; 0 if the word is none of those. */
static inline unsigned model__option(struct model_arg word, unsigned those) {
    static const char *const words[] = {"nx", "xx", "gt", "lt", "ch", "incr"};
    unsigned which;

    for (which = 0; which < sizeof words / sizeof *words; which++) {
        if ((those >> which & 1) && model__is(word, words[which])) {
            return 1u << which;
        }
    }
    return 0;
}

/* Reads the options of PEXPIRE. Says the error and returns false if they are none, or do not go
 * together. */
static inline bool model__expire_options(struct model_request *r, unsigned *options) {
    unsigned option;
    int i;

    *options = 0;
    for (i = 3; i < r->argc; i++) {
        option = model__option(r->argv[i], MODEL_EXPIRE_OPTIONS);
        if (option == 0) {
            model__fail(r, model__text(r->m, "ERR Unsupported option %.*s",
                                       model__shown(r->argv[i], 128), r->argv[i].at));
            return false;
        }
        *options |= option;
    }
    if ((*options & MODEL_NX) && *options != MODEL_NX) {
        model__fail(r, "ERR NX and XX, GT or LT options at the same time are not compatible");
        return false;
    }
    if ((*options & MODEL_GT) && (*options & MODEL_LT)) {
        model__fail(r, "ERR GT and LT options at the same time are not compatible");
        return false;
    }
    return true;
}

/* True if the options allow the time `when` for a key. A key without a time has the longest one. */
static inline bool model__expire_may(const struct model_key *key, unsigned options, int64_t when) {
    bool endless = key->expires_ms < 0;

    return !((options & MODEL_NX) && !endless) && !((options & MODEL_XX) && endless) &&
           !((options & MODEL_GT) && (endless || when <= key->expires_ms)) &&
           !((options & MODEL_LT) && !endless && when >= key->expires_ms);
}

/* A time that has passed deletes at once, on a master. */
static inline void model__expire(struct model_request *r, int64_t base_ms, const char *name) {
    struct model_key *key;
    unsigned options;
    int64_t when;

    if (!model__expire_options(r, &options) || !model__number(r, r->argv[2], &when)) {
        return;
    }
    if (when > INT64_MAX - base_ms) {
        model__fail(r, model__text(r->m, "ERR invalid expire time in '%s' command", name));
        return;
    }
    when += base_ms;
    key = model__look(r, r->argv[1]);
    if (key == NULL || !model__expire_may(key, options, when)) {
        model__count(r, 0);
        return;
    }
    if (when <= model__now_ms(r->m) && !model__is_replica(r->m)) {
        model__drop(r, r->argv[1]);
    } else {
        key->expires_ms = when;
        model__changed(r, r->argv[1]);
    }
    model__count(r, 1);
}

static inline void model__do_pexpire(struct model_request *r) {
    model__expire(r, model__now_ms(r->m), "pexpire");
}

static inline void model__do_pexpireat(struct model_request *r) {
    model__expire(r, 0, "pexpireat");
}

static inline void model__do_persist(struct model_request *r) {
    struct model_key *key = model__look(r, r->argv[1]);
    bool had = key != NULL && key->expires_ms >= 0;

    if (had) {
        key->expires_ms = -1;
        model__changed(r, r->argv[1]);
    }
    model__count(r, had);
}

/* ---- commands: hashes, and a list for those who expect none ---- */

static inline struct model_field *model__field(const struct model_key *key, struct model_arg name) {
    size_t i;

    for (i = 0; key != NULL && i < key->count; i++) {
        struct model_field *field = &key->fields[i];

        if (field->name.size == name.size &&
            (name.size == 0 || memcmp(field->name.at, name.at, name.size) == 0)) {
            return field;
        }
    }
    return NULL;
}

/* Puts a field into a hash. True if it is new. */
static inline bool model__put_field(struct model_key *key, struct model_arg name,
                                    struct model_arg value) {
    struct model_field *field = model__field(key, name);
    bool is_new = field == NULL;

    if (is_new) {
        field = model__new_field(key);
        model__assign(&field->name, name.at, name.size);
    }
    model__assign(&field->value, value.at, value.size);
    return is_new;
}

static inline void model__do_hset(struct model_request *r) {
    struct model_key *key;
    int i, count = 0;

    if (r->argc % 2 != 0) {
        model__fail(r, "ERR wrong number of arguments for 'hset' command");
        return;
    }
    key = model__look(r, r->argv[1]);
    if (!model__typed(r, key, MODEL_HASH)) {
        return;
    }
    if (key == NULL) {
        key = model__create(r, r->argv[1], MODEL_HASH);
    }
    for (i = 2; i < r->argc; i += 2) {
        count += model__put_field(key, r->argv[i], r->argv[i + 1]);
    }
    model__changed(r, r->argv[1]);
    model__count(r, count);
}

static inline void model__do_hincrby(struct model_request *r) {
    struct model_key *key;
    struct model_field *field;
    struct model_arg value;
    int64_t more, number = 0;
    char digits[24];

    if (!model__number(r, r->argv[3], &more)) {
        return;
    }
    key = model__look(r, r->argv[1]);
    if (!model__typed(r, key, MODEL_HASH)) {
        return;
    }
    field = model__field(key, r->argv[2]);
    if (field != NULL && !model__integer(model__as_arg(&field->value), &number)) {
        model__fail(r, "ERR hash value is not an integer");
        return;
    }
    if (!model__sum(r, &number, more)) {
        return;
    }
    if (key == NULL) {
        key = model__create(r, r->argv[1], MODEL_HASH);
    }
    value.at = digits;
    value.size = model__digits(digits, number);
    model__put_field(key, r->argv[2], value);
    model__changed(r, r->argv[1]);
    model__count(r, number);
}

static inline void model__do_hget(struct model_request *r) {
    const struct model_key *key = model__look(r, r->argv[1]);
    const struct model_field *field;

    if (!model__typed(r, key, MODEL_HASH)) {
        return;
    }
    field = model__field(key, r->argv[2]);
    if (field != NULL) {
        model__put_bulk(r->m->out, field->value.at, field->value.size);
    } else {
        model__put_null(r->m->out);
    }
}

static inline void model__do_hexists(struct model_request *r) {
    const struct model_key *key = model__look(r, r->argv[1]);

    if (model__typed(r, key, MODEL_HASH)) {
        model__count(r, model__field(key, r->argv[2]) != NULL);
    }
}

static inline void model__do_hgetall(struct model_request *r) {
    const struct model_key *key = model__look(r, r->argv[1]);
    size_t i;

    if (!model__typed(r, key, MODEL_HASH)) {
        return;
    }
    model__put_count(r->m->out, '*', key != NULL ? (int64_t)key->count * 2 : 0);
    for (i = 0; key != NULL && i < key->count; i++) {
        model__put_bulk(r->m->out, key->fields[i].name.at, key->fields[i].name.size);
        model__put_bulk(r->m->out, key->fields[i].value.at, key->fields[i].value.size);
    }
}

static inline void model__take_field(struct model_key *key, struct model_field *field) {
    model__release(&field->name);
    model__release(&field->value);
    key->count--;
    memmove(field, field + 1, (size_t)(key->fields + key->count - field) * sizeof *field);
}

/* Says how many were taken out of the key, and deletes a key that is empty. */
static inline void model__took(struct model_request *r, const struct model_key *key, int count) {
    if (count > 0 && key->count == 0) {
        model__drop(r, r->argv[1]);
    } else if (count > 0) {
        model__changed(r, r->argv[1]);
    }
    model__count(r, count);
}

static inline void model__remove(struct model_request *r, enum model_type type) {
    struct model_key *key = model__look(r, r->argv[1]);
    int i, count = 0;

    if (!model__typed(r, key, type)) {
        return;
    }
    for (i = 2; key != NULL && i < r->argc; i++) {
        struct model_field *field = model__field(key, r->argv[i]);

        if (field != NULL) {
            model__take_field(key, field);
            count++;
        }
    }
    model__took(r, key, count);
}

static inline void model__do_hdel(struct model_request *r) {
    model__remove(r, MODEL_HASH);
}

/* A list: what is in it is never read. */
static inline void model__do_lpush(struct model_request *r) {
    struct model_key *key = model__look(r, r->argv[1]);

    if (!model__typed(r, key, MODEL_LIST)) {
        return;
    }
    if (key == NULL) {
        key = model__create(r, r->argv[1], MODEL_LIST);
    }
    key->count += (size_t)r->argc - 2;
    model__changed(r, r->argv[1]);
    model__count(r, (int64_t)key->count);
}

/* ---- commands: sorted sets ---- */

/* No more digits than it takes to tell a number from others, and an exponent only where there were
 * many zeros without it. */
static inline void model__put_shortest(char *out, size_t room, double number) {
    char text[32], digits[32];
    int count = 0, exponent, power;
    size_t i, size;

    do {
        snprintf(text, sizeof text, "%.*e", count, number);
    } while (count++ < 16 && strtod(text, NULL) != number);
    size = strcspn(text, "e");
    exponent = (int)strtol(text + size + 1, NULL, 10);
    power = exponent - count + 1; /* of ten, behind the digits */
    for (i = 0, count = 0; i < size; i++) {
        if (text[i] >= '0' && text[i] <= '9') {
            digits[count++] = text[i];
        }
    }
    if (power >= 0 && exponent < count + 7) {
        snprintf(out, room, "%s%.*s%.*s", number < 0 ? "-" : "", count, digits, power, "0000000");
    } else if (power < 0 && (power > -7 || (exponent > -4 && exponent < 4))) {
        snprintf(out, room, "%.*f", -power, number);
    } else {
        snprintf(out, room, "%.*se%+d", (int)size, text, exponent);
    }
}

/* A number as an argument of a script, or as a score. */
static inline void model__put_double(const struct model *m, char *out, size_t room, double number) {
    bool infinite = number > DBL_MAX || number < -DBL_MAX || number != number;
    bool integer = number >= -4611686018427387904.0 && number <= 4611686018427387904.0 &&
                   number == (double)(int64_t)number;

    if (m->flavour != MODEL_VALKEY_9 || number == 0 || infinite) {
        snprintf(out, room, "%.17g", number);
    } else if (integer) {
        snprintf(out, room, "%.0f", number);
    } else {
        model__put_shortest(out, room, number);
    }
}

static inline void model__put_score(struct model *m, double score) {
    char digits[64];

    model__put_double(m, digits, sizeof digits, score);
    model__put_word(m->out, digits);
}

/* Reads a number like strtod, infinity too; in Valkey without blanks in front and without
 * hexadecimal digits. An empty text is 0. */
static inline bool model__double(struct model *m, struct model_arg arg, double *out) {
    char *end;

    model__assign(&m->number, arg.at, arg.size);
    if (m->flavour == MODEL_VALKEY_9 && strpbrk(m->number.at, "xX \t\r\n\v\f") != NULL) {
        return false;
    }
    *out = strtod(m->number.at, &end);
    return *end == '\0' && *out == *out;
}

/* Says the error and returns false if it is no number. */
static inline bool model__score(struct model_request *r, struct model_arg arg, double *out) {
    bool fine = arg.size > 0 && strchr(" \t\r\n\v\f", arg.at[0]) == NULL;

    errno = 0;
    fine = fine && model__double(r->m, arg, out) && strlen(r->m->number.at) == arg.size;
    if (!fine || (errno == ERANGE && (*out == 0 || *out > DBL_MAX || *out < -DBL_MAX))) {
        model__fail(r, MODEL__NOT_FLOAT);
        return false;
    }
    return true;
}

struct model_range { /* of scores; one that is open does not hold its end */
    double min, max;
    bool min_open, max_open;
};

static inline bool model__bound(struct model *m, struct model_arg arg, double *out, bool *open) {
    *open = arg.size > 0 && arg.at[0] == '(';
    arg.at += *open;
    arg.size -= *open;
    return model__double(m, arg, out);
}

/* Reads the bounds in arguments 2 and 3. Says the error and returns false if they are none. */
static inline bool model__range(struct model_request *r, struct model_range *range) {
    if (!model__bound(r->m, r->argv[2], &range->min, &range->min_open) ||
        !model__bound(r->m, r->argv[3], &range->max, &range->max_open)) {
        model__fail(r, MODEL__NO_RANGE);
        return false;
    }
    return true;
}

struct model_slice { /* of what is in a key: from the first on, up to the last and without it */
    size_t first, last;
};

static inline struct model_slice model__within(const struct model_key *key,
                                               const struct model_range *range) {
    size_t count = key != NULL ? key->count : 0;
    struct model_slice slice = {0, 0};
    double score;

    for (; slice.first < count; slice.first++) {
        score = key->fields[slice.first].score;
        if (range->min_open ? score > range->min : score >= range->min) {
            break;
        }
    }
    for (slice.last = slice.first; slice.last < count; slice.last++) {
        score = key->fields[slice.last].score;
        if (range->max_open ? score >= range->max : score > range->max) {
            break;
        }
    }
    return slice;
}

static inline bool model__stands_behind(const struct model_field *a, const struct model_field *b) {
    size_t common = a->name.size < b->name.size ? a->name.size : b->name.size;
    int order = memcmp(a->name.at, b->name.at, common);

    return a->score > b->score ||
           (a->score == b->score && (order > 0 || (order == 0 && a->name.size > b->name.size)));
}

/* Puts a new member at its place: by its score, then by its bytes. */
static inline void model__put_member(struct model_key *key, struct model_arg name, double score) {
    struct model_field made, *field = model__new_field(key);

    model__assign(&field->name, name.at, name.size);
    field->score = score == 0 ? 0 : score; /* the servers keep no sign of it */
    made = *field;
    for (; field > key->fields && model__stands_behind(field - 1, &made); field--) {
        *field = *(field - 1);
    }
    *field = made;
}

enum model_zadded { MODEL_ADDED, MODEL_UPDATED, MODEL_AS_IT_WAS, MODEL_SKIPPED, MODEL_NO_NUMBER };

/* `score` is what is added, if the options say so; afterwards what the member has. */
static inline enum model_zadded model__zadd_one(struct model_key *key, unsigned options,
                                                struct model_arg name, double *score) {
    struct model_field *field = model__field(key, name);

    if (key == NULL || (options & (field != NULL ? MODEL_NX : MODEL_XX))) {
        return MODEL_SKIPPED;
    }
    if (field == NULL) {
        model__put_member(key, name, *score);
        return MODEL_ADDED;
    }
    *score += options & MODEL_INCR ? field->score : 0;
    if (*score != *score) {
        return MODEL_NO_NUMBER;
    }
    if (((options & MODEL_LT) && *score >= field->score) ||
        ((options & MODEL_GT) && *score <= field->score)) {
        return MODEL_SKIPPED;
    }
    if (*score == field->score) {
        return MODEL_AS_IT_WAS;
    }
    model__take_field(key, field);
    model__put_member(key, name, *score);
    return MODEL_UPDATED;
}

/* Returns where the options end. Says the error and returns -1 if they do not go together, or no
 * pairs of a score and a member follow. */
static inline int model__zadd_options(struct model_request *r, unsigned *options) {
    unsigned known = r->m->flavour == MODEL_REDIS_5 ? ~(unsigned)(MODEL_GT | MODEL_LT) : ~0u;
    unsigned option = 1;
    int i;

    for (i = 2; i < r->argc && option != 0; i += option != 0) {
        option = model__option(r->argv[i], MODEL_ZADD_OPTIONS & known);
        *options |= option;
    }
    if (i == r->argc || (r->argc - i) % 2 != 0) {
        model__fail(r, MODEL__SYNTAX);
    } else if ((*options & MODEL_NX) && (*options & MODEL_XX)) {
        model__fail(r, "ERR XX and NX options at the same time are not compatible");
    } else if (((*options & MODEL_NX) && (*options & (MODEL_GT | MODEL_LT))) ||
               ((*options & MODEL_GT) && (*options & MODEL_LT))) {
        model__fail(r, "ERR GT, LT, and/or NX options at the same time are not compatible");
    } else if ((*options & MODEL_INCR) && r->argc - i > 2) {
        model__fail(r, "ERR INCR option supports a single increment-element pair");
    } else {
        return i;
    }
    return -1;
}

static inline void model__say_zadded(struct model_request *r, unsigned options,
                                     const int counts[MODEL_NO_NUMBER + 1], double score) {
    if (counts[MODEL_NO_NUMBER] > 0) {
        model__fail(r, "ERR resulting score is not a number (NaN)");
    } else if (!(options & MODEL_INCR)) {
        model__count(r, counts[MODEL_ADDED] + (options & MODEL_CH ? counts[MODEL_UPDATED] : 0));
    } else if (counts[MODEL_SKIPPED] > 0) {
        model__put_null(r->m->out);
    } else {
        model__put_score(r->m, score);
    }
}

static inline void model__zadd(struct model_request *r, unsigned options) {
    int first = model__zadd_options(r, &options), counts[MODEL_NO_NUMBER + 1] = {0}, i;
    struct model_key *key;
    double score = 0;

    for (i = first; i >= 0 && i < r->argc; i += 2) {
        if (!model__score(r, r->argv[i], &score)) {
            return;
        }
    }
    key = first >= 0 ? model__look(r, r->argv[1]) : NULL;
    if (first < 0 || !model__typed(r, key, MODEL_ZSET)) {
        return;
    }
    if (key == NULL && !(options & MODEL_XX)) {
        key = model__create(r, r->argv[1], MODEL_ZSET);
    }
    for (i = first; i < r->argc; i += 2) {
        model__double(r->m, r->argv[i], &score);
        counts[model__zadd_one(key, options, r->argv[i + 1], &score)]++;
    }
    if (counts[MODEL_ADDED] + counts[MODEL_UPDATED] > 0) {
        model__changed(r, r->argv[1]);
    }
    model__say_zadded(r, options, counts, score);
}

static inline void model__do_zadd(struct model_request *r) {
    model__zadd(r, 0);
}

static inline void model__do_zincrby(struct model_request *r) {
    model__zadd(r, MODEL_INCR);
}

static inline void model__do_zrem(struct model_request *r) {
    model__remove(r, MODEL_ZSET);
}

static inline void model__do_zremrangebyscore(struct model_request *r) {
    struct model_key *key;
    struct model_range range;
    struct model_slice slice;
    size_t i;

    if (!model__range(r, &range)) {
        return;
    }
    key = model__look(r, r->argv[1]);
    if (model__typed(r, key, MODEL_ZSET)) {
        slice = model__within(key, &range);
        for (i = slice.first; i < slice.last; i++) {
            model__take_field(key, &key->fields[slice.first]);
        }
        model__took(r, key, (int)(slice.last - slice.first));
    }
}

static inline void model__do_zcard(struct model_request *r) {
    const struct model_key *key = model__look(r, r->argv[1]);

    if (model__typed(r, key, MODEL_ZSET)) {
        model__count(r, key != NULL ? (int64_t)key->count : 0);
    }
}

static inline void model__do_zcount(struct model_request *r) {
    const struct model_key *key;
    struct model_range range;
    struct model_slice slice;

    if (!model__range(r, &range)) {
        return;
    }
    key = model__look(r, r->argv[1]);
    if (model__typed(r, key, MODEL_ZSET)) {
        slice = model__within(key, &range);
        model__count(r, (int64_t)(slice.last - slice.first));
    }
}

static inline void model__do_zscore(struct model_request *r) {
    const struct model_key *key = model__look(r, r->argv[1]);
    const struct model_field *field;

    if (!model__typed(r, key, MODEL_ZSET)) {
        return;
    }
    field = model__field(key, r->argv[2]);
    if (field != NULL) {
        model__put_score(r->m, field->score);
    } else {
        model__put_null(r->m->out);
    }
}

static inline void model__do_zrank(struct model_request *r) {
    const struct model_key *key;
    const struct model_field *field;

    if (r->argc > 3) {
        model__fail(r, MODEL__SYNTAX);
        return;
    }
    key = model__look(r, r->argv[1]);
    if (!model__typed(r, key, MODEL_ZSET)) {
        return;
    }
    field = model__field(key, r->argv[2]);
    if (field != NULL) {
        model__count(r, field - key->fields);
    } else {
        model__put_null(r->m->out);
    }
}

static inline void model__put_members(struct model_request *r, const struct model_key *key,
                                      struct model_slice slice, bool with_scores) {
    model__put_count(r->m->out, '*', (int64_t)(slice.last - slice.first) * (with_scores ? 2 : 1));
    for (; slice.first < slice.last; slice.first++) {
        const struct model_field *field = &key->fields[slice.first];

        model__put_bulk(r->m->out, field->name.at, field->name.size);
        if (with_scores) {
            model__put_score(r->m, field->score);
        }
    }
}

/* Places from 0 on, or from -1 back, with the last one. */
static inline struct model_slice model__places(const struct model_key *key, int64_t start,
                                               int64_t stop) {
    int64_t count = key != NULL ? (int64_t)key->count : 0;
    struct model_slice slice = {0, 0};

    start += start < 0 ? count : 0;
    stop += stop < 0 ? count : 0;
    start = start < 0 ? 0 : start;
    if (start <= stop && start < count) {
        slice.first = (size_t)start;
        slice.last = (size_t)(stop < count ? stop + 1 : count);
    }
    return slice;
}

static inline void model__do_zrange(struct model_request *r) {
    const struct model_key *key;
    int64_t start, stop;
    int i;

    for (i = 4; i < r->argc; i++) {
        if (!model__is(r->argv[i], "withscores")) {
            model__fail(r, MODEL__SYNTAX);
            return;
        }
    }
    if (!model__number(r, r->argv[2], &start) || !model__number(r, r->argv[3], &stop)) {
        return;
    }
    key = model__look(r, r->argv[1]);
    if (model__typed(r, key, MODEL_ZSET)) {
        model__put_members(r, key, model__places(key, start, stop), r->argc > 4);
    }
}

struct model_by_score { /* the options of a ZRANGEBYSCORE */
    bool with_scores;
    int64_t skipped, most; /* below 0: all */
};

/* Says the error and returns false if they are none. */
static inline bool model__by_score_options(struct model_request *r, struct model_by_score *by) {
    int i;

    by->with_scores = false;
    by->skipped = 0;
    by->most = -1;
    for (i = 4; i < r->argc; i++) {
        if (model__is(r->argv[i], "withscores")) {
            by->with_scores = true;
        } else if (model__is(r->argv[i], "limit") && i + 2 < r->argc) {
            if (!model__number(r, r->argv[i + 1], &by->skipped) ||
                !model__number(r, r->argv[i + 2], &by->most)) {
                return false;
            }
            i += 2;
        } else {
            model__fail(r, MODEL__SYNTAX);
            return false;
        }
    }
    return true;
}

static inline void model__do_zrangebyscore(struct model_request *r) {
    const struct model_key *key;
    struct model_by_score by;
    struct model_range range;
    struct model_slice slice;
    size_t count;

    if (!model__by_score_options(r, &by) || !model__range(r, &range)) {
        return;
    }
    key = model__look(r, r->argv[1]);
    if (!model__typed(r, key, MODEL_ZSET)) {
        return;
    }
    slice = model__within(key, &range);
    count = slice.last - slice.first;
    slice.first += by.skipped < 0 || (uint64_t)by.skipped > count ? count : (size_t)by.skipped;
    if (by.most >= 0 && (uint64_t)by.most < slice.last - slice.first) {
        slice.last = slice.first + (size_t)by.most;
    }
    model__put_members(r, key, slice, by.with_scores);
}

#endif /* RLOCK_TESTS_MODEL_DATA_H */
