"""What was erased, where, and what is left: for whoever asked, without a word about who it was."""

from __future__ import annotations

from merit import __version__
from merit.core.config import Frozen


class FileChange(Frozen):
    """A file that was written again; `rows` are those of all files that were written together with it."""

    name: str
    rows: int
    before: str
    """sha256 of the file."""
    after: str


class Record(Frozen):
    """An artifact that held the users."""

    path: str
    """From the folder of the certificate's workspace."""
    kind: str
    hash: str
    """As children name it; the files' hashes from before make it."""
    rows: int
    parts: dict[str, int] = {}
    """Users by split (of examples) or by arm (of audiences and assignments)."""
    files: tuple[FileChange, ...]


class Sent(Frozen):
    """An export that held the users, wherever it is now."""

    at: str
    audience: str
    """The hash of the audience."""
    arm: str
    form: str
    rows: int
    sha256: str
    users: int | None
    """Of those erased; None where the audience is gone and nothing tells."""


class Trained(Frozen):
    """Weights that were fitted when the users were there. They are not changed."""

    path: str
    kind: str
    hash: str
    fitted: int
    """Users among those the weights were trained on."""
    calibrated: int
    """Users among those its probabilities were calibrated on."""


class SearchFinding(Frozen):
    """How often something of the users is in a file; `how` tells an id from a hash, and never whose."""

    file: str
    how: str
    times: int


class Search(Frozen):
    """What looking through every file after the purge found, and how much was looked through."""

    files: int
    bytes: int
    held: tuple[SearchFinding, ...] = ()
    """Where an id or a hash of one still is."""
    alike: tuple[SearchFinding, ...] = ()
    """Where bytes like a short id occur that may mean something else."""


class Certificate(Frozen):
    """Counts, hashes and places of one erasure; the ids of the users are not in it."""

    number: str
    """Drawn by lot."""
    began: str
    ended: str
    reason: str
    version: str = __version__
    asked: int
    found: int
    artifacts: tuple[Record, ...]
    exports: tuple[Sent, ...]
    models: tuple[Trained, ...]
    unlinked: tuple[str, ...]
    """Artifacts with rows of which nothing tells whose they are: their examples are gone."""
    search: Search
    remains: tuple[str, ...]

    @property
    def clean(self) -> bool:
        """Whether nothing is held any more; bytes that are only like an id do not count."""
        return not self.search.held


REMAINS = (
    "Source tables outside these folders. A run that reads them again brings the users back: erase them there first.",
    "Weights: those listed under models were fitted when the users were there. Training them again without the users, "
    "by `merit run` on the mended tables, is the remedy.",
    "Figures over many users (counts of labels, results, reports, figures of audiences) as they were computed.",
    "Backups, snapshots and copies outside these folders; files that were sent, as listed under exports.",
    "Blocks of the disk that the file system has freed and not yet used again.",
)


def text(told: Certificate) -> str:
    """The certificate for people."""
    users = f"{told.found:,} user{'s' * (told.found != 1)}"
    lines = [
        f"Erasure {told.number}",
        f"began {told.began}, ended {told.ended}, merit {told.version}",
        f"reason: {told.reason or 'none given'}",
        f"{users} of {told.asked:,} asked for were found and erased.",
        "",
        f"{sum(each.rows for each in told.artifacts):,} rows in {len(told.artifacts):,} artifacts:",
        *(f"  {each.path} ({each.kind}): {each.rows:,} rows in {len(each.files)} files" for each in told.artifacts),
        "",
        f"Exports that held them: {len(told.exports)}",
        *(f"  {each.at}: {_users(each.users)} of {each.rows:,} rows, sha256 {each.sha256}" for each in told.exports),
        "",
        f"Model versions that saw them: {len(told.models)}",
        *(
            f"  {each.path} ({each.kind} {each.hash[:16]}): fitted on {each.fitted:,}, calibrated on "
            f"{each.calibrated:,}"
            for each in told.models
        ),
        *(["", "Nothing tells whose the rows are in:", *(f"  {each}" for each in told.unlinked)] * bool(told.unlinked)),
        "",
        f"Search of {told.search.files:,} files, {told.search.bytes:,} bytes, for ids and their hashes: "
        + ("nothing was found." if told.clean else "STILL FOUND in"),
        *(f"  {each.file}: {each.how}, {each.times:,} times" for each in told.search.held),
        *(["Bytes like a short id, which may mean something else, are in"] * bool(told.search.alike)),
        *(f"  {each.file}: {each.how}, {each.times:,} times" for each in told.search.alike),
        "",
        "What remains:",
        *(f"  - {each}" for each in told.remains),
    ]
    return "\n".join(lines) + "\n"


def _users(number: int | None) -> str:
    return "an unknown number" if number is None else f"{number:,}"
