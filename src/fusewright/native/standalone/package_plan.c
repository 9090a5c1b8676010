/* Reads the plan of an entry point, which packages/standalone.py writes, and checks that all that
   it refers to is there. */
#define _GNU_SOURCE
#include "package_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "package_torch.h"

/* Words ---------------------------------------------------------------------------------------- */

static int64_t read_word(Reader *reader)
{
    if (reader->at >= reader->end) {
        package_fail(reader, "its plan ends too early");
        return 0;
    }
    return *reader->at++;
}

/* A count of things of at least `words` words each. */
static int64_t read_count(Reader *reader, int64_t words)
{
    int64_t count = read_word(reader);
    if (count < 0 || count > (reader->end - reader->at) / (words > 0 ? words : 1)) {
        package_fail(reader, "its plan is malformed");
        return 0;
    }
    return count;
}

static const int64_t *read_words(Reader *reader, int64_t count)
{
    const int64_t *words = reader->at;
    if (count < 0 || count > reader->end - reader->at) {
        package_fail(reader, "its plan is malformed");
        return words;
    }
    reader->at += count;
    return words;
}

static const char *read_text(Reader *reader)
{
    int64_t bytes = read_word(reader);
    if (bytes < 0 || bytes > (INT64_MAX >> 4) ||
        bytes / 8 + 1 > reader->end - reader->at) {
        package_fail(reader, "its plan is malformed");
        return "";
    }
    const char *text = (const char *)read_words(reader, bytes / 8 + 1);
    return text[bytes] == 0 && strlen(text) == (size_t)bytes ? text : "";
}

static void *allocate_items(Reader *reader, int64_t count, size_t bytes)
{
    void *memory = calloc((size_t)count + 1, bytes);
    if (memory == NULL) {
        package_fail(reader, "there is no memory for it");
    }
    return memory;
}

/* Parts of a plan ------------------------------------------------------------------------------ */

static void read_leaves(Reader *reader)
{
    FusewrightPackage *package = reader->package;
    package->leaf_count = read_count(reader, 4);
    package->leaves = allocate_items(reader, package->leaf_count, sizeof(Leaf));
    for (int64_t i = 0; i < package->leaf_count && !reader->failed; i++) {
        Leaf *leaf = &package->leaves[i];
        leaf->name = read_text(reader);
        leaf->dtype = read_word(reader);
        leaf->is_contiguous = read_word(reader) != 0;
        leaf->dims = read_count(reader, 2);
        leaf->sizes = read_words(reader, leaf->dims);
        leaf->strides = read_words(reader, leaf->dims);
    }
}

static void read_relations(Reader *reader)
{
    FusewrightPackage *package = reader->package;
    package->reading_count = read_count(reader, 3);
    package->readings = read_words(reader, 3 * package->reading_count);
    for (int64_t i = 0; i < package->reading_count && !reader->failed; i++) {
        const int64_t *reading = package->readings + 3 * i;
        if (reading[0] < 0 || reading[0] >= package->leaf_count || reading[1] < 0 ||
            reading[1] >= package->leaves[reading[0]].dims) {
            package_fail(reader, "its plan is malformed");
        }
    }
    package->relation_count = read_count(reader, 3);
    package->relations = allocate_items(reader, package->relation_count, sizeof(Relation));
    for (int64_t i = 0; i < package->relation_count && !reader->failed; i++) {
        Relation *relation = &package->relations[i];
        relation->words = read_text(reader);
        relation->kind = read_word(reader);
        relation->count = read_count(reader, 2);
        relation->code = read_words(reader, 2 * relation->count);
    }
}

/* Put the weight of a convolution into the layout that oneDNN's kernel for this processor wants.
   `packing`: an operator's integers behind the weight; ahead of those of a list, how many they are,
   or NOTHING for a list that is absent. */
