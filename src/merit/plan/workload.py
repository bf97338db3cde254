"""What each stage of a run has to do, and what it leaves on disk: amounts, from settings and sizes alone."""

from __future__ import annotations

from merit.core.settings import RunConfig
from merit.generator import exposure
from merit.generator.decoding import DecodeConfig
from merit.generator.mining import MiningConfig
from merit.generator.model import CHECKED_BUDGET, CHECKED_USERS, ObjectiveConfig, sampling
from merit.labels.build import policy_text
from merit.objective.collate import OBJECTIVES
from merit.plan import costs
from merit.plan.shapes import Shape, propensity_parameters
from merit.plan.sizes import Sizes
from merit.plan.work import Decoding, Encoding, Fitting, Loading, Passing, Relating, Scoring, Tabulating, Training, Work

PASSES = 4  # over the interactions: who there is, parting, sorting into examples, and what was set aside
POLICY = 546  # phrases of the sensitive-interest policy, encoded beside the labels
REPORT = 2.0  # seconds of a page with charts
START = 3.0  # seconds until an encoder is loaded, and for clusters of a few thousand labels
RANKED = 2  # times all labels are scored for the test users: best of each user, best users of each
JUDGED = 0.003  # seconds for a test user under all methods of a results table, with 2,000 draws
LONGER = 2.0  # samples of a generator that has read mistakes are twice as long: union of 4 in docs/results-details.md
EVENT, ITEM, PERSON, LABEL = 4.0, 30.0, 600.0, 60.0  # bytes on disk of a row, texts and lists compressed
HAD = 2.2  # bytes of an event in a user's list
WORD, LOGGED = 60.0, 400.0  # of a token in tokenizer.json, and of a step in the training log
WHOLE = 2_000  # draws of the bootstrap that JUDGED was measured with


