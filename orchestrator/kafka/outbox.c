#include "kafka/outbox.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/rng.h"
#include "kafka/event.h"
#include "kafka/producer.h"
#include "store/outbox.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum {
    PAGE = 512,
    IN_FLIGHT_MAX = 4096,      /* sagas and handlers with an event on its way; more wait in the
                                * database */
    SLICE_TTL_MS = 15000,      /* slices of a relay that died are free after this */
    SLICE_MARGIN_MS = 3000,    /* of it: nothing is sent in the last part */
    CLAIM_MS = 2000,           /* how often the slices are renewed */
    IDLE_MS = 100,             /* between two looks for events when there were none */
    BUSY_MS = 10,              /* the same while some are on their way */
    RETRY_MS = 1000,           /* after an error that was not the event's */
    CAREFUL_EVENTS = 2 * PAGE, /* sent one by one after a batch was refused */
    STOP_DELIVERY_MS = 3000,   /* of the grace at most, for what is on its way */
};

enum item_state {
    ITEM_SENT,
    ITEM_STORED,  /* to be removed from the database */
    ITEM_REFUSED, /* to be marked there */
};

struct item { /* an event that is on its way, or whose fate is not in the database yet */
    struct store_event_id id; /* the key: its uid, of which one is on its way */
    enum item_state state;
    bool alone;    /* nothing else was on its way beside it */
    char why[200]; /* REFUSED */
    UT_hash_handle hh;
};

struct outbox {
    struct outbox_options options; /* texts owned */
    struct kafka_properties properties;
    struct store_outbox *store;
    struct producer *producer;
    pthread_t thread;
    int wake_fd;
    atomic_bool stopping;
    atomic_int_fast64_t deliver_until_ms; /* monotonic, once it is stopping */
    atomic_int_fast64_t published, refused, producers;

    /* the thread's */
    uint16_t slices, leaving; /* leaving: read no more, to be given away */
    int64_t slices_until_ms, claim_at_ms, database_at_ms, read_at_ms; /* monotonic */
    struct store_outbox_cursor cursors[OUTBOX_SLICES];
    struct store_event *page; /* PAGE */
    struct item *items;       /* by uid */
    size_t sent;              /* of them, in state SENT */
    size_t careful;           /* so many more events are sent one by one */
    struct store_event_id ids[IN_FLIGHT_MAX];
    char problem[320]; /* "": none */
};

static int64_t now_ms(void)
{
    return clock_mono_ms(&clock_system);
}

/* --- what people see -------------------------------------------------------------------------- */

static void trouble(struct outbox *outbox, const char *what)
{
    if (!outbox->problem[0])
        log_line(LOG_WARN, "outbox: events wait", "topic", outbox->options.topic, "err", what,
                 NULL);
    (void)snprintf(outbox->problem, sizeof outbox->problem, "%s", what);
}

static void trouble_over(struct outbox *outbox)
{
    if (outbox->problem[0])
        log_line(LOG_INFO, "outbox: events leave again", "topic", outbox->options.topic, NULL);
    outbox->problem[0] = '\0';
}

static void database_trouble(struct outbox *outbox, const struct err *err)
{
    trouble(outbox, err->msg);
    outbox->database_at_ms = now_ms() + RETRY_MS;
}

void outbox_counters(const struct outbox *outbox, struct outbox_counters *ret)
{
    *ret = (struct outbox_counters){ .published = atomic_load(&outbox->published),
                                     .refused = atomic_load(&outbox->refused),
                                     .producers = atomic_load(&outbox->producers) };
}

/* --- items ------------------------------------------------------------------------------------ */

static struct item *item_find(const struct outbox *outbox, const struct uuid *uid)
{
    struct item *item;
    HASH_FIND(hh, outbox->items, uid, sizeof *uid, item);
    return item;
}

