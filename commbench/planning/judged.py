"""The step model held against published runs: fitted on one half of each GPU kind, judged on the other."""

from dataclasses import dataclass, replace

from commbench.planning.efficiency import Efficiency, efficiency_of, fitted, machine_of
from commbench.planning.flops import model_flops_per_token, utilisation
from commbench.planning.ledger import Ledger, ledger
from commbench.planning.published import PublishedRun, kinds, published_runs, recounted_percent, suspicion
from commbench.planning.step import Prediction, account, predict_step


@dataclass(frozen=True)
class JudgedRun:
    """A published run beside its prediction; MFU and its interval in percent, None where nothing is predicted.

    role: "fits", "judges", or "shown" for a GPU kind with one row. suspicion: what is wrong with the printed figure.
    at_bf16: for an fp8 run the MFU that the model predicts with matrix products at bf16 speed.
    """

    run: PublishedRun
    mfu: float
    hfu: float
    predicted: float | None
    low: float | None
    high: float | None
    prediction: Prediction | None
    ledger: Ledger
    role: str
    suspicion: str
    at_bf16: float | None = None

    @property
    def error(self) -> float | None:
        """Predicted minus measured, in points of MFU."""
        return None if self.predicted is None else self.predicted - self.mfu

    @property
    def notes(self) -> list[str]:
        """What a reader of the row must know, a sentence each."""
        told = [note for note in (self.suspicion, self.run.note) if note]
        if self.prediction and not self.ledger.fits:
            over = f"{-self.ledger.headroom / 1e9:.1f} GB too much at the {self.ledger.first_too_much}"
            told.append(f"by this ledger it does not fit: {over}")
        if self.at_bf16 is not None:
            told.append(f"with matrix products at bf16 speed {self.at_bf16:.1f} % would be predicted")
        return told


@dataclass(frozen=True)
class Verdict:
    """Mean absolute errors on the held-out half, in points: the model's, and that of quoting the mean MFU of the other
    half of the same GPU kind. llama_order: whether 43 > 41 > 38 is kept."""

    rows: int
    error: float
    naive: float
    llama_order: bool
    efficiencies: dict[str, Efficiency]


def judge() -> tuple[list[JudgedRun], Verdict]:
    """All published runs with their predictions, and how good these are where they were not fitted."""
    runs = published_runs()
    several = {kind for kind, rows in kinds(runs).items() if len(rows) > 1}
    rows = [_judged(run, "shown" if run.gpu.name not in several else "fits" if run.fits else "judges") for run in runs]
    held_out = [row for row in rows if row.role == "judges"]
    naive = []
    for row in held_out:
        quoted = [other.mfu for other in rows if other.role == "fits" and other.run.gpu.name == row.run.gpu.name]
        naive.append(abs(sum(quoted) / len(quoted) - row.mfu))
    llama = [row.predicted for row in rows if row.run.name.startswith("Llama 3.1 405B")]
    error = sum(abs(row.error) for row in held_out) / len(held_out)
    ordered = all(first > second for first, second in zip(llama, llama[1:]))
    return rows, Verdict(len(held_out), error, sum(naive) / len(naive), ordered, fitted())


def _judged(run: PublishedRun, role: str) -> JudgedRun:
    model, hardware = recounted_percent(run)
    filled = ledger(run.shape, run.layout, run.job, run.gpu)
    if run.links is None or efficiency_of(run.gpu) is None:
        return JudgedRun(run, model, hardware, None, None, None, None, filled, "shown", suspicion(run))
    machine = machine_of(run.gpu, run.links)
    told = predict_step(run.shape, run.layout, run.job, machine, run.assume)
    middle, low, high = (_percent(run, us) for us in (told.account.step_us, told.high_us, told.low_us))
    at_bf16 = None
    if run.job.precision == "fp8":
        slower = account(run.shape, run.layout, replace(run.job, precision="bf16"), machine, run.assume)
        at_bf16 = _percent(run, slower.step_us)
    return JudgedRun(run, model, hardware, middle, low, high, told, filled, role, suspicion(run), at_bf16)


def _percent(run: PublishedRun, step_us: float) -> float:
    """MFU of a step time in the run's convention."""
    rate = run.job.sequence * run.job.global_batch / step_us * 1e6 / run.job.gpus
    flops = model_flops_per_token(run.shape, run.job.sequence, run.convention)
    return 100 * utilisation(flops, rate, run.gpu.bf16_TFLOPs)
