import os
import signal
import sys
from functools import partial

import psutil
import pytest

from runners.envs import command
from runners.envs.command import run_command

FOREVER = "import time, sys, os, subprocess; child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
PRINTS = "print(os.getpid(), child.pid, file=sys.stderr, flush=True); time.sleep(600)"


def run(code, tmp_path, **more):
    return run_command([sys.executable, "-c", code], environment=os.environ, folder=tmp_path, timeout_s=more.pop("timeout_s", 60), **more)


def gone(pid):
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_output_messages_and_exit_code_are_kept_apart(tmp_path):
    done = run("import sys; print('out'); print('told', file=sys.stderr); sys.exit(7)", tmp_path)
    assert (done.returncode, done.output, done.messages) == (7, "out\n", ("told",))


def test_messages_come_line_by_line_and_never_unbounded(tmp_path):
    seen = []
    run("import sys; sys.stderr.write('a\\n' + 'x' * 10_000 + '\\n')", tmp_path, on_message=seen.append)
    assert seen[0] == "a"
    assert max(map(len, seen)) == 4096


def test_child_reads_no_input_and_starts_in_its_folder(tmp_path):
    done = run("import sys, os; print(repr(sys.stdin.read()), os.getcwd())", tmp_path)
    assert done.output == f"'' {tmp_path.resolve()}\n"


def test_interruption_ends_the_whole_group_before_it_goes_on(tmp_path):
    pids = []

    def interrupt(line):
        pids.extend(map(int, line.split()))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(FOREVER + PRINTS, tmp_path, on_message=interrupt)
    psutil.wait_procs([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], timeout=10)
    assert len(pids) == 2
    assert all(gone(pid) for pid in pids)


def test_command_past_its_time_is_ended_and_has_no_exit_code(tmp_path):
    seen = []
    done = run(FOREVER + PRINTS, tmp_path, timeout_s=1, on_message=seen.append)
    assert done.returncode is None
    psutil.wait_procs([psutil.Process(pid) for pid in map(int, seen[0].split()) if psutil.pid_exists(pid)], timeout=10)
    assert all(gone(pid) for pid in map(int, seen[0].split()))


def test_child_that_ignores_a_polite_end_is_ended_for_good(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "end_group", partial(command.end_group, patience_s=0.2))
    deaf = "import signal, time, sys, os; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    pids = []

    def interrupt(line):
        pids.append(int(line))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(deaf + "print(os.getpid(), file=sys.stderr, flush=True); time.sleep(600)", tmp_path, on_message=interrupt)
    assert gone(pids[0])


def test_missing_program_is_an_oserror(tmp_path):
    with pytest.raises(OSError, match="no-such-program"):
        run_command([str(tmp_path / "no-such-program")], environment=os.environ, folder=tmp_path, timeout_s=5)


def test_killed_child_reports_its_signal(tmp_path):
    assert run("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", tmp_path).returncode == -signal.SIGKILL
