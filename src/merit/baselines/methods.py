"""Every method by its name in tables, and what it reads. A method is a function from a world and seed to an answer."""

from __future__ import annotations

from importlib import import_module

from merit.baselines.world import RECENT, REVERSED, TITLE_WORDS, Method

METHODS = {
    "trivial": "merit.baselines.frequency:trivial",
    "popularity": "merit.baselines.frequency:popularity",
    "history frequency": "merit.baselines.frequency:history_frequency_and_popularity",
    "linear": "merit.baselines.linear:linear",
    "ALS": "merit.baselines.als:als",
    "boosted trees": "merit.baselines.boosted:boosted",
    "label tree": "merit.baselines.label_tree:label_tree",
    "SASRec": "merit.baselines.sasrec:sasrec",
    "DEXML-DS": "merit.baselines.dexml:dexml_ds",
    "DEXML-STk": "merit.baselines.dexml:dexml_stk",
    "GROOV": "merit.baselines.groov:groov",
    "GROOV, open vocabulary": "merit.baselines.groov:groov_open",
    "XLGen-MCG": "merit.baselines.xlgen:xlgen_mcg",
    "XLGen-BCL": "merit.baselines.xlgen:xlgen_bcl",
    "PatchRec": "merit.baselines.patchrec:patchrec",
    "PatchRec, sessions": "merit.baselines.patchrec:patchrec_sessions",
    "OCD": "merit.baselines.ocd:ocd",
}
"""Name → `module:function`. Listing the methods imports none of them."""

COUNTS, SEQUENCE, PROMPT, TEXTS = "label counts", "sequence of items", "prompt", "label texts"
OFFERED = (TITLE_WORDS, RECENT, REVERSED)
READS: dict[str, tuple[str, ...]] = {
    "trivial": ("purchase counts", "popularity"),
    "popularity": ("popularity",),
    "history frequency": (COUNTS, "popularity"),
    "linear": (COUNTS, *OFFERED),
    "ALS": (COUNTS, *OFFERED),
    "boosted trees": (COUNTS, "purchase counts"),
    "label tree": (COUNTS, TEXTS, *OFFERED),
    "SASRec": (SEQUENCE, *OFFERED),
    "DEXML-DS": (PROMPT, TEXTS),
    "DEXML-STk": (PROMPT, TEXTS),
    "GROOV": (PROMPT,),
    "GROOV, open vocabulary": (PROMPT,),
    "XLGen-MCG": (PROMPT, COUNTS, "popularity"),
    "XLGen-BCL": (PROMPT, COUNTS, "popularity"),
    "PatchRec": (SEQUENCE, "item titles"),
    "PatchRec, sessions": (SEQUENCE, "item titles"),
    "OCD": (PROMPT,),
}
"""Name → what it reads of a user. What is in OFFERED and not named here is taken out of the method's world."""


def method(name: str) -> Method:
    """The method of that name. Its module, and torch or scikit-learn with it, is imported here."""
    module, function = METHODS[name].split(":")
    resolved: Method = getattr(import_module(module), function)
    return resolved
