"""Errors a person can act on: what is wrong, where, and the command that mends it.

Everything raised on purpose is a MeritError. The command line prints its message without a traceback and ends with
its exit code; any other exception is a bug of ours and keeps its traceback.
"""

from __future__ import annotations


class MeritError(Exception):
    """Base of every error meant for a person."""

    exit_code = 1


class ConfigError(MeritError):
    """A configuration file or an override does not say something we understand."""

    exit_code = 2


class DataError(MeritError):
    """An input table cannot be used as it is."""

    exit_code = 3


class MissingArtifact(MeritError):
    """A folder is not a finished artifact of the kind that is needed."""

    exit_code = 4


class DamagedArtifact(MeritError):
    """A finished artifact no longer holds the bytes its manifest names."""

    exit_code = 5


class MissingDependency(MeritError):
    """An optional package, its data or its weights are not installed."""

    exit_code = 6


class StorageError(MeritError):
    """The file system refused: disk full, no permission, file too large."""

    exit_code = 7


class PolicyError(MeritError):
    """The sensitive-interest policy forbids what was asked."""

    exit_code = 8


class TrainingError(MeritError):
    """Training cannot go on: a loss that is not a number, or too little memory."""

    exit_code = 9


class EngineError(MeritError):
    """Some shards of a job could not be done, or nobody is there to do them."""

    exit_code = 10


class DestinationError(MeritError):
    """A database, a bucket or a webhook that rows are sent to refused them, or could not be reached."""

    exit_code = 11
