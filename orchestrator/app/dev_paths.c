#include "app/dev_paths.h"

#include "base/sha256.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SOCKET_FOLDER_MAX = 107 - 14, /* sun_path less "/.s.PGSQL.5432" */
    NFTW_FILES = 16,
    FOLDER_MODE = 0755,
    PRIVATE_MODE = 0700,
};

int dev_path_join(const char *folder, const char *name, char ret[PATH_MAX], struct err *err)
{
    int size = snprintf(ret, PATH_MAX, "%s/%s", folder, name);
    if (size < 0 || size >= PATH_MAX)
        return err_set(err, ERR_INVALID, "the path %s/%s is too long", folder, name);
    return 0;
}

int dev_user_find(struct dev_user *ret, struct err *err)
{
    if (geteuid() != 0) {
        *ret = (struct dev_user){ .uid = geteuid(), .gid = getegid() };
        return 0;
    }
    errno = 0;
    const struct passwd *user = getpwnam("postgres");
    if (!user)
        return err_set(
            err, ERR_PRECONDITION,
            "PostgreSQL does not run as root, and there is no system user postgres to run"
            " it as: run sagad dev as another user, or install the package of PostgreSQL");
    *ret = (struct dev_user){ .other = true, .uid = user->pw_uid, .gid = user->pw_gid };
    return 0;
}

/* mkdir -p */
static int make_folders(const char *path, struct err *err)
{
    char part[PATH_MAX];
    size_t size = strlen(path);
    if (size >= sizeof part)
        return err_set(err, ERR_INVALID, "data: the path is too long");
    for (size_t i = 1; i <= size; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, FOLDER_MODE) != 0 && errno != EEXIST)
            return err_set(err, ERR_INVALID, "data: cannot make %s: %s", part, strerror(errno));
    }
    return 0;
}

static int default_folder(char ret[PATH_MAX], struct err *err)
{
    const char *home = getenv("HOME");
    const char *share = getenv("XDG_DATA_HOME");
    if (geteuid() == 0) {
        (void)snprintf(ret, PATH_MAX, "/var/lib/sagad-dev"); /* another user must get into it */
        return 0;
    }
    if (share && *share == '/')
        return dev_path_join(share, "sagad-dev", ret, err);
    if (!home || *home != '/') {
        const struct passwd *user = getpwuid(geteuid());
        home = user ? user->pw_dir : NULL;
    }
    if (!home || *home != '/')
        return err_set(err, ERR_INVALID, "there is no home folder: say where with --data DIR");
    return dev_path_join(home, ".local/share/sagad-dev", ret, err);
}

int dev_data_folder(const char *option, char ret[PATH_MAX], struct err *err)
{
    char wanted[PATH_MAX] = "";
    if (*option)
        (void)snprintf(wanted, sizeof wanted, "%s", option); /* shorter: checked by its type */
    else if (default_folder(wanted, err) != 0)
        return err->code;
    if (make_folders(wanted, err) != 0)
        return err->code;
    if (!realpath(wanted, ret))
        return err_set(err, ERR_INVALID, "data: %s: %s", wanted, strerror(errno));
    return 0;
}

/* --- the programs --------------------------------------------------------------------------------
 */

static bool has_programs(const char *folder)
{
    static const char *const programs[] = { "initdb", "postgres" };
    for (size_t i = 0; i < ARRAY_LEN(programs); i++) {
        char path[PATH_MAX];
        int size = snprintf(path, sizeof path, "%s/%s", folder, programs[i]);
        if (size < 0 || size >= PATH_MAX || access(path, X_OK) != 0)
            return false;
    }
    return true;
}

static bool find_in_path(char ret[PATH_MAX])
{
    const char *path = getenv("PATH");
    while (path && *path) {
        size_t size = strcspn(path, ":");
        if (size && size < PATH_MAX) {
            (void)snprintf(ret, PATH_MAX, "%.*s", (int)size, path);
            if (has_programs(ret))
                return true;
        }
        path += size;
        path += *path == ':';
    }
    return false;
}

/* /usr/lib/postgresql/<version>/bin (Debian), /usr/pgsql-<version>/bin (Red Hat). */
static const struct {
    const char *folder, *prefix;
} package_places[] = { { "/usr/lib/postgresql", "" }, { "/usr", "pgsql-" } };

