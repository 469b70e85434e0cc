"""Root restores what root sealed, of an earlier run of the same job, and nothing else."""

import hashlib
import hmac
import json
import os
import shutil
import socket
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_ltgf.checkpoint import seal as module
from slurm_ltgf.checkpoint.criu import KEY_BYTES, key_in
from slurm_ltgf.checkpoint.driver import DriverError, result
from slurm_ltgf.checkpoint.node_files import Job
from slurm_ltgf.checkpoint.protocol import Mode
from slurm_ltgf.checkpoint.revive import OUTPUT, SEAL
from slurm_ltgf.checkpoint.seal import Seal, cut_output, fetch, keep
from slurm_ltgf.errors import ConfigError

IS_ROOT = os.geteuid() == 0
UID = 65534 if IS_ROOT else os.geteuid()
KEY = bytes(range(KEY_BYTES))
FILES = {"core-7.img": b"registers", "pages-1.img": b"memory" * 5000, "files.img": b""}
NOT_OURS = "was not sealed by this node"


class Place:
    """Root's folder with an image, and the folder of a job of run 0; the next run is 1."""

    def __init__(self, folder):
        self.root, self.into = folder / "root", folder / "into"
        for path in (self.root, self.into):
            path.mkdir(mode=0o700)
        home = folder / "home"
        home.mkdir()
        os.chown(home, UID, -1)
        self.job = Job(7, UID, 0, 0, 1, Mode.CRIU, home / "ckpt")
        self.job.dir.mkdir(mode=0o700)
        os.chown(self.job.dir, UID, -1)
        for name, content in FILES.items():
            (self.root / name).write_bytes(content)
        (self.job.dir / OUTPUT).write_bytes(b"step 1\n")
        self.sealed = Seal.of(self.root, self.job, 7, (5, 50), ("GPU-1",))
        self.sealed.write(self.root, KEY)
        self.name, size = result(keep(self.root, self.job, "a1"), 30, "keep").split()
        self.bytes = int(size)
        self.image = self.job.dir / self.name

    def fetch(self, *, key=KEY, **changed):
        return fetch(self.name, replace(self.job, **{"restart": 1, **changed}), self.into, key)

    def refused(self, words, **changed):
        """It is, in one line, and CRIU would find nothing that was not sealed."""
        with pytest.raises(DriverError) as seen:
            self.fetch(**changed)
        assert words in str(seen.value)
        assert "\n" not in str(seen.value)

    def change(self, content):
        """Sign another content as somebody without the key would."""
        mac = hmac.digest(b"", content, "sha256").hex().encode()
        (self.image / SEAL).write_bytes(mac + b"\n" + content)


@pytest.fixture
def place():
    folder = Path(tempfile.mkdtemp(prefix="ltgf-seal."))
    folder.chmod(0o755)
    yield Place(folder)
    shutil.rmtree(folder)


def test_what_root_wrote_comes_back_as_it_was(place):
    found = place.fetch()
    assert found == place.sealed
    assert (found.job_id, found.restart, found.root, found.gids) == (7, 0, 7, (5, 50))
    assert found.output_bytes == len("step 1\n")
    assert {path.name: path.read_bytes() for path in place.into.iterdir()} == FILES
    assert place.bytes == sum(map(len, FILES.values())) + (place.root / SEAL).stat().st_size
    assert (place.job.dir / "last").readlink() == Path(place.name)


def test_the_image_belongs_to_the_user_and_the_copy_to_root(place):
    assert {path.stat().st_uid for path in place.image.iterdir()} == {UID}
    place.fetch()
    assert {path.stat().st_uid for path in place.into.iterdir()} == {os.geteuid()}


def test_a_changed_byte_is_seen(place):
    path = place.image / "pages-1.img"
    path.write_bytes(b"M" + path.read_bytes()[1:])
    place.refused("pages-1.img was changed since it was sealed")


def test_a_cut_file_is_seen(place):
    path = place.image / "pages-1.img"
    path.write_bytes(path.read_bytes()[:-1])
    place.refused("pages-1.img was changed since it was sealed")


def test_of_a_longer_file_root_takes_what_it_sealed(place):
    with (place.image / "core-7.img").open("ab") as file:
        file.write(b" and more")
    place.fetch()
    assert (place.into / "core-7.img").read_bytes() == FILES["core-7.img"]


def test_a_file_that_was_added_stays_behind(place):
    (place.image / "evil.so").write_bytes(b"code")
    place.fetch()
    assert {path.name for path in place.into.iterdir()} == set(FILES)


def test_a_file_that_was_removed_or_renamed_is_missed(place):
    (place.image / "files.img").rename(place.image / "file.img")
    place.refused("files.img: No such file")


