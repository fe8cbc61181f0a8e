package redissim

// A Load is a server's work in some time.
type Load struct {
	Calls     int // of scripts
	Messages  int // that scripts published
	Beats     int // messages that nodes published
	Delivered int // messages to subscribers
	Slots     int // questions for the cluster's slots
	Other     int // other commands
	Dials     int // connections that were made
	BytesIn   int
	BytesOut  int
}

// Plus returns the sum of two loads.
func (l Load) Plus(m Load) Load { return l.join(m, 1) }

// Minus returns what came on top of an earlier load.
func (l Load) Minus(m Load) Load { return l.join(m, -1) }

func (l Load) join(m Load, sign int) Load {
	return Load{
		Calls: l.Calls + sign*m.Calls, Messages: l.Messages + sign*m.Messages, Beats: l.Beats + sign*m.Beats,
		Delivered: l.Delivered + sign*m.Delivered, Slots: l.Slots + sign*m.Slots, Other: l.Other + sign*m.Other,
		Dials: l.Dials + sign*m.Dials, BytesIn: l.BytesIn + sign*m.BytesIn, BytesOut: l.BytesOut + sign*m.BytesOut,
	}
}

// Published is all messages.
func (l Load) Published() int { return l.Messages + l.Beats }
