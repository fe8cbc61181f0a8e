package throttle

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// mostWeight is the largest weight of a share.
const mostWeight = 1000

// ShareOf returns the ID of the share that a policy of this name has for a name, as [Policy.Share]
// would return it; 0, which is no share, for "". Programs can so find a share in [Status].Shares,
// which holds no names.
func ShareOf(policy, share string) uint64 {
	if share == "" {
		return 0
	}
	k := budgetKey(policy, share)
	return max(2, binary.BigEndian.Uint64(k[:])>>11) // 53 bits, which every store can hold; 1 is for shares beyond those that a budget tells apart
}

// errNoTurns is the error of a share under a limit that has no line for starts.
var errNoTurns = errors.New("only a limit that counts starts has a line in which shares take turns: leave the share out with Concurrency and Unlimited")

// checkShares checks the fields of a policy that are about shares.
func (p *Policy) checkShares() error {
	switch {
	case p.Share == nil && p.Weight != nil:
		return errors.New("a Weight has no effect without Share: set Share, or leave Weight out")
	case p.Share != nil && !p.Limit.counts():
		return errNoTurns
	}
	return nil
}

// checkWeight returns the error of a weight that is out of range. 0 means 1.
func checkWeight(policy, field string, weight int) error {
	if weight < 0 || weight > mostWeight {
		return &ConfigError{policy, field, fmt.Errorf("%d is out of range: use 1 to %d", weight, mostWeight)}
	}
	return nil
}
