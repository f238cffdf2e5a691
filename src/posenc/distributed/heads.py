"""Tensor parallelism of encodings: each rank has the encodings of its heads, with DTensors as parameters.

    parallelize_module(block, mesh, {"q": ColwiseParallel(), …, "encodings.*": HeadParallel()})

The encoding becomes `Encoding.heads` of the rank in place. What its parameters hold of each head is sharded along the
heads, the rest is replicated, and gradients of the latter are summed over the mesh, as is the gradient of the layer's
input x: results and gradients equal one process. As the parameters are DTensors, ``fully_shard`` on a second axis of
the mesh and ``clip_grad_norm_`` treat them as those of linear layers.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle
from torch.distributed.tensor.placement_types import Placement

from posenc.encoding import EmbeddingEncoding, Encoding, ScoreEncoding
from posenc.factory_kwargs import assign
from posenc.head_shares import HeadAxis, HeadShare, encodings_inside


class HeadParallel(ParallelStyle):
    """How `torch.distributed.tensor.parallel.parallelize_module` treats an encoding: each rank has some of its heads.

    Apply it before ``fully_shard``. A module that several layers share is treated once. ``reset_parameters`` draws the
    whole encoding on the first rank and shares it out, so that models made on the meta device begin as one process
    does. Modules outside of posenc that read parameters of the encoding see this rank's part.

    Raises:
        ValueError: where heads are not a multiple of the mesh's size, for a mesh of several axes, for encodings whose
            heads interact, and for embeddings, which have no heads.

    >>> import torch.distributed as dist
    >>> from torch.distributed.device_mesh import init_device_mesh
    >>> from torch.distributed.tensor.parallel import parallelize_module
    >>> from posenc import T5Bias
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> bias = parallelize_module(T5Bias(8), init_device_mesh("cpu", (1,)), HeadParallel())
    >>> bias.state_dict()["weight"].placements
    (Shard(dim=1),)
    >>> dist.destroy_process_group()
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        if not isinstance(module, Encoding):
            raise ValueError(f"HeadParallel is for encodings of posenc, got {type(module).__name__}")
        if isinstance(module, EmbeddingEncoding):
            raise ValueError(f"{type(module).__name__} acts on token embeddings and has no heads: leave it out")
        if device_mesh.ndim != 1:
            raise ValueError(f"the mesh must have one axis, got {device_mesh.ndim}: take mesh['tp']")
        if not isinstance(module, _OfRank):
            _share_out(module, device_mesh)
        return module


class _OfRank:
    """What the classes of parallelized encodings, made at run time, have in common."""

    _whole: tuple[Encoding]  # on the meta device; a tuple registers nothing


def _share_out(encoding: Encoding, mesh: DeviceMesh) -> None:
    """Reduce an encoding to the heads of the rank."""
    share = _share_of_rank(encoding, mesh)
    axes = dict(_named_axes(encoding, ""))
    num_kv_heads = getattr(encoding, "num_kv_heads", None)
    full = copy.deepcopy(encoding).to("meta")
    values = {name: parameter.detach() for name, parameter in encoding.named_parameters()}
    trained = {name: parameter.requires_grad for name, parameter in encoding.named_parameters()}
    encoding._keep_heads(share)
    readers: dict[nn.Module, dict[str, tuple[HeadAxis, HeadShare, int | None] | None]] = {}
    for name, value in values.items():
        where = axes.get(name)
        placement = _placement(value, where, num_kv_heads, mesh)
        owner, _, leaf = name.rpartition(".")
        module = encoding.get_submodule(owner)
        shared = nn.Parameter(distribute_tensor(value, mesh, [placement]), requires_grad=trained[name])
        module.register_parameter(leaf, shared)
        cut = where is not None and isinstance(placement, Replicate)
        readers.setdefault(module, {})[leaf] = (where, share, num_kv_heads) if cut and where is not None else None
    readers.setdefault(encoding, {})
    for module, cuts in readers.items():
        module.__class__ = _class_of_rank(type(module), cuts, mesh, root=module is encoding)
    vars(encoding)["_whole"] = (full,)


