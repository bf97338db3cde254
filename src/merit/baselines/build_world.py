"""The world of a comparison, from artifacts: what every method sees, with the test users' gold taken out."""

from __future__ import annotations

from merit.baselines.world import Text, World, without_gold
from merit.core.artifacts import Artifact
from merit.evaluation.evaluate import training_popularity
from merit.generator.backbone import BackboneConfig
from merit.generator.model import GeneratorConfig, read_labelled, read_shop
from merit.generator.texts import TextConfig, write_prompts
from merit.labels import space
from merit.labels.build import load_vectors


def make_world(
    examples: Artifact, labels: Artifact, backbone: BackboneConfig, text: TextConfig, seconds: float
) -> World:
    """`seconds` is what a method may spend on training, on this machine."""
    known = space.load(labels.path)
    shop = read_shop(examples, labels, known, GeneratorConfig(backbone=backbone, text=text))
    train, validation, test = (read_labelled(examples, split, shop) for split in ("train", "validation", "test"))
    return World(
        train=train,
        validation=validation,
        test=without_gold(test),
        labels=known,
        vectors=load_vectors(labels),
        popularity=training_popularity(known),
        seconds=seconds,
        text=Text(shop, backbone, *(write_prompts(part.items, shop, text) for part in (train, validation, test))),
    )
