#include "rpc/status.h"

#include "base/utf8.h"

#include <google/protobuf/any.pb-c.h>
#include <google/rpc/error_details.pb-c.h>
#include <google/rpc/status.pb-c.h>
#include <stdio.h>
#include <string.h>

enum { RETRY_DELAY_MS = 500, DETAILS_MAX = 3 };

static const grpc_status_code codes[] = {
    [ERR_OK] = GRPC_STATUS_OK,
    [ERR_INVALID] = GRPC_STATUS_INVALID_ARGUMENT,
    [ERR_NOT_FOUND] = GRPC_STATUS_NOT_FOUND,
    [ERR_EXISTS] = GRPC_STATUS_ALREADY_EXISTS,
    [ERR_PRECONDITION] = GRPC_STATUS_FAILED_PRECONDITION,
    [ERR_CONFLICT] = GRPC_STATUS_ABORTED,
    [ERR_LIMIT] = GRPC_STATUS_RESOURCE_EXHAUSTED,
    [ERR_UNAVAILABLE] = GRPC_STATUS_UNAVAILABLE,
    [ERR_UNIMPLEMENTED] = GRPC_STATUS_UNIMPLEMENTED,
    [ERR_NOMEM] = GRPC_STATUS_RESOURCE_EXHAUSTED,
    [ERR_INTERNAL] = GRPC_STATUS_INTERNAL,
};
_Static_assert(ARRAY_LEN(codes) == ERR_CODE_COUNT, "a status for each code");

grpc_status_code status_code(enum err_code code)
{
    return code < ERR_CODE_COUNT ? codes[code] : GRPC_STATUS_INTERNAL;
}

const char *status_reason(const struct err *err)
{
    return *err->reason ? err->reason : err_code_name(err->code);
}

void status_clean_text(const char *text, char *ret, size_t size)
{
    size_t used = utf8_cut(text, strlen(text), size - 1);
    memcpy(ret, text, used);
    ret[used] = '\0';
    if (utf8_is_text(ret, used))
        return;
    bool valid = utf8_is_valid(ret, used);
    for (size_t i = 0; i < used; i++) {
        unsigned char c = (unsigned char)ret[i];
        /* U+0080-009F are 0xc2 0x80-0x9f: both bytes go */
        bool is_c1 =
            c == 0xc2 && (unsigned char)ret[i + 1] >= 0x80 && (unsigned char)ret[i + 1] <= 0x9f;
        if (is_c1)
            ret[i + 1] = '?';
        if (c < 0x20 || c == 0x7f || is_c1 || (!valid && c >= 0x80))
            ret[i] = '?';
    }
}

void faults_add(void *ctx, const char *field, const char *description)
{
    struct faults *faults = ctx;
    faults->count++;
    if (faults->kept == FAULTS_KEPT)
        return;
    struct fault *fault = &faults->items[faults->kept++];
    status_clean_text(field, fault->field, sizeof fault->field);
    status_clean_text(description, fault->text, sizeof fault->text);
}

/* Details being packed. */
struct packing {
    uint8_t data[DETAILS_MAX][STATUS_DETAILS_BYTES];
    Google__Protobuf__Any any[DETAILS_MAX], *list[DETAILS_MAX];
    size_t count;
};

static void pack_detail(struct packing *packing, char *type_url, const ProtobufCMessage *message)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    if (size > sizeof packing->data[0])
        return; /* what would not fit is left out: code and message say the same in short */
    size_t i = packing->count++;
    (void)protobuf_c_message_pack(message, packing->data[i]); /* always writes `size` bytes */
    google__protobuf__any__init(&packing->any[i]);
    packing->any[i].type_url = type_url;
    packing->any[i].value = (ProtobufCBinaryData){ size, packing->data[i] };
    packing->list[i] = &packing->any[i];
}

static void pack_error_info(struct packing *packing, const struct err *err)
{
    static char url[] = "type.googleapis.com/google.rpc.ErrorInfo", domain[] = STATUS_DOMAIN;
    char reason[sizeof err->reason];
    (void)snprintf(reason, sizeof reason, "%s", status_reason(err));
    Google__Rpc__ErrorInfo info = GOOGLE__RPC__ERROR_INFO__INIT;
    info.reason = reason;
    info.domain = domain;
    pack_detail(packing, url, &info.base);
}

