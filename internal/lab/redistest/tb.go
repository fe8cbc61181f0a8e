package redistest

import "github.com/fleetthrottle/throttle/internal/lab/servers"

// A TB is the test, or the program, for which servers are started.
type TB = servers.TB
