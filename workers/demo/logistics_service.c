/* The logistics service: a third party that knows keys for a while, loses answers and is late
 * (logistics.proto). */
#include "effect_log.h"
#include "logistics_desk.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { REMEMBER_SECONDS_MAX = 86400 };

static const char *const methods[] = {
    [LOGISTICS_CREATE] = "/demo.logistics.v1.LogisticsService/CreateWaybill",
    [LOGISTICS_FIND] = "/demo.logistics.v1.LogisticsService/FindWaybill",
    [LOGISTICS_CANCEL] = "/demo.logistics.v1.LogisticsService/CancelWaybill",
};
static_assert(ARRAY_LEN(methods) == LOGISTICS_METHOD_COUNT, "one path for each method");

static int decide(void *ctx, size_t method, const uint8_t *request, size_t size, int64_t mono_ms,
                  struct third_party_answer *ret_answer, struct buf *reply, struct err *err)
{
    return logistics_decide(ctx, (enum logistics_method)method, request, size, mono_ms, ret_answer,
                            reply, err);
}

static int tick(void *ctx, int64_t mono_ms, struct err *err)
{
    return logistics_tick(ctx, mono_ms, err);
}

static bool parse_seconds(const char *text, int64_t *ret_ms)
{
    char *end;
    long seconds = strtol(text, &end, 10);
    if (end == text || *end || seconds < 1 || seconds > REMEMBER_SECONDS_MAX)
        return false;
    *ret_ms = (int64_t)seconds * 1000;
    return true;
}

int main(int argc, char **argv)
{
    struct logistics_desk desk = { 0 };
    if (argc != 7 || strcmp(argv[1], "--listen") != 0 || strcmp(argv[3], "--log") != 0 ||
        strcmp(argv[5], "--remember-seconds") != 0 || !parse_seconds(argv[6], &desk.remember_ms)) {
        (void)fprintf(stderr,
                      "usage: logistics_service --listen 127.0.0.1:PORT --log FILE"
                      " --remember-seconds N\n"
                      "N: 1 to %d\n",
                      REMEMBER_SECONDS_MAX);
        return 2;
    }
    struct err err;
    if (effect_log_open(argv[4], &desk.log_fd, &err)) {
        (void)fprintf(stderr, "logistics_service: %s\n", err.msg);
        return 1;
    }
    rng_seed_os(&desk.rng);
    const struct third_party party = { .program = "logistics_service",
                                       .methods = methods,
                                       .method_count = ARRAY_LEN(methods),
                                       .decide = decide,
                                       .tick = tick,
                                       .ctx = &desk };
    int result = third_party_serve(&party, argv[2]);
    (void)close(desk.log_fd); /* every line was written by its own call */
    logistics_desk_done(&desk);
    return result;
}
