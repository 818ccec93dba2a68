"""What a student gets: instructions, stubs with the variant's conventions, public checks."""

import ast
import json
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from textwrap import fill, wrap
from typing import Any

from mha_numpy.errors import ConfigError
from mha_numpy.teach.classroom.assignment import Assignment
from mha_numpy.teach.classroom.marks import rules
from mha_numpy.teach.classroom.retold import retold
from mha_numpy.teach.conventions import DEFAULT, in_words_of
from mha_numpy.teach.diagnosis import CONVENTIONS, Variant
from mha_numpy.teach.exercises import Exercise
from mha_numpy.teach.exercises.folder import EXAMPLES, file_name
from mha_numpy.teach.own import Example

FORMS = ("notebook", "files")
WIDTH = 96
GIVEN = "import numpy as np"
UNWRITTEN = "    raise NotImplementedError\n"  # the last line of a stub


def handout_texts(assignment: Assignment, student: str, form: str) -> dict[str, str]:
    """Return the text of each file that the student with this id gets, or that all students get."""
    variants = assignment.variant(student)
    texts = {"README.md": readme_text(assignment, student, form)}
    if form == "notebook":
        return {**texts, f"{assignment.name}.ipynb": notebook_text(assignment, student)}
    for number, exercise in enumerate(assignment.catalogue, start=1):
        stub = stub_text(exercise, variants[exercise.id])
        texts[file_name(exercise, number)] = f"{GIVEN}\n\n\n{stub}"
    if assignment.own:
        told = {exercise: example.text for exercise, example in assignment.examples.items()}
        texts[EXAMPLES] = json.dumps(told, indent=1)
    return {**texts, "check.py": _checking_text(assignment, variants)}


def stub_text(exercise: Exercise, variant: Variant) -> str:
    """Return the function that a student starts from; it needs only NumPy.

    The docstring states the task in the variant's conventions, and in no others.

    Examples
    --------
    >>> from mha_numpy.teach.exercises import find_exercise
    >>> stub = stub_text(find_exercise("merge-heads"), Variant(1, ("heads after the tokens",)))
    >>> stub.splitlines()[8].strip()
    'heads : (B, T, H, d)'
    """
    return _stub_text(exercise, variant.conventions)


@cache  # many students have the same conventions
def _stub_text(exercise: Exercise, conventions: tuple[str, ...]) -> str:
    function, body = cut_function(exercise.stub_source)
    names = [argument.arg for argument in function.args.args]
    head = f"def {function.name}({', '.join(names)}):\n"
    if exercise.kind != "code":
        return head + body
    return head + retold(body, Variant(conventions=conventions).of(exercise.task))


def lines_given(assignment: Assignment, student: str) -> set[str]:
    """Return the lines of code that a student was given, without indentation."""
    variants = assignment.variant(student)
    stubs = [stub_text(exercise, variants[exercise.id]) for exercise in assignment.catalogue]
    return {line.strip() for text in (GIVEN, *stubs) for line in text.split("\n")}


def cut_function(source: str) -> tuple[ast.FunctionDef, str]:
    """Return the one function of a source, and the text of its body."""
    (function,) = (node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))
    return function, "".join(source.splitlines(keepends=True)[function.body[0].lineno - 1 :])


def notebook_text(assignment: Assignment, student: str) -> str:
    """Return the notebook of a student: the cells with the tag `exercise` are to be written.

    Examples
    --------
    >>> import json
    >>> one = Assignment("hw", "Homework", {"scores": 10}, {})
    >>> [cell["metadata"].get("tags") for cell in json.loads(notebook_text(one, "all"))["cells"]]
    [None, ['given'], ['check'], None, ['exercise'], ['check']]
    """
    v4, variants = load_nbformat().v4, assignment.variant(student)
    examples = assignment.examples

    def code(text: str, tag: str, name: str) -> Any:
        return v4.new_code_cell(text.strip(), id=name[:64], metadata={"tags": [tag]})

    intro = readme_text(assignment, student, "notebook")
    cells = [
        v4.new_markdown_cell(intro, id="instructions"),
        code(GIVEN, "given", "given"),
        code("from mha_numpy.teach.classroom import public_check", "check", "check"),
    ]
    for number, exercise in enumerate(assignment.catalogue, start=1):
        variant = variants[exercise.id]
        example = _example_lines(examples[exercise.id]) if exercise.id in examples else ""
        check = _check_call(exercise, variant, exercise.function_name, example)
        cells += [
            title_cell(assignment, exercise, number, variant),
            code(stub_text(exercise, variant), "exercise", f"exercise-{exercise.id}"),
            code(check, "check", f"check-{exercise.id}"),
        ]
    return as_notebook(cells)


def load_nbformat() -> Any:
    """Import nbformat, which only notebooks need."""
    try:
        return import_module("nbformat")
    except ImportError as error:
        raise ConfigError(
            "format: a notebook needs nbformat: pip install 'mha-numpy[classroom]', or write "
            "--format files"
        ) from error


def title_of(exercise: Exercise, variant: Variant) -> str:
    """Return an exercise's title in the words of a variant."""
    return in_words_of(variant.of(exercise.task), exercise.title)


def title_cell(
    assignment: Assignment, exercise: Exercise, number: int, variant: Variant = DEFAULT
) -> Any:
    """Return the cell above a function."""
    points = f"{assignment.exercises[exercise.id]:g} points"
    text = f"## {number}. {title_of(exercise, variant)}\n\n`{exercise.function_name}`, {points}"
    return load_nbformat().v4.new_markdown_cell(text, id=f"title-{exercise.id}")


