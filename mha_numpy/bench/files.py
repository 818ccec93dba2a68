"""The benchmark's files: checked before minutes of measuring, written after."""

from dataclasses import dataclass
from pathlib import Path

from mha_numpy.bench.report import replace_report, to_json, to_markdown
from mha_numpy.bench.results import Results
from mha_numpy.errors import ConfigError


@dataclass(frozen=True)
class Files:
    """Where to write what; None is not written.

    Parameters
    ----------
    json, markdown : Path, optional
        All figures, and the report.
    write : Path, optional
        A page where the report replaces the one on the same family of processors.
    chart : Path, optional
        A .png file.

    Raises
    ------
    ConfigError
        Something cannot be written there.
    """

    json: Path | None = None
    markdown: Path | None = None
    write: Path | None = None
    chart: Path | None = None

    def __post_init__(self) -> None:
        given = {name: path for name, path in vars(self).items() if path is not None}
        places = [path.resolve() for path in given.values()]
        for name, path in given.items():
            if path.is_dir() or not path.parent.is_dir():
                raise ConfigError(f"{name}: expected a file in a folder that exists; got {path}")
            if places.count(path.resolve()) > 1:
                raise ConfigError(f"{name}: expected a file of its own; got {path} twice")
        if self.chart is not None and self.chart.suffix != ".png":
            raise ConfigError(f"chart: expected a file .png; got {self.chart}")
        if self.write is not None:
            replace_report(_read(self.write), "", "")

    def save(self, results: Results) -> list[Path]:
        """Write all and return the paths; where nothing was compared there is no chart."""
        texts = {}
        if self.json:
            texts[self.json] = to_json(results)
        if self.markdown:
            texts[self.markdown] = to_markdown(results)
        if self.write:
            texts[self.write] = replace_report(
                _read(self.write), results.machine["family"], to_markdown(results)
            )
        charts = [self.chart] if self.chart and results.cells else []
        try:
            for path, text in texts.items():
                path.write_text(text, encoding="utf-8")
            for path in charts:
                _save_chart(path, results)
        except OSError as error:
            raise ConfigError(f"cannot write {error.filename}: {error.strerror}") from error
        return [*texts, *charts]


def _save_chart(path: Path, results: Results) -> None:
    from mha_numpy.bench.chart import ratio_chart
    from mha_numpy.show.pictures.save import DPI

    picture = ratio_chart(results)
    told = {"Description": str(picture.get_label()), "Software": None}
    picture.savefig(path, dpi=DPI, metadata=told)


def _read(page: Path) -> str:
    try:
        return page.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"write: cannot read {page} as text") from error
