/* password.h - a password that stands in a file, and changes while rlock runs
 *
 * The file is looked at once a second, each time that rlock connects anew, and when the server has
 * refused the password. A file of --url-file is looked at too: what may change in it is the
 * password. What the file says is never shown. */
#ifndef RLOCK_CLI_PASSWORD_H
#define RLOCK_CLI_PASSWORD_H

#include "cli.h"

#define PASSWORD_FILE_MAX 65536
#define PASSWORD_LOOK_S 1.0

static struct {
    const char *option, *file; /* what is looked at; NULL = nothing */
    bool urls;                 /* it has URLs, whose servers may not change: */
    char *servers;             /* ... these, without users and passwords */
    struct stat seen;          /* the file, when it was last read */
    char *user, *text;         /* what the server was given last; NULL = none */
    ev_timer timer;
} pass;

/* Reads a file: *text is what it says, without the line ends behind it. Returns NULL, or what is
 * wrong. */
static const char *password_read(const char *path, char **text) {
    static char buffer[PASSWORD_FILE_MAX + 1];
    FILE *file = fopen(path, "re");
    size_t length = file != NULL ? fread(buffer, 1, sizeof buffer, file) : 0;
    const char *wrong = file == NULL || ferror(file) ? strerror(errno) : NULL;
    if (file != NULL) {
        fclose(file);
    }
    if (wrong != NULL) {
        return wrong;
    }
    if (length == sizeof buffer) {
        return "it has more than 65536 bytes";
    }
    if (memchr(buffer, 0, length) != NULL) {
        return "it has a NUL byte";
    }
    while (length > 0 && (buffer[length - 1] == '\n' || buffer[length - 1] == '\r')) {
        length--;
    }
    buffer[length] = 0;
    *text = buffer;
    return length > 0 ? NULL : "it is empty";
}

/* Takes user and password out of a URL: "redis://user:password@host" becomes "redis://host". Both
 * are copied, with bytes for %XX; NULL = there is none. False: something else follows a %. */
static bool password_take(char *url, char **user, char **word) {
    char *from = strstr(url, "://"), *end, *colon;
    *user = *word = NULL;
    from = from != NULL ? from + 3 : url;
    for (end = from + strcspn(from, "/?#"); end > from && end[-1] != '@'; end--) {
    }
    if (end == from) {
        return true;
    }
    end[-1] = 0;
    colon = strchr(from, ':');
    if (colon != NULL) {
        *colon = 0;
        *word = colon[1] != 0 ? strdup(colon + 1) : NULL;
    }
    *user = from[0] != 0 ? strdup(from) : NULL;
    memmove(from, end, strlen(end) + 1);
    return (*user == NULL || rlock__url_decode(*user) == NULL) &&
           (*word == NULL || rlock__url_decode(*word) == NULL);
}

static bool password_same(const char *one, const char *other) {
    return one == other || (one != NULL && other != NULL && strcmp(one, other) == 0);
}

/* Takes users and passwords out of one URL, or of those of a quorum, with commas or line ends
 * between them. False: one server has others than the next. */
static bool password_take_all(const char *urls, char **servers, char **user, char **word) {
    const char *between = cli.members != NULL ? ", \t\r\n" : " \t\r\n";
    char *text = strdup(urls), *url, *rest = NULL;
    size_t used = 0;
    bool same = true;
    *servers = (char *)calloc(1, strlen(urls) + 2);
    *user = *word = NULL;
    for (url = strtok_r(text, between, &rest); url != NULL; url = strtok_r(NULL, between, &rest)) {
        char *its_user, *its_word;
        if (!password_take(url, &its_user, &its_word) ||
            (used > 0 && !(password_same(*user, its_user) && password_same(*word, its_word)))) {
            same = false;
        }
        free(used > 0 ? its_user : NULL);
        free(used > 0 ? its_word : NULL);
        if (used == 0) {
            *user = its_user;
            *word = its_word;
        }
        used += (size_t)sprintf(*servers + used, "%s%s", used > 0 ? "," : "", url);
    }
    free(text);
    return same;
}

/* Keeps what the file says now. Returns NULL, or what is wrong: then nothing has changed. *news: it
 * is another password than the one before. */
static const char *password_keep(bool *news) {
    char *text, *servers = NULL, *user = NULL, *word = NULL;
    const char *wrong = password_read(pass.file, &text);
    bool same = true;
    *news = false;
    if (wrong != NULL) {
        return wrong;
    }
    if (pass.urls) {
        same = password_take_all(text, &servers, &user, &word);
        if (!same || !password_same(servers, pass.servers)) {
            wrong = "more than the password of all servers has changed: rlock keeps using the "
                    "former values";
        }
    } else {
        user = pass.user != NULL ? strdup(pass.user) : NULL;
        word = strdup(text);
    }
    free(servers);
    if (wrong != NULL || (password_same(user, pass.user) && password_same(word, pass.text))) {
        free(user);
        free(word);
        return wrong;
    }
    free(pass.user);
    free(pass.text);
    pass.user = user;
    pass.text = word;
    *news = true;
    return NULL;
}

