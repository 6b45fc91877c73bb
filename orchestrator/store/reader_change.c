/* What changes definitions: each change is one transaction that holds the definition's row. */
#include "store/reader_internal.h"

#include "base/sha256.h"
#include "store/connect.h"

#include <inttypes.h>
#include <stdio.h>

enum { DIGEST_SIZE = 32 };

/* What the changes share: whom they are about, and the row that comes back. */
struct change {
    const char *namespace_, *name;
    int32_t revision; /* 0: none in particular */
    struct store_words words;
    enum read_stmt_id statement;
    struct store_definition definition;
};

static struct params *start_named(struct store_reader *reader, enum read_stmt_id id,
                                  const char *namespace_, const char *name)
{
    struct params *params = reader_start(reader, id);
    params_text(params, namespace_);
    params_text(params, name);
    return params;
}

/* Runs what was filled and takes its one row, if there is one. */
static int take_definition(struct store_reader *reader, struct store_definition *ret,
                           bool *ret_found, struct err *err)
{
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    *ret_found = PQntuples(result) > 0;
    return *ret_found ? reader_decode_definition(result, 0, ret, err) : 0;
}

static int run_filled(struct store_reader *reader, struct err *err)
{
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    return reader_execute(reader, &result, err);
}

/* What a definition was before it was changed; all zero: there was none. */
struct before {
    int32_t revision;
    bool paused;
};

/* The next change of the same definition waits until this one has committed. */
static int lock_definition(struct store_reader *reader, const char *namespace_, const char *name,
                           struct before *ret, struct err *err)
{
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    (void)start_named(reader, READ_DEFINITION_LOCK, namespace_, name);
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    struct before before = { 0 };
    if (PQntuples(result) > 0) {
        struct columns columns = { .result = result, .table = "definition", .err = err };
        before.revision = columns_int4(&columns);
        before.paused = columns_bool(&columns);
        if (columns.failed)
            return (int)err->code;
    }
    *ret = before;
    return 0;
}

/* A line of the audit, in the transaction of the change. revision 0: of none. */
static int note(struct store_reader *reader, const char *verb, const char *namespace_,
                const char *name, int32_t revision, const struct store_words *words,
                struct err *err)
{
    char subject[32];
    (void)snprintf(subject, sizeof subject, "revision %" PRId32, revision);
    const struct store_audit_note line = { .verb = verb,
                                           .namespace_ = namespace_,
                                           .definition = name,
                                           .subject = revision ? subject : NULL,
                                           .actor = words->actor,
                                           .reason = words->reason };
    return reader_audit_add(reader, &line, err);
}

/* --- registration --------------------------------------------------------------------------- */

struct registration {
    const struct store_register *what;
    uint8_t digest[DIGEST_SIZE];
    struct store_registered registered;
};

void store_registered_done(struct store_registered *registered)
{
    store_definition_done(&registered->revision);
    store_definition_done(&registered->before);
    registered->created = false;
}

static int digest_of(const struct store_register *what, uint8_t ret[DIGEST_SIZE], struct err *err)
{
    uint8_t each[2][DIGEST_SIZE];
    const struct sha256_part parts[] = { { what->content.data, what->content.size },
                                         { what->descriptors.data, what->descriptors.size } };
    const struct sha256_part both = { each, sizeof each };
    int rc = sha256(&parts[0], 1, what->descriptors.size ? each[0] : ret);
    if (!rc && what->descriptors.size)
        rc = sha256(&parts[1], 1, each[1]) || sha256(&both, 1, ret);
    return rc ? err_set(err, ERR_NOMEM, "register: digest") : 0;
}

/* The current revision, and the one with the same digest. */
static int register_find(struct store_reader *reader, struct registration *registration,
                         bool *ret_found, struct err *err)
{
    const struct store_register *what = registration->what;
    struct store_registered *registered = &registration->registered;
    struct params *params = start_named(reader, READ_DEFINITION, what->namespace_, what->name);
    params_int4(params, 0);
    params_bool(params, true);
    bool has_current;
    if (take_definition(reader, &registered->before, &has_current, err) != 0)
        return (int)err->code;
    params = start_named(reader, READ_REGISTER_FIND, what->namespace_, what->name);
    params_blob(params, registration->digest, sizeof registration->digest);
    return take_definition(reader, &registered->revision, ret_found, err);
}

static int next_revision(struct store_reader *reader, const struct store_register *what,
                         int32_t *ret, struct err *err)
{
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    (void)start_named(reader, READ_REGISTER_NEXT, what->namespace_, what->name);
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    struct columns columns = { .result = result, .table = "definition", .err = err };
    int32_t revision = columns_int4(&columns);
    if (columns.failed)
        return (int)err->code;
    *ret = revision;
    return 0;
}