def as_notebook(cells: Sequence[Any]) -> str:
    """Return the text of a notebook that has these cells."""
    nbformat = load_nbformat()
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
    nbformat.validate(notebook)
    return f"{nbformat.v4.writes(notebook)}\n"  # nbformat.writes would validate it again


def readme_text(assignment: Assignment, student: str, form: str) -> str:
    """Return the instructions, as Markdown."""
    variants = assignment.variant(student)
    exercises = assignment.catalogue
    rows = "\n".join(
        f"| {number} | {title_of(exercise, variants[exercise.id])} | `{exercise.function_name}` | "
        f"{exercise.minutes} | {assignment.exercises[exercise.id]:g} |"
        for number, exercise in enumerate(exercises, start=1)
    )
    whose = ""
    if assignment.roster is not None:
        name = assignment.roster.get(student, "")
        of = "variant" if assignment.are_conventions_drawn else "copy"
        whose = f"\n\nThis is the {of} of {f'{name} ({student})' if name else student}."
    when = assignment.deadline
    graded = GRADED if form in FORMS else GRADED_ELSEWHERE
    return README.format(
        title=assignment.title,
        whose=whose,
        until=f" Hand them in by {when:%Y-%m-%d %H:%M %Z}".rstrip() + "." if when else "",
        rows=rows,
        total=f"{assignment.total:g}",
        conventions=_conventions_text(exercises, variants),
        what=fill(WHAT[form].format(name=assignment.name), WIDTH),
        graded=graded.format(rules=fill(rules(assignment.marks), WIDTH)),
        tests=TESTS if any(exercise.kind == "tests" for exercise in exercises) else "",
    )


README = """# {title}{whose}

Write the functions below.{until}

| | | function | minutes | points |
|---|---|---|---|---|
{rows}
| | | | | {total} |

{conventions}{what}

{graded}
{tests}"""
GRADED = """\
When your code is graded it can see only Python and NumPy, so do not import `mha_numpy` in it. It is
called with different numbers from those in the public checks.

{rules}"""
GRADED_ELSEWHERE = """\
Your functions are graded with different numbers from those in the public checks. A function gets
all of its points if everything about it is right, and none otherwise. Use only NumPy in it, and do
not import `mha_numpy`."""
TESTS = """
Tests that you write get points for the mistakes that they catch: all points for nine out of ten,
and none if they reject a right function or do not run to the end.
"""
EXPORTED = (
    "Write into the cells that contain a function, and run the cell below each one: it checks "
    "shapes and one example. You may add cells with your own functions."
)
WHAT = {
    "otter": EXPORTED,
    "nbgrader": EXPORTED,
    "notebook": "Write into the cells of `{name}.ipynb` that contain a function, and run the cell "
    "below each one: it checks shapes and one example, and needs mha_numpy to be installed. Leave "
    "the cells' tags as they are; you may add cells with your own functions. Hand in the notebook.",
    "files": "Write into the files whose names begin with a number. `python check.py` checks "
    "shapes and one example of each, and needs mha_numpy to be installed. Hand in these files; "
    "each must work without the others.",
}


def _conventions_text(exercises: Sequence[Exercise], variants: dict[str, Variant]) -> str:
    where: dict[str, list[str]] = {}
    for exercise in exercises:
        for name in variants[exercise.id].conventions:
            where.setdefault(CONVENTIONS[name].sentence, []).append(f"`{exercise.function_name}`")
    if not where:
        return ""
    lines = [
        fill(f"- {sentence} ({', '.join(functions)})", WIDTH, subsequent_indent="  ")
        for sentence, functions in where.items()
    ]
    told = "\n".join(lines)
    return f"Your variant has its own conventions. The docstrings follow them:\n\n{told}\n\n"


def _check_call(exercise: Exercise, variant: Variant, function: str, example: str = "") -> str:
    conventions = f", {list(variant.conventions)!r}" if variant.conventions else ""
    call = f'public_check("{exercise.id}", {function}{conventions}'.replace("'", '"')
    return f"{call},{example})" if example else f"{call})"


def _example_lines(example: Example) -> str:
    """Return the public example of a teacher's own exercise as an argument in lines of Python."""
    lines = wrap(example.text, WIDTH - 8, break_long_words=False, break_on_hyphens=False)
    return "\n".join([' example="""', *lines, '"""'])


def _checking_text(assignment: Assignment, variants: dict[str, Variant]) -> str:
    calls = []
    for number, exercise in enumerate(assignment.catalogue, start=1):
        function = f'from_file("{file_name(exercise, number)}", "{exercise.function_name}")'
        example = (
            f'\n    example=EXAMPLES["{exercise.id}"]' if exercise.id in assignment.own else ""
        )
        calls.append(_check_call(exercise, variants[exercise.id], function, example))
    return CHECK.format(
        calls="\n".join(calls),
        load="from json import loads\n" if assignment.own else "",
        examples=LOADED if assignment.own else "",
    )


LOADED = """
EXAMPLES = loads((Path(__file__).parent / "examples.json").read_text())
"""
CHECK = '''"""Check shapes and one example of each function: python check.py"""

{load}from pathlib import Path
from runpy import run_path

from mha_numpy.teach.classroom import public_check
{examples}

def from_file(file, name):
    """Return a function that runs a file, and then what it defines by this name."""
    return lambda *arguments: run_path(str(Path(__file__).parent / file))[name](*arguments)


{calls}
'''
