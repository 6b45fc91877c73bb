#include "app/signals.h"

#include <signal.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_SECOND_SIGNAL = 130 };
static const int end_signals[] = { SIGTERM, SIGINT, SIGHUP };
enum { END_SIGNALS = sizeof end_signals / sizeof end_signals[0] };

static void on_second_signal(int signal_number)
{
    (void)signal_number;
    static const char text[] = "sagad: second signal, exit at once\n";
    ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
    (void)written; /* nobody left to tell */
    _exit(EXIT_SECOND_SIGNAL);
}

static void on_child(int signal_number)
{
    (void)signal_number; /* its end is read by whoever waits for it */
}

static sigset_t taken_signals(void)
{
    sigset_t set;
    (void)sigemptyset(&set);
    for (int i = 0; i < END_SIGNALS; i++)
        (void)sigaddset(&set, end_signals[i]);
    (void)sigaddset(&set, SIGCHLD);
    return set;
}

static void handle(int signal_number, void (*handler)(int))
{
    struct sigaction action = { .sa_handler = handler };
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(signal_number, &action, NULL); /* fails for no signal that we name */
}

void signals_take(void)
{
    handle(SIGPIPE, SIG_IGN);
    handle(SIGXFSZ, SIG_IGN);  /* a file that may not grow is an error of its write */
    handle(SIGCHLD, on_child); /* the default would drop it instead of letting it wait */
    for (int i = 0; i < END_SIGNALS; i++)
        handle(end_signals[i], on_second_signal); /* process 1 gets no signal without a handler */
    sigset_t set = taken_signals();
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
}

int signals_wait(int64_t timeout_ms)
{
    sigset_t set = taken_signals();
    struct timespec limit = { .tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000 };
    int signal_number = sigtimedwait(&set, NULL, &limit);
    return signal_number > 0 ? signal_number : 0;
}

bool signals_is_end(int signal_number)
{
    for (int i = 0; i < END_SIGNALS; i++)
        if (end_signals[i] == signal_number)
            return true;
    return false;
}

void signals_end_at_once(void)
{
    sigset_t set;
    (void)sigemptyset(&set);
    for (int i = 0; i < END_SIGNALS; i++)
        (void)sigaddset(&set, end_signals[i]);
    (void)sigprocmask(SIG_UNBLOCK, &set, NULL);
}

void signals_restore(void)
{
    for (int i = 0; i < END_SIGNALS; i++)
        handle(end_signals[i], SIG_DFL);
    handle(SIGCHLD, SIG_DFL);
    handle(SIGPIPE, SIG_DFL);
    handle(SIGXFSZ, SIG_DFL);
    sigset_t set = taken_signals();
    (void)sigprocmask(SIG_UNBLOCK, &set, NULL);
}
