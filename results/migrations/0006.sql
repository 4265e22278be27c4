-- From version 5 to 6: a verdict keeps the evidence itself instead of a digest of it, and a history is stale in some of its versions only.

DROP TABLE stale_histories;
CREATE TABLE stale_histories (history_id VARCHAR NOT NULL, version VARCHAR);
UPDATE verdicts SET evidence = NULL;
