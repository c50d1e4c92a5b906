/* mariadb.h - a private MariaDB for tests: private.h says what that is
 */

#ifndef TESTS_MARIADB_H
#define TESTS_MARIADB_H

#include <mysql.h>
#include <sys/stat.h>

#include "private.h"

/* The first of these paths that there is: each system has folders of its own for them. */
static inline const char *mariadb_path(const char *const *paths) {
    while (paths[1] != NULL && access(paths[0], R_OK) != 0) {
        paths++;
    }
    return paths[0];
}

static inline const char *mariadb_program(void) {
    static const char *const paths[] = {"/usr/sbin/mariadbd", "/usr/bin/mariadbd",
                                        "/usr/libexec/mariadbd", NULL};
    return mariadb_path(paths);
}

/* The administrator's connection, which blocks; NULL: the server does not answer. */
static inline MYSQL *mariadb_connects(const struct server *server, const char *database) {
    MYSQL *hand = mysql_init(NULL);
    if (mysql_real_connect(hand, NULL, "root", "", database, 0, server->socket,
                           CLIENT_MULTI_STATEMENTS) == NULL) {
        mysql_close(hand);
        hand = NULL;
    }
    return hand;
}

static inline int mariadb_answers(const struct server *server) {
    MYSQL *hand = mariadb_connects(server, NULL);
    if (hand != NULL) {
        mysql_close(hand);
    }
    return hand != NULL;
}

/* Of the next server that is started. */
static const char *mariadb_pages = "--innodb-page-size=16k";

/* Starts the server on the data that is there. */
static inline int mariadb_continue(struct server *server) {
    char port[24], data[96], socket[128];
    const char *argv[] = {mariadb_program(),
                          "--no-defaults",
                          data,
                          socket,
                          port,
                          "--bind-address=127.0.0.1",
                          "--pid-file=pid",
                          "--innodb-flush-log-at-trx-commit=2", /* nobody cuts the power */
                          "--innodb-buffer-pool-size=16M",
                          mariadb_pages,
                          "--skip-name-resolve",
                          "--performance-schema=OFF",
                          "--log-bin=binlog", /* as on any primary */
                          "--server-id=1",
                          "--max-connections=100",
                          NULL};
    snprintf(port, sizeof port, "--port=%d", server->port);
    snprintf(socket, sizeof socket, "--socket=%s", server->socket);
    snprintf(data, sizeof data, "--datadir=%s/data", server->dir);
    server->pid = server_begins(server, argv, NULL);
    return server_waits(server, mariadb_answers);
}

/* Runs one statement, or several, and forgets their results. */
static inline int mariadb_does(MYSQL *hand, const char *text) {
    int status = mysql_query(hand, text);
    while (status == 0) {
        mysql_free_result(mysql_store_result(hand));
        status = mysql_next_result(hand);
    }
    if (status > 0) {
        fprintf(stderr, "%.200s: %s\n", text, mysql_error(hand));
    }
    return status > 0 ? -1 : 0;
}

/* Runs a file of SQL as the operator does: as its client, which knows DELIMITER. */
static inline int mariadb_installs(const struct server *server, const char *file) {
    static char text[65536];
    MYSQL *hand = mariadb_connects(server, "shop");
    FILE *in = fopen(file, "r");
    char line[512], end[8] = ";";
    int status = -1;
    size_t n = 0;
    if (hand != NULL && in != NULL) {
        status = mariadb_does(hand, "SET GLOBAL log_bin_trust_function_creators = 1");
    }
    while (status == 0 && fgets(line, sizeof line, in) != NULL) {
        size_t len = strlen(line), ends = strlen(end);
        if (sscanf(line, "DELIMITER %7s", end) == 1) {
            continue;
        }
        if (n + len >= sizeof text) {
            status = -1;
            break;
        }
        memcpy(text + n, line, len + 1);
        n += len;
        if (len > ends && strncmp(line + len - 1 - ends, end, ends) == 0) {
            text[n - 1 - ends] = 0;
            status = mariadb_does(hand, text);
            n = 0;
        }
    }
    if (in != NULL) {
        fclose(in);
    }
    if (hand != NULL) {
        mariadb_does(hand, "SET GLOBAL log_bin_trust_function_creators = 0");
        mysql_close(hand);
    }
    return status;
}

/* Writes what makes the tables of the server itself, as mariadb-install-db does, which wants more
 * programs than a server needs. */
static inline int mariadb_bootstraps(const struct server *server) {
    static const char *const tables[] = {"/usr/share/mysql/mysql_system_tables.sql",
                                         "/usr/share/mariadb/mysql_system_tables.sql", NULL};
    static const char *const data[] = {"/usr/share/mysql/mysql_system_tables_data.sql",
                                       "/usr/share/mariadb/mysql_system_tables_data.sql", NULL};
    char path[96], line[4096];
    FILE *out, *in;
    size_t i;
    snprintf(path, sizeof path, "%s/bootstrap", server->dir);
    out = fopen(path, "w");
    if (out == NULL) {
        return -1;
    }
    fputs("CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket = NULL;\n", out);
    for (i = 0; i < 2; i++) {
        in = fopen(mariadb_path(i == 0 ? tables : data), "r");
        while (in != NULL && fgets(line, sizeof line, in) != NULL) {
            if (strstr(line, "@current_hostname") == NULL) {
                fputs(line, out);
            }
        }
        if (in != NULL) {
            fclose(in);
        }
    }
    fputs("CREATE DATABASE shop;\n", out);
    return fclose(out);
}

/* Gives the server another port, at which it begins the next time. */
static inline void mariadb_moves(struct server *server) {
    server->port = server_free_port();
    snprintf(server->url, sizeof server->url, "mysql://app@127.0.0.1:%d/shop", server->port);
}

static inline int mariadb_start(struct server *server) {
    char data[96], path[96];
    const char *argv[] = {
        mariadb_program(), "--no-defaults",    "--bootstrap", data, "--innodb-buffer-pool-size=16M",
        mariadb_pages,     "--log-warnings=0", NULL};
    int status;
    MYSQL *hand;
    server->nobodys = true;
    if (server_folder(server) != 0 || mariadb_bootstraps(server) != 0) {
        return -1;
    }
    snprintf(path, sizeof path, "%s/data", server->dir);
    mkdir(path, 0755);
    mariadb_moves(server);
    snprintf(data, sizeof data, "--datadir=%s/data", server->dir);
    if (server_owns(server, path) != 0 || server_executes(server, argv, "bootstrap") != 0 ||
        mariadb_continue(server) != 0) {
        return -1;
    }
    hand = mariadb_connects(server, NULL);
    status = hand == NULL ? -1
                          : mariadb_does(hand, "CREATE USER app; "
                                               "GRANT EXECUTE ON shop.* TO app");
    mysql_close(hand);
    return status;
}

#endif
