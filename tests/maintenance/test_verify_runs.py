"""Verifying a store whose processes have sealed the same records in other runs: that is not damage."""

from __future__ import annotations

from sparktxn._engine.log.follow.confirm import read_horizon
from sparktxn.maintenance import verify
from tests.maintenance.vacuumworld import World


def test_an_abort_that_two_processes_have_sealed_in_other_runs() -> None:
    """One seals the records before they are aborted, so that its index names the abort in the run behind them."""
    world = World()
    early, late = world.process(checkpoint_seal_segments=1), world.process(checkpoint_seal_segments=1)
    late.view()
    *appends, abort = world.fused(early, committed=False)
    early.submit(*appends)
    early.log.checkpoint()
    early.submit(abort)
    late.view()
    late.log.checkpoint()
    sealed_at = late.log.entry
    early.submit(*world.fused(early))
    early.log.checkpoint()
    early.submit(*world.fused(early))
    world.clock.sleep(10.0)
    world.process().vacuum()
    assert read_horizon(world.objects) == sealed_at, "the replay begins with the other process's runs"
    report = verify(world.process().store, read_records=False)
    assert report.problems == ()
    assert report.checkpoints == 2
