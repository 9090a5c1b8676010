/* Whether calls are faster compiled or as they are written, found out on the program's own calls:
   each runs once, in one of the two ways. */
#ifndef FUSEWRIGHT_CALL_TRIAL_H
#define FUSEWRIGHT_CALL_TRIAL_H

#include <stdbool.h>

#include "tensor_access.h"

#define TRIAL_ROUNDS 15 /* calls in each of the two ways */

typedef enum { COMPILED, WRITTEN } Way;

typedef struct {
    PyObject *hooks;   /* asked, with True, for the hooks of what calls save: None where there are
                          none; NULL: never asked */
    Way way;           /* how calls run between two trials */
    uint32_t waits;    /* calls until the next trial; 0: one is going on */
    uint32_t interval; /* calls between that and the one after */
    uint32_t restarts; /* how often compiling put the trial off */
    uint32_t pauses;   /* how many rounds of this trial were too long to be timed */
    uint32_t random;
    bool whole_rounds; /* a call is timed up to the next one, so that its backward counts */
    Way running;       /* how the call that is being timed runs */
    int64_t started;   /* when that began; 0: none is timed */
    int counts[2];
    int64_t samples[2][TRIAL_ROUNDS]; /* nanoseconds, by way */
    int64_t times[2]; /* what the last trial found, in nanoseconds by way; 0: there was none */
} CallTrial;

/* A new trial; NULL with an exception when memory is short. `hooks`: None, or as in the record. */
CallTrial *call_trial_new(PyObject *hooks);
void call_trial_free(CallTrial *trial);

/* Whether the call that begins now has to run compiled, untimed: hooks are told what it saves, and
   those of a checkpoint count on the same of its second forward. */
bool call_trial_is_suspended(const CallTrial *trial);

/* Whether calls run as they are written until the next trial. */
static inline bool call_trial_is_lost(const CallTrial *trial)
{
    return trial->way == WRITTEN && trial->waits > 0;
}

/* How the call that begins now is to run. */
Way call_trial_begin(CallTrial *trial);

/* Told when the call has ended. `result`: what it returned, NULL: it raised; `compiled`: whether
   something was compiled meanwhile. */
void call_trial_end(CallTrial *trial, PyObject *result, bool compiled);

/* None, or what the last trial found: whether calls run as they are written, then nanoseconds
   compiled and as written, and whether they are of whole rounds. */
PyObject *call_trial_outcome(const CallTrial *trial);

#endif
