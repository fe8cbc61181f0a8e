// Module cmd/throttle is the command line. It is a module of its own so that programs
// that use the library do not depend on it.
module github.com/fleetthrottle/throttle/cmd/throttle

go 1.26.0

replace (
	github.com/fleetthrottle/throttle => ../../
	github.com/fleetthrottle/throttle/policyfile => ../../policyfile
)

require (
	github.com/fleetthrottle/throttle v0.0.0-00010101000000-000000000000
	github.com/fleetthrottle/throttle/policyfile v0.0.0-00010101000000-000000000000
	github.com/redis/go-redis/v9 v9.23.0
	github.com/rogpeppe/go-internal v1.16.0
	github.com/spf13/cobra v1.10.2
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/agnivade/levenshtein v1.2.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/spf13/pflag v1.0.9 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	go.yaml.in/yaml/v4 v4.0.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/tools v0.26.0 // indirect
)
