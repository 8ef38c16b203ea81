# SPDX-License-Identifier: BSD-3-Clause
"""process_test.py — threads, workers of a DataLoader, PyTorch's number of threads."""

import threading

import fa3.torch
import torch
from torch_kit import qkv


class Items(torch.utils.data.Dataset):
    """Computes attention in the worker."""

    def __len__(self):
        return 4

    def __getitem__(self, i):
        torch.manual_seed(i)
        return fa3.torch.attention(*qkv(grad=False, rows=200, keys=200))


def test_workers_of_a_data_loader():
    want = [Items()[i] for i in range(4)]  # the parent has contexts and threads
    loader = torch.utils.data.DataLoader(Items(), num_workers=2, batch_size=None, timeout=60)
    assert all(torch.equal(a, b) for a, b in zip(loader, want, strict=True))


def test_threads():
    inputs = qkv(rows=100, keys=100)
    want = torch.autograd.grad(fa3.torch.attention(*inputs).sum(), inputs)
    wrong = []

    def work():
        for _ in range(10):
            got = torch.autograd.grad(fa3.torch.attention(*inputs).sum(), inputs)
            if not all(torch.equal(a, b) for a, b in zip(got, want, strict=True)):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_number_of_threads():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        context = fa3.torch.run.context(torch.device("cpu"))
        assert context.info()["num_threads"] == 1
        assert fa3.torch.run.context(torch.device("cpu")) is context
    finally:
        torch.set_num_threads(before)
