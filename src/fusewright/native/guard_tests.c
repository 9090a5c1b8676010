/* The tests of a guard program, each of one object. Objects that belong to the user are held
   weakly. */
#include "guard_sizes.h"

#include <string.h>

#include "torch_state.h"

/* The object that a test expects; NULL when it was held weakly and is gone. */
static PyObject *expected_object(const GuardTest *test)
{
    if (!test->weak) {
        return test->expected;
    }
    PyObject *object = ((PyWeakReference *)test->expected)->wr_object;
    return object == Py_None ? NULL : object;
}

/* Equality of constants as code sees them: of one type, floats by their bits (so that 0.0 and -0.0
   differ and a NaN equals itself), tuples item by item. */
static bool constants_equal(PyObject *left, PyObject *right)
{
    if (left == right) {
        return true;
    }
    if (Py_TYPE(left) != Py_TYPE(right)) {
        return false;
    }
    if (PyFloat_Check(left)) {
        return memcmp(&((PyFloatObject *)left)->ob_fval, &((PyFloatObject *)right)->ob_fval,
                      sizeof(double)) == 0;
    }
    if (PyComplex_CheckExact(left)) {
        return memcmp(&((PyComplexObject *)left)->cval, &((PyComplexObject *)right)->cval,
                      sizeof(Py_complex)) == 0;
    }
    if (PyTuple_CheckExact(left)) {
        bool equal = PyTuple_GET_SIZE(left) == PyTuple_GET_SIZE(right);
        for (Py_ssize_t i = 0; equal && i < PyTuple_GET_SIZE(left); i++) {
            equal = constants_equal(PyTuple_GET_ITEM(left, i), PyTuple_GET_ITEM(right, i));
        }
        return equal;
    }
    return PyObject_RichCompareBool(left, right, Py_EQ) == 1;
}

static bool check_is(GuardTest *test, PyObject *value, MetObjects *Py_UNUSED(met))
{
    return value == expected_object(test);
}

static bool check_type(GuardTest *test, PyObject *value, MetObjects *Py_UNUSED(met))
{
    return (PyObject *)Py_TYPE(value) == expected_object(test);
}

static bool check_equals(GuardTest *test, PyObject *value, MetObjects *Py_UNUSED(met))
{
    return constants_equal(value, test->expected);
}

static bool check_length(GuardTest *test, PyObject *value, MetObjects *Py_UNUSED(met))
{
    if (PyDict_Check(value)) {
        return PyDict_GET_SIZE(value) == test->number;
    }
    if (PyTuple_Check(value) || PyList_Check(value)) {
        return Py_SIZE(value) == test->number;
    }
    return PyObject_Size(value) == test->number;
}

/* Keys in order. An OrderedDict keeps an order of its own beside the table that `PyDict_Next`
 * walks.
 */
static bool keys_equal(PyObject *dictionary, PyObject *expected)
{
    if (PyODict_Check(dictionary)) {
        PyObject *keys = PySequence_Tuple(dictionary);
        bool equal = keys != NULL && constants_equal(keys, expected);
        Py_XDECREF(keys);
        return equal;
    }
    Py_ssize_t position = 0;
    PyObject *key;
    for (Py_ssize_t i = 0; PyDict_Next(dictionary, &position, &key, NULL); i++) {
        if (i >= PyTuple_GET_SIZE(expected) ||
            !constants_equal(key, PyTuple_GET_ITEM(expected, i))) {
            return false;
        }
    }
    return true;
}

static bool check_keys(GuardTest *test, PyObject *value, MetObjects *Py_UNUSED(met))
{
    if (!PyDict_Check(value) || PyDict_GET_SIZE(value) != PyTuple_GET_SIZE(test->expected)) {
        return false;
    }
    return keys_equal(value, test->expected);
}

