-- From version 6 to 7: the bands of a chart are worked out when somebody looks at one (results/levels.py), and the numbers of a cell's boots
-- are found without reading those of all others.

DROP TABLE levels;
ALTER TABLE boot_facts ADD COLUMN history_id VARCHAR;
UPDATE boot_facts SET history_id = runs.history_id FROM runs WHERE runs.run_id = boot_facts.run_id;
