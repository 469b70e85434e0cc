"""Agents that are killed -9 in the middle of a phase: nobody is left standing still for good."""

import os
import signal
import time

import pytest
from node_site import opened

from slurm_ltgf.checkpoint.phases import Op
from slurm_ltgf.checkpoint.protocol import Action, Phase, withdrawn

#: What a process is in the middle of when its agent is killed.
MOMENTS = [Op.LOCK, Op.CHECKPOINT, None, Op.RESTORE, Op.UNLOCK]
SLOW_S = 0.7


class Agents:
    """Agents in processes of their own, as systemd would start them."""

    def __init__(self, site):
        self.site, self.pids = site, {}

    def start(self, *nodes):
        for node in nodes:
            self.pids[node] = os.fork()
            if self.pids[node] == 0:
                self._serve(self.site.agent(node))

    def _serve(self, agent):
        try:
            while True:
                agent.tick(int(time.time()))
                time.sleep(0.02)
        finally:
            os._exit(1)

    def kill(self, *nodes):
        for node in nodes:
            pid = self.pids.pop(node)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


@pytest.fixture
def site(tmp_path):
    with opened(tmp_path) as made:
        made.agents = []
        yield made


@pytest.fixture
def agents(site):
    made = Agents(site)
    yield made
    made.kill(*list(made.pids))


def wait(site, is_so, within_s=30):
    end = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < end, (site.answer(), site.stages, site.said)
        time.sleep(0.02)


def until(site, phase):
    wait(site, lambda: site.answer() is not None and site.answer().phase is phase)


def begun(site, op):
    """Whether the driver is at it, for the last process of the second node."""
    return (site.gpu / f"{site.processes[3].pid}.{op}.at").exists()


def killed_at(site, agents, moment, nodes, within_s=20):
    """A pause, ended early if the moment is on the way back; its agents killed in it."""
    agents.start(0, 1)
    until(site, Phase.READY)
    if moment is not None:
        site.how(3, moment, str(SLOW_S))
    ask = site.ask(within_s=within_s)
    if moment in (None, Op.RESTORE, Op.UNLOCK):
        until(site, Phase.SAVED)
        assert site.stages == ["checkpointed"] * 4
    if moment in (Op.RESTORE, Op.UNLOCK):
        site.board.ask(withdrawn(ask, Action.RESUME, int(time.time())))
    if moment is not None:
        wait(site, lambda: begun(site, moment))
    agents.kill(*nodes)
    return ask


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_in_a_phase_and_the_ask_is_gone(site, agents, moment):
    killed_at(site, agents, moment, (0, 1))
    site.board.clear(4711)
    agents.start(1, 0)
    wait(site, lambda: site.stages == ["running"] * 4)
    wait(site, lambda: not any(list((site.folder / f"marks{n}").iterdir()) for n in (0, 1)))
    assert site.stages == ["running"] * 4


@pytest.mark.parametrize("moment", [Op.LOCK, Op.CHECKPOINT])
@pytest.mark.parametrize("node", [0, 1])
def test_killed_in_a_phase_and_the_next_agent_takes_it_up(site, agents, moment, node):
    ask = killed_at(site, agents, moment, (node,))
    agents.start(node)
    wait(site, lambda: site.answer().phase in (Phase.SAVED, Phase.FAILED))
    if site.answer().phase is Phase.SAVED:
        assert site.stages == ["checkpointed"] * 4
        site.board.ask(withdrawn(ask, Action.RESUME, int(time.time())))
    wait(site, lambda: site.stages == ["running"] * 4)


def test_one_agent_that_stays_away_has_the_others_back_in_time(site, agents):
    killed_at(site, agents, Op.LOCK, (1,), within_s=5)
    until(site, Phase.FAILED)
    assert "node 1" in site.answer().why
    wait(site, lambda: site.stages[:2] == ["running"] * 2)
    agents.start(1)
    wait(site, lambda: site.stages == ["running"] * 4)
