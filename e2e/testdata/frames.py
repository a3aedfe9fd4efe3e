"""Uses the Python package rowmill, installed from its wheel: frames of five libraries without a
service, a sample that the whole run takes over, an interruption, a notebook, and jobs of a
service. Arguments: a server that answers "answer-N-…" to a prompt with "row-N-"; such a server
that holds its answers until the caller has interrupted the program in the file pid; the address
of a service; its key."""

import json, os, pathlib, shutil, subprocess, sys

import datasets, duckdb, nbclient, nbformat, pandas, polars, pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel

import rowmill as rm
import rowmill._prompt as internal

engine, held, service, key = sys.argv[1:]
os.environ.pop("ROWMILL_SERVER", None)
ROWS = 30


def rows(n=ROWS):
    return {"text": [f"row-{i}-" for i in range(n)], "answer": list(range(n))}


def check(answers, n=ROWS):
    assert len(answers) == n, answers
    for i, answer in enumerate(answers):
        assert answer.startswith(f"answer-{i}-"), (i, answer)


# Frames of every library, in and out. The column "answer" exists, so the answers have another name.
ask = rm.prompt("{{text}}", engine=engine)
index = [f"i{i}" for i in range(ROWS)]
frame = pandas.DataFrame(rows(), index=index)
sample = ask.sample(frame, 5)
check(sample["answer.answer"], 5)
out = ask.map(frame)
check(out["answer.answer"])
assert list(out.index) == index and list(out["answer"]) == list(range(ROWS)) and list(frame.columns) == ["text", "answer"]
named = rm.prompt("{{text}}", engine=engine, output="judged")
lake = duckdb.connect("lake.duckdb")  # a relation of another connection could not be read on this one
for of, columns in [
    (polars.DataFrame(rows()), lambda f: f["judged"].to_list()),
    (pa.table(rows()), lambda f: f.column("judged").to_pylist()),
    (datasets.Dataset.from_dict(rows()), lambda f: list(f["judged"])),
    (lake.from_arrow(pa.table(rows())), lambda f: lake.sql("from f").to_arrow_table().column("judged").to_pylist()),
]:
    judged = named.map(of)
    assert type(judged) is type(of), (type(of), type(judged))
    check(columns(judged))


# A Pydantic model gives typed columns; an embedding gives lists.
class Opinion(BaseModel):
    label: str
    stars: int
    sure: bool | None


opinions = rm.prompt("{{text}}", schema=Opinion, simulate=True).map(polars.DataFrame(rows(3)))
assert opinions.schema["stars"] == polars.Int64 and opinions.schema["sure"] == polars.Boolean and opinions.columns == ["text", "answer", "label", "stars", "sure"], opinions
vectors = rm.embedding("text", model="qwen-3-embedding-0.6b", simulate=True).map(pa.table(rows(2))).column("embedding").to_pylist()
assert len(vectors) == 2 and len(vectors[0]) > 100 and isinstance(vectors[0][0], float)

# A sample does not give up a run of all rows: of a complete run it is the beginning, and of
# another run it has a state of its own.
runs, run = [], internal.run
internal.run = lambda arguments, **more: runs.append(arguments) or run(arguments, **more)
for name, complete in [("complete", True), ("begun", False)]:
    again = rm.prompt("{{text}} again", simulate=True, folder=name)
    table = pa.table(rows(8))
    whole = again.map(table)
    if not complete:
        [file] = pathlib.Path(name).glob("*/answers.parquet")
        file.unlink()
    assert again.sample(table, 3).column("answer.answer").to_pylist() == whole.column("answer.answer").to_pylist()[:3]
    assert again.map(table).equals(whole)
assert [a[a.index("--state") + 1].rsplit("/")[-1] for a in runs] == ["state", "state", "state", "sample-state", "state"], runs
internal.run = run

# Chats are lists of messages, or the JSON text of such lists, in frames of all libraries.
talks = [[{"role": "user", "content": "one"}], [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}, {"role": "user", "content": "three"}]]
chat = rm.chat("talk", simulate=True)
answers = set()
for frame_of in [pandas.DataFrame, polars.DataFrame, pa.table, datasets.Dataset.from_dict]:
    for values in [talks, [json.dumps(talk) for talk in talks]]:
        of = chat.map(frame_of({"talk": values}))
        answers.add(tuple(of.column("answer").to_pylist() if isinstance(of, pa.Table) else of["answer"]))
assert len(answers) == 1 and len(set(*answers)) == 2, answers

