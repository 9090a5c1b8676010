/* A call of few small operators may pay more for guards, hook and the graph's wrapper than fusing
   saves, and nothing that is known while compiling tells by how much. So once nothing more is
   compiled, some calls run as they are written, in no regular order, and both ways are compared by
   their lower quartiles: whatever else the machine does only adds. A call whose results have a
   history is timed from its start to that of the next, so that backward counts: whatever else the
   program does between two calls counts in both ways. */
#include "call_trial.h"

#include <stdlib.h>
#include <time.h>

#define CALLS_BEFORE 24      /* without anything compiled, ahead of the first trial */
#define FIRST_INTERVAL 100   /* calls until the next trial; then ever more */
#define LONGEST_INTERVAL (1u << 24)
#define MOST_RESTARTS 64     /* after so many compiles, compiling is counted in */
#define CLEAR_ROUNDS 4       /* calls in each way after which a clear case is not tried further */
#define LONGEST_CALL 50000000 /* nanoseconds; longer calls are not tried as they are written */
#define MOST_PAUSES 4        /* rounds of a trial longer than that, left out; one more ends it */
#define GAIN 0.97            /* of the compiled time, below which calls run as written */
#define SHARE_OF_PAIRS 0.65  /* of all pairs of samples in which that has to be faster */

