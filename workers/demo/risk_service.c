/* The risk service: a third party that takes effect each time it is called (risk.proto). */
#include "effect_log.h"
#include "risk_verdict.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const methods[] = {
    [RISK_NOTIFY] = "/demo.risk.v1.RiskService/Notify",
    [RISK_WITHDRAW] = "/demo.risk.v1.RiskService/Withdraw",
};
static_assert(ARRAY_LEN(methods) == RISK_METHOD_COUNT, "one path for each method");

static int decide(void *ctx, size_t method, const uint8_t *request, size_t size, int64_t mono_ms,
                  struct third_party_answer *ret_answer, struct buf *reply, struct err *err)
{
    (void)mono_ms; /* it remembers nothing */
    return risk_decide(ctx, (enum risk_method)method, request, size, ret_answer, reply, err);
}

int main(int argc, char **argv)
{
    if (argc != 5 || strcmp(argv[1], "--listen") != 0 || strcmp(argv[3], "--log") != 0) {
        (void)fprintf(stderr, "usage: risk_service --listen 127.0.0.1:PORT --log FILE\n");
        return 2;
    }
    struct risk_desk desk = { 0 };
    struct err err;
    if (effect_log_open(argv[4], &desk.log_fd, &err)) {
        (void)fprintf(stderr, "risk_service: %s\n", err.msg);
        return 1;
    }
    rng_seed_os(&desk.rng);
    const struct third_party party = { .program = "risk_service",
                                       .methods = methods,
                                       .method_count = ARRAY_LEN(methods),
                                       .decide = decide,
                                       .ctx = &desk };
    int result = third_party_serve(&party, argv[2]);
    (void)close(desk.log_fd); /* every line was written by its own call */
    return result;
}
