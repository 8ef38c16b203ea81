# SPDX-License-Identifier: BSD-3-Clause
"""fa3_ctypes.py — the part of include/fa3/fa3.h that the benchmarks call, mirrored by ctypes."""

import ctypes
import json
from ctypes import (
    POINTER,
    byref,
    c_char,
    c_char_p,
    c_double,
    c_int32,
    c_int64,
    c_size_t,
    c_uint64,
    c_void_p,
)

OK = 0
BACKENDS = {"auto": 0, "cpu": 1, "reference": 2, "cuda": 3, "sim": 4}
DEVICES = {"default": 0, "cpu": 1, "cuda": 2}
MASKS = {"full": 0, "causal": 1, "window": 2}
DTYPES = {"float32": 1, "float16": 2, "bfloat16": 3, "int32": 4}  # fa3_dtype, by PyTorch's names
DTYPES |= {"float8_e4m3fn": 5, "int8": 7, "bool": 8}
PRECISIONS = {"default": 0, "fp8": 1, "eight_bit": 2, "eight_bit_accurate": 3}
MAX_RANK = 5
FORWARD, BACKWARD, QUANTIZE = 1, 2, 3  # fa3_op


class Tensor(ctypes.Structure):
    """fa3_tensor. Default = absent. Made by of(), it keeps alive what it is a view of."""

    _fields_ = [
        ("data", c_void_p),
        ("dtype", c_int32),
        ("rank", c_int32),
        ("shape", c_int64 * MAX_RANK),
        ("stride", c_int64 * MAX_RANK),
    ]

    @classmethod
    def of(cls, tensor):
        """View of a PyTorch tensor, with the strides that it has."""
        rank = tensor.dim()
        view = cls(
            tensor.data_ptr(),
            DTYPES[str(tensor.dtype).removeprefix("torch.")],
            rank,
            (c_int64 * MAX_RANK)(*tensor.shape),
            (c_int64 * MAX_RANK)(*tensor.stride()),
        )
        view.source = tensor
        return view


class _TensorArgs(ctypes.Structure):
    """Arguments that hold tensors. Assigning one to a field copies its address; what it is a view
    of is kept here, until the field is assigned again."""

    def __setattr__(self, name, value):
        if isinstance(value, Tensor):
            self.__dict__.setdefault("sources", {})[name] = getattr(value, "source", None)
        super().__setattr__(name, value)


class Field(ctypes.Structure):
    """fa3_field."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("offset", c_size_t),
        ("kind", c_int32),
        ("role", c_int32),
        ("dtype", c_int32),
        ("strided", c_int32),
        ("types", c_char_p),
        ("shape", c_char_p),
        ("varlen_shape", c_char_p),
        ("of", c_char_p),
        ("help", c_char_p),
    ]


# By fa3_field_kind: tensor, i32, i64, u64, f64, block (rows and columns), reserved.
KINDS = [None, Tensor, c_int32, c_int64, c_uint64, c_double, c_int32 * 2, c_int32]
STRUCTS = {}  # fa3_op → the operation's struct, of the first library that publishes its fields


def _read_structs(c):
    """The structs of the operations as the library describes them. Other versions of it take these
    too: what they do not know stays 0."""
    names = {FORWARD: "ForwardArgs", BACKWARD: "BackwardArgs", QUANTIZE: "QuantizeArgs"}
    for op, name in names.items():
        members, field = [("struct_size", c_size_t)], Field(ctypes.sizeof(Field))
        while c.fa3_fields(op, len(members) - 1, byref(field)) == OK:
            members.append((field.name.decode(), KINDS[field.kind]))
        STRUCTS[op] = type(name, (_TensorArgs,), {"_fields_": members})


def _args(op, tensors, scalars):
    if op not in STRUCTS:
        raise Fa3Error("no library that publishes its fields is loaded; make a Library first")
    args = STRUCTS[op]()
    args.struct_size = ctypes.sizeof(args)
    for name, tensor in tensors.items():
        setattr(args, name, Tensor.of(tensor))
    for name, value in (scalars or {}).items():
        setattr(args, name, value)
    return args


class ContextOptions(ctypes.Structure):
    """fa3_context_options; callbacks stay NULL here."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("backend", c_int32),
        ("num_threads", c_int32),
        ("parallel_for", c_void_p),
        ("parallel_for_user", c_void_p),
        ("progress", c_void_p),
        ("progress_user", c_void_p),
        ("log", c_void_p),
        ("log_user", c_void_p),
        ("log_level", c_int32),
        ("kernel_source", c_int32),
        ("cache_dir", c_char_p),
    ]


class DeviceInfo(ctypes.Structure):
    """fa3_device_info."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("backend", c_int32),
        ("num_threads", c_int32),
        ("l1_bytes", c_int64),
        ("l2_bytes", c_int64),
        ("memory_bytes", c_int64),
        ("name", c_char * 128),
        ("instruction_set", c_char * 32),
    ]


class Fa3Error(RuntimeError):
    """A call that failed, with the library's message."""


