/* A package in memory. */
#ifndef FUSEWRIGHT_PACKAGE_PLAN_H
#define FUSEWRIGHT_PACKAGE_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fusewright_package.h"
#include "kernel_launch.h"
#include "object_code.h"

#define NOTHING INT64_MIN /* an operand that is absent */
#define ANY (-1)          /* a size or stride that varies */

typedef struct {
    const char *name;
    int64_t dtype;
    bool is_contiguous;
    int64_t dims;
    const int64_t *sizes; /* ANY where it varies */
    const int64_t *strides;
} Leaf;

typedef struct {
    const char *words;
    int64_t kind;
    int64_t count;
    const int64_t *code; /* pairs, in postfix order */
} Relation;

/* A tensor that a call writes to, and the output that is its new value. */
typedef struct {
    bool is_weight;
    int64_t index; /* of a leaf or weight */
    int64_t output;
} Write;

typedef struct {
    KernelFunction function;
    const char *name;
    int64_t tensors, numbers;
} Kernel;

typedef struct {
    const char *name, *overload;
} Operator;

/* Operations on slots and numbers of their own: those of the entry point, then the blocks of its
   conditions and loops, each behind those that run it. */
typedef struct {
    int64_t input_count; /* the first slots */
    int64_t slot_count, number_count, word_count;
    const int64_t *numbers; /* their values at the beginning */
    const int64_t *words;   /* the operations */
} Block;

struct FusewrightPackage {
    uint8_t *memory;
    size_t size;
    ObjectCode *code;
    char *path;
    int64_t leaf_count, reading_count, relation_count, weight_count, kernel_count, operator_count;
    int64_t block_count, recipe_count, output_count, write_count;
    Leaf *leaves;
    const int64_t *readings; /* leaf, dimension, whether it is a stride */
    Relation *relations;
    AtenTensorHandle *weights;
    const int64_t *inputs; /* of the first block: kind, index */
    Block *blocks;
    Kernel *kernels;
    Operator *operators;
    const int64_t **recipes;
    const int64_t *outputs;
    Write *writes;
};

enum { FROM_LEAF, FROM_WEIGHT, FROM_NUMBER, FROM_NOWHERE /* nothing reads it */ };
enum { IS_OUTPUT, IS_LEAF, IS_WEIGHT, IS_RESULT, IS_VIEW, IS_OTHER };

/* What a package is read with: words from `at` on, and the message of the first failure. */
typedef struct {
    FusewrightPackage *package;
    const int64_t *at, *end;
    char *message;
    size_t message_size;
    bool failed;
} Reader;

/* Note a failure, as a sentence behind the package's path. */
void package_fail(Reader *reader, const char *format, ...);

/* One row of the table's sections. */
typedef struct {
    const char *name;
    size_t name_size;
    uint64_t size, offset;
    const char *checksum;
} Row;

/* Map the file and check that it is whole. */
bool package_open(Reader *reader);

/* The section of a name. */
bool package_find_section(const FusewrightPackage *package, const char *name, Row *row);

/* Operations, by their code: their operands, a letter each.
     n  a number that is written      r  a number that is read
     o  a slot that is written        s  a slot, or a weight as ~index
     i  an integer                    k  a kernel
     p  as o, or NOTHING              #  a count: letters behind a * come so often
     q  as s, or NOTHING              b  a block, behind this one
     A  two words: an argument of a block, and where it is
   `dispatch` has a form of its own. */
extern const char *const package_forms[];
enum { LAUNCH = 13, DISPATCH = 19, BRANCH = 23, WHILE_LOOP = 24, SCAN = 25, OPERATION_COUNT = 26 };

/* An argument of a block: what a slot or weight holds, or a number of the block that runs it. */
enum { FROM_PLACE, FROM_NUMBERS };

/* What an argument of an operator is, and what follows it. */
enum {
    NONE,
    TENSOR,            /* its place */
    OPTIONAL_TENSOR,   /* its place */
    WORD,              /* 64 bits */
    OPTIONAL_WORD,     /* 64 bits */
    NUMBER,            /* a number's place */
    OPTIONAL_NUMBER,   /* a number's place */
    INTEGERS,          /* how many; for each whether it is a number's place, and the integer */
    OPTIONAL_INTEGERS, /* the same */
    TENSORS,           /* how many, their places */
    TEXT,              /* its length in bytes; its bytes, with at least one zero behind them */
    OPTIONAL_TEXT,     /* the same */
    OPTIONAL_TENSORS   /* how many, their places, or NOTHING */
};

enum { MOST_ARGUMENTS = 64, MOST_DEPTH = 64 };

#endif
