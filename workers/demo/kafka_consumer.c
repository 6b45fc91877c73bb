/* The old consumer of the settlements, as it was before sagad: reads a batch, does each settlement
 * to its end (debit, ledger, risk; a refusal takes both back), and commits its offsets when the
 * batch is done. If it dies in between nobody knows how far it came, and whoever reads the batch
 * again does it again. The one thing that was changed before the topic is handed over: each effect
 * in the bank stands in one transaction with the guard (kafka_bank.c).
 *
 *   kafka_consumer --brokers HOST:PORT --topic T --group G --batch N --bank CONNINFO --risk ADDRESS
 *                  [--canary N]
 *
 * With --canary it leaves alone the settlements that sagad's rule with the same `canary` takes.
 * Prints what it does, a line for each thing. Ends by a signal, or with 1 at the first error. */
#include "base/clock.h"
#include "base/mem.h"
#include "kafka_bank.h"
#include "message.h"
#include "risk_client.h"
#include "worker_program.h"

#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <string.h>

enum {
    BATCH_MAX = 10000,
    CALL_MS = 10000,
    GATHER_MS = 3000, /* a batch that is not full ends when so long nothing came */
    RISK_TIMEOUT_MS = 3000,
};

struct old_consumer {
    rd_kafka_t *kafka;
    PGconn *bank;
    struct caller *risk;
    rd_kafka_message_t **batch; /* `batch_max` of them */
    size_t batch_max;
    uint32_t canary; /* 0: all settlements are ours */
};

static void tell(const Bank__V1__Payment *payment, const char *what)
{
    (void)printf("%s %s\n", payment->payment_id, what); /* for whoever looks on */
}

/* --- one settlement --------------------------------------------------------------------------- */

static int take_back(struct old_consumer *consumer, const Bank__V1__Payment *payment, int64_t debit,
                     int64_t entry, struct err *err)
{
    int64_t row;
    int rc = kafka_bank_do(consumer->bank, KAFKA_BANK_REVERSAL, payment, entry, &row, err);
    if (!rc)
        rc = kafka_bank_do(consumer->bank, KAFKA_BANK_REFUND, payment, debit, &row, err);
    if (!rc)
        tell(payment, "taken back");
    return rc;
}

/* Calls once. What it cannot know (no answer) it takes for done, as such programs do. */
static int call_risk(struct old_consumer *consumer, const Bank__V1__Payment *payment,
                     bool *ret_refused, struct err *err)
{
    if (!caller_connect(consumer->risk, CALL_MS))
        return err_set(err, ERR_UNAVAILABLE, "risk: no connection");
    const struct risk_notification notification = { .idempotency_key = payment->payment_id,
                                                    .settlement_id = payment->payment_id,
                                                    .account = payment->account,
                                                    .amount_cents = payment->amount_cents,
                                                    .behaviour = payment->risk };
    tell(payment, "calls risk");
    struct risk_outcome outcome =
        risk_client_notify(consumer->risk, &notification, caller_until_ms(RISK_TIMEOUT_MS));
    *ret_refused = outcome.result == RISK_REFUSED;
    switch (outcome.result) {
    case RISK_ACCEPTED:
    case RISK_ALREADY_EXISTS:
        tell(payment, "settled");
        return 0;
    case RISK_REFUSED:
        return 0;
    case RISK_UNKNOWN:
        tell(payment, "risk did not answer");
        return 0;
    case RISK_TRY_LATER:
    case RISK_INVALID:
    case RISK_NOT_SENT:
        break;
    }
    return err_set(err, ERR_UNAVAILABLE, "risk: %s: %s", outcome.code, outcome.message);
}

