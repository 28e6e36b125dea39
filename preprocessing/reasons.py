"""The reason codes of dead letters, and the rules for dirt that they come from.

| what a log holds | rule | reason code |
|---|---|---|
| a CSV row with too few or too many cells, a quote that never closes | reject, its line alone | `malformed_row` |
| a line that is no JSON object | reject, its line alone | `malformed_json` |
| a byte that means nothing in a declared encoding | reject; it is shown as \\xNN | `invalid_encoding` |
| invalid UTF-8, NUL, newlines, emoji, combining characters in a string | kept, byte for byte | - |
| an empty string | missing in CSV and TSV, and in every type but string; else a value | - |
| null, NaN, infinities, declared sentinels (as text or number) | missing | - |
| a missing value of a required column | reject | `missing_required` |
| a number as a string, a string as a number | converted; integers never through floats | - |
| a value that is none of its type, an integer beyond 64 bits or with a fraction | `on_invalid` | `invalid_<type>` |
| a value below `min` or above `max`, a time that no calendar holds | `on_invalid` | `out_of_range` |
| an event later than its arrival, or than the run, by more than `future_tolerance_s` | reject | `future_time` |
| a cell that is no list | `on_invalid` | `invalid_list` |
| parallel lists of unequal length | reject | `unequal_lists` |
| parallel lists that are all empty | no rows; counted | - |
| a declared CSV or JSON column that a file lacks; a declared name twice | the file is an error | - |
| a declared Parquet column that some files lack; that all lack | missing; an error | - |
| other columns, columns in another order | not read; read by name | - |
| an empty file, a header only | no rows | - |
| a compressed or Parquet file cut short or damaged | the file is an error: none of its rows are used | - |

A file that is cut short is an error, not a reject: what is missing from it cannot be counted, and it is whole again
when it has been copied again.
"""

from __future__ import annotations

__all__ = ["REASONS"]

REASONS = {
    "malformed_row": "the row does not have as many cells as the header, or a quote is never closed",
    "malformed_json": "the line is no JSON object",
    "invalid_encoding": "the row holds bytes that mean nothing in the declared encoding, shown as \\xNN",
    "invalid_string": "a nested value cannot be a string",
    "invalid_int64": "the value is no integer of 64 bits",
    "invalid_float64": "the value is no number",
    "invalid_bool": "the value is none of true/false, 1/0, yes/no",
    "invalid_timestamp": "the value is no time in the declared unit",
    "invalid_list": "the cell is no list",
    "out_of_range": "the value is below min or above max, or a time that no calendar holds",
    "future_time": "the event is later than its arrival, or than the run, by more than data.future_tolerance_s",
    "missing_required": "a required value is missing",
    "unequal_lists": "the lists that explode are of unequal length",
}
