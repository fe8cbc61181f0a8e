package main

// A load is what a server is asked for in some time.
type load struct {
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

// plus returns the sum of two loads.
func (l load) plus(m load) load { return l.join(m, 1) }

// minus returns what came on top of an earlier load.
func (l load) minus(m load) load { return l.join(m, -1) }

func (l load) join(m load, sign int) load {
	return load{
		Calls: l.Calls + sign*m.Calls, Messages: l.Messages + sign*m.Messages, Beats: l.Beats + sign*m.Beats,
		Delivered: l.Delivered + sign*m.Delivered, Slots: l.Slots + sign*m.Slots, Other: l.Other + sign*m.Other,
		Dials: l.Dials + sign*m.Dials, BytesIn: l.BytesIn + sign*m.BytesIn, BytesOut: l.BytesOut + sign*m.BytesOut,
	}
}

// published is all messages.
func (l load) published() int { return l.Messages + l.Beats }
