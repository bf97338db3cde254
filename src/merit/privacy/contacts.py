"""Item texts that seem to hold an e-mail address or a phone number: reported by row, never by their content.

A shop's titles are shown to people and learned by models, and second-hand shops let anybody write them. Patterns are
searched column by column; a number counts as a phone number only if it is written as one (a country code, an area code,
or a word such as "call" in front), for titles are full of sizes, part numbers and bar codes.
"""

from __future__ import annotations

import polars as pl

from merit.core.config import Frozen

SHOWN = 5  # rows named of each kind
_GAP = r"[ \x{A0}./()-]"
_AT, _DOT = r"(?:@|\s?[(\[]at[)\]]\s?)", r"(?:\.|\s?[(\[]dot[)\]]\s?)"
_PHONES = (
    rf"(?:^|[^\w+])\+[1-9](?:{_GAP}{{0,2}}[0-9]){{7,14}}(?:\D|$)",  # +49 30 1234567
    rf"(?:^|[^\w.,])00[1-9][0-9]{{0,2}}(?:{_GAP}{{1,2}}[0-9]{{2,8}}){{2,4}}(?:\D|$)",  # 0049 30 1234567
    # (212) 555-0188
    r"(?:^|[^\w.-])(?:1[ .-])?(?:\([2-9][0-9]{2}\) ?|[2-9][0-9]{2}[.-])[2-9][0-9]{2}[ .-][0-9]{4}(?:[^\w-]|$)",
    r"(?:^|[^\w.,/-])0[1-9][0-9]{1,3}[ /-]{1,3}[0-9]{3,4}[ -]?[0-9]{3,4}(?:[^\w-]|$)",  # 07700 900123
    r"(?:^|[^\w.,/-])0[1-9](?:[ .-][0-9]{2}){4}(?:[^\w-]|$)",  # 06 12 34 56 78
    r"(?i)\b(?:tele?|telephone|phone|mobile|cell|call|fax|whatsapp|ring|text|sms)\b[^\p{L}0-9]{0,4}"
    rf"(?:(?:us|me|now|at|on|no|number|is)\b[^\p{{L}}0-9+]{{0,3}}){{0,3}}\+?[0-9](?:{_GAP}{{0,2}}[0-9]){{6,14}}(?:\D|$)",
)
KINDS = {
    "e-mail addresses": rf"(?i)[\w.+-]+{_AT}[\w-]+(?:\.[\w-]+)*{_DOT}[a-z]{{2,}}",
    "phone numbers": "|".join(f"(?:{pattern})" for pattern in _PHONES),
}


class Place(Frozen):
    """Where an item stands in its file, counted from 1."""

    file: str
    row: int


class Contacts(Frozen):
    """Items whose title or tags seem to hold one kind of contact."""

    kind: str
    items: int
    first: tuple[Place, ...]


def find(items: pl.DataFrame) -> tuple[Contacts, ...]:
    """Contacts by kind in `items` (title, tags, file, row). The matching texts are not kept."""
    tags = items["tags"].list.join("\n")
    contacts = []
    for kind, pattern in KINDS.items():
        hits = items.filter(items["title"].str.contains(pattern) | tags.str.contains(pattern))
        if len(hits):
            first = hits.sort("file", "row").select("file", "row").head(SHOWN)
            places = tuple(Place(file=file, row=row) for file, row in first.iter_rows())
            contacts.append(Contacts(kind=kind, items=len(hits), first=places))
    return tuple(contacts)


def warning(contacts: Contacts) -> str:
    """The warning about one kind of contact. Of the rows, those in the first file are named."""
    file = contacts.first[0].file
    rows = ", ".join(str(place.row) for place in contacts.first if place.file == file)
    more = " and more" if contacts.items > len(contacts.first) else ""
    return (
        f"Titles or tags of {contacts.items:,} items seem to hold {contacts.kind}. Remove them: item texts are shown "
        f"to people and learned by models. First: {file}, row {rows}{more}."
    )