static struct item *item_add(struct outbox *outbox, const struct store_event_id *id)
{
    struct item *item = mem_calloc(1, sizeof *item);
    if (!item)
        return NULL;
    item->id = *id;
    HASH_ADD(hh, outbox->items, id.uid, sizeof item->id.uid, item);
    if (!hash_holds(&item->hh)) {
        mem_free(item);
        return NULL;
    }
    outbox->sent++;
    item->alone = outbox->sent == 1 && outbox->careful;
    return item;
}

/* It is in the database as before, and read again in its turn. */
static void item_drop(struct outbox *outbox, struct item *item)
{
    if (item->state == ITEM_SENT)
        outbox->sent--;
    HASH_DEL(outbox->items, item);
    mem_free(item);
}

static void item_refuse(struct outbox *outbox, struct item *item, const char *why)
{
    if (item->state == ITEM_SENT)
        outbox->sent--;
    item->state = ITEM_REFUSED;
    (void)snprintf(item->why, sizeof item->why, "%s", why);
}

static void on_told(void *ctx, void *pointer, enum producer_fate fate, const struct err *err)
{
    struct outbox *outbox = ctx;
    struct item *item = pointer;
    if (fate == PRODUCER_STORED) {
        outbox->sent--;
        item->state = ITEM_STORED;
        trouble_over(outbox);
    } else if (fate == PRODUCER_REFUSED && item->alone) {
        item_refuse(outbox, item, err->msg);
    } else if (fate == PRODUCER_REFUSED) {
        /* Perhaps for another one in its batch: all are sent again, one by one. */
        outbox->careful = CAREFUL_EVENTS;
        memset(outbox->cursors, 0, sizeof outbox->cursors);
        item_drop(outbox, item);
    } else {
        if (!atomic_load(&outbox->stopping))
            trouble(outbox, err->msg);
        outbox->read_at_ms = now_ms() + RETRY_MS;
        item_drop(outbox, item);
    }
}

/* --- the producer ----------------------------------------------------------------------------- */

static int producer_make(struct outbox *outbox, struct err *err)
{
    const struct producer_options options = {
        .brokers = outbox->options.brokers,
        .topic = outbox->options.topic,
        .properties = outbox->options.properties,
        .told = on_told,
        .ctx = outbox,
    };
    (void)atomic_fetch_add(&outbox->producers, 1);
    return producer_new(&options, &outbox->producer, err);
}

/* Nothing that was on its way is sent any more; all of it is told as AGAIN. */
static void producer_renew(struct outbox *outbox, const char *why)
{
    struct err err;
    struct item *item, *next;
    log_line(LOG_WARN, "outbox: another producer", "why", why, NULL);
    outbox->producer = producer_free(outbox->producer);
    HASH_ITER(hh, outbox->items, item, next) /* of which it could not tell any more */
    if (item->state == ITEM_SENT)
        item_drop(outbox, item);
    if (producer_make(outbox, &err) != 0) /* out of memory: the settings were good before */
        trouble(outbox, err.msg);
}

/* Brokers that cannot be reached, most of all: what is on its way just waits. NULL: none. */
static const char *complaint(const struct outbox *outbox)
{
    return outbox->producer && outbox->sent ? producer_problem(outbox->producer) : NULL;
}

/* --- slices ----------------------------------------------------------------------------------- */

static uint16_t slice_bit(const struct uuid *uid)
{
    return (uint16_t)(1U << uuid_shard(uid) / (256 / OUTBOX_SLICES));
}

static uint16_t busy_slices(const struct outbox *outbox)
{
    uint16_t busy = 0;
    for (const struct item *item = outbox->items; item; item = item->hh.next)
        busy |= slice_bit(&item->id.uid);
    return busy;
}

/* The last ones, so that those that stay are the same ones every time. */
static uint16_t beyond(uint16_t slices, int share)
{
    for (; share > 0 && slices; share--)
        slices = (uint16_t)(slices & (slices - 1U));
    return slices;
}

/* Others may have them by now, or soon: what is on its way must not leave later. */
static void slices_lost(struct outbox *outbox, const char *why)
{
    outbox->slices = outbox->leaving = 0;
    if (outbox->sent)
        producer_renew(outbox, why);
}