def _share_of_rank(encoding: Encoding, mesh: DeviceMesh) -> HeadShare:
    """The heads of this rank; where only key heads are known, each counts as a query head."""
    heads = getattr(encoding, "num_heads", None)
    heads = getattr(encoding, "num_kv_heads", None) if heads is None else heads
    if heads is None:
        return HeadShare(0, 1, None)
    if heads % mesh.size():
        raise ValueError(
            f"heads of {type(encoding).__name__} must be a multiple of the mesh's size {mesh.size()}, got {heads}"
        )
    each, rank = heads // mesh.size(), mesh.get_local_rank()
    return HeadShare.checked(encoding, rank * each, (rank + 1) * each, heads)


def _named_axes(encoding: Encoding, prefix: str) -> list[tuple[str, HeadAxis]]:
    """`Encoding.head_axes` of an encoding and of those inside it."""
    axes = [(prefix + name, where) for name, where in encoding.head_axes().items()]
    names = {module: name for name, module in encoding.named_modules()}
    for inner in encodings_inside(encoding):
        if isinstance(inner, Encoding):
            axes += _named_axes(inner, f"{prefix}{names[inner]}.")
    return axes


def _placement(value: Tensor, where: HeadAxis | None, num_kv_heads: int | None, mesh: DeviceMesh) -> Placement:
    """How a parameter lies on the mesh: sharded where the rank's heads are one run of an axis, else whole."""
    if where is None or where.repeats > 1:
        return Replicate()
    if where.of_keys and (num_kv_heads is None or num_kv_heads % mesh.size()):  # a key head on several ranks
        return Replicate()
    return Shard(where.axis)


def _class_of_rank(
    cls: type[nn.Module],
    cuts: dict[str, tuple[HeadAxis, HeadShare, int | None] | None],
    mesh: DeviceMesh,
    *,
    root: bool,
) -> type[nn.Module]:
    """A subclass that reads its parameters as plain tensors of this rank's heads.

    Properties stand before `nn.Module.__getattr__`, so that every method of the encoding, its structures included,
    reads the local part; optimizers, FSDP and state dicts go by ``_parameters`` and find the DTensor.
    """
    members: dict[str, Any] = {name: _reader(name, cut, mesh) for name, cut in cuts.items()}
    if root and issubclass(cls, ScoreEncoding):

        def token_state(self: Any, x: Tensor) -> Tensor | None:
            state: Tensor | None = cls.token_state(self, summed_backward(x, mesh))
            return state

        members["token_state"] = token_state
    if root:
        members["reset_parameters"] = _reset_parameters
    bases = (cls, _OfRank) if root else (cls,)
    return type(cls.__name__, bases, {"__module__": cls.__module__, "__doc__": cls.__doc__, **members})


def _reader(name: str, cut: tuple[HeadAxis, HeadShare, int | None] | None, mesh: DeviceMesh) -> property:
    """The property that stands for a parameter."""

    def read(self: nn.Module) -> Tensor | None:
        parameter = self._parameters[name]
        if not isinstance(parameter, DTensor) or parameter.device_mesh.ndim != 1:  # FSDP has it in parts just now
            return parameter
        local = parameter.to_local()
        if isinstance(parameter.placements[0], Replicate):
            local = summed_backward(local, mesh)
        if cut is None:
            return local
        where, share, num_kv_heads = cut
        return share.of(local, where, num_kv_heads)

    return property(read)


def summed_backward(x: Tensor, mesh: DeviceMesh) -> Tensor:
    """The same tensor, whose gradient is summed over the ranks: each of them adds the part of its heads."""
    if isinstance(x, DTensor):
        return x.to_local(grad_placements=[Partial()])
    if not x.requires_grad:
        return x
    return DTensor.from_local(x, mesh, [Replicate()], run_check=False).to_local(grad_placements=[Partial()])


def _reset_parameters(self: Encoding) -> None:
    """Draw the whole encoding anew, and keep this rank's part of what the first rank drew."""
    (meta,) = vars(self)["_whole"]
    parameters = dict(self.named_parameters())
    device = next((p.device for p in parameters.values()), torch.device("cpu"))
    full = copy.deepcopy(meta).to_empty(device=device)
    for module in full.modules():
        if module is full or isinstance(module, Encoding):
            reset = getattr(module, "reset_parameters", None)
            if reset is not None:
                reset()
    for name, value in full.named_parameters():
        assign(parameters[name], value.detach())