def test_two_files_that_changed_names_are_seen(place):
    one, other = place.image / "core-7.img", place.image / "pages-1.img"
    one.rename(place.image / "x")
    other.rename(one)
    (place.image / "x").rename(other)
    place.refused("was changed since it was sealed")


@pytest.mark.parametrize("name", ["core-7.img", SEAL])
def test_a_link_is_not_followed_even_to_the_same_content(place, name):
    (place.image / name).rename(place.image / "moved")
    (place.image / name).symlink_to("moved")
    place.refused(f"{name}: a link")


def test_a_folder_that_is_a_link_is_not_followed(place):
    place.image.rename(place.job.dir / "moved")
    place.image.symlink_to("moved")
    place.refused(f"{place.name}: a link")


@pytest.mark.parametrize("name", ["core-7.img", SEAL])
@pytest.mark.parametrize("kind", ["pipe", "folder", "socket"])
def test_what_is_no_file_is_refused_at_once(place, name, kind):
    path = place.image / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
        os.chown(path, UID, -1)
    elif kind == "folder":
        path.mkdir()
        os.chown(path, UID, -1)
    else:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(str(path))
    began = time.monotonic()
    place.refused("No such device" if kind == "socket" else "not all of it are plain files")
    assert time.monotonic() - began < 5


@pytest.mark.skipif(not IS_ROOT, reason="gives files away")
def test_a_file_that_the_user_may_not_read_is_not_read_for_him(place):
    path = place.image / "core-7.img"
    path.chmod(0o600)
    os.chown(path, 0, 0)
    place.refused("core-7.img: Permission denied")


@pytest.mark.parametrize("name", ["", ".", "..", "../etc", "/etc", "a/b"])
def test_an_image_is_a_folder_in_the_job_s_own(place, name):
    place.name = name
    place.refused("is no folder's name")


def test_an_image_that_is_not_there_is_named(place):
    place.name = "step-1"
    place.refused("image step-1: step-1: No such file")


# --- seals of others ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"job_id": 8}, f"is of job 7 of user {UID}, not of 8 of user {UID}"),
        ({"uid": UID if not IS_ROOT else 0, "job_id": 7}, "not of 7 of user 0"),
        ({"restart": 0}, "is of run 0 of job 7, and this is run 0"),
    ],
)
def test_a_seal_of_another_job_user_or_run_does_not_count(place, changed, words):
    if changed.get("uid") == UID:
        pytest.skip("needs root")
    place.refused(words, **changed)


def test_an_image_of_two_runs_ago_counts_if_the_run_between_made_none(place):
    assert place.fetch(restart=2).restart == 0


def test_a_seal_by_another_key_does_not_count(place):
    place.refused(NOT_OURS, key=bytes(KEY_BYTES))


def test_a_seal_that_was_made_anew_without_the_key_does_not_count(place):
    content = (place.image / SEAL).read_bytes().partition(b"\n")[2]
    place.change(content.replace(b'"root": 7', b'"root": 1'))
    place.refused(NOT_OURS)


def test_a_seal_beside_another_image_does_not_count_for_it(place):
    (place.root / "core-7.img").write_bytes(b"other registers")
    (place.root / SEAL).unlink()
    Seal.of(place.root, place.job, 7, (5,), ()).write(place.root, KEY)
    result(keep(place.root, place.job, "a2"), 30, "keep")
    other = next(path for path in place.job.dir.glob("step-*") if path.name != place.name)
    shutil.copy(other / SEAL, place.image / SEAL)
    place.refused("core-7.img was changed since it was sealed")


@pytest.mark.parametrize("kept", [0, 1, 63, 64, 65, 200])
def test_a_seal_that_was_cut_does_not_count(place, kept):
    path = place.image / SEAL
    path.write_bytes(path.read_bytes()[:kept])
    place.refused(NOT_OURS)


@pytest.mark.parametrize("text", [b"\xff" * 100, b"\n\n\n", b"{}" * 5000, "é".encode() + b"\n{}"])
def test_a_seal_of_any_bytes_does_not_count(place, text):
    (place.image / SEAL).write_bytes(text)
    place.refused(NOT_OURS)


def test_a_seal_without_end_is_not_read_to_its_end(place):
    with (place.image / SEAL).open("r+b") as file:
        file.truncate(1 << 40)
    began = time.monotonic()
    place.refused(f"longer than {module.LARGEST_SEAL} bytes")
    assert time.monotonic() - began < 5


def test_a_long_listing_is_read_whole_and_one_that_is_too_long_is_not_written(place, monkeypatch):
    files = {f"core-{n}.img": (1, hashlib.sha256(b"x").hexdigest()) for n in range(20_000)}
    many = replace(place.sealed, files=files)
    many.write(place.root, KEY)
    assert Seal.read((place.root / SEAL).read_bytes(), KEY, replace(place.job, restart=1)) == many
    monkeypatch.setattr(module, "LARGEST_SEAL", 1 << 20)
    with pytest.raises(DriverError, match="20000 files is too large"):
        many.write(place.root, KEY)


