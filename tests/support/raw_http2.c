#include "support/raw_http2.h"

#include "base/clock.h"
#include "base/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    SEND_MS = 10000,
    HEAD = 9,
    INPUT_BYTES = 1 << 20,
    WINDOW_FIRST = 65535,
    STREAMS_TRACKED = 4096, /* whose windows are known */
    SETTING_INITIAL_WINDOW = 4,
};

/* In the message of every status that names a limit. */
static const char limit_text[] = "more than";

struct raw_http2 {
    int fd;
    struct raw_http2_options options;
    struct raw_http2_seen seen;
    uint8_t *input; /* not a whole frame yet */
    size_t input_size;
    struct buf answers; /* acks to send */
    int64_t window, window_first;
    int64_t
        added[STREAMS_TRACKED]; /* to the window of stream 2 i + 1; what was sent is taken off */
};

static int64_t now_ms(void)
{
    return clock_mono_ms(&clock_system);
}

static uint32_t number(const uint8_t *data)
{
    return (uint32_t)data[0] << 24 | (uint32_t)data[1] << 16 | (uint32_t)data[2] << 8 | data[3];
}

static void head_write(uint8_t ret[HEAD], int kind, int flags, uint32_t stream, size_t size)
{
    ret[0] = (uint8_t)(size >> 16);
    ret[1] = (uint8_t)(size >> 8);
    ret[2] = (uint8_t)size;
    ret[3] = (uint8_t)kind;
    ret[4] = (uint8_t)flags;
    for (int i = 0; i < 4; i++)
        ret[5 + i] = (uint8_t)(stream >> (24 - 8 * i));
}

/* --- what comes ------------------------------------------------------------------------------- */

static void answer(struct raw_http2 *http2, int kind, const uint8_t *data, size_t size)
{
    uint8_t head[HEAD];
    if (http2->options.answers_no_pings || http2->options.no_preface)
        return;
    head_write(head, kind, FLAG_ACK, 0, size);
    buf_append(&http2->answers, head, sizeof head);
    buf_append(&http2->answers, data, size);
}

static void on_settings(struct raw_http2 *http2, int flags, const uint8_t *data, size_t size)
{
    if (flags & FLAG_ACK)
        return;
    for (size_t at = 0; at + 6 <= size; at += 6)
        if (data[at] == 0 && data[at + 1] == SETTING_INITIAL_WINDOW)
            http2->window_first = number(data + at + 2);
    answer(http2, FRAME_SETTINGS, NULL, 0);
}

static void on_frame(struct raw_http2 *http2, const uint8_t *head, const uint8_t *data, size_t size)
{
    struct raw_http2_seen *seen = &http2->seen;
    int kind = head[3], flags = head[4];
    uint32_t stream = number(head + 5);
    seen->frames[kind < FRAME_KINDS ? kind : FRAME_KINDS - 1]++;
    switch (kind) {
    case FRAME_SETTINGS:
        on_settings(http2, flags, data, size);
        break;
    case FRAME_PING:
        if (flags & FLAG_ACK)
            seen->pongs++;
        else
            answer(http2, FRAME_PING, data, size);
        break;
    case FRAME_WINDOW_UPDATE:
        if (stream == 0)
            http2->window += number(data);
        else if (stream / 2 < STREAMS_TRACKED)
            http2->added[stream / 2] += number(data);
        break;
    case FRAME_GOAWAY:
        seen->goaway_code = number(data + 4);
        break;
    case FRAME_RST_STREAM:
        seen->ended++;
        break;
    case FRAME_HEADERS:
        if (flags & FLAG_END_STREAM) {
            seen->ended++;
            seen->limited += memmem(data, size, limit_text, sizeof limit_text - 1) != NULL;
        }
        break;
    default:
        break;
    }
}

