"""One job on one node, checkpointed from outside: the ask, the plan, the answer.

The agent of the job's first node leads: it hears the ask, makes the plan and gives the answer.
Every agent acts on the plan that lies in the job's folder (`node_files`, `node_hands`). An agent
that was killed at any point is followed by one that takes the plan up, or brings all back.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from slurm_ltgf.checkpoint import phases
from slurm_ltgf.checkpoint.board import BoardError
from slurm_ltgf.checkpoint.driver import Call, DriverError
from slurm_ltgf.checkpoint.keys import ProtocolError
from slurm_ltgf.checkpoint.node_files import Job, Seen, exchange, say
from slurm_ltgf.checkpoint.node_hands import Hands, Tools
from slurm_ltgf.checkpoint.phases import Plan, Told, Want
from slurm_ltgf.checkpoint.protocol import Action, Answer, Ask, Mode, Phase

#: A folder that cannot be used for so long: the job goes back.
LOST_S = 15.0


@dataclass(slots=True)
class Attendance:
    """One job on this node. _plan: the leader's own; acted on is `_written`, what others see."""

    job: Job
    tools: Tools
    hands: Hands = field(init=False)
    _is_ready: bool = False
    _plan: Plan | None = None
    _written: Plan | None = None
    _said: Told | None = None
    _heard: Ask | None = None
    _action: Action = Action.PAUSE
    _image: Call | None = None
    _is_saved: bool = False
    _bytes: int = 0
    _over: set[str] = field(default_factory=set)
    _began: float = 0.0
    _seen_at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.hands = Hands(self.job, self.tools)

    def tick(self, now: int) -> bool:
        """Do the next step; False: there is nothing to do for this job."""
        ask = self._hear()
        is_new = ask is not None and not ask.is_end and ask.id not in self._over
        if not (is_new or self.is_busy):
            return False
        seen = self._exchange()
        if self.job.rank == 0 and seen is not None:
            self._lead(ask, seen, now)
        elif seen is not None:
            self._follow(ask, seen)
        self.hands.act(self._written, now)
        return True

    @property
    def is_busy(self) -> bool:
        """Whether something is under way."""
        return self.hands.is_marked or _is_on(self._plan) or _is_on(self._written)

    def _hear(self) -> Ask | None:
        """The ask for this run; a board that cannot be read changes nothing."""
        try:
            ask = self.tools.board.hear(self.job.job_id, self.job.uid)
        except (BoardError, ProtocolError):
            return self._heard
        self._heard = ask if ask is not None and ask.restart == self.job.restart else None
        return self._heard

    def _exchange(self) -> Seen | None:
        """Leave the plan and the word of this node, see the others'; None: the folder is away."""
        plan = self._plan if self._plan != self._written else None
        told = self.hands.told if self.hands.told != self._said else None
        try:
            seen = exchange(self.job, plan=plan, told=told)
        except DriverError as exc:
            self.tools.tell(str(exc))
            if time.monotonic() - self._seen_at > LOST_S:
                self._written = None
            return None
        self._seen_at, self._said = time.monotonic(), self.hands.told
        if plan is not None:
            self._written = plan
        return seen

    def _follow(self, ask: Ask | None, seen: Seen) -> None:
        self._written = plan = seen.plan
        if plan is None or ask is None or self.hands.is_marked:
            return
        if plan.want is Want.OVER and plan.key == ask.id:
            self._over.add(ask.id)

    # --- the leader -------------------------------------------------------------------------------

    def _lead(self, ask: Ask | None, seen: Seen, now: int) -> None:
        if not _is_on(self._plan):
            self._take_up(ask, seen)
            self._begin(ask, now)
        if self._plan is None or self._plan.want is Want.OVER:
            return
        is_taken_back = ask is None or ask.is_end or ask.id != self._plan.key
        told = [self.hands.told, *seen.told[1:]]
        self._plan = phases.decide(self._plan, told, now=now, is_taken_back=is_taken_back)
        if self._plan.want is Want.HOLD and not self._is_saved:
            self._save(self._plan, now)
        is_late = self._plan.want is Want.BACK and now >= self._plan.deadline
        if self._plan.want is Want.OVER or (is_late and not self._is_saved):
            self._end(self._plan)

    def _take_up(self, ask: Ask | None, seen: Seen) -> None:
        """What an agent before this one had begun."""
        found = seen.plan
        if self._plan is not None or found is None or (ask is not None and found.key != ask.id):
            return
        self._plan = self._written = found
        if ask is not None and not ask.is_end:
            self._action = ask.action
        self._is_saved = self._has_answered(found.key, Phase.SAVED)
        if found.want is Want.OVER:
            self._over.add(found.key)

    def _begin(self, ask: Ask | None, now: int) -> None:
        if _is_on(self._plan) or ask is None or ask.is_end or ask.id in self._over:
            return
        self._is_saved, self._image, self._action = False, None, ask.action
        if self._has_answered(ask.id, Phase.SAVED, Phase.FAILED, Phase.REFUSED, Phase.GOING):
            self._over.add(ask.id)
            return
        if why := self._refusal(ask, now):
            self._over.add(ask.id)
            self._answer(Phase.REFUSED, ask.id, why=why)
            return
        self._began = time.monotonic()
        self._answer(Phase.WORKING, ask.id)
        self._plan = phases.begin(
            ask.id, self.job.restart, deadline=ask.deadline, hold_until=ask.hold_until, now=now
        )

    def _refusal(self, ask: Ask, now: int) -> str:
        """Why this cannot be done whatever the processes are."""
        if now >= ask.deadline:
            return "its time was over before the node's agent looked"
        if ask.action is Action.PAUSE:
            is_alone = self.job.mode is Mode.CRIU and self.job.ranks == 1
            has_none = is_alone and not self.hands.has_gpu()
            return "it uses no GPU (yet): there is nothing to pause" if has_none else ""
        if self.job.mode is not Mode.CRIU:
            return "the driver can only pause it; to disk by --ckpt=criu or --ckpt=app"
        if self.job.ranks > 1:
            return "it runs on several nodes, whose connections CRIU cannot restore; --ckpt=app"
        if self.tools.images is None:
            return "its node cannot write it to disk: no CRIU 4.1 or later, or no key (see its log)"
        return ""

    def _save(self, plan: Plan, now: int) -> None:
        """All are checkpointed: that is a pause; for the rest an image is written, too."""
        images = self.tools.images
        if self._action is Action.PAUSE or images is None:
            self._bytes, self._is_saved = sum(self.hands.needs.values()), True
            self._answer(Phase.SAVED, plan.key)
        elif self._image is None:
            self.hands.mark()  # also of a program without a GPU: CRIU stops it
            self._image = images.start(
                self.job, self.hands.pids(), key=plan.key,
                leave_running=self._action is Action.CHECKPOINT,
            )  # fmt: skip
        elif not self._image.is_done():
            if now > plan.deadline:
                self._plan = phases.give_up(plan, "the image was not written in time")
        elif self._image.error:
            self._plan = phases.give_up(plan, self._image.error)
        else:
            name, size = (self._image.answer or "=")[1:].split()
            self._bytes, self._is_saved = int(size), True
            self._answer(Phase.SAVED, plan.key, name=name)
            if self._action is Action.CHECKPOINT:
                self._plan = phases.give_up(plan, "")

    def _end(self, plan: Plan) -> None:
        """Say how it ended; a node that does not answer is not waited for longer than allowed."""
        if plan.key in self._over:
            return
        self._over.add(plan.key)
        if not self._is_saved:
            self._answer(Phase.FAILED, plan.key, why=plan.why or "the ask was taken back")
        elif self._action is not Action.CHECKPOINT:
            self._answer(Phase.GOING, plan.key, why=plan.why)

    # --- answers ----------------------------------------------------------------------------------

    def say_ready(self) -> None:
        """Say once a run that it can be asked, as soon as it has processes to be checkpointed.

        Raises:
            DriverError: the driver or the board does not answer.
        """
        if self._is_ready or self.job.rank:
            return
        answer = self._answer_there()
        if answer is None:
            if self.job.mode is not Mode.CRIU and not self.hands.has_gpu():
                return
            self._answer(Phase.READY, "")
        self._is_ready = True

    def _answer(self, phase: Phase, ask: str, *, why: str = "", name: str = "") -> None:
        is_saved = phase is Phase.SAVED
        seconds = round(time.monotonic() - self._began, 3) if is_saved and self._began else None
        answer = Answer(
            self.job.job_id, self.job.restart, phase, ask=ask, ranks=self.job.ranks, name=name,
            bytes=(self._bytes or None) if is_saved else None, seconds=seconds,
            time=int(time.time()), why=why,
        )  # fmt: skip
        try:
            say(self.job, self.tools.board.folder, answer)
        except DriverError as exc:
            self.tools.tell(str(exc))

    def _answer_there(self) -> Answer | None:
        """What was answered for this run."""
        try:
            found = self.tools.board.answer(self.job.job_id, self.job.uid)
        except (BoardError, ProtocolError):
            return None
        return found if found is not None and found.restart == self.job.restart else None

    def _has_answered(self, key: str, *words: Phase) -> bool:
        found = self._answer_there()
        return found is not None and found.ask == key and found.phase in words


def _is_on(plan: Plan | None) -> bool:
    return plan is not None and plan.want is not Want.OVER