static void claim(struct outbox *outbox)
{
    struct err err;
    uint16_t slices;
    int share;
    const char *problem = outbox->problem[0] ? outbox->problem : complaint(outbox);
    const struct store_outbox_claim what = {
        .ttl_ms = SLICE_TTL_MS,
        .give = (uint16_t)(outbox->leaving & ~busy_slices(outbox)),
        .published = atomic_load(&outbox->published),
        .refused = atomic_load(&outbox->refused),
        .problem = problem,
    };
    int64_t before_ms = now_ms();
    outbox->claim_at_ms = before_ms + CLAIM_MS;
    if (store_outbox_claim(outbox->store, &what, &slices, &share, &err) != 0) {
        database_trouble(outbox, &err);
        outbox->claim_at_ms = outbox->database_at_ms;
        return;
    }
    if (outbox->slices & ~slices & ~what.give)
        slices_lost(outbox, "another relay has its slices");
    for (size_t i = 0; i < OUTBOX_SLICES; i++)
        if (!(slices & 1U << i))
            outbox->cursors[i] = (struct store_outbox_cursor){ 0 };
    outbox->slices = slices;
    outbox->leaving = beyond(slices, share);
    outbox->slices_until_ms = before_ms + SLICE_TTL_MS - SLICE_MARGIN_MS;
    if (outbox->leaving) /* soon: somebody waits for them */
        outbox->claim_at_ms = before_ms + IDLE_MS;
}

static void slices_keep(struct outbox *outbox)
{
    struct err err;
    int64_t now = now_ms();
    if (now >= outbox->claim_at_ms)
        claim(outbox);
    if (outbox->slices && now_ms() >= outbox->slices_until_ms)
        slices_lost(outbox, "its slices could not be renewed in time");
    if (outbox->producer && producer_is_broken(outbox->producer, &err))
        producer_renew(outbox, err.msg);
    if (!outbox->producer)
        (void)producer_make(outbox, &err); /* tried again in the next turn */
}

/* --- what became of them, into the database --------------------------------------------------- */

static void settle_refused(struct outbox *outbox, struct item *item)
{
    struct err err;
    char id[EVENT_ID_SIZE];
    event_id(&item->id, id);
    if (store_outbox_refused(outbox->store, &item->id, item->why, &err) != 0) {
        database_trouble(outbox, &err);
        return;
    }
    (void)atomic_fetch_add(&outbox->refused, 1);
    log_line(LOG_WARN, "outbox: an event cannot be published; the later ones of the same wait",
             "event", id, "err", item->why, NULL);
    item_drop(outbox, item);
}

static void settle_stored(struct outbox *outbox, size_t count)
{
    struct err err;
    fault_point("before_outbox_delete");
    if (store_outbox_published(outbox->store, outbox->ids, count, &err) != 0) {
        database_trouble(outbox, &err);
        return;
    }
    (void)atomic_fetch_add(&outbox->published, (int64_t)count);
    for (size_t i = 0; i < count; i++)
        item_drop(outbox, item_find(outbox, &outbox->ids[i].uid));
}

/* While the database is away they stay, and are in nobody's way: in the pages they are known. */
static void settle(struct outbox *outbox)
{
    struct item *item, *next;
    size_t stored = 0;
    if (now_ms() < outbox->database_at_ms)
        return;
    HASH_ITER(hh, outbox->items, item, next)
    {
        if (item->state == ITEM_STORED)
            outbox->ids[stored++] = item->id;
        else if (item->state == ITEM_REFUSED && now_ms() >= outbox->database_at_ms)
            settle_refused(outbox, item);
    }
    if (stored)
        settle_stored(outbox, stored);
}

/* --- pages ------------------------------------------------------------------------------------ */

static bool may_send(const struct outbox *outbox)
{
    return outbox->producer && outbox->slices && now_ms() < outbox->slices_until_ms &&
           now_ms() >= outbox->read_at_ms && !atomic_load(&outbox->stopping);
}

