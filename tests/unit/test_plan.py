"""What running jobs still owe their tenants' accounts, and what there is to share at a moment."""

from slurm_ltgf.core.fairness import TenantIndex
from slurm_ltgf.core.gpus import Pricing
from slurm_ltgf.core.measure import CapacityStep, WeightStep, supply_of
from slurm_ltgf.core.model import Tenant
from slurm_ltgf.core.plan import Hold, standings

H = 3600


def committed(*holds):
    row = TenantIndex("a", 1, 8, 0, 0, 8 * H, 0, None, 0, None, "idle")
    return standings([row], holds, key="credit", lease_s=H, now=1000)["a"].committed_gpu_s


def test_a_lease_is_charged_until_it_is_over_or_the_jobs_time_limit_is():
    assert committed(Hold(1, "a", 4, start=400)) == 4 * (H - 600)
    assert committed(Hold(1, "a", 4, start=400, until=1100)) == 4 * 100
    assert committed(Hold(1, "a", 4, start=1000 - H)) == 0
    assert committed(Hold(1, "a", 4, start=0, until=10)) == 0
    assert committed(Hold(1, "a", 1, start=1000), Hold(2, "a", 2, start=1000)) == 3 * H


def test_a_step_holds_from_its_own_moment_on():
    supply = supply_of(
        {"a": Tenant("a", 1), "b": Tenant("b", 1)},
        [CapacityStep(0, {"": 8}), CapacityStep(100, {"": 16})],
        [WeightStep(0, {"a": 1, "b": 1}), WeightStep(50, {"a": 3, "b": 1})],
        pricing=Pricing(),
    )
    assert supply.times.tolist() == [0, 50, 100]
    assert supply.quotas().tolist() == [[4, 4], [6, 2], [12, 4]]
