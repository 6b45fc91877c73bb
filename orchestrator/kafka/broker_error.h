/* What an error of librdkafka or of a broker means to us: one table over its codes. Any thread. */
#ifndef KAFKA_BROKER_ERROR_H
#define KAFKA_BROKER_ERROR_H

#include "base/err.h"

#include <librdkafka/rdkafka.h>

/* Fills err (code, retryable, "context: what librdkafka calls it") and returns its code. `error` is
 * not RD_KAFKA_RESP_ERR_NO_ERROR. */
int broker_error_set(struct err *err, rd_kafka_resp_err_t error, const char *context);
/* The same with the longer text that an rd_kafka_error_t has; consumes `error` (not NULL). */
int broker_error_take(struct err *err, rd_kafka_error_t *error, const char *context);
/* The meaning alone (tests sweep it). */
enum err_code broker_error_code(rd_kafka_resp_err_t error, bool *ret_retryable);

#endif
