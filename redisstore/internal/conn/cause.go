package conn

import "github.com/fleetthrottle/throttle/internal/outage"

// because returns the error of a call with its cause.
func because(err error) error {
	switch {
	case Denied(err):
		return outage.Because(outage.Denied, err)
	case !Transient(err):
		return outage.Because(outage.Failed, err)
	}
	return err
}