static int register_preview(struct store_reader *reader, struct registration *registration,
                            struct err *err)
{
    const struct store_register *what = registration->what;
    struct store_definition *revision = &registration->registered.revision;
    bool found = false;
    if (reader_command(reader, control_stmts[CONTROL_BEGIN_READ].sql, err) != 0 ||
        register_find(reader, registration, &found, err) != 0 ||
        (!found && next_revision(reader, what, &revision->revision, err) != 0) ||
        reader_command(reader, "COMMIT", err) != 0)
        return (int)err->code;
    registration->registered.created = !found;
    if (found)
        return 0;
    revision->namespace_ = mem_strdup(what->namespace_);
    revision->name = mem_strdup(what->name);
    if (!revision->namespace_ || !revision->name ||
        mem_bytes_copy(what->content.data, what->content.size, &revision->content) != 0)
        return err_set(err, ERR_NOMEM, "register");
    return 0;
}

/* Takes the row of the statement that was filled in place of what there is of the revision. */
static int retake(struct store_reader *reader, struct store_definition *revision, struct err *err)
{
    bool found = false;
    store_definition_done(revision);
    if (take_definition(reader, revision, &found, err) != 0)
        return (int)err->code;
    return found ? 0 : err_set(err, ERR_INTERNAL, "register: no revision came back");
}

static int register_add(struct store_reader *reader, struct registration *registration,
                        struct err *err)
{
    const struct store_register *what = registration->what;
    int32_t revision = 0;
    if (next_revision(reader, what, &revision, err) != 0)
        return (int)err->code;
    struct params *params = start_named(reader, READ_REGISTER_ADD, what->namespace_, what->name);
    params_int4(params, revision);
    params_blob(params, registration->digest, sizeof registration->digest);
    params_blob(params, what->content.data, what->content.size);
    params_blob(params, what->descriptors.data, what->descriptors.size);
    params_bool(params, what->keep_current);
    return retake(reader, &registration->registered.revision, err);
}

static int register_again(struct store_reader *reader, struct registration *registration,
                          struct err *err)
{
    const struct store_register *what = registration->what;
    struct store_definition *revision = &registration->registered.revision;
    bool has_current = registration->registered.before.revision != 0;
    if (revision->current || (what->keep_current && has_current))
        return 0;
    struct params *params = start_named(reader, READ_PROMOTE, what->namespace_, what->name);
    params_int4(params, revision->revision);
    return retake(reader, revision, err);
}

static int register_run(struct store_reader *reader, void *ctx, struct err *err)
{
    struct registration *registration = ctx;
    const struct store_register *what = registration->what;
    store_registered_done(&registration->registered); /* of a first try that broke */
    if (what->validate_only)
        return register_preview(reader, registration, err);
    bool found = false;
    struct before before = { 0 };
    if (reader_command(reader, "BEGIN", err) != 0)
        return (int)err->code;
    (void)start_named(reader, READ_REGISTER_NAME, what->namespace_, what->name);
    if (run_filled(reader, err) != 0 ||
        lock_definition(reader, what->namespace_, what->name, &before, err) != 0 ||
        register_find(reader, registration, &found, err) != 0)
        return (int)err->code;
    registration->registered.created = !found;
    const struct store_definition *revision = &registration->registered.revision;
    if ((found ? register_again : register_add)(reader, registration, err) != 0)
        return (int)err->code;
    bool promoted = found && revision->current && revision->revision != before.revision;
    if ((!found || promoted) &&
        note(reader, found ? "promote-definition" : "register-definition", what->namespace_,
             what->name, revision->revision, &what->words, err) != 0)
        return (int)err->code;
    return reader_command(reader, "COMMIT", err);
}

int store_reader_register(struct store_reader *reader, const struct store_register *what,
                          struct store_registered *ret, struct err *err)
{
    struct registration registration = { .what = what };
    if (digest_of(what, registration.digest, err) != 0)
        return (int)err->code;
    /* Done twice it is the same: a repeat after a lost COMMIT finds its own content. */
    if (reader_with_connection(reader, register_run, &registration, err) != 0) {
        store_registered_done(&registration.registered);
        return (int)err->code;
    }
    *ret = registration.registered;
    return 0;
}

/* --- promote, pause, resume ------------------------------------------------------------------- */

/* What was so before has no line. */
static int note_change(struct store_reader *reader, const struct change *change,
                       const struct before *before, struct err *err)
{
    if (change->statement == READ_PROMOTE)
        return change->revision == before->revision
                   ? 0
                   : note(reader, "promote-definition", change->namespace_, change->name,
                          change->revision, &change->words, err);
    bool pause = change->statement == READ_PAUSE;
    return before->paused == pause ? 0
                                   : note(reader, pause ? "pause-definition" : "resume-definition",
                                          change->namespace_, change->name, 0, &change->words, err);
}

