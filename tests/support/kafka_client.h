/* Between the parts of kafka.h: the client that they share, and one admin call after the other.
 * thread: the test thread only. */
#ifndef SUPPORT_KAFKA_CLIENT_H
#define SUPPORT_KAFKA_CLIENT_H

#include "support/kafka.h"

/* A producer, made at the first use and again after kafka_client_drop. */
MUST_USE int kafka_client(struct test_kafka *kafka, rd_kafka_t **ret_client, struct err *err);
/* What it knew of topics and brokers is not so any more. */
void kafka_client_drop(struct test_kafka *kafka);
/* Settings of a client of this Kafka: "name=value", NULL at the end. Owned. */
MUST_USE int kafka_client_conf(const struct test_kafka *kafka, const char *const *settings,
                               rd_kafka_conf_t **ret_conf, struct err *err);
MUST_USE int kafka_partition_count(struct test_kafka *kafka, const char *topic, int *ret_count,
                                   struct err *err);

/* One admin call: begin, the call with .queue and .options, wait, look at .event, end. */
struct kafka_admin {
    rd_kafka_t *client;
    rd_kafka_queue_t *queue;
    rd_kafka_AdminOptions_t *options;
    rd_kafka_event_t *event;
};

MUST_USE int kafka_admin_begin(struct test_kafka *kafka, rd_kafka_admin_op_t operation,
                               struct kafka_admin *ret_admin, struct err *err);
/* The answer is there, and is no error for the call as a whole. */
MUST_USE int kafka_admin_wait(struct kafka_admin *admin, const char *context, struct err *err);
void kafka_admin_end(struct kafka_admin *admin);
/* 0, or what the first of these answers is. */
MUST_USE int kafka_admin_topic_results(const rd_kafka_topic_result_t **results, size_t count,
                                       const char *context, struct err *err);

#endif