/* Whether a dictionary or set has the expected key (1) or not (0); -1 for other objects. */
static int find_key(PyObject *value, PyObject *key)
{
    if (PyDict_Check(value)) {
        return PyDict_Contains(value, key);
    }
    return PyAnySet_Check(value) ? PySet_Contains(value, key) : -1;
}

static bool check_contains(GuardTest *test, PyObject *value, MetObjects *Py_UNUSED(met))
{
    return find_key(value, test->expected) == 1;
}

static bool check_lacks(GuardTest *test, PyObject *value, MetObjects *Py_UNUSED(met))
{
    return find_key(value, test->expected) == 0;
}

/* `expected` maps each member to itself, so that a member can be compared with the one that it
   equals. */
static bool check_members(GuardTest *test, PyObject *value, MetObjects *Py_UNUSED(met))
{
    if (!PyAnySet_Check(value) || PySet_GET_SIZE(value) != PyDict_GET_SIZE(test->expected)) {
        return false;
    }
    PyObject *members = PySequence_List(value);
    bool equal = members != NULL;
    for (Py_ssize_t i = 0; equal && i < PyList_GET_SIZE(members); i++) {
        PyObject *member = PyList_GET_ITEM(members, i);
        PyObject *expected = PyDict_GetItemWithError(test->expected, member);
        equal = expected != NULL && constants_equal(member, expected);
    }
    Py_XDECREF(members);
    return equal;
}

static bool check_has_attribute(GuardTest *test, PyObject *value, MetObjects *Py_UNUSED(met))
{
    PyObject *attribute = PyObject_GetAttr(value, test->expected);
    Py_XDECREF(attribute);
    return attribute != NULL;
}

static bool check_lacks_attribute(GuardTest *test, PyObject *value, MetObjects *Py_UNUSED(met))
{
    PyObject *attribute = PyObject_GetAttr(value, test->expected);
    Py_XDECREF(attribute);
    return attribute == NULL && PyErr_ExceptionMatches(PyExc_AttributeError);
}

/* An object that is not there fails before its tests are run. */
static bool check_present(GuardTest *Py_UNUSED(test), PyObject *Py_UNUSED(value),
                          MetObjects *Py_UNUSED(met))
{
    return true;
}

static bool check_type_lacks(GuardTest *test, PyObject *value, MetObjects *Py_UNUSED(met))
{
    return PyType_Check(value) && _PyType_Lookup((PyTypeObject *)value, test->expected) == NULL;
}

static bool check_code(GuardTest *test, PyObject *value, MetObjects *Py_UNUSED(met))
{
    return PyFunction_Check(value) &&
           ((PyFunctionObject *)value)->func_code == expected_object(test);
}

static bool check_grad_mode(GuardTest *test, PyObject *Py_UNUSED(value), MetObjects *Py_UNUSED(met))
{
    return torch_library.grad_mode_is_enabled() == (bool)test->number;
}

static bool check_state(GuardTest *test, PyObject *Py_UNUSED(value), MetObjects *Py_UNUSED(met))
{
    return torch_state_read((int)test->number) == test->word;
}

static bool check_dispatch_state(GuardTest *test, PyObject *Py_UNUSED(value),
                                 MetObjects *Py_UNUSED(met))
{
    return memcmp(torch_library_dispatch_state(), PyBytes_AS_STRING(test->expected),
                  2 * sizeof(uint64_t)) == 0;
}

static bool extents_match(const int64_t *found, const int64_t *expected, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (expected[i] != found[i] && expected[i] >= 0) {
            return false;
        }
    }
    return true;
}

static bool device_matches(const TensorExpectation *expected, TensorHandle handle)
{
    if (expected->device_type == torch_library.cpu_device_type) {
        return true; /* the key set says so, and there is but one */
    }
    int32_t device_type, device_index;
    return torch_library.get_device_type(handle, &device_type) == 0 &&
           device_type == expected->device_type &&
           torch_library.get_device_index(handle, &device_index) == 0 &&
           device_index == expected->device_index;
}

