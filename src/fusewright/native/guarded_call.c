/* The processor's refusal of an access reaches the process as a signal. While a guarded call runs,
   a handler of ours jumps back out of the code; the handlers of before stand again after it. */
#include "guarded_call.h"

#include <setjmp.h>
#include <signal.h>

/* A kernel's locals may have used up the stack that its fault is reported on. */
#define STACK_BYTES 65536

static const int signals[] = {SIGSEGV, SIGBUS};
static struct sigaction previous[Py_ARRAY_LENGTH(signals)];

/* Where the calling thread goes on after a fault; NULL outside of a guarded call. */
static _Thread_local sigjmp_buf *way_out;
static _Thread_local void *touched_address;

static void leave_call(int number, siginfo_t *information, void *Py_UNUSED(context))
{
    if (way_out != NULL) {
        touched_address = information->si_addr;
        siglongjmp(*way_out, 1);
    }
    /* Another thread's fault: its instruction runs again, under the handler of before. */
    for (size_t i = 0; i < Py_ARRAY_LENGTH(signals); i++) {
        if (signals[i] == number) {
            sigaction(number, &previous[i], NULL);
        }
    }
}

static int install_handlers(void)
{
    struct sigaction action = {.sa_sigaction = leave_call, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < Py_ARRAY_LENGTH(signals); i++) {
        if (sigaction(signals[i], &action, &previous[i]) != 0) {
            return -1;
        }
    }
    return 0;
}

static void restore_handlers(void)
{
    for (size_t i = 0; i < Py_ARRAY_LENGTH(signals); i++) {
        sigaction(signals[i], &previous[i], NULL);
    }
}

int guarded_call(KernelFunction function, void **arguments, int64_t begin, int64_t end,
                 int64_t *fault, void **touched)
{
    static char memory[STACK_BYTES];
    stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory}, stack_before;
    if (sigaltstack(&stack, &stack_before) != 0 || install_handlers() != 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    sigjmp_buf here;
    volatile int stopped = sigsetjmp(here, 1);
    if (!stopped) {
        way_out = &here;
        *fault = function(arguments, begin, end);
    }
    way_out = NULL;
    restore_handlers();
    sigaltstack(&stack_before, NULL);
    if (stopped) {
        *touched = touched_address;
    }
    return stopped;
}
