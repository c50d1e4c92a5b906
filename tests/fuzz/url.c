/* url.c - any text as config.url
 *
 * It is taken, or refused with one line. The same text with a password before its first "@" is
 * refused or taken without showing that.
 */

#include "fuzz.h"

#define SECRET "s3cr3t"

static void must(bool good, const char *url, const char *line) {
    if (!good) {
        sim_failed("%s: %s", url, line);
    }
}

/* How long it is where each byte that is no text is shown as \xff. */
static size_t shown(const char *url) {
    size_t size = 0;
    for (; *url != 0; url++) {
        size += *url >= ' ' && *url < 127 ? 1 : 4;
    }
    return size;
}

static void read_it(const char *url) {
    rlock_config config;
    char line[RLOCK__LINE] = "", *texts = NULL;
    int status;
    memset(&config, 0, sizeof config);
    config.url = url;
    status = rlock__url_resolve(&config, false, &texts, line);
    must(status == (line[0] == 0 ? RLOCK_OK : RLOCK_ERR_ARG), url, line);
    must(line[0] == 0 || strncmp(line, "config.url", 10) == 0, url, line);
    must(strlen(line) < sizeof line - 1 || shown(url) > 100, url, line);
    must(strstr(line, SECRET) == NULL, url, line);
    if (status == RLOCK_OK) {
        must(config.unix_path == NULL || config.unix_path[0] == '/', url, "a path");
        must(config.port >= 0 && config.port <= 65535 && config.database >= 0, url, "a number");
        must((config.sentinels == NULL) == (config.sentinel_primary == NULL), url, "a primary");
        must(config.password != NULL || config.username == NULL, url, "a user");
        must(config.host == NULL || strstr(config.host, SECRET) == NULL, url, "a host");
    }
    rlock__dealloc(texts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *url = (char *)calloc(size + sizeof SECRET + 1, 1), *at;
    memcpy(url, data, size);
    if (strstr(url, SECRET) == NULL) {
        read_it(url);
        at = strchr(url, '@');
        if (at != NULL && memchr(url, ':', (size_t)(at - url)) != NULL) {
            memmove(at + sizeof SECRET - 1, at, strlen(at) + 1);
            memcpy(at, SECRET, sizeof SECRET - 1);
            read_it(url);
        }
    }
    free(url);
    return 0;
}