/* The key set comes first: a fake, nested or sparse tensor differs there, before it is asked for
   sizes it does not have. */
static bool check_tensor(GuardTest *test, PyObject *value, MetObjects *Py_UNUSED(met))
{
    const TensorExpectation *expected = (const void *)PyBytes_AS_STRING(test->expected);
    if (!tensor_access_is_tensor(value) || tensor_access_key_set(value) != expected->key_set) {
        return false;
    }
    TensorHandle handle = tensor_access_handle(value);
    int32_t dtype;
    int64_t dim, *sizes, *strides;
    if (torch_library.get_dtype(handle, &dtype) || dtype != expected->dtype ||
        !device_matches(expected, handle) || torch_library.get_dim(handle, &dim) ||
        dim != expected->dim || torch_library.get_sizes(handle, &sizes) ||
        !extents_match(sizes, expected->extents, dim)) {
        return false;
    }
    if (expected->strides_tested && (torch_library.get_strides(handle, &strides) ||
                                     !extents_match(strides, expected->extents + dim, dim))) {
        return false;
    }
    return expected->requires_grad < 0 ||
           tensor_access_requires_grad(value) == expected->requires_grad;
}

/* The slot of an object in a table of those met, or an empty one. */
static MetObject *find_met(const MetObjects *met, PyObject *object, Py_ssize_t group)
{
    size_t slot = ((uintptr_t)object >> 5) & met->mask;
    while (met->table[slot].object != NULL &&
           (met->table[slot].object != object || met->table[slot].group != group)) {
        slot = (slot + 1) & met->mask;
    }
    return &met->table[slot];
}

/* Whether the object is new to its group in this check. */
static bool check_distinct(GuardTest *test, PyObject *value, MetObjects *met)
{
    if (met->before != NULL && find_met(met->before, value, test->number)->object != NULL) {
        return false;
    }
    MetObject *slot = find_met(met, value, test->number);
    if (slot->object != NULL) {
        return false;
    }
    *slot = (MetObject){value, test->number};
    return true;
}

/* Whether the object is the one that its group met first. */
static bool check_same(GuardTest *test, PyObject *value, MetObjects *met)
{
    if (met->before != NULL && met->before->same[test->number] != NULL) {
        return met->before->same[test->number] == value;
    }
    PyObject **first = &met->same[test->number];
    if (*first == NULL) {
        *first = Py_NewRef(value);
    }
    return *first == value;
}

/* What a tensor's place in memory should be: its offset in its storage matters where others share
   that. */
typedef struct {
    int64_t item_size;
    int64_t offset; /* in bytes; -1: any */
} Placement;

/* The storage's bytes and the tensor's offset in them; false when torch refuses. A tensor without
   elements has no place. */
static bool find_place(TensorHandle handle, int64_t item_size, MetStorage *storage, int64_t *offset)
{
    void *data;
    int64_t bytes, elements;
    if (torch_library.get_data_pointer(handle, &data) ||
        torch_library.get_storage_size(handle, &bytes) ||
        torch_library.get_storage_offset(handle, &elements)) {
        return false;
    }
    *offset = elements * item_size;
    storage->begin = data != NULL ? (uintptr_t)data - (uintptr_t)*offset : 0;
    storage->end = data != NULL ? storage->begin + (uintptr_t)bytes : 0;
    return true;
}

static int compare_storages(const void *left, const void *right)
{
    uintptr_t first = ((const MetStorage *)left)->begin;
    uintptr_t second = ((const MetStorage *)right)->begin;
    return (first > second) - (first < second);
}

static int compare_groups(const void *left, const void *right)
{
    Py_ssize_t first = ((const MetStorage *)left)->group;
    Py_ssize_t second = ((const MetStorage *)right)->group;
    return (first > second) - (first < second);
}

