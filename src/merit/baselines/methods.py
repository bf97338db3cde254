"""Every method by name. A method is a function from a world and a seed to an answer (merit.baselines.world).

What needs torch or scikit-learn is imported when it is called, so that listing the methods takes no time.
"""

from __future__ import annotations

from merit.baselines.als import als
from merit.baselines.boosted import boosted
from merit.baselines.frequency import history_frequency, popularity, trivial
from merit.baselines.linear import linear
from merit.baselines.world import Answer, Method, World
from merit.baselines.xmc import xmc


def _sasrec(world: World, seed: int) -> Answer:
    from merit.baselines.sasrec import sasrec

    return sasrec(world, seed)


def _dexml_ds(world: World, seed: int) -> Answer:
    from merit.baselines.dexml import dexml_ds

    return dexml_ds(world, seed)


def _dexml_stk(world: World, seed: int) -> Answer:
    from merit.baselines.dexml import dexml_stk

    return dexml_stk(world, seed)


def _groov(world: World, seed: int) -> Answer:
    from merit.baselines.groov import groov

    return groov(world, seed)


def _groov_open(world: World, seed: int) -> Answer:
    from merit.baselines.groov import groov_open

    return groov_open(world, seed)


def _xlgen_mcg(world: World, seed: int) -> Answer:
    from merit.baselines.xlgen import xlgen_mcg

    return xlgen_mcg(world, seed)


def _xlgen_bcl(world: World, seed: int) -> Answer:
    from merit.baselines.xlgen import xlgen_bcl

    return xlgen_bcl(world, seed)


def _patchrec(world: World, seed: int) -> Answer:
    from merit.baselines.patchrec import patchrec

    return patchrec(world, seed)


def _patchrec_sessions(world: World, seed: int) -> Answer:
    from merit.baselines.patchrec import patchrec_sessions

    return patchrec_sessions(world, seed)


def _ocd(world: World, seed: int) -> Answer:
    from merit.baselines.ocd import ocd

    return ocd(world, seed)


METHODS: dict[str, Method] = {
    "trivial": trivial,
    "popularity": popularity,
    "history frequency": history_frequency,
    "linear": linear,
    "ALS": als,
    "boosted trees": boosted,
    "label tree": xmc,
    "SASRec": _sasrec,
    "DEXML-DS": _dexml_ds,
    "DEXML-STk": _dexml_stk,
    "GROOV": _groov,
    "GROOV, open vocabulary": _groov_open,
    "XLGen-MCG": _xlgen_mcg,
    "XLGen-BCL": _xlgen_bcl,
    "PatchRec": _patchrec,
    "PatchRec, sessions": _patchrec_sessions,
    "OCD": _ocd,
}
