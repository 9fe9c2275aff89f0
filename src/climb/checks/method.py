"""`check_method`: all promises of a method, one after the other."""

from __future__ import annotations

from climb.checks.collapse import check_collapse, look
from climb.checks.descent import check_descent
from climb.checks.learning import check_learning, check_optimizer
from climb.checks.state import check_state
from climb.checks.trial import CONFIG, built, one_thread, registered
from climb.methods import Method, choose_method, find_method


def check_method(name_or_method: str | Method, *, seed: int = 0) -> None:
    """Train a method for a moment on tiny synthetic images; AssertionError on a broken promise.

    It runs on the CPU with the micro network, with a task boundary halfway. The promises:

    - every trainable parameter of network, objective and alignment is in the optimiser once, and moves;
    - the losses are finite scalars in every pass, and depend on nothing that could be trained and is not;
    - an alignment has its say: some loss of its own has a gradient that reaches the network;
    - `after_step` leaves the student as the optimiser made it;
    - the objective's loss falls when steps are taken on the same views again and again;
    - features and embeddings of different images stay different (no collapse), by `climb.engine.health`;
    - the budget counts what was executed, and backward passes stay within what the mini-batches earned;
    - where there is a memory, its images are replayed, and from then on batches have the rows that the rule declares;
    - the memory stays within its bound and within the configured capacity, after every mini-batch;
    - two engines of one seed have the same losses, and taking the state of one changes nothing;
    - the state can be saved to a file, and an engine that loads it has the same next losses, to the bit.

    What is frozen is taken to be so on purpose. An objective whose loss need not fall says so by ``falls = False``.
    Of a method with a loop of its own (``own_loop``) neither optimiser, budget, batches nor steps are known, so those
    are left out; it must take a step within 100 images: give one that waits longer as a `Method` whose ``build`` makes
    it wait less. Whether a memory is sound in itself is for `climb.memory.check_memory` to say.

    Args:
        name_or_method: a registered name, or a method, registered or not.
        seed: of the images, and of everything random in the method.

    >>> check_method("climb")
    """
    method = find_method(name_or_method) if isinstance(name_or_method, str) else name_or_method
    with registered(method), one_thread():
        config = choose_method(CONFIG, method.name)
        engine = built(config, seed)
        if not method.own_loop:
            check_optimizer(engine)
        untrained = look(engine, seed)
        observed, step = check_learning(engine, seed, own_loop=method.own_loop)
        check_collapse(untrained, look(engine, seed))
        check_state(engine, observed, built(config, seed), built(config, seed + 1), seed)
        if step is not None and engine.parts.objective.falls:
            check_descent(config, step, seed)
