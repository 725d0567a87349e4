"""MPI messages between two ranks: one way, and there and back, of buffers on a device or in host memory.

mpi4py is imported by whoever makes the communicator, never here. A message is bytes, whatever the tensor's type, since
MPI knows neither fp16 nor bf16. MPI knows no streams either, so each call first waits for the device.
"""

from typing import Any

import torch

from .messages import Message

_TAG = 7


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view of a tensor as bytes: [numel · element size], uint8, which MPI reads by DLPack.

    Raises:
        ValueError: the tensor is not contiguous, so its bytes are no single message.
    """
    if not tensor.is_contiguous():
        raise ValueError(
            f"the tensor to send has the shape {tuple(tensor.shape)} and the strides {tensor.stride()}; expected a "
            "contiguous tensor; make one with .contiguous()"
        )
    return tensor.view(-1).view(torch.uint8)


def settle(tensor: torch.Tensor) -> None:
    """Wait for the device that a tensor is on."""
    if tensor.device.type == "cuda":
        torch.cuda.synchronize(tensor.device)


def send(comm: Any, tensor: torch.Tensor, to: int) -> None:
    """Send a contiguous tensor's bytes, once its device has written them."""
    settle(tensor)
    comm.Send(as_bytes(tensor), dest=to, tag=_TAG)


def receive(comm: Any, tensor: torch.Tensor, sender: int) -> None:
    """Receive a contiguous tensor's bytes, once its device is done with what was in it."""
    settle(tensor)
    comm.Recv(as_bytes(tensor), source=sender, tag=_TAG)


def exchange(comm: Any, rank: int, message: Message) -> None:
    """Send a message from rank 0 to rank 1, and back if it returns, in twice the time."""
    if rank == 0:
        send(comm, message.outgoing, to=1)
        if message.incoming is not None:
            receive(comm, message.incoming, sender=1)
    else:
        assert message.incoming is not None
        receive(comm, message.incoming, sender=0)
        if message.returns:
            send(comm, message.outgoing, to=0)


def exchange_staged(comm: Any, rank: int, message: Message, host: torch.Tensor) -> None:
    """Exchange a message through the host's memory: device to host, message, host to device.

    Args:
        comm: of two ranks.
        rank: this rank's number.
        message: its buffers on a device.
        host: host memory of the same size, from `staging`.
    """
    if rank == 0:
        _send_staged(comm, message.outgoing, host, to=1)
        if message.incoming is not None:
            _receive_staged(comm, message.incoming, host, sender=1)
    else:
        assert message.incoming is not None
        _receive_staged(comm, message.incoming, host, sender=0)
        if message.returns:
            _send_staged(comm, message.outgoing, host, to=0)


def _send_staged(comm: Any, tensor: torch.Tensor, host: torch.Tensor, to: int) -> None:
    """Copy a tensor to the host, and send it from there."""
    host.copy_(tensor)
    send(comm, host, to)


def _receive_staged(comm: Any, tensor: torch.Tensor, host: torch.Tensor, sender: int) -> None:
    """Receive into the host's memory, copy it to the tensor, and wait for the copy."""
    receive(comm, host, sender)
    tensor.copy_(host)
    settle(tensor)


def staging(size_bytes: int, device: torch.device) -> torch.Tensor:
    """Return host memory for staged messages: [size_bytes], uint8, page-locked for a GPU."""
    return torch.empty(size_bytes, dtype=torch.uint8, pin_memory=device.type == "cuda")
