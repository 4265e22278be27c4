"""One isolated environment per engine version, made once, by uv.

Trap: two engines share an environment, or a half-made one is used after Ctrl-C, and results are filed under a build that was never
installed. Rule: an environment is named by everything that decides its content, made under a lock, stamped last, and its wheel set is read
back from it each time; without a stamp, or when it no longer holds what the stamp says, it is made anew.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout
from packaging.specifiers import SpecifierSet

from results.redact import plain, redact
from runners.envs.build import EngineBuild, read_build
from runners.envs.command import Finished, run_command
from runners.envs.pip_settings import UvSettings
from runners.envs.pythons import Candidate, choose
from runners.envs.recipes import InstallPlan
from runners.envs.stubs import write_stub
from runners.envs.uv_output import Failure, diagnose
from runners.errors import InfrastructureError, InstallFailed, SparkproofError, Unsupported

Progress = Callable[[str], None]

STAMP = "sparkproof-environment.json"
_INSTALL_TIMEOUT_S = 3 * 3600.0
_COMPILE_TIMEOUT_S = "1800"
"""uv's own limit of 60 s per file was passed on a busy machine with two cores."""
_QUIET = {"NO_COLOR": "1", "UV_NO_PROGRESS": "1"}
NOT_INHERITED = frozenset(
    {"VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONHOME", "UV_PROJECT_ENVIRONMENT", "UV_PYTHON", "UV_SYSTEM_PYTHON"}
)
_NOISE = re.compile(r"^ [+~-] |^Activate with|^Using (?:C?Python)")
_TORCH_CUDA = re.compile(r"^cuda[^=\n]{0,40}=\s*['\"]([0-9.]{1,20})['\"]", re.MULTILINE)
_TRY_ANOTHER = frozenset({"python", "torch_cpu_missing"})


@dataclass(frozen=True)
class Environment:
    """A complete environment: its interpreter, its folder and what it holds."""

    python: Path
    root: Path
    build: EngineBuild