@pytest.mark.parametrize(
    "keys",
    [
        {"format": 2},
        {"format": 1},
        {"format": 1, "files": {"../../etc/cron.d/x": [0, ""]}},
        {"format": 1, "files": {SEAL: [0, ""]}},
        [],
    ],
)
def test_what_root_sealed_in_another_way_is_not_restored(place, keys):
    if isinstance(keys, dict) and "files" in keys:
        whole = json.loads((place.image / SEAL).read_bytes().partition(b"\n")[2])
        keys = {**whole, **keys}
    content = json.dumps(keys).encode()
    mac = hmac.digest(KEY, content, "sha256").hex().encode()
    (place.image / SEAL).write_bytes(mac + b"\n" + content)
    place.refused("sealed by another version")


def test_hundreds_of_files_are_handed_over(place):
    for number in range(600):
        (place.root / f"core-{number}.img").write_bytes(b"x")
    (place.root / SEAL).unlink()
    Seal.of(place.root, place.job, 7, (5,), ()).write(place.root, KEY)
    result(keep(place.root, place.job, "a2"), 60, "keep")
    place.name = (place.job.dir / "last").readlink().name
    place.fetch()
    assert len(list(place.into.iterdir())) == 600 + len(FILES) - ("core-7.img" in FILES)


# --- the key --------------------------------------------------------------------------------------


def test_a_key_is_made_once_for_root_alone(tmp_path):
    key = key_in(tmp_path / "key")
    assert len(key) == KEY_BYTES
    assert key_in(tmp_path / "key") == key
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_a_key_of_another_place_is_taken(tmp_path):
    (tmp_path / "key").write_bytes(KEY)
    (tmp_path / "key").chmod(0o400)
    assert key_in(tmp_path / "key") == KEY


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o660, 0o602])
def test_a_key_that_others_can_read_or_write_is_none(tmp_path, mode):
    (tmp_path / "key").write_bytes(KEY)
    (tmp_path / "key").chmod(mode)
    with pytest.raises(ConfigError, match="mode 0600"):
        key_in(tmp_path / "key")


@pytest.mark.skipif(not IS_ROOT, reason="gives files away")
def test_a_key_of_somebody_else_is_none(tmp_path):
    (tmp_path / "key").write_bytes(KEY)
    (tmp_path / "key").chmod(0o600)
    os.chown(tmp_path / "key", UID, -1)
    with pytest.raises(ConfigError, match="file of root's"):
        key_in(tmp_path / "key")


@pytest.mark.parametrize("content", [b"", KEY[:-1]])
def test_a_key_that_was_cut_is_none(tmp_path, content):
    """An empty one would let anybody seal."""
    (tmp_path / "key").write_bytes(content)
    (tmp_path / "key").chmod(0o600)
    with pytest.raises(ConfigError, match=f"{len(content)} bytes, a key has 32"):
        key_in(tmp_path / "key")


def test_a_key_that_is_a_link_or_a_pipe_is_none(tmp_path):
    (tmp_path / "real").write_bytes(KEY)
    (tmp_path / "real").chmod(0o600)
    (tmp_path / "key").symlink_to("real")
    with pytest.raises(ConfigError, match="a link"):
        key_in(tmp_path / "key")
    (tmp_path / "key").unlink()
    (tmp_path / "key").symlink_to("nowhere")
    with pytest.raises(ConfigError, match="a link"):
        key_in(tmp_path / "key")
    (tmp_path / "key").unlink()
    os.mkfifo(tmp_path / "key", 0o600)
    with pytest.raises(ConfigError, match="mode 0600"):
        key_in(tmp_path / "key")


def test_a_key_whose_maker_was_killed_is_made_anew(tmp_path):
    (tmp_path / ".key.new").write_bytes(b"half")
    assert len(key_in(tmp_path / "key")) == KEY_BYTES


# --- the program's output -------------------------------------------------------------------------


def test_the_output_becomes_as_long_as_it_was_and_no_link_is_followed(place):
    with (place.job.dir / OUTPUT).open("ab") as file:
        file.write(b"step 2\n")
    if IS_ROOT:
        os.chown(place.job.dir / OUTPUT, UID, -1)
    cut_output(place.job, 7)
    assert (place.job.dir / OUTPUT).read_bytes() == b"step 1\n"
    (place.job.dir / OUTPUT).rename(place.job.dir / "precious")
    (place.job.dir / OUTPUT).symlink_to("precious")
    with pytest.raises(DriverError, match=OUTPUT):
        cut_output(place.job, 0)
    assert (place.job.dir / "precious").read_bytes() == b"step 1\n"