static int settle(struct old_consumer *consumer, const Bank__V1__Payment *payment, struct err *err)
{
    int64_t debit = 0, entry = 0;
    bool refused = false;
    int rc = kafka_bank_do(consumer->bank, KAFKA_BANK_DEBIT, payment, 0, &debit, err);
    if (rc == ERR_PRECONDITION) { /* a business no, now or when it was read before */
        tell(payment, err->msg);
        return 0;
    }
    if (rc)
        return rc;
    tell(payment, "debited");
    rc = kafka_bank_do(consumer->bank, KAFKA_BANK_LEDGER, payment, debit, &entry, err);
    if (rc)
        return rc;
    tell(payment, "in the ledger");
    rc = call_risk(consumer, payment, &refused, err);
    return rc || !refused ? rc : take_back(consumer, payment, debit, entry, err);
}

/* --- batches ---------------------------------------------------------------------------------- */

/* The CRC-32 of zlib (crc32(0, ...)), bit by bit. */
static uint32_t crc32_of(const char *text)
{
    uint32_t crc = UINT32_MAX;
    for (; *text; text++) {
        crc ^= (uint8_t)*text;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0xedb88320) : 0);
    }
    return ~crc;
}

static int handle(struct old_consumer *consumer, const rd_kafka_message_t *record, struct err *err)
{
    CLEANUP(message_p)
    Bank__V1__Payment *payment =
        bank__v1__payment__unpack(NULL, record->len, (const uint8_t *)record->payload);
    if (!payment)
        return err_set(err, ERR_INVALID, "%d at %lld is no Payment", (int)record->partition,
                       (long long)record->offset);
    if (crc32_of(payment->payment_id) % 100 < consumer->canary) {
        tell(payment, "is left to sagad");
        return 0;
    }
    return settle(consumer, payment, err);
}

static int gather(struct old_consumer *consumer, size_t *ret_count, struct err *err)
{
    while (*ret_count < consumer->batch_max) {
        rd_kafka_message_t *record = rd_kafka_consumer_poll(consumer->kafka, GATHER_MS);
        if (!record)
            return 0;
        if (record->err) {
            int rc = err_set(err, ERR_UNAVAILABLE, "topic: %s", rd_kafka_message_errstr(record));
            rd_kafka_message_destroy(record);
            return rc;
        }
        consumer->batch[(*ret_count)++] = record;
    }
    return 0;
}

static int batch(struct old_consumer *consumer, struct err *err)
{
    size_t count = 0;
    int rc = gather(consumer, &count, err);
    for (size_t i = 0; !rc && i < count; i++)
        rc = handle(consumer, consumer->batch[i], err);
    rd_kafka_resp_err_t code = 0;
    if (!rc && count)
        code = rd_kafka_commit(consumer->kafka, NULL, 0); /* all that was polled */
    if (code)
        rc = err_set(err, ERR_UNAVAILABLE, "commit: %s", rd_kafka_err2str(code));
    for (size_t i = 0; i < count; i++)
        rd_kafka_message_destroy(consumer->batch[i]);
    if (!rc && count)
        (void)printf("a batch of %zu is committed\n", count); /* as tell */
    return rc;
}

/* --- the group -------------------------------------------------------------------------------- */

/* Where it begins is committed at once, as clients do that commit their positions when partitions
 * come and go: so the group has an offset of every partition. */
static rd_kafka_resp_err_t begin(rd_kafka_t *kafka, rd_kafka_topic_partition_list_t *partitions)
{
    rd_kafka_resp_err_t code = rd_kafka_committed(kafka, partitions, CALL_MS);
    for (int i = 0; !code && i < partitions->cnt; i++) {
        rd_kafka_topic_partition_t *part = &partitions->elems[i];
        int64_t high;
        if (part->offset < 0)
            code = rd_kafka_query_watermark_offsets(kafka, part->topic, part->partition,
                                                    &part->offset, &high, CALL_MS);
    }
    if (!code)
        code = rd_kafka_assign(kafka, partitions);
    return code || !partitions->cnt ? code : rd_kafka_commit(kafka, partitions, 0);
}