class _DoesNotFit(Exception):
    """This Python, or this source of torch, cannot be used; another may."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure))
        self.failure = failure


@dataclass(frozen=True)
class Maker:
    """Makes environments below `folder` with the uv binary.

    `settings` and `pythons` (the interpreters found, our own first) take seconds to read, so they are asked for only for making. `uv` is
    None where it is not installed: what is there can be used all the same.
    """

    folder: Path
    uv: Path | None
    settings: Callable[[], UvSettings]
    pythons: Callable[[], Sequence[Candidate]]
    progress: Progress = lambda line: None
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def ensure(self, plan: InstallPlan) -> Environment:
        """The environment of `plan`, made if it is not there yet.

        Raises InstallFailed (the release's fault), InfrastructureError (network, disk, a source of packages that is not configured) or
        Unsupported (no Python that the release accepts).
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for root in sorted(self.folder.glob(f"{plan.engine}-{plan.version}-cp*-{plan.digest}")):
                if (ready := self._reuse(root, plan, lambda line: None)) is not None:
                    return ready
            return self._make_with_some_python(plan)
        except OSError as error:
            raise InfrastructureError(
                f"the folder of environments cannot be used: {error.strerror or error}.",
                where=str(error.filename or self.folder),
                todo="Make it writable, free some space, or set SPARKPROOF_CACHE to another folder.",
            ) from error

    def _make_with_some_python(self, plan: InstallPlan) -> Environment:
        if self.uv is None:
            raise InfrastructureError("uv is not in our environment.", todo="Remove the .venv folder of the checkout and start again.")
        candidates = choose(self.pythons(), SpecifierSet(plan.python))
        if not candidates:
            raise Unsupported(f"{plan.distribution} needs Python {plan.python}, and none is here.", todo="Install one of these Pythons.")
        settings = self.settings()
        attempts = [(c, plan.torch_backend) for c in candidates]
        if plan.wants_cpu_torch and plan.torch_backend is None and not self.environ.get("UV_TORCH_BACKEND"):
            attempts.append((candidates[0], "cpu"))
        first: Failure | None = None
        for candidate, torch_backend in attempts:
            try:
                return self._make_locked(plan, candidate, torch_backend, settings)
            except _DoesNotFit as error:
                first = first or error.failure
                self.progress(f"{plan.distribution} does not fit Python {candidate.version} with the configured sources")
        raise _nothing_fits(plan, first)

    def _root(self, plan: InstallPlan, candidate: Candidate) -> Path:
        return self.folder / f"{plan.engine}-{plan.version}-{candidate.tag}-{plan.digest}"

    def _make_locked(self, plan: InstallPlan, candidate: Candidate, torch_backend: str | None, settings: UvSettings) -> Environment:
        root = self._root(plan, candidate)
        with self._lock(root):
            if (ready := self._reuse(root, plan, self.progress)) is not None:
                return ready
            try:
                return self._make(root, plan, candidate, torch_backend, settings)
            except _DoesNotFit:
                shutil.rmtree(root, ignore_errors=True)
                raise

    @contextlib.contextmanager
    def _lock(self, root: Path) -> Iterator[None]:
        lock = FileLock(f"{root}.lock")
        maker = Path(f"{root}.maker")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            self.progress(f"process {os.getpid()} waits for {_who(maker)}, which is making {root.name}")
            lock.acquire()
        try:
            maker.write_text(f"process {os.getpid()} on {platform.node()}", encoding="utf-8")
            yield
        finally:
            maker.unlink(missing_ok=True)
            lock.release()

    def _reuse(self, root: Path, plan: InstallPlan, tell: Progress) -> Environment | None:
        """The environment if it is complete and unchanged; otherwise None, and why, if there is one at all."""
        python = root / "bin" / "python"
        try:
            stamp = json.loads((root / STAMP).read_text(encoding="utf-8"))
            recorded = EngineBuild(**{**stamp["build"], "wheels": tuple(stamp["build"]["wheels"])})
        except (OSError, ValueError, KeyError, TypeError):
            if root.exists():
                tell(f"{root.name} is only half made; it is made anew")
            return None
        if not python.exists():
            tell(f"{root.name} has lost its Python; it is made anew")
            return None
        try:
            found = read_build(python, plan.engine, plan.version, plan.distribution, self._environment())
        except InfrastructureError as error:
            tell(f"{root.name} cannot be read ({error.message}); it is made anew")
            return None
        if found != recorded:
            tell(f"{root.name} was changed after it was made; it is made anew")
            return None
        return Environment(python, root, found)

    def _make(self, root: Path, plan: InstallPlan, candidate: Candidate, torch_backend: str | None, settings: UvSettings) -> Environment:
        if root.exists():
            shutil.rmtree(root)
        self.progress(f"making the environment of {plan.distribution} with Python {candidate.version}")
        self._uv(plan, settings, "venv", "--no-project", "--python", candidate.request, str(root))
        python = root / "bin" / "python"
        self._uv(plan, settings, "pip", "install", "--python", str(python), *_options(plan, root, torch_backend), *plan.requires)
        site_packages = next((root / "lib").glob("python3*/site-packages"))
        for name, modules in plan.stubs:
            write_stub(site_packages, name, modules)
        if plan.needs_cuda:
            _require_cuda_torch(site_packages, plan)
        build = read_build(python, plan.engine, plan.version, plan.distribution, self._environment())
        _write_last(root / STAMP, {"build": asdict(build), "plan": asdict(plan)})
        self.progress(f"{plan.distribution}: {len(build.wheels)} packages installed, build {build.digest[:12]}")
        return Environment(python, root, build)

    def _environment(self) -> dict[str, str]:
        return {name: value for name, value in self.environ.items() if name not in NOT_INHERITED}

    def _uv(self, plan: InstallPlan, settings: UvSettings, *arguments: str) -> Finished:
        options = settings.options if arguments[0] == "pip" else ()
        command = [str(self.uv), *arguments[:2], *options, *arguments[2:]]
        environment = {"UV_COMPILE_BYTECODE_TIMEOUT": _COMPILE_TIMEOUT_S, **self._environment(), **settings.environment, **_QUIET}
        try:
            done = run_command(command, environment=environment, folder=self.folder, timeout_s=_INSTALL_TIMEOUT_S, on_message=self._tell)
        except OSError as error:
            raise InfrastructureError(
                f"uv cannot be started: {error.strerror}", where=str(self.uv), todo="Remove .venv and start again."
            ) from error
        if done.returncode is None:
            raise InfrastructureError(
                f"installing {plan.distribution} was ended after {_INSTALL_TIMEOUT_S / 3600:.0f} h.", where="uv", todo="Check the network."
            )
        if done.returncode != 0:
            failure = diagnose(done.messages)
            only_a_try = arguments[0] == "venv" or ("--torch-backend" in arguments and plan.torch_backend is None)
            if failure.cause in _TRY_ANOTHER or (only_a_try and failure.cause == "network"):
                raise _DoesNotFit(failure)
            raise _failed(plan, failure)
        return done

    def _tell(self, line: str) -> None:
        if line.strip() and not _NOISE.match(line):
            self.progress(plain(redact(line.strip()), 300))


def _options(plan: InstallPlan, root: Path, torch_backend: str | None) -> tuple[str, ...]:
    """Options of `uv pip install` for this plan. A package is kept out by an override that never applies."""
    options = (["--torch-backend", torch_backend] if torch_backend else []) + (["--compile-bytecode"] if plan.compile_bytecode else [])
    lines = [*plan.overrides, *(f"{name}; python_version < '0'" for name in plan.without)]
    if lines:
        overrides = root / "overrides.txt"
        overrides.write_text("\n".join(lines) + "\n", encoding="utf-8")
        options += ["--overrides", str(overrides)]
    return tuple(options)


def _who(maker: Path) -> str:
    try:
        return plain(maker.read_text(encoding="utf-8"), 100) or "another process"
    except OSError:
        return "another process"


def _failed(plan: InstallPlan, failure: Failure) -> SparkproofError:
    where = f"uv pip install {' '.join(plan.requires)}"
    if failure.cause == "disk_full":
        return InfrastructureError(
            f"the disk is full:\n{failure}", where=where, todo="Free some space, or set SPARKPROOF_CACHE to a larger disk."
        )
    if failure.cause == "busy":
        return InfrastructureError(f"this node was too busy:\n{failure}", where=where, todo="Try again when it does less.")
    if failure.cause == "network":
        return InfrastructureError(
            f"a source of packages cannot be reached:\n{failure}",
            where=where,
            todo="Check index-url, extra-index-url, find-links, proxy and cert in `python -m pip config list`, or the network.",
        )
    todo = "See whether the index has these packages and whether it asks for credentials." if failure.cause == "not_found" else ""
    return InstallFailed(
        f"{plan.distribution} could not be installed ({failure.cause.replace('_', ' ')}):\n{failure}", where=where, todo=todo
    )


def _nothing_fits(plan: InstallPlan, failure: Failure | None) -> SparkproofError:
    torch = next((r for r in (*plan.overrides, *plan.requires) if r.startswith("torch==")), "torch")
    if failure is not None and plan.wants_cpu_torch and "torch" in str(failure):
        return InfrastructureError(
            f"{plan.distribution} needs {torch}, which no configured source of packages has for a Python found here:\n{failure}",
            where="pip configuration",
            todo="Add a folder or index that has it: `python -m pip config set global.find-links FOLDER` or `global.extra-index-url URL`.",
        )
    if failure is not None and failure.cause == "network":
        return InfrastructureError(
            f"{plan.distribution} needs Python {plan.python}; none is here, and it cannot be downloaded:\n{failure}",
            where="uv venv",
            todo="Install such a Python, for example with the system's package manager.",
        )
    return Unsupported(
        f"{plan.distribution} fits no Python found here (needs {plan.python}):\n{failure}",
        todo="Install another Python, e.g. with `uv python install`.",
    )


def _require_cuda_torch(site_packages: Path, plan: InstallPlan) -> None:
    """torch's own version file says which CUDA it was built with; importing it would cost seconds and may fail on a broken driver."""
    try:
        found = _TORCH_CUDA.search((site_packages / "torch" / "version.py").read_text(encoding="utf-8"))
    except OSError:
        found = None
    if not found:
        raise InstallFailed(
            f"the torch that came with {plan.distribution} is a build without CUDA, on a node with a CUDA device.",
            where=str(site_packages / "torch"),
            todo="Set UV_TORCH_BACKEND to the CUDA of this release (for example cu129 or cu130), or configure an index with CUDA builds.",
        )


def _write_last(path: Path, content: object) -> None:
    part = path.with_suffix(".part")
    with part.open("w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
