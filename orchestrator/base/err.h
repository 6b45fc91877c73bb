/* The error that every fallible function can return. It is classified where it is born, carries
 * what an API answer needs, and is prefixed with context on its way out. Any thread. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include "base/cleanup.h"

#include <stdbool.h>

enum err_code {
    ERR_OK,
    ERR_INVALID,       /* the input is wrong: INVALID_ARGUMENT */
    ERR_NOT_FOUND,     /* NOT_FOUND */
    ERR_EXISTS,        /* ALREADY_EXISTS */
    ERR_PRECONDITION,  /* right input, wrong state: FAILED_PRECONDITION */
    ERR_CONFLICT,      /* somebody else decided first: load and decide anew */
    ERR_LIMIT,         /* a named limit is reached: RESOURCE_EXHAUSTED */
    ERR_UNAVAILABLE,   /* a peer or the database is away: UNAVAILABLE */
    ERR_UNIMPLEMENTED, /* UNIMPLEMENTED */
    ERR_NOMEM,         /* RESOURCE_EXHAUSTED */
    ERR_INTERNAL,      /* our fault, or a corrupt database: INTERNAL */
    ERR_CODE_COUNT
};

struct err { /* on the caller's stack; meaningful only after a non-zero return */
    enum err_code code;
    bool retryable;   /* the same call, unchanged, may succeed later */
    char sqlstate[6]; /* "" unless PostgreSQL spoke */
    char reason[48];  /* stable, UPPER_SNAKE; goes out as google.rpc.ErrorInfo; "" if none */
    char field[96];   /* path of the wrong field ("steps[2].action.effect"); "" if none */
    char msg[320];    /* outermost context first: "register: steps[2]: ..." */
};

/* Sets code and message, clears the rest; returns code. */
FMT(3, 4) int err_set(struct err *err, enum err_code code, const char *fmt, ...);
/* The same with the stable reason (err_reason) or the field path (err_field, code ERR_INVALID). */
FMT(4, 5)
int err_reason(struct err *err, enum err_code code, const char *reason, const char *fmt, ...);
FMT(3, 4) int err_field(struct err *err, const char *field, const char *fmt, ...);
/* Prefixes the message with context ("load saga: "); returns err->code. */
FMT(2, 3) int err_wrap(struct err *err, const char *fmt, ...);
/* "INVALID", "NOT_FOUND", ... */
const char *err_code_name(enum err_code code);

#endif