static bool pack_weight(AtenTensorHandle *weight, const int64_t *packing, int64_t count)
{
    enum { PADDING, STRIDE, DILATION, GROUPS, SIZE, ARGUMENTS };
    const int64_t *at = packing, *end = packing + count;
    uint64_t stack[1 + ARGUMENTS] = {(uint64_t)(uintptr_t)*weight};
    for (int i = 0; i < ARGUMENTS; i++) {
        int64_t length = at < end ? *at++ : 0;
        if (i == GROUPS || length == NOTHING) {
            stack[1 + i] = i == GROUPS ? (uint64_t)length : 0;
            continue;
        }
        void *list = NULL;
        if (length < 0 || length > end - at || torch.new_list((size_t)length, &list) != 0) {
            return false;
        }
        for (int64_t j = 0; j < length; j++) {
            torch.list_push(list, (uint64_t)*at++);
        }
        uint64_t word = (uint64_t)(uintptr_t)list;
        stack[1 + i] = i == SIZE ? package_torch_optional(word) : word;
    }
    if (at != end) {
        return false;
    }
    *weight = NULL; /* the operator takes it over */
    if (package_torch_dispatch("mkldnn::_reorder_convolution_weight", "", stack) != 0) {
        return false;
    }
    *weight = (AtenTensorHandle)(uintptr_t)stack[0];
    return true;
}

static void read_weights(Reader *reader)
{
    FusewrightPackage *package = reader->package;
    package->weight_count = read_count(reader, 3);
    package->weights = allocate_items(reader, package->weight_count, sizeof(AtenTensorHandle));
    for (int64_t i = 0; i < package->weight_count && !reader->failed; i++) {
        const char *name = read_text(reader);
        int64_t dtype = read_word(reader), offset = read_word(reader);
        int64_t dims = read_count(reader, 2);
        const int64_t *sizes = read_words(reader, dims), *strides = read_words(reader, dims);
        int64_t packing_count = read_count(reader, 1);
        const int64_t *packing = read_words(reader, packing_count);
        Row row;
        if (reader->failed) {
            return;
        }
        if (!package_find_section(package, name, &row)) {
            package_fail(reader, "its weight '%s' is not stored in it", name);
        } else if (torch.from_blob(package->memory + row.offset + offset, dims, sizes, strides, 0,
                                   (int32_t)dtype, CPU, 0, &package->weights[i]) != 0) {
            package_fail(reader, "torch makes no tensor of its weight '%s'", name);
        } else if (packing_count > 0 &&
                   !pack_weight(&package->weights[i], packing, packing_count)) {
            package_fail(reader, "oneDNN does not pack its weight '%s'", name);
        }
    }
}

static void read_kernels(Reader *reader)
{
    FusewrightPackage *package = reader->package;
    const char *section = read_text(reader);
    package->kernel_count = read_count(reader, 3);
    package->kernels = allocate_items(reader, package->kernel_count, sizeof(Kernel));
    Row row;
    if (reader->failed || package->kernel_count == 0) {
        return;
    }
    char why[200];
    if (!package_find_section(package, section, &row)) {
        package_fail(reader, "it has no section '%s'", section);
        return;
    }
    package->code =
        object_code_load(package->memory + row.offset, (size_t)row.size, why, sizeof why);
    if (package->code == NULL) {
        package_fail(reader, "%s", why);
        return;
    }
    for (int64_t i = 0; i < package->kernel_count && !reader->failed; i++) {
        Kernel *kernel = &package->kernels[i];
        kernel->name = read_text(reader);
        kernel->tensors = read_word(reader);
        kernel->numbers = read_word(reader);
        void *address = object_code_symbol(package->code, kernel->name);
        memcpy(&kernel->function, &address, sizeof address);
        if (address == NULL) {
            package_fail(reader, "it has no code of the kernel %s", kernel->name);
        }
    }
}

