package node_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/redisstore/testdata/linecheck"
	"github.com/fleetthrottle/throttle/store"
)

const (
	second = int64(time.Second / time.Microsecond)

	waits wire.TicketState = 0 // the state of a ticket whose owner waits
)

// told is a call in which a caller, with that ticket if it has one, is told something of line 7.
func told(now int64, has *linecheck.Ticket, o linecheck.Outcome, waiting, cut, joined int64) *linecheck.Call {
	op := linecheck.Op{Kind: wire.Reserve, Horizon: second, Class: 2, Charges: []linecheck.Charge{{Key: "row", Cost: 1}}, Outcomes: []linecheck.Outcome{o}}
	if has != nil {
		op.Tickets = []linecheck.Ticket{*has}
	}
	c := &linecheck.Call{Now: now, Ops: []linecheck.Op{op}, Limits: map[string]linecheck.Limit{"row": {Kind: store.KindSlidingWindow, N: 1, Span: second}}, Lines: map[string]*wire.Line{}}
	if waiting > 0 {
		c.Lines["row"] = &wire.Line{ID: 7, Waiting: waiting, Cuts: [3]int64{1, cut, 1}, Joined: [3]int64{1, joined, 1}}
	}
	return c
}

func ticketOf(number int64, state wire.TicketState) *linecheck.Ticket {
	return &linecheck.Ticket{Ticket: wire.Ticket{Line: 7, Number: number, State: state}}
}

func inLine(at int64, t *linecheck.Ticket) linecheck.Outcome {
	return linecheck.Outcome{Callers: 1, State: wire.InLine, At: at, Tickets: []linecheck.Ticket{*t}}
}

// TestWhatIsAllowed: after two have joined.
func TestWhatIsAllowed(t *testing.T) {
	starts, leaves := linecheck.Outcome{Callers: 1, State: wire.Booked, At: 2 * second}, linecheck.Outcome{Callers: 1, State: wire.Refused, At: 9 * second}
	for name, c := range map[string]struct {
		call *linecheck.Call
		says string // "": it is allowed
	}{
		"a third joins":              {told(second, nil, inLine(5*second, ticketOf(3, waits)), 3, 1, 4), ""},
		"the first has its turn":     {told(second, ticketOf(1, waits), starts, 1, 2, 3), ""},
		"the first leaves":           {told(second, ticketOf(1, waits), leaves, 1, 2, 3), ""},
		"the second leaves":          {told(second, ticketOf(2, waits), leaves, 1, 1, 3), ""},
		"a leaver still counts":      {told(second, ticketOf(2, waits), leaves, 2, 1, 3), "1 wait, and 2 are told"},
		"one ticket for two":         {told(second, nil, inLine(5*second, ticketOf(2, waits)), 3, 1, 3), "ticket 2 is given"},
		"a newcomer starts at once":  {told(second, nil, linecheck.Outcome{Callers: 1, State: wire.Booked, At: second}, 2, 1, 3), "a newcomer starts at once"},
		"a wait until now":           {told(second, nil, inLine(second, ticketOf(3, waits)), 3, 1, 4), "until now"},
		"more is offered than there": {told(second, nil, inLine(5*second, ticketOf(3, waits)), 3, 4, 4), "3 are offered, and there is room for 2"},
		"the line has gone":          {told(second, nil, starts, 0, 1, 3), "2 wait, and there is no line"},
		"somebody is not counted":    {told(second, nil, inLine(5*second, ticketOf(3, waits)), 2, 1, 4), "3 wait, and 2 are told"},
	} {
		t.Run(name, func(t *testing.T) {
			lines := make(linecheck.Lines)
			require.NoError(t, lines.Check(told(0, nil, inLine(3*second, ticketOf(1, waits)), 1, 1, 2)))
			require.NoError(t, lines.Check(told(0, nil, inLine(4*second, ticketOf(2, waits)), 2, 1, 3)))
			err := lines.Check(c.call)
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.says)
		})
	}
}

// TestOffersLapse: what was offered may count no more, but not at once.
func TestOffersLapse(t *testing.T) {
	for wait, allowed := range map[int64]bool{linecheck.MinLapse: false, linecheck.MinLapse + 1: true} {
		lines := make(linecheck.Lines)
		require.NoError(t, lines.Check(told(0, nil, inLine(3*second, ticketOf(1, waits)), 1, 2, 2)))
		err := lines.Check(told(wait, nil, inLine(4*second, ticketOf(2, waits)), 1, 2, 3))
		require.Equal(t, allowed, err == nil, "%d: %v", wait, err)
	}
}

// TestWhatCannotBeRead is an error, and no panic.
func TestWhatCannotBeRead(t *testing.T) {
	for _, reply := range []wire.Frame{wire.Frame(nil).Add(int64(wire.Done), 1, 0, 1, 0), wire.Frame(nil).Add(int64(wire.Done))} {
		_, err := linecheck.Read([]any{"evalsha", "", 1, "record", "0", []byte(wire.Frame(nil).Add(1, 2, 3))}, string(reply))
		require.ErrorIs(t, err, linecheck.ErrUnread)
	}
	c, err := linecheck.Read(nil, string(wire.Frame(nil).Add(int64(wire.Late), 1)))
	require.NoError(t, err)
	require.Nil(t, c)
}
