"""What was validated by what, and what was not."""

import contextlib
import shutil
import subprocess


class Invalid(Exception):
    """A file is not what it should be."""


class NotRun(Exception):
    """A validator that could not be run, and why."""


class Report:
    def __init__(self):
        self.valid = self.invalid = self.not_run = 0

    @contextlib.contextmanager
    def check(self, subject, validator):
        """One check: passes when its body ends, fails or was not run when it raises."""
        try:
            yield
        except NotRun as reason:
            self.not_run += 1
            print(f"not run  {subject}: {validator}: {reason}")
        except Exception as problem:
            # What falls over in a check is a file of a shape that was not thought of.
            self.invalid += 1
            text = str(problem) if isinstance(problem, Invalid) else repr(problem)
            print(f"INVALID  {subject}: {validator}")
            print("\n".join("    " + line for line in text.splitlines()))
        else:
            self.valid += 1
            print(f"valid    {subject}: {validator}")

    def conclude(self):
        print(f"check: {self.valid} valid, {self.invalid} invalid, {self.not_run} not run")
        return 1 if self.invalid else 0


def program(name):
    """Where a validator is."""
    found = shutil.which(name)
    if not found:
        raise NotRun(f"{name} is not here; Tests/Tools/check --all brings it")
    return found


def run(words, **options):
    """A validator that says by its exit code whether it is content."""
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, **options)
    if done.returncode:
        raise Invalid(done.stdout.strip() or f"{words[0]} ended with {done.returncode}")
    return done.stdout


def demand(condition, problem):
    if not condition:
        raise Invalid(problem)