static bool find_version(const char *version, char ret[PATH_MAX])
{
    for (size_t i = 0; i < ARRAY_LEN(package_places); i++) {
        int size = snprintf(ret, PATH_MAX, "%s/%s%s/bin", package_places[i].folder,
                            package_places[i].prefix, version);
        if (size > 0 && size < PATH_MAX && has_programs(ret))
            return true;
    }
    return false;
}

static bool find_newest(char ret[PATH_MAX])
{
    long newest = 0;
    for (size_t i = 0; i < ARRAY_LEN(package_places); i++) {
        DIR *folder = opendir(package_places[i].folder);
        size_t prefix = strlen(package_places[i].prefix);
        struct dirent *entry;
        while (folder && (entry = readdir(folder))) {
            char path[PATH_MAX], *end;
            if (strncmp(entry->d_name, package_places[i].prefix, prefix) != 0)
                continue;
            long version = strtol(entry->d_name + prefix, &end, 10);
            if (version <= newest || *end || !find_version(entry->d_name + prefix, path))
                continue;
            newest = version;
            memcpy(ret, path, sizeof path);
        }
        if (folder)
            (void)closedir(folder); /* it was only read */
    }
    return newest > 0;
}

int dev_find_programs(const char *option, const char *version, char ret[PATH_MAX], struct err *err)
{
    char found[PATH_MAX];
    if (*option) {
        if (!has_programs(option))
            return err_set(err, ERR_INVALID, "pg-bin: %s does not hold initdb and postgres",
                           option);
        (void)snprintf(ret, PATH_MAX, "%s", option); /* shorter: checked by its type */
        return 0;
    }
    if ((*version && find_version(version, found)) || find_in_path(found) || find_newest(found)) {
        memcpy(ret, found, sizeof found);
        return 0;
    }
    return err_set(
        err, ERR_PRECONDITION,
        "no PostgreSQL here: initdb and postgres are neither in PATH nor in"
        " /usr/lib/postgresql/*/bin; install the package postgresql, or say --pg-bin DIR");
}

/* --- folders
 * ----------------------------------------------------------------------------------------- */

int dev_private_folder(const char *path, const struct dev_user *user, struct err *err)
{
    struct stat info;
    bool made = mkdir(path, PRIVATE_MODE) == 0;
    if (!made && errno != EEXIST)
        return err_set(err, ERR_INVALID, "cannot make %s: %s", path, strerror(errno));
    if (made && user->other && lchown(path, user->uid, user->gid) != 0)
        return err_set(err, ERR_INVALID, "cannot give %s to the user postgres: %s", path,
                       strerror(errno));
    if (lstat(path, &info) != 0)
        return err_set(err, ERR_INVALID, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(info.st_mode) || info.st_uid != user->uid || (info.st_mode & 077))
        return err_set(err, ERR_PRECONDITION,
                       "%s must be a folder of the user that PostgreSQL runs as, closed to others"
                       " (mode 0700): remove it, or say another --data",
                       path);
    return 0;
}

int dev_socket_folder(const char *data, const struct dev_user *user, char ret[PATH_MAX],
                      struct err *err)
{
    char path[PATH_MAX];
    if (dev_path_join(data, "socket", path, err) != 0)
        return err->code;
    if (strlen(path) > SOCKET_FOLDER_MAX) {
        uint8_t digest[32];
        const struct sha256_part part = { data, strlen(data) };
        if (sha256(&part, 1, digest) != 0)
            return err_set(err, ERR_NOMEM, "SHA-256: out of memory");
        (void)snprintf(path, sizeof path, "/tmp/sagad-dev-%02x%02x%02x%02x%02x%02x%02x%02x",
                       digest[0], digest[1], digest[2], digest[3], digest[4], digest[5], digest[6],
                       digest[7]);
    }
    if (dev_private_folder(path, user, err) != 0)
        return err->code;
    memcpy(ret, path, sizeof path);
    return 0;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

int dev_remove_folder(const char *path, struct err *err)
{
    if (nftw(path, remove_one, NFTW_FILES, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT)
        return err_set(err, ERR_INVALID, "cannot remove %s: %s", path, strerror(errno));
    return 0;
}
