//! Result rows as Python sees them, and as Arrow.

use crate::failed;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, RecordBatchIterator, RecordBatchOptions, StringArray,
};
use arrow_schema::{ArrowError, Schema};
use arrow_schema::{DataType, Field, ffi::FFI_ArrowSchema};
use pyo3::exceptions::{PyIndexError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyList, PyType};
use serde_json::json;
use std::sync::Arc;
use superpage_report::{Figure, Point, Screen, Series};
use superpage_reproduce::{Experiment, Report};
use superpage_sim::columns::{Column, Values};
use superpage_sim::{Format, Kept, Row, Run, keep};

/// Rows, one for each simulation or finding, with the keys of the command's rows in their order.
#[pyclass(frozen, module = "superpages")]
pub(crate) struct Rows(Kind);

enum Kind {
    Sim(Vec<Row>),
    Reproduce(Box<Report>),
}

impl From<Vec<Row>> for Rows {
    fn from(rows: Vec<Row>) -> Rows {
        Rows(Kind::Sim(rows))
    }
}

impl From<Report> for Rows {
    fn from(report: Report) -> Rows {
        Rows(Kind::Reproduce(Box::new(report)))
    }
}

impl Rows {
    fn written(&self, py: Python<'_>, format: Format, width: usize) -> PyResult<Vec<u8>> {
        let write = || {
            let (mut bytes, screen) = (Vec::new(), Screen::of(width));
            match &self.0 {
                Kind::Sim(rows) => superpage_sim::write(rows, format, screen, &mut bytes)?,
                Kind::Reproduce(report) => superpage_reproduce::write(report, format, screen, &mut bytes)?,
            }
            Ok(bytes)
        };
        py.detach(write).map_err(failed)
    }

    fn text(&self, py: Python<'_>, format: Format, width: usize) -> PyResult<String> {
        self.written(py, format, width).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    fn columns(&self) -> Vec<Column> {
        match &self.0 {
            Kind::Sim(rows) => superpage_sim::columns::columns(rows),
            Kind::Reproduce(report) => superpage_reproduce::columns(report),
        }
    }

    fn batch(&self) -> Result<RecordBatch, ArrowError> {
        let columns = self.columns();
        let field = |Column { name, values }: &Column| {
            let kind = match values {
                // As in a Parquet file; differences of unsigned columns would wrap around in data
                // frames.
                Values::Counts(_) => DataType::Int64,
                Values::Numbers(_) => DataType::Float64,
                Values::Truths(_) => DataType::Boolean,
                Values::Texts(_) => DataType::Utf8,
            };
            Field::new(name, kind, true)
        };
        let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
        let array = |column: Column| -> ArrayRef {
            match column.values {
                Values::Counts(values) => {
                    Arc::new(values.into_iter().map(|value| value.map(|value| value as i64)).collect::<Int64Array>())
                }
                Values::Numbers(values) => Arc::new(Float64Array::from(values)),
                Values::Truths(values) => Arc::new(BooleanArray::from(values)),
                Values::Texts(values) => Arc::new(StringArray::from(values)),
            }
        };
        let arrays = columns.into_iter().map(array).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.__len__()));
        RecordBatch::try_new_with_options(schema, arrays, &options)
    }
}

/// A figure with its points; of bars, `x` are the names of groups.
fn of_figure(experiment: &Experiment, figure: &Figure) -> serde_json::Value {
    let series = |series: &Series| {
        let groups = |point: &Point| figure.groups.get(point.x as usize).map_or(json!(point.x), |group| json!(group));
        json!({
            "name": series.name,
            "x": series.points.iter().map(groups).collect::<Vec<_>>(),
            "y": series.points.iter().map(|point| point.y).collect::<Vec<_>>(),
            "paper": series.paper,
        })
    };
    json!({
        "experiment": experiment.full_name(),
        "title": figure.title,
        "x": figure.x.label,
        "y": figure.y.label,
        "series": figure.series.iter().map(series).collect::<Vec<_>>(),
    })
}

fn arrow(error: ArrowError) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

#[pymethods]
impl Rows {
    fn __len__(&self) -> usize {
        match &self.0 {
            Kind::Sim(rows) => rows.len(),
            Kind::Reproduce(report) => report.findings().count(),
        }
    }

    /// The rows that pickle has kept.
    #[new]
    fn new(kept: Vec<u8>) -> PyResult<Rows> {
        let wrong = |problem| PyValueError::new_err(format!("rows that were pickled: {problem}"));
        let Kept { runs, .. } = Kept::read(kept).map_err(wrong)?;
        Ok(Rows::from(runs.into_iter().map(|run| run.row).collect::<Vec<_>>()))
    }