CallTrial *call_trial_new(PyObject *hooks)
{
    CallTrial *trial = PyMem_Calloc(1, sizeof *trial);
    if (trial == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    trial->hooks = hooks == Py_None ? NULL : Py_NewRef(hooks);
    trial->waits = CALLS_BEFORE;
    trial->interval = FIRST_INTERVAL;
    trial->random = (uint32_t)((uintptr_t)trial >> 4) | 1;
    return trial;
}

void call_trial_free(CallTrial *trial)
{
    if (trial != NULL) {
        Py_XDECREF(trial->hooks);
        PyMem_Free(trial);
    }
}

bool call_trial_is_suspended(const CallTrial *trial)
{
    bool (*saves)(void) = torch_library.grad_mode_is_enabled; /* NULL: torch is not there */
    if (trial->hooks == NULL || (saves != NULL && !saves())) {
        return false;
    }
    PyObject *answer = PyObject_CallOneArg(trial->hooks, Py_True);
    bool suspended = answer != Py_None;
    if (answer == NULL) {
        PyErr_Clear();
    }
    Py_XDECREF(answer);
    return suspended;
}

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Several trials may go on in one round of a program: no two of them take turns alike. */
static Way draw(CallTrial *trial)
{
    trial->random ^= trial->random << 13;
    trial->random ^= trial->random >> 17;
    trial->random ^= trial->random << 5;
    Way way = trial->random & 1 ? WRITTEN : COMPILED;
    return trial->counts[way] - trial->counts[1 - way] < 2 ? way : (Way)(1 - way);
}

static int compare(const void *first, const void *second)
{
    int64_t one = *(const int64_t *)first, other = *(const int64_t *)second;
    return (one > other) - (one < other);
}

static int64_t lower_quartile(const CallTrial *trial, Way way)
{
    int64_t sorted[TRIAL_ROUNDS];
    int count = trial->counts[way];
    memcpy(sorted, trial->samples[way], (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, compare);
    return sorted[count / 4];
}

/* In how many of all pairs of samples the call as written was faster. */
static double share_of_written(const CallTrial *trial)
{
    int faster = 0;
    for (int i = 0; i < trial->counts[WRITTEN]; i++) {
        for (int j = 0; j < trial->counts[COMPILED]; j++) {
            faster += trial->samples[WRITTEN][i] < trial->samples[COMPILED][j];
        }
    }
    return (double)faster / (trial->counts[WRITTEN] * trial->counts[COMPILED]);
}

static void wait_again(CallTrial *trial)
{
    trial->waits = trial->interval;
    trial->interval = Py_MIN(2 * trial->interval, LONGEST_INTERVAL);
    trial->pauses = 0;
    trial->started = 0;
    trial->counts[COMPILED] = trial->counts[WRITTEN] = 0;
}

static void decide(CallTrial *trial)
{
    for (Way way = COMPILED; way <= WRITTEN; way++) {
        trial->times[way] = lower_quartile(trial, way);
    }
    bool gains = (double)trial->times[WRITTEN] < GAIN * (double)trial->times[COMPILED];
    trial->way = gains && share_of_written(trial) >= SHARE_OF_PAIRS ? WRITTEN : COMPILED;
    wait_again(trial);
}

/* Whether enough is known: all rounds, or few where compiled calls are faster in each pair. */
static bool is_complete(const CallTrial *trial)
{
    int least = Py_MIN(trial->counts[COMPILED], trial->counts[WRITTEN]);
    return least >= TRIAL_ROUNDS || (least >= CLEAR_ROUNDS && share_of_written(trial) == 0);
}

/* Keep the time of the call that was being timed. */
static void keep_sample(CallTrial *trial, int64_t end)
{
    Way way = trial->running;
    int64_t time = end - trial->started;
    trial->started = 0;
    if (way == WRITTEN && time > LONGEST_CALL) {
        if (trial->whole_rounds && trial->pauses++ < MOST_PAUSES) {
            return; /* the program did something else between two calls */
        }
        trial->way = COMPILED;
        trial->interval = LONGEST_INTERVAL;
        wait_again(trial);
        return;
    }
    if (trial->counts[way] < TRIAL_ROUNDS) {
        trial->samples[way][trial->counts[way]++] = time;
    }
    if (is_complete(trial)) {
        decide(trial);
    }
}

Way call_trial_begin(CallTrial *trial)
{
    if (trial->waits > 0 && trial->way == COMPILED) {
        return COMPILED;
    }
    if (call_trial_is_suspended(trial)) {
        trial->started = 0;
        return COMPILED;
    }
    if (trial->waits > 0) {
        return trial->way;
    }
    int64_t time = now();
    if (trial->started != 0 && trial->whole_rounds) {
        keep_sample(trial, time);
        if (trial->waits > 0) {
            return trial->way;
        }
    }
    trial->running = draw(trial);
    trial->started = time;
    return trial->running;
}

#define MOST_PARTS 16

/* Whether a result is known to have no history: a tensor without, or a container of such. */
static bool has_no_history(PyObject *result, int depth)
{
    if (tensor_access_is_tensor(result)) {
        return !tensor_access_requires_grad(result);
    }
    if (result == Py_None || PyLong_Check(result) || PyFloat_Check(result)) {
        return true;
    }
    if (depth > 2 || !(PyTuple_CheckExact(result) || PyList_CheckExact(result))) {
        return false;
    }
    Py_ssize_t count = PySequence_Fast_GET_SIZE(result);
    bool none = count <= MOST_PARTS;
    for (Py_ssize_t i = 0; none && i < count; i++) {
        none = has_no_history(PySequence_Fast_GET_ITEM(result, i), depth + 1);
    }
    return none;
}

/* A call ahead of a trial has ended. */
static void count_down(CallTrial *trial, PyObject *result, bool compiled)
{
    if (compiled && trial->restarts < MOST_RESTARTS) {
        trial->restarts++;
        trial->waits = Py_MAX(trial->waits, CALLS_BEFORE);
        return;
    }
    if (--trial->waits == 0) {
        trial->whole_rounds = result == NULL || !has_no_history(result, 0);
    }
}

void call_trial_end(CallTrial *trial, PyObject *result, bool compiled)
{
    if (trial->waits > 0) {
        count_down(trial, result, compiled);
        return;
    }
    bool disturbed = compiled && trial->restarts < MOST_RESTARTS;
    if (disturbed || result == NULL) {
        trial->restarts++;
        wait_again(trial);
    } else if (!trial->whole_rounds && trial->started != 0) {
        keep_sample(trial, now());
    }
}

PyObject *call_trial_outcome(const CallTrial *trial)
{
    if (trial == NULL || trial->times[COMPILED] == 0) {
        Py_RETURN_NONE;
    }
    return Py_BuildValue("(OLLO)", trial->way == WRITTEN ? Py_True : Py_False,
                         (long long)trial->times[COMPILED], (long long)trial->times[WRITTEN],
                         trial->whole_rounds ? Py_True : Py_False);
}
