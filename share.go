package throttle

import (
	"errors"
	"fmt"
)

// maxWeight is the largest weight of a share.
const maxWeight = 1000

// errNoTurns is the error of a share under a limit that has no line for starts.
var errNoTurns = errors.New("only a limit that counts starts has a line in which shares take turns: leave the share out with Concurrency and Unlimited")

// checkShares checks the fields of a policy that are about shares.
func (p *Policy) checkShares() error {
	switch {
	case p.Share == nil && p.Weight != nil:
		return errors.New("a Weight has no effect without Share: set Share, or leave Weight out")
	case p.Share != nil && !p.Limit.Counts():
		return errNoTurns
	}
	return nil
}

// checkWeight returns the error of a weight that is out of range. 0 means 1.
func checkWeight(policy, field string, weight int) error {
	if weight < 0 || weight > maxWeight {
		return &ConfigError{policy, field, fmt.Errorf("%d is out of range: use 1 to %d", weight, maxWeight)}
	}
	return nil
}
