// Module pgstore keeps budgets in PostgreSQL. It is a module of its own so that programs that use another
// store do not depend on a driver of PostgreSQL.
module github.com/fleetthrottle/throttle/stores/pgstore

go 1.26.0

replace github.com/fleetthrottle/throttle => ../../

require (
	github.com/fleetthrottle/throttle v0.1.0
	github.com/jackc/pgx/v5 v5.11.0
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.2 // indirect
	github.com/redis/go-redis/v9 v9.23.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sync v0.17.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.29.0 // indirect
)
