#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# torch_forward_mode.sh — PyTorch 2.15.0: forward-mode derivatives of a custom operator whose
# backward was registered with torch.library are 0, without a word.
#
# The backward is right. torch.func.jvp and jacfwd give 0 instead of 6, and a dual number comes out
# without a tangent. A torch.autograd.Function of the same backward says that it needs a jvp.
# torch.func.grad does raise, but asks for the setup_context that register_autograd was given.
#
# Seen: d(x²) at 3.
#   backward              6.0
#   jvp                   0.0
#   jacfwd                0.0
#   dual number           None
#   jvp of a Function     NotImplementedError
#   grad                  RuntimeError: must override the setup_context staticmethod
. "$(dirname "$0")/kit.sh"
install_torch
cat >see.py <<'END'
import torch
from torch.autograd import forward_ad

assert torch.__version__.split("+")[0] == "2.15.0", torch.__version__


def save(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])


def backward(ctx, dout):
    return 2 * ctx.saved_tensors[0] * dout


@torch.library.custom_op("demo::square", mutates_args=())
def square(x: torch.Tensor) -> torch.Tensor:
    return x * x


square.register_autograd(backward, setup_context=save)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x * x

    setup_context = staticmethod(save)
    backward = staticmethod(backward)


x, one = torch.tensor(3.0), torch.tensor(1.0)
leaf = x.clone().requires_grad_()
square(leaf).backward()
print(f"backward              {leaf.grad.item()}")
print(f"jvp                   {torch.func.jvp(square, (x,), (one,))[1].item()}")
print(f"jacfwd                {torch.func.jacfwd(square)(x).item()}")
with forward_ad.dual_level():
    result = forward_ad.unpack_dual(square(forward_ad.make_dual(x, one)))
    print(f"dual number           {result.tangent}")
try:
    torch.func.jvp(Square.apply, (x,), (one,))
except NotImplementedError as error:
    print(f"jvp of a Function     {type(error).__name__}")
try:
    torch.func.grad(square)(x)
except RuntimeError as error:
    asked = "must override the setup_context staticmethod"
    said = asked if asked in str(error) else error
    print(f"grad                  {type(error).__name__}: {said}")
END
as_seen "$("$python" -W ignore see.py)"
