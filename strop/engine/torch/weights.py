"""Weights in a sealed memfd: written once by the owner, mapped read-only by every worker."""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import warnings
from dataclasses import dataclass

import torch
from torch import nn

__all__ = ["Sealed", "attach", "digest", "seal"]

_ALIGN = 4096
_CHUNK = 64 << 20


@dataclass(frozen=True, slots=True)
class Sealed:
    """Where each distinct tensor lies in the memfd."""

    fd: int
    size: int
    offsets: dict[int, int]
    """`id` of the tensor object to its byte offset; tied weights share one object."""


def seal(module: nn.Module) -> Sealed:
    """Copy every parameter and buffer into a memfd and seal it against all writing.

    Once F_SEAL_WRITE holds, nobody, not even root through /proc, can change a byte.
    """
    tensors = _tensors(module)
    offsets, size = {}, 0
    for tensor in tensors:
        offsets[id(tensor)] = size
        size += -(-tensor.numel() * tensor.element_size() // _ALIGN) * _ALIGN
    fd = os.memfd_create("strop-weights", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, max(size, _ALIGN))
    for tensor in tensors:
        _write(fd, offsets[id(tensor)], _bytes(tensor))
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return Sealed(fd, max(size, _ALIGN), offsets)


def attach(module: nn.Module, sealed: Sealed, *, private: bool = False) -> None:
    """Point every parameter and buffer at the memfd; a write to one is then a SIGSEGV.

    With `private` the mapping is copy-on-write: a write changes this process's copy alone.
    """
    if private:
        mapping = mmap.mmap(sealed.fd, sealed.size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    else:
        mapping = mmap.mmap(sealed.fd, sealed.size, mmap.MAP_SHARED, mmap.PROT_READ)
    with warnings.catch_warnings():
        # The mapping is read-only on purpose; torch warns that it cannot know.
        warnings.simplefilter("ignore", UserWarning)
        for tensor in _tensors(module):
            if tensor.numel():
                view = torch.frombuffer(
                    mapping,
                    dtype=tensor.dtype,
                    count=tensor.numel(),
                    offset=sealed.offsets[id(tensor)],
                )
                tensor.data = view.view(tensor.shape)


def digest(module: nn.Module) -> str:
    """SHA-256 over names, shapes, dtypes and bytes of all parameters and buffers."""
    state = hashlib.sha256()
    for name, tensor in _named(module):
        state.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        state.update(_bytes(tensor))
    return state.hexdigest()


def _named(module: nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [*module.named_parameters(), *module.named_buffers()]


def _tensors(module: nn.Module) -> list[torch.Tensor]:
    return list({id(tensor): tensor for _, tensor in _named(module)}.values())


def _bytes(tensor: torch.Tensor) -> memoryview:
    flat = tensor.detach().contiguous().reshape(-1)
    return memoryview(flat.view(torch.uint8).numpy().data)


def _write(fd: int, offset: int, data: memoryview) -> None:
    for start in range(0, len(data), _CHUNK):
        chunk = data[start : start + _CHUNK]
        while chunk:
            written = os.pwrite(fd, chunk, offset + start)
            chunk, start = chunk[written:], start + written
