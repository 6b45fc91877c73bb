#include "kafka_rows.h"

#include <stdio.h>

void kafka_rows_clear(struct rig *rig)
{
    rig_exec(rig, RIG_STORE,
             "SET client_min_messages = warning;"
             " TRUNCATE kafka_rule, kafka_cursor, dead_letter, kafka_request;"
             " DELETE FROM outbox; DELETE FROM outbox_relay;"
             " DROP TRIGGER IF EXISTS node ON kafka_request");
}

void kafka_rows_rule(struct rig *rig, const char *rule, const char *wanted)
{
    rig_exec(rig, RIG_STORE,
             "INSERT INTO kafka_rule (rule, topic, group_id, namespace, definition, wanted,"
             " stopped_by, stop_reason, stopped_at, topic_retention_ms, topic_compacted,"
             " key_memory_ms, node, seen_at)"
             " SELECT '%s', 'payments', 'g', 'default', 'settlement', w,"
             " CASE WHEN w = 'STOP' THEN 'bob' END, CASE WHEN w = 'STOP' THEN 'before' END,"
             " CASE WHEN w = 'STOP' THEN now() END, 604800000, false, -1, 'n1', now()"
             " FROM (VALUES ('%s')) AS v (w)",
             rule, wanted);
}

void kafka_rows_partition(struct rig *rig, const char *rule, int partition)
{
    rig_exec(rig, RIG_STORE,
             "INSERT INTO kafka_cursor (rule, topic, partition, next_offset, records, started,"
             " low_offset, end_offset, node, rate_per_s, seen_at)"
             " VALUES ('%s', 'payments', %d, 100, 60, 50, 40, 300, 'n1', 12.5, now())",
             rule, partition);
}

void kafka_rows_gap(struct rig *rig, const char *rule, int partition)
{
    rig_exec(rig, RIG_STORE,
             "UPDATE kafka_cursor SET state = 'STOPPED', stop_reason = 'GAP', stop_from = 100,"
             " stop_to = 219, stop_message = 'trimmed', stopped_at = now(), low_offset = 220"
             " WHERE rule = '%s' AND partition = %d",
             rule, partition);
}

const char *kafka_rows_letter_id(int number, char ret[LETTER_ID_SIZE])
{
    (void)snprintf(ret, LETTER_ID_SIZE, "01900000-0000-7000-8000-%012d", number);
    return ret;
}

void kafka_rows_event(struct rig *rig, int refusals, const char *error)
{
    rig_exec(
        rig, RIG_STORE,
        "INSERT INTO outbox (shard, saga_uid, seq, part, created_at, failed_at, failures, error)"
        " SELECT s.shard, s.saga_uid, 0, 0, now() - interval '1 hour',"
        " CASE WHEN n > 0 THEN now() - interval '1 minute' END, n, '%s'"
        " FROM (SELECT * FROM saga ORDER BY started_at DESC LIMIT 1) s, (VALUES (%d)) v (n)",
        error, refusals);
}

void kafka_rows_relay(struct rig *rig, const char *problem)
{
    rig_exec(rig, RIG_STORE,
             "INSERT INTO outbox_relay (instance, node, until, published, refused, problem) VALUES"
             " (gen_random_uuid(), 'n1', now() + interval '1 hour', 12, 3, nullif('%s', ''))",
             problem);
}

void kafka_rows_letter(struct rig *rig, const char *rule, int number, const char *reason,
                       const char *value)
{
    char id[LETTER_ID_SIZE];
    rig_exec(rig, RIG_STORE,
             "INSERT INTO dead_letter (dead_letter_id, rule, topic, partition, record_offset,"
             " record_time_ms, record_crc, key, value, headers, saga_id, reason, message,"
             " received_at)"
             " VALUES ('%s', '%s', 'payments', 3, 1000 + %d, 1772460491000, 7, 'K-%d', %s,"
             /* type=x; its name again, null */
             " '\\x0a090a0474797065120178' || '\\x0a060a0474797065'::bytea, NULL, '%s',"
             " 'what is wrong', now())",
             kafka_rows_letter_id(number, id), rule, number, number, value, reason);
}

void kafka_rows_answer(struct rig *rig, const char *kind, const char *state, const char *result,
                       const char *error)
{
    rig_exec(rig, RIG_STORE,
             "CREATE OR REPLACE FUNCTION node_answers() RETURNS trigger LANGUAGE plpgsql AS $$"
             " BEGIN IF NEW.kind = '%s' THEN NEW.state := '%s'; NEW.node := 'n1';"
             " NEW.result := nullif('%s', ''); NEW.error := nullif('%s', '');"
             " NEW.progress := 7; NEW.total := 9;"
             " NEW.finished_at := CASE WHEN NEW.state IN ('DONE', 'FAILED') THEN now() END;"
             " END IF; RETURN NEW; END $$",
             kind, state, result, error);
    rig_exec(rig, RIG_STORE, "DROP TRIGGER IF EXISTS node ON kafka_request");
    rig_exec(rig, RIG_STORE,
             "CREATE TRIGGER node BEFORE INSERT ON kafka_request FOR EACH ROW"
             " EXECUTE FUNCTION node_answers()");
}