/* Takes what the socket has. */
static void receive(struct raw_http2 *http2)
{
    for (;;) {
        ssize_t got = recv(http2->fd, http2->input + http2->input_size,
                           INPUT_BYTES - http2->input_size, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (got <= 0) {
            http2->seen.closed = true;
            return;
        }
        http2->input_size += (size_t)got;
        size_t at = 0;
        while (http2->input_size - at >= HEAD) {
            const uint8_t *head = http2->input + at;
            size_t size = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
            if (http2->input_size - at < HEAD + size)
                break;
            on_frame(http2, head, head + HEAD, size);
            at += HEAD + size;
        }
        memmove(http2->input, http2->input + at, http2->input_size - at);
        http2->input_size -= at;
    }
}

/* --- what goes -------------------------------------------------------------------------------- */

static int send_now(struct raw_http2 *http2, const uint8_t *data, size_t size, struct err *err)
{
    int64_t until = now_ms() + SEND_MS;
    while (size) {
        struct pollfd fd = { .fd = http2->fd, .events = POLLIN | POLLOUT };
        int64_t left = until - now_ms();
        if (poll(&fd, 1, left > 0 ? (int)left : 0) == 0)
            return err_set(err, ERR_UNAVAILABLE, "the server takes nothing");
        if (fd.revents & ~POLLOUT)
            receive(http2);
        if (http2->seen.closed)
            return err_set(err, ERR_UNAVAILABLE, "the server has closed the connection");
        if (!(fd.revents & POLLOUT))
            continue;
        ssize_t sent = send(http2->fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN && errno != EINTR) {
            http2->seen.closed = true;
            return err_set(err, ERR_UNAVAILABLE, "%s", strerror(errno));
        }
        if (sent > 0) {
            data += sent;
            size -= (size_t)sent;
            until = now_ms() + SEND_MS;
        }
    }
    return 0;
}

/* Acks that are due go first; between frames, that is. */
static int send_answers(struct raw_http2 *http2, struct err *err)
{
    if (!http2->answers.size)
        return 0;
    CLEANUP(buf_done) struct buf answers = http2->answers;
    http2->answers = (struct buf){ 0 };
    return send_now(http2, answers.data, answers.size, err);
}

int raw_http2_send_bytes(struct raw_http2 *http2, const void *data, size_t size, struct err *err)
{
    return send_now(http2, data, size, err);
}

int raw_http2_send(struct raw_http2 *http2, int kind, int flags, uint32_t stream, const void *data,
                   size_t size, struct err *err)
{
    uint8_t head[HEAD];
    CLEANUP(buf_done) struct buf frame = { .limit = 1 << 25 };
    head_write(head, kind, flags, stream, size);
    buf_append(&frame, head, sizeof head);
    buf_append(&frame, data, size);
    if (frame.failed)
        return err_set(err, ERR_NOMEM, "frame");
    /* Between CONTINUATIONs nothing may stand. */
    bool is_whole = kind != FRAME_CONTINUATION && flags != 0;
    if (is_whole && send_answers(http2, err) != 0)
        return (int)err->code;
    return send_now(http2, frame.data, frame.size, err);
}

static void length_write(struct buf *block, size_t size)
{
    uint8_t bytes[8];
    size_t count = 0;
    if (size < 127) {
        bytes[count++] = (uint8_t)size;
    } else {
        bytes[count++] = 127;
        for (size -= 127; size >= 128; size >>= 7)
            bytes[count++] = (uint8_t)(size | 128);
        bytes[count++] = (uint8_t)size;
    }
    buf_append(block, bytes, count);
}

void raw_http2_block_add(struct buf *block, const char *name, const char *value, size_t size)
{
    buf_append(block, "\0", 1); /* literal, never in the table */
    length_write(block, strlen(name));
    buf_append(block, name, strlen(name));
    length_write(block, size);
    buf_append(block, value, size);
}

void raw_http2_block(struct buf *ret, const char *method)
{
    buf_append(ret, "\x83\x86", 2); /* POST, http */
    raw_http2_block_add(ret, ":path", method, strlen(method));
    raw_http2_block_add(ret, ":authority", "raw", 3);
    raw_http2_block_add(ret, "content-type", "application/grpc", 16);
    raw_http2_block_add(ret, "te", "trailers", 8);
}

int raw_http2_call(struct raw_http2 *http2, uint32_t stream, const char *method,
                   const struct buf *message, struct err *err)
{
    CLEANUP(buf_done) struct buf block = { 0 };
    raw_http2_block(&block, method);
    int rc =
        raw_http2_send(http2, FRAME_HEADERS, FLAG_END_HEADERS, stream, block.data, block.size, err);
    if (rc || !message)
        return rc;
    CLEANUP(buf_done) struct buf data = { .limit = FRAME_BYTES_MAX };
    uint8_t head[5] = { 0, 0, 0, (uint8_t)(message->size >> 8), (uint8_t)message->size };
    buf_append(&data, head, sizeof head);
    buf_append(&data, message->data, message->size);
    if (data.failed)
        return err_set(err, ERR_INVALID, "the message does not fit into one frame");
    http2->window -= (int64_t)data.size;
    return raw_http2_send(http2, FRAME_DATA, FLAG_END_STREAM, stream, data.data, data.size, err);
}

int raw_http2_send_data(struct raw_http2 *http2, uint32_t stream, const void *data, size_t size,
                        int64_t limit_ms, struct err *err)
{
    const uint8_t *at = data;
    int64_t *added = &http2->added[stream / 2 % STREAMS_TRACKED], until = now_ms() + limit_ms;
    while (size) {
        int64_t room = http2->window_first + *added;
        room = room < http2->window ? room : http2->window;
        room = room < FRAME_BYTES_MAX ? room : FRAME_BYTES_MAX;
        if (room <= 0) {
            if (now_ms() > until)
                return err_set(err, ERR_LIMIT, "the server grants no window");
            (void)raw_http2_read(http2, NULL, 0, 10);
            if (http2->seen.closed)
                return err_set(err, ERR_UNAVAILABLE, "the server has closed the connection");
            continue;
        }
        size_t part = (size_t)room < size ? (size_t)room : size;
        int rc = send_answers(http2, err);
        if (!rc)
            rc = raw_http2_send(http2, FRAME_DATA, 0, stream, at, part, err);
        if (rc)
            return rc;
        http2->window -= (int64_t)part;
        *added -= (int64_t)part;
        at += part;
        size -= part;
        until = now_ms() + limit_ms;
    }
    return 0;
}

const struct raw_http2_seen *raw_http2_seen(const struct raw_http2 *http2)
{
    return &http2->seen;
}

bool raw_http2_read(struct raw_http2 *http2,
                    bool (*enough)(const struct raw_http2_seen *seen, size_t count), size_t count,
                    int64_t limit_ms)
{
    int64_t until = now_ms() + limit_ms;
    struct err err;
    for (;;) {
        receive(http2);
        if (!http2->seen.closed)
            (void)send_answers(http2, &err); /* a server that takes nothing is seen elsewhere */
        if (enough && enough(&http2->seen, count))
            return true;
        int64_t left = until - now_ms();
        if (left <= 0 || http2->seen.closed)
            return false;
        struct pollfd fd = { .fd = http2->fd, .events = POLLIN };
        if (poll(&fd, 1, (int)left) > 0 && !enough)
            until = now_ms() + limit_ms;
    }
}

/* --- the connection --------------------------------------------------------------------------- */

static int greet(struct raw_http2 *http2, struct err *err)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    static const char window_0[] = { 0, SETTING_INITIAL_WINDOW, 0, 0, 0, 0 };
    uint8_t head[HEAD];
    size_t size = http2->options.reads_nothing ? sizeof window_0 : 0;
    CLEANUP(buf_done) struct buf hello = { 0 };
    head_write(head, FRAME_SETTINGS, 0, 0, size);
    buf_append(&hello, preface, sizeof preface - 1);
    buf_append(&hello, head, sizeof head);
    buf_append(&hello, window_0, size);
    return send_now(http2, hello.data, hello.size, err);
}

int raw_http2_open(int port, const struct raw_http2_options *options, struct raw_http2 **ret,
                   struct err *err)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct raw_http2 *http2 = mem_calloc(1, sizeof *http2);
    if (!http2)
        return err_set(err, ERR_NOMEM, "raw http2");
    http2->input = mem_calloc(1, INPUT_BYTES);
    http2->window = http2->window_first = WINDOW_FIRST;
    if (options)
        http2->options = *options;
    http2->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc = 0;
    if (!http2->input || http2->fd < 0 ||
        connect(http2->fd, (const struct sockaddr *)&to, sizeof to) != 0)
        rc = err_set(err, ERR_UNAVAILABLE, "raw http2: %s", strerror(errno));
    if (!rc && !http2->options.no_preface)
        rc = greet(http2, err);
    if (rc) {
        (void)raw_http2_free(http2); /* always NULL */
        return rc;
    }
    *ret = http2;
    return 0;
}

struct raw_http2 *raw_http2_free(struct raw_http2 *http2)
{
    if (!http2)
        return NULL;
    if (http2->fd >= 0)
        (void)close(http2->fd); /* what was not sent is not missed */
    buf_done(&http2->answers);
    mem_free(http2->input);
    mem_free(http2);
    return NULL;
}