# Wrong use.
for error, wrong in [
    (ValueError, lambda: rm.prompt("no column")),
    (TypeError, lambda: ask.map([1])),
    (ValueError, lambda: ask.map(pandas.DataFrame({"text": []}))),
    (ValueError, lambda: ask.submit(frame)),
    (KeyError, lambda: ask.map(pandas.DataFrame({"body": ["x"]}))),
    (rm.RowmillError, lambda: rm.prompt("{{text}}", engine="http://127.0.0.1:9").map(frame)),
]:
    try:
        wrong()
    except error as e:
        assert not isinstance(e, rm.RowmillError) or e.code == 8 and "no inference server answers" in str(e), e
    else:
        raise AssertionError(f"no {error.__name__}")

# Ctrl-C stops a run in order, and the same call continues it.
program = f"""
import pandas, rowmill
rowmill.prompt("{{{{text}}}}", engine="ENGINE").map(pandas.DataFrame({{"text": [f"row-{{i}}-" for i in range({ROWS})]}}))
"""
child = subprocess.Popen([sys.executable, "-c", program.replace("ENGINE", held)], stderr=subprocess.PIPE, text=True)
with open("pid.new", "w") as file:
    file.write(str(child.pid))
os.rename("pid.new", "pid")
assert "KeyboardInterrupt" in child.stderr.read() and child.wait() != 0
check(rm.prompt("{{text}}", engine=held).map(pandas.DataFrame({"text": rows()["text"]}))["answer"])

# A notebook shows the progress in its output.
book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(program.replace("ENGINE", engine).strip() + ".shape")])
nbclient.NotebookClient(book, timeout=120, kernel_name="python3").execute()
shown = str(book.cells[0].outputs)
assert "<progress" in shown and f"({ROWS}, 2)" in shown, shown

# Files of a folder: the next call runs only the new row.
os.makedirs("lake/in/day=1")
frame_of = lambda n: pandas.DataFrame({"text": rows()["text"][:n]})
frame_of(3).to_csv("lake/in/day=1/a.csv", index=False)
files = rm.prompt("{{text}}", engine=engine)
for n in 3, 4:
    frame_of(n).to_csv("lake/in/day=1/a.csv", index=False)
    files.map_files("lake/in/*/*.csv", "lake/out/", keep="day,text")
    answered = pq.read_table("lake/out/day=1/a.csv.parquet", partitioning=None)
    assert answered.num_rows == n and answered["day"].to_pylist() == ["1"] * n and answered["answer"].null_count == 0, answered

# The same prompts by a service, which has other answers.
os.environ |= {"ROWMILL_SERVER": service, "ROWMILL_API_KEY": key}
ask = rm.prompt("{{text}}", schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
sample, whole = ask.sample(frame, 2), ask.map(frame)
assert list(sample["n"]) == list(whole["n"])[:2] and len(whole) == ROWS and list(ask.map(frame)["n"]) == list(whole["n"])
job = ask.submit(frame, name="frames")
assert job.result().column("n").null_count == 0 and job.progress()["status"] == "succeeded" and job.failed() == []
assert ask.submit(frame, name="frames").id == job.id
for answers in pathlib.Path(".rowmill").glob("*/answers.parquet"):
    answers.unlink()  # as after a crash before the answers were saved
assert list(ask.map(frame)["n"]) == list(whole["n"])

shutil.rmtree(".rowmill")  # the same prompt over the same frame is then a new job
assert len(ask.map(frame)) == ROWS

# The job is gone: the call after the error makes a new job.
(place,) = pathlib.Path(".rowmill").iterdir()
(place / "answers.parquet").unlink()
(known,) = (path for path in place.glob("job-*") if path.suffix != ".key")
known.write_text("job-01a22f5d-d11c-71ae-aae9-eb83cdce3ea9")
try:
    ask.map(frame)
except rm.RowmillError as e:
    assert e.code == 5, (e.code, e)
else:
    raise AssertionError("a job that is gone has answers")
assert len(ask.map(frame)) == ROWS and ask.submit(frame, name="frames").id != job.id
try:
    job.retry()
except rm.RowmillError as e:
    assert "nothing_to_run" in str(e), e
else:
    raise AssertionError("a job without failed rows was continued")

files = rm.prompt("{{text}}", model="llama-3.1-8b")
for _ in range(2):
    files.map_files("lake:in/**", "lake:served/", keep="text")
served = pq.read_table("lake/served/day=1/a.csv.parquet", partitioning=None)
assert served["text"].to_pylist() == frame_of(4)["text"].tolist() and served["answer"].null_count == 0, served
