/* Errors as gRPC tells them: the status code, a clean message, and google.rpc.Status with
 * ErrorInfo, BadRequest and RetryInfo in the trailers. The one place where err_code becomes a
 * status. Headers beyond some 8 kB would end the whole connection, so everything here is cut to
 * fit. Any thread. */
#ifndef RPC_STATUS_H
#define RPC_STATUS_H

#include "base/err.h"

#include <grpc/grpc.h>
#include <stddef.h>

#define STATUS_DOMAIN "sagad"

enum {
    STATUS_MESSAGE_BYTES = 512,  /* percent-encoding may triple them */
    STATUS_DETAILS_BYTES = 1800, /* base64 adds a third */
    FAULTS_KEPT = 16,
    FAULT_FIELD_BYTES = 256, /* file, rpc and option, too */
    FAULT_TEXT_BYTES = 200,
};

/* Field violations: the first few, and how many there were. */
struct faults {
    size_t count, kept;
    struct fault {
        char field[FAULT_FIELD_BYTES];
        char text[FAULT_TEXT_BYTES];
    } items[FAULTS_KEPT];
};
/* As a definition_fault_fn: ctx is a struct faults. */
void faults_add(void *faults, const char *field, const char *description);

grpc_status_code status_code(enum err_code code);
/* The stable reason: the error's own, or the code's name. */
const char *status_reason(const struct err *err);
/* Copies text with everything that is not printable UTF-8 replaced by '?', cut to size - 1. */
void status_clean_text(const char *text, char *ret, size_t size);

/* A status ready to be sent: everything that must live until its batch is done. err NULL: OK. */
struct answer {
    grpc_status_code code;
    grpc_slice message, details;
    bool has_message, has_details;
    grpc_metadata trailer;
    grpc_byte_buffer *payload; /* unary replies */
};
/* faults: NULL for none (err->field alone is then the one violation). */
void answer_set(struct answer *answer, const struct err *err, const struct faults *faults);
void answer_done(struct answer *answer);
/* The op that sends it. */
grpc_op answer_op(struct answer *answer);

#endif
