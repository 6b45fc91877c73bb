/* What the verbs of sagactl share: the connection, how answers and errors are printed, how a saga
 * is named on the command line. Functions that print return the exit code. thread: the main thread.
 */
#ifndef CTL_CTL_H
#define CTL_CTL_H

#include "ctl/arguments.h"
#include "ctl/client.h"
#include "ctl/where_text.h"

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>
#include <saga/v1/saga.pb-c.h>

enum { CTL_EXIT_FAILED = 1, CTL_ACTOR_SIZE = 129, CTL_PAGE_SIZE = 500 };
/* Of verbs that wait for the end of a saga. */
enum {
    CTL_EXIT_COMPENSATED = 3,
    CTL_EXIT_PARKED = 4,
    CTL_EXIT_ABANDONED = 5,
    CTL_EXIT_TIME_OVER = 6,
};
enum { CTL_LOST_PAUSE_MS = 1000 }; /* the server is away: they ask again after so long */

struct ctl {
    const char *address;
    const char *namespace_; /* NULL: not given */
    bool json, color;
    int64_t timeout_ms; /* of a call */
    bool timeout_given;
    struct client *client; /* connected with the first call; NULL before */
};

/* Fills from the common options and the environment. */
MUST_USE int ctl_init(struct ctl *ctl, const struct ctl_arguments *arguments, struct err *err);
void ctl_done(struct ctl *ctl);

/* Connects, if it is not done yet. */
MUST_USE int ctl_connect(struct ctl *ctl, struct err *err);
/* One call. 0: the caller owns *ret. Otherwise it has printed what the server said, and returns the
 * exit code. */
MUST_USE int ctl_call(struct ctl *ctl, const char *method, const ProtobufCMessage *request,
                      const ProtobufCMessageDescriptor *reply_type, void *ret);
/* The same without printing. */
MUST_USE int ctl_call_quietly(struct ctl *ctl, const char *method, const ProtobufCMessage *request,
                              const ProtobufCMessageDescriptor *reply_type, int64_t timeout_ms,
                              void *ret, struct client_failure *ret_failure, struct err *err);
void ctl_message_free_p(void *message);

/* "sagactl: NOT_FOUND: ..." with reason and field violations. */
void ctl_write_failure(const struct ctl *ctl, const struct client_failure *failure,
                       struct buf *out);
int ctl_print_failure(const struct ctl *ctl, const struct client_failure *failure);
/* "sagactl: ..."; the exit code that fits: usage for ERR_INVALID, else failed. */
int ctl_print_error(const struct err *err);
/* Text or JSON to stdout. 0, or the exit code when it could not be written whole. */
int ctl_print_text(const struct buf *text);
int ctl_print_message(const ProtobufCMessage *message);
/* What a verb did to a saga: the message with -o json, else "cancelled: settlement S-1 (run 1) is
 * COMPENSATING". */
int ctl_print_saga(const struct ctl *ctl, const char *done, const Saga__V1__Saga *saga);
int ctl_print_json(json_t *value);      /* consumed */
int ctl_print_json_line(json_t *value); /* in one line; consumed */
/* Appends each element of list `name` of one page to `all`, an array. */
MUST_USE int ctl_add_page(json_t *all, const ProtobufCMessage *page, const char *name,
                          struct err *err);

/* $SAGACTL_ACTOR, or the name of the user of the operating system. */
void ctl_actor(char ret[CTL_ACTOR_SIZE]);
/* How a saga that somebody waits for came to rest, as an exit code; -1: it goes on. */
int ctl_exit_code_of(Saga__V1__SagaState state, bool or_parked);
#define CTL_OR_PARKED_OPTION                                                                       \
    {                                                                                              \
        "or-parked", NULL, false, "a parked saga is an end, too"                                   \
    }
int64_t ctl_now_ms(void);
/* Now, the terminal's colours, and the address where it is not the default one. */
struct where_view ctl_where_view(const struct ctl *ctl);
/* A whole file ("-": stdin), at most `limit` bytes; owned by the caller. */
MUST_USE int ctl_read_file(const char *path, size_t limit, struct buf *ret, struct err *err);

/* The saga that "[DEFINITION] KEY" and --run name. With KEY alone the definition is looked up: it
 * must be one. KEY may be a saga's uid, too. Strings of *ret borrow from the arguments or `found`,
 * which the caller frees. Prints what is wrong. */
struct ctl_saga {
    Saga__V1__SagaRef ref;
    Saga__V1__ListSagasResponse *found; /* NULL: not needed */
};
#define CTL_RUN_OPTION                                                                             \
    {                                                                                              \
        "run", "N", false, "which run of the key (default: the latest)"                            \
    }
MUST_USE int ctl_saga_find(struct ctl *ctl, const struct ctl_arguments *arguments,
                           struct ctl_saga *ret);
void ctl_saga_done(struct ctl_saga *saga);
/* GetSaga. 0: the caller owns *ret. Prints what is wrong. */
MUST_USE int ctl_saga_get(struct ctl *ctl, Saga__V1__SagaRef *ref, Saga__V1__SagaView view,
                          Saga__V1__Saga **ret);

/* A call about the saga that the command line names, made by $SAGACTL_ACTOR or the user of this
 * machine and answered with that saga. Finds it, fills the two fields of the request, calls, and
 * prints: ctl_print_saga with `done`. */
struct ctl_request {
    const char *method; /* "/saga.v1.OperatorService/AbandonSaga" */
    const char *done;   /* "abandoned" */
    const ProtobufCMessage *message;
    Saga__V1__SagaRef **saga; /* where in the message */
    char **actor;
    /* What else there is to say of the answer; NULL: nothing. Not with -o json. */
    void (*note)(const Saga__V1__Saga *saga, int64_t now_ms, struct buf *out);
};
MUST_USE int ctl_tell(struct ctl *ctl, const struct ctl_arguments *arguments,
                      const struct ctl_request *request);
/* An option of text as a field of a request, which stays as it is when it is not given: then false.
 */
bool ctl_take_text(const struct ctl_arguments *arguments, const char *option, char **ret);
/* "sagactl: ..." for what is wrong with the command line; the exit code of wrong usage. */
int ctl_print_misuse(const char *what);

/* Sagas of one key, newest first; owned by the caller. Prints what is wrong. */
MUST_USE int ctl_sagas_of_key(struct ctl *ctl, const char *namespace_, const char *definition,
                              const char *key, Saga__V1__ListSagasResponse **ret);

#endif