static void pack_retry_info(struct packing *packing)
{
    static char url[] = "type.googleapis.com/google.rpc.RetryInfo";
    Google__Protobuf__Duration delay = GOOGLE__PROTOBUF__DURATION__INIT;
    delay.nanos = RETRY_DELAY_MS * 1000000;
    Google__Rpc__RetryInfo info = GOOGLE__RPC__RETRY_INFO__INIT;
    info.retry_delay = &delay;
    pack_detail(packing, url, &info.base);
}

typedef Google__Rpc__BadRequest__FieldViolation violation;

/* The first violations that fit into `room` bytes; the last says how many were left out. */
static void pack_bad_request(struct packing *packing, const struct faults *faults, size_t room)
{
    static char url[] = "type.googleapis.com/google.rpc.BadRequest", none[] = "";
    struct faults copy = *faults; /* messages point to text that may be written to */
    violation items[FAULTS_KEPT + 1], *list[FAULTS_KEPT + 1];
    char more[64];
    size_t used = sizeof more, count = 0;
    for (; count < copy.kept; count++) {
        struct fault *fault = &copy.items[count];
        used += strlen(fault->field) + strlen(fault->text) + 8; /* tags and lengths */
        if (used > room)
            break;
        items[count] = (violation)GOOGLE__RPC__BAD_REQUEST__FIELD_VIOLATION__INIT;
        items[count].field = fault->field;
        items[count].description = fault->text;
        list[count] = &items[count];
    }
    Google__Rpc__BadRequest request = GOOGLE__RPC__BAD_REQUEST__INIT;
    request.n_field_violations = count;
    request.field_violations = list;
    if (count < copy.count) {
        (void)snprintf(more, sizeof more, "and %zu more", copy.count - count);
        items[count] = (violation)GOOGLE__RPC__BAD_REQUEST__FIELD_VIOLATION__INIT;
        items[count].field = none;
        items[count].description = more;
        list[count] = &items[count];
        request.n_field_violations++;
    }
    pack_detail(packing, url, &request.base);
}

static void pack_status(struct answer *answer, const struct err *err, const struct faults *faults,
                        char *message)
{
    struct packing packing = { .count = 0 };
    pack_error_info(&packing, err);
    if (err->retryable)
        pack_retry_info(&packing);
    struct faults one = { 0 };
    if (!faults && *err->field) {
        faults_add(&one, err->field, err->msg);
        faults = &one;
    }
    if (faults && faults->count)
        pack_bad_request(&packing, faults, STATUS_DETAILS_BYTES - strlen(message) - 256);
    Google__Rpc__Status status = GOOGLE__RPC__STATUS__INIT;
    status.code = (int32_t)answer->code;
    status.message = message;
    status.n_details = packing.count;
    status.details = packing.list;
    size_t size = google__rpc__status__get_packed_size(&status);
    answer->details = grpc_slice_malloc(size);
    (void)google__rpc__status__pack(&status, GRPC_SLICE_START_PTR(answer->details));
    answer->has_details = true;
    answer->trailer = (grpc_metadata){
        .key = grpc_slice_from_static_string("grpc-status-details-bin"),
        .value = answer->details,
    };
}

void answer_set(struct answer *answer, const struct err *err, const struct faults *faults)
{
    answer->code = err ? status_code(err->code) : GRPC_STATUS_OK;
    if (!err)
        return;
    char message[STATUS_MESSAGE_BYTES];
    status_clean_text(err->msg, message, sizeof message);
    answer->message = grpc_slice_from_copied_string(message);
    answer->has_message = true;
    pack_status(answer, err, faults, message);
}

void answer_done(struct answer *answer)
{
    if (answer->has_message)
        grpc_slice_unref(answer->message);
    if (answer->has_details)
        grpc_slice_unref(answer->details);
    if (answer->payload)
        grpc_byte_buffer_destroy(answer->payload);
    *answer = (struct answer){ .code = GRPC_STATUS_OK };
}

grpc_op answer_op(struct answer *answer)
{
    grpc_op op = { 0 };
    op.op = GRPC_OP_SEND_STATUS_FROM_SERVER;
    op.data.send_status_from_server.status = answer->code;
    if (answer->has_message)
        op.data.send_status_from_server.status_details = &answer->message;
    if (answer->has_details) {
        op.data.send_status_from_server.trailing_metadata = &answer->trailer;
        op.data.send_status_from_server.trailing_metadata_count = 1;
    }
    return op;
}
