"""Prompts over frames, and jobs."""

from __future__ import annotations

import hashlib
import json
import os
import re
import uuid
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from . import _frames
from ._program import RowmillError, run

Frame = TypeVar("Frame")


def prompt(
    template: str,
    *,
    model: str | None = None,
    schema: Any = None,
    system: str | None = None,
    params: dict[str, Any] | None = None,
    output: str = "answer",
    engine: str | None = None,
    simulate: bool = False,
    folder: str | os.PathLike[str] = ".rowmill",
) -> Prompt:
    """Returns a prompt: a text with {{column}} in place of the values of a row.

    model: name of a model or Function; without it, the only model that is served.
    schema: a JSON Schema as a dict, or a Pydantic model class; its properties are the columns
    of the answers. params: sampling parameters, such as {"temperature": 0}. output: name of
    the column of the answers without a schema; the answer of a reasoning model is there without
    the reasoning. engine: URL of an inference server; without
    it, the servers at the usual local ports. simulate: make up the answers. engine and
    simulate are for runs without ROWMILL_SERVER. folder: folder for the state.
    """
    if not _COLUMN.search(template):
        raise ValueError("the template names no column; write {{column}} where the value of a column belongs")
    columns = list(dict.fromkeys(_COLUMN.findall(template)))
    return Prompt({"prompt": template}, columns, model, schema, system, params, output, engine, simulate, folder)


def chat(
    column: str, *, model: str | None = None, schema: Any = None, system: str | None = None, params: dict[str, Any] | None = None,
    output: str = "answer", engine: str | None = None, simulate: bool = False, folder: str | os.PathLike[str] = ".rowmill",
) -> Prompt:
    """Returns a Prompt that answers chats. Each value of the column is a list of messages, dicts
    with role and content, or the JSON text of such a list. The other parameters are as in prompt."""
    return Prompt({"messages": column}, [column], model, schema, system, params, output, engine, simulate, folder)


def embedding(
    column: str, *, model: str | None = None, output: str = "embedding", engine: str | None = None, simulate: bool = False,
    folder: str | os.PathLike[str] = ".rowmill",
) -> Prompt:
    """Returns a Prompt that embeds the text of a column. Each answer is a list of floats."""
    return prompt("{{" + column + "}}", model=model, output=output, engine=engine, simulate=simulate, folder=folder)


def _server() -> str | None:
    """Returns the address of the service; None if a node of our own must run."""
    return os.environ.get("ROWMILL_SERVER")


# A place in a template, as Rowmill reads it.
_COLUMN = re.compile(r"\{\{\s*([^{}]+?)\s*\}\}")


