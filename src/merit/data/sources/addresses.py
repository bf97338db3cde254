"""Tables at addresses: in an object store or behind HTTP, copied as they are by whatever fsspec has for the scheme.

Keys and endpoints are settings of fsspec and of the store's library, in their files or in the environment.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Annotated, Any
from urllib.parse import urlsplit

import fsspec
from pydantic import AfterValidator

from merit.core import console
from merit.core.errors import DataError, MeritError, MissingDependency
from merit.data.sources import files

PACKAGES = dict.fromkeys(("s3", "s3a", "http", "https"), "'merit-interests[s3]'")
PACKAGES |= {"gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs", "abfss": "adlfs"}
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
Copied = dict[str, list[int | str]]  # name in the copy → bytes, and the store's mark of this version


def _place(given: str | Path) -> str | Path:
    """An address stays text: a path would lose one of its slashes. Keys in one would get into every manifest."""
    if not isinstance(given, str) or "://" not in given:
        return Path(given)
    parts = urlsplit(given)
    if "@" in parts.netloc or parts.query:
        raise ValueError("an address with a key or a query in it is not kept; give keys to the store's library instead")
    return given


TablePlace = Annotated[Path | str, AfterValidator(_place)]


def is_address(place: Path | str) -> bool:
    """Whether a table is not on this disk."""
    return isinstance(place, str)


def copy(address: str, setting: str, folder: Path, held: Mapping[str, list[int | str]], before: Path | None) -> Copied:
    """Copy the table at an address into a folder. Files whose mark is the one in `held` are linked from `before`."""
    with _refusals(address, setting):
        system, root = fsspec.core.url_to_fs(address)
        system.invalidate_cache()
        found = dict(_listed(system, str(root)))
        if not found:
            raise DataError(f"{address} holds no data files. Needed: {files.SUFFIXES}. Name another with {setting}.")
        copied: Copied = {}
        for name, (path, info) in console.track(sorted(found.items()), f"copying {address}", total=len(found)):
            size, mark, target = int(info.get("size") or 0), _mark(info), folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if before and mark and held.get(name) == [size, mark]:
                os.link(before / name, target)
            else:
                system.get_file(path, str(target))
                _require_whole(address, name, target, size)
            copied[name] = [size, mark]
        return copied


def _listed(system: Any, root: str) -> Iterator[tuple[str, tuple[str, dict[str, Any]]]]:
    """Name in the copy → path in the store, and what the store says of it. Delta's log belongs to its table."""
    if root.startswith("http"):
        name = PurePosixPath(urlsplit(root).path).name
        if files.is_data(PurePosixPath(name)):
            yield name, (root, system.info(root))
        return
    for path, info in system.find(root, detail=True).items():
        inside = PurePosixPath(path).relative_to(root) if path != root else PurePosixPath(PurePosixPath(root).name)
        if files.is_data(inside) or ("_delta_log" in inside.parts and ".." not in inside.parts):
            yield str(inside), (path, info)


def _mark(info: Mapping[str, Any]) -> str:
    names = ("ETag", "etag", "md5Hash", "content_settings", "LastModified", "last_modified", "mtime")
    return next((str(info[name]) for name in names if info.get(name)), "")


def _require_whole(address: str, name: str, target: Path, size: object) -> None:
    if size and target.stat().st_size != size:
        raise DataError(f"{address}: {name} changed while it was copied. Run the same command again.")


@contextmanager
def _refusals(address: str, setting: str) -> Iterator[None]:
    """What a store refuses, as one sentence. Its libraries have exceptions of their own."""
    try:
        yield
    except MeritError:
        raise
    except ImportError:
        package = PACKAGES.get(urlsplit(address).scheme, "the package of fsspec for it")
        raise MissingDependency(f"{address} needs another package. Run: pip install {package}") from None
    except Exception as error:
        if isinstance(error, OSError) and error.errno in FULL:
            raise  # about the copy
        reason = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        raise DataError(
            f"{address} cannot be read: {reason}. Mend the address ({setting}), or give the store's library its keys. "
            "Nothing was left half-written."
        ) from None
