"""PyTorch's fast path: saved and continued, or paused and resumed, the bits are the same."""

import json
import random

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from slurm_ltgf.checkpoint.torch import OtherModel, Stage  # noqa: E402
from slurm_ltgf.checkpoint.tree import Unsaveable, put_together, take_apart  # noqa: E402

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


class Run:
    """A small training that draws random numbers everywhere."""

    def __init__(self, device, dtype=torch.float32):
        torch.manual_seed(3)
        random.seed(3)
        self.device = device
        self.model = torch.nn.Sequential(
            torch.nn.Linear(64, 128), torch.nn.BatchNorm1d(128), torch.nn.ReLU(),
            torch.nn.Dropout(0.2), torch.nn.Linear(128, 8),
        ).to(device, dtype)  # fmt: skip
        self.dtype = dtype
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 100)
        self.stage = Stage(
            rank=0, model=self.model, optimizer=self.optimizer, scheduler=self.scheduler
        )

    def train(self, steps):
        losses = []
        for _ in range(steps):
            x = torch.randn(32, 64, device=self.device, dtype=self.dtype) * random.random()
            self.optimizer.zero_grad()
            loss = self.model(x).square().mean()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            losses.append(loss.item().hex())
        return losses

    def bits(self):
        return [t.cpu().clone() for t in self.model.state_dict().values()]


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_run_that_was_saved_and_begun_anew_ends_with_the_same_bits(tmp_path, device, dtype):
    whole = Run(device, dtype)
    losses = whole.train(12)
    first = Run(device, dtype)
    first.train(5)
    first.stage.prepare()
    first.stage.save(tmp_path)
    first.train(2)
    random.seed(99)
    second = Run(device, dtype)
    second.train(1)
    second.stage.load(tmp_path)
    assert second.train(7) == losses[5:]
    assert same(second.bits(), whole.bits())


def test_what_was_loaded_is_no_part_of_the_next_save(tmp_path, device):
    first = Run(device)
    first.train(3)
    first.stage.save(tmp_path)
    second = Run(device)
    second.stage.load(tmp_path)
    second.train(1)
    before = [v["exp_avg"].clone() for v in second.optimizer.state.values()]
    second.stage.save(tmp_path)
    assert same(before, [v["exp_avg"] for v in second.optimizer.state.values()])


def test_a_pause_changes_no_bit(device):
    whole, paused = Run(device), Run(device)
    losses = whole.train(9)
    random.seed(3)
    paused = Run(device)
    seen = paused.train(4)
    for _ in range(2):
        paused.stage.pause()
        paused.stage.pause()
        if device == "cuda":
            assert all(p.untyped_storage().nbytes() == 0 for p in paused.model.parameters())
        paused.stage.resume()
        paused.stage.resume()
    assert seen + paused.train(5) == losses
    assert same(paused.bits(), whole.bits())


def test_released_while_it_is_written_it_comes_back(tmp_path, device):
    run = Run(device)
    run.train(2)
    before = run.bits()
    run.stage.save(tmp_path, release=True)
    run.stage.resume()
    assert same(before, run.bits())


def test_parts_larger_than_one_transfer(tmp_path, device, monkeypatch):
    monkeypatch.setattr("slurm_ltgf.checkpoint.torch.PART_BYTES", 1000)
    first, second = Run(device), Run(device)
    first.train(2)
    first.stage.save(tmp_path)
    second.stage.load(tmp_path)
    assert same(first.bits(), second.bits())


def test_tied_weights_are_written_once(tmp_path, device):
    one = torch.nn.Linear(100, 100, bias=False, device=device)
    two = torch.nn.Sequential(one, one)
    Stage(rank=0, model=two).save(tmp_path)
    assert len(json.loads((tmp_path / "rank-0.json").read_text())["pieces"]) <= 3


def test_another_model_is_refused(tmp_path):
    Stage(rank=0, model=torch.nn.Linear(4, 4)).save(tmp_path)
    with pytest.raises(OtherModel, match=r"model\.weight: \[4, 5\], in the checkpoint \[4, 4\]"):
        Stage(rank=0, model=torch.nn.Linear(5, 4)).load(tmp_path)
    with pytest.raises(OtherModel, match="not in the checkpoint"):
        Stage(rank=0, model=torch.nn.Sequential(torch.nn.Linear(4, 4))).load(tmp_path)
    with pytest.raises(OtherModel, match="the checkpoint has"):
        Stage(rank=0, net=torch.nn.Linear(4, 4)).load(tmp_path)


def test_a_cut_file_is_an_error(tmp_path):
    stage = Stage(rank=0, model=torch.nn.Linear(400, 400))
    stage.save(tmp_path)
    path = tmp_path / "rank-0.bin"
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(OSError, match="shorter than its index says"):
        stage.load(tmp_path)


def test_a_full_disk_is_an_error(device):
    run = Run(device)
    run.train(1)

    class Full:
        def __truediv__(self, name):
            return __import__("pathlib").Path("/dev/full")

    with pytest.raises(OSError, match="No space left"):
        run.stage.save(Full())


def test_plain_values_come_back_as_they_were():
    value = {"a": [1, 2.5, None, True, ("x", {3: float("inf")})], 7: {}}
    assert put_together(take_apart(value, lambda _: None), lambda _: None) == value
    with pytest.raises(Unsaveable, match=r"a\.b: a set cannot be saved"):
        take_apart({"a": {"b": {1}}}, lambda _: None)