/* Whether the tensors of a group share a storage, and those of different groups no byte. Tensors that
   are only read belong to no group: a negative one. They may share memory with each other. */
static bool storages_fit(MetStorage *storages, Py_ssize_t count)
{
    qsort(storages, (size_t)count, sizeof *storages, compare_groups);
    Py_ssize_t kept = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (kept > 0 && storages[i].group >= 0 && storages[kept - 1].group == storages[i].group) {
            if (storages[kept - 1].begin != storages[i].begin) {
                return false;
            }
        } else {
            storages[kept++] = storages[i];
        }
    }
    qsort(storages, (size_t)kept, sizeof *storages, compare_storages);
    uintptr_t written_end = 0, read_end = 0;
    for (Py_ssize_t i = 0; i < kept; i++) {
        bool read_only = storages[i].group < 0;
        uintptr_t *end = read_only ? &read_end : &written_end;
        if (storages[i].begin < written_end || (!read_only && storages[i].begin < read_end)) {
            return false;
        }
        *end = storages[i].end > *end ? storages[i].end : *end;
    }
    return true;
}

/* The last of all storage tests looks at all of them. */
static bool check_storage(GuardTest *test, PyObject *value, MetObjects *met)
{
    const Placement *expected = (const void *)PyBytes_AS_STRING(test->expected);
    MetStorage *storage = &met->storages[met->storage_count++];
    int64_t offset;
    if (!tensor_access_is_tensor(value) ||
        !find_place(tensor_access_handle(value), expected->item_size, storage, &offset) ||
        (expected->offset >= 0 && expected->offset != offset)) {
        return false;
    }
    storage->group = test->number;
    return (uint64_t)met->storage_count < test->word ||
           storages_fit(met->storages, met->storage_count);
}

static int build_object(GuardTest *test, PyObject *expected)
{
    test->expected = Py_NewRef(expected);
    if (PyUnicode_CheckExact(expected)) {
        PyUnicode_InternInPlace(&test->expected);
    }
    return 0;
}

/* Hold what can be held weakly so: guards keep no model, tensor or class alive. */
static int build_identity(GuardTest *test, PyObject *expected)
{
    test->expected = PyWeakref_NewRef(expected, NULL);
    test->weak = test->expected != NULL;
    if (test->weak) {
        return 0;
    }
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) {
        return -1;
    }
    PyErr_Clear();
    test->expected = Py_NewRef(expected);
    return 0;
}

static int build_tuple(GuardTest *test, PyObject *expected)
{
    if (!PyTuple_CheckExact(expected)) {
        PyErr_Format(PyExc_TypeError, "the keys that a guard expects must be a tuple, not %R",
                     expected);
        return -1;
    }
    return build_object(test, expected);
}

static int build_number(GuardTest *test, PyObject *expected)
{
    test->number = PyLong_AsSsize_t(expected);
    return test->number == -1 && PyErr_Occurred() ? -1 : 0;
}

static int build_state(GuardTest *test, PyObject *expected)
{
    PyObject *name;
    unsigned long long value;
    if (!PyArg_ParseTuple(expected, "UK:state", &name, &value)) {
        return -1;
    }
    test->number = torch_state_find(name);
    test->word = value;
    if (test->number < 0) {
        PyErr_Format(PyExc_ValueError, "this torch has no state %R that can be read", name);
    }
    return test->number < 0 ? -1 : 0;
}

static int build_storage(GuardTest *test, PyObject *expected)
{
    Placement placement;
    Py_ssize_t count;
    long long item_size, offset;
    if (!PyArg_ParseTuple(expected, "nLLn:storage", &test->number, &item_size, &offset, &count)) {
        return -1;
    }
    placement = (Placement){item_size, offset};
    test->word = (uint64_t)count;
    test->expected = PyBytes_FromStringAndSize((char *)&placement, sizeof placement);
    return test->expected == NULL ? -1 : 0;
}

