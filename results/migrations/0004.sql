-- From version 3 to 4: a verdict knows the evidence it was made of, so that only what a new boot can change is judged again.

ALTER TABLE verdicts ADD COLUMN evidence VARCHAR;
