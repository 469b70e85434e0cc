"""Settings of what moves running jobs: checkpoints on request, and leases."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from slurm_ltgf.store import setting_kinds as kinds

_TIMES = r"^([Mm]on |[Tt]ue |[Ww]ed |[Tt]hu |[Ff]ri |[Ss]at |[Ss]un )?\d\d:\d\d-\d\d:\d\d$"


class Checkpoint(Struct, frozen=True, forbid_unknown_fields=True):
    """How jobs are asked for checkpoints, and requeued."""

    records: Annotated[
        str,
        kinds.text(
            "The folder that plugstack.conf names as records=, seen by nodes and controller; "
            "empty: jobs are asked in their own folders, by their users and root alone."
        ),
    ] = ""
    state: Annotated[
        str, kinds.text("Where moves are written down; empty: `moves` beside the ledger.")
    ] = ""
    timeout_s: Annotated[
        int, kinds.duration("A job that has not saved by then has failed, if it named no other.")
    ] = field(default=600, name="timeout")
    hold_s: Annotated[
        int,
        kinds.duration("How long beyond that a saved job holds still for its requeue.", least_s=30),
    ] = field(default=300, name="hold")
    per_node: Annotated[int, kinds.count("Checkpoints at once on a node.", "jobs")] = 1
    per_filesystem: Annotated[int, kinds.count("Checkpoints at once on a file system.", "jobs")] = 4
    stagger_s: Annotated[
        int, kinds.duration("Pause between two asks on one file system.", least_s=0)
    ] = field(default=2, name="stagger")
    requeues_per_job: Annotated[
        int,
        kinds.count(
            "How often ltgf requeues one job; preemptions and node failures not counted.",
            "requeues",
        ),
    ] = 1000
    limits_per_job: Annotated[
        int,
        kinds.count(
            "How often `ltgf requeue --after-signal` requeues one job because its time was up.",
            "requeues",
        ),
    ] = 100


class Lease(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether and when running jobs yield at the end of a lease (its length: queue.lease)."""

    mode: Annotated[
        Literal["off", "advise", "on"],
        kinds.meta(
            "What becomes of verdicts: none are made; they are shown; jobs are moved.",
            "'off', 'advise' or 'on'",
            "'off', 'advise' or 'on'",
        ),
    ] = "advise"
    min_run_s: Annotated[
        int, kinds.duration("A run is not ended before it is so old.", least_s=0)
    ] = field(default=900, name="min_run")
    max_restarts: Annotated[
        int, kinds.count("A job that was restarted so often is left alone.", "restarts")
    ] = 100
    overhead: Annotated[
        float,
        kinds.meta(
            "What a move may cost, as a part of the run before it.",
            "part",
            "a number from 0.001 to 1",
            ge=0.001,
            le=1,
        ),
    ] = 0.02
    cost_s: Annotated[
        int,
        kinds.duration(
            "Checkpoint and restore of a job that never made one; of others: as measured.",
            least_s=0,
        ),
    ] = field(default=25, name="cost")
    margin: Annotated[
        float,
        kinds.meta(
            "How much better the poorer of two tenants must fare by a move, of what it gains.",
            "part",
            "a number from 0 to 1",
            ge=0,
            le=1,
        ),
    ] = 0.05
    concurrency: Annotated[int, kinds.count("Jobs that yield at once.", "jobs")] = 4
    per_hour: Annotated[int, kinds.count("Jobs that yield in an hour, at most.", "jobs")] = 60
    protected_qos: Annotated[
        tuple[str, ...], kinds.texts("QOS whose jobs never yield: online inference.")
    ] = ()
    first_qos: Annotated[
        tuple[str, ...], kinds.texts("QOS whose jobs yield before all others: development.")
    ] = ()
    quiet: Annotated[
        tuple[Annotated[str, Meta(pattern=_TIMES)], ...],
        kinds.meta(
            "Times without moves, like '22:00-06:00' or 'Mon 08:00-12:00', local time.",
            "list of times",
            "a list of texts like '22:00-06:00' or 'Mon 08:00-12:00'",
        ),
    ] = ()
    breaker: Annotated[
        int,
        kinds.count(
            "Failed checkpoints within an hour that stop all moves; of one user's, that user's.",
            "failures",
        ),
    ] = 5
    breaker_rest_s: Annotated[int, kinds.duration("How long they are stopped then.", least_s=0)] = (
        field(default=3600, name="breaker_rest")
    )
    preempt_without_checkpoint: Annotated[
        bool,
        kinds.meta(
            "Whether jobs that cannot save are requeued all the same; their work is lost.",
            "true or false",
            "true or false",
        ),
    ] = False


class Defrag(Struct, frozen=True, forbid_unknown_fields=True):
    """Moves against fragmentation: `ltgf frag --plan`, `--apply`; classes of jobs as in [lease]."""

    per_hour: Annotated[int, kinds.count("Jobs moved in an hour, at most.", "jobs")] = 20
    concurrency: Annotated[int, kinds.count("Jobs that move at once.", "jobs")] = 16
    cooldown_s: Annotated[
        int,
        kinds.duration("A job that was moved, or could not be, is left alone so long.", least_s=0),
    ] = field(default=1800, name="cooldown")
    buffer: Annotated[
        float,
        kinds.meta(
            "Part of the GPUs that a plan leaves free, so that who moves finds room again.",
            "part",
            "a number from 0 to 1",
            ge=0,
            le=1,
        ),
    ] = 0.05
    serving_above: Annotated[
        float,
        kinds.meta(
            "Jobs of lease.protected_qos move only in a pool whose score is above this.",
            "score",
            "a number from 0 to 1",
            ge=0,
            le=1,
        ),
    ] = 0.3
    wait_s: Annotated[
        int,
        kinds.duration(
            "How long a job that waits would go on waiting, where Slurm expects no start: the "
            "GPU-seconds that its moves may cost."
        ),
    ] = field(default=3600, name="wait")
    start_within_s: Annotated[
        int,
        kinds.duration("How long --apply keeps who moved away from the nodes that it made free."),
    ] = field(default=120, name="start_within")
