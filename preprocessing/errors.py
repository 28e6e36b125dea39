"""The errors of Rankmill, one tree. Callers catch the base class.

RankmillError
├── ConfigError          the YAML file is wrong; raised before any work starts
├── DataError            the data is wrong
│   ├── SourceError      an input is missing, empty or unreadable
│   ├── RejectBudgetError  more rows were rejected than the config allows
│   └── LabelError       the labels cannot be learned from (one class, none left)
├── ArtefactError        something written earlier is absent, incomplete or of another version
│   └── CorruptError     its content does not match its checksum
├── TrainingError        training cannot go on (a loss that is not finite, ...)
├── GateError            the candidate model did not pass the gate
└── ServingError         a model server could not be started or reached, or refused a request
"""

__all__ = [
    "ArtefactError",
    "ConfigError",
    "CorruptError",
    "DataError",
    "GateError",
    "LabelError",
    "RankmillError",
    "RejectBudgetError",
    "ServingError",
    "SourceError",
    "TrainingError",
]


class RankmillError(Exception):
    """Base of all errors that Rankmill raises on purpose; its text is fit to show to a user."""


class ConfigError(RankmillError):
    """Raised when a config file, an override or a flag breaks a rule."""


class DataError(RankmillError):
    """Raised when input data cannot be used as declared."""


class SourceError(DataError):
    """Raised when an input file is missing, empty or cannot be read at all."""


class RejectBudgetError(DataError):
    """Raised when the share of rejected rows passes `data.max_reject_share`."""


class LabelError(DataError):
    """Raised when the labels of a split cannot be learned from or judged by."""


class ArtefactError(RankmillError):
    """Raised when an artefact is absent, incomplete or was written by another version."""


class CorruptError(ArtefactError):
    """Raised when the content of an artefact does not match its recorded checksum."""


class TrainingError(RankmillError):
    """Raised when training cannot continue."""


class GateError(RankmillError):
    """Raised when a candidate model fails the gate."""


class ServingError(RankmillError):
    """Raised when a model server cannot be started or reached, or answers with an error."""
