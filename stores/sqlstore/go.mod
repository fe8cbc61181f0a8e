// Module sqlstore keeps budgets in MySQL or MariaDB. It is a module of its own so that programs
// that do not use these databases do not depend on their driver.
module github.com/fleetthrottle/throttle/stores/sqlstore

go 1.26.0

replace github.com/fleetthrottle/throttle => ../../

require (
	github.com/fleetthrottle/throttle v0.1.0
	github.com/go-sql-driver/mysql v1.10.1
	github.com/stretchr/testify v1.12.1
)

require (
	filippo.io/edwards25519 v1.2.0 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/redis/go-redis/v9 v9.23.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
