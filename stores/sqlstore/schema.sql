-- The table of sqlstore, for MySQL and MariaDB. A row is a budget, or what programs tell each other.
-- Rows whose names begin with "group " are there to be locked.
CREATE TABLE IF NOT EXISTS throttle_rows (
	name   VARBINARY(160) NOT NULL PRIMARY KEY,
	value  MEDIUMBLOB     NOT NULL,
	minute INT UNSIGNED   NOT NULL, -- since 1970: from then on the row may be removed
	KEY (minute)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;
