"""The table in factor_table.bin, in numbers that one can check by hand: see test_pure.c."""

from slurm_ltgf.store.factor_table import FAR, Anchor, FactorTable, TenantEntry

MILLION = 1_000_000

TABLE = FactorTable(
    generated_ns=1_700_000_000 * 10**9 + 7,
    stale_after_s=600,
    anchors=[
        Anchor(-2, 2100 * MILLION),
        Anchor(0, 2000 * MILLION),
        Anchor(1, 1000 * MILLION),
        Anchor(3, 500 * MILLION),
        Anchor(20_000, 2),
        Anchor(FAR, 1),
    ],
    tenants=[
        TenantEntry(1, 1, 4, charged_gpus=1),
        TenantEntry(0, 1, 2, held_gpus=1, floor_gpus=5),
        TenantEntry(0, 0, 0),
    ],
    accounts={"none": 2, "bio": 0, "chem": 1},
    prices={"gres/gpu": 1, "gres/gpu:h200": 2, "gres/mps": 0.01},
    partitions=["main"],
    labels={9: -5, 7: 1500 * MILLION, 8: 12},
)
