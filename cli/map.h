/* map.h - where the addresses that servers announce are reached from here: --map and RLOCK_MAP */
#ifndef RLOCK_CLI_MAP_H
#define RLOCK_CLI_MAP_H

#define MAP_MOST 64

struct map_address {
    char host[RLOCK__HOST_MAX + 1];
    int port;
};

static struct { struct map_address from, to; } map_rows[MAP_MOST];
static size_t map_count;

/* Reads host:port. Returns false if it is not that. */
static bool map_read(const char *text, size_t len, struct map_address *address) {
    char copy[RLOCK__HOST_MAX + sizeof "[]:65535"] = "";
    const char *at = copy, *host;
    size_t host_len;
    address->port = 0;
    if (len >= sizeof copy) {
        return false;
    }
    memcpy(copy, text, len);
    if (!rlock__hosts_next(&at, &host, &host_len, &address->port) || at != copy + len) {
        return false;
    }
    snprintf(address->host, sizeof address->host, "%.*s", (int)host_len, host);
    return address->port != 0;
}

/* Adds FROM=TO, or several with commas between them. Returns what is wrong with them, or NULL. */
static const char *map_add(const char *text) {
    for (;;) {
        size_t len = strcspn(text, ","), from = strcspn(text, "=");
        if (map_count == MAP_MOST) {
            return "more than 64 addresses";
        }
        if (from >= len || !map_read(text, from, &map_rows[map_count].from) ||
            !map_read(text + from + 1, len - from - 1, &map_rows[map_count].to)) {
            return "expected FROM=TO, each like host:6379 or [::1]:6379";
        }
        map_count++;
        if (text[len] == 0) {
            return NULL;
        }
        text += len + 1;
    }
}

/* config.map_address. */
static bool map_address(void *user, const char *host, int port, char *new_host, size_t room,
                        int *new_port) {
    size_t i = 0;
    (void)user;
    while (i < map_count &&
           (map_rows[i].from.port != port || strcmp(map_rows[i].from.host, host) != 0)) {
        i++;
    }
    if (i == map_count) {
        return false;
    }
    snprintf(new_host, room, "%s", map_rows[i].to.host);
    *new_port = map_rows[i].to.port;
    return true;
}

#endif /* RLOCK_CLI_MAP_H */