static int build_dispatch_state(GuardTest *test, PyObject *expected)
{
    unsigned long long included, excluded;
    if (torch_library.local_dispatch_state == NULL) {
        PyErr_SetString(PyExc_RuntimeError,
                        "the dispatch state of this torch cannot be read from memory");
        return -1;
    }
    if (!PyArg_ParseTuple(expected, "KK:dispatch_state", &included, &excluded)) {
        return -1;
    }
    uint64_t words[] = {included, excluded};
    test->expected = PyBytes_FromStringAndSize((char *)words, sizeof words);
    return test->expected == NULL ? -1 : 0;
}

static int build_group(GuardTest *test, PyObject *expected)
{
    if (build_number(test, expected) == 0 && test->number >= 0) {
        return 0;
    }
    PyErr_SetString(PyExc_ValueError, "objects are compared in groups numbered from 0");
    return -1;
}

static int build_members(GuardTest *test, PyObject *expected)
{
    test->expected = PyDict_New();
    PyObject *iterator = test->expected ? PyObject_GetIter(expected) : NULL;
    PyObject *member;
    int failed = iterator == NULL ? -1 : 0;
    while (failed == 0 && (member = PyIter_Next(iterator)) != NULL) {
        failed = PyDict_SetItem(test->expected, member, member);
        Py_DECREF(member);
    }
    Py_XDECREF(iterator);
    return PyErr_Occurred() ? -1 : failed;
}

/* Copy a tuple of ints, None for "any". */
static int take_extents(int64_t *extents, PyObject *tuple, int64_t count)
{
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != count) {
        PyErr_SetString(PyExc_ValueError, "a tensor guard needs as many strides as sizes");
        return -1;
    }
    for (int64_t i = 0; i < count; i++) {
        PyObject *extent = PyTuple_GET_ITEM(tuple, i);
        extents[i] = extent == Py_None ? -1 : PyLong_AsLongLong(extent);
        if (extents[i] < 0 && PyErr_Occurred()) {
            return -1;
        }
    }
    return 0;
}

static int build_tensor(GuardTest *test, PyObject *expected)
{
    unsigned long long key_set;
    int dtype, device_type, device_index;
    PyObject *requires_grad, *sizes, *strides;
    if (!PyArg_ParseTuple(expected, "KiiiOO!O:tensor", &key_set, &dtype, &device_type,
                          &device_index, &requires_grad, &PyTuple_Type, &sizes, &strides)) {
        return -1;
    }
    int64_t dim = PyTuple_GET_SIZE(sizes);
    Py_ssize_t size = (Py_ssize_t)sizeof(TensorExpectation) + 2 * dim * (Py_ssize_t)sizeof(int64_t);
    test->expected = PyBytes_FromStringAndSize(NULL, size);
    if (test->expected == NULL) {
        return -1;
    }
    TensorExpectation *tensor = (void *)PyBytes_AS_STRING(test->expected);
    tensor->key_set = key_set;
    tensor->dtype = dtype;
    tensor->device_type = device_type;
    tensor->device_index = device_index;
    tensor->requires_grad = requires_grad == Py_None ? -1 : (int8_t)PyObject_IsTrue(requires_grad);
    tensor->strides_tested = strides != Py_None;
    tensor->dim = dim;
    if (take_extents(tensor->extents, sizes, dim) < 0) {
        return -1;
    }
    return strides == Py_None ? 0 : take_extents(tensor->extents + dim, strides, dim);
}

typedef struct {
    const char *name;
    TestCheck check;
    int (*build)(GuardTest *test, PyObject *expected);
    Reads reads;
} TestKind;

