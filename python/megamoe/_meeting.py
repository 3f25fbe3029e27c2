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


def folder_of_rank_0(process_group):
    """A new folder that rank 0 makes, and its name on every rank. Raises on every rank when it can't be made."""
    told = [None, None]
    if dist.get_rank(process_group) == 0:
        try:
            told[0] = tempfile.mkdtemp(prefix="megamoe-")
        except OSError as error:
            told[1] = str(error)
    dist.broadcast_object_list(told, src=dist.get_global_rank(process_group, 0), group=process_group)
    folder, error = told
    if error is not None:
        raise RuntimeError(f"rank 0 can't make a folder to meet in: {error}")
    return folder


@contextmanager
def meeting_path(process_group):
    """A path at which all ranks of the group can meet while the context lasts."""
    folder = folder_of_rank_0(process_group)
    try:
        refuse_several_hosts(process_group, folder)
        yield os.path.join(folder, "meeting")
    finally:
        if dist.get_rank(process_group) == 0:
            shutil.rmtree(folder, ignore_errors=True)
