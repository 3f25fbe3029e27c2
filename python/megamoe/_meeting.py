"""How the processes of a torch process group become a group of the library.

The library's ranks meet at a path that all can reach. Rank 0 makes a folder for it and tells the others through the
process group, which is used here and never again. All ranks return, or all raise.
"""

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import torch.distributed as dist


def host():
    """Which host this is, as far as a process can tell: the kernel's number of its start."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def gathered(process_group, mine):
    """What each rank has, in rank order."""
    all_ranks = [None] * dist.get_world_size(process_group)
    dist.all_gather_object(all_ranks, mine, group=process_group)
    return all_ranks


def refuse_several_hosts(process_group, folder):
    """Raises on every rank when some rank is on another host than rank 0, or can't see its folder."""
    seen = gathered(process_group, (host(), os.path.isdir(folder)))
    for rank, (where, sees) in enumerate(seen):
        if where != seen[0][0]:
            raise RuntimeError(f"rank {rank} is on another host than rank 0, expected all ranks of the process group "
                               "on one host")
        if not sees:
            raise RuntimeError(f"rank {rank} can't see the folder {folder} of rank 0, expected ranks that share a "
                               "file system")


@contextmanager
def meeting_path(process_group):
    """A path at which all ranks of the group can meet while the context lasts."""
    folder = [tempfile.mkdtemp(prefix="megamoe-") if dist.get_rank(process_group) == 0 else None]
    try:
        dist.broadcast_object_list(folder, src=dist.get_global_rank(process_group, 0), group=process_group)
        refuse_several_hosts(process_group, folder[0])
        yield os.path.join(folder[0], "meeting")
    finally:
        if dist.get_rank(process_group) == 0:
            shutil.rmtree(folder[0], ignore_errors=True)