static void read_blocks(Reader *reader)
{
    FusewrightPackage *package = reader->package;
    package->block_count = read_count(reader, 4);
    package->blocks = allocate_items(reader, package->block_count, sizeof(Block));
    for (int64_t i = 0; i < package->block_count && !reader->failed; i++) {
        Block *block = &package->blocks[i];
        block->input_count = read_word(reader);
        block->slot_count = read_word(reader);
        block->number_count = read_count(reader, 1);
        block->numbers = read_words(reader, block->number_count);
        block->word_count = read_count(reader, 1);
        block->words = read_words(reader, block->word_count);
        if (block->input_count < 0 || block->slot_count < block->input_count) {
            package_fail(reader, "its plan is malformed");
        }
    }
}

static void read_rest(Reader *reader)
{
    FusewrightPackage *package = reader->package;
    package->operator_count = read_count(reader, 2);
    package->operators = allocate_items(reader, package->operator_count, sizeof(Operator));
    for (int64_t i = 0; i < package->operator_count && !reader->failed; i++) {
        package->operators[i].name = read_text(reader);
        package->operators[i].overload = read_text(reader);
    }
    int64_t input_count = read_count(reader, 2);
    package->inputs = read_words(reader, 2 * input_count);
    read_blocks(reader);
    if (!reader->failed && (package->block_count == 0 ||
                            package->blocks[0].input_count != input_count)) {
        package_fail(reader, "its plan is malformed");
    }
    package->recipe_count = read_count(reader, 2);
    package->recipes = allocate_items(reader, package->recipe_count, sizeof(int64_t *));
    for (int64_t i = 0; i < package->recipe_count && !reader->failed; i++) {
        int64_t length = read_count(reader, 1);
        package->recipes[i] = read_words(reader, length);
    }
    package->output_count = read_count(reader, 1);
    package->outputs = read_words(reader, package->output_count);
    package->write_count = read_count(reader, 3);
    package->writes = allocate_items(reader, package->write_count, sizeof(Write));
    for (int64_t i = 0; i < package->write_count && !reader->failed; i++) {
        package->writes[i].is_weight = read_word(reader) != 0;
        package->writes[i].index = read_word(reader);
        package->writes[i].output = read_word(reader);
    }
}

/* Checks --------------------------------------------------------------------------------------- */

const char *const package_forms[OPERATION_COUNT] = {
    "nrr",      "nrr",  "nrr",        "nrr",   "nrr",  "nrr",   "ns", "nsi",      "nsi", "oi#*r*r",
    "oo",       "os#*r*rr", "o",      "k#*s#*rri", "sss", "sss", "ssss", "ss",    "oi#*r*r",
    NULL,       "#*q", "osii#*r*r",   "r#*i", "sbb#*A#*p", "bbi#*A#*p", "biii#*A#*i#*p",
};

/* A block whose operations are checked, and the package that it is of. */
typedef struct {
    const FusewrightPackage *package;
    const Block *block;
} Scope;

static bool is_within(int64_t index, int64_t count)
{
    return index >= 0 && index < count;
}

static bool is_tensor_place(const Scope *scope, int64_t place)
{
    return place >= 0 ? place < scope->block->slot_count : ~place < scope->package->weight_count;
}

static bool is_operand(const Scope *scope, char letter, int64_t word)
{
    switch (letter) {
    case 'n':
    case 'r':
        return is_within(word, scope->block->number_count);
    case 'o':
        return is_within(word, scope->block->slot_count);
    case 's':
        return is_tensor_place(scope, word);
    case 'p':
        return word == NOTHING || is_within(word, scope->block->slot_count);
    case 'b':
        return is_within(word, scope->package->block_count) &&
               &scope->package->blocks[word] > scope->block;
    case 'q':
        return word == NOTHING || is_tensor_place(scope, word);
    case 'k':
        return is_within(word, scope->package->kernel_count);
    case '#':
        return is_within(word, scope->block->word_count);
    default:
        return letter == 'i';
    }
}

