"""Who and where must not be in a report: every planted name, address and secret is looked for in what comes out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.report.anonymous import Identity, anonymiser, cleaned, texts_in

NOBODY = Identity()


def _clean(*texts: str, identity: Identity = NOBODY) -> str:
    clean = anonymiser(identity, texts)
    return "\n".join(clean(text) for text in texts)


@pytest.mark.parametrize(
    ("text", "planted"),
    [
        ("/home/anna.k/models/qwen", "anna.k"),
        ("C:\\Users\\Berta\\vllm", "Berta"),
        ("/Users/carl/Library", "carl"),
        ("/data/home/dora/hf", "dora"),
        ("HOSTNAME=spark-3f2a", "spark-3f2a"),
        ("LOGNAME: emil99", "emil99"),
        ("spark-7711:4711:4801 [0] NCCL INFO Bootstrap : Using eth0", "spark-7711"),
        ("[W1130 12:00:00 socket.cpp:200] The client socket has failed to connect to [gx10-44ab]:29500", "gx10-44ab"),
        ("http://gx10-bureau:8000/v1/models", "gx10-bureau"),
        ("tcp://192.168.178.44:29500", "192.168.178.44"),
        ("listening on 10.11.12.13", "10.11.12.13"),
        ("fe80::1ff:fe23:4567:890a is up", "fe80::1ff:fe23:4567:890a"),
        ("mac 4c:bb:47:12:34:56", "4c:bb:47:12:34:56"),
        ("ssh fritz@gx10-44ab", "fritz"),
        ("node spark-1.lan answers", "spark-1.lan"),
        ("GPU-1b2c3d4e-1111-2222-3333-444455556666", "1b2c3d4e-1111"),
        ("Authorization: Bearer abcdefgh12345678", "abcdefgh12345678"),
        ("--api-key sk-aaaabbbbccccddddeeee", "sk-aaaabbbb"),
        ("HF_TOKEN=hf_abcdefghijklmnopqrst", "hf_abcdefgh"),
        ("https://user:pa55word@index.corp/simple", "pa55word"),
    ],
)
def test_a_planted_name_address_or_secret_does_not_come_out(text: str, planted: str) -> None:
    assert planted in text
    assert planted not in _clean(text)


def test_a_name_learned_in_one_place_is_removed_everywhere() -> None:
    shown = _clean(
        "cwd /home/gisela/vllm", "owner is Gisela (gisela)", "spark-7711:1:2 [3] NCCL INFO x", "rank 0 on SPARK-7711.local, gisela2"
    )
    assert "isela)" not in shown
    assert "7711" not in shown
    assert "gisela2" in shown, "another word"


def test_what_this_machine_is_called_is_removed_though_no_text_says_so() -> None:
    identity = Identity(frozenset({"gx10-0815.fritz.box"}), frozenset({"hildegard"}), frozenset({"/mnt/nvme/hilde"}))
    shown = _clean("at /mnt/nvme/hilde/cache by hildegard on gx10-0815", identity=identity)
    assert shown == "at ~/cache by <user> on <host>"


@pytest.mark.parametrize(
    "text",
    [
        "nvidia-cublas-cu12==12.8.4.1 nvidia-curand-cu12==10.3.9.90",
        "vllm 0.32.0 torch 2.9.1+cu130 driver 580.95.05",
        "Uvicorn running on http://127.0.0.1:8000 and http://0.0.0.0:30000, http://localhost:8000",
        "see https://github.com/vllm-project/vllm/issues/33416 and https://huggingface.co/Qwen/Qwen3-8B",
        "at::Tensor c10::Error std::vector<int>::at 12:34:56 EngineCore_0",
        "sparkproof run --engine vllm==0.32.0@docker:vllm/vllm-openai:v0.32.0",
        "sha256:0123 image vllm@sha256:abcdef",
        "threading.local is used; /rootfs and chroot stay",
    ],
)
def test_what_a_report_needs_stays(text: str) -> None:
    assert _clean(text) == text


def test_root_is_nobody_but_its_home_is_a_home() -> None:
    assert _clean("/root/.cache/x by root") == "~/.cache/x by root"


def test_short_and_common_names_do_not_tear_words_out_of_a_report() -> None:
    assert _clean("/home/al/x uses al dente", "/home/model/y the model runs") == "~/x uses al dente\n~/y the model runs"


def test_mappings_and_lists_are_cleaned_throughout() -> None:
    value = {"HOME": "/home/ida", "argv": ["--model", "/home/ida/m"], "n": 3, "none": None}
    clean = anonymiser(NOBODY, list(texts_in(value)))
    assert cleaned(value, clean) == {"HOME": "~", "argv": ["--model", "~/m"], "n": 3, "none": None}


_NAMES = st.text(alphabet="abcdefghijklmnopqrstuvwxyz0123456789-", min_size=4, max_size=20).filter(
    lambda name: name[0].isalpha() and name[-1].isalnum() and name[1:4].isalpha()
)


@given(_NAMES, st.text(max_size=40))
def test_any_user_name_in_a_home_folder_is_gone(name: str, around: str) -> None:
    text = f"{around} /home/zz{name}/x {around}"
    assert f"zz{name}" not in _clean(text)


@given(st.text(max_size=300))
def test_any_text_is_cleaned_and_cleaning_again_changes_nothing(text: str) -> None:
    clean = anonymiser(NOBODY, [text])
    assert clean(clean(text)) == clean(text)