def work_of(config: RunConfig, amounts: Sizes) -> dict[str, list[Work]]:
    """What each stage has to do. The order is that of the run."""
    train, test = amounts.train, amounts.test
    asked = min(train, config.mining.of(config.stage_2.reads).examples or train)
    everybody = train + amounts.validation + test + amounts.users
    pairs = config.propensity.calibration_pairs
    negatives, fit, factors = config.propensity.negatives, config.propensity.fit, config.propensity.factors
    own = config.propensity.model.own
    met = round(amounts.golds.mean()) + negatives.mined + negatives.popular + negatives.random
    states = DecodeConfig(max_labels=config.states.labels, fixed_budget=True, batch_size=config.decode_batch)
    judged = test * JUDGED * config.evaluation.resamples / WHOLE
    return {
        "examples": [Passing(PASSES)],
        "labels": [Tabulating(START), Encoding(amounts.labels + POLICY)],
        "data-report": [Passing(1), Tabulating(REPORT)],
        "stage-1": [Loading(train), *_training("stage-1", config.stage_1, amounts)],
        "mined-1": [Loading(train), _sampling(config, config.stage_1, asked, amounts)],
        "stage-2": [Loading(train), *_training("stage-2", config.stage_2, amounts)],
        "predictions-1": [Loading(test), *_predictions(config, config.stage_1, amounts)],
        "predictions-2": [Loading(test), *_predictions(config, config.stage_2, amounts)],
        "mined-2": [Loading(train), _sampling(config, config.stage_2, asked, amounts)],
        "states": [Loading(everybody), _decoding(states, everybody, amounts)],
        "propensity": [
            Fitting(fit.epochs * -(-train // fit.batch_size), fit.batch_size, 1 + config.propensity.model.labels, met),
            Relating(factors.epochs * _related(config, amounts), min(factors.labels, amounts.labels), own),
            Scoring(sum(min(users * amounts.labels, pairs) for users in (amounts.validation, test))),
        ],
        "rankings": [Loading(0), Scoring(RANKED * test * amounts.labels), Tabulating(judged)],
        "results": [Tabulating(REPORT + judged)],
        "model": [Scoring(amounts.users + amounts.labels), Tabulating(1.0)],
    }


def disk(config: RunConfig, amounts: Sizes, shape: Shape) -> dict[str, float]:
    """Bytes that stay of each stage."""
    steps = max(config.stage_1.steps, config.stage_2.steps)
    generator = costs.SINGLE * shape.parameters + WORD * shape.vocabulary + LOGGED * steps
    vectors = costs.SINGLE * amounts.vector_width + LABEL
    everybody = amounts.train + amounts.validation + amounts.test + amounts.users
    state = 2 * config.states.labels * shape.width + PERSON  # float16, and what is known beside it
    scorer = costs.SINGLE * scorer_parameters(config, amounts, shape)
    said = 4.0 * config.predict.budget * amounts.test
    wide = config.propensity.model
    half = wide.hidden + wide.own
    rows = amounts.users * (wide.width + wide.own + half) + amounts.labels * (amounts.vector_width + wide.own + half)
    asked = min(amounts.train, config.mining.of(config.stage_2.reads).examples or amounts.train)
    mined = 2.5 * asked * config.mining.samples * amounts.golds.mean()
    return {
        "examples": EVENT * amounts.events + ITEM * amounts.items,
        "labels": vectors * amounts.labels + len(policy_text(config.labels).encode()),
        "data-report": 1e5,
        "stage-1": generator,
        "mined-1": mined,
        "stage-2": generator,
        "predictions-1": said,
        "predictions-2": said,
        "mined-2": LONGER * mined,
        "states": everybody * state + HAD * amounts.events,
        "propensity": scorer,
        "rankings": said,
        "results": 2.5e5,
        "model": generator
        + vectors * amounts.labels
        + scorer
        + costs.SINGLE * rows
        + ITEM * amounts.items
        + HAD * amounts.events,
    }


def _related(config: RunConfig, amounts: Sizes) -> int:
    """Examples that the product sees in an epoch: purchases with the year before and with the year after.

    About as many have the one as the other. A shop of few users gives more of each, as far as there are any.
    """
    asked, held_out = config.states, config.prepare.split
    if not config.propensity.model.own:
        return 0
    if not asked.purchases:
        return amounts.train
    trained_on = 1 - held_out.validation - held_out.test
    if asked.purchases * trained_on * amounts.users >= asked.enough:
        return 2 * amounts.train
    return 2 * max(amounts.train, min(asked.enough, round(trained_on * amounts.bought)))


def _training(stage: str, config: ObjectiveConfig, amounts: Sizes) -> list[Work]:
    """The steps, and the looks at validation users on the way."""
    gold = float(amounts.golds.mean())
    labels = gold + (config.mined_per_example if OBJECTIVES[config.objective].mined else 0)
    target = min(labels * (amounts.label_tokens + 1), config.max_target)
    rows = config.batch_size * config.accumulate
    steps = Training(stage, config.steps, rows, amounts.prompt + target - 1, target)
    looks = config.steps // config.evaluate_every if config.evaluate_every else 0
    if not looks:
        return [steps]
    users, how = looks * min(CHECKED_USERS, amounts.validation), sampling(MiningConfig())
    fixed = [DecodeConfig(max_labels=most, fixed_budget=True) for most in (CHECKED_BUDGET, *2 * [exposure.BUDGET])]
    drawn = _decoding(how, users, amounts, _sampled(config, how, amounts))
    return [steps, drawn, *(_decoding(how, users, amounts) for how in fixed)]


def _predictions(config: RunConfig, trained: ObjectiveConfig, amounts: Sizes) -> list[Work]:
    """Every way in which a generator is read for the results."""
    asked, users = config.predict, amounts.test
    free = DecodeConfig(max_labels=asked.budget, batch_size=config.decode_batch)
    ways = [
        _decoding(free, users, amounts, min(float(amounts.golds.mean()), asked.budget)),
        _decoding(free.model_copy(update={"fixed_budget": True}), users, amounts),
    ]
    if asked.likelihood:
        beams = {"mode": "beam", "beams": asked.budget, "max_labels": 1, "fixed_budget": True}
        ways.append(_decoding(free.model_copy(update=beams), users, amounts))
    if asked.exposure:
        after = {"max_labels": exposure.BUDGET, "fixed_budget": True}
        ways.append(_decoding(free.model_copy(update=after), 2 * users, amounts))
    how = sampling(asked.sampling).model_copy(update={"batch_size": config.decode_batch})
    return [*ways, _decoding(how, users, amounts, _sampled(trained, how, amounts))]


def _sampling(config: RunConfig, trained: ObjectiveConfig, prompts: int, amounts: Sizes) -> Decoding:
    how = sampling(config.mining).model_copy(update={"batch_size": config.decode_batch})
    return _decoding(how, prompts, amounts, _sampled(trained, how, amounts))


def _sampled(trained: ObjectiveConfig, how: DecodeConfig, amounts: Sizes) -> float:
    factor = LONGER if OBJECTIVES[trained.objective].mined else 1.0
    return amounts.longest(how.samples, factor, how.max_labels)


def _decoding(how: DecodeConfig, prompts: int, amounts: Sizes, labels: float | None = None) -> Decoding:
    return Decoding(prompts, amounts.prompt, how, labels or how.max_labels, amounts.label_tokens)


def scorer_parameters(config: RunConfig, amounts: Sizes, shape: Shape) -> int:
    """Of the propensity model, with those that labels and words have of their own."""
    wide = config.propensity.model
    return propensity_parameters(wide, shape.width, amounts.vector_width, amounts.labels, amounts.words)