class Prompt:
    """A prompt over the columns of a frame. Make it with prompt, chat or embedding."""

    def __init__(
        self, rows: dict[str, str], columns: list[str], model: str | None, schema: Any, system: str | None,
        params: dict[str, Any] | None, output: str, engine: str | None, simulate: bool, folder: str | os.PathLike[str],
    ) -> None:
        """rows has the prompt, or the name of the column with messages; columns are needed."""
        if schema is not None and hasattr(schema, "model_json_schema"):
            schema = schema.model_json_schema()
        self._settings = {**rows, "model": model, "system": system, "schema": schema, "params": params or {}}
        self._columns, self._output, self._engine, self._simulate, self._folder = columns, output, engine, simulate, Path(folder)

    def sample(self, frame: Frame, rows: int = 20) -> Frame:
        """Runs the first rows of a frame and returns them with their answers. map then takes
        these answers over."""
        if rows < 1:
            raise ValueError("rows must be at least 1")
        results = self._run(frame, rows)
        first: Frame = _frames.head(frame, rows)
        return self._add_answers(first, results)

    def map(self, frame: Frame) -> Frame:
        """Runs all rows of a frame and returns the frame with the answers. Rows that failed
        have None; a warning on standard error says why. After an interruption, the same call
        continues. The same call on the same frame does not run rows again."""
        return self._add_answers(frame, self._run(frame, None))

    def map_files(self, files: str, folder: str, keep: str = "", id_column: str | None = None) -> None:
        """Runs the rows of files, and writes a Parquet file with the answers for each of them to a
        folder, at the same path. files is a pattern such as "reviews/day=*/*.parquet" or
        "s3://lake/reviews/**"; folder is a path with a slash at its end, or s3://BUCKET/FOLDER/. The
        credentials are those of the programs of AWS. With ROWMILL_SERVER, both name sources of the
        service, such as "lake:reviews/**" and "lake:answers/". keep names columns of the files to
        repeat, separated by commas, or "*". After an interruption, the same call continues. If
        files have changed, the same call runs only the new rows."""
        text = json.dumps([self._settings, self._engine, self._simulate, _server(), files, folder, keep, id_column], sort_keys=True)
        place = self._folder / hashlib.sha256(text.encode()).hexdigest()[:16]
        place.mkdir(parents=True, exist_ok=True)
        flags = [*self._flags(place), *(["--keep", keep] if keep else []), *(["--id-column", id_column] if id_column else [])]
        flags = [flag for flag in flags if flag != "--unpack"]  # the files in a folder always have the properties as columns
        if _server():
            name = f"files-{place.name}"
            run(["jobs", "submit", files, *flags, "--sink", folder, "--name", name, "--reuse", name, "--priority", "1"])
        else:
            run(["run", files, *flags, "--output", folder, "--state", str(place / "state"), *self._node_flags()])

    def submit(self, frame: Any, name: str | None = None) -> Job:
        """Submits a job to the service ROWMILL_SERVER and returns at once."""
        if not _server():
            raise ValueError("submit needs a service: set ROWMILL_SERVER and ROWMILL_API_KEY, or call map")
        place = self._place(frame)
        more = ["--name", name] if name else []
        return Job(self._create(place, more), self._unpacks())

    def _run(self, frame: Any, limit: int | None) -> pa.Table:
        """Runs rows of a frame and returns the columns of their answers."""
        place = self._place(frame)
        whole, begun, state = place / "answers.parquet", place / "begun", place / "state"
        results = place / f"sample-{limit}.parquet" if limit else whole
        if limit and whole.exists():
            return pq.read_table(whole).slice(0, limit)
        if limit and results.exists():
            return pq.read_table(results)
        if limit and begun.exists():
            state = place / "sample-state"  # the run of all rows keeps its state
        if not limit:
            begun.touch()
        if not _server():
            arguments = ["run", str(place / "input.parquet"), *self._flags(place), "--output", str(results), "--state", str(state), "--force"]
            arguments += self._node_flags()
            run(arguments + (["--limit", str(limit)] if limit else []))
            return pq.read_table(results)
        if results.exists():
            return pq.read_table(results)
        if limit:
            job = Job(self._create(place, ["--limit", str(limit)]), self._unpacks())
            (place / "sample").write_text(job.id)
        elif (place / "sample").exists():
            job = Job((place / "sample").read_text(), self._unpacks()).rest()
        else:
            job = Job(self._create(place, []), self._unpacks())
        try:
            return job._save(results)
        except RowmillError as error:
            if error.code in (3, 5, 6):  # it failed, is gone, or was cancelled: the next call makes a new job
                for path in place.glob("job-*"):
                    path.unlink()
            raise

    def _create(self, place: Path, more: list[str]) -> str:
        """Submits the job for a folder and returns its id. The same call returns the same job. Each
        upload of the rows is another file, and a key is for one file, so the folder has the key."""
        known = place / ("job-" + hashlib.sha256(" ".join(more).encode()).hexdigest()[:16])
        key = known.with_suffix(".key")
        if not key.exists():
            key.write_text(uuid.uuid4().hex)
        if not known.exists():
            job = run(["jobs", "submit", str(place / "input.parquet"), *self._flags(place), "--detach", "--priority", "1", "--idempotency-key", key.read_text(), *more])
            known.write_text(job.strip())
        return known.read_text()

    def _node_flags(self) -> list[str]:
        """Returns the flags for the node of a run."""
        return (["--engine", self._engine] if self._engine else []) + (["--simulate"] if self._simulate else [])

    def _unpacks(self) -> bool:
        return self._settings["schema"] is not None

    def _flags(self, place: Path) -> list[str]:
        """Returns the flags for the job of a folder, and writes the files that they name."""
        settings = self._settings
        flags = ["--output-column", "answer"]
        if "messages" in settings:
            flags += ["--messages", "--column", str(settings["messages"])]
        for name, text in {"prompt": settings.get("prompt"), "system-prompt": settings["system"]}.items():
            if text is not None:
                (place / name).write_text(str(text))
                flags += ["--" + name, f"@{place / name}"]
        if settings["schema"] is not None:
            (place / "schema.json").write_text(json.dumps(settings["schema"]))
            flags += ["--schema", str(place / "schema.json"), "--unpack"]
        if settings["model"]:
            flags += ["--model", str(settings["model"])]
        params = settings["params"]
        assert isinstance(params, dict)
        for name, value in params.items():
            flags += ["--param", f"{name}={json.dumps(value)}"]
        return flags

    def _place(self, frame: Any) -> Path:
        """Returns the folder for this prompt over this frame, and writes the rows there."""
        table = _frames.to_arrow(frame, self._columns)
        if table.num_rows == 0:
            raise ValueError("the frame has no rows")
        if "messages" in self._settings and pa.types.is_nested(table.schema.field(0).type):
            talks = table.column(0).to_pylist()  # as text, because pyarrow does not write all lists of polars
            table = pa.table({self._columns[0]: [None if talk is None else json.dumps(talk) for talk in talks]})
        self._folder.mkdir(exist_ok=True)
        new = self._folder / f"input-{os.getpid()}.parquet"
        pq.write_table(table.replace_schema_metadata(None), new)
        total = hashlib.sha256(json.dumps([self._settings, self._engine, self._simulate, _server()], sort_keys=True).encode())
        with new.open("rb") as file:
            while block := file.read(1 << 20):
                total.update(block)
        place = self._folder / total.hexdigest()[:16]
        place.mkdir(exist_ok=True)
        if (place / "input.parquet").exists():
            new.unlink()
        else:
            new.rename(place / "input.parquet")
        return place

    def _add_answers(self, frame: Frame, results: pa.Table) -> Frame:
        """Returns the frame with the columns of the answers."""
        taken = set(_frames.names_of(frame))
        columns = {}
        unpacked = json.loads((results.schema.metadata or {}).get(b"unpacked_columns", b"[]"))
        for source in unpacked or ["answer"]:
            name = self._output if source == "answer" else source
            if name in taken:
                name = f"{self._output}.{source}"
            columns[name] = results.column(source) if unpacked else _without_reasoning(results.column(source))
        added: Frame = _frames.add_columns(frame, columns)
        return added