static void password_give(void) {
    int status;
    if (cli.client != NULL && pass.text != NULL) {
        status = rlock_client_set_credentials(cli.client, pass.user, pass.text);
        if (status != RLOCK_OK && status != RLOCK_ERR_CLOSED) {
            cli_say("rlock: %s %s: %s\n", pass.option, pass.file, rlock_strerror(status));
        }
    }
}

/* Looks at the file. True: the client was given another password. What is wrong is said once, until
 * the file is another one. */
static bool password_look(void) {
    const char *wrong = NULL;
    struct stat is;
    bool news = false;
    if (pass.file == NULL) {
        return false;
    }
    memset(&is, 0, sizeof is);
    if (stat(pass.file, &is) != 0) {
        wrong = strerror(errno);
    }
    if (is.st_mtim.tv_sec == pass.seen.st_mtim.tv_sec &&
        is.st_mtim.tv_nsec == pass.seen.st_mtim.tv_nsec && is.st_size == pass.seen.st_size &&
        is.st_ino == pass.seen.st_ino && is.st_dev == pass.seen.st_dev) {
        return false;
    }
    if (wrong == NULL && !S_ISREG(is.st_mode)) {
        return false; /* a pipe is read once, at the start: it could keep the loop waiting */
    }
    pass.seen = is;
    wrong = wrong != NULL ? wrong : password_keep(&news);
    if (wrong != NULL) {
        cli_say("rlock: %s %s: %s\n", pass.option, pass.file, wrong);
    }
    if (news) {
        password_give();
    }
    return news;
}

static void password_on_timer(struct ev_loop *loop, ev_timer *timer, int revents) {
    (void)loop, (void)timer, (void)revents;
    password_look();
}

/* Gives the client, which was made just now, the password of the file; looks at that from then on
 * until the program ends. */
static void password_begins(void) {
    if (pass.file == NULL) {
        return;
    }
    password_look();
    password_give();
    if (!ev_is_active(&pass.timer)) {
        ev_timer_init(&pass.timer, password_on_timer, PASSWORD_LOOK_S, PASSWORD_LOOK_S);
        ev_timer_start(EV_DEFAULT, &pass.timer);
        ev_unref(EV_DEFAULT);
    }
}

/* Refuses a password that stands at two places, and users that one password cannot be for. */
static void password_check(const char *path, bool same, const char *word) {
    if (word != NULL) {
        cli_fail(CLI_FAILED, "Leave out one of them",
                 "--password-file %s: the URL also contains a password", path);
    }
    if (!same) {
        cli_fail(CLI_FAILED, "Give all servers the same user, with %XX for / ? # @ : and %",
                 "--password-file %s: the servers have different users", path);
    }
}

/* A session of ZooKeeper has the password that it began with. */
static bool password_possible(void) {
    return cli.engine == NULL || strcmp(cli.engine->schemes, "zookeeper") != 0;
}

/* Gets ready for --password-file: the URLs give the user, which is taken out of those of Redis. */
static void password_file_begins(const char *path) {
    const char *urls = cli.members != NULL ? cli.members : cli.url, *wrong;
    char *servers, *word;
    bool news, same;
    if (!password_possible()) {
        cli_fail(CLI_FAILED, "Its URL has the password", "--password-file: not with %s",
                 cli.engine->name);
    }
    pass.option = "--password-file";
    pass.file = path;
    if (urls != NULL) {
        same = password_take_all(urls, &servers, &pass.user, &word);
        password_check(path, same, word);
        if (cli.engine == NULL) {
            *(cli.members != NULL ? &cli.members : &cli.url) = servers;
        }
    }
    (void)stat(path, &pass.seen);
    wrong = password_keep(&news);
    if (wrong != NULL) {
        cli_fail(CLI_FAILED, NULL, "--password-file %s: %s", path, wrong);
    }
}

/* Gets ready for a --url-file: with passwords that differ, or with none, it is not looked at. */
static void password_urls_begin(void) {
    const char *urls = cli.members != NULL ? cli.members : cli.url;
    if (password_possible() && password_take_all(urls, &pass.servers, &pass.user, &pass.text) &&
        pass.text != NULL) {
        pass.option = "--url-file";
        pass.file = cli.url_file;
        pass.urls = true;
    }
}

/* Finds out where the password is, once the options are known. */
static void password_find(const char *path) {
    if (path != NULL) {
        password_file_begins(path);
    } else if (cli.url_file != NULL) {
        password_urls_begin();
    }
}

#endif /* RLOCK_CLI_PASSWORD_H */
