// Module asynqthrottle keeps the tasks of asynq within the limits of somebody else's API. It is a
// module of its own so that programs that do not use asynq do not depend on it.
module github.com/fleetthrottle/throttle/adapters/asynqthrottle

go 1.26.0

replace github.com/fleetthrottle/throttle => ../../

require (
	github.com/fleetthrottle/throttle v0.1.0
	github.com/hibiken/asynq v0.26.0
	github.com/redis/go-redis/v9 v9.23.0
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/robfig/cron/v3 v3.0.1 // indirect
	github.com/spf13/cast v1.10.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/time v0.14.0 // indirect
	google.golang.org/protobuf v1.36.10 // indirect
)
