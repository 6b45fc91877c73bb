/* Where `sagad dev` keeps its things and finds PostgreSQL's programs, and who runs them.
 * thread: the main thread. */
#ifndef APP_DEV_PATHS_H
#define APP_DEV_PATHS_H

#include "base/err.h"

#include <limits.h>
#include <sys/types.h>

struct dev_user { /* who PostgreSQL runs as */
    bool other;   /* not who we are: we are root */
    uid_t uid;
    gid_t gid;
};
MUST_USE int dev_user_find(struct dev_user *ret, struct err *err);

/* The data folder, made if it is not there; absolute. option "": the default place. */
MUST_USE int dev_data_folder(const char *option, char ret[PATH_MAX], struct err *err);

/* The folder that holds initdb and postgres: `option`; that of the data's own major version
 * (version "": there is no data yet); PATH; the newest of the places that packages use. */
MUST_USE int dev_find_programs(const char *option, const char *version, char ret[PATH_MAX],
                               struct err *err);

/* A folder for the socket that only `user` (and root) can enter: <data>/socket, or where that is
 * too long for a socket one below /tmp that is named after the data folder. */
MUST_USE int dev_socket_folder(const char *data, const struct dev_user *user, char ret[PATH_MAX],
                               struct err *err);
/* Makes it if it is not there, gives it to the user, refuses one that others own or may write to.
 */
MUST_USE int dev_private_folder(const char *path, const struct dev_user *user, struct err *err);
/* Removes a folder and what is in it; fine if it is not there. */
MUST_USE int dev_remove_folder(const char *path, struct err *err);
/* "a/b" into ret; ERR_INVALID when it does not fit. */
MUST_USE int dev_path_join(const char *folder, const char *name, char ret[PATH_MAX],
                           struct err *err);

#endif
