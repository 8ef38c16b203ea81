# SPDX-License-Identifier: BSD-3-Clause
"""cudnn_fp8.py — cuDNN's FP8 forward on PyTorch tensors, by NVIDIA's Python package for its graphs
(nvidia-cudnn-frontend)."""

import torch


class CudnnFp8:
    """Attention on E4M3 tensors of (batch, seqlen, heads, head_dim), with a scale for each tensor;
    O is of E4M3, too, the only type that cuDNN has for it on Hopper. Raises ImportError without the
    package, and what cuDNN raises where it declines."""

    SCALE_O = 64  # codes of values up to 7

    def __init__(self, q, k, v, scales, mask):
        import cudnn

        self.cudnn = cudnn
        self.handle = cudnn.create_handle()
        float32, e4m3 = cudnn.data_type.FLOAT, cudnn.data_type.FP8_E4M3
        graph = cudnn.pygraph(
            io_data_type=e4m3,
            intermediate_data_type=float32,
            compute_data_type=float32,
            handle=self.handle,
        )
        ones = {"dim": [1] * 4, "stride": [1] * 4, "data_type": float32}
        views = {name: x.transpose(1, 2) for name, x in zip("qkv", (q, k, v))}
        tensors = {
            name: graph.tensor(
                name=name, dim=list(x.shape), stride=list(x.stride()), data_type=e4m3
            )
            for name, x in views.items()
        }
        # P is at most 1: codes up to 448 for it.
        values = {f"descale_{name}": scale for name, scale in zip("qkv", scales)}
        values |= {"descale_s": 1 / 448, "scale_s": 448, "scale_o": self.SCALE_O}
        factors = {name: graph.tensor(name=name, **ones) for name in values}
        o, _, amax_s, amax_o = graph.sdpa_fp8(
            **tensors,
            **factors,
            generate_stats=False,
            attn_scale=q.shape[-1] ** -0.5,
            use_causal_mask=mask == "causal",
        )
        self.o = torch.empty(q.shape, dtype=torch.float8_e4m3fn, device=q.device)
        view = self.o.transpose(1, 2)
        o.set_output(True).set_dim(list(view.shape)).set_stride(list(view.stride()))
        o.set_data_type(e4m3)
        at = lambda value: torch.full((1, 1, 1, 1), float(value), device=q.device)
        self.pack = {tensors[name]: x for name, x in views.items()} | {o: view}
        self.pack |= {factors[name]: at(value) for name, value in values.items()}
        for amax in (amax_s, amax_o):
            if amax is not None:
                amax.set_output(True).set_dim([1] * 4).set_stride([1] * 4).set_data_type(float32)
                self.pack[amax] = at(0)
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A])
        graph.check_support()
        graph.build_plans()
        self.graph = graph
        size = max(graph.get_workspace_size(), 1)
        self.workspace = torch.empty(size, dtype=torch.uint8, device=q.device)

    def result(self):
        return self.o.float() / self.SCALE_O

    def __call__(self):
        stream = torch.cuda.current_stream().cuda_stream
        self.cudnn.set_stream(handle=self.handle, stream=stream)
        self.graph.execute(self.pack, self.workspace, handle=self.handle)
