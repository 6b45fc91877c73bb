#include "worker.h"

#include "base/clock.h"

#include <google/protobuf/wrappers.pb-c.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

struct job {
    LIST_ENTRY(job) place;
    struct saga_task *task;
    char fence[24];
    json_t *root;   /* owned */
    json_t *script; /* borrowed from it: what is to be done now */
    bool typed;
    int64_t until_ms;    /* of a sleep; 0: it has not begun */
    enum saga_stop told; /* the last reason that was written */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
LIST_HEAD(job_list, job);
static struct job_list jobs = LIST_HEAD_INITIALIZER(jobs); /* lock: all that run */
static json_t *let_go;                                     /* lock: fences, as an object */

void event_write(const char *name, const char *format, ...)
{
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    va_list args;
    va_start(args, format);
    json_t *event = json_vpack_ex(NULL, 0, format, args);
    va_end(args);
    json_t *named = json_pack("{s:s}", "event", name);
    if (!event || json_object_update(named, event) != 0)
        abort(); /* a wrong format */
    char *text = json_dumps(named, JSON_COMPACT);
    pthread_mutex_lock(&one);
    (void)printf("%s\n", text ? text : "out of memory");
    (void)fflush(stdout); /* a suite that is gone reads nothing */
    pthread_mutex_unlock(&one);
    free(text);
    json_decref(event);
    json_decref(named);
}

static const char *text_of(const json_t *script, const char *name, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(script, name));
    return text ? text : otherwise;
}

static int64_t number_of(const json_t *script, const char *name)
{
    return json_integer_value(json_object_get(script, name));
}

static json_t *read_request(struct saga_task *task, bool typed)
{
    struct saga_bytes request = saga_task_request(task);
    if (!typed)
        return json_loadb((const char *)request.data, request.size, 0, NULL);
    Google__Protobuf__StringValue *value =
        google__protobuf__string_value__unpack(NULL, request.size, request.data);
    json_t *root = value ? json_loads(value->value, 0, NULL) : NULL;
    google__protobuf__string_value__free_unpacked(value, NULL);
    return root;
}

struct job *job_new(struct saga_task *task, bool typed)
{
    const char *type = google__protobuf__string_value__descriptor.name;
    if (typed && strcmp(saga_task_request_type(task), type) != 0) {
        (void)saga_task_retry(task, "WRONG_TYPE", "the request is of another type", 0);
        return NULL;
    }
    json_t *root = read_request(task, typed);
    if (!root) {
        (void)saga_task_rejected(task, "BAD_REQUEST", "the request cannot be read");
        return NULL;
    }
    struct job *job = calloc(1, sizeof *job);
    if (!job)
        abort();
    job->task = task;
    job->root = job->script = root;
    job->typed = typed;
    (void)snprintf(job->fence, sizeof job->fence, "%" PRId64, saga_task_fence(task));
    pthread_mutex_lock(&lock);
    LIST_INSERT_HEAD(&jobs, job, place);
    pthread_mutex_unlock(&lock);
    event_write("started", "{s:s,s:s,s:i}", "handler", saga_task_handler(task), "fence", job->fence,
                "try", (int)saga_task_try(task));
    return job;
}

void job_let_go(const char *fence)
{
    pthread_mutex_lock(&lock);
    if (!let_go)
        let_go = json_object();
    (void)json_object_set_new(let_go, fence, json_true()); /* fails only when memory is out */
    pthread_mutex_unlock(&lock);
}

static bool may_go(const char *fence)
{
    pthread_mutex_lock(&lock);
    bool may = json_object_get(let_go, fence) != NULL;
    pthread_mutex_unlock(&lock);
    return may;
}

static void tell_still_mine(const struct job *job)
{
    event_write("still_mine", "{s:s,s:b}", "fence", job->fence, "mine",
                (int)saga_task_still_mine(job->task));
}

void job_tell_still_mine(const char *fence)
{
    struct job *job;
    pthread_mutex_lock(&lock);
    LIST_FOREACH(job, &jobs, place)
    {
        if (strcmp(job->fence, fence) == 0)
            tell_still_mine(job);
    }
    pthread_mutex_unlock(&lock);
}

/* What takes time. True: it is over. */

static bool told_to_stop(struct job *job)
{
    static const char *const reasons[] = { "", "draining", "cancelled", "lost" };
    enum saga_stop stop = saga_task_stop_requested(job->task);
    if (stop != SAGA_STOP_NONE && stop != job->told)
        event_write("stop", "{s:s,s:s}", "fence", job->fence, "reason", reasons[stop]);
    job->told = stop;
    return stop != SAGA_STOP_NONE;
}