class Library:
    """libfa3, loaded from a path."""

    def __init__(self, path):
        try:
            self.c = ctypes.CDLL(str(path))
        except OSError as error:
            raise Fa3Error(
                f"{error}; build the library first: make build, or name it with --lib"
            ) from None
        prototypes = {
            "fa3_status_name": (c_char_p, [c_int32]),
            "fa3_last_error": (c_char_p, []),
            "fa3_version": (c_char_p, []),
            "fa3_fields": (c_int32, [c_int32, c_int32, POINTER(Field)]),
            "fa3_context_create": (c_int32, [POINTER(ContextOptions), POINTER(c_void_p)]),
            "fa3_context_destroy": (None, [c_void_p]),
            "fa3_get_device_info": (c_int32, [c_void_p, POINTER(DeviceInfo)]),
            "fa3_forward": (c_int32, [c_void_p, c_void_p, c_void_p]),
            "fa3_backward": (c_int32, [c_void_p, c_void_p, c_void_p]),
            "fa3_explain": (
                c_int32,
                [c_void_p, c_int32, c_void_p, c_char_p, c_size_t, POINTER(c_size_t)],
            ),
            "fa3_plan_forward": (c_int32, [c_void_p, c_void_p, POINTER(c_void_p)]),
            "fa3_plan_backward": (c_int32, [c_void_p, c_void_p, POINTER(c_void_p)]),
            "fa3_plan_quantize": (c_int32, [c_void_p, c_void_p, POINTER(c_void_p)]),
            "fa3_plan_destroy": (None, [c_void_p]),
            "fa3_plan_workspace_bytes": (c_size_t, [c_void_p]),
            "fa3_plan_v_image": (c_int32, [c_void_p, POINTER(Tensor), POINTER(c_int32)]),
            "fa3_plan_run": (
                c_int32,
                [c_void_p, c_void_p, c_void_p, c_size_t, c_void_p],
            ),
        }
        for name, (result, arguments) in prototypes.items():
            function = getattr(self.c, name, None)
            if function is None:  # of an older library
                continue
            function.restype, function.argtypes = result, arguments
            if name == "fa3_fields" and not STRUCTS:
                _read_structs(self.c)

    def version(self):
        return self.c.fa3_version().decode()

    def check(self, status):
        if status != OK:
            name = self.c.fa3_status_name(status).decode()
            raise Fa3Error(f"{name}: {self.c.fa3_last_error().decode()}")


class Context:
    """fa3_context. Use with `with`, or close()."""

    def __init__(self, library, num_threads=0, backend="auto", device="default"):
        self.library = library
        self.handle = c_void_p()
        options = ContextOptions(
            device_type=DEVICES[device], backend=BACKENDS[backend], num_threads=num_threads
        )
        options.struct_size = ctypes.sizeof(options)
        library.check(library.c.fa3_context_create(byref(options), byref(self.handle)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.library.c.fa3_context_destroy(self.handle)
        self.handle = c_void_p()

    def device_info(self):
        info = DeviceInfo()
        info.struct_size = ctypes.sizeof(info)
        self.library.check(self.library.c.fa3_get_device_info(self.handle, byref(info)))
        return info

    def forward(self, args, stream=None):
        self.library.check(self.library.c.fa3_forward(self.handle, byref(args), stream))

    def explain_forward(self, args):
        """The plan of a forward, as fa3_explain describes it."""
        call, needed = self.library.c.fa3_explain, c_size_t()
        self.library.check(call(self.handle, FORWARD, byref(args), None, 0, byref(needed)))
        text = ctypes.create_string_buffer(needed.value)
        self.library.check(call(self.handle, FORWARD, byref(args), text, len(text), None))
        return json.loads(text.value)

    def plan_forward(self, args):
        return Plan(self, args, self.library.c.fa3_plan_forward)

    def plan_backward(self, args):
        return Plan(self, args, self.library.c.fa3_plan_backward)

    def plan_quantize(self, args):
        return Plan(self, args, self.library.c.fa3_plan_quantize)

    def backward(self, args):
        self.library.check(self.library.c.fa3_backward(self.handle, byref(args), None))


class Plan:
    """fa3_plan."""

    def __init__(self, context, args, make):
        self.context, self.args = context, args
        self.handle = c_void_p()
        context.library.check(make(context.handle, byref(args), byref(self.handle)))
        self.workspace_bytes = context.library.c.fa3_plan_workspace_bytes(self.handle)

    def v_image(self):
        """Shape of the image of V that it takes, and its layout; ((), 0) where there is none."""
        image, layout = Tensor(), c_int32()
        c = self.context.library.c
        self.context.library.check(c.fa3_plan_v_image(self.handle, byref(image), byref(layout)))
        return tuple(image.shape[: image.rank]), layout.value

    def run(self, workspace=None, stream=None, args=None):
        c = self.context.library.c
        self.context.library.check(
            c.fa3_plan_run(
                self.handle, byref(args or self.args), workspace, self.workspace_bytes, stream
            )
        )

    def close(self):
        self.context.library.c.fa3_plan_destroy(self.handle)
        self.handle = c_void_p()


def forward_args(mask="full", scalars=None, **tensors):
    """fa3_forward_args over PyTorch tensors named as the fields; `scalars`: other fields."""
    return _args(FORWARD, tensors, {"mask": MASKS[mask], **(scalars or {})})


def quantize_args(scalars=None, **tensors):
    """fa3_quantize_args over PyTorch tensors named as the fields; `scalars`: other fields."""
    return _args(QUANTIZE, tensors, scalars)


def backward_args(mask="full", deterministic=False, **tensors):
    """fa3_backward_args over PyTorch tensors named as the fields."""
    return _args(BACKWARD, tensors, {"mask": MASKS[mask], "deterministic": deterministic})
