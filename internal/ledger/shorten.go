package ledger

// A row as bytes has an end. So it lists the first waiters of each lane, counts the others, and lets the
// last of many lanes stand together. In memory nothing is cut off.

// shorten leaves so many places, and as many lanes and one more in each class, and counts the waiters
// that have none.
func (l *queue) shorten(places int) {
	lanes := places
	for k, c := range l.lanes {
		keep := min(len(c), lanes)
		lanes -= keep
		l.lanes[k] = c.gather(keep)
	}
	left := places
	for _, c := range l.lanes {
		for i := range c {
			left -= c[i].shorten(left / (len(c) - i))
		}
	}
}

// gather returns the first lanes, and one in which all others are counted; if there is one
// lane more than that, it stays.
func (c lanes) gather(keep int) lanes {
	if len(c) <= keep+1 {
		return c
	}
	all, rest := c[:keep:keep], lane{share: commonShare, weight: 1}
	for _, o := range c[keep:] {
		rest.costs, rest.beyond = rest.costs+o.costs, rest.beyond+o.costs
	}
	if common := all.of(commonShare); common != nil {
		common.costs, common.beyond = common.costs+rest.costs, common.beyond+rest.beyond
		return all
	}
	return append(all, rest)
}

// shorten leaves so many places in the lane, and returns how many it has.
func (l *lane) shorten(places int) (left int) {
	left = min(len(l.places), places)
	for _, p := range l.places[left:] {
		l.beyond += p.cost
	}
	l.places = l.places[:left]
	return left
}

// places are those of the only lane.
func (c lanes) places() []place {
	if len(c) == 0 {
		return nil
	}
	return c[0].places
}