static void rebalance(rd_kafka_t *kafka, rd_kafka_resp_err_t why,
                      rd_kafka_topic_partition_list_t *partitions, void *opaque)
{
    (void)opaque; /* librdkafka's signature */
    rd_kafka_resp_err_t code = why == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS
                                   ? begin(kafka, partitions)
                                   : rd_kafka_assign(kafka, NULL);
    if (code)
        (void)fprintf(stderr, "kafka_consumer: partitions: %s\n", rd_kafka_err2str(code));
    else
        (void)printf("has %d partitions\n",
                     why == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS ? partitions->cnt : 0);
}

static int join(struct old_consumer *consumer, const char *brokers, const char *topic,
                const char *group, struct err *err)
{
    const char *const settings[][2] = {
        { "bootstrap.servers", brokers },  { "group.id", group },
        { "enable.auto.commit", "false" }, { "auto.offset.reset", "earliest" },
        { "session.timeout.ms", "6000" },
    };
    char message[200];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    for (size_t i = 0; i < ARRAY_LEN(settings); i++) {
        if (rd_kafka_conf_set(conf, settings[i][0], settings[i][1], message, sizeof message)) {
            rd_kafka_conf_destroy(conf);
            return err_set(err, ERR_INVALID, "%s", message);
        }
    }
    rd_kafka_conf_set_rebalance_cb(conf, rebalance);
    consumer->kafka = rd_kafka_new(RD_KAFKA_CONSUMER, conf, message, sizeof message);
    if (!consumer->kafka) {
        rd_kafka_conf_destroy(conf); /* librdkafka takes it only with the client */
        return err_set(err, ERR_INVALID, "%s", message);
    }
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
    (void)rd_kafka_topic_partition_list_add(topics, topic, RD_KAFKA_PARTITION_UA); /* never NULL */
    rd_kafka_resp_err_t code = rd_kafka_subscribe(consumer->kafka, topics);
    rd_kafka_topic_partition_list_destroy(topics);
    return code ? err_set(err, ERR_UNAVAILABLE, "subscribe: %s", rd_kafka_err2str(code)) : 0;
}

int main(int argc, char **argv)
{
    const char *brokers, *topic, *group, *size, *bank, *risk, *canary = "0";
    const struct worker_option options[] = { { "--brokers", &brokers }, { "--topic", &topic },
                                             { "--group", &group },     { "--batch", &size },
                                             { "--bank", &bank },       { "--risk", &risk },
                                             { "--canary", &canary } };
    bool parsed = worker_options_parse(argc, argv, options, ARRAY_LEN(options) - 1) ||
                  worker_options_parse(argc, argv, options, ARRAY_LEN(options));
    long most = parsed ? strtol(size, NULL, 10) : 0;
    long percent = parsed ? strtol(canary, NULL, 10) : -1;
    if (most < 1 || most > BATCH_MAX || percent < 0 || percent > 100) {
        (void)fprintf(stderr, "usage: kafka_consumer --brokers HOST:PORT --topic TOPIC --group NAME"
                              " --batch N --bank CONNINFO --risk ADDRESS [--canary PERCENT]\n"
                              "N: 1 to 10000, PERCENT: 0 to 100\n");
        return 2;
    }
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* each line as it happens: kill -9 takes none back */
    struct old_consumer consumer = { .batch_max = (size_t)most,
                                     .canary = (uint32_t)percent,
                                     .bank = PQconnectdb(bank) };
    struct err err;
    int rc = 0;
    consumer.batch = mem_calloc(consumer.batch_max, sizeof(rd_kafka_message_t *));
    if (!consumer.batch)
        rc = err_set(&err, ERR_NOMEM, "out of memory");
    else if (PQstatus(consumer.bank) != CONNECTION_OK)
        rc = err_set(&err, ERR_UNAVAILABLE, "bank: %s", PQerrorMessage(consumer.bank));
    else
        rc = caller_create(risk, &consumer.risk, &err);
    if (!rc)
        rc = join(&consumer, brokers, topic, group, &err);
    while (!rc)
        rc = batch(&consumer, &err);
    (void)fprintf(stderr, "kafka_consumer: %s\n", err.msg);
    return 1; /* the process ends, and with it all that it holds: it leaves its group by silence */
}
