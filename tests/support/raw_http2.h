/* HTTP/2 by hand over a socket of its own: frames of any kind, in any order, with any contents, for
 * what no client library would send. It answers PING and SETTINGS like a good client (unless told
 * not to), keeps to the windows that it was given where it is asked to, and counts what comes.
 *
 * thread: one at a time. Nothing is read while nobody calls. */
#ifndef SUPPORT_RAW_HTTP2_H
#define SUPPORT_RAW_HTTP2_H

#include "base/buf.h"
#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct raw_http2;

enum raw_frame {
    FRAME_DATA = 0,
    FRAME_HEADERS = 1,
    FRAME_RST_STREAM = 3,
    FRAME_SETTINGS = 4,
    FRAME_PING = 6,
    FRAME_GOAWAY = 7,
    FRAME_WINDOW_UPDATE = 8,
    FRAME_CONTINUATION = 9,
    FRAME_KINDS = 16,
};
enum { FLAG_END_STREAM = 1, FLAG_ACK = 1, FLAG_END_HEADERS = 4, FRAME_BYTES_MAX = 16384 };

struct raw_http2_options {
    bool no_preface;       /* nothing is sent but what the caller sends */
    bool reads_nothing;    /* every stream's window for what the server sends is 0 */
    bool answers_no_pings; /* nor SETTINGS */
};
/* `port` of 127.0.0.1. options NULL: none of them. The caller owns *ret. */
MUST_USE int raw_http2_open(int port, const struct raw_http2_options *options,
                            struct raw_http2 **ret, struct err *err);
/* Cuts the connection. NULL is fine; always returns NULL. */
struct raw_http2 *raw_http2_free(struct raw_http2 *http2);

/* Any bytes. Fails when the server has closed, or took nothing for 10 s. */
MUST_USE int raw_http2_send_bytes(struct raw_http2 *http2, const void *data, size_t size,
                                  struct err *err);
MUST_USE int raw_http2_send(struct raw_http2 *http2, int kind, int flags, uint32_t stream,
                            const void *data, size_t size, struct err *err);
/* Header fields of a gRPC call, as a block to send; literal ones can be added. */
void raw_http2_block(struct buf *ret, const char *method);
void raw_http2_block_add(struct buf *block, const char *name, const char *value, size_t size);
/* HEADERS, and with `message` not NULL the message and the end of the client's side. Streams are
 * numbered 1, 3, 5 ... */
MUST_USE int raw_http2_call(struct raw_http2 *http2, uint32_t stream, const char *method,
                            const struct buf *message, struct err *err);
/* DATA within the windows that the server grants. Fails when it grants none for limit_ms. */
MUST_USE int raw_http2_send_data(struct raw_http2 *http2, uint32_t stream, const void *data,
                                 size_t size, int64_t limit_ms, struct err *err);

/* What has come so far. */
struct raw_http2_seen {
    size_t frames[FRAME_KINDS];
    size_t ended;   /* streams that the server ended, with a status or a reset */
    size_t limited; /* of them with a status that names a limit ("more than ...") */
    size_t pongs;   /* of `frames`: PING with ACK */
    uint32_t goaway_code;
    bool closed; /* by the server */
};
const struct raw_http2_seen *raw_http2_seen(const struct raw_http2 *http2);
/* Reads what has come, and waits until `enough` says so or the limit is over. NULL: reads until
 * nothing has come for limit_ms. */
bool raw_http2_read(struct raw_http2 *http2,
                    bool (*enough)(const struct raw_http2_seen *seen, size_t count), size_t count,
                    int64_t limit_ms);

#endif