def _without_reasoning(answers: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns the contents of answers of a reasoning model, which are JSON objects with the
    reasoning. It returns other answers unchanged."""
    if not pa.types.is_string(answers.type):
        return answers
    texts = answers.to_pylist()
    for at, text in enumerate(texts):
        if text is not None and text.startswith('{"reasoning_content":'):
            texts[at] = json.loads(text)["content"]
    return pa.chunked_array([pa.array(texts, answers.type)])


class Job:
    """A job of the service ROWMILL_SERVER."""

    def __init__(self, id: str, unpack: bool = False) -> None:
        self.id = id
        self._unpack = unpack

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    def progress(self) -> dict[str, Any]:
        """Returns the record of the job: status, num_rows, rows_done, failed_rows, job_cost,
        message and more."""
        record: dict[str, Any] = json.loads(run(["jobs", "get", self.id, "--print", "json"], show=False))
        return record

    def result(self) -> pa.Table:
        """Waits for the end of the job and returns the columns of its answers."""
        folder = Path(".rowmill")
        folder.mkdir(exist_ok=True)
        return self._save(folder / f"{self.id}.parquet")

    def failed(self) -> list[dict[str, Any]]:
        """Returns the failed rows: row (from 0), code, message and raw_output."""
        rows: list[dict[str, Any]] = json.loads(run(["jobs", "errors", self.id, "-n", "10000", "--print", "json"], show=False))
        return rows

    def retry(self) -> Job:
        """Returns a job that takes over the answers of this ended job, and runs the rows that
        failed or are not done."""
        return self._resume("failed")

    def rest(self) -> Job:
        """Returns a job that takes over the answers of this sample, and runs all other rows."""
        return self._resume("rest")

    def _resume(self, rows: str) -> Job:
        return Job(run(["jobs", "resume", self.id, "--rows", rows]).strip(), self._unpack)

    def _save(self, path: Path) -> pa.Table:
        if not path.exists():
            flags = ["--unpack"] if self._unpack else []
            run(["jobs", "attach", self.id, "--output", str(path), "--format", "parquet", *flags])
        return pq.read_table(path)
