// Module policyfile reads policies from a file. It is a module of its own so that
// programs with a table in Go do not depend on YAML.
module github.com/fleetthrottle/throttle/policyfile

go 1.26.0

replace github.com/fleetthrottle/throttle => ../

require (
	github.com/fleetthrottle/throttle v0.1.0
	go.yaml.in/yaml/v4 v4.0.0
)

require (
	github.com/agnivade/levenshtein v1.2.1
	github.com/redis/go-redis/v9 v9.23.0
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.14.0 // indirect
)

require (
	github.com/stretchr/testify v1.12.1
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)