/* Until nothing is on its way. */
static void wait_alone(struct outbox *outbox)
{
    while (outbox->sent && !atomic_load(&outbox->stopping)) {
        producer_poll(outbox->producer, BUSY_MS);
        slices_keep(outbox);
    }
}

/* False: no more of this page, something is full or broken. */
static bool send_event(struct outbox *outbox, const struct store_event *event)
{
    struct err err;
    struct arena arena = { 0 };
    struct producer_record record;
    struct item *item = item_add(outbox, &event->id);
    if (!item)
        return false;
    int rc = event->fault ? err_set(&err, ERR_INTERNAL, "%s", event->fault)
                          : event_record(&arena, event, &record, &err);
    if (!rc)
        rc = producer_send(outbox->producer, &record, item, &err);
    arena_done(&arena);
    if (!rc)
        return true;
    if (err.retryable || err.code == ERR_NOMEM) {
        item_drop(outbox, item);
        return false;
    }
    item_refuse(outbox, item, err.msg);
    return true;
}

/* How many were sent that were not on their way. */
static size_t send_page(struct outbox *outbox, size_t count)
{
    size_t sent = 0;
    bool goes_on = true;
    for (size_t i = 0; i < count; i++) {
        const struct store_event *event = &outbox->page[i];
        if (goes_on && event->due && !item_find(outbox, &event->id.uid)) {
            if (outbox->careful)
                wait_alone(outbox);
            goes_on = may_send(outbox) && send_event(outbox, event);
            sent += goes_on;
            if (outbox->careful && goes_on) {
                wait_alone(outbox);
                outbox->careful--;
            }
        }
        store_event_done(&outbox->page[i]);
    }
    return sent;
}

/* False: there is nothing to be sent for now. */
static bool read_page(struct outbox *outbox)
{
    struct err err;
    size_t count;
    bool more;
    uint16_t slices = (uint16_t)(outbox->slices & ~outbox->leaving);
    if (!slices || !may_send(outbox) || now_ms() < outbox->database_at_ms ||
        HASH_COUNT(outbox->items) + PAGE > IN_FLIGHT_MAX)
        return false;
    if (store_outbox_page(outbox->store, slices, PAGE, outbox->cursors, outbox->page, &count, &more,
                          &err) != 0) {
        database_trouble(outbox, &err);
        return false;
    }
    if (!outbox->sent && !HASH_COUNT(outbox->items) && !count)
        trouble_over(outbox); /* the database is back, and nothing waits */
    size_t sent = send_page(outbox, count);
    if (!more)
        outbox->careful = 0;
    return sent || more;
}

/* --- the thread ------------------------------------------------------------------------------- */

static void turn(struct outbox *outbox)
{
    slices_keep(outbox);
    settle(outbox);
    bool goes_on = read_page(outbox);
    if (outbox->producer)
        producer_poll(outbox->producer, goes_on                              ? 0
                                        : outbox->sent && !complaint(outbox) ? BUSY_MS
                                                                             : IDLE_MS);
}

static void finish(struct outbox *outbox)
{
    struct err err;
    while (outbox->sent && outbox->producer && now_ms() < atomic_load(&outbox->deliver_until_ms))
        producer_poll(outbox->producer, BUSY_MS);
    outbox->producer = producer_free(outbox->producer);
    outbox->database_at_ms = 0;
    settle(outbox);
    if (store_outbox_leave(outbox->store, &err) != 0)
        log_line(LOG_WARN, "outbox: its slices are free only when their time is over", "err",
                 err.msg, NULL);
}

static void *outbox_main(void *ctx)
{
    struct outbox *outbox = ctx;
    while (!atomic_load(&outbox->stopping))
        turn(outbox);
    finish(outbox);
    return NULL;
}

/* --- start and stop --------------------------------------------------------------------------- */

