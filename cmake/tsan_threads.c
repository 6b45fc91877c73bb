/* ThreadSanitizer of gcc 12 knows pthread_create and not C11's thrd_create, by which librdkafka
 * makes its threads: the first call that it watches in such a thread crashes. The linker takes
 * these here instead of the C library's; both kinds of thread are one there (thrd_t is pthread_t).
 */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <threads.h>

struct start {
    thrd_start_t function;
    void *argument;
};

static void *run(void *argument)
{
    struct start start = *(struct start *)argument;
    free(argument);
    return (void *)(intptr_t)start.function(start.argument);
}

int thrd_create(thrd_t *thread, thrd_start_t function, void *argument)
{
    struct start *start = malloc(sizeof *start);
    if (!start)
        return thrd_nomem;
    *start = (struct start){ function, argument };
    if (pthread_create(thread, NULL, run, start) == 0)
        return thrd_success;
    free(start);
    return thrd_error;
}

int thrd_join(thrd_t thread, int *ret_result)
{
    void *result;
    if (pthread_join(thread, &result) != 0)
        return thrd_error;
    if (ret_result)
        *ret_result = (int)(intptr_t)result;
    return thrd_success;
}
