/* The Mersenne Twister MT19937 (M. Matsumoto and T. Nishimura, 1998), whose numbers are made in
   vectors, hundreds at a time: torch makes them one by one. */
#include "random_draws.h"

#include "tensor_access.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3") /* loops become vectors */
#endif

enum {
    LENGTH = 624, /* words of state */
    MIDDLE = 397, /* how far apart the words are that make a new one */
};

/* Torch's state of a CPU generator begins so. */
typedef struct {
    uint64_t seed;
    int32_t left; /* words not used yet, and one */
    int32_t is_seeded;
    uint64_t next; /* the place of the next word */
    uint64_t words[LENGTH];
} State;

typedef struct {
    uint32_t words[LENGTH];
    int unused; /* words not used yet, the last ones of `words` */
} Twister;

#define INLINE static inline __attribute__((always_inline))

INLINE uint32_t twisted(uint32_t word, uint32_t next, uint32_t middle)
{
    uint32_t both = (word & 0x80000000u) | (next & 0x7fffffffu);
    return middle ^ (both >> 1) ^ (-(next & 1u) & 0x9908b0dfu);
}

/* Make the next words. Each loop reads only words that are as they were, or far behind it. */
INLINE void renew(Twister *twister)
{
    uint32_t *words = twister->words;
    for (int i = 0; i < LENGTH - MIDDLE; i++) {
        words[i] = twisted(words[i], words[i + 1], words[i + MIDDLE]);
    }
    for (int i = LENGTH - MIDDLE; i < LENGTH - 1; i++) {
        words[i] = twisted(words[i], words[i + 1], words[i + MIDDLE - LENGTH]);
    }
    words[LENGTH - 1] = twisted(words[LENGTH - 1], words[0], words[MIDDLE - 1]);
    twister->unused = LENGTH;
}

/* The random numbers that words of the state stand for. */
INLINE void temper(const uint32_t *words, uint32_t *numbers, int count)
{
    for (int i = 0; i < count; i++) {
        uint32_t number = words[i];
        number ^= number >> 11;
        number ^= (number << 7) & 0x9d2c5680u;
        number ^= (number << 15) & 0xefc60000u;
        numbers[i] = number ^ (number >> 18);
    }
}

/* Whether pairs of numbers, 53 bits of which are a fraction, are below a threshold. */
INLINE void compare(const uint32_t *numbers, uint8_t *results, int count, int64_t threshold)
{
    for (int i = 0; i < count; i++) {
        uint64_t high = numbers[2 * i], low = numbers[2 * i + 1];
        int64_t fraction = (int64_t)(((high << 32) | low) & ((1ull << 53) - 1));
        results[i] = fraction < threshold;
    }
}

INLINE void draw(Twister *twister, uint8_t *results, int64_t count, int64_t threshold)
{
    uint32_t numbers[LENGTH + 1];
    int held = 0; /* the first number of a pair whose second one is not made yet: none or one */
    while (count > 0) {
        if (twister->unused == 0) {
            renew(twister);
        }
        int64_t missing = 2 * count - held;
        int taken = missing < twister->unused ? (int)missing : twister->unused;
        temper(twister->words + LENGTH - twister->unused, numbers + held, taken);
        twister->unused -= taken;
        int pairs = (held + taken) / 2;
        compare(numbers, results, pairs, threshold);
        results += pairs;
        count -= pairs;
        held = (held + taken) % 2;
        numbers[0] = numbers[2 * pairs + held - 1];
    }
}

typedef void Draw(Twister *, uint8_t *, int64_t, int64_t);

static void draw_anywhere(Twister *twister, uint8_t *results, int64_t count, int64_t threshold)
{
    draw(twister, results, count, threshold);
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static void draw_avx2(Twister *twister, uint8_t *results,
                                                      int64_t count, int64_t threshold)
{
    draw(twister, results, count, threshold);
}

__attribute__((target("avx512f,avx512vl,avx512bw,prefer-vector-width=512"))) static void
draw_avx512(Twister *twister, uint8_t *results, int64_t count, int64_t threshold)
{
    draw(twister, results, count, threshold);
}
#endif

static Draw *best_draw(void)
{
#ifdef __x86_64__
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw")) {
        return draw_avx512;
    }
    if (__builtin_cpu_supports("avx2")) {
        return draw_avx2;
    }
#endif
    return draw_anywhere;
}

/* Where a tensor's elements lie; NULL with an exception. */
static void *data_pointer(PyObject *tensor)
{
    void *data = NULL;
    if (!tensor_access_is_tensor(tensor) ||
        torch_library.get_data_pointer(tensor_access_handle(tensor), &data) != 0 || data == NULL) {
        PyErr_SetString(PyExc_ValueError, "a tensor without memory");
        return NULL;
    }
    return data;
}

static bool draw_and_advance(State *state, uint8_t *results, int64_t count, double probability)
{
    int unused = state->left - 1;
    bool is_known = unused == 0 || (unused > 0 && unused < LENGTH &&
                                    state->next == (uint64_t)(LENGTH - unused));
    if (!is_known || !(probability >= 0 && probability <= 1)) {
        return false;
    }
    Twister twister = {.unused = unused};
    for (int i = 0; i < LENGTH; i++) {
        twister.words[i] = (uint32_t)state->words[i];
    }
    best_draw()(&twister, results, count, (int64_t)ceil(ldexp(probability, 53)));
    for (int i = 0; i < LENGTH; i++) {
        state->words[i] = twister.words[i];
    }
    state->left = twister.unused + 1;
    state->next = (uint64_t)(LENGTH - twister.unused);
    return true;
}

/* The state is read, and put back, without a bytecode of Python's in between, at which another thread
   could go on and draw the same numbers. */
PyObject *random_draws_bernoulli(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *generator, *result;
    long long count;
    double probability;
    if (!PyArg_ParseTuple(args, "OOLd:draw_bernoulli", &generator, &result, &count, &probability)) {
        return NULL;
    }
    if (count <= 0) {
        Py_RETURN_NONE;
    }
    PyObject *state = PyObject_CallMethod(generator, "get_state", NULL);
    if (state == NULL) {
        return NULL;
    }
    PyObject *done = NULL;
    State *source = data_pointer(state);
    uint8_t *target = source == NULL ? NULL : data_pointer(result);
    if (target != NULL) {
        if (draw_and_advance(source, target, count, probability)) {
            done = PyObject_CallMethod(generator, "set_state", "O", state);
        }
        else {
            PyErr_SetString(PyExc_ValueError, "not a state of torch's, or not a probability");
        }
    }
    Py_DECREF(state);
    Py_XDECREF(done);
    return done == NULL ? NULL : Py_NewRef(Py_None);
}