static struct outbox *outbox_free(struct outbox *outbox)
{
    struct item *item, *next;
    outbox->producer = producer_free(outbox->producer);
    HASH_ITER(hh, outbox->items, item, next)
    item_drop(outbox, item);
    outbox->store = store_outbox_free(outbox->store);
    if (outbox->wake_fd >= 0)
        (void)close(outbox->wake_fd); /* an eventfd of ours */
    kafka_properties_done(&outbox->properties);
    mem_free((char *)outbox->options.brokers);
    mem_free((char *)outbox->options.topic);
    mem_free(outbox->page);
    mem_free(outbox);
    return NULL;
}

static int copy_options(struct outbox *outbox, const struct outbox_options *options,
                        struct err *err)
{
    outbox->options = (struct outbox_options){ .brokers = mem_strdup(options->brokers),
                                               .topic = mem_strdup(options->topic),
                                               .properties = &outbox->properties };
    outbox->page = mem_calloc(PAGE, sizeof *outbox->page);
    if (!outbox->options.brokers || !outbox->options.topic || !outbox->page)
        return err_set(err, ERR_NOMEM, "outbox: out of memory");
    for (size_t i = 0; options->properties && i < options->properties->count; i++) {
        const struct kafka_property *item = &options->properties->items[i];
        if (kafka_properties_add(&outbox->properties, item->name, item->value, item->line, err) !=
            0)
            return (int)err->code;
    }
    return 0;
}

static int prepare(struct outbox *outbox, const struct outbox_options *options, struct err *err)
{
    struct rng rng;
    rng_seed_os(&rng);
    outbox->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (outbox->wake_fd < 0)
        return err_set(err, ERR_UNAVAILABLE, "outbox: %s", strerror(errno));
    const struct store_outbox_options store_options = {
        .conninfo = options->conninfo,
        .node = options->node,
        .instance = uuid_v7(clock_wall_ms(&clock_system), &rng, 0),
        .wake_fd = outbox->wake_fd,
    };
    if (copy_options(outbox, options, err) != 0 ||
        store_outbox_new(&store_options, &outbox->store, err) != 0 ||
        producer_make(outbox, err) != 0)
        return (int)err->code;
    int failed = pthread_create(&outbox->thread, NULL, outbox_main, outbox);
    return failed ? err_set(err, ERR_UNAVAILABLE, "outbox thread: %s", strerror(failed)) : 0;
}

int outbox_start(const struct outbox_options *options, struct outbox **ret, struct err *err)
{
    struct outbox *outbox = mem_calloc(1, sizeof *outbox);
    if (!outbox)
        return err_set(err, ERR_NOMEM, "outbox: out of memory");
    outbox->wake_fd = -1;
    if (prepare(outbox, options, err) != 0) {
        (void)outbox_free(outbox); /* always NULL */
        return err_wrap(err, "outbox");
    }
    log_line(LOG_INFO, "outbox: events leave", "topic", options->topic, NULL);
    *ret = outbox;
    return 0;
}

struct outbox *outbox_stop(struct outbox *outbox, int64_t grace_ms)
{
    if (!outbox)
        return NULL;
    struct timespec until;
    int64_t half_ms = grace_ms / 2;
    atomic_store(&outbox->deliver_until_ms,
                 now_ms() + (half_ms < STOP_DELIVERY_MS ? half_ms : STOP_DELIVERY_MS));
    atomic_store(&outbox->stopping, true);
    (void)clock_gettime(CLOCK_REALTIME, &until); /* cannot fail */
    until.tv_sec += grace_ms / 1000;
    until.tv_nsec += grace_ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    if (pthread_timedjoin_np(outbox->thread, NULL, &until) != 0) {
        (void)eventfd_write(outbox->wake_fd, 1); /* what waits for the database ends now */
        (void)pthread_join(outbox->thread, NULL);
    }
    log_line(LOG_INFO, "outbox: stopped", "published",
             log_fmt("%" PRId64, (int64_t)atomic_load(&outbox->published)), NULL);
    return outbox_free(outbox);
}