static int change_run(struct store_reader *reader, void *ctx, struct err *err)
{
    struct change *change = ctx;
    struct before before = { 0 };
    store_definition_done(&change->definition); /* of a first try that broke */
    if (reader_command(reader, "BEGIN", err) != 0 ||
        lock_definition(reader, change->namespace_, change->name, &before, err) != 0)
        return (int)err->code;
    struct params *params =
        start_named(reader, change->statement, change->namespace_, change->name);
    if (change->statement == READ_PROMOTE)
        params_int4(params, change->revision);
    if (change->statement == READ_PAUSE) {
        params_text(params, change->words.actor ? change->words.actor : "");
        params_text(params, change->words.reason ? change->words.reason : "");
    }
    bool found = false;
    if (take_definition(reader, &change->definition, &found, err) != 0)
        return (int)err->code;
    if (!found)
        return reader_no_definition(change->namespace_, change->name, change->revision, err);
    if (note_change(reader, change, &before, err) != 0)
        return (int)err->code;
    return reader_command(reader, "COMMIT", err);
}

static int change_definition(struct store_reader *reader, struct change *change,
                             struct store_definition *ret, struct err *err)
{
    if (reader_with_connection(reader, change_run, change, err) != 0) {
        store_definition_done(&change->definition);
        return (int)err->code;
    }
    *ret = change->definition;
    return 0;
}

static struct store_words words_of(const struct store_words *words)
{
    return words ? *words : (struct store_words){ NULL, NULL };
}

int store_reader_promote(struct store_reader *reader, const char *namespace_, const char *name,
                         int32_t revision, const struct store_words *words,
                         struct store_definition *ret, struct err *err)
{
    struct change change = { .namespace_ = namespace_,
                             .name = name,
                             .revision = revision,
                             .words = words_of(words),
                             .statement = READ_PROMOTE };
    return change_definition(reader, &change, ret, err);
}

int store_reader_pause(struct store_reader *reader, const char *namespace_, const char *name,
                       const struct store_words *words, struct store_definition *ret,
                       struct err *err)
{
    struct change change = {
        .namespace_ = namespace_, .name = name, .words = words_of(words), .statement = READ_PAUSE
    };
    return change_definition(reader, &change, ret, err);
}

int store_reader_resume(struct store_reader *reader, const char *namespace_, const char *name,
                        const struct store_words *words, struct store_definition *ret,
                        struct err *err)
{
    struct change change = {
        .namespace_ = namespace_, .name = name, .words = words_of(words), .statement = READ_RESUME
    };
    return change_definition(reader, &change, ret, err);
}

/* --- deletion --------------------------------------------------------------------------------- */

static struct params *start_revision(struct store_reader *reader, enum read_stmt_id id,
                                     const struct change *change)
{
    struct params *params = start_named(reader, id, change->namespace_, change->name);
    params_int4(params, change->revision);
    return params;
}

static int refuse_used(struct store_reader *reader, const struct change *change, struct err *err)
{
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    (void)start_revision(reader, READ_REVISION_USED, change);
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    struct columns columns = { .result = result, .table = "saga", .err = err };
    bool used = columns_bool(&columns);
    if (columns.failed)
        return (int)err->code;
    return used ? err_reason(err, ERR_PRECONDITION, "REVISION_IN_USE",
                             "revision %d of %s/%s has sagas: it is kept as long as their rows are",
                             change->revision, change->namespace_, change->name)
                : 0;
}

/* From here to the commit no start that takes this revision goes through. */
static int lock_revision(struct store_reader *reader, const struct change *change, struct err *err)
{
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    (void)start_revision(reader, READ_REVISION_LOCK, change);
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    if (PQntuples(result) == 0)
        return reader_no_definition(change->namespace_, change->name, change->revision, err);
    struct columns columns = { .result = result, .table = "definition_revision", .err = err };
    bool current = columns_bool(&columns);
    int64_t revisions = columns_int8(&columns);
    if (columns.failed)
        return (int)err->code;
    return current && revisions > 1
               ? err_reason(err, ERR_PRECONDITION, "REVISION_CURRENT",
                            "revision %d of %s/%s is what new sagas take: promote another first",
                            change->revision, change->namespace_, change->name)
               : 0;
}

/* The first look holds nobody up, and is the answer as a rule; the second one is right. */
static int delete_run(struct store_reader *reader, void *ctx, struct err *err)
{
    const struct change *change = ctx;
    struct before before = { 0 };
    if (refuse_used(reader, change, err) != 0 || reader_command(reader, "BEGIN", err) != 0 ||
        reader_command(reader, "SET LOCAL lock_timeout = '500ms'", err) != 0 ||
        lock_definition(reader, change->namespace_, change->name, &before, err) != 0 ||
        lock_revision(reader, change, err) != 0 || refuse_used(reader, change, err) != 0)
        return (int)err->code;
    (void)start_revision(reader, READ_REVISION_DELETE, change);
    if (run_filled(reader, err) != 0 ||
        note(reader, "delete-revision", change->namespace_, change->name, change->revision,
             &change->words, err) != 0)
        return (int)err->code;
    return reader_command(reader, "COMMIT", err);
}

int store_reader_delete_revision(struct store_reader *reader, const char *namespace_,
                                 const char *name, int32_t revision,
                                 const struct store_words *words, struct err *err)
{
    struct change change = {
        .namespace_ = namespace_, .name = name, .revision = revision, .words = words_of(words)
    };
    return reader_with_connection(reader, delete_run, &change, err);
}