static const TestKind test_kinds[] = {
    {"is", check_is, build_identity, READS_IDENTITY},
    {"type", check_type, build_identity, READS_TYPE},
    {"equals", check_equals, build_object, READS_CONSTANT},
    {"length", check_length, build_number, READS_LENGTH},
    {"keys", check_keys, build_tuple, READS_DICTIONARY},
    {"contains", check_contains, build_object, READS_DICTIONARY},
    {"lacks", check_lacks, build_object, READS_DICTIONARY},
    {"members", check_members, build_members, READS_ANYTHING},
    {"has_attribute", check_has_attribute, build_object, READS_ANYTHING},
    {"lacks_attribute", check_lacks_attribute, build_object, READS_ANYTHING},
    {"present", check_present, build_object, READS_ADDRESS},
    {"type_lacks", check_type_lacks, build_object, READS_CLASS},
    {"code", check_code, build_identity, READS_CODE},
    {"tensor", check_tensor, build_tensor, READS_TENSOR},
    {"storage", check_storage, build_storage, READS_TENSOR},
    {"sizes", guard_sizes_check, guard_sizes_build, READS_TENSOR},
    {"distinct", check_distinct, build_group, READS_ADDRESS},
    {"same", check_same, build_group, READS_ADDRESS},
    {"grad_mode", check_grad_mode, build_number, READS_ANYTHING},
    {"state", check_state, build_state, READS_ANYTHING},
    {"dispatch_state", check_dispatch_state, build_dispatch_state, READS_ANYTHING},
};

int guard_test_build(GuardTest *test, PyObject *description)
{
    PyObject *name, *expected;
    if (!PyArg_ParseTuple(description, "UO:test", &name, &expected)) {
        return -1;
    }
    for (size_t i = 0; i < Py_ARRAY_LENGTH(test_kinds); i++) {
        if (PyUnicode_CompareWithASCIIString(name, test_kinds[i].name) == 0) {
            test->check = test_kinds[i].check;
            test->reads = test_kinds[i].reads;
            return test_kinds[i].build(test, expected);
        }
    }
    PyErr_Format(PyExc_ValueError, "unknown guard test %R", name);
    return -1;
}

bool guard_test_is_dead(const GuardTest *test)
{
    return test->weak && expected_object(test) == NULL;
}

bool guard_test_is_distinct(const GuardTest *test)
{
    return test->check == check_distinct;
}

bool guard_test_is_same(const GuardTest *test)
{
    return test->check == check_same;
}

bool guard_test_is_storage(const GuardTest *test)
{
    return test->check == check_storage;
}

PyObject *guard_dispatch_state(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    if (torch_library.local_dispatch_state == NULL) {
        Py_RETURN_NONE;
    }
    const uint64_t *words = torch_library_dispatch_state();
    return Py_BuildValue("KK", (unsigned long long)words[0], (unsigned long long)words[1]);
}

PyObject *guard_read_tensor(PyObject *Py_UNUSED(module), PyObject *tensor)
{
    if (!tensor_access_is_tensor(tensor)) {
        return PyErr_Format(PyExc_TypeError, "read_tensor takes a tensor, not %s",
                            Py_TYPE(tensor)->tp_name);
    }
    TensorHandle handle = tensor_access_handle(tensor);
    int32_t dtype, device_type, device_index;
    int64_t dim, *sizes, *strides;
    if (torch_library.get_dtype(handle, &dtype) ||
        torch_library.get_device_type(handle, &device_type) ||
        torch_library.get_device_index(handle, &device_index) ||
        torch_library.get_dim(handle, &dim) || torch_library.get_sizes(handle, &sizes) ||
        torch_library.get_strides(handle, &strides)) {
        PyErr_SetString(PyExc_ValueError,
                        "this kind of tensor has no plain sizes and strides to guard");
        return NULL;
    }
    unsigned long long key_set = tensor_access_key_set(tensor);
    return Py_BuildValue("KiiiNNN", key_set, dtype, device_type, device_index,
                         PyBool_FromLong(tensor_access_requires_grad(tensor)),
                         tensor_access_extents(sizes, dim), tensor_access_extents(strides, dim));
}
