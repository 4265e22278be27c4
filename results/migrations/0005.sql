-- From version 4 to 5: a boot says whether its weights were those of a model or random ones (shapes); the view rooflines.

ALTER TABLE runs ADD COLUMN weights VARCHAR DEFAULT 'real';
