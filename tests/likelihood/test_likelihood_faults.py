"""Bad input: one clear error that names term, file, column or event, here and on a cluster.

Events are counted from zero in the whole data set; rows from zero in their file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client

import laddu_dask as ld
from laddu_dask.errors import DataError, EvaluationError, LadduError

NAN, INF = float("nan"), float("inf")
A = ld.parameter("a", initial=0.5)
X = ld.scalar("x")
LINE = ld.Model(1 + A * X)
GOOD = np.array([0.1, 0.5, 1.5, 3.0, 0.2, 0.7, 1.1, 2.2, 0.9, 0.3])

HERE = pytest.param("here", id="here")
CLUSTER = pytest.param("cluster", id="cluster", marks=pytest.mark.cluster)
STORAGES = pytest.mark.parametrize("storage", ["resident", "streaming"])
CALLS = pytest.mark.parametrize("call", ["value", "value_and_gradient"])


@pytest.fixture(params=[HERE, CLUSTER])
def where(request: pytest.FixtureRequest) -> Client | None:
    """None for this process, else a client of the cluster."""
    return None if request.param == "here" else request.getfixturevalue("client")


def write(path: Path, group: int = 4, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path, row_group_size=group)
    return path


def arrays(x: Any = GOOD, weights: Any = None) -> ld.Dataset:
    return ld.Dataset.from_arrays(scalars={"x": x}, weights=weights)


def likelihood(
    where: Client | None = None,
    model: Any = LINE,
    data: ld.Dataset | None = None,
    mc: ld.Dataset | None = None,
    **options: Any,
) -> ld.Likelihood:
    term = ld.NLL(
        model,
        data=arrays() if data is None else data,
        accepted_mc=arrays() if mc is None else mc,
        name="signal",
    )
    options = {"backend": "interpreter", "partitions": 3, "normalization": "general"} | options
    return ld.Likelihood([term], ld.Execution(cluster=where, **options))


def changed(values: Any, *places: tuple[int, float]) -> np.ndarray:
    result = np.array(values, dtype=float)
    for place, value in places:
        result[place] = value
    return result


def check_origin(error: LadduError, path: Path) -> None:
    """The text begins with term and role; the file is a field."""
    assert str(error).startswith(f"signal/accepted_mc: {path} ")
    assert (error.label, error.file) == ("signal/accepted_mc", str(path))


# columns and files -------------------------------------------------------------------------


def test_a_missing_column(tmp_path: Path) -> None:
    """Refused when the likelihood is made: term, role, file, columns that exist, near misses."""
    path = write(tmp_path / "run1.parquet", mass_kk=GOOD, weight=GOOD)
    model = ld.Model(1 + A * ld.scalar("mass_k"))
    with pytest.raises(DataError) as caught:
        likelihood(model=model, data=ld.read_parquet(path), mc=ld.read_parquet(path))
    error = caught.value
    assert "term 'signal', data needs columns" in str(error)
    assert "column 'mass_k' (did you mean 'mass_kk'?)" in str(error)
    assert str(path) in str(error)
    assert (error.term, error.role, error.column) == ("signal", "data", "mass_k")
    assert error.file == str(path)


def test_a_missing_four_momentum() -> None:
    """Named whole, not by its four columns, and for the sample that lacks it."""
    p4 = np.tile([2.0, 0, 0, 1], (3, 1))
    model = ld.Model(1 + A * ld.Vec4.event("ks1").m2().real())
    full = ld.Dataset.from_arrays(p4s={"ks1": p4})
    with pytest.raises(DataError, match=r"four-momentum 'ks1' \(ks1_e, ks1_px.*mean 'ks2'") as at:
        likelihood(model=model, data=full, mc=ld.Dataset.from_arrays(p4s={"ks2": p4}))
    assert (at.value.term, at.value.role) == ("signal", "accepted_mc")


def test_one_file_of_a_glob_has_another_schema(tmp_path: Path) -> None:
    """Found before any event is read, with a table of file, column, expected and found."""
    write(tmp_path / "run1.parquet", x=GOOD)
    write(tmp_path / "run2.parquet", x=[str(x) for x in GOOD])
    write(tmp_path / "run3.parquet", y=GOOD)
    with pytest.raises(DataError) as caught:
        ld.read_parquet(tmp_path / "run*.parquet")
    second, third = (str(tmp_path / f"run{i}.parquet") for i in (2, 3))
    assert caught.value.mismatches == (
        (second, "x", "number", "string"),
        (third, "x", "number", "missing"),
        (third, "y", "missing", "number"),
    )
    assert (caught.value.file, caught.value.column) == (second, "x")
    lines = [" ".join(line.split()) for line in str(caught.value).splitlines()]
    assert "file column expected found" in lines
    assert all(" ".join(row) in lines for row in caught.value.mismatches)


def test_an_empty_glob(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no file matches the pattern .*run\*\.parquet") as caught:
        ld.read_parquet(tmp_path / "run*.parquet")
    assert caught.value.file == str(tmp_path / "run*.parquet")


def test_an_empty_file(tmp_path: Path) -> None:
    """Of zero bytes, also among good ones."""
    write(tmp_path / "run1.parquet", x=GOOD)
    (tmp_path / "run2.parquet").touch()
    with pytest.raises(DataError, match=r"run2\.parquet is empty \(0 bytes\)") as caught:
        ld.read_parquet(tmp_path / "*.parquet")
    assert caught.value.file == str(tmp_path / "run2.parquet")


def test_files_without_rows(where: Client | None, tmp_path: Path) -> None:
    """One among others changes nothing; accepted events that are nothing at all are refused."""
    none = write(tmp_path / "run0.parquet", x=np.zeros(0))
    some = write(tmp_path / "run1.parquet", x=GOOD)
    with likelihood(where, mc=ld.read_parquet([none, some])) as both, likelihood() as usual:
        assert both.value() == usual.value()
    with pytest.raises(DataError, match="term 'signal': the accepted Monte Carlo.*no events") as at:
        likelihood(where, mc=ld.read_parquet(none))
    assert (at.value.term, at.value.role) == ("signal", "accepted_mc")


@STORAGES
def test_a_file_replaced_before_it_is_read(
    where: Client | None, storage: str, tmp_path: Path
) -> None:
    """The rows promised are those of another file: no number comes out, and no event is mixed."""
    path = write(tmp_path / "mc.parquet", x=GOOD)
    opened = ld.read_parquet(path)
    write(path, x=np.concatenate([GOOD, GOOD]))
    with (
        likelihood(where, mc=opened, storage=storage) as broken,
        pytest.raises(DataError, match=r"mc\.parquet is not the file it was.*Open") as caught,
    ):
        broken.value()
    check_origin(caught.value, path)


@STORAGES
def test_a_truncated_file(where: Client | None, storage: str, tmp_path: Path) -> None:
    """Shorter than it was when it was opened."""
    path = write(tmp_path / "mc.parquet", x=GOOD)
    opened = ld.read_parquet(path)
    path.write_bytes(path.read_bytes()[:-20])
    with (
        likelihood(where, mc=opened, storage=storage) as broken,
        pytest.raises(DataError, match=r"is not the file it was .*bytes, then") as caught,
    ):
        broken.value()
    check_origin(caught.value, path)


def test_a_file_replaced_between_two_passes(where: Client | None, tmp_path: Path) -> None:
    """Streaming reads again in each pass, and notices; resident partitions are unaffected."""
    path = write(tmp_path / "mc.parquet", x=GOOD)
    opened = ld.read_parquet(path)
    with (
        likelihood(where, mc=opened, storage="streaming") as streaming,
        likelihood(where, mc=opened, storage="resident") as resident,
    ):
        value = streaming.value()
        assert resident.value() == value
        write(path, x=GOOD + 1, extra=GOOD)
        with pytest.raises(DataError, match=r"mc\.parquet is not the file it was") as caught:
            streaming.value()
        assert resident.value() == value
    check_origin(caught.value, path)


@STORAGES
def test_a_file_that_is_gone(where: Client | None, storage: str, tmp_path: Path) -> None:
    path = write(tmp_path / "mc.parquet", x=GOOD)
    with likelihood(where, mc=ld.read_parquet(path), storage=storage) as broken:
        path.unlink()
        with pytest.raises(DataError, match=r"mc\.parquet cannot be found on the machine") as at:
            broken.value()
    check_origin(at.value, path)


@STORAGES
def test_a_null_in_a_needed_column(where: Client | None, storage: str, tmp_path: Path) -> None:
    path = write(tmp_path / "mc.parquet", x=[0.1, 0.2, 0.3, 0.4, 0.5, None, 0.7])
    with (
        likelihood(where, mc=ld.read_parquet(path), storage=storage) as broken,
        pytest.raises(DataError, match=r"column 'x' of .*mc\.parquet is null at event 5") as at,
    ):
        broken.value()
    assert (at.value.file, at.value.column, at.value.event) == (str(path), "x", 5)


# weights -----------------------------------------------------------------------------------


@STORAGES
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("role", ["data", "mc"])
def test_a_weight_that_is_not_finite(
    where: Client | None, role: str, bad: float, storage: str, tmp_path: Path
) -> None:
    """Event of the data set and row of the file, which differ in the second file."""
    write(tmp_path / "run1.parquet", x=GOOD, w=np.ones(10))
    second = write(tmp_path / "run2.parquet", x=GOOD, w=changed(np.ones(10), (6, bad)))
    samples = {role: ld.read_parquet(tmp_path / "run*.parquet", weight="w")}
    with (
        likelihood(where, storage=storage, **samples) as broken,
        pytest.raises(DataError) as caught,
    ):
        broken.value()
    assert f"the weight of event 16 (row 6 of run2.parquet, row group 1) is {bad}" in str(
        caught.value
    )
    assert (caught.value.file, caught.value.column) == (str(second), "w")
    assert caught.value.event == 16


def test_a_weight_array_that_is_not_finite() -> None:
    """Refused at once: arrays are looked at when they are handed over."""
    with pytest.raises(DataError, match="the weight of event 1 .* is nan") as caught:
        arrays(weights=changed(np.ones(10), (1, NAN)))
    assert (caught.value.column, caught.value.event) == ("weight", 1)
    with pytest.raises(DataError, match="the weight of event 9 .* is inf"):
        arrays().with_weights(changed(np.ones(10), (9, INF)))


@STORAGES
def test_a_weight_too_large_to_be_summed(where: Client | None, storage: str) -> None:
    """Never left out of the sum in silence: here log I is zero, and so is its product."""
    weights = changed(np.ones(10), (7, 1e305))
    data = arrays(weights=weights)
    with (
        likelihood(where, data=data, storage=storage) as broken,
        pytest.raises(DataError, match=r"signal/data: the weight of event 7 .* too large") as at,
    ):
        broken.value([0.0])
    assert at.value.event == 7


# intensities -------------------------------------------------------------------------------


@CALLS
@STORAGES
@pytest.mark.parametrize("weight", [1.0, 0.0, -1.0])
@pytest.mark.parametrize(("at", "value"), [(-0.5, 0.0), (-1.0, -1.0)], ids=["zero", "negative"])
def test_data_intensity_that_is_not_positive(
    where: Client | None, at: float, value: float, weight: float, storage: str, call: str
) -> None:
    """T-32: a zero weight does not excuse it. I = 1 + a x with x = 2 at event 8 only."""
    data = arrays(changed(np.full(10, 0.1), (8, 2.0)), changed(np.ones(10), (8, weight)))
    with likelihood(where, data=data, mc=arrays(np.full(10, 0.1)), storage=storage) as broken:
        with pytest.raises(EvaluationError) as caught:
            getattr(broken, call)([at])
        good, _ = broken.value_and_gradient([0.5])
        assert np.isfinite(good)  # the likelihood survives its errors
    assert str(caught.value) == (
        f"term 'signal', data, event 8 (row 8 of the arrays): the intensity is {value}; the "
        f"intensity of a data event must be positive (at a = {at}; event: x = 2.0)"
    )
    assert caught.value.context == {
        "term": "signal",
        "role": "data",
        "event": 8,
        "value": value,
        "expression": None,
    }


@CALLS
@STORAGES
@pytest.mark.parametrize("weight", [1.0, 0.0])
@pytest.mark.parametrize("role", ["data", "accepted_mc"])
def test_intensity_that_is_nan(
    where: Client | None, role: str, weight: float, storage: str, call: str
) -> None:
    """T-06, T-32: found in both samples, whatever its weight, and traced to where it began."""
    bad = arrays(changed(np.full(10, 0.1), (4, 2.0)), changed(np.ones(10), (4, weight)))
    model = 1 + A * (1 - X).log().real().named("exotic") * ld.where(X < 1, 1.0, (X - X) / (X - X))
    samples = {"data": bad} if role == "data" else {"mc": bad}
    fine = {"data": arrays(np.full(10, 0.1)), "mc": arrays(np.full(10, 0.1))}
    with (
        likelihood(where, model=model, storage=storage, **(fine | samples)) as broken,
        pytest.raises(EvaluationError) as caught,
    ):
        getattr(broken, call)([0.5])
    error = caught.value
    assert f"term 'signal', {role}, event 4 (row 4 of the arrays): the intensity is nan" in str(
        error
    )
    assert "the first part that is not finite is (x - x) / (x - x)" in str(error)
    assert (error.term, error.role, error.event) == ("signal", role, 4)
    assert np.isnan(error.value)
    assert error.expression == "(x - x) / (x - x)"


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("role", ["data", "accepted_mc"])
def test_inputs_that_are_not_finite(
    where: Client | None, role: str, bad: float, tmp_path: Path
) -> None:
    """NaN in a column is legal until a model uses it; the file and the row are named."""
    path = write(tmp_path / "run.parquet", x=changed(GOOD, (5, bad)))
    samples = {"data" if role == "data" else "mc": ld.read_parquet(path)}
    with (
        likelihood(where, **samples) as broken,
        pytest.raises(EvaluationError, match=r"event 5 \(row 5 of run.parquet, row gr") as at,
    ):
        broken.value()
    assert (at.value.role, at.value.event, at.value.expression) == (role, 5, "x")


@STORAGES
@pytest.mark.parametrize("partitions", [1, 3, 10, 17])
def test_the_first_bad_event_is_reported(
    where: Client | None, partitions: int, storage: str
) -> None:
    """T-36: the smallest index, not the first error to arrive; data before accepted events."""
    x = changed(np.full(10, 0.1), (9, 7.0), (3, 5.0), (6, 9.0))
    mc = arrays(changed(GOOD, (0, NAN)))
    with likelihood(where, data=arrays(x), mc=mc, storage=storage, partitions=partitions) as broken:
        for _ in range(3):
            with pytest.raises(EvaluationError, match="event: x = 5.0") as caught:
                broken.value([-1.0])
            assert (caught.value.role, caught.value.event) == ("data", 3)


@pytest.mark.parametrize("weights", [[-1.0] * 10, [0.0] * 10])
def test_normalisation_that_is_not_positive(where: Client | None, weights: list[float]) -> None:
    """The total of the accepted events is checked, not each of them."""
    with (
        likelihood(where, mc=arrays(weights=weights)) as broken,
        pytest.raises(EvaluationError, match=r"term 'signal': the sum of weighted") as caught,
    ):
        broken.value_and_gradient()
    assert (caught.value.term, caught.value.role) == ("signal", "accepted_mc")
    assert caught.value.value == pytest.approx(weights[0] * float((1 + 0.5 * GOOD).sum()))
    assert type(caught.value.value) is float


def test_a_derivative_that_is_not_finite(where: Client | None) -> None:
    """T-16: atan2 at its origin has a value, so the message does not blame the intensity."""
    model = 1 + ld.atan2(A * X, X)
    with likelihood(where, model=model, data=arrays(changed(GOOD, (2, 0.0)))) as broken:
        assert np.isfinite(broken.value())
        with pytest.raises(EvaluationError, match="intensity is 1.0, but a derivative of it") as at:
            broken.value_and_gradient()
    assert (at.value.event, at.value.value) == (2, 1.0)


def test_columns_that_do_not_matter_need_not_exist() -> None:
    """imag() of a real column is zero; the column is neither read nor missed, even in errors."""
    with likelihood(model=1 + A * X + ld.scalar("unknown").imag()) as lenient:
        assert np.isfinite(lenient.value())
        with pytest.raises(EvaluationError, match=r"event 2 .*\(at a = -1.0; event: x = 1.5\)"):
            lenient.value([-1.0])


def test_the_negative_real_part_of_a_complex_model() -> None:
    """The number that entered, and the number it came from."""
    with (
        likelihood(model=ld.complex(A * X, 2.0)) as broken,
        pytest.raises(EvaluationError, match=r"is -0.1, the real part of \(-0.1\+2j\)") as at,
    ):
        broken.value([-1.0])
    assert at.value.value == -0.1


# inside a fit ------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [0.0, 1e-6, 1e-3, 30.0])
def test_line_searches_meet_infinity_not_exceptions(where: Client | None, start: float) -> None:
    """D5: a rate without bounds that starts at or near zero, and steps to negative rates.

    The minimum of 2 (s V - N ln s) + ... is s = N / V, its variance s^2 / N.
    """
    scale = ld.parameter("scale", initial=0.0)
    weights = np.linspace(0.5, 1.4, 10)
    term = ld.ExtendedNLL(scale * (1 + X), data=arrays(weights=weights), accepted_mc=arrays())
    execution = ld.Execution(backend="interpreter", cluster=where)
    with ld.Likelihood([term], execution) as rate:
        if start == 0.0:
            with pytest.raises(EvaluationError, match="intensity is 0.0"):
                rate.value([start])
        result = rate.fit([start])
    expected = weights.sum() / (1 + GOOD).sum()
    assert result.converged, result.message
    assert result.values == pytest.approx([expected], rel=1e-8)
    assert result.errors == pytest.approx([expected / np.sqrt(weights.sum())], rel=1e-6)


def test_a_fit_without_any_value(where: Client | None) -> None:
    """Data on which every intensity is negative: an error about the event, not a made-up result."""
    bad = arrays(changed(GOOD, (1, NAN)))
    with (
        likelihood(where, data=bad) as broken,
        pytest.raises(EvaluationError, match="no fit can start.*event 1") as caught,
    ):
        broken.fit()
    assert (caught.value.term, caught.value.event) == ("signal", 1)


def test_an_existing_output_file_is_left_alone(tmp_path: Path) -> None:
    """Nothing is lost and nothing half-written: the folder holds what it held."""
    with likelihood() as fine:
        result = fine.fit()
    target = tmp_path / "fit.json"
    target.write_text("precious")
    with pytest.raises(ld.OutputError, match=r"fit\.json exists and is left as it is") as caught:
        result.save(target)
    assert caught.value.file == str(target)
    assert target.read_text() == "precious"
    assert os.listdir(tmp_path) == ["fit.json"]
    result.save(target, overwrite=True)
    assert ld.FitResult.load(target).objective == result.objective


# the same error everywhere -----------------------------------------------------------------


@pytest.mark.cluster
@STORAGES
@pytest.mark.parametrize("fault", ["weight", "null", "intensity", "normalisation", "gone"])
def test_errors_are_the_same_on_a_cluster(
    client: Client, fault: str, storage: str, tmp_path: Path
) -> None:
    """Class, text and fields of an error do not tell where it arose (T-42)."""
    path = tmp_path / "mc.parquet"
    x, w = list(GOOD), list(np.ones(10))
    if fault == "weight":
        w[3] = NAN
    elif fault == "null":
        x[3] = None
    write(path, x=x, weight=w)
    model = (A - 1) * X if fault == "intensity" else LINE
    opened = ld.read_parquet(path)
    if fault == "normalisation":
        opened = opened.with_weights(np.zeros(10))
    elif fault == "gone":
        path.unlink()

    def raised(where: Client | None) -> LadduError:
        with (
            likelihood(where, model=model, mc=opened, storage=storage) as broken,
            pytest.raises(LadduError) as caught,
        ):
            broken.value()
        return caught.value

    local, remote = raised(None), raised(client)
    assert type(local) is type(remote)
    assert str(local) == str(remote)
    assert repr(local.context) == repr(remote.context)  # NaN is not equal to itself
