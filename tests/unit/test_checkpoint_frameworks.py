"""Trainers that own the loop: stopped by Slurm's signal and continued, the weights are the same."""

import os
import signal

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from slurm_ltgf import checkpoint  # noqa: E402
from slurm_ltgf.checkpoint import frameworks  # noqa: E402

STEPS, STOP = 12, 5


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    for name in ("SLURM_JOB_ID", "RANK", "WORLD_SIZE", "LTGF_CKPT_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGUSR2)
    yield
    signal.signal(signal.SIGUSR2, before)


def data():
    made = torch.Generator().manual_seed(1)
    return [[torch.randn(8, n, generator=made) for n in (4, 1)] for _ in range(STEPS)]


def net():
    torch.manual_seed(2)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(), torch.nn.Linear(8, 1))


def with_signal_at(number):
    """A list of batches; the signal comes while one is fetched."""

    class Batches(torch.utils.data.Dataset):
        def __init__(self):
            self.batches = data()

        def __len__(self):
            return STEPS

        def __getitem__(self, index):
            if index == number:
                os.kill(os.getpid(), signal.SIGUSR2)
            return self.batches[index]

    return Batches()


class Loader:
    """Lightning does not skip batches in the middle of an epoch: this begins at the step."""

    def __init__(self, begin, stop):
        self.begin, self.batches = begin, with_signal_at(stop)

    def __len__(self):
        return STEPS

    def __iter__(self):
        return (self.batches[index] for index in range(self.begin, STEPS))


def test_lightning(tmp_path):
    try:
        lightning = frameworks._first_of("lightning.pytorch", "pytorch_lightning")
    except ImportError:
        pytest.skip("Lightning is not installed")

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net()

        def training_step(self, batch, index):
            x, y = batch
            return (self.net(x) - y).square().mean()

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=0.01)

    def fit(name, stop=None):
        ckpt = checkpoint.session(folder=tmp_path / name)
        model = Model()
        trainer = lightning.Trainer(
            max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False,
            callbacks=[frameworks.lightning_callback(ckpt)], use_distributed_sampler=False,
        )  # fmt: skip
        trainer.fit(model, Loader(ckpt.step, stop), ckpt_path=frameworks.lightning_path(ckpt))
        return ckpt, trainer, model

    _, _, whole = fit("whole")
    ckpt, trainer, _ = fit("cut", STOP)
    assert ckpt.must_stop
    assert trainer.global_step < STEPS
    again, trainer, model = fit("cut")
    assert again.step > 0
    assert trainer.global_step == STEPS
    for one, other in zip(whole.parameters(), model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_transformers(tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net()

        def forward(self, x, labels):
            out = self.net(x)
            return {"loss": (out - labels).square().mean(), "logits": out}

    class Rows(torch.utils.data.Dataset):
        def __init__(self, stop):
            self.batches, self.stop = with_signal_at(stop), stop

        def __len__(self):
            return STEPS

        def __getitem__(self, index):
            x, y = self.batches[index]
            return {"x": x[0], "labels": y[0]}

    def train(name, stop=None):
        ckpt = checkpoint.session(folder=tmp_path / name / "ckpt")
        args = transformers.TrainingArguments(
            output_dir=str(tmp_path / name), max_steps=STEPS, save_strategy="no", report_to=[],
            per_device_train_batch_size=1, use_cpu=True, disable_tqdm=True,
        )  # fmt: skip
        trainer = transformers.Trainer(
            model=Model(), args=args, train_dataset=Rows(stop),
            callbacks=[frameworks.transformers_callback(ckpt)],
        )  # fmt: skip
        trainer.train(resume_from_checkpoint=frameworks.transformers_path(ckpt))
        return ckpt, trainer

    _, whole = train("whole")
    ckpt, cut = train("cut", STOP)
    assert ckpt.must_stop
    assert cut.state.global_step < STEPS
    again, trainer = train("cut")
    assert again.step == cut.state.global_step
    assert trainer.state.global_step == STEPS
    for one, other in zip(whole.model.parameters(), trainer.model.parameters(), strict=True):
        assert torch.equal(one, other)