static bool is_argument(const Scope *scope, const int64_t *words)
{
    return words[0] == FROM_PLACE     ? is_tensor_place(scope, words[1])
           : words[0] == FROM_NUMBERS ? is_within(words[1], scope->block->number_count)
                                      : false;
}

static bool fits(const Scope *scope, const char *form, const int64_t *operands,
                 int64_t count)
{
    const int64_t *at = operands, *end = operands + count;
    int64_t times = 0;
    for (const char *letter = form; *letter != 0; letter++) {
        bool repeated = *letter == '*';
        letter += repeated;
        for (int64_t i = 0; i < (repeated ? times : 1); i++) {
            if (*letter == 'A') {
                if (end - at < 2 || !is_argument(scope, at)) {
                    return false;
                }
                at += 2;
                continue;
            }
            if (at == end || !is_operand(scope, *letter, *at)) {
                return false;
            }
            times = *letter == '#' ? *at : times;
            at++;
        }
    }
    return at == end;
}

/* Whether the next argument of an operator is one; `*at` is moved behind it. */
static bool takes_argument(const Scope *scope, const int64_t **at, const int64_t *end)
{
    int64_t kind = *at < end ? *(*at)++ : -1, left = end - *at;
    if (kind == NONE) {
        return true;
    }
    if (kind < NONE || kind > OPTIONAL_TENSORS || left < 1) {
        return false;
    }
    int64_t first = *(*at)++;
    switch (kind) {
    case TENSOR:
    case OPTIONAL_TENSOR:
        return is_tensor_place(scope, first);
    case NUMBER:
    case OPTIONAL_NUMBER:
        return is_within(first, scope->block->number_count);
    case WORD:
    case OPTIONAL_WORD:
        return true;
    case TEXT:
    case OPTIONAL_TEXT:
        if (first < 0 || first / 8 >= left - 1) {
            return false;
        }
        *at += first / 8 + 1;
        return true;
    }
    bool of_tensors = kind == TENSORS || kind == OPTIONAL_TENSORS;
    int64_t width = of_tensors ? 1 : 2;
    if (first < 0 || first > (left - 1) / width) {
        return false;
    }
    for (int64_t i = 0; i < first; i++, *at += width) {
        bool is_right = of_tensors ? is_tensor_place(scope, (*at)[0]) ||
                                         (kind == OPTIONAL_TENSORS && (*at)[0] == NOTHING)
                                   : (*at)[0] == 0 || is_within((*at)[1], scope->block->number_count);
        if (!is_right) {
            return false;
        }
    }
    return true;
}

static bool fits_dispatch(const Scope *scope, const int64_t *operands, int64_t count)
{
    const int64_t *end = operands + count;
    if (count < 3 || !is_within(operands[0], scope->package->operator_count) ||
        !is_within(operands[1], MOST_ARGUMENTS) || operands[1] > count - 3) {
        return false;
    }
    for (int64_t i = 0; i < operands[1]; i++) {
        int64_t slot = operands[2 + i];
        if (slot != NOTHING && !is_within(slot, scope->block->slot_count)) {
            return false;
        }
    }
    int64_t arguments = operands[2 + operands[1]];
    const int64_t *at = operands + 3 + operands[1];
    bool is_right = is_within(arguments, MOST_ARGUMENTS);
    for (int64_t i = 0; is_right && i < arguments; i++) {
        is_right = takes_argument(scope, &at, end);
    }
    return is_right && at == end;
}

/* A launch passes as much as its kernel takes. */
static bool fits_kernel(const Scope *scope, const int64_t *operands)
{
    const Kernel *kernel = &scope->package->kernels[operands[0]];
    return kernel->tensors == operands[1] && kernel->numbers == operands[2 + operands[1]];
}

