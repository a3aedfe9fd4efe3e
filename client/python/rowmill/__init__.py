"""Run a language or embedding model over the rows of a data frame.

>>> import rowmill as rm
>>> ask = rm.prompt("Is this review positive? {{title}}: {{body}}", schema=Opinion)
>>> ask.sample(reviews, 20)     # 20 rows with their answers
>>> answers = ask.map(reviews)  # all rows; the 20 do not run again

A frame is a pandas or polars DataFrame, a pyarrow Table, a Hugging Face Dataset, a DuckDB
relation, or any other object with an Arrow C stream. The answers are columns of a frame of the
same type, in the same order.

Without ROWMILL_SERVER the package starts a Rowmill node in a process of its own, for one call.
It uses the inference servers of this machine. With ROWMILL_SERVER and ROWMILL_API_KEY it uses
that service. In both cases the folder .rowmill has the state: after Ctrl-C or a crash, the same
call continues.
"""

from ._prompt import Job, Prompt, chat, embedding, prompt
from ._program import RowmillError

__all__ = ["Job", "Prompt", "RowmillError", "chat", "embedding", "prompt"]
