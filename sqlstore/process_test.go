package sqlstore_test

import "github.com/fleetthrottle/throttle/internal/crew"

const role = "sqlstore"

func member(program *crew.Link) error { return nil }