/* A condition or loop gives its blocks as much as they take, and takes what they give. */
static bool fits_blocks(const Scope *scope, int64_t operation, const int64_t *operands)
{
    const Block *blocks = scope->package->blocks;
    const int64_t *counts = operands + 3 + (operation == SCAN);
    int64_t arguments = counts[0];
    if (operation == BRANCH) {
        return blocks[operands[1]].input_count == arguments &&
               blocks[operands[2]].input_count == arguments;
    }
    const int64_t *results = counts + 1 + 2 * arguments;
    if (operation == WHILE_LOOP) {
        return blocks[operands[0]].input_count == arguments &&
               blocks[operands[1]].input_count == arguments && operands[2] == results[0] &&
               operands[2] <= arguments;
    }
    int64_t carried = operands[1], sliced = operands[2], stacks = results[0];
    bool is_right = blocks[operands[0]].input_count == arguments && is_within(carried, arguments) &&
                    sliced > 0 && sliced <= arguments - carried;
    for (int64_t i = 0; is_right && i < stacks; i++) {
        is_right = is_within(results[1 + i], carried + blocks[operands[0]].word_count);
    }
    return is_right && results[1 + stacks] == carried + stacks;
}

static bool fits_operation(const Scope *scope, const int64_t *words)
{
    int64_t operation = words[0], count = words[1] - 2;
    const int64_t *operands = words + 2;
    if (operation == DISPATCH) {
        return fits_dispatch(scope, operands, count);
    }
    return fits(scope, package_forms[operation], operands, count) &&
           (operation != LAUNCH || fits_kernel(scope, operands)) &&
           (operation < BRANCH || fits_blocks(scope, operation, operands));
}

static void check_operations(Reader *reader)
{
    const FusewrightPackage *package = reader->package;
    for (int64_t i = 0; i < package->block_count; i++) {
        const Block *block = &package->blocks[i];
        const int64_t *at = block->words, *end = at + block->word_count;
        while (at < end) {
            if (end - at < 2 || !is_within(at[0], OPERATION_COUNT) || at[1] < 2 ||
                at[1] > end - at || !fits_operation(&(Scope){package, block}, at)) {
                package_fail(reader, "its plan has an operation with other operands than it takes");
                return;
            }
            at += at[1];
        }
    }
}

/* Whether a recipe refers to what there is; others come only ahead of it in `depth` steps. */
static bool is_recipe(const FusewrightPackage *package, int64_t index, int64_t depth)
{
    if (!is_within(index, package->recipe_count) || depth > MOST_DEPTH) {
        return false;
    }
    const int64_t *recipe = package->recipes[index];
    int64_t length = recipe[-1];
    switch (length >= 2 ? recipe[0] : IS_OTHER) {
    case IS_OUTPUT:
        return recipe[1] >= 0;
    case IS_LEAF:
        return is_within(recipe[1], package->leaf_count);
    case IS_WEIGHT:
        return is_within(recipe[1], package->weight_count);
    case IS_RESULT:
        return is_recipe(package, recipe[1], depth + 1);
    case IS_VIEW:
        return length >= 4 && recipe[2] >= 0 && recipe[2] < length &&
               length == 4 + 2 * recipe[2] && is_recipe(package, recipe[1], depth + 1);
    default:
        return false;
    }
}

static void check_references(Reader *reader)
{
    const FusewrightPackage *package = reader->package;
    bool is_right = true;
    for (int64_t i = 0; i < package->blocks[0].input_count; i++) {
        const int64_t counts[] = {package->leaf_count, package->weight_count,
                                  package->reading_count, 1};
        int64_t kind = package->inputs[2 * i];
        is_right = is_right && is_within(kind, FROM_NOWHERE + 1) &&
                   is_within(package->inputs[2 * i + 1], counts[kind]);
    }
    for (int64_t i = 0; i < package->output_count; i++) {
        is_right = is_right && is_recipe(package, package->outputs[i], 0);
    }
    for (int64_t i = 0; i < package->write_count; i++) {
        const Write *write = &package->writes[i];
        int64_t count = write->is_weight ? package->weight_count : package->leaf_count;
        is_right = is_right && is_within(write->index, count) && write->output >= 0;
    }
    if (!is_right) {
        package_fail(reader, "its plan refers to what it has not");
    }
}