static bool slept(struct job *job)
{
    int64_t now = clock_mono_ms(&clock_system);
    if (job->until_ms == 0)
        job->until_ms = now + number_of(job->script, "ms");
    if (now < job->until_ms)
        return false;
    job->until_ms = 0;
    return true;
}

static void burn(int64_t ms)
{
    int64_t until = clock_mono_ms(&clock_system) + ms;
    while (clock_mono_ms(&clock_system) < until) {
    }
}

static bool waits(struct job *job, const char *what, bool *ret_over)
{
    if (strcmp(what, "sleep") == 0)
        *ret_over = slept(job);
    else if (strcmp(what, "wait_stop") == 0)
        *ret_over = told_to_stop(job);
    else if (strcmp(what, "wait_go") == 0)
        *ret_over = may_go(job->fence);
    else if (strcmp(what, "still_mine") == 0)
        tell_still_mine(job);
    else if (strcmp(what, "cpu") == 0)
        burn(number_of(job->script, "ms"));
    else
        return false;
    return true;
}

/* Outcomes. */

static int done(struct job *job, const void *output, size_t size)
{
    if (!job->typed)
        return saga_task_done(job->task, output, size);
    Google__Protobuf__StringValue value = GOOGLE__PROTOBUF__STRING_VALUE__INIT;
    char *text = strndup(output, size);
    if (!text)
        abort();
    value.value = text;
    size_t packed = google__protobuf__string_value__get_packed_size(&value);
    uint8_t *bytes = calloc(1, packed + 1);
    if (!bytes)
        abort();
    (void)google__protobuf__string_value__pack(&value, bytes); /* its size is known */
    int rc = saga_task_done(job->task, bytes, packed);
    free(bytes);
    free(text);
    return rc;
}

static int done_size(struct job *job, size_t size)
{
    char *output = malloc(size + 1);
    if (!output)
        abort();
    memset(output, 'x', size);
    int rc = done(job, output, size);
    free(output);
    return rc;
}

static int request_size(struct job *job)
{
    char text[32];
    int size = snprintf(text, sizeof text, "%zu", saga_task_request(job->task).size);
    return done(job, text, (size_t)size);
}

static int echo(struct job *job)
{
    struct saga_bytes request = saga_task_request(job->task);
    return saga_task_done(job->task, request.data, request.size); /* a typed one is one already */
}

static int end(struct job *job, const char *what)
{
    struct saga_task *task = job->task;
    const json_t *script = job->script;
    const char *output = text_of(script, "output", ""), *code = text_of(script, "code", "CODE"),
               *message = text_of(script, "message", "");
    if (strcmp(what, "done") == 0)
        return done(job, output, strlen(output));
    if (strcmp(what, "echo") == 0)
        return echo(job);
    if (strcmp(what, "done_size") == 0)
        return done_size(job, (size_t)number_of(script, "size"));
    if (strcmp(what, "request_size") == 0)
        return request_size(job);
    if (strcmp(what, "already_done") == 0)
        return saga_task_already_done(task, output, strlen(output),
                                      json_is_true(json_object_get(script, "ours")));
    if (strcmp(what, "rejected") == 0)
        return saga_task_rejected(task, code, message);
    if (strcmp(what, "retry") == 0)
        return saga_task_retry(task, code, message, number_of(script, "after_ms"));
    if (strcmp(what, "unknown") == 0)
        return saga_task_unknown(task, code, message);
    if (strcmp(what, "not_done") == 0)
        return saga_task_not_done(task);
    if (strcmp(what, "still_unknown") == 0)
        return saga_task_still_unknown(task, code, message);
    if (strcmp(what, "describe") == 0)
        return describe(task, script);
    if (strcmp(what, "refused") == 0 || strcmp(what, "sent_then_cut") == 0) {
        client_refused(task, text_of(script, "client", ""), (int)number_of(script, "port"));
        return 0;
    }
    return strcmp(what, "raise") == 0 || strcmp(what, "panic") == 0 ? 0 : -1;
}

bool job_step(struct job *job)
{
    for (;;) {
        const char *what = text_of(job->script, "do", "");
        bool over = true;
        if (!waits(job, what, &over)) {
            if (end(job, what) != 0)
                (void)fprintf(stderr, "task %s: \"%s\" was not taken\n", job->fence, what);
            break;
        }
        if (!over)
            return false;
        json_t *then = json_object_get(job->script, "then");
        if (!then) {
            (void)done(job, "", 0); /* fails only when memory is out */
            break;
        }
        job->script = then;
    }
    pthread_mutex_lock(&lock);
    LIST_REMOVE(job, place);
    pthread_mutex_unlock(&lock);
    event_write("finished", "{s:s}", "fence", job->fence);
    json_decref(job->root);
    free(job);
    return true;
}
