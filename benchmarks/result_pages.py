"""The pages that programs make: which program, with which arguments, and which sources change its figures.

`remake.py` makes them. Sources are narrow on purpose: what a page's figures come from, and not all that it imports.
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from parts import part_of

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "plugin/pytest_roofline"
# In the head of a page that is not of its sources, with the day since when, and what changed.
STALE = re.compile(r"\*\*Stale since \d{4}-\d\d-\d\d\*\*: \S(?:.|\n(?!\n))*")
QUIET = "a quiet machine"


@dataclass(frozen=True, slots=True)
class Making:
    """How a program makes a page, or its part of one.

    Args:
        page: from the root of the repository.
        program: from there, with the option that names the part, if any; parts bear this name.
        arguments: that follow it; `{page}` stands for the page.
        before: commands that record or fetch what the program reads, run first. As in a makefile, the status of one
            that begins with `-` does not matter: where tests fail, a page on failed tests is made.
        minutes: that it takes on two cores.
        sources: files and folders that change its figures, beside the program; none where a test compares the page
            with what the program makes, or the line names its commit.
        needs: in words.
        whole: the page is the program's, apart from the parts of others.
    """

    page: str
    program: str
    arguments: str = "-o {page}"
    before: tuple[str, ...] = ()
    minutes: float = 0.1
    sources: tuple[str, ...] = ()
    needs: str = ""
    whole: bool = True

    @property
    def name(self) -> str:
        """The name of the page, without folder and ending."""
        return Path(self.page).stem

    @property
    def all_sources(self) -> tuple[str, ...]:
        """The program and its sources; none where no source is named."""
        return tuple(sorted({self.program.split()[0], *self.sources})) if self.sources else ()

    @property
    def command(self) -> list[str]:
        """The words that follow `python`."""
        return [*self.program.split(), *shlex.split(self.arguments.format(page=self.page))]

    def head(self, text: str) -> str:
        """Return what stands before the first table, title or part, in the page or in the program's part.

        Args:
            text: the page.

        Raises:
            BadFile: the page has no place for the part.
        """
        own = text if self.whole else part_of(text, self.program)
        return re.split(r"\n(?=\||##|<!--)", own.lstrip("# \n"), maxsplit=1)[0]

    def mark(self, text: str) -> str:
        """Return the sentences by which a page says since when it is stale; empty where it has none."""
        match = STALE.search(self.head(text))
        return " ".join(match[0].split()) if match else ""


def _stats(*names: str) -> tuple[str, ...]:
    return tuple(f"{PACKAGE}/stats/{name}" for name in names)


# The rule of a run, and that of two sides in turn.
RULE = _stats(
    "analyses.py", "odd_sessions.py", "outlook.py", "priors.json", "shared.py", "spread.py", "stats.py", "verdicts.py"
)  # fmt: skip
PAIRED = _stats(
    "analyses.py", "outlook.py", "paired.py", "priors.json", "spread.py", "stats.py", "verdicts.py"
)
ATTENTION = "kernels/roofline_kernels/attention"
# Where runs are saved by name, and where those of the page are kept.
SAVED, KEPT = ".roofline/runs", "docs/results/runs/transformer"
# By the name of a run, what pytest records in it.
TRANSFORMER = {
    f"transformer-{name}": f"perf_tests/{tests} --roofline-tier=nightly"
    for name, tests in {
        "steps": "test_transformer.py -k 'sdpa-eager and fp32 and (small and (c128 or c512) "
        "or small-forward-c1024 or medium-forward-c128) and not small-backward-c512' --roofline-budget=2",
        "steps-bf16": "test_transformer.py -k 'sdpa-eager and bf16 and small and (c128 or c512) "
        "and not small-backward' --roofline-budget=2",
        "steps-compiled": "test_transformer.py -k 'small and c512-fp32-sdpa-compile "
        "and not backward' --roofline-budget=2",
        "warm-up": "test_transformer.py -k 'transformer_warm_up and (small or medium-forward) "
        "and not backward' --roofline-budget=4",
        "memory": "test_transformer.py -k 'transformer_memory and small and (c128-fp32 or c512-bf16_autocast)'",
        "profile": "test_transformer.py -k 'small-forward-c512-fp32-naive-eager or small-step-c128-fp32-sdpa-eager' "
        "--roofline-profile",
        "ranks": "test_transformer_ranks.py -k tiny-2ranks --roofline-budget=4",
    }.items()
}
TRANSFORMER_FILES = " ".join(f"{SAVED}/{name}.jsonl" for name in TRANSFORMER)
MAKINGS = (
    Making(
        "docs/results/detector-quality.md",
        "benchmarks/detector_quality.py",
        minutes=60,
        sources=(
            *RULE,
            *(
                f"benchmarks/detectors/{name}.py"
                for name in ("drawing", "peers", "recording", "rows", "simple", "twin")
            ),
        ),
    ),
    Making(
        "docs/results/ab-quality.md",
        "benchmarks/ab_quality.py",
        minutes=60,
        sources=(
            *PAIRED,
            *(
                f"benchmarks/detectors/{name}.py"
                for name in ("drawing", "in_turn", "in_turn_rows", "peers", "rows")
            ),
        ),
    ),
    Making(
        "docs/results/ab-quality.md",
        "benchmarks/ab_page.py",
        minutes=15,
        sources=(
            f"{PACKAGE}/ab/making.py",
            f"{PACKAGE}/ab/running.py",
            f"{PACKAGE}/ab/side_process.py",
        ),
        needs=QUIET,
        whole=False,
    ),
    Making(
        "docs/results/bisect-quality.md",
        "benchmarks/bisect_quality.py",
        minutes=5,
        sources=(*PAIRED, f"{PACKAGE}/bisect/clear.py", f"{PACKAGE}/bisect/search.py"),
    ),
    Making(
        "docs/results/history-quality.md",
        "benchmarks/history_quality.py",
        minutes=20,
        sources=(
            f"{PACKAGE}/many/recent.py",
            f"{PACKAGE}/many/steps.py",
            "benchmarks/detectors/rows.py",
            "benchmarks/many/nights.py",
            "benchmarks/many/watching.py",
        ),
        needs="Apache Otava on PYTHONPATH",
    ),
    Making(
        "docs/results/many-machines.md",
        "benchmarks/many_runs.py",
        minutes=30,
        sources=(
            f"{PACKAGE}/many",
            *(
                f"benchmarks/many/{name}.py"
                for name in (
                    "bench_tests",
                    "commands",
                    "faults",
                    "fleets",
                    "logs",
                    "peers",
                    "rollouts",
                )
            ),
        ),
        needs=QUIET,
    ),
    Making("docs/results/flash-resources.md", "benchmarks/flash_resources.py"),
    Making(
        "docs/results/flash-resources.md",
        "benchmarks/flash_variants.py",
        minutes=5,
        sources=(
            f"{ATTENTION}/architectures.py",
            f"{ATTENTION}/configurations.json",
            f"{ATTENTION}/configurations.py",
            f"{ATTENTION}/triton_forward.py",
            f"{ATTENTION}/triton_gluon_forward.py",
            f"{ATTENTION}/triton_tiles.py",
            f"{PACKAGE}/kernel_gate/assembler.py",
            f"{PACKAGE}/kernel_gate/compile.py",
            "benchmarks/tuning/candidates.py",
            "benchmarks/tuning/compiling.py",
            "benchmarks/tuning/problems.py",
        ),
        whole=False,
    ),
    Making("docs/results/flash-resources.md", "benchmarks/attention_model.py", whole=False),
    Making("docs/results/floors.md", "baselines/published/build.py", ""),
    Making(
        "docs/results/floors.md",
        "benchmarks/day_one.py",
        minutes=3,
        sources=(
            *_stats(
                "analyses.py", "limits.py", "outlook.py", "spread.py", "stats.py", "verdicts.py"
            ),
            "baselines/published/floors.py",
        ),
        whole=False,
    ),
    Making("docs/results/published.md", "baselines/published/build.py", ""),
    Making("docs/results/timing-rules.md", "benchmarks/timing_rules.py"),
    Making(
        "docs/results/timing-rules.md",
        "benchmarks/memcpy_sweep.py",
        minutes=10,
        sources=(
            f"{PACKAGE}/engine/blocks",
            f"{PACKAGE}/engine/sizing",
            f"{PACKAGE}/engine/timing.py",
            "benchmarks/suites/sweep_by_rule.py",
        ),
        needs=QUIET,
        whole=False,
    ),
    Making(
        "docs/results/timing-rules.md",
        "benchmarks/rounds.py",
        minutes=8,
        sources=(
            f"{PACKAGE}/processes/children.py",
            f"{PACKAGE}/processes/fork_server.py",
            f"{PACKAGE}/processes/round_parent.py",
            f"{PACKAGE}/plugin/round_child.py",
            f"{PACKAGE}/plugin/round_server.py",
            "benchmarks/load_time.py",
        ),
        needs=QUIET,
        whole=False,
    ),
    Making(
        "docs/results/ranks.md",
        "benchmarks/ranks.py",
        minutes=20,
        sources=(
            f"{PACKAGE}/ranks",
            f"{PACKAGE}/processes/fork_server.py",
            *(
                f"benchmarks/rank_figures/{name}.py"
                for name in (
                    "blame",
                    "delay",
                    "ending",
                    "faults",
                    "launching",
                    "pairing",
                    "runs",
                    "speed",
                )
            ),
            "tests/slurm.py",
        ),
        needs=f"{QUIET}, Open MPI and Slurm",
    ),
    Making(
        "docs/results/reliability.md",
        "benchmarks/reliability.py",
        minutes=60,
        sources=(
            f"{PACKAGE}/processes",
            f"{PACKAGE}/ranks/listener.py",
            f"{PACKAGE}/ranks/rank_server.py",
            f"{PACKAGE}/ranks/rendezvous.py",
            "benchmarks/rank_figures/runs.py",
            "tests/fuzz/targets.py",
            "tests/ranks/test_rendezvous.py",
        ),
        needs="root, Open MPI and Slurm",
    ),
    Making(
        "docs/results/transformer.md",
        "benchmarks/transformer_page.py",
        f"{' '.join(TRANSFORMER)} -o {{page}}",
        before=(
            f"rm -f {TRANSFORMER_FILES}",
            *(
                f"python -m pytest {tests} --roofline-save={name} -p no:cacheprovider -q"
                for name, tests in TRANSFORMER.items()
            ),
            f"sed --in-place 's#{ROOT}/##g' {TRANSFORMER_FILES}",
            f"cp {TRANSFORMER_FILES} {KEPT}",
        ),
        minutes=20,
        sources=(
            "kernels/roofline_kernels/decoder",
            "kernels/roofline_kernels/training",
            "kernels/roofline_kernels/transformer.py",
            "kernels/roofline_kernels/transformer_work.py",
            f"{PACKAGE}/report/figures.py",
            f"{PACKAGE}/report/inside.py",
            "perf_tests/test_transformer.py",
            "perf_tests/test_transformer_ranks.py",
        ),
        needs=QUIET,
    ),
    Making(
        "docs/results/versions.md",
        "benchmarks/versions.py",
        ".tox/oldest/tmp .tox/image/tmp -o {page}",
        before=("rm -rf .tox/oldest/tmp .tox/image/tmp", "-tox run -e oldest,image"),
        minutes=30,
        sources=(
            f"{PACKAGE}/baselines/exact.py",
            "constraints-image.txt",
            "constraints-oldest.txt",
        ),
        needs="tox",
    ),
    Making(
        "docs/results/versions.md",
        "benchmarks/versions.py --tritons",
        "wheels -o {page}",
        before=tuple(
            f"python -m pip download --quiet --no-deps --dest wheels triton=={version}"
            for version in ("3.6.0", "3.9.0")
        ),
        minutes=10,
        sources=(ATTENTION, f"{PACKAGE}/baselines/exact.py", f"{PACKAGE}/kernel_gate"),
        needs="uv",
        whole=False,
    ),
    Making("docs/reference/api.md", "benchmarks/api_page.py", ""),
    Making("docs/index.md", "benchmarks/on_hardware.py --table", "", whole=False),
    Making("docs/authors/seeds.md", "benchmarks/seed_page.py", ""),
    Making("docs/pictures/report.png", "benchmarks/readme_pictures.py", "report", needs="Chromium"),
    Making(
        "docs/pictures/terminal.svg",
        "benchmarks/readme_pictures.py",
        "terminal",
        minutes=2,
        needs=QUIET,
    ),
)