    /// What pickle and copy keep of simulations: the bytes of a sweep's cell.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyType>, (Bound<'py, PyBytes>,))> {
        let (py, rows) = (slf.py(), slf.get());
        let Kind::Sim(rows) = &rows.0 else {
            let problem = "rows of papers cannot be pickled: keep what to_parquet() or to_json() returns";
            return Err(PyTypeError::new_err(problem));
        };
        let kept = py.detach(|| keep(&rows.iter().cloned().map(Run::from).collect::<Vec<_>>(), &[]));
        Ok((slf.get_type(), (PyBytes::new(py, &kept.map_err(failed)?),)))
    }

    /// The row at a place as a dict; nested values are dicts and lists.
    fn __getitem__<'py>(&self, py: Python<'py>, index: isize) -> PyResult<Bound<'py, PyAny>> {
        let length = self.__len__();
        let place = if index < 0 { length.checked_add_signed(index) } else { Some(index as usize) };
        let Some(place) = place.filter(|place| *place < length) else {
            return Err(PyIndexError::new_err(format!("row {index} of {length}")));
        };
        let text = match &self.0 {
            Kind::Sim(rows) => serde_json::to_string(&rows[place]),
            Kind::Reproduce(report) => serde_json::to_string(&report.findings().nth(place)),
        };
        let text = text.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        py.import("json")?.call_method1("loads", (text,))
    }

    /// The keys of the rows, in order.
    #[getter]
    fn keys(&self) -> Vec<String> {
        self.columns().into_iter().map(|column| column.name).collect()
    }

    /// All values of one key, a list as long as there are rows.
    fn column<'py>(&self, py: Python<'py>, key: &str) -> PyResult<Bound<'py, PyAny>> {
        let columns = self.columns();
        match columns.into_iter().find(|column| column.name == key).map(|column| column.values) {
            Some(Values::Counts(values)) => values.into_pyobject(py),
            Some(Values::Numbers(values)) => values.into_pyobject(py),
            Some(Values::Truths(values)) => values.into_pyobject(py),
            Some(Values::Texts(values)) => values.into_pyobject(py),
            None => Err(pyo3::exceptions::PyKeyError::new_err(format!("{key}: rows have {}", self.keys().join(", ")))),
        }
    }

    /// Why each value of a key is no exact count, None where it is one; of findings, for what was
    /// measured.
    fn estimates(&self, key: &str) -> Vec<Option<String>> {
        match &self.0 {
            Kind::Sim(rows) => rows.iter().map(|row| row.why_inexact(key).map(String::from)).collect(),
            Kind::Reproduce(report) => {
                report.findings().map(|finding| finding.estimate.clone().filter(|_| key == "measured")).collect()
            }
        }
    }

    /// The figures of findings with their points, as dicts; none of simulations.
    #[getter]
    fn figures<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let Kind::Reproduce(report) = &self.0 else { return Ok(PyList::empty(py).into_any()) };
        let figures: Vec<_> = report.figures().map(|(experiment, figure)| of_figure(experiment, figure)).collect();
        let text = serde_json::to_string(&figures).map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        py.import("json")?.call_method1("loads", (text,))
    }

    /// The bytes that `--format json` prints.
    fn to_json(&self, py: Python<'_>) -> PyResult<String> {
        self.text(py, Format::Json, 100)
    }

    /// The bytes that `--format csv` prints.
    fn to_csv(&self, py: Python<'_>) -> PyResult<String> {
        self.text(py, Format::Csv, 100)
    }

    /// The bytes that `--format parquet` prints: a file, to be written as it is.
    fn to_parquet(&self, py: Python<'_>) -> PyResult<Vec<u8>> {
        self.written(py, Format::Parquet, 100)
    }

    /// The table that the command prints on a terminal of so many columns.
    #[pyo3(signature = (width = 100))]
    fn table(&self, py: Python<'_>, width: usize) -> PyResult<String> {
        self.text(py, Format::Table, width.clamp(40, 10_000))
    }

    fn __str__(&self, py: Python<'_>) -> PyResult<String> {
        self.table(py, 100)
    }

    fn __repr__(&self) -> String {
        let kind = match &self.0 {
            Kind::Sim(_) => "simulation",
            Kind::Reproduce(_) => "finding",
        };
        let (rows, plural) = (self.__len__(), if self.__len__() == 1 { "" } else { "s" });
        format!("<superpages.Rows: {rows} {kind}{plural}, {} keys; print() shows a table>", self.keys().len())
    }

    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("superpages._show")?.call_method1("html", (slf,))
    }

    /// Bars of a key, by workload and machine (with matplotlib).
    #[pyo3(signature = (key = "speedup", ax = None))]
    fn plot<'py>(slf: &Bound<'py, Self>, key: &str, ax: Option<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("superpages._show")?.call_method1("plot", (slf, key, ax))
    }

    /// Arrow's C stream interface, which pandas, polars, DuckDB and pyarrow read.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // A request that cannot be met may be answered by what there is.
        let _ = requested_schema;
        let batch = self.batch().map_err(arrow)?;
        let schema = batch.schema();
        let stream = FFI_ArrowArrayStream::new(Box::new(RecordBatchIterator::new([Ok(batch)], schema)));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// Arrow's C schema interface.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = self.batch().map_err(arrow)?.schema();
        let schema = FFI_ArrowSchema::try_from(schema.as_ref()).map_err(arrow)?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }
}