/* Loading -------------------------------------------------------------------------------------- */

static bool find_torch(Reader *reader)
{
    const char *missing = package_torch_find();
    if (missing != NULL) {
        package_fail(reader, "this process has no libtorch with %s", missing);
    }
    return missing == NULL;
}

/* The section for the best level of processors that this machine is of; NULL with a message. */
static bool find_plan(Reader *reader, const char *entry, Row *row)
{
    static const char *const levels[] = {"avx512", "avx2", "scalar"};
    char name[300];
    const char *lacks = NULL;
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        snprintf(name, sizeof name, "%s.%s.standalone", entry, levels[i]);
        if (!package_find_section(reader->package, name, row)) {
            continue;
        }
        reader->at = (const int64_t *)(reader->package->memory + row->offset);
        reader->end = reader->at + row->size / sizeof(int64_t);
        const char *machine = read_text(reader);
        int64_t version = read_word(reader), features = read_count(reader, 1);
        uint64_t running = torch.abi_version();
        if ((int64_t)(running >> 48) != version) {
            package_fail(reader, "it was made with torch %" PRId64 ".%" PRId64 ", and this is %d.%d",
                 version >> 8, version & 255, (int)(running >> 56), (int)(running >> 48 & 255));
            return false;
        }
#ifdef __x86_64__
        bool is_ours = strcmp(machine, "x86_64") == 0;
#else
        bool is_ours = false;
#endif
        if (!is_ours) {
            package_fail(reader, "it is for %s", machine);
            return false;
        }
        const char *lacking = NULL;
        for (int64_t j = 0; j < features && !reader->failed; j++) {
            const char *feature = read_text(reader);
            lacking = processor_has(feature) == 1 ? lacking : feature;
        }
        if (lacking == NULL) {
            return !reader->failed;
        }
        lacks = lacking;
    }
    if (lacks != NULL) {
        package_fail(reader, "this processor lacks %s, which it needs", lacks);
    } else {
        package_fail(reader, "it has no entry point '%s' that runs without Python", entry);
    }
    return false;
}

FusewrightPackage *fusewright_package_load(const char *path, const char *entry, char *message,
                                           size_t message_size)
{
    FusewrightPackage *package = calloc(1, sizeof *package);
    Reader reader = {.package = package, .message = message, .message_size = message_size};
    if (package == NULL || (package->path = strdup(path)) == NULL) {
        snprintf(message, message_size, "%s: there is no memory for it", path);
        free(package);
        return NULL;
    }
    Row row;
    if (package_open(&reader) && find_torch(&reader) && find_plan(&reader, entry, &row)) {
        static void (*const parts[])(Reader *) = {read_leaves,  read_relations, read_weights,
                                                  read_kernels, read_rest,      check_references,
                                                  check_operations};
        for (size_t i = 0; i < sizeof parts / sizeof *parts && !reader.failed; i++) {
            parts[i](&reader);
        }
    }
    if (reader.failed) {
        fusewright_package_free(package);
        return NULL;
    }
    return package;
}

void fusewright_package_free(FusewrightPackage *package)
{
    for (int64_t i = 0; package->weights != NULL && i < package->weight_count; i++) {
        if (package->weights[i] != NULL) {
            torch.delete_tensor(package->weights[i]);
        }
    }
    if (package->code != NULL) {
        object_code_free(package->code);
    }
    if (package->memory != NULL) {
        munmap(package->memory, package->size);
    }
    free(package->leaves);
    free(package->relations);
    free(package->weights);
    free(package->kernels);
    free(package->operators);
    free(package->blocks);
    free((void *)package->recipes);
    free(package->writes);
    free(package->path);
    free(package);
}
