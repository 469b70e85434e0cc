"""What a GRES text is worth where GPU types weigh differently."""

from fractions import Fraction

import pytest

from slurm_ltgf.core.gpus import Pricing, gpus

SITE = Pricing(weights={"h100": 1.0, "A100": 0.5, "t4": 0.2, "a100_1g.10gb": 0.1})


@pytest.mark.parametrize(
    ("gres", "weighted"),
    [
        pytest.param("gpu:h100=2,gpu=2", Fraction(2), id="the dearest type"),
        pytest.param("gpu:t4=4,gpu=4", Fraction(4, 5), id="a cheap type"),
        pytest.param("gpu:a100=3", Fraction(3, 2), id="whatever the case of the name"),
        pytest.param("gpu:v100=2,gpu=2", Fraction(2), id="a type without weight"),
        pytest.param("gpu=5", Fraction(5), id="no type at all"),
        pytest.param("gpu:t4=1,gpu=3", Fraction(11, 5), id="a rest without type"),
        pytest.param("gpu:t4=5,gpu=2", Fraction(2), id="more typed than the total, which wins"),
        pytest.param("gpu:a100_3g.40gb=1,gpu=1", Fraction(3, 14), id="a slice of a weighted type"),
        pytest.param("gpu:a100_1g.10gb=2", Fraction(2, 70), id="a slice with a weight of its own"),
        pytest.param("mps:t4=50", Fraction(1, 10), id="half of a cheap GPU"),
    ],
)
def test_gpu_time_is_worth_what_its_type_is(gres, weighted):
    assert gpus(gres, SITE).weighted == weighted
